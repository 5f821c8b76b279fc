// support/checked.hpp — 64-bit integer arithmetic that throws instead of wrapping, and floor division.
#pragma once

#include <cstdint>

namespace syno {

__extension__ typedef __int128 Int128;  ///< for intermediate results only
__extension__ typedef unsigned __int128 UInt128;

[[noreturn]] void fail_overflow(const char* operation, std::int64_t a, std::int64_t b);

inline std::int64_t checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) fail_overflow("+", a, b);
  return result;
}
inline std::int64_t checked_subtract(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (__builtin_sub_overflow(a, b, &result)) fail_overflow("-", a, b);
  return result;
}
inline std::int64_t checked_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) fail_overflow("*", a, b);
  return result;
}

/// Quotient rounded towards minus infinity and the remainder with it, in [0, b); b > 0.
constexpr std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return a % b < 0 ? quotient - 1 : quotient;
}
constexpr std::int64_t floor_modulo(std::int64_t a, std::int64_t b) {
  const std::int64_t remainder = a % b;
  return remainder < 0 ? remainder + b : remainder;
}

}  // namespace syno
