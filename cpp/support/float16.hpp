// support/float16.hpp — IEEE binary16 in memory: 1 sign, 5 exponent, 10 fraction digits.
#pragma once

#include <bit>
#include <cstdint>

namespace syno {

/// Rounded to nearest, ties to even; beyond 65504 (from 65520 on) infinity. A NaN stays one, and is quiet.
inline std::uint16_t to_float16(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint32_t>(word >> 16 & 0x8000);
  const std::uint32_t magnitude = word & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<std::uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x477ff000) return static_cast<std::uint16_t>(sign | 0x7c00);
  if (magnitude >= 0x38800000) {  // normal: the exponent's bias goes from 127 to 15
    const std::uint32_t moved = magnitude - 0x38000000;
    return static_cast<std::uint16_t>(sign | ((moved + 0xfff + (moved >> 13 & 1)) >> 13));
  }
  if (magnitude < 0x33000000) return static_cast<std::uint16_t>(sign);  // below half of the least one
  const std::uint32_t shift = 126 - (magnitude >> 23);
  const std::uint32_t fraction = (magnitude & 0x7fffff) | 0x800000;
  const std::uint32_t kept = fraction >> shift, rest = fraction & ((1u << shift) - 1),
                      half = 1u << (shift - 1);
  return static_cast<std::uint16_t>(sign | (kept + (rest > half || (rest == half && (kept & 1) != 0))));
}

inline float from_float16(std::uint16_t half) {
  const auto sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
  const std::uint32_t exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000 | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

}  // namespace syno
