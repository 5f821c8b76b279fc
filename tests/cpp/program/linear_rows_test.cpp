#include "program/linear_rows.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>

#include "naive.hpp"
#include "program/text.hpp"
#include "random_program.hpp"
#include "support/error.hpp"

namespace syno::program {
namespace {

using testing::random_inputs;

std::vector<std::vector<std::int64_t>> all_points(const Program& p, TensorId id) {
  std::vector<std::vector<std::int64_t>> points{{}};
  for (const Range& dim : p.tensor(id).dims) {
    const Extent extent = extent_of(p, dim, 0);
    std::vector<std::vector<std::int64_t>> longer;
    for (const auto& point : points)
      for (std::int64_t i = extent.begin; i < extent.end; ++i) {
        longer.push_back(point);
        longer.back().push_back(i);
      }
    points = std::move(longer);
  }
  return points;
}

// What an output gains by an input's values, over what it is with zeros there.
std::vector<double> gains(const Program& p, std::map<std::string, Values<double>> inputs,
                          const std::string& output, const std::string& input) {
  const std::vector<double> with = interpret(p, inputs).at(output).data;
  for (double& value : inputs.at(input).data) value = 0;
  std::vector<double> without = interpret(p, inputs).at(output).data;
  for (std::size_t i = 0; i < with.size(); ++i) without[i] = with[i] - without[i];
  return without;
}

TEST(LinearRows, TimesTheInputAreWhatTheOutputGainsByIt) {
  int refused = 0, compared = 0, nonzero = 0;
  EXPECT_TRUE(rc::check("rows * input == output - output without it", [&](std::uint64_t start) {
    for (std::uint64_t i = 0; i < 20; ++i) {
      const std::uint64_t seed = Random(start).fork(i)();
      const Program p = at(testing::ProgramGenerator(seed)(), 0);
      const auto inputs = random_inputs(p, seed);
      for (const TensorId wanted : p.outputs)
        for (const TensorId by : p.inputs()) {
          const std::string &output = p.tensor(wanted).name, &input = p.tensor(by).name;
          auto others = inputs;
          others.erase(input);
          std::vector<LinearRow> rows;
          try {
            rows = linear_rows(p, others, output, input, all_points(p, wanted));
          } catch (const VerifyError&) {
            ++refused;
            continue;
          }
          const std::vector<double> expected = gains(p, inputs, output, input);
          RC_ASSERT(rows.size() == expected.size());
          const std::vector<double>& x = inputs.at(input).data;
          for (std::size_t r = 0; r < rows.size(); ++r) {
            double sum = 0, size = 1;
            for (std::size_t k = 0; k < rows[r].offsets.size(); ++k) {
              if (k > 0) RC_ASSERT(rows[r].offsets[k - 1] < rows[r].offsets[k]);
              const double term = rows[r].values[k] * x.at(static_cast<std::size_t>(rows[r].offsets[k]));
              sum += term;
              size += std::abs(term);
            }
            if (!std::isfinite(expected[r]) || !std::isfinite(size) || size > 1e6) continue;
            RC_ASSERT(std::abs(sum - expected[r]) <= 1e-6 * size);
            ++compared;
            nonzero += !rows[r].offsets.empty();
          }
        }
    }
  }));
  EXPECT_GT(compared, 1000);
  EXPECT_GT(nonzero, 100) << "nearly every row is empty: little was tested";
  EXPECT_GT(refused, 100) << "nothing was refused: are such programs still drawn?";
}

TEST(LinearRows, ComputeOnlyWhatAnElementIsMadeOf) {
  // Of 2^28 elements of the input, and as many of what lies between, ten are looked at.
  const Program p = parse("t[i,j] = x[i,j] * 2; y[i,j] = sum[r] t[i,j+r] * w[r]",
                          {{}, {{"x", {1 << 14, 1 << 14}}, {"w", {5}}}, {}, {}, false});
  const auto rows = linear_rows(p, {{"w", {{5}, {1, 2, 3, 4, 5}}}}, "y", "x", {{100, 200}, {0, 0}});
  EXPECT_EQ(rows.at(0).offsets, (std::vector<std::int64_t>{1638600, 1638601, 1638602, 1638603, 1638604}));
  EXPECT_EQ(rows.at(0).values, (std::vector<double>{2, 4, 6, 8, 10}));
  EXPECT_EQ(rows.at(1).offsets, (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
}

bool says(const std::string& text, std::string_view what) { return text.find(what) != std::string::npos; }

std::string refusal(const std::string& text) {
  const Program p = parse(text, {{}, {{"x", {5}}}, {}, {}, false});
  try {
    linear_rows(p, {}, "y", "x", {{0}});
  } catch (const VerifyError& error) {
    return error.what();
  }
  return "";
}

TEST(LinearRows, WhatIsNotLinearIsNamed) {
  EXPECT_TRUE(says(refusal("y[i] = x[i] * x[i]"), "'*' in the scope of 'y' is not linear"));
  EXPECT_TRUE(says(refusal("t[i] = exp(x[i]); y[i] = sum[j: 2] t[i] * j"), "'exp' in the scope of 't'"));
  EXPECT_TRUE(says(refusal("y[i] = max[j: 2] x[i+j]"), "a reduction that is no sum"));
  EXPECT_TRUE(says(refusal("y[i] = 1 / x[i]"), "'/'"));
  EXPECT_TRUE(says(refusal("y[i] = select(x[i] < 1, x[i], 2)"), "not linear"));
  EXPECT_EQ(refusal("y[i] = x[i] / 3 - 2 * x[i] + 1"), "");
}

TEST(LinearRows, WhatTheOutputDoesNotReadMayBeAnything) {
  const Program p =
      parse("z[i] = exp(x[i]); y[i] = 3 * x[i]; return z, y", {{}, {{"x", {5}}}, {}, {}, false});
  const std::vector<LinearRow> rows = linear_rows(p, {}, "y", "x", {{2}});
  EXPECT_EQ(rows.at(0).offsets, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(rows.at(0).values, (std::vector<double>{3}));
  EXPECT_THROW(linear_rows(p, {}, "z", "x", {{2}}), VerifyError);
}

TEST(LinearRows, MistakesAreTold) {
  const Program p = parse("y[i] = sum[j] x[i+j] * w[j]", {{}, {{"x", {5}}, {"w", {2}}}, {}, {}, false});
  const Values<double> w{{2}, {1, 2}};
  EXPECT_THROW(linear_rows(p, {}, "y", "x", {{0}}), ShapeError);
  EXPECT_THROW(linear_rows(p, {{"w", {{3}, {1, 2, 3}}}}, "y", "x", {{0}}), ShapeError);
  EXPECT_THROW(linear_rows(p, {{"w", w}}, "y", "x", {{4}}), ShapeError);
  EXPECT_THROW(linear_rows(p, {{"w", w}}, "y", "x", {{0, 0}}), ShapeError);
  EXPECT_THROW(linear_rows(p, {{"w", w}}, "z", "x", {{0}}), UnknownName);
  EXPECT_THROW(linear_rows(p, {{"w", w}}, "y", "z", {{0}}), UnknownName);
  EXPECT_THROW(linear_rows(p, {{"w", w}, {"v", w}}, "y", "x", {{0}}), UnknownName);
}

}  // namespace
}  // namespace syno::program
