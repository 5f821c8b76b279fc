// Congruences against all integers of a window.
#include "symbolic/congruence.hpp"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <numeric>
#include <set>

#include "support/checked.hpp"

namespace syno::symbolic {
namespace {

TEST(Congruence, HasTheSolutionsThatTryingFinds) {
  const Sizes sizes;
  int solved = 0;
  for (std::int64_t modulus = 1; modulus <= 12; ++modulus) {
    for (std::int64_t coefficient = -13; coefficient <= 13; ++coefficient) {
      if (coefficient == 0 || std::gcd(coefficient, modulus) != 1) continue;
      ++solved;
      Arena arena;
      // rest = 3*h + 1, so that every remainder occurs unless the modulus is a multiple of 3.
      const ExprId rest = arena.add(arena.multiply(arena.iterator(0), 3), arena.constant(1));
      const auto found = solve_congruence(arena, coefficient, rest, modulus, arena.iterator(1));
      for (std::int64_t h = -15; h <= 15; ++h) {
        const std::int64_t r = 3 * h + 1;
        std::set<std::int64_t> wanted, got;
        for (std::int64_t x = 0; x < 4 * modulus; ++x)
          if (floor_modulo(coefficient * x + r, modulus) == 0) wanted.insert(x);
        for (std::int64_t t = -2; t < 6; ++t) {
          const std::array<std::int64_t, 2> at{h, t};
          const std::int64_t x = *evaluate(arena, found.x, sizes, 0, at);
          const std::int64_t quotient = *evaluate(arena, found.quotient, sizes, 0, at);
          ASSERT_EQ(quotient * modulus, coefficient * x + r)
              << coefficient << " * " << x << " + " << r << " over " << modulus;
          ASSERT_EQ(floor_divide(x, modulus), t) << "the first is in [0, modulus)";
          if (t >= 0 && t < 4) got.insert(x);
        }
        ASSERT_EQ(got, wanted) << coefficient << " * x + " << r << " modulo " << modulus;
      }
    }
  }
  EXPECT_GT(solved, 150);
}

TEST(ModularInverse, TimesTheNumberIsOne) {
  for (std::int64_t m = 1; m <= 60; ++m)
    for (std::int64_t a = -70; a <= 70; ++a) {
      if (std::gcd(a, m) != 1) continue;
      const std::int64_t x = modular_inverse(a, m);
      ASSERT_TRUE(x >= 0 && x < m);
      ASSERT_EQ(floor_modulo(a * x, m), 1 % m) << a << " modulo " << m;
    }
}

TEST(ModularInverse, OfLargeNumbersIsFoundAtOnce) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();  // 7 * 7 * 73 * 127 * 337 * ...
  for (const std::int64_t m : {kMost, (std::int64_t{1} << 61) - 1, std::int64_t{1} << 62})
    for (const std::int64_t a : {std::int64_t{3}, std::int64_t{5}, m - 1, m / 2 + 2, -m + 3}) {
      if (std::gcd(a, m) != 1) continue;
      const auto product = static_cast<Int128>(a) * modular_inverse(a, m) % m;
      ASSERT_TRUE(product == 1 || product == 1 - static_cast<Int128>(m)) << a << " modulo " << m;
    }
}

TEST(ModularInverseDeathTest, OfWhatHasNoneIsADefect) {
  EXPECT_DEATH(modular_inverse(4, 6), "common divisor");
  EXPECT_DEATH(modular_inverse(0, 5), "common divisor");
}

}  // namespace
}  // namespace syno::symbolic
