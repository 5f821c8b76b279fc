#include "symbolic/congruence.hpp"

#include <cstdlib>
#include <utility>

#include "support/checked.hpp"
#include "support/error.hpp"

namespace syno::symbolic {

std::int64_t modular_inverse(std::int64_t a, std::int64_t m) {
  // Euclid's algorithm; at each step this = a * of_this and next = a * of_next modulo m.
  std::int64_t current = m, next = floor_modulo(a, m), of_current = 0, of_next = 1;
  while (next != 0) {
    const std::int64_t quotient = current / next;
    current = std::exchange(next, current - quotient * next);
    of_current = std::exchange(of_next, of_current - quotient * of_next);
  }
  SYNO_ASSERT(current == 1, "numbers without a common divisor have an inverse");
  return floor_modulo(of_current, m);
}

CongruenceSolutions solve_congruence(Arena& arena, std::int64_t coefficient, ExprId rest,
                                     std::int64_t modulus, ExprId t) {
  const Size by(modulus);
  // first = (-inverse * rest) % modulus; the factor nearest to zero reads best.
  const bool unit = std::abs(coefficient) == 1;
  std::int64_t times = unit ? -coefficient : floor_modulo(-modular_inverse(coefficient, modulus), modulus);
  if (!unit && times > modulus - times) times -= modulus;
  const ExprId steps = arena.multiply(rest, times);
  const ExprId first = arena.modulo(steps, by);
  const ExprId x = arena.add(arena.multiply(t, modulus), first);
  const ExprId left = unit ? arena.multiply(arena.divide(steps, by), times)
                           : arena.divide(arena.add(arena.multiply(first, coefficient), rest), by);
  return {x, arena.add(arena.multiply(t, coefficient), left)};
}

}  // namespace syno::symbolic
