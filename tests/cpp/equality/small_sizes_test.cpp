// What small valuations keep of the ones they stand for.
#include "equality/small_sizes.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "support/random.hpp"

namespace syno::equality {
namespace {

using symbolic::Size;
using symbolic::Sizes;
using symbolic::Variable;
using symbolic::VariableKind;

constexpr auto P = VariableKind::Primary;
constexpr auto C = VariableKind::Coefficient;

TEST(SmallSizes, OfResnet18) {
  const Sizes sizes({{"C_in", P}, {"C_out", P}, {"H", P}, {"k_1", C}, {"k_2", C}, {"s", C}, {"g", C}},
                    {{64, 64, 56, 3, 7, 2, 32}, {64, 128, 28, 3, 7, 2, 32}, {512, 512, 7, 3, 7, 2, 32}});
  const Sizes small = small_sizes(sizes);
  ASSERT_EQ(small.valuation_count(), 2U);
  for (std::size_t row = 0; row < 2; ++row) {
    const auto values = small.valuation(row);
    EXPECT_NE(values[0], values[1]) << "channels in and out differ somewhere";
    EXPECT_LE(values[0] * values[1] * values[2], 64 * 64 * 56 / 3);
    EXPECT_EQ(values[3], 3);
    EXPECT_EQ(values[4], 7);
    EXPECT_EQ(values[5], 2);
  }
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NE(small.valuation(0)[i], small.valuation(1)[i]);
  EXPECT_NE(small.valuation(0)[0] * small.valuation(1)[1], small.valuation(1)[0] * small.valuation(0)[1])
      << "ratios differ";
  for (const char* text : {"C_in*g^-1", "C_in*g^-1*s^-1", "C_out*s^-2", "H*k_2^-1", "g*s^-1", "g*s^-2"}) {
    EXPECT_TRUE(small.integral(small.parse(text))) << text;
  }
}

TEST(SmallSizes, NothingIsOneAtBothThatIsNotOneEverywhere) {
  // At C_out = 16 alone, C_out / s^2 would be s^2.
  const Sizes sizes({{"C_in", P}, {"C_out", P}, {"H", P}, {"k", C}, {"s", C}},
                    {{32, 32, 24, 3, 2}, {32, 64, 12, 3, 2}});
  const Sizes small = small_sizes(sizes);
  ASSERT_EQ(small.valuation_count(), 2U);
  std::size_t looked_at = 0;
  for (int c_in = -1; c_in <= 1; ++c_in) {
    for (int c_out = -1; c_out <= 1; ++c_out) {
      for (int h = -1; h <= 1; ++h) {
        for (int k = -3; k <= 3; ++k) {
          for (int s = -3; s <= 3; ++s) {
            if (std::abs(k) + std::abs(s) > 3 || std::abs(c_in) + std::abs(c_out) + std::abs(h) > 2 ||
                std::abs(c_in + c_out + h) == 2) {
              continue;
            }
            const Size size = Size::variable(0, c_in) * Size::variable(1, c_out) * Size::variable(2, h) *
                              Size::variable(3, k) * Size::variable(4, s);
            if (size.is_one()) continue;
            ++looked_at;
            EXPECT_FALSE(small.equal_values(size, Size())) << small.to_text(size);
          }
        }
      }
    }
  }
  EXPECT_GT(looked_at, 300U);
}

TEST(SmallSizes, OfTwoLargeCoefficientsStaySmall) {
  // Beside 5 for k, g is s^2 by chance; were it so at both valuations, no growth of the channels could tell
  // C_in from C_out * s^2 / g.
  const Sizes sizes({{"C_in", P}, {"C_out", P}, {"L", P}, {"k", C}, {"s", C}, {"g", C}},
                    {{64, 64, 512, 9, 2, 32}, {128, 128, 256, 9, 2, 32}});
  const Sizes small = small_sizes(sizes);
  ASSERT_EQ(small.valuation_count(), 2U);
  for (std::size_t row = 0; row < 2; ++row) {
    EXPECT_EQ(small.valuation(row)[0], small.valuation(row)[1]);
    EXPECT_LE(small.valuation(row)[0], 64);
  }
  for (const std::size_t coefficient : {3, 5})
    EXPECT_NE(small.valuation(0)[coefficient], small.valuation(1)[coefficient]);
}

TEST(SmallSizes, SmallOnesStayAsTheyAre) {
  const Sizes sizes({{"C", P}, {"k", C}}, {{8, 3}});
  EXPECT_EQ(small_sizes(sizes), sizes);
  EXPECT_EQ(small_sizes(Sizes()), Sizes());
}

TEST(SmallSizes, EqualVariablesStayEqual) {
  const Sizes small = small_sizes(Sizes({{"H", P}, {"W", P}, {"C", P}}, {{64, 64, 3}, {32, 32, 3}}));
  for (std::size_t row = 0; row < small.valuation_count(); ++row) {
    EXPECT_EQ(small.valuation(row)[0], small.valuation(row)[1]);
    EXPECT_EQ(small.valuation(row)[2], 3);
  }
}

TEST(SmallSizes, WhatIsAnIntegerOrOneEverywhereStaysSo) {
  Random random(5);
  std::size_t integers = 0, ones = 0;
  for (int i = 0; i < 200; ++i) {
    const std::int64_t coefficients[] = {2, 3, 4, 5, 7, 8, 16, 32};
    std::vector<std::int64_t> c(3);
    for (auto& value : c) value = coefficients[random.below(8)];
    std::vector<std::vector<std::int64_t>> rows;
    for (std::size_t r = 0; r < 1 + random.below(3); ++r) {
      rows.push_back({c[0], c[1], c[2], 0, 0});
      rows.back()[3] =
          c[random.below(3)] * c[random.below(3)] * static_cast<std::int64_t>(1 + random.below(9));
      rows.back()[4] = c[random.below(3)] * static_cast<std::int64_t>(8 << random.below(4));
    }
    const Sizes sizes({{"a", C}, {"b", C}, {"c", C}, {"P", P}, {"Q", P}}, rows);
    const Sizes small = small_sizes(sizes);
    ASSERT_GE(small.valuation_count(), 1U);
    for (int j = 0; j < 60; ++j) {
      Size size;
      for (std::size_t v = 0, left = 3; v < 3; ++v) {
        const int e = static_cast<int>(random.below(3)) - 1;
        if (e != 0 && left-- == 0) break;
        size = size * Size::variable(v, e);
      }
      const bool is_one = sizes.equal_values(size, Size());
      if (is_one) {
        EXPECT_TRUE(small.equal_values(size, Size())) << small.to_text(size);
        ones += !size.is_one();
      }
      if (random.below(2) == 0) size = size * Size::variable(3 + random.below(2));
      if (!sizes.integral(size)) continue;
      ++integers;
      EXPECT_TRUE(small.integral(size)) << small.to_text(size);
    }
  }
  EXPECT_GT(integers, 2000U);
  EXPECT_GT(ones, 50U);
}

}  // namespace
}  // namespace syno::equality
