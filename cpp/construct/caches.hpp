// construct/caches.hpp — what constructors take for granted of every CPU's caches. Their sizes are the
// machine's.
#pragma once

#include <cstdint>

namespace syno::construct {

inline constexpr std::int64_t kPage = 4096;  ///< bytes
inline constexpr double kLine = 64;          ///< bytes
inline constexpr std::int64_t kWays = 8;     ///< of the first cache
/// Cycles that a line from beyond the second cache costs in the order it lies in, and where each lies on a
/// page of its own: no prefetcher follows.
inline constexpr double kFarLine = 0.3, kApartLine = 12;
/// Cycles that a line from the second cache costs beside what computes, and the part of the first cache that
/// operands may take.
inline constexpr double kNearLine = 0.15, kNearShare = 0.6;
/// Cycles to move an element by blocks that are transposed in registers: within the second cache, and from
/// beyond it, there and back.
inline constexpr double kMoved = 0.6, kMovedFar = 1.2;

inline std::int64_t up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace syno::construct
