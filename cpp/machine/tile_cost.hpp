// machine/tile_cost.hpp — what a register tile costs: multiply-adds, loads and the latency of sums.
#pragma once

#include <cstdint>

#include "machine/cpu.hpp"

namespace syno::machine {

/// Pieces of the second cache are followed by what fetches ahead into the first one where they have so many
/// lines, or begin no more than so many bytes apart (Intel's optimisation manual: half a page): nothing waits
/// for them. Lines as timed on a Xeon, in rows of two to twelve.
constexpr double kFollowedLines = 8, kFollowedStep = 2048;
inline bool followed(double lines, double apart) { return lines >= kFollowedLines || apart <= kFollowedStep; }

/// Code has a sum's loop as a whole, the taps of a window, where an iteration adds to no more than so many
/// vectors of sums and all of them together to no more than so many.
constexpr std::int64_t kFewSums = 16, kShortLoop = 64;

/// Registers: `rows` broadcast operands times `vectors` vector operands.
struct Tile {
  std::int64_t rows = 1, vectors = 1;
  double cycles = 0;  ///< of the whole scope, by multiply-adds, loads and latency
};
constexpr std::int64_t kMostRows = 28, kMostVectors = 8;  ///< of a tile
bool tile_fits(const Target& target, std::int64_t rows, std::int64_t vectors);
constexpr double kStepCycles = 0.7;  ///< of the loop around a step
/// Cycles of one step of sums: multiply-adds, loads, or the latency of so many terms that wait for each
/// other, whichever is longest. Counts are in cycles of a core that does one multiply-add in each: one that
/// does more moves more, too.
double step_cycles(const Target& target, double multiply_adds, double loads, double waiting = 1);
/// Cycles of `rows` x `vectors` results by tiles of mr x nv, `steps` multiply-adds each.
double tile_cycles(const Target& target, std::int64_t rows, std::int64_t vectors, double steps,
                   std::int64_t mr, std::int64_t nv);
/// The tile for `rows` x `vectors` results, `steps` multiply-adds each.
Tile best_tile(const Target& target, std::int64_t rows, std::int64_t vectors, double steps,
               std::int64_t most_rows = kMostRows);

}  // namespace syno::machine
