#include "graph/merge.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "random_graph.hpp"

namespace syno::graph {
namespace {

using testing::elementwise;
using testing::equal;
using testing::outputs_of;
using testing::random_values;
using testing::RandomGraph;

/// Nodes grown along edges from one of them.
std::vector<std::size_t> connected(const Graph& graph, Random& random) {
  const auto made = producers(graph);
  const auto read = readers(graph);
  std::set<std::size_t> chosen = {random.below(graph.nodes().size())};
  for (std::size_t tries = 1 + random.below(8); tries > 0; --tries) {
    const auto at = std::next(chosen.begin(), static_cast<std::ptrdiff_t>(random.below(chosen.size())));
    std::vector<std::size_t> near;
    for (const TensorId input : graph.nodes()[*at].inputs)
      if (const auto producer = made[static_cast<std::size_t>(input)]) near.push_back(*producer);
    for (const TensorId output : graph.nodes()[*at].outputs)
      for (const std::size_t reader : read[static_cast<std::size_t>(output)]) near.push_back(reader);
    if (!near.empty()) chosen.insert(near[random.below(near.size())]);
  }
  std::vector<std::size_t> nodes(chosen.begin(), chosen.end());
  std::reverse(nodes.begin(), nodes.end());
  return nodes;
}

/// Whether a path leaves the nodes and comes back: by a search from each node that is not among them.
bool comes_back(const Graph& graph, const std::vector<std::size_t>& nodes) {
  const std::set<std::size_t> member(nodes.begin(), nodes.end());
  const auto made = producers(graph);
  const auto needs = [&](std::size_t from) {
    std::set<std::size_t> seen;
    std::vector<std::size_t> stack = {from};
    while (!stack.empty()) {
      const std::size_t n = stack.back();
      stack.pop_back();
      for (const TensorId input : graph.nodes()[n].inputs)
        if (const auto producer = made[static_cast<std::size_t>(input)];
            producer && seen.insert(*producer).second)
          stack.push_back(*producer);
    }
    return seen;
  };
  for (const std::size_t n : nodes)
    for (const std::size_t middle : needs(n)) {
      if (member.contains(middle)) continue;
      for (const std::size_t first : needs(middle))
        if (member.contains(first)) return true;
    }
  return false;
}

TEST(GraphMerge, RandomSubsetsComputeTheSameOrHaveAReason) {
  int merged_count = 0, refused = 0;
  for (std::uint64_t seed = 0; seed < 250; ++seed) {
    const Graph graph = RandomGraph(seed)(10);
    const auto given = random_values(graph, seed);
    const auto wanted = outputs_of(graph, given);
    Random random(seed);
    for (int i = 0; i < 6; ++i) {
      const auto nodes = connected(graph, random);
      bool call = false;
      std::set<ElementType> types;
      for (const std::size_t n : nodes) {
        call = call || graph.nodes()[n].is_call();
        types.insert(type_of(graph, graph.nodes()[n]));
      }
      const auto result = merged(graph, nodes);
      if (const auto* reason = std::get_if<std::string>(&result)) {
        ++refused;
        ASSERT_FALSE(reason->empty());
        ASSERT_TRUE(call || types.size() > 1 || comes_back(graph, nodes)) << seed << ": " << *reason;
        continue;
      }
      ++merged_count;
      const Graph& made = std::get<Graph>(result);
      ASSERT_FALSE(call || types.size() > 1 || comes_back(graph, nodes)) << seed;
      verify(made);
      ASSERT_EQ(made.nodes().size(), graph.nodes().size() - nodes.size() + 1);
      ASSERT_EQ(made.outputs.size(), graph.outputs.size());
      for (std::size_t o = 0; o < made.outputs.size(); ++o)
        ASSERT_EQ(made.tensor(made.outputs[o]).name, graph.tensor(graph.outputs[o]).name);
      ASSERT_TRUE(equal(wanted, outputs_of(made, given))) << seed;
    }
  }
  EXPECT_GT(merged_count, 100);
  EXPECT_GT(refused, 100);
}

struct MergedChain {
  Graph graph{"chain"};
  TensorId x = graph.add_input("x", {2}, ElementType::F32);
  TensorId w = graph.add_weight("w", {2}, ElementType::F32);
  TensorId add(const std::string& name, const std::string& body, std::vector<TensorId> inputs) {
    graph.add_program(name, elementwise({2}, body, inputs.size() > 1), inputs, {name + ".y"},
                      ElementType::F32);
    return graph.nodes().back().outputs[0];
  }
};

TEST(GraphMerge, InputsAndOutputsAreThoseOfTheHeader) {
  MergedChain c;
  const TensorId a = c.add("a", "X * B", {c.x, c.w});
  const TensorId b = c.add("b", "X + B", {a, c.x});
  c.graph.outputs = {b};
  const Graph made = std::get<Graph>(merged(c.graph, {1, 0}, "both"));
  ASSERT_EQ(made.nodes().size(), 1u);
  const Node& node = made.nodes()[0];
  EXPECT_EQ(node.name, "both");
  EXPECT_EQ(node.inputs, (std::vector<TensorId>{c.x, c.w}));
  const auto inputs = node.program->program.inputs();
  EXPECT_EQ(node.program->program.tensor(inputs[0]).role, program::Role::Input);
  EXPECT_EQ(node.program->program.tensor(inputs[1]).role, program::Role::Weight);
  ASSERT_EQ(node.outputs.size(), 1u);
  EXPECT_EQ(made.tensor(node.outputs[0]).name, "b.y");
}

TEST(GraphMerge, WhatOthersReadStays) {
  MergedChain c;
  const TensorId a = c.add("a", "X * B", {c.x, c.w});
  const TensorId b = c.add("b", "X + B", {a, c.x});
  const TensorId d = c.add("d", "X - 1", {a});
  c.graph.outputs = {d, b};
  const Graph made = std::get<Graph>(merged(c.graph, {0, 1}));
  ASSERT_EQ(made.nodes()[0].outputs.size(), 2u);
  EXPECT_EQ(made.tensor(made.nodes()[0].outputs[0]).name, "a.y");
}

TEST(GraphMerge, DeadNodesKeepAnOutput) {
  MergedChain c;
  const TensorId a = c.add("a", "X * B", {c.x, c.w});
  c.add("b", "X + B", {a, c.x});
  const Graph made = std::get<Graph>(merged(c.graph, {0, 1}));
  ASSERT_EQ(made.nodes().size(), 1u);
  EXPECT_EQ(made.tensor(made.nodes()[0].outputs[0]).name, "b.y");
}

TEST(GraphMerge, APathOutAndBackIsRefused) {
  MergedChain c;
  const TensorId a = c.add("a", "X * 2", {c.x});
  const TensorId b = c.add("b", "X + 1", {a});
  c.graph.outputs = {c.add("d", "X - B", {a, b})};
  const std::string reason = std::get<std::string>(merged(c.graph, {0, 2}));
  EXPECT_NE(reason.find("'b'"), std::string::npos) << reason;
  EXPECT_TRUE(std::holds_alternative<Graph>(merged(c.graph, {0, 1, 2})));
}

TEST(GraphMerge, TooManyScopesAreRefused) {
  MergedChain c;
  std::vector<std::size_t> nodes;
  TensorId at = c.x;
  for (std::size_t n = 0; n <= kMostScopes; ++n) {
    at = c.add(fmt::format("n{}", n), "X + 1", {at});
    nodes.push_back(n);
  }
  c.graph.outputs = {at};
  EXPECT_NE(std::get<std::string>(merged(c.graph, nodes)).find("scopes"), std::string::npos);
  nodes.pop_back();
  EXPECT_EQ(std::get<Graph>(merged(c.graph, nodes)).nodes().size(), 2u);
}

TEST(GraphMerge, NamesThatAreNoWordsOfProgramsAreMade) {
  MergedChain c;
  const TensorId odd = c.graph.add_input("sum", {2}, ElementType::F32);
  const TensorId more = c.graph.add_input("a b", {2}, ElementType::F32);
  const TensorId same = c.graph.add_input("a_b", {2}, ElementType::F32);
  const TensorId a = c.add("return", "X + B", {odd, more});
  c.graph.outputs = {c.add("0", "X * B", {a, same})};
  const Graph made = std::get<Graph>(merged(c.graph, {0, 1}));
  verify(made);
  const auto given = random_values(c.graph, 1);
  EXPECT_TRUE(equal(outputs_of(c.graph, given), outputs_of(made, given)));
}

TEST(GraphMerge, MistakesAreErrors) {
  MergedChain c;
  c.add("a", "X * 2", {c.x});
  EXPECT_THROW(merged(c.graph, {}), ShapeError);
  EXPECT_THROW(merged(c.graph, {0, 0}), ShapeError);
  EXPECT_THROW(merged(c.graph, {1}), ShapeError);
}

}  // namespace
}  // namespace syno::graph
