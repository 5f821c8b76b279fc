// construct/near.hpp — what it costs that tiles bring their operands into the first cache again and again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "construct/analysis.hpp"
#include "machine/cpu.hpp"

namespace syno::construct {

/// One operand, as the inner of the two loops over tiles sees it.
struct NearOperand {
  Touched tile;        ///< by one tile
  Touched range;       ///< by all tiles of the inner loop
  bool stays = false;  ///< they all read the same
};

/// Cycles, in those of a core that starts one multiply-add in each, to bring operands from the second cache
/// into the first one: `outer` times an inner loop over `inner` tiles. 128 steps of six rows and 16 columns
/// read 3 + 8 KiB, and the rows come once; 2,304 steps read 54 + 144 KiB, and everything comes for each
/// tile.
double near_cycles(const machine::Target& target, std::span<const NearOperand> operands, double inner,
                   double outer);

/// What a packed operand touches: one run of so many bytes.
Touched run_of(double bytes);

/// How many iterations of each loop of a reduction a part of so many steps takes, 0: all.
std::vector<std::int64_t> iterations_of_part(std::vector<std::int64_t> extents, std::int64_t steps);

/// A part of a scope's sum for one result: iterations by loop, the first `traversal` of which are over
/// results, and how many steps that is.
struct SumPart {
  std::vector<std::int64_t> iterations;
  double steps = 1;
};
SumPart part_of_sum(const std::vector<std::int64_t>& extents, std::size_t traversal, std::int64_t steps);

}  // namespace syno::construct
