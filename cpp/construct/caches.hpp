// construct/caches.hpp — what constructors take for granted of every CPU's caches. Their sizes are the
// machine's.
#pragma once

#include <cstdint>

namespace syno::construct {

inline constexpr std::int64_t kPage = 4096;  ///< bytes
inline constexpr double kLine = 64;          ///< bytes
inline constexpr std::int64_t kWays = 8;     ///< of the first cache
/// Cycles of a line beyond the second cache where each lies on a page of its own: no prefetcher follows.
inline constexpr double kApartLine = 12;
inline constexpr double kNearShare = 0.6;  ///< of the first cache that operands may take
/// Cycles to move an element by blocks that are transposed in registers: within the second cache, and from
/// beyond it, there and back.
inline constexpr double kMoved = 0.6, kMovedFar = 1.2;

inline std::int64_t up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace syno::construct
