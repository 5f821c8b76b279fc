#include "graph/rewrites.hpp"

#include <gtest/gtest.h>

#include "graph/views.hpp"
#include "random_graph.hpp"
#include "support/error.hpp"

namespace syno::graph {
namespace {

using testing::elementwise;
using testing::equal;
using testing::outputs_of;
using testing::parsed;
using testing::permuted;
using testing::random_values;
using testing::RandomGraph;
using testing::reshape;

TensorId out(const Graph& graph, std::string_view node, std::size_t i = 0) {
  return graph.nodes()[graph.node_named(node)].outputs[i];
}

struct Small {
  Graph graph{"small"};
  TensorId x = graph.add_input("x", {2, 3}, ElementType::F32);
  TensorId add(const std::string& name, const Program& program, std::vector<TensorId> inputs) {
    graph.add_program(name, program, std::move(inputs), {name + ".y"}, ElementType::F32);
    return out(graph, name);
  }
  TensorId call(const std::string& name, const std::string& attributes, std::vector<TensorId> inputs) {
    graph.add_call(name, "f", attributes, std::move(inputs), {{name + ".y", {2, 3}, ElementType::F32, {}}});
    return out(graph, name);
  }
};

TEST(GraphRewrites, EveryRowKeepsWhatRandomGraphsCompute) {
  std::map<std::string_view, int> applied;
  for (std::uint64_t seed = 0; seed < 160; ++seed) {
    const Graph graph = RandomGraph(seed)();
    const auto given = random_values(graph, seed);
    const auto wanted = outputs_of(graph, given);
    for (const GraphRewrite& row : graph_rewrites()) {
      const auto sites = row.find(graph);
      for (std::size_t i = 0; i < sites.size(); i += 1 + sites.size() / 3) {
        const Graph made = row.apply(graph, sites[i]);
        verify(made);
        ++applied[row.name];
        ASSERT_TRUE(equal(wanted, outputs_of(made, given), row.reassociates))
            << seed << ' ' << row.name << ' ' << sites[i].node;
        const auto left = row.find(made);
        ASSERT_EQ(std::count(left.begin(), left.end(), sites[i]), 0) << seed << ' ' << row.name;
      }
    }
  }
  for (const GraphRewrite& row : graph_rewrites()) EXPECT_GT(applied[row.name], 20) << row.name;
}

TEST(GraphRewrites, CleanedKeepsWhatGraphsComputeAndLeavesNoSite) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Graph graph = RandomGraph(seed)(4 + seed % 20);
    const Graph made = cleaned(graph);
    verify(made);
    const auto given = random_values(graph, seed);
    ASSERT_TRUE(equal(outputs_of(graph, given), outputs_of(made, given))) << seed;
    for (const GraphRewrite& row : graph_rewrites())
      if (!row.reassociates && !row.by_choice) ASSERT_TRUE(row.find(made).empty()) << seed << ' ' << row.name;
    ASSERT_EQ(made.with_role(Role::Input).size(), graph.with_role(Role::Input).size());
    ASSERT_EQ(made.with_role(Role::Weight).size(), graph.with_role(Role::Weight).size());
  }
}

TEST(GraphRewrites, CleanedIsWhatTheRowsLeaveOneByOne) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const Graph graph = RandomGraph(seed + 1000)();
    Graph stepped = graph;
    for (bool any = true; any;) {
      any = false;
      for (const GraphRewrite& row : graph_rewrites())
        if (const auto sites = row.find(stepped); !sites.empty() && !row.reassociates && !row.by_choice) {
          stepped = row.apply(stepped, sites[0]);
          any = true;
        }
    }
    EXPECT_EQ(stepped.nodes().size(), cleaned(graph).nodes().size()) << seed;
  }
}

TEST(GraphRewrites, ReciprocalTransposesVanish) {
  Small small;
  const TensorId a = small.add("a", permuted({2, 3}, {1, 0}), {small.x});
  const TensorId b = small.add("b", permuted({3, 2}, {1, 0}), {a});
  small.graph.outputs = {small.add("r", elementwise({2, 3}, "max(X, 0)"), {b}), b};
  const Graph composed = graph_rewrite_named("transposes").apply(small.graph, {"b", "a"});
  EXPECT_TRUE(is_copy(composed.nodes()[1].program->program));
  const Graph made = cleaned(small.graph);
  ASSERT_EQ(made.nodes().size(), 1u);
  EXPECT_EQ(made.nodes()[0].name, "r");
  EXPECT_EQ(made.nodes()[0].inputs, std::vector<TensorId>{made.tensor_named("x")});
  EXPECT_EQ(made.outputs[1], made.tensor_named("x"));
}

TEST(GraphRewrites, ChainsOfReshapesBecomeOne) {
  Small small;
  TensorId at = small.add("a", reshape({2, 3}, {6}), {small.x});
  at = small.add("b", reshape({6}, {3, 2}), {at});
  at = small.add("c", reshape({3, 2}, {1, 6}), {at});
  small.graph.outputs = {at};
  const Graph made = cleaned(small.graph);
  ASSERT_EQ(made.nodes().size(), 1u);
  EXPECT_EQ(made.nodes()[0].name, "c");
  EXPECT_TRUE(is_view(made.nodes()[0].program->program));
}

TEST(GraphRewrites, RandomCallsAreNeverOne) {
  for (const bool random : {false, true}) {
    Small small;
    const std::string attributes = random ? R"({"random": true})" : "{}";
    small.graph.outputs = {small.call("a", attributes, {small.x}), small.call("b", attributes, {small.x})};
    EXPECT_EQ(graph_rewrite_named("common").find(small.graph).size(), random ? 0u : 1u);
    EXPECT_EQ(cleaned(small.graph).nodes().size(), random ? 2u : 1u);
  }
}

TEST(GraphRewrites, WhatDiffersIsNotCommon) {
  Small small;
  const TensorId z = small.graph.add_input("z", {2, 3}, ElementType::F32);
  small.graph.outputs = {small.call("a", R"({"k": 1, "l": 2})", {small.x}),
                         small.call("layout", R"({"l":2,"k":1})", {small.x}),
                         small.call("attributes", R"({"k": 2, "l": 2})", {small.x}),
                         small.call("inputs", R"({"k": 1, "l": 2})", {z}),
                         small.add("p", elementwise({2, 3}, "X + 1"), {small.x}),
                         small.add("q", elementwise({2, 3}, "X + 2"), {small.x})};
  EXPECT_EQ(graph_rewrite_named("common").find(small.graph), (std::vector<GraphSite>{{"layout", "a"}}));
}

TEST(GraphRewrites, DeadNodesDoNotHideEqualOnesThatLive) {
  Small small;
  small.add("dead", elementwise({2, 3}, "X + 1"), {small.x});
  small.graph.outputs = {small.add("live", elementwise({2, 3}, "X + 1"), {small.x})};
  const Graph made = cleaned(small.graph);
  ASSERT_EQ(made.nodes().size(), 1u);
  EXPECT_EQ(made.nodes()[0].name, "live");
}

TEST(GraphRewrites, ANodeWithOneOutputThatIsReadStays) {
  Small small;
  small.graph.add_program(
      "two", parsed("input x[2, 3]\ny[i: 2, j: 3] = x[i, j] * 2\nz[i: 2, j: 3] = x[i, j] * 3\nreturn y, z\n"),
      {small.x}, {"y", "z"}, ElementType::F32);
  small.graph.outputs = {out(small.graph, "two", 1)};
  EXPECT_TRUE(graph_rewrite_named("dead").find(small.graph).empty());
  EXPECT_EQ(cleaned(small.graph).nodes().size(), 1u);
}

TEST(GraphRewrites, PaddingIsNoTranspose) {
  Small small;
  const TensorId a = small.add("a", testing::reading({2, 3}, {4, 3}, {"i0 - 1", "i1"}), {small.x});
  small.graph.outputs = {small.add("b", permuted({4, 3}, {1, 0}), {a})};
  EXPECT_TRUE(graph_rewrite_named("transposes").find(small.graph).empty());
}

TEST(GraphRewrites, SitesThatAreNotFoundAreRefused) {
  Small small;
  small.graph.outputs = {small.add("a", elementwise({2, 3}, "X + 1"), {small.x})};
  for (const GraphRewrite& row : graph_rewrites())
    EXPECT_THROW(row.apply(small.graph, {"a", ""}), ScheduleError) << row.name;
  EXPECT_THROW(graph_rewrite_named("dad"), UnknownName);
}

TEST(GraphRewrites, ALargeNetworkIsCleanedInOnePass) {
  Small small;
  TensorId at = small.x;
  for (int i = 0; i < 1250; ++i) {
    at = small.add(fmt::format("a{}", i), permuted({2, 3}, {1, 0}), {at});
    at = small.add(fmt::format("b{}", i), permuted({3, 2}, {1, 0}), {at});
    const TensorId one = small.add(fmt::format("c{}", i), elementwise({2, 3}, "tanh(X)"), {at});
    const TensorId two = small.add(fmt::format("d{}", i), elementwise({2, 3}, "tanh(X)"), {at});
    at = small.add(fmt::format("e{}", i), elementwise({2, 3}, "X + B", true), {one, two});
  }
  small.graph.outputs = {at};
  EXPECT_EQ(cleaned(small.graph).nodes().size(), 2500u);
}

}  // namespace
}  // namespace syno::graph
