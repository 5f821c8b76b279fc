// schedule/prefetch.hpp — asking for memory ahead: while a register tile is computed, the lines that the next
// one reads elsewhere, and those that its results meet, are on their way.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/names.hpp"

namespace syno::schedule {

/// A loop that is around, from `begin`.
struct Trips {
  std::uint32_t slot = 0;
  std::int64_t begin = 0, count = 1;
  std::int64_t fewest = 0;  ///< iterations in any call, where the count is the greatest; 0: always as many
  std::int64_t whole = 0;   ///< iterations, from 0, of all slices together; 0: these
};

/// A loop of which each iteration is code of its own, and which one of them is around.
struct Slice {
  std::uint32_t slot = 0;
  std::int64_t which = 0, of = 1;
};

/// The loops around a tile's multiply-adds, outermost first: outside the reduction, the reduction's own, and
/// those that stay in registers.
struct Walk {
  std::vector<Trips> outside, steps, tile;
  std::vector<Slice> slices;     ///< that read the same ask for it together, each for its share
  std::int64_t near_bytes = 0;   ///< of the buffer that stay in a near cache until they are read again
  std::int64_t ahead_bytes = 0;  ///< from what is read to what is asked for, where steps go through a stream
};

/// What each step of a reduction that reads `buffer` at `places` does to have asked, with all others, for
/// what is read when the read next moves to memory that is not near, of windows the part that is new; or for
/// a stream: memory that steps go through in one run, each line once. Prefetchers follow it, but where a line
/// is multiplied into many sums they see too few of them to have the next ones come in time. Nothing where it
/// is no box of memory, it never moves, or lines come too fast. All slots are bound in `forms`.
///
/// A product that reads w[k, 0..32) in step k, for 14 rows, asks there for the two lines of w[k + 96, 0..32).
std::vector<StatementId> prefetch_ahead(LoopNest& nest, AffineForms& forms, BufferId buffer,
                                        const std::vector<ExprId>& places, const Walk& walk);

/// What the steps of a tile's reduction do to have asked for what its sums are finished with, or written to,
/// once they are complete: lines of tens of pages at once, which nobody else foresees. `places` are over the
/// tile's loops. Nothing where that is no box of memory, its rows lie close to each other, or there are too
/// few steps.
///
/// y[c, p] = relu(sum[k] ... + z[c, p]) for a tile of 6 rows of 64 elements asks, in 64 steps of its sum, for
/// 24 lines of z.
std::vector<StatementId> prefetch_results(LoopNest& nest, AffineForms& forms, BufferId buffer,
                                          const std::vector<ExprId>& places, const Walk& walk);

}  // namespace syno::schedule
