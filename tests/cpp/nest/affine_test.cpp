// Quotients and remainders of affine forms: simplified by ranges, and worth the same at every point.
#include "nest/affine.hpp"

#include <gtest/gtest.h>

#include <array>

#include "support/random.hpp"

namespace syno::nest {
namespace {

constexpr std::array<std::int64_t, 10> kDivisors{2, 3, 4, 6, 7, 8, 12, 28, 48, 56};

std::int64_t floor_of(std::int64_t a, std::int64_t b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }

TEST(AffineForms, QuotientsAndRemaindersKeepTheirValue) {
  Random random(19);
  int in_blocks = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    AffineForms forms;
    AffineForm form;
    std::array<Interval, 3> ranges;
    for (std::uint32_t slot = 0; slot < 3; ++slot) {
      const auto least = static_cast<std::int64_t>(random.below(5)) - 2;
      ranges[slot] = {least, least + static_cast<std::int64_t>(random.below(9))};
      forms.bind(slot, ranges[slot]);
      const std::int64_t coefficient = kDivisors[random.below(kDivisors.size())] *
                                       (random.below(2) ? 1 : static_cast<std::int64_t>(random.below(4)) - 2);
      form = add(form, multiply(forms.slot_form(slot), random.below(3) ? coefficient : 1));
    }
    form = with_constant(form, static_cast<std::int64_t>(random.below(40)) - 10);
    const std::int64_t divisor = kDivisors[random.below(kDivisors.size())];
    const AffineForm quotient = forms.quotient(form, divisor), remainder = forms.remainder(form, divisor);
    in_blocks += remainder.terms.size() > 1;
    for (int point = 0; point < 8; ++point) {
      AffineForm f = form, q = quotient, r = remainder;
      for (std::uint32_t slot = 0; slot < 3; ++slot) {
        const auto [least, greatest] = ranges[slot];
        const std::int64_t value =
            least + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(greatest - least + 1)));
        for (AffineForm* each : {&f, &q, &r}) *each = forms.substitute(*each, slot, value);
      }
      ASSERT_TRUE(f.is_constant() && q.is_constant() && r.is_constant());
      ASSERT_EQ(q.constant, floor_of(f.constant, divisor)) << f.constant << " / " << divisor;
      ASSERT_EQ(r.constant, f.constant - divisor * floor_of(f.constant, divisor)) << divisor;
    }
  }
  EXPECT_GT(in_blocks, 100) << "hardly any form had blocks";
}

TEST(AffineForms, FactsOfOneValueSettleForms) {
  Random random(23);
  const auto below = [&](std::uint64_t limit) { return static_cast<std::int64_t>(random.below(limit)); };
  int settled = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    AffineForms forms;
    std::array<std::int64_t, 3> point{};
    AffineForm form, about;
    for (std::uint32_t slot = 0; slot < 3; ++slot) {
      forms.bind(slot, {0, 60});
      point[slot] = below(60);
      form = add(form, multiply(forms.slot_form(slot), below(7) - 3));
      if (slot < 2) about = add(about, multiply(forms.slot_form(slot), below(5) - 2));
    }
    if (below(2)) form = add(multiply(about, below(5) - 2), multiply(forms.slot_form(2), below(3)));
    form = with_constant(form, below(20) - 10);
    about = with_constant(about, below(20) - 10);
    const auto at = [&](AffineForm each) {
      for (std::uint32_t slot = 0; slot < 3; ++slot) each = forms.substitute(each, slot, point[slot]);
      return each.constant;
    };
    // What the fact says is so at this point, and what is settled by it is worth the same there.
    const std::int64_t value = at(about);
    const bool exact = below(3) > 0;
    forms.push_fact(about, {value, value + (exact ? 0 : 2)});
    const AffineForm made = forms.settled(form);
    EXPECT_EQ(at(made), at(form)) << trial;
    if (!exact) EXPECT_EQ(made, form) << "a fact of several values settles nothing";
    settled += made.terms.size() < form.terms.size();
  }
  EXPECT_GT(settled, 100) << "hardly any form was settled";
}

TEST(AffineForms, WhatRunsWithinABlockLeavesTheRemainder) {
  AffineForms forms;
  forms.bind(0, {0, 6});
  forms.bind(1, {0, 7});
  const AffineForm i = forms.slot_form(0), j = forms.slot_form(1);
  const AffineForm blocks = add(multiply(i, 8), j);
  const auto lane = [&](const AffineForm& form) {
    bool linear = false;
    const std::int64_t step = forms.coefficient(form, 1, &linear);
    return linear ? step : -1;
  };
  EXPECT_EQ(lane(forms.remainder(with_constant(blocks, 8), 56)), 1);
  EXPECT_EQ(lane(forms.remainder(with_constant(blocks, 48), 56)), 1);
  EXPECT_FALSE(forms.depends_on(forms.quotient(with_constant(blocks, 8), 56), 1));
  // One more, and the last of a block belongs to the next one.
  EXPECT_EQ(lane(forms.remainder(with_constant(blocks, 9), 56)), -1);
  EXPECT_EQ(lane(forms.remainder(with_constant(blocks, 8), 60)), -1) << "8 does not divide 60, 4 is passed";
}

TEST(AffineForms, EveryFunctionOfTwoValuesIsLinear) {
  for (const std::int64_t least : {-3, 0, 5}) {
    for (const std::int64_t times : {-4, -1, 1, 3}) {
      for (std::int64_t shift = -5; shift <= 5; ++shift) {
        for (const std::int64_t divisor : {2, 3, 7}) {
          AffineForms forms;
          forms.bind(0, {least, least + 1});
          const AffineForm form = with_constant(multiply(forms.slot_form(0), times), shift);
          const AffineForm quotient = forms.quotient(form, divisor),
                           remainder = forms.remainder(form, divisor);
          bool linear = false;
          forms.coefficient(quotient, 0, &linear);
          EXPECT_TRUE(linear);
          forms.coefficient(remainder, 0, &linear);
          EXPECT_TRUE(linear);
          for (const std::int64_t value : {least, least + 1}) {
            const std::int64_t dividend = times * value + shift;
            EXPECT_EQ(forms.substitute(quotient, 0, value).constant, floor_of(dividend, divisor));
            EXPECT_EQ(forms.substitute(remainder, 0, value).constant,
                      dividend - divisor * floor_of(dividend, divisor));
          }
        }
      }
    }
  }
  AffineForms forms;
  forms.bind(0, {0, 2});
  bool linear = true;
  forms.coefficient(forms.quotient(with_constant(forms.slot_form(0), 1), 2), 0, &linear);
  EXPECT_FALSE(linear) << "0, 1, 1";
}

}  // namespace
}  // namespace syno::nest
