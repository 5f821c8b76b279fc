#include "graph/views.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "random_graph.hpp"

namespace syno::graph {
namespace {

using testing::elementwise;
using testing::parsed;
using testing::permuted;
using testing::RandomGraph;
using testing::reading;
using testing::reshape;

/// What a program of one input makes of 1, 2, 3, ...: 0 is read outside of it.
std::vector<double> of_places(const Program& program) {
  const auto& input = program.tensor(program.inputs()[0]);
  Values values{program::shape_of(program, program.inputs()[0]), {}};
  values.data.resize(static_cast<std::size_t>(program::checked_product("test", values.shape)));
  std::iota(values.data.begin(), values.data.end(), 1.0);
  const auto made = program::interpret<double>(program, {{input.name, values}});
  return made.at(program.tensor(program.outputs[0]).name).data;
}
std::vector<double> counted(std::size_t count) {
  std::vector<double> made(count);
  std::iota(made.begin(), made.end(), 1.0);
  return made;
}

/// Programs that consist of one read, of which a look at each element tells all.
void expect_as_enumerated(const Program& program) {
  const auto made = of_places(program);
  const auto input = program::shape_of(program, program.inputs()[0]);
  const auto output = program::shape_of(program, program.outputs[0]);
  const auto elements = static_cast<std::size_t>(program::checked_product("test", input));
  const bool view = made == counted(elements);
  const std::string text = program::to_text(program);
  EXPECT_EQ(only_reads(program), std::find(made.begin(), made.end(), 0.0) == made.end()) << text;
  EXPECT_EQ(is_view(program), view) << text;
  std::optional<std::int64_t> begin;
  if (made.empty() || made[0] > 0) begin = made.empty() ? 0 : static_cast<std::int64_t>(made[0]) - 1;
  for (std::size_t i = 0; i < made.size() && begin; ++i)
    if (made[i] != static_cast<double>(*begin + 1) + static_cast<double>(i)) begin.reset();
  EXPECT_EQ(run_of(program), begin) << text;
  EXPECT_EQ(is_copy(program), view && input == output) << text;
}

TEST(GraphViews, ReadsAreWhatEnumerationSays) {
  Random random(7);
  const auto pick = [&](std::uint64_t n) { return static_cast<std::int64_t>(random.below(n)); };
  for (int i = 0; i < 400; ++i) {
    Shape from, to;
    for (std::int64_t d = 1 + pick(3); d > 0; --d) from.push_back(1 + pick(4));
    for (std::int64_t d = 1 + pick(3); d > 0; --d) to.push_back(1 + pick(4));
    std::vector<std::string> indices;
    for (const std::int64_t extent : from) {
      const std::int64_t d = pick(to.size());
      const std::string forms[] = {fmt::format("i{}", d),
                                   fmt::format("i{} + {}", d, pick(3) - 1),
                                   fmt::format("i{} / {}", d, 1 + pick(3)),
                                   fmt::format("i{} % {}", d, extent),
                                   fmt::format("(i{} * 2 + i0) % {}", d, extent),
                                   fmt::format("{} - i{}", extent - 1, d),
                                   fmt::format("{}", pick(static_cast<std::uint64_t>(extent)))};
      indices.push_back(forms[pick(7)]);
    }
    expect_as_enumerated(reading(from, to, indices));
  }
}

TEST(GraphViews, PermutationsAndReshapesAreWhatEnumerationSays) {
  Random random(8);
  const std::vector<Shape> shapes = {{12}, {3, 4}, {4, 3}, {2, 6}, {2, 2, 3}, {1, 12}, {12, 1}, {2, 1, 6}};
  for (const Shape& from : shapes)
    for (const Shape& to : shapes) {
      const Program program = reshape(from, to);
      expect_as_enumerated(program);
      EXPECT_TRUE(is_view(program));
      EXPECT_EQ(is_copy(program), from == to);
    }
  for (int i = 0; i < 60; ++i) {
    Shape shape;
    std::vector<std::size_t> order;
    for (std::size_t d = 0, rank = 1 + random.below(4); d < rank; ++d) {
      shape.push_back(1 + static_cast<std::int64_t>(random.below(3)));
      order.insert(order.begin() + static_cast<std::ptrdiff_t>(random.below(d + 1)), d);
    }
    expect_as_enumerated(permuted(shape, order));
  }
}

TEST(GraphViews, SlicesAreRunsWhereNothingLiesBetween) {
  EXPECT_EQ(run_of(reading({8, 3}, {2, 3}, {"i0 + 2", "i1"})), 6);
  EXPECT_EQ(run_of(reading({1, 8, 3}, {1, 2, 3}, {"i0", "i1 + 5", "i2"})), 15);
  EXPECT_EQ(run_of(reading({2, 8, 3}, {8, 3}, {"1", "i0", "i1"})), 24);
  EXPECT_EQ(run_of(reading({2, 8, 3}, {24}, {"1", "i0 / 3", "i0 % 3"})), 24);
  EXPECT_EQ(run_of(reading({2, 8, 3}, {2, 2, 3}, {"i0", "i1 + 2", "i2"})), std::nullopt);
  EXPECT_EQ(run_of(reading({4096, 4096}, {2048, 4096}, {"i0 + 7", "i1"})), 7 * 4096);
  EXPECT_EQ(run_of(reading({4096, 4096}, {4096, 2048}, {"i0", "i1 + 7"})), std::nullopt);
  Random random(9);
  for (int i = 0; i < 200; ++i) {
    Shape from, to;
    std::vector<std::string> indices;
    for (std::size_t d = 0, rank = 1 + random.below(4); d < rank; ++d) {
      from.push_back(1 + static_cast<std::int64_t>(random.below(4)));
      to.push_back(1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(from[d]))));
      indices.push_back(
          fmt::format("i{} + {}", d, random.below(static_cast<std::uint64_t>(from[d] - to[d] + 1))));
    }
    expect_as_enumerated(reading(from, to, indices));
  }
}

TEST(GraphViews, WhatComputesReadsNothingAlone) {
  const char* texts[] = {
      "input x[4]\ny[i: 4] = x[i] * 1\n",
      "input x[4]\ny[i: 4] = 3\n",
      "input x[4]\ny[i: 4] = sum[k: 1] x[i]\n",
      "input x[4]\ninput z[4]\ny[i: 4] = x[i]\n",
      "input x[4]\nt[i: 4] = x[i]\ny[i: 4] = t[i]\n",
      "input x[4]\ny[4] : [i: 4][i] += x[i]\n",
      "input x[4]\ny[i: 4] = x[i + 1] fill 5\n",
  };
  for (const char* text : texts) {
    EXPECT_FALSE(only_reads(parsed(text))) << text;
    EXPECT_FALSE(is_view(parsed(text))) << text;
    EXPECT_FALSE(is_copy(parsed(text))) << text;
  }
}

TEST(GraphViews, LargeReshapesAreProven) {
  EXPECT_TRUE(is_view(reshape({64, 4096, 64}, {64, 64, 64, 64})));
  EXPECT_TRUE(is_view(reshape({64, 64, 64, 64}, {64, 4096, 64})));
  EXPECT_TRUE(is_copy(elementwise({4096, 4096}, "X")));
  EXPECT_FALSE(is_view(permuted({4096, 4096}, {1, 0})));
  EXPECT_TRUE(only_reads(permuted({4096, 4096}, {1, 0})));
}

/// By hand: which nodes reach no input and no random call.
TEST(GraphViews, ConstantNodesDependOnWeightsAlone) {
  int constant = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Graph graph = RandomGraph(seed)(8);
    const TensorId w = graph.add_weight("the weight", {3}, ElementType::F32);
    for (int i = 0; i < 3; ++i) {
      const TensorId reads = i == 0 ? w : graph.nodes().back().outputs[0];
      graph.add_call(fmt::format("last {}", i), "f", seed % 3 == 0 && i == 1 ? R"({"random": true})" : "{}",
                     {reads}, {{fmt::format("last {}", i), {3}, ElementType::F32, {}}});
    }
    const auto made = producers(graph);
    std::vector<std::string> wanted;
    for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
      bool varies = false;
      std::vector<std::size_t> stack = {n};
      while (!stack.empty()) {
        const Node& node = graph.nodes()[stack.back()];
        stack.pop_back();
        varies = varies || is_random(node);
        for (const TensorId input : node.inputs) {
          varies = varies || graph.tensor(input).role == Role::Input;
          if (const auto producer = made[static_cast<std::size_t>(input)]) stack.push_back(*producer);
        }
      }
      if (!varies) wanted.push_back(graph.nodes()[n].name);
    }
    EXPECT_EQ(constant_nodes(graph), wanted) << seed;
    constant += static_cast<int>(wanted.size());
  }
  EXPECT_GT(constant, 150);
}

}  // namespace
}  // namespace syno::graph
