// support/bfloat16.hpp — bfloat16 in memory: the upper half of a float, rounded to nearest, ties to even.
#pragma once

#include <bit>
#include <cstdint>

namespace syno {

/// A NaN stays one, with its sign and upper digits, and becomes quiet.
inline std::uint16_t to_bfloat16(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  if (value != value) return static_cast<std::uint16_t>(word >> 16 | 0x40);
  return static_cast<std::uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16);
}
inline float from_bfloat16(std::uint16_t half) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

}  // namespace syno
