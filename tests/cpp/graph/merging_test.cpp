#include "graph/merging.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "graph/merge.hpp"
#include "graph/text.hpp"
#include "program/neutral.hpp"
#include "program/text.hpp"
#include "random_graph.hpp"

namespace syno::graph {
namespace {

using testing::elementwise;
using testing::RandomGraph;
using Names = std::pair<std::string, std::string>;

/// What a graph of one node says of it.
std::string told_alone(const Graph& graph, const Node& node) {
  std::string all = node.program->text;
  for (const auto& list : {node.inputs, node.outputs})
    for (const TensorId each : list) {
      const Tensor& tensor = graph.tensor(each);
      all += fmt::format("\n{}: {}{}", tensor.name, described(tensor),
                         tensor.role == Role::Weight ? ", weight" : "");
    }
  return all;
}

/// Producers and readers as next() has them, found anew by a look at all of a graph.
std::vector<Names> all_pairs(const Graph& graph, const std::set<std::string>& first) {
  std::vector<Names> pairs;
  const auto made = producers(graph);
  for (const bool goes_first : {true, false})
    for (const Node& node : graph.nodes())
      for (const TensorId input : node.inputs)
        if (const auto producer = made[place(input)]) {
          const std::string& name = graph.nodes()[*producer].name;
          if (first.contains(name) == goes_first) pairs.emplace_back(name, node.name);
        }
  return pairs;
}

struct MergedBoth {
  int merged = 0, refused = 0;
};

/// Merges what next() gives, or refuses it, by chance; each step beside a graph that is made anew.
MergedBoth merge_beside(const Graph& graph, Random random) {
  MergedBoth counts;
  Merging merging(graph);
  Graph whole = graph;
  std::set<Names> refused;
  std::set<std::string> first;
  for (std::size_t n = 0; n < graph.nodes().size(); ++n)
    if (random.below(4) == 0) {
      merging.goes_first(n);
      first.insert(graph.nodes()[n].name);
    }
  while (const auto pair = merging.next()) {
    const Names names{merging.node(pair->first).name, merging.node(pair->second).name};
    const auto pairs = all_pairs(whole, first);
    const auto open =
        std::find_if(pairs.begin(), pairs.end(), [&](const Names& each) { return !refused.contains(each); });
    EXPECT_TRUE(open != pairs.end() && *open == names) << names.first << ", " << names.second;
    EXPECT_EQ(merging.find_node(names.first), pair->first);
    const auto wanted = merged(whole, {whole.node_named(names.first), whole.node_named(names.second)});
    const auto alone = merging.alone(*pair);
    EXPECT_EQ(wanted.index(), alone.index());
    const bool refuse = random.below(3) == 0;
    if (const auto* reason = std::get_if<std::string>(&wanted)) {
      EXPECT_EQ(std::get<std::string>(alone), *reason);
      EXPECT_EQ(std::get<std::string>(merging.merge(*pair)), *reason);
    }
    if (refuse || std::holds_alternative<std::string>(wanted)) {
      merging.refuse(*pair);
      refused.insert(names);
      ++counts.refused;
      continue;
    }
    whole = std::get<Graph>(wanted);
    const auto number = std::get<Merging::Number>(merging.merge(*pair));
    const Node& made = merging.node(number);
    const Graph& small = std::get<Graph>(alone);
    verify(small);
    EXPECT_EQ(small.nodes()[0].name, made.name);
    EXPECT_EQ(told_alone(small, small.nodes()[0]),
              told_alone(whole, whole.nodes()[whole.node_named(made.name)]));
    EXPECT_THROW(static_cast<void>(merging.node(pair->first)), ShapeError);
    EXPECT_THROW(static_cast<void>(merging.alone(*pair)), ShapeError);
    EXPECT_THROW(static_cast<void>(merging.merge(*pair)), ShapeError);
    first.erase(names.first);
    first.erase(names.second);
    // The same name may stand for another node now.
    std::erase_if(refused,
                  [&](const Names& each) { return each.first == made.name || each.second == made.name; });
    if (random.below(5) == 0) {
      merging.goes_first(number);
      first.insert(made.name);
    }
    if (random.below(3) == 0) {  // any other one, whose readers may be far from where the scan is
      const std::string& name = whole.nodes()[random.below(whole.nodes().size())].name;
      merging.goes_first(*merging.find_node(name));
      first.insert(name);
    }
    ++counts.merged;
    EXPECT_EQ(to_text(merging.graph()), to_text(whole));
  }
  for (const Names& each : all_pairs(whole, first)) EXPECT_TRUE(refused.contains(each));
  return counts;
}

TEST(GraphMerging, PairByPairIsWhatAllOfTheGraphMakesOfThem) {
  int merged_count = 0, refused = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const MergedBoth counts = merge_beside(RandomGraph(seed)(3 + seed % 24), Random(seed));
    ASSERT_FALSE(::testing::Test::HasFailure());
    merged_count += counts.merged;
    refused += counts.refused;
  }
  EXPECT_GT(merged_count, 500);
  EXPECT_GT(refused, 300);
}

TEST(GraphMerging, EqualWiringIsAnEqualNode) {
  std::map<std::string, std::string> known;
  int again = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Graph graph = RandomGraph(seed)(12);
    Merging merging(graph);
    while (const auto pair = merging.next()) {
      merging.refuse(*pair);
      const auto alone = merging.alone(*pair);
      if (std::holds_alternative<std::string>(alone)) continue;
      std::string key;
      for (const auto number : {pair->first, pair->second})
        key += program::to_text(program::neutral(merging.node(number).program->program).program) + "\n";
      key += fmt::format("{}", fmt::join(merging.wiring(*pair), ","));
      const Graph& made = std::get<Graph>(alone);
      std::string what = program::to_text(program::neutral(made.nodes()[0].program->program).program);
      for (const TensorId input : made.nodes()[0].inputs)
        what += made.tensor(input).role == Role::Weight ? "w" : "x";
      const auto [found, fresh] = known.emplace(key, what);
      ASSERT_EQ(found->second, what) << seed << ": " << key;
      again += fresh ? 0 : 1;
    }
  }
  EXPECT_GT(again, 20);
  EXPECT_GT(known.size(), 200U);
}

TEST(GraphMerging, WhatBothComputeIsComputedOnce) {
  Graph graph("statistics");
  const TensorId x = graph.add_input("x", {4, 3}, ElementType::F32);
  const auto add = [&](const std::string& name, const std::string& text, std::vector<TensorId> inputs) {
    graph.add_program(name, parsed("input x[4, 3]\n" + text), inputs, {name + ".y"}, ElementType::F32);
    return graph.nodes().back().outputs[0];
  };
  const TensorId mean = add("mean", "m[i: 3] = mean[r: 4] x[r, i]\n", {x});
  const TensorId var = add("var",
                           "a[j: 3] = mean[k: 4] x[k, j]\n"
                           "v[j: 3] = mean[k: 4] (x[k, j] - a[j]) * (x[k, j] - a[j])\n",
                           {x});
  const TensorId sum =
      add("sum", "input m[3]\ninput v[3]\ny[i: 4, j: 3] = (x[i, j] - m[j]) * v[j]\n", {x, mean, var});
  graph.outputs = {sum, mean};
  Merging merging(graph);
  const auto first = std::get<Merging::Number>(merging.merge({1, 2}));
  EXPECT_EQ(merging.node(first).program->program.scopes.size(), 3U);
  const auto all = std::get<Merging::Number>(merging.merge({0, first}));
  const auto& program = merging.node(all).program->program;
  EXPECT_EQ(program.scopes.size(), 3U) << program::to_text(program);
  EXPECT_EQ(program.outputs.size(), 2U);
  const auto given = random_values(graph, 1);
  EXPECT_TRUE(equal(outputs_of(graph, given), outputs_of(merging.graph(), given)));
}

TEST(GraphMerging, WiringSaysWhoReadsAndWhatIsAWeight) {
  const auto wired = [](bool weight, bool read, bool returned, bool twice) {
    Graph graph("pair");
    const TensorId x = graph.add_input("x", {2}, ElementType::F32);
    const TensorId w =
        weight ? graph.add_weight("w", {2}, ElementType::F32) : graph.add_input("w", {2}, ElementType::F32);
    const auto add = [&](const std::string& name, TensorId one, TensorId two) {
      graph.add_program(name, elementwise({2}, "X + B", true), {one, two}, {name + ".y"}, ElementType::F32);
      return graph.nodes().back().outputs[0];
    };
    const TensorId a = add("a", x, w), b = add("b", a, twice ? a : x);
    graph.outputs = {b};
    if (read) graph.outputs.push_back(add("c", a, x));
    if (returned) graph.outputs.push_back(a);
    return Merging(graph).wiring({0, 1});
  };
  std::set<std::vector<std::int64_t>> all;
  for (int bits = 0; bits < 16; ++bits)
    all.insert(wired((bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0));
  EXPECT_EQ(all.size(), 16U);
  EXPECT_EQ(wired(true, false, false, false), wired(true, false, false, false));
}

TEST(GraphMerging, LayoutsAndStrangersAreRefused) {
  Graph graph("laid");
  const TensorId x = graph.add_input("x", {2, 3}, ElementType::F32);
  const auto add = [&](const std::string& name, TensorId from) {
    graph.add_program(name, elementwise({2, 3}, "X + 1"), {from}, {name + ".y"}, ElementType::F32);
    return graph.nodes().back().outputs[0];
  };
  const TensorId a = add("a", x), b = add("b", x);
  graph.outputs = {a, b};
  Merging merging(graph);
  EXPECT_THROW(static_cast<void>(merging.alone({0, 1})), ShapeError);  // both read x
  EXPECT_THROW(static_cast<void>(merging.alone({1, 0})), ShapeError);
  EXPECT_THROW(static_cast<void>(merging.merge({0, 2})), ShapeError);
  EXPECT_THROW(merging.goes_first(2), ShapeError);
  EXPECT_EQ(merging.next(), std::nullopt);
  EXPECT_EQ(merging.find_node("c"), std::nullopt);
  Graph laid = graph;
  laid.outputs = {a};
  laid.set_layout(b, schedule::parse_layout("reorder(1, 0)"), {3, 2});
  EXPECT_THROW(Merging{laid}, ScheduleError);
}

}  // namespace
}  // namespace syno::graph
