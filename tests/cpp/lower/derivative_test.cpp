// Derivatives against central differences of the interpreter, and the shape that they take.
#include "lower/derivative.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lower/lower.hpp"
#include "program/builders.hpp"
#include "program/text.hpp"
#include "program/verify.hpp"
#include "random_graph.hpp"
#include "support/error.hpp"

namespace syno {
namespace {

using Inputs = std::map<std::string, program::Values<double>>;

/// Distinct values, apart enough that no maximum changes hands within a difference.
Inputs spread_inputs(const program::Program& program, Random& random, double least) {
  Inputs inputs;
  for (const auto id : program.inputs()) {
    program::Values<double> values;
    values.shape = program::shape_of(program, id);
    std::int64_t count = 1;
    for (const auto extent : values.shape) count *= extent;
    for (std::int64_t i = 0; i < count; ++i) values.data.push_back(least + 0.02 * static_cast<double>(i + 1));
    for (std::size_t i = values.data.size(); i > 1; --i)
      std::swap(values.data[i - 1], values.data[random.below(i)]);
    inputs[program.tensor(id).name] = std::move(values);
  }
  return inputs;
}

/// <cotangents, outputs> by interpretation.
double objective(const program::Program& program, const Inputs& inputs, const Inputs& cotangents) {
  double sum = 0;
  for (const auto& [name, values] : program::interpret(program, inputs)) {
    const auto& weight = cotangents.at("d" + name).data;
    for (std::size_t i = 0; i < weight.size(); ++i) sum += weight[i] * values.data[i];
  }
  return sum;
}

/// Every input's derivative agrees with central differences at a few elements.
void check(const program::Program& program, std::uint64_t seed, double least = -0.7) {
  Random random(seed);
  const Inputs inputs = spread_inputs(program, random, least);
  Inputs cotangents;
  for (const auto& [name, values] : program::interpret(program, inputs)) {
    auto cotangent = values;
    for (double& v : cotangent.data) v = static_cast<double>(random.below(7)) - 3;
    cotangents["d" + name] = std::move(cotangent);
  }
  const auto run = [&](const program::Program& derivative) {
    Inputs given;
    for (const auto id : derivative.inputs()) {
      const std::string& needed = derivative.tensor(id).name;
      given[needed] = inputs.contains(needed) ? inputs.at(needed) : cotangents.at(needed);
    }
    return program::interpret(derivative, given);
  };
  std::vector<std::string> names;
  for (const auto& [name, values] : inputs) names.push_back(name);
  for (std::size_t i = names.size(); i > 1; --i) std::swap(names[i - 1], names[random.below(i)]);
  names.resize(1 + random.below(names.size()));
  const auto tangled = random.below(2) == 0 ? lower::Tangled::InTwoSteps : lower::Tangled::AtOnce;
  const program::Program together = lower::derivatives(program, names, tangled);
  const auto gradients = run(together);
  ASSERT_EQ(together.outputs.size(), names.size());
  for (std::size_t i = 0; i < names.size(); ++i)
    ASSERT_EQ(together.tensor(together.outputs[i]).name, "d" + names[i]);
  for (const auto& [name, values] : inputs) {
    const program::Program derivative = lower::derivative(program, name);
    const auto gradient = run(derivative).at("d" + name);
    if (const auto same = gradients.find("d" + name); same != gradients.end()) {
      ASSERT_EQ(same->second.shape, gradient.shape);
      for (std::size_t i = 0; i < gradient.data.size(); ++i)
        ASSERT_NEAR(same->second.data[i], gradient.data[i], 1e-9 * std::max(1.0, std::abs(gradient.data[i])))
            << "d" << name << "\n"
            << program::to_text(together);
    }
    ASSERT_EQ(gradient.shape, values.shape) << program::to_text(derivative);
    for (int trial = 0; trial < 5 && !values.data.empty(); ++trial) {
      const std::size_t i = static_cast<std::size_t>(random.below(values.data.size()));
      const double step = 1e-5;
      Inputs moved = inputs;
      moved[name].data[i] += step;
      const double up = objective(program, moved, cotangents);
      moved[name].data[i] -= 2 * step;
      const double slope = (up - objective(program, moved, cotangents)) / (2 * step);
      ASSERT_NEAR(gradient.data[i], slope, 1e-5 * std::max(1.0, std::abs(slope)))
          << "d" << name << "[" << i << "]\n"
          << program::to_text(program) << program::to_text(derivative);
    }
  }
}

program::Program parsed(const std::string& text, std::map<std::string, std::int64_t, std::less<>> sizes) {
  program::ParseOptions options;
  options.sizes = std::move(sizes);
  return program::parse(text, options);
}

TEST(Derivative, AgreesWithDifferencesOnRandomOperators) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    Random random(seed);
    const auto graph = test::random_graph(random, 8, 300);
    check(lower::one_scope(graph), seed);
    check(lower::staged(graph), seed);
  }
}

TEST(Derivative, AgreesWithDifferencesOnUsualOperators) {
  program::ConvAttributes conv{.batch = 2,
                               .in_channels = 4,
                               .out_channels = 6,
                               .groups = 2,
                               .in_size = {7, 6},
                               .kernel = {3, 2},
                               .stride = {2, 1},
                               .dilation = {1, 2},
                               .pad_begin = {1, 0},
                               .pad_end = {0, 2},
                               .output_padding = {},
                               .bias = true};
  check(program::conv(conv), 1);
  conv.dilation = {1, 1};
  check(program::conv_transposed(conv), 2);
  program::PoolAttributes pool{.batch = 1,
                               .channels = 2,
                               .in_size = {7},
                               .kernel = {3},
                               .stride = {2},
                               .dilation = {1},
                               .pad_begin = {1},
                               .pad_end = {1},
                               .count_include_pad = false};
  check(program::pool(program::Pool::Max, pool), 3);
  check(program::pool(program::Pool::Average, pool), 4);
  check(program::matmul(3, 4, 5, {2}, true, false), 5);
  check(program::softmax({3, 4}, 1), 6);
  check(program::layer_norm({3, 4}, 1, 1e-5, true), 7);
  check(program::g2bmm(1, 5, 3, 1, 2), 8);
}

TEST(Derivative, AgreesWithDifferencesForEveryFunction) {
  for (const char* text : {"y[i] = exp(x[i])",
                           "y[i] = log(x[i])",
                           "y[i] = sqrt(x[i])",
                           "y[i] = rsqrt(x[i])",
                           "y[i] = erf(x[i])",
                           "y[i] = tanh(x[i])",
                           "y[i] = sigmoid(x[i])",
                           "y[i] = gelu(x[i])",
                           "y[i] = relu(x[i] - 0.375)",
                           "y[i] = abs(x[i] - 0.375)",
                           "y[i] = a[i] / b[i]",
                           "y[i] = a[i] - 2 * b[i]",
                           "y[i] = max(a[i], b[7-i])",
                           "y[i] = min(a[i], b[7-i])",
                           "y[i] = pow(a[i], b[i])",
                           "y[i] = select(a[i] < b[7-i], a[i] * a[i], b[i])",
                           "y[i] = -x[i] * x[7-i]",
                           "y[i] = sin(x[i])",
                           "y[i] = cos(x[i]) * x[7-i]",
                           "y[i] = atan(x[i])",
                           "y[i] = fmod(a[i], b[i])",
                           "y[i] = floor(x[i]) + ceil(x[i]) * x[7-i] - round(x[i]) + trunc(x[i])"}) {
    check(parsed(text, {{"i", 8}}), 9, 0.1);
  }
  check(parsed("y[i] = prod[r] x[i,r]", {{"i", 3}, {"r", 4}}), 10, 0.1);
  check(parsed("y[i] = mean[r] x[2*i+r] * x[2*i+r]", {{"i", 3}, {"r", 4}}), 11);
  check(parsed("y[i] = min[r] x[i,r]", {{"i", 3}, {"r", 4}}), 12);
}

TEST(Derivative, SumsUpAtOnceOrInTwoSteps) {
  const auto program = parsed("y[o,h] = sum[k,c] x[c, h % 4 + 4 * inside(k + h / 4 - 1, 5)] * w[o,k,c,h / 4]",
                              {{"o", 4}, {"h", 20}, {"k", 3}, {"c", 2}});
  EXPECT_EQ(lower::derivative(program, "x").scopes.size(), 2U);
  EXPECT_EQ(lower::derivative(program, "x", lower::Tangled::AtOnce).scopes.size(), 1U);
  for (std::uint64_t seed = 0; seed < 6; ++seed) check(program, seed);
}

TEST(Derivative, OfAConvolutionIsAGather) {
  for (const char* text :
       {"y[n,o,h] = sum[c,r] x[n,c,h+r-1] * k[o,c,r]", "y[n,o,h] = sum[c,r] x[n,c,2*h+r-1] * k[o,c,r]"}) {
    const auto program = parsed(text, {{"n", 2}, {"o", 4}, {"c", 3}, {"h", 8}, {"r", 3}});
    for (const char* input : {"x", "k"}) {
      const auto derivative = lower::derivative(program, input);
      ASSERT_EQ(derivative.scopes.size(), 1U) << program::to_text(derivative);
      EXPECT_TRUE(derivative.scopes[0].target.empty());
    }
    // A strided map visits only what contributes: at most 4/3 of the forward's work, not `stride` times it.
    EXPECT_LE(3 * program::cost(lower::derivative(program, "x"), 0).flops,
              4 * program::cost(program, 0).flops);
  }
}

TEST(Derivative, IsSymbolicWhereTheProgramIs) {
  const auto program = program::parse(
      "size N, C, H : primary = (1, 3, 8), (2, 4, 6); size k, g : coefficient = (3, 2), (5, 3)\n"
      "input x[N, C, g*H]; weight w[C, k]\n"
      "y[n: N, h: H, j: g] = sum[c: C, r: k] x[n, c, g * inside(h + r - k/2, H) + j] * w[c, r]\n"
      "return y");
  const auto derivative = lower::derivative(program, "x");
  EXPECT_EQ(derivative.sizes.valuation_count(), 2U);
  Random random(3);
  for (std::size_t v = 0; v < 2; ++v) {
    const auto whole = program::at(derivative, v), parts = lower::derivative(program::at(program, v), "x");
    const Inputs inputs = test::random_inputs(whole, random);
    EXPECT_EQ(program::interpret(whole, inputs).at("dx").data,
              program::interpret(parts, inputs).at("dx").data)
        << program::to_text(derivative);
  }
}

TEST(Derivative, AccumulatesWhereTheMapDoesNotInvert) {
  const auto program = program::parse(
      "input x[4]\nt[6] : [i: 4, j: 2][i + 2 * j - 1] += x[i] * x[j]\ny[i: 6] = t[i] * t[i]\nreturn y");
  check(program, 5);
}

TEST(Derivative, GathersWhereATermIsThereForItsGuardOnly) {
  const auto program =
      parsed("y[i,j] = sum[k] x[(inside(i+k-1,7)+1)%7+0*inside(i+k-1,7),j+0*inside(i+k-1,7)] * w[k]",
             {{"i", 7}, {"j", 2}, {"k", 3}});
  check(program, 9);
  for (const auto& scope : lower::derivative(program, "x").scopes) EXPECT_TRUE(scope.target.empty());
}

TEST(Derivative, OfATangledReadSumsBeforeItGathers) {
  struct DerivativeCase {
    const char* text;
    std::map<std::string, std::int64_t, std::less<>> sizes;
  };
  const std::map<std::string, std::int64_t, std::less<>> blocks = {{"c", 8}, {"c2", 4}, {"h", 3}, {"k", 3}};
  const std::map<std::string, std::int64_t, std::less<>> places = {{"c", 6}, {"c2", 4}, {"h", 14}, {"k", 3}};
  for (const DerivativeCase& each : {
           DerivativeCase{"y[c,h] = sum[k,c2] x[k+c2+4*(c/4)-1,(h+1)%3] * w[c%4,k,c2+4*(c/4)]", blocks},
           DerivativeCase{"y[c,h] = sum[k,c2] x[k+2*c2+c/4-1,h] * w[c%4,k,2*c2+c/4]", blocks},
           DerivativeCase{"y[c,h] = sum[k,c2] x[c2,h/7+2*inside(k+h%7-1,7)] * w[c,k,c2,h%7]", places},
           DerivativeCase{"y[c,h] = sum[k,c2] x[c2,h%2+2*((inside(k+h/2-1,7)+1)%7)] * w[c,k,c2,h/2]", places},
           DerivativeCase{"y[c,h] = sum[k,c2] x[c2,7*(h/7)+inside(k+(h+1)%7-1,7)] * w[c,k,c2,(h+1)%7]",
                          places},
       }) {
    const auto program = parsed(each.text, each.sizes);
    check(program, 11);
    const auto derivative = lower::derivative(program, "x");
    const std::string text = program::to_text(derivative);
    ASSERT_EQ(derivative.scopes.size(), 2U) << text;
    EXPECT_EQ(text.find("select"), std::string::npos) << text;  // fills say what is outside
    EXPECT_EQ(derivative.scopes[1].sums.size(), 1U) << text;    // over k
    // No more multiply-adds than the operator itself, and one addition for each k.
    std::int64_t elements = 1;
    for (const auto extent : program::shape_of(program, *program.find_tensor("x"))) elements *= extent;
    EXPECT_LE(program::cost(derivative, 0).flops, program::cost(program, 0).flops + 3 * elements) << text;
  }
}

TEST(Derivative, NamesInputsThatDoNotExist) {
  const auto program = parsed("y[i] = exp(x[i])", {{"i", 3}});
  EXPECT_THROW(lower::derivative(program, "z"), UnknownName);
  EXPECT_THROW(lower::derivative(program, "y"), UnknownName);
  EXPECT_THROW(lower::derivatives(program, {"x", "z"}), UnknownName);
  EXPECT_THROW(lower::derivatives(program, {"x", "x"}), ShapeError);
  EXPECT_THROW(lower::derivatives(program, {}), ShapeError);
}

TEST(Derivative, OfSeveralInputsComputesWhatTheyShareOnce) {
  const auto program = parsed("t[n,m] = sum[c] x[n,c] * a[m,c]; y[n,o] = sum[m] t[n,m] * b[o,m]",
                              {{"n", 3}, {"m", 4}, {"c", 5}, {"o", 2}});
  EXPECT_EQ(lower::derivative(program, "x").scopes.size(), 2U);  // dt, dx
  EXPECT_EQ(lower::derivative(program, "a").scopes.size(), 2U);  // dt, da
  EXPECT_EQ(lower::derivatives(program, {"x", "a"}).scopes.size(), 3U);
  const auto all = lower::derivatives(program, {"b", "x", "a"});
  EXPECT_EQ(all.scopes.size(), 5U) << program::to_text(all);  // t, dt and the three
}

}  // namespace
}  // namespace syno
