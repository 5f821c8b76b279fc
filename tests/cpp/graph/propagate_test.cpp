// To which tensors layouts spread, by each of the paper's rules, and what is elementwise, complex, a channel.
#include "graph/propagate.hpp"

#include <gtest/gtest.h>

#include "graph/layout.hpp"
#include "random_graph.hpp"
#include "support/error.hpp"

namespace syno::graph {
namespace {

using schedule::Layout;
using schedule::parse_layout;
using testing::elementwise;
using testing::equal;
using testing::outputs_of;
using testing::parsed;
using testing::random_values;

const char* const kProduct =
    "input x[2, 4, 6]; weight w[4, 4]\ny[n: 2, o: 4, i: 6] = sum[c: 4] x[n, c, i] * w[o, c]\nreturn y\n";
const char* const kHalf = "input x[2, 4, 6]\ny[n: 2, c: 4, i: 3] = max[k: 2] x[n, c, 2*i + k]\nreturn y\n";

/// x -> first -> a -> relu -> b -> second -> c -> half -> d -> last -> y; b + c -> sum, which `late` reads.
struct Network {
  Graph graph{"network"};
  TensorId x = graph.add_input("x", {2, 4, 6}, ElementType::F32);
  TensorId w = graph.add_weight("w", {4, 4}, ElementType::F32);
  TensorId a = add("first", parsed(kProduct), {x, w}, "a");
  TensorId b = add("relu", elementwise({2, 4, 6}, "max(X, 0)"), {a}, "b");
  TensorId c = add("second", parsed(kProduct), {b, w}, "c");
  TensorId d = add("half", parsed(kHalf), {c}, "d");
  TensorId y = add("last", elementwise({2, 4, 3}, "X + 1"), {d}, "y");
  TensorId sum = add("sum", elementwise({2, 4, 6}, "X + B", true), {b, c}, "sum");
  TensorId z = add("late", parsed(kHalf), {sum}, "z");
  Network() { graph.outputs = {y, z}; }

  TensorId add(const std::string& name, const Program& program, std::vector<TensorId> inputs,
               const std::string& output) {
    graph.add_program(name, program, std::move(inputs), {output}, ElementType::F32);
    return graph.nodes().back().outputs[0];
  }
  std::string spread(const std::map<TensorId, Layout>& from, const Propagation& rules = {}) const {
    const auto layouts = propagated(graph, from, rules);
    const auto given = random_values(graph, 1);
    EXPECT_TRUE(equal(outputs_of(graph, given), outputs_of(lay_out(graph, layouts), given)));
    std::string names;
    for (const auto& [tensor, layout] : layouts) {
      EXPECT_EQ(layout, from.begin()->second);
      names += graph.tensor(tensor).name + " ";
    }
    return names;
  }
};

const Layout kLast = parse_layout("reorder(0, 2, 1)");

TEST(Propagate, SpreadsAlongElementwiseNodes) {
  const Network n;
  EXPECT_EQ(n.spread({{n.a, kLast}}), "a b c sum ") << "up from the sum to its other operand";
  EXPECT_EQ(n.spread({{n.b, kLast}}), "a b c sum ");
  EXPECT_EQ(n.spread({{n.d, kLast}}), "d ") << "neither through a pooling nor to what the graph returns";
}

TEST(Propagate, DirectionsMayBeSwitchedOff) {
  const Network n;
  EXPECT_EQ(n.spread({{n.b, kLast}}, {.up = false}), "b sum ");
  EXPECT_EQ(n.spread({{n.b, kLast}}, {.down = false}), "a b ");
  EXPECT_EQ(n.spread({{n.b, kLast}}, {.up = false, .down = false}), "b ");
}

TEST(Propagate, ShapesMayDifferWhereThatIsAllowed) {
  const Network n;
  EXPECT_EQ(n.spread({{n.c, kLast}}), "a b c sum ");
  EXPECT_EQ(n.spread({{n.c, kLast}}, {.up = false, .equal_shapes = false}), "c d sum ");
  // 6 elements can be split so, 3 cannot.
  EXPECT_EQ(n.spread({{n.c, parse_layout("split(2, 3, 2)")}}, {.up = false, .equal_shapes = false}),
            "c sum ");
}

TEST(Propagate, AdvancedPrimitivesStayWhereTheyAre) {
  const Network n;
  const Layout padded = parse_layout("pad(2, 1, 1)");
  EXPECT_EQ(n.spread({{n.a, padded}}), "a ");
  EXPECT_EQ(n.spread({{n.a, padded}}, {.one_to_one = false}), "a b c sum ");
}

TEST(Propagate, ComplexNodesAreDecidedForThemselves) {
  const Network n;
  EXPECT_EQ(n.spread({{n.a, kLast}}, {.up = false}), "a b sum ");
  EXPECT_EQ(n.spread({{n.a, kLast}}, {.up = false, .independent = false}), "a b c sum ");
}

TEST(Propagate, WhatHasALayoutKeepsItAndTheFirstOperandGoesFirst) {
  const Network n;
  const Layout turned = parse_layout("reorder(2, 1, 0)");
  const auto layouts = propagated(n.graph, {{n.b, kLast}, {n.c, turned}});
  EXPECT_EQ(layouts.at(n.sum), kLast);
  EXPECT_EQ(layouts.at(n.c), turned);
}

TEST(Propagate, WhatCallsReadStaysRowMajor) {
  Network n;
  n.graph.add_call("call", "host.mix", "{}", {n.b, n.b}, {{"v", {2, 4, 6}, ElementType::F32, {}}});
  n.graph.outputs.push_back(n.graph.nodes().back().outputs[0]);
  EXPECT_EQ(n.spread({{n.a, kLast}}), "a ");
}

TEST(Propagate, WithinAProgramTensorsFollowTheirOwner) {
  const Program program = parsed(
      "input x[2, 4, 6]; input r[2, 4, 6]; weight w[4, 4]\n"
      "p[n: 2, c: 4, i: 6] = max(x[n, c, i], 0)\n"
      "t[n: 2, o: 4, i: 6] = sum[c: 4] p[n, c, i] * w[o, c]\n"
      "y[n: 2, o: 4, i: 6] = t[n, o, i] + r[n, o, i]\nreturn y\n");
  const auto owners = owners_of(program);
  const auto id = [&](const char* name) { return *program.find_tensor(name); };
  ASSERT_EQ(owners.size(), 2u);
  EXPECT_EQ(owners.at(id("p")), id("x"));
  EXPECT_EQ(owners.at(id("t")), id("y"));
  std::string found;
  for (const Channel& channel : channels_of(program))
    found += fmt::format("{}{} ", program.tensor(channel.tensor).name, channel.dim);
  EXPECT_EQ(found, "x1 w1 y1 ");

  Graph graph("small");
  const TensorId x = graph.add_input("x", {2, 4, 6}, ElementType::F32),
                 r = graph.add_input("r", {2, 4, 6}, ElementType::F32),
                 w = graph.add_weight("w", {4, 4}, ElementType::F32);
  graph.add_program("node", program, {x, r, w}, {"y"}, ElementType::F32);
  const TensorId y = graph.nodes()[0].outputs[0];
  graph.add_program("more", elementwise({2, 4, 6}, "X"), {y}, {"z"}, ElementType::F32);
  graph.outputs = {graph.nodes()[1].outputs[0]};
  const auto given = random_values(graph, 2);
  const auto shapes = [&](bool inner) {
    const Graph made = lay_out(graph, {{y, parse_layout("split(1, 2, 2) reorder(0, 1, 3, 2)")}}, inner);
    EXPECT_TRUE(equal(outputs_of(graph, given), outputs_of(made, given)));
    const Program& now = made.nodes()[0].program->program;
    return fmt::format("{} {}", fmt::join(program::shape_of(now, *now.find_tensor("t")), ","),
                       fmt::join(program::shape_of(now, *now.find_tensor("p")), ","));
  };
  EXPECT_EQ(shapes(true), "2,2,6,2 2,4,6");
  EXPECT_EQ(shapes(false), "2,4,6 2,4,6");
}

TEST(Propagate, WhatIsElementwiseAndComplexIsSeen) {
  EXPECT_TRUE(is_elementwise(elementwise({2, 3}, "X + B * 2", true)));
  EXPECT_TRUE(is_elementwise(parsed("input x[2, 3]; weight b[3]\ny[i: 2, j: 3] = x[i, j] + b[j]\n")));
  EXPECT_TRUE(is_elementwise(parsed("input x[2]\nt[i: 2] = x[i] * 2\ny[i: 2] = t[i] + x[i]\n")));
  EXPECT_FALSE(is_elementwise(parsed("input x[3, 3]\ny[i: 3, j: 3] = x[j, i]\n")));
  EXPECT_FALSE(is_elementwise(parsed("input x[3, 3]\ny[i: 3, j: 3] = x[i, j - 1]\n")));
  EXPECT_FALSE(is_elementwise(parsed("input x[3, 3]\ny[i: 3] = sum[j: 3] x[i, j]\n")));
  EXPECT_TRUE(is_complex(parsed(kProduct)));
  EXPECT_FALSE(is_complex(parsed(kHalf)));
  EXPECT_FALSE(is_complex(elementwise({2, 3}, "X * B", true)));
}

}  // namespace
}  // namespace syno::graph
