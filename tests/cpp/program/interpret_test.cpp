#include "program/interpret.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <tuple>

#include "naive.hpp"
#include "program/points.hpp"
#include "program/text.hpp"
#include "program/verify.hpp"
#include "random_program.hpp"
#include "support/error.hpp"

namespace syno::program {
namespace {

using testing::Naive;
using testing::random_inputs;
using testing::same;

// One hundred random starts with twenty programs each.
template <class Property>
void holds(std::string_view name, Property property) {
  EXPECT_TRUE(rc::check(std::string(name), [&](std::uint64_t start) {
    for (std::uint64_t i = 0; i < 20; ++i) property(Random(start).fork(i)());
  }));
}

TEST(Interpret, EveryProgramMeansWhatItsDefinitionSays) {
  int finite = 0, values = 0;
  holds("interpret == naive", [&](std::uint64_t seed) {
    const Program symbolic = testing::ProgramGenerator(seed)();
    for (std::size_t v = 0; v < symbolic.sizes.valuation_count(); ++v) {
      const Program p = at(symbolic, v);
      const auto inputs = random_inputs(p, seed);
      const Naive naive(symbolic, v, inputs);  // of the symbolic expressions: at() is tested with it
      const auto outputs = interpret(p, inputs);
      for (const TensorId id : p.outputs) {
        const Values<double>& got = outputs.at(p.tensor(id).name);
        const Values<double>& expected = naive.values(id);
        RC_ASSERT(got.shape == expected.shape);
        RC_ASSERT(got.data.size() == expected.data.size());
        for (std::size_t i = 0; i < got.data.size(); ++i) {
          RC_ASSERT(same(got.data[i], expected.data[i]));
          ++values;
          finite += std::isfinite(expected.data[i]) && expected.data[i] != 0;
        }
      }
    }
  });
  EXPECT_GT(finite, values / 10) << "nearly every value is 0, infinite or undefined: little was tested";
}

TEST(InterpretPoints, EveryPointIsTheElementOfTheWholeTensor) {
  holds("points == interpret", [](std::uint64_t seed) {
    const Program p = at(testing::ProgramGenerator(seed)(), 0);
    const auto inputs = random_inputs(p, seed);
    const auto whole = interpret(p, inputs);
    for (const TensorId id : p.outputs) {
      const Values<double>& expected = whole.at(p.tensor(id).name);
      std::vector<std::int64_t> begin, point;
      for (const Range& dim : p.tensor(id).dims) begin.push_back(extent_of(p, dim, 0).begin);
      std::vector<std::vector<std::int64_t>> points;
      point = begin;
      do points.push_back(point);
      while (detail::advance(point, begin, expected.shape));
      const PointValues got = interpret_points(p, inputs, p.tensor(id).name, points);
      for (std::size_t i = 0; i < points.size(); ++i) RC_ASSERT(same(got.values[i], expected.data[i]));
    }
  });
}

TEST(InterpretPoints, AbsoluteTermsAreTheSumOfAbsoluteProducts) {
  const Program p = parse("t[i,j] = sum[k] a[i,k] * b[k,j]; y[i] = sum[j] t[i,j] * c[j] - a[i,0]",
                          {{}, {{"a", {2, 3}}, {"b", {3, 2}}, {"c", {2}}}, {}, {}, false});
  const std::map<std::string, Values<double>> inputs = {
      {"a", {{2, 3}, {1, -2, 3, -1, 2, 0}}}, {"b", {{3, 2}, {1, -1, 2, 3, -1, 1}}}, {"c", {{2}, {-2, 5}}}};
  const PointValues got = interpret_points(p, inputs, "y", {{1}, {0}});
  // Row 0: t = (1*1 - 2*2 - 3*1, -1 - 6 + 3) = (-6, -4); |t| = (8, 10). y = 12 - 20 - 1; |y| = 16 + 50 + 1.
  EXPECT_EQ(got.values[1], -9);
  EXPECT_EQ(got.absolute_terms[1], 67);
}

TEST(InterpretPoints, PointsOfALargeConvolutionNeedNoOtherPoint) {
  ParseOptions options;
  options.sizes = {{"n", 1}, {"o", 64}, {"c", 64}, {"h", 56}, {"w", 56}, {"r", 3}, {"s", 3}};
  const Program p = parse("y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]", options);
  const auto inputs = random_inputs(p, 1);
  const std::vector<double>&x = inputs.at("x").data, &k = inputs.at("k").data;
  std::vector<std::vector<std::int64_t>> points;
  for (std::int64_t i = 0; i < 500; ++i) points.push_back({0, i % 64, i % 56, (i * 7) % 56});
  const PointValues got = interpret_points(p, inputs, "y", points);
  ASSERT_EQ(got.values.size(), 500u);
  for (std::size_t i = 0; i < points.size(); ++i) {
    double expected = 0;
    for (std::int64_t c = 0; c < 64; ++c)
      for (std::int64_t r = 0; r < 3; ++r)
        for (std::int64_t s = 0; s < 3; ++s) {
          const std::int64_t h = points[i][2] + r - 1, w = points[i][3] + s - 1;
          if (h < 0 || h >= 56 || w < 0 || w >= 56) continue;
          expected += x[static_cast<std::size_t>((c * 56 + h) * 56 + w)] *
                      k[static_cast<std::size_t>(((points[i][1] * 64 + c) * 3 + r) * 3 + s)];
        }
    EXPECT_EQ(got.values[i], expected) << "point " << i;  // of small integers: exact in any order
  }
}

Values<Rational> exact(std::vector<std::int64_t> shape, std::vector<Rational> data) {
  return {std::move(shape), std::move(data)};
}

TEST(InterpretExact, FractionsStayExact) {
  const Program p = parse("y[i] = mean[j] x[i,j] / ratio(1, 3) + 0.1", {{}, {{"x", {1, 3}}}, {}, {}, false});
  const auto y = interpret<Rational>(p, {{"x", exact({1, 3}, {1, Rational(1, 2), 2})}});
  EXPECT_EQ(y.at("y").data[0], Rational(7, 2) + Rational(1, 10));
}

TEST(InterpretExact, ADivisionByZeroCountsOnlyWhereItIsChosen) {
  const Program p = parse("y[i] = select(x[i] == 0, 5, 1 / x[i])", {{}, {{"x", {2}}}, {}, {}, false});
  const auto y = interpret<Rational>(p, {{"x", exact({2}, {0, 4})}});
  EXPECT_EQ(y.at("y").data, (std::vector<Rational>{5, Rational(1, 4)}));
  const Program bad = parse("y[i] = 1 / x[i]", {{}, {{"x", {1}}}, {}, {}, false});
  EXPECT_THROW(interpret<Rational>(bad, {{"x", exact({1}, {0})}}), VerifyError);
}

TEST(InterpretExact, AnIrrationalFunctionIsNamed) {
  const Program p = parse("y[i] = exp(x[i])", {{}, {{"x", {2}}}, {}, {}, false});
  try {
    interpret<Rational>(p, {{"x", exact({2}, {0, 1})}});
    FAIL();
  } catch (const VerifyError& error) {
    EXPECT_NE(std::string(error.what()).find("'exp'"), std::string::npos) << error.what();
  }
}

TEST(InterpretExact, AgreesWithFloat64OnPolynomials) {
  const Program p =
      parse("t[i] = max[j] x[i,j+1] * w[j] fill 2\ny[i] = t[i] ** 3 - min(t[i], 1) * index(i % 2)",
            {{{"i", 3}, {"j", 2}}, {}, {}, {}, false});
  std::map<std::string, Values<Rational>> exact_inputs;
  const auto inputs = random_inputs(p, 3);
  for (const auto& [name, values] : inputs) {
    exact_inputs[name].shape = values.shape;
    for (const double value : values.data)
      exact_inputs[name].data.emplace_back(static_cast<std::int64_t>(value));
  }
  const auto expected = interpret(p, inputs).at("y").data;
  const auto got = interpret(p, exact_inputs).at("y").data;
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(got[i].to_double(), expected[i]);
}

/// A term drawn at random takes as long as several in order: sums are estimated where that saves something,
/// and are known to the last bit where it does not, as those inside a bottleneck's second convolution.
TEST(InterpretPoints, SumsAreEstimatedOnlyWhereThatTakesLess) {
  const auto allowed = [](std::int64_t inner, double most_terms) {
    const Program p = parse("t[i] = sum[k] x[k] * v[i,k]\ny[o] = sum[i] t[i] * w[o,i]",
                            {{{"i", 8}, {"k", inner}, {"o", 2}}, {}, {}, {}, false});
    const auto inputs = random_inputs(p, 5);
    PointOptions options;
    options.most_terms = most_terms;
    PointReference reference(p, inputs, options);
    const Allowed found = reference.at("y", {{1}}).allowed[0];
    return std::tuple(found.high - found.low, reference.spent_terms());
  };
  const auto [exact, terms] = allowed(40'000, 1e300);
  EXPECT_EQ(terms, 8 * 40'000 + 8);
  EXPECT_EQ(std::get<0>(allowed(40'000, 1 << 14)), exact) << "4096 drawn would take longer than all";
  const auto [long_exact, all] = allowed(400'000, 1e300);
  const auto [estimated, drawn] = allowed(400'000, 1 << 14);
  EXPECT_GT(estimated, 100 * long_exact);
  EXPECT_LT(16 * drawn, all);
}

/// Pooling by a window far larger than the image: of millions of terms, four read something.
TEST(InterpretPoints, WhatFewTermsReadIsNotMissedWhereSumsAreEstimated) {
  const std::vector<std::string> formulas = {
      "y[o: 3] = sum[k: 1000, l: 900] x[o,k,l]",  // the whole image, and more
      "y[o: 3] = mean[k: 1000, l: 900] x[o,k,l] * 2",
      "y[o: 3] = sum[k: 1000, l: 900] x[o,k-7,l] * w[l]",          // in the middle, times what is everywhere
      "y[o: 3] = sum[k: 1000, l: 900] x[o,2*k-3,900-3*l]",         // with steps, backwards
      "y[o: 3] = sum[k: 1000, l: 900] (x[o,k,l] + x[o,k-500,l])",  // in two places
      "y[o: 3] = sum[k: 1000, l: 900] x[o,k+l-900,l]",             // along a diagonal
      "y[o: 3] = sum[k: 1000, l: 900] (x[o,k,l] + 1)",             // what is filled counts, too
      "y[o: 3] = max[k: 1000, l: 900] x[o,k,l]",
      "y[o: 3] = sum[k: 1000, l: 900] x[o,k/3,l%4]",  // no affine index
  };
  std::size_t tight = 0;
  for (const std::string& formula : formulas)
    for (const std::int64_t size : {2, 5, 40}) {
      SCOPED_TRACE(formula + " of " + std::to_string(size));
      ParseOptions about;
      about.shapes = {{"x", {3, size, size}}, {"w", {900}}};
      if (formula.find('w') == std::string::npos) about.shapes.erase("w");
      const Program p = parse(formula, about);
      const auto inputs = random_inputs(p, static_cast<std::uint64_t>(size));
      const std::vector<std::vector<std::int64_t>> points = {{0}, {2}};
      PointOptions few;
      few.most_terms = 1 << 14;
      const AllowedValues exact = allowed_at_points(p, inputs, "y", points, {});
      const AllowedValues got = allowed_at_points(p, inputs, "y", points, few);
      for (std::size_t i = 0; i < points.size(); ++i) {
        EXPECT_LE(got.allowed[i].low, exact.reference.values[i]);
        EXPECT_GE(got.allowed[i].high, exact.reference.values[i]);
        tight += got.allowed[i].high - got.allowed[i].low <= 1e-6 * (1 + std::abs(exact.reference.values[i]));
      }
    }
  EXPECT_GE(tight, 2 * 3 * 5U);  // of seven sums with affine indices, of these sizes
}

TEST(InterpretInputs, TooLargeATensorIsRefusedBeforeItIsMade) {
  ParseOptions options;
  options.sizes = {{"i", std::int64_t{1} << 20}, {"j", std::int64_t{1} << 20}};
  const Program p = parse("t[i,j] = 2 * index(i + j)", options);
  EXPECT_THROW(interpret<double>(p, {}), ShapeError);
  EXPECT_EQ(interpret_points(p, {}, "t", {{7, 9}}).values[0], 32);
}

TEST(InterpretInputs, WrongOnesAreNamed) {
  const Program p = parse("y[i] = x[i] * w[i]", {{}, {{"x", {2}}}, {}, {}, false});
  const Values<double> two{{2}, {1, 2}}, three{{3}, {1, 2, 3}}, short_data{{2}, {1}};
  EXPECT_THROW(interpret<double>(p, {{"x", two}}), ShapeError);
  EXPECT_THROW(interpret<double>(p, {{"x", two}, {"w", three}}), ShapeError);
  EXPECT_THROW(interpret<double>(p, {{"x", two}, {"w", short_data}}), ShapeError);
  EXPECT_THROW(interpret<double>(p, {{"x", two}, {"w", two}, {"z", two}}), UnknownName);
  EXPECT_THROW(interpret_points(p, {{"x", two}, {"w", two}}, "y", {{2}}), ShapeError);
  EXPECT_THROW(interpret_points(p, {{"x", two}, {"w", two}}, "y", {{0, 0}}), ShapeError);
  EXPECT_THROW(interpret_points(p, {{"x", two}, {"w", two}}, "x", {{0}}), UnknownName);
  EXPECT_THROW(interpret<double>(parse("size N : primary; input x[N]; y[i: N] = x[i]"), {{"x", two}}),
               ShapeError);
}

}  // namespace
}  // namespace syno::program
