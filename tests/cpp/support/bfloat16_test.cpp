// bfloat16 against the definition of rounding: the nearest one, the even one of two that are as near.
#include "support/bfloat16.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/random.hpp"

namespace syno {
namespace {

TEST(Bfloat16, EveryOneComesBack) {
  for (std::uint32_t half = 0; half < 0x10000; ++half) {
    const float value = from_bfloat16(static_cast<std::uint16_t>(half));
    const std::uint32_t quiet = std::isnan(value) ? 0x40 : 0;
    ASSERT_EQ(to_bfloat16(value), half | quiet);
  }
}

TEST(Bfloat16, IsTheNearestOne) {
  Random random(5);
  for (int trial = 0; trial < 200000; ++trial) {
    auto word = static_cast<std::uint32_t>(random.below(std::uint64_t{1} << 32));
    if (trial % 4 == 0) word = (word & 0xffff0000u) | 0x8000u;               // half way
    if (trial % 4 == 1) word = (word & 0xffff0000u) | (0x7fffu + word % 3);  // near it
    const auto value = std::bit_cast<float>(word);
    const std::uint16_t made = to_bfloat16(value);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(from_bfloat16(made)));
      continue;
    }
    ASSERT_EQ(std::signbit(from_bfloat16(made)), std::signbit(value));
    // What lies beyond the largest finite number is infinite from half a step on: a step as the last one.
    const auto magnitude = [](std::uint32_t half) {
      return half == 0x7f80 ? std::ldexp(1.0, 128)
                            : static_cast<double>(from_bfloat16(static_cast<std::uint16_t>(half)));
    };
    const double wanted = std::isinf(value) ? std::ldexp(1.0, 128) : std::abs(static_cast<double>(value));
    const std::uint32_t bits = made & 0x7fffu;
    const double error = std::abs(magnitude(bits) - wanted);
    if (bits > 0) {
      const double below = std::abs(magnitude(bits - 1) - wanted);
      ASSERT_TRUE(error < below || (error == below && bits % 2 == 0)) << value;
    }
    if (bits < 0x7f80) {
      const double above = std::abs(magnitude(bits + 1) - wanted);
      ASSERT_TRUE(error < above || (error == above && bits % 2 == 0)) << value;
    }
  }
}

TEST(Bfloat16, KeepsWhatIsSpecial) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(to_bfloat16(infinity), 0x7f80);
  EXPECT_EQ(to_bfloat16(-infinity), 0xff80);
  EXPECT_EQ(to_bfloat16(-0.0f), 0x8000);
  EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::max()), 0x7f80);
  // All digits that are set of these NaNs would be lost.
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x7f800001u)), 0x7fc0);
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0xffffffffu)), 0xffff);
}

}  // namespace
}  // namespace syno
