// schedule/prefetch.hpp — asking for memory ahead: while a register tile is computed, the lines that the next
// one reads elsewhere are on their way.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "schedule/names.hpp"

namespace syno::schedule {

/// A loop that is around, from `begin`.
struct Trips {
  std::uint32_t slot = 0;
  std::int64_t begin = 0, count = 1;
  std::int64_t fewest = 0;  ///< iterations in any call, where the count is the greatest; 0: always as many
};

/// The loops around a tile's multiply-adds, outermost first: outside the reduction, the reduction's own, and
/// those that stay in registers.
struct Walk {
  std::vector<Trips> outside, steps, tile;
  std::int64_t near_bytes = 0;  ///< of the buffer that stay in a near cache until they are read again
};

/// What each step of a reduction that reads `buffer` at `places` does to have asked, with all others, for
/// what is read when the read next moves to memory that is not near. Nothing where that is no box of memory,
/// it never does, or there are fewer steps than lines. All slots are bound in `forms`.
std::optional<StatementId> prefetch_next(LoopNest& nest, AffineForms& forms, BufferId buffer,
                                         const std::vector<ExprId>& places, const Walk& walk);

}  // namespace syno::schedule
