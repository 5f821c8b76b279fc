#include "graph/key.hpp"

#include <gtest/gtest.h>

#include "graph/text.hpp"
#include "random_graph.hpp"

namespace syno::graph {
namespace {

using testing::elementwise;
using testing::RandomGraph;

/// The same graph under other names, its nodes in another order in which each finds what it reads, its
/// weights in another order.
Graph disguised(const Graph& graph, std::uint64_t seed) {
  Random random(seed);
  Graph made("other");
  std::vector<std::optional<TensorId>> places(graph.tensors().size());
  int number = 0;
  const auto name = [&] { return fmt::format("q{}", ++number * 7 % 1009); };
  for (const TensorId id : graph.with_role(Role::Input))
    places[static_cast<std::size_t>(id)] =
        made.add_input(name(), graph.tensor(id).shape, graph.tensor(id).type);
  auto weights = graph.with_role(Role::Weight);
  for (std::size_t i = weights.size(); i > 1; --i) std::swap(weights[i - 1], weights[random.below(i)]);
  for (const TensorId id : weights)
    places[static_cast<std::size_t>(id)] =
        made.add_weight(name(), graph.tensor(id).shape, graph.tensor(id).type);
  std::vector<bool> done(graph.nodes().size(), false);
  for (std::size_t left = graph.nodes().size(); left > 0; --left) {
    std::vector<std::size_t> ready;
    for (std::size_t n = 0; n < done.size(); ++n) {
      const auto& inputs = graph.nodes()[n].inputs;
      if (!done[n] && std::all_of(inputs.begin(), inputs.end(), [&](TensorId id) {
            return places[static_cast<std::size_t>(id)].has_value();
          }))
        ready.push_back(n);
    }
    const std::size_t n = ready[random.below(ready.size())];
    done[n] = true;
    const Node& node = graph.nodes()[n];
    std::vector<TensorId> inputs;
    for (const TensorId id : node.inputs) inputs.push_back(*places[static_cast<std::size_t>(id)]);
    std::vector<Tensor> results;
    std::vector<std::string> names;
    for (const TensorId id : node.outputs) {
      results.push_back(graph.tensor(id));
      results.back().name = name();
      names.push_back(results.back().name);
    }
    const std::size_t at =
        node.is_call() ? made.add_call(name(), node.function, " " + node.attributes + " ", inputs, results)
                       : made.add_program(name(), node.program, inputs, names, type_of(graph, node));
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      places[static_cast<std::size_t>(node.outputs[i])] = made.nodes()[at].outputs[i];
  }
  for (const TensorId id : graph.outputs) made.outputs.push_back(*places[static_cast<std::size_t>(id)]);
  return made;
}

TEST(GraphKey, NamesAndOrderAreNoPart) {
  std::set<std::string> keys;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const Graph graph = RandomGraph(seed)();
    const std::string key = structural_key(graph);
    ASSERT_EQ(key.size(), 32u);
    ASSERT_EQ(key.find_first_not_of("0123456789abcdef"), std::string::npos);
    ASSERT_EQ(structural_key(parse(to_text(graph))), key);
    const Graph other = disguised(graph, seed);
    ASSERT_EQ(structural_key(other), key) << seed;
    keys.insert(key);
  }
  EXPECT_GT(keys.size(), 145u);  // two graphs that return little but an input may be equal
}

const std::string kBase =
    "graph g\n"
    "input x: float32[2,2]\n"
    "input z: float32[2,2]\n"
    "weight w: float32[2,2]\n"
    "weight v: float32[2,2]\n"
    "program p0 {\n"
    "  input x[2, 2]\n"
    "  weight w[2, 2]\n"
    "  y[i: 2, j: 2] = x[i, j] - w[i, j]\n"
    "  return y\n"
    "}\n"
    "node a = p0(x, w) -> t: float32[2,2]\n"
    "node b = p0(z, v) -> u: float32[2,2]\n"
    "call c \"f\" {\"k\": 1} (t, u) -> r: float32[2,2], s: float32[2,2]\n"
    "return r, u\n";

std::string changed(const std::string& from, const std::string& to) {
  std::string text = kBase;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(GraphKey, EachKindOfChangeIsSeen) {
  const std::pair<const char*, const char*> changes[] = {
      {"\"k\": 1", "\"k\": 2"},                             // an attribute
      {"\"f\"", "\"g\""},                                   // a function
      {"- w[i, j]", "+ w[i, j]"},                           // a program
      {"  weight w[2, 2]", "  input w[2, 2]"},              // a role in a program
      {"weight w: float32[2,2]", "input w: float32[2,2]"},  // a role
      {"p0(z, v)", "p0(z, w)"},                             // a shared weight
      {"p0(z, v)", "p0(x, v)"},                             // wiring
      {"(t, u) -> r", "(u, t) -> r"},                       // order of inputs
      {"(t, u) -> r", "(t, u, x) -> r"},                    // count of inputs
      {"s: float32[2,2]", "s: float32[2,3]"},               // a shape
      {"s: float32[2,2]", "s: float16[2,2]"},               // a type
      {", s: float32[2,2]", ""},                            // count of outputs of a node
      {"return r, u", "return u, r"},                       // order of outputs
      {"return r, u", "return s, u"},                       // which output
      {"return r, u", "return r"},                          // count of outputs
      {"return r, u", "return r, u, u"},                    //
      {"return r, u", "return r, x"},                       // an input returned
      {"input z: float32[2,2]\n", "input z: float32[2,2]\ninput n: float32[2,2]\n"},  // one more input
  };
  std::set<std::string> keys = {structural_key(parse(kBase))};
  for (const auto& [from, to] : changes)
    EXPECT_TRUE(keys.insert(structural_key(parse(changed(from, to)))).second) << from << " -> " << to;
}

TEST(GraphKey, WhatDoesNotMatterIsNotSeen) {
  const std::string key = structural_key(parse(kBase));
  const std::pair<const char*, const char*> changes[] = {
      {"{\"k\": 1}", "{ \"k\":1 }"},
      {"  y[i: 2, j: 2] = x[i, j] - w[i, j]\n  return y", "  q[l: 2, m: 2] = x[l, m] - w[l, m]\n  return q"},
      {"weight v: float32[2,2]\n", "weight v: float32[2,2]\nweight n: float32[2,2]\n"},
      {"return r, u", "call d \"f\" {} (r) -> dead: float32[1]\nreturn r, u"},
  };
  for (const auto& [from, to] : changes) EXPECT_EQ(structural_key(parse(changed(from, to))), key) << to;
}

TEST(GraphKey, EqualNodesAreNotOneNode) {
  Graph one("g"), two("g");
  for (Graph* graph : {&one, &two}) {
    const TensorId x = graph->add_input("x", {2}, ElementType::F32);
    graph->add_program("a", elementwise({2}, "X * 2"), {x}, {"a"}, ElementType::F32);
    if (graph == &two) graph->add_program("b", elementwise({2}, "X * 2"), {x}, {"b"}, ElementType::F32);
    graph->outputs = {graph->nodes().front().outputs[0], graph->nodes().back().outputs[0]};
  }
  EXPECT_NE(structural_key(one), structural_key(two));
}

}  // namespace
}  // namespace syno::graph
