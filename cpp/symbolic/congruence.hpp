// symbolic/congruence.hpp — the integers that a remainder lets through.
#pragma once

#include <cstdint>

#include "symbolic/expr.hpp"

namespace syno::symbolic {

/// x in [0, m) with a * x = 1 modulo m > 0; a and m share no divisor.
std::int64_t modular_inverse(std::int64_t a, std::int64_t m);

/// One solution for each integer t: `x` = modulus * t + first, first in [0, modulus); `quotient` is what
/// (coefficient * x + rest) / modulus, which leaves no remainder, is there.
struct CongruenceSolutions {
  ExprId x{}, quotient{};
};
/// All integers x with (coefficient * x + rest) % modulus = 0; coefficient and modulus share no divisor.
/// r with (h + 1 - r) % 2 = 0 are 2*t + (h + 1) % 2.
CongruenceSolutions solve_congruence(Arena& arena, std::int64_t coefficient, ExprId rest,
                                     std::int64_t modulus, ExprId t);

}  // namespace syno::symbolic
