#include "support/significant.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace syno {
namespace {

TEST(Significant, KeepsTheDigitsThatSaySomething) {
  EXPECT_EQ(significant(0.03124), "0.0312");
  EXPECT_EQ(significant(12.34), "12.3");
  EXPECT_EQ(significant(1234.56), "1235");
  EXPECT_EQ(significant(-0.5, 1), "-0.5");
  EXPECT_EQ(significant(0), "0");
  EXPECT_EQ(significant(3e-12), "3.00e-12");
  EXPECT_EQ(significant(std::numeric_limits<double>::infinity()), "inf");
}

TEST(Significant, IsNearTheNumber) {
  for (double value = 1e-11; value < 1e17; value *= 1.7)
    EXPECT_NEAR(std::stod(significant(value)), value, 0.0051 * value);
}

}  // namespace
}  // namespace syno
