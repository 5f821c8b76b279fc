// Rational: exact arithmetic, its limits and the infinities.
#include "support/rational.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "support/error.hpp"
#include "support/random.hpp"

namespace syno {
namespace {

TEST(Rational, IsKeptInLowestTerms) {
  EXPECT_EQ(Rational(6, -4), Rational(-3, 2));
  EXPECT_EQ(Rational(6, -4).den(), 2);
  EXPECT_EQ(Rational(0, 7).den(), 1);
}

TEST(Rational, FieldLawsHoldOnRandomNumbers) {
  Random random(1);
  const auto draw = [&] {
    return Rational(static_cast<std::int64_t>(random.below(201)) - 100,
                    static_cast<std::int64_t>(random.below(50)) + 1);
  };
  for (int trial = 0; trial < 2000; ++trial) {
    const Rational a = draw(), b = draw(), c = draw();
    EXPECT_EQ((a + b) + c, a + (b + c));
    EXPECT_EQ(a * (b + c), a * b + a * c);
    EXPECT_EQ(a - b + b, a);
    if (b != Rational(0)) {
      EXPECT_EQ(a / b * b, a);
    }
    EXPECT_EQ(a < b, a.to_double() < b.to_double());
  }
}

TEST(Rational, ThrowsInsteadOfWrapping) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_THROW(Rational(most) + Rational(1), ShapeError);
  EXPECT_THROW(Rational(most) * Rational(2), ShapeError);
  EXPECT_THROW(Rational(1, most) * Rational(1, 2), ShapeError);
  EXPECT_EQ(Rational(most, 2) * Rational(2), Rational(most)) << "intermediate results may be large";
  EXPECT_THROW(Rational(1) / Rational(0), ShapeError);
  EXPECT_THROW(Rational(1, 0), ShapeError);
}

TEST(Rational, InfinitiesOrderAndAbsorb) {
  const Rational inf = Rational::infinity(), minus = Rational::infinity(true);
  EXPECT_LT(minus, Rational(-1000000));
  EXPECT_LT(Rational(1000000), inf);
  EXPECT_EQ(inf + Rational(3), inf);
  EXPECT_EQ(Rational(3) - inf, minus);
  EXPECT_EQ(inf * Rational(-2), minus);
  EXPECT_EQ(Rational(1) / inf, Rational(0));
  EXPECT_THROW(inf - inf, ShapeError);
  EXPECT_THROW(inf * Rational(0), ShapeError);
  EXPECT_EQ(inf.to_text(), "inf");
  EXPECT_EQ(Rational(-1, 2).to_text(), "-1/2");
}

}  // namespace
}  // namespace syno
