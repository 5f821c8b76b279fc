// The simplifier as a whole: known results, values kept, doing it twice changes nothing.
#include "symbolic/simplify.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <map>

#include "fixture.hpp"
#include "support/error.hpp"

namespace syno::symbolic {
namespace {

using testing::Fixture;

struct Forms : ::testing::Test {
  Fixture f;
  Forms() {
    f.iterate("i", "H");
    f.iterate("j", "C");
    f.iterate("r", "k");
    f.iterate("t", "s");
    f.iterate("u", "H*k^-1");
    f.iterate("v", "40");
    f.iterate("p", "H + 2", "-2");
  }
  std::string simple(const std::string& text) {
    return f.text(simplify(f.arena, f.parse(text), f.context()));
  }
};

TEST_F(Forms, AreThoseExpected) {
  const std::pair<const char*, const char*> table[] = {
      {"j + i + j - 2*j", "i"},
      {"((u*k + r) / k) * k + (u*k + r) % k", "r + u * k"},
      {"(u*k + r) / k", "u"},
      {"(u*k + r) % k", "r"},
      {"(i*k + r) / k", "i"},
      {"(i / k) * k + i % k", "i"},
      {"C*((i / k) * k) + C*(i % k)", "i * C"},
      {"(i / 2) / 3", "i / 6"},
      {"(v % 6) / 2", "v / 2 % 3"},
      {"(v % 6) % 2", "v % 2"},
      {"((i + 1) % H + 1) % H", "(i + 2) % H"},
      {"i % H", "i"},
      {"i / H", "0"},
      {"(i + H) % H", "i"},
      {"inside(i, H)", "i"},
      {"inside(i + H - H, 2*H)", "i"},
      {"inside(i - 1, H)", "inside(i - 1, H)"},
      {"inside(inside(p, H), 2*H)", "inside(p, H)"},
      {"inside(inside(p, 2*H), H)", "inside(p, H)"},
      {"(i/(H*k^-1))*(H*k^-1) + (i % (H*k^-1) + 1) % (H*k^-1)",
       "i / (H*k^-1) * (H*k^-1) + (i + 1) % (H*k^-1)"},
      {"((i/k + 1) % (H*k^-1))*k + i % k", "(i + k) % H"},
      {"v - v % 5", "5 * (v / 5)"},
      {"v - 5*(v / 5)", "v % 5"},
      {"(7*v + 9) % 3", "v % 3"},
      {"k / 2", "k / 2"},
      {"(i*s*k + r*s + t) / (s*k)", "i"},
      {"(u*s*k + r*s + t) % (s*k)", "r * s + t"},
  };
  for (const auto& [from, to] : table) EXPECT_EQ(simple(from), to) << from;
}

TEST_F(Forms, WhatMustNotBeRewrittenIsNot) {
  struct Row {
    const char* form;
    const char* why;
  };
  const Row table[] = {
      {"p / H", "p may be negative or past H, so the quotient is not one number"},
      {"p % H", "p leaves [0, H) on both sides"},
      {"(p + 1) % H", "rotating wraps"},
      {"inside(p, H)", "p leaves [0, H)"},
      {"inside(i + r - k / 2, H)", "a window reaches over the border"},
      {"0 * inside(p, H)", "the read still takes its fill where p is outside"},
      {"inside(inside(i - 1, H) - 1, H)", "the inner guard fails at i = 0, the outer one at i = 1"},
      {"inside(p, H) + 0 * inside(p + 1, H)", "two guards fail at different points"},
      {"(v % 6) / 4", "4 does not divide 6: (v / 4) % 1.5 is no index"},
      {"(v % 6) % 4", "4 does not divide 6"},
      {"v / 6 * 4 + v % 6", "the digits have other weights than their block"},
      {"v / 4 * 6 + v % 6", "quotient and remainder are by different blocks"},
      {"2 * ((v + 1) / 2) + v % 2", "the quotient is of another number"},
      {"(v + p) / 5", "floor(a + b) is not floor(a) + floor(b)"},
      {"(5 * i + v) / 7", "5 i is no multiple of the divisor"},
      {"(v / 3 + 1) % 4", "a rotation of blocks without the place inside them"},
      {"i / C", "neither size bounds the other at every valuation"},
      {"i % (H*s^-1)", "H/s is smaller than H"},
      {"k / 2", "a size stays symbolic; its value at today's valuations is no part of the form"},
  };
  for (const Row& row : table) EXPECT_EQ(simple(row.form), f.text(f.parse(row.form))) << row.why;
}

TEST_F(Forms, NeedEveryValuation) {
  using enum VariableKind;
  const auto simplified = [](std::vector<std::vector<std::int64_t>> valuations) {
    Fixture g(Sizes({{"A", Primary}, {"B", Primary}}, std::move(valuations)));
    g.iterate("a", "A");
    return g.text(simplify(g.arena, g.parse("a % B"), g.context()));
  };
  EXPECT_EQ(simplified({{3, 4}, {5, 5}}), "a");
  EXPECT_EQ(simplified({{3, 4}, {5, 4}}), "a % B");
  EXPECT_EQ(simplified({}), "a % B") << "nothing is known without a valuation";
}

/// Enumerates expressions of up to `most` operations over x in [0, A) and y in [0, b), groups them by their
/// values at random points of several valuations, and counts the groups that still have several forms: what
/// the rules do not see yet. The count may only fall.
TEST(CanonicalForms, FewFunctionsHaveSeveral) {
  Fixture f(Sizes({{"A", VariableKind::Primary}, {"b", VariableKind::Coefficient}},
                  {{60, 2}, {63, 3}, {108, 3}, {176, 4}, {325, 5}}));
  f.iterate("x", "A");
  f.iterate("y", "b");
  Arena& a = f.arena;
  const Size block = f.sizes.parse("b"), whole = f.sizes.parse("A"), blocks = f.sizes.parse("A*b^-1");
  constexpr std::size_t most = 4;
  std::vector<std::set<ExprId>> by_cost(most + 1);
  by_cost[0] = {a.iterator(0), a.iterator(1), a.constant(1), a.size(block)};
  for (std::size_t cost = 1; cost <= most; ++cost) {
    for (const ExprId e : by_cost[cost - 1]) {
      if (!a.has_iterator(e)) continue;
      for (const Size& size : {block, whole, blocks}) {
        by_cost[cost].insert(a.divide(e, size));
        by_cost[cost].insert(a.modulo(e, size));
        if (size != whole) by_cost[cost].insert(a.multiply(e, size));
      }
    }
    for (std::size_t left = 0; 2 * left + 1 <= cost; ++left) {
      for (const ExprId e : by_cost[left]) {
        for (const ExprId g : by_cost[cost - 1 - left]) by_cost[cost].insert(a.add(e, g));
      }
    }
  }
  Simplifier simple(a, f.context());
  std::size_t expressions = 0;
  std::set<ExprId> forms;
  for (const auto& level : by_cost) {
    for (const ExprId e : level) forms.insert(simple(e));
    expressions += level.size();
  }
  // All points of the two smallest valuations, some of the others. That a form has its expression's values is
  // every rule's own test.
  std::vector<std::pair<std::size_t, std::vector<std::int64_t>>> points;
  Random random(4);
  for (std::size_t v = 0; v < f.sizes.valuation_count(); ++v) {
    const auto extent = f.sizes.valuation(v);
    for (std::int64_t x = 0; x < extent[0]; ++x) {
      for (std::int64_t y = 0; y < extent[1]; ++y) {
        if (v < 2 || random.below(32) == 0) points.push_back({v, {x, y}});
      }
    }
  }
  std::map<Hash128, std::set<ExprId>> forms_of;
  for (const ExprId form : forms) {
    Hasher values;
    for (const auto& [valuation, point] : points) values.add(*evaluate(a, form, f.sizes, valuation, point));
    forms_of[values.finish()].insert(form);
  }
  std::size_t several = 0;
  for (const auto& [values, equal] : forms_of) {
    if (equal.size() == 1 || ++several > 12) continue;
    std::string text;
    for (const ExprId form : equal) text += "   " + f.text(form);
    std::printf("  one function:%s\n", text.substr(0, 160).c_str());
  }
  std::printf("  %zu expressions, %zu functions, %zu of them with several forms\n", expressions,
              forms_of.size(), several);
  RecordProperty("functions", static_cast<int>(forms_of.size()));
  RecordProperty("functions_with_several_forms", static_cast<int>(several));
  EXPECT_GT(forms_of.size(), 1000u);
  EXPECT_LT(several * 100, forms_of.size() * 2);
}

}  // namespace
}  // namespace syno::symbolic
