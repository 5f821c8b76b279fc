#include "graph/scales.hpp"

#include <gtest/gtest.h>

#include "graph/text.hpp"
#include "graph/views.hpp"
#include "random_graph.hpp"
#include "support/error.hpp"

namespace syno::graph {
namespace {

using testing::equal;
using testing::outputs_of;
using testing::parsed;
using testing::random_values;

/// x -> layer -> after, with weights of these shapes, and a second input z for what reads one.
struct Layered {
  Graph graph{"layered"};

  TensorId node(const std::string& name, const std::string& text, std::vector<TensorId> inputs) {
    graph.add_program(name, parsed(text), std::move(inputs), {name + "_y"}, ElementType::F32);
    return graph.nodes().back().outputs[0];
  }
  TensorId weight(const std::string& name, Shape shape) {
    return graph.add_weight(name, std::move(shape), ElementType::F32);
  }
  TensorId input(const std::string& name, Shape shape) {
    return graph.add_input(name, std::move(shape), ElementType::F32);
  }
  Graph returning(std::vector<TensorId> outputs) {
    graph.outputs = std::move(outputs);
    return graph;
  }
};

constexpr const char* kConv = R"(input x[1, 3, 6, 5]
weight w[4, 3, 3, 3]
weight b[4]
s[n: 1, o: 4, h: 6, w: 5] = sum[c: 3, r: 3, t: 3] x[n, c, h + r - 1, w + t - 1] * w[o, c, r, t]
y[n: 1, o: 4, h: 6, w: 5] = s[n, o, h, w] + b[o]
)";
constexpr const char* kNorm = R"(input x[1, 4, 6, 5]
input s[4]
input t[4]
y[n: 1, o: 4, h: 6, w: 5] = x[n, o, h, w] * s[o] + t[o]
)";

/// A convolution with a bias and the node behind it.
Graph convolution(const std::string& after, const std::vector<Shape>& further, bool also_returned = false) {
  Layered made;
  const TensorId x = made.input("x", {1, 3, 6, 5});
  const TensorId w = made.weight("w", {4, 3, 3, 3}), b = made.weight("b", {4});
  std::vector<TensorId> inputs = {made.node("conv", kConv, {x, w, b})};
  for (std::size_t i = 0; i < further.size(); ++i)
    inputs.push_back(made.weight(fmt::format("f{}", i), further[i]));
  const TensorId conv = inputs[0];
  const TensorId last = made.node("after", after, inputs);
  return made.returning(also_returned ? std::vector{last, conv} : std::vector{last});
}

void expect_equal(const Graph& graph, const Graph& made) {
  verify(made);
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    const auto given = random_values(graph, seed);
    EXPECT_TRUE(equal(outputs_of(graph, given), outputs_of(made, given), true)) << to_text(made);
  }
}

TEST(Scales, BatchNormalisationGoesIntoWeightsAndBias) {
  const Graph graph = convolution(kNorm, {{4}, {4}});
  ASSERT_EQ(find_scales(graph), (std::vector<GraphSite>{{"after", "conv"}}));
  const Graph made = scale_weights(graph, {"after", "conv"});
  expect_equal(graph, made);
  EXPECT_TRUE(find_scales(made).empty());
  ASSERT_EQ(made.nodes().size(), 4u);
  EXPECT_EQ(made.tensor(made.nodes()[0].outputs[0]).name, "w_scaled");
  EXPECT_EQ(made.tensor(made.nodes()[1].outputs[0]).name, "b_scaled");
  EXPECT_EQ(constant_nodes(made).size(), 2u);
  EXPECT_EQ(made.nodes()[2].program, graph.nodes()[0].program);
  // The factor is read by nothing that depends on x any more.
  EXPECT_EQ(made.nodes()[3].inputs.size(), 2u);
}

TEST(Scales, FactorsOfManyForms) {
  const std::string head = "input x[1, 4, 6, 5]\ninput s[4]\n";
  const std::string y = "y[n: 1, o: 4, h: 6, w: 5] = ";
  for (const char* body :
       {"s[o] * x[n, o, h, w]", "x[n, o, h, w] * (1 + s[o])", "x[n, o, h, w] * s[o] * s[3 - o]",
        "2 - x[n, o, h, w] * tanh(s[o])", "x[n, o, h, w] * index(o + 1)", "x[n, o, h, w] * 1/8",
        "x[n, o, h, w] * s[o] / (2 + s[o] * s[o]) + s[o]", "x[n, o, h, w] / 4",
        "-(s[o] * x[n, o, h, w] * s[o]) - s[o]", "max(s[o], 0) * x[n, o, h, w] * index(h)"}) {
    const Graph graph = convolution(head + y + body + "\n", {{4}});
    const auto sites = find_scales(graph);
    if (std::string(body).find("index(h)") != std::string::npos) {
      EXPECT_TRUE(sites.empty()) << "weights do not know the place";
      continue;
    }
    ASSERT_EQ(sites.size(), 1u) << body;
    expect_equal(graph, scale_weights(graph, sites[0]));
  }
}

TEST(Scales, WhatDoesNotTakeAFactorIsLeft) {
  const std::string head = "input x[1, 4, 6, 5]\ninput s[4]\n";
  const std::string y = "y[n: 1, o: 4, h: 6, w: 5] = ";
  for (const char* body :
       {"max(x[n, o, h, w] * s[o], 0)", "x[n, o, h, w] * x[n, o, h, w] * s[o]", "x[n, o, h, w] + s[o]",
        "x[n, o, h, w] * s[o] + x[n, o, h, w]", "x[n, o, 5 - h, w] * s[o]", "(x[n, o, h, w] + s[o]) * s[o]",
        "tanh(x[n, o, h, w]) * s[o]", "x[n, o, h - 1, w] * s[o]", "s[o] / x[n, o, h, w]",
        "(x[n, o, h, w] + s[o]) / 4"})
    EXPECT_TRUE(find_scales(convolution(head + y + body + "\n", {{4}})).empty()) << body;
  EXPECT_TRUE(find_scales(convolution(kNorm, {{4}, {4}}, true)).empty()) << "others see the layer's result";
  // Along the width there is no weight.
  EXPECT_TRUE(
      find_scales(convolution("input x[1, 4, 6, 5]\ninput s[5]\n" + y + "x[n, o, h, w] * s[w]\n", {{5}}))
          .empty());
}

TEST(Scales, LayersThatCannotTakeOneAreLeft) {
  const std::string after = "input x[2, 4]\ninput s[4]\ny[n: 2, o: 4] = x[n, o] * s[o]\n";
  const auto of = [&](const std::string& layer, const std::vector<Shape>& weights, bool data = false) {
    Layered made;
    std::vector<TensorId> inputs = {made.input("x", {2, 3})};
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const std::string name = fmt::format("w{}", i);
      inputs.push_back(data && i > 0 ? made.input(name, weights[i]) : made.weight(name, weights[i]));
    }
    const TensorId a = made.node("layer", layer, inputs);
    return made.returning({made.node("after", after, {a, made.weight("s", {4})})});
  };
  const std::string head = "input x[2, 3]\nweight w[4, 3]\n";
  const std::string sum = "sum[k: 3] x[n, k] * w[o, k]";
  EXPECT_EQ(find_scales(of(head + "y[n: 2, o: 4] = " + sum + "\n", {{4, 3}})).size(), 1u);
  for (const char* rest : {" + 1", " + x[n, 0]"})
    EXPECT_TRUE(
        find_scales(of(head + "a[n: 2, o: 4] = " + sum + "\ny[n: 2, o: 4] = a[n, o]" + rest + "\n", {{4, 3}}))
            .empty())
        << rest;
  for (const char* body : {"max[k: 3] x[n, k] * w[o, k]", "sum[k: 3] x[n, k] * w[o, k] * w[o, 0]",
                           "sum[k: 3] x[n, k] / w[o, k]", "sum[k: 3] x[n, k] * tanh(w[o, k])",
                           "sum[k: 3] x[n, k] * w[3 - o, k]", "sum[k: 3] x[n, k] * w[o + k, k] fill 1"})
    EXPECT_TRUE(find_scales(of(head + "y[n: 2, o: 4] = " + body + "\n", {{4, 3}})).empty()) << body;
  // A bias that is data.
  const std::string biased = "input x[2, 3]\nweight w[4, 3]\ninput b[4]\na[n: 2, o: 4] = " + sum +
                             "\ny[n: 2, o: 4] = a[n, o] + b[o]\n";
  EXPECT_EQ(find_scales(of(biased, {{4, 3}, {4}})).size(), 1u);
  EXPECT_TRUE(find_scales(of(biased, {{4, 3}, {4}}, true)).empty());
}

TEST(Scales, AChainOfFactorsGoesIntoOneLayer) {
  Layered made;
  const TensorId x = made.input("x", {1, 3, 6, 5});
  const TensorId w = made.weight("w", {4, 3, 3, 3}), b = made.weight("b", {4});
  TensorId at = made.node("conv", kConv, {x, w, b});
  for (int i = 0; i < 3; ++i)
    at = made.node(fmt::format("norm{}", i), kNorm,
                   {at, made.weight(fmt::format("s{}", i), {4}), made.weight(fmt::format("t{}", i), {4})});
  const Graph graph = made.returning({at});
  const Graph left = scales_in_weights(graph);
  expect_equal(graph, left);
  EXPECT_TRUE(find_scales(left).empty());
  EXPECT_EQ(left.nodes().size() - constant_nodes(left).size(), 4u);
}

TEST(Scales, TheFactorMayBeComputedBehindTheLayer) {
  Layered made;
  const TensorId x = made.input("x", {1, 3, 6, 5});
  const TensorId w = made.weight("w", {4, 3, 3, 3}), b = made.weight("b", {4});
  const TensorId conv = made.node("conv", kConv, {x, w, b});
  const TensorId v = made.weight("v", {4}), t = made.weight("t", {4});
  const TensorId s = made.node("rsqrt", "input v[4]\ny[o: 4] = rsqrt(v[o] * v[o] + 1/4)\n", {v});
  const Graph graph = made.returning({made.node("norm", kNorm, {conv, s, t})});
  expect_equal(graph, scales_in_weights(graph));
}

TEST(Scales, RandomGraphsKeepWhatTheyCompute) {
  std::size_t fewer = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Graph graph = testing::RandomGraph(seed + 5000)(8 + seed % 12);
    const Graph made = scales_in_weights(graph);
    verify(made);
    ASSERT_TRUE(find_scales(made).empty()) << seed;
    const auto given = random_values(graph, seed);
    ASSERT_TRUE(equal(outputs_of(graph, given), outputs_of(made, given), true)) << seed;
    fewer += !find_scales(graph).empty();
  }
  EXPECT_GT(fewer, 20u);
}

}  // namespace
}  // namespace syno::graph
