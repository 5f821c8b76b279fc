// Loop nests print, parse back, say what is wrong with them, and compute what they say.
#include "nest/loop_nest.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "nest/affine.hpp"
#include "support/checked.hpp"
#include "support/error.hpp"
#include "support/random.hpp"

namespace syno::nest {
namespace {

constexpr std::string_view kAxpy = R"(nest axpy
input x: f32[100]
input a: f32[]
output y: f32[100]
register t: f32[16]
for i in 0..7 parallel
  allocate t
    for v in 0..16 vector
      t[v] = x[16 * i + v] {16 * i + v in 0..100 else 0} * a[]
    for v in 0..16 vector
      if 16 * i + v in 0..100
        y[16 * i + v] = max(t[v], 0)
)";

constexpr std::string_view kConvolution = R"(nest conv
input x: bf16[2, 5, 6] strides[64, 8, 1]
constant k: f64[3, 3] = {1, -2.5, 0, 0.1, inf, 3, 0, 0, 1e-20}
output y: f32[2, 5, 6]
temporary s: f32[6]
for n in 0..2 parallel
  for h in 0..5
    allocate s
      for w in 0..6 unroll
        s[w] = 0
        for r in 0..3
          prefetch x[n + 1, h + r, 16 * w - 8]
          for q in 0..3
            s[w] += x[n, h + r - 1, w + q - 1] {h + r - 1 in 0..5, w + q - 1 in 0..6 else 0} * (k[r, q] - 1) / 2
      for w in 0..6
        y[n, h, w] = select(less(s[w], 0), index(w % 4 + h / 2), exp(s[w]) - (s[w] - 1))
        y[n, h, w] max= -1
)";

TEST(LoopNestText, ParsesBackToTheSameText) {
  for (const std::string_view text : {kAxpy, kConvolution}) {
    const LoopNest nest = parse_loop_nest(text);
    EXPECT_EQ(to_text(nest), text);
    verify(nest);
  }
}

TEST(LoopNestText, CommentsAndBlankLinesAreSkipped) {
  const LoopNest nest =
      parse_loop_nest("nest n # name\n\noutput y: f32[2]\nfor i in 0..2\n  # body\n  y[i] = 1\n");
  EXPECT_EQ(to_text(nest), "nest n\noutput y: f32[2]\nfor i in 0..2\n  y[i] = 1\n");
}

struct Wrong {
  std::string name, text, message;
};
void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.name; }

class WrongText : public ::testing::TestWithParam<Wrong> {};
TEST_P(WrongText, SaysWhatAndWhere) {
  try {
    parse_loop_nest(GetParam().text);
    FAIL() << "parsed";
  } catch (const ParseError& error) {
    EXPECT_NE(std::string(error.what()).find(GetParam().message), std::string::npos) << error.what();
  }
}
const std::string kHead = "nest n\ninput x: f32[4]\noutput y: f32[4]\n";
INSTANTIATE_TEST_SUITE_P(
    Table, WrongText,
    ::testing::Values(Wrong{"empty", "", "empty"}, Wrong{"no_name", "nest\n", "expected a name"},
                      Wrong{"dtype", "nest n\ninput x: f31[4]\n", "one of f32, f64, bf16"},
                      Wrong{"two_buffers", "nest n\ninput x: f32[4]\ninput x: f32[4]\n", "second buffer"},
                      Wrong{"no_buffer", kHead + "for i in 0..4\n  z[i] = 1\n", "no buffer is called `z`"},
                      Wrong{"function", kHead + "for i in 0..4\n  y[i] = expp(x[i])\n", "exp"},
                      Wrong{"iterator", kHead + "for i in 0..4\n  y[j] = 1\n", "'j'"},
                      Wrong{"left_scope", kHead + "for i in 0..4\n  y[i] = 1\ny[i] = 2\n", "'i'"},
                      Wrong{"no_body", kHead + "for i in 0..4\n", "indented body"},
                      Wrong{"indentation", kHead + "for i in 0..4\n    y[i] = 1\n  y[i] = 2\n", "indent"},
                      Wrong{"rest", kHead + "for i in 0..4\n  y[i] = 1 2\n", "end of the line"},
                      Wrong{"kind", kHead + "for i in 0..4 fast\n  y[i] = 1\n", "fast"},
                      Wrong{"guard", kHead + "for i in 0..4\n  y[i] = x[i] {i in 0..4}\n", "else"},
                      Wrong{"extent", "nest n\ninput x: f32[-4]\n", "not negative"}),
    [](const auto& info) { return info.param.name; });

class WrongNest : public ::testing::TestWithParam<Wrong> {};
TEST_P(WrongNest, IsRefusedWithTheReason) {
  const LoopNest nest = parse_loop_nest(GetParam().text);
  try {
    verify(nest);
    FAIL() << "verified";
  } catch (const ScheduleError& error) {
    EXPECT_NE(std::string(error.what()).find(GetParam().message), std::string::npos) << error.what();
  }
}
INSTANTIATE_TEST_SUITE_P(
    Table, WrongNest,
    ::testing::Values(
        Wrong{"outside", kHead + "for i in 0..5\n  y[i] = 1\n", "outside [0, 4)"},
        Wrong{"outside_below", kHead + "for i in 0..4\n  y[i] = x[i - 1]\n", "[-1, 2]"},
        Wrong{"weak_guard", kHead + "for i in 0..4\n  y[i] = x[i - 1] {i in 0..4 else 0}\n", "[-1, 2]"},
        Wrong{"outside_quotient", kHead + "for i in 0..20\n  y[i / 4] = 1\n", "[0, 4]"},
        Wrong{"prefetch_rank", kHead + "for i in 0..4\n  prefetch x[i, 0]\n  y[i] = 1\n", "2 indices"},
        Wrong{"prefetch_lanes", kHead + "for i in 0..4 vector\n  prefetch x[i]\n  y[i] = 1\n", "each lane"},
        Wrong{"prefetch_unallocated",
              "nest n\noutput y: f32[4]\ntemporary t: f32[4]\nfor i in 0..4\n  prefetch t[i]\n  y[i] = 1\n",
              "outside its allocation"},
        Wrong{"prefetch_register",
              "nest n\noutput y: f32[1]\nregister t: f32[1]\nallocate t\n  prefetch t[0]\n  y[0] = 1\n",
              "lies in registers"},
        Wrong{"rank", kHead + "for i in 0..4\n  y[i, 0] = 1\n", "2 indices"},
        Wrong{"writes_input", kHead + "for i in 0..4\n  x[i] = 1\n", "is an input"},
        Wrong{"output_unwritten", kHead, "nothing writes the output `y`"},
        Wrong{"unwritten", kHead + "for i in 0..4\n  y[i] += 1\n", "before anything writes"},
        Wrong{"unallocated", "nest n\noutput y: f32[4]\ntemporary t: f32[4]\nfor i in 0..4\n  y[i] = t[i]\n",
              "outside its allocation"},
        Wrong{"read_unwritten",
              "nest n\noutput y: f32[4]\ntemporary t: f32[4]\nallocate t\n  for i in 0..4\n    y[i] = t[i]\n",
              "before anything writes"},
        Wrong{"register_serial",
              "nest n\noutput y: f32[4]\nregister t: f32[4]\nallocate t\n  for i in 0..4\n    t[i] = 1\n    "
              "y[i] = t[i]\n",
              "neither unrolled"},
        Wrong{
            "register_across_parallel",
            "nest n\noutput y: f32[4]\nregister t: f32[1]\nallocate t\n  t[0] = 1\n  for i in 0..4 parallel\n"
            "    y[i] = t[0]\n",
            "inside the parallel loop"},
        Wrong{"vector_in_vector",
              kHead + "for i in 0..2 vector\n  for j in 0..2 vector\n    y[2 * i + j] = 1\n",
              "inside vector loop"},
        Wrong{"same_name", kHead + "for i in 0..2\n  for i in 0..2\n    y[i] = 1\n", "two nested loops"},
        Wrong{"unroll_bounds", kHead + "for i in 0..4\n  for j in i..4 unroll\n    y[j] = 1\n",
              "not constant"},
        Wrong{"parallel_race", kHead + "for i in 0..4 parallel\n  y[0] = 1\n", "same element of `y`"},
        Wrong{"vector_race", kHead + "for i in 0..4 vector\n  y[0] = x[i]\n", "assigns the same element"},
        Wrong{"constant_length", "nest n\noutput y: f32[1]\nconstant c: f32[2] = {1}\ny[0] = c[0]\n",
              "1 values for 2"}),
    [](const auto& info) { return info.param.name; });

/// Where strides are said not to overlap, no two indices reach one element; of arrays in one piece, in any
/// order of dimensions and any direction, that is said.
TEST(Strides, ThatDoNotOverlapReachEachElementOnce) {
  Random random(5);
  int apart = 0, shared = 0;
  for (int round = 0; round < 4000; ++round) {
    std::vector<std::int64_t> extents, strides;
    for (std::size_t d = random.below(4); d > 0; --d) {
      extents.push_back(1 + static_cast<std::int64_t>(random.below(4)));
      strides.push_back(static_cast<std::int64_t>(random.below(19)) - 9);
    }
    std::vector<std::int64_t> reached{0};
    for (std::size_t d = 0; d < extents.size(); ++d) {
      std::vector<std::int64_t> further;
      for (const std::int64_t at : reached)
        for (std::int64_t i = 0; i < extents[d]; ++i) further.push_back(at + i * strides[d]);
      reached = further;
    }
    std::sort(reached.begin(), reached.end());
    const bool twice = std::adjacent_find(reached.begin(), reached.end()) != reached.end();
    if (twice) EXPECT_TRUE(strides_overlap(extents, strides));
    ++(twice ? shared : apart);

    std::vector<std::int64_t> whole = row_major_strides(extents);
    for (std::size_t d = 0; d < whole.size(); ++d) {
      if (random.below(2) == 1) whole[d] = -whole[d];
      const std::size_t other = random.below(whole.size());
      std::swap(whole[d], whole[other]);
      std::swap(extents[d], extents[other]);
    }
    EXPECT_FALSE(strides_overlap(extents, whole));
  }
  EXPECT_GT(apart, 500);
  EXPECT_GT(shared, 500);
  EXPECT_FALSE(strides_overlap({0, 3}, {0, 0}));
}

TEST(LoopNestVerify, UnderstandsGuardsOfFlattenedAndDividedIndices) {
  verify(
      parse_loop_nest("nest n\ninput x: f32[10, 10]\noutput y: f32[100]\n"
                      "for i in 0..7\n  for v in 0..16 vector\n    if 16 * i + v in 0..100\n"
                      "      y[16 * i + v] = x[(16 * i + v) / 10, (16 * i + v) % 10]\n"));
  verify(
      parse_loop_nest("nest n\ninput x: f32[10]\noutput y: f32[10]\n"
                      "for i in 0..10\n  y[i] = x[i - 1] {i - 1 in 0..10 else 0} + x[2 * i - 7] {2 * i - 7 "
                      "in 0..10 else 0}\n"));
}

TEST(LoopNestVerify, WhatGuardsNeverLetHappenMayBeAnywhere) {
  verify(
      parse_loop_nest("nest n\ninput x: f32[4]\noutput y: f32[4]\nfor i in 0..4\n"
                      "  y[i] = x[i / 4 - 1] {i / 4 - 1 in 0..4 else 2}\n"));
}

TEST(LoopNestInterpret, ConvolutionWithBordersIsWhatTheSumSays) {
  const LoopNest nest = parse_loop_nest(kConvolution);
  program::Values<double> x{{2, 5, 6}, {}};
  Random random(7);
  for (int i = 0; i < 60; ++i) x.data.push_back(random.unit() - 0.5);
  // The constant has an infinity in its middle: give the middle a finite stand-in.
  LoopNest finite = nest;
  for (Buffer& buffer : finite.buffers)
    if (buffer.name == "k") buffer.literal[4] = 4;
  const auto y = interpret(finite, {{"x", x}}).at("y");
  const double k[9] = {1, -2.5, 0, 0.1, 4, 3, 0, 0, 1e-20};
  for (int n = 0; n < 2; ++n)
    for (int h = 0; h < 5; ++h)
      for (int w = 0; w < 6; ++w) {
        double sum = 0;
        for (int r = 0; r < 3; ++r)
          for (int q = 0; q < 3; ++q) {
            const int i = h + r - 1, j = w + q - 1;
            if (i >= 0 && i < 5 && j >= 0 && j < 6)
              sum += x.data[static_cast<std::size_t>((n * 5 + i) * 6 + j)] * (k[r * 3 + q] - 1) / 2;
          }
        const double expected = std::max(-1.0, sum < 0 ? w % 4 + h / 2 : std::exp(sum) - (sum - 1));
        EXPECT_DOUBLE_EQ(y.data[static_cast<std::size_t>((n * 5 + h) * 6 + w)], expected);
      }
}

TEST(LoopNestInterpret, RefusesInputsThatDoNotFit) {
  const LoopNest nest = parse_loop_nest(kAxpy);
  EXPECT_THROW(interpret(nest, {}), ShapeError);
  EXPECT_THROW(interpret(nest, {{"x", {{99}, std::vector<double>(99)}}, {"a", {{}, {1}}}}), ShapeError);
}

TEST(LoopNestInterpret, WhatNothingWroteIsNotANumber) {
  const LoopNest nest = parse_loop_nest("nest n\noutput y: f32[3]\nfor i in 0..2\n  y[i] = 1\n");
  const auto y = interpret(nest, {}).at("y").data;
  EXPECT_EQ(y[1], 1);
  EXPECT_TRUE(std::isnan(y[2]));
}

// ---- affine forms

struct RandomExpr {
  symbolic::Arena& arena;
  Random& random;
  ExprId make(int depth) {
    if (depth == 0) {
      if (random.below(3) == 0) return arena.constant(static_cast<std::int64_t>(random.below(21)) - 10);
      return arena.iterator(static_cast<std::uint32_t>(random.below(3)));
    }
    switch (random.below(5)) {
      case 0:
        return arena.add(make(depth - 1), make(depth - 1));
      case 1:
        return arena.multiply(make(depth - 1), static_cast<std::int64_t>(random.below(13)) - 6);
      case 2:
        return arena.divide(make(depth - 1), symbolic::Size(static_cast<std::int64_t>(random.below(6)) + 1));
      case 3:
        return arena.modulo(make(depth - 1), symbolic::Size(static_cast<std::int64_t>(random.below(6)) + 1));
      default:
        return make(depth - 1);
    }
  }
};

std::int64_t value_of(const AffineForms& forms, const AffineForm& form, std::span<const std::int64_t> at) {
  std::int64_t sum = form.constant;
  for (const auto& [id, times] : form.terms) {
    const Atom& atom = forms.atom(id);
    const std::int64_t inner =
        atom.kind == Atom::Kind::Slot ? at[atom.slot] : value_of(forms, atom.inner, at);
    sum += times * (atom.kind == Atom::Kind::Slot       ? inner
                    : atom.kind == Atom::Kind::Quotient ? floor_divide(inner, atom.divisor)
                                                        : floor_modulo(inner, atom.divisor));
  }
  return sum;
}

TEST(AffineFormsProperty, KeepValuesAndBoundsUnderRangesAndFacts) {
  Random random(11);
  int narrowed = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    symbolic::Arena arena;
    RandomExpr make{arena, random};
    const ExprId expr = make.make(4), about = make.make(2);
    AffineForms forms;
    Interval range[3];
    for (std::uint32_t slot = 0; slot < 3; ++slot) {
      range[slot].least = static_cast<std::int64_t>(random.below(9)) - 4;
      range[slot].greatest = range[slot].least + static_cast<std::int64_t>(random.below(5));
      forms.bind(slot, range[slot]);
    }
    const Interval fact{static_cast<std::int64_t>(random.below(7)) - 3,
                        static_cast<std::int64_t>(random.below(7))};
    const Interval free = forms.bounds(forms.form(arena, expr));
    forms.push_fact(forms.form(arena, about), fact);
    const AffineForm form = forms.form(arena, expr);
    const Interval bounds = forms.bounds(form);
    narrowed += bounds.least > free.least || bounds.greatest < free.greatest;
    const AffineForm fixed = forms.substitute(form, 1, range[1].least);
    std::int64_t at[3];
    for (at[0] = range[0].least; at[0] <= range[0].greatest; ++at[0])
      for (at[1] = range[1].least; at[1] <= range[1].greatest; ++at[1])
        for (at[2] = range[2].least; at[2] <= range[2].greatest; ++at[2]) {
          const std::int64_t said = *symbolic::evaluate(arena, about, {}, 0, at);
          if (said < fact.least || said > fact.greatest) continue;
          const std::int64_t expected = *symbolic::evaluate(arena, expr, {}, 0, at);
          ASSERT_EQ(value_of(forms, form, at), expected);
          ASSERT_LE(bounds.least, expected);
          ASSERT_GE(bounds.greatest, expected);
          if (at[1] == range[1].least) {
            ASSERT_EQ(value_of(forms, fixed, at), expected);
          }
        }
  }
  EXPECT_GT(narrowed, 50) << "facts hardly ever mattered";
}

TEST(AffineFormsRules, SplitAndFusedLoopsComeBackTogether) {
  symbolic::Arena arena;
  AffineForms forms;
  forms.bind(0, {0, 99});
  forms.bind(1, {0, 15});
  const ExprId i = arena.iterator(0), v = arena.iterator(1);
  const ExprId flat = arena.add(arena.multiply(i, 16), v);
  EXPECT_EQ(forms.form(arena, arena.divide(flat, symbolic::Size(16))), forms.form(arena, i));
  EXPECT_EQ(forms.form(arena, arena.modulo(flat, symbolic::Size(16))), forms.form(arena, v));
  const ExprId again =
      arena.add(arena.multiply(arena.divide(i, symbolic::Size(7)), 7), arena.modulo(i, symbolic::Size(7)));
  EXPECT_EQ(forms.form(arena, again), forms.form(arena, i));
}

}  // namespace
}  // namespace syno::nest
