// Comparisons of indices as expressions that are not negative where they hold.
#include "schedule/switches.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "program/scalars.hpp"
#include "schedule/fixture.hpp"

namespace syno::schedule {
namespace {

using program::ScalarId;
using program::ScalarKind;

/// A condition of three iterators as text, and what it is at values of them.
struct RandomCondition {
  std::string text;
  std::function<bool(const std::vector<std::int64_t>&)> holds;
};

RandomCondition random_condition(Random& random, int depth) {
  if (depth > 0 && random.below(3) != 0) {
    const auto a = random_condition(random, depth - 1), b = random_condition(random, depth - 1);
    const bool both = random.below(2) == 0;
    return {fmt::format("({} {} {})", a.text, both ? "and" : "or", b.text),
            [=](const auto& at) { return both ? a.holds(at) && b.holds(at) : a.holds(at) || b.holds(at); }};
  }
  const std::int64_t factor = draw(random, 1, 3), plus = draw(random, -9, 9), other = draw(random, -9, 9);
  const std::size_t i = random.below(3), j = random.below(3);
  const std::uint64_t kind = random.below(4);
  const char* sign = std::array{"<", "<=", ">", ">="}[kind];
  return {fmt::format("{} * index(i{}) + {} {} index(i{}) - {}", factor, i, plus, sign, j, other),
          [=](const auto& at) {
            const std::int64_t a = factor * at[i] + plus, b = at[j] - other;
            return kind == 0 ? a < b : kind == 1 ? a <= b : kind == 2 ? a > b : a >= b;
          }};
}

TEST(Switches, ConditionsAreDecidedByTheSignsOfTheirDifferences) {
  Random random(5);
  for (int trial = 0; trial < 300; ++trial) {
    const RandomCondition condition = random_condition(random, 2);
    auto p = program::parse(fmt::format(
        "input x[9,9,9]; y[i0: 9, i1: 9, i2: 9] = select({}, x[i0,i1,i2], 0)\nreturn y", condition.text));
    const program::Scope& scope = p.scopes[0];
    ASSERT_EQ(p.scalar(scope.body).kind, ScalarKind::Select);
    const ScalarId test = p.scalar(scope.body).a;
    EXPECT_FALSE(switches_of(p, scope.body).empty()) << condition.text;
    for (int point = 0; point < 20; ++point) {
      std::vector<std::int64_t> at;
      for (int d = 0; d < 3; ++d) at.push_back(draw(random, 0, 8));
      std::vector<std::int64_t> by_slot(p.next_slot, 0);
      for (std::size_t d = 0; d < 3; ++d) by_slot[scope.traversal[d].slot] = at[d];
      const auto known = [&](symbolic::ExprId e) -> std::optional<bool> {
        return *symbolic::evaluate(p.arena, e, p.sizes, 0, by_slot) >= 0;
      };
      EXPECT_EQ(decided(p, p.arena, test, known), condition.holds(at)) << condition.text;
    }
    EXPECT_EQ(decided(p, p.arena, test, [](symbolic::ExprId) { return std::optional<bool>(); }),
              std::nullopt);
  }
}

TEST(Switches, WhatIsComputedOrRoundedSaysNothing) {
  for (const char* test : {"x[i] < 3", "index(i) == 3", "index(i) < ratio(5, 2)", "index(i) * index(i) < 9",
                           "exp(index(i)) < 3", "index(i)"}) {
    auto p = program::parse(fmt::format("input x[9]; y[i: 9] = select({}, x[i], 0)\nreturn y", test));
    EXPECT_TRUE(switches_of(p, p.scopes[0].body).empty()) << test;
  }
}

TEST(Switches, WhatStandsForSomethingElseSaysNothing) {
  // As the literal does in an epilogue that stands for the sum.
  auto p = program::parse("input x[9]; y[i: 9] = select(0 < 7 * 7, x[i], 2)\nreturn y");
  const ScalarId test = p.scalar(p.scopes[0].body).a, product = p.scalar(test).b;
  const auto known = [&](symbolic::ExprId e) { return std::optional(p.arena[e].value >= 0); };
  EXPECT_EQ(decided(p, p.arena, test, known), std::optional(true));
  for (const ScalarId open : {product, p.scalar(product).a})
    EXPECT_EQ(decided(p, p.arena, test, known, open), std::nullopt);
}

TEST(Switches, OneOfTwoConditionsMayBeEnough) {
  auto p = program::parse(
      "input x[9]; y[i: 9] = select(index(i) < 3 and x[i] < 0, x[i], select(index(i) < 3 or x[i] < 0, 1, "
      "2))\n"
      "return y");
  const auto& outer = p.scalar(p.scopes[0].body);
  const auto always = [](bool holds) { return [=](symbolic::ExprId) { return std::optional(holds); }; };
  EXPECT_EQ(decided(p, p.arena, outer.a, always(false)), std::optional(false));
  EXPECT_EQ(decided(p, p.arena, outer.a, always(true)), std::nullopt);
  const auto inner = p.scalar(outer.c).a;
  EXPECT_EQ(decided(p, p.arena, inner, always(true)), std::optional(true));
  EXPECT_EQ(decided(p, p.arena, inner, always(false)), std::nullopt);
}

}  // namespace
}  // namespace syno::schedule
