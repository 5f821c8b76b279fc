// Networks whose tensors lie otherwise compute the same, say how they lie, and come back.
#include "graph/layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "../schedule/random_layout.hpp"
#include "graph/merge.hpp"
#include "graph/rewrites.hpp"
#include "graph/text.hpp"
#include "graph/views.hpp"
#include "random_graph.hpp"
#include "support/error.hpp"

namespace syno::graph {
namespace {

using schedule::parse_layout;
using schedule::testing::random_layout;
using testing::elementwise;
using testing::equal;
using testing::outputs_of;
using testing::parsed;
using testing::random_values;
using testing::RandomGraph;

/// Layouts of some of the tensors that can have one.
std::map<TensorId, Layout> random_layouts(const Graph& graph, Random& random, bool advanced) {
  std::map<TensorId, Layout> layouts;
  for (std::uint32_t t = 0; t < graph.tensors().size(); ++t) {
    const Tensor& tensor = graph.tensors()[t];
    if (!computes(tensor.type) || tensor.shape.empty() || element_count(tensor) == 0 || random.below(2) == 0)
      continue;
    layouts.emplace(TensorId{t}, random_layout(random, tensor.shape, advanced, 3));
  }
  return layouts;
}

std::vector<std::string> output_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const TensorId output : graph.outputs) names.push_back(graph.tensor(output).name);
  return names;
}

TEST(GraphLayout, RandomGraphsComputeTheSameAndComeBack) {
  std::size_t laid = 0, merged_nodes = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const Graph graph = RandomGraph(seed)();
    Random random(seed);
    const auto layouts = random_layouts(graph, random, seed % 2 == 0);
    const auto given = random_values(graph, seed);
    const auto wanted = outputs_of(graph, given);
    const Graph made = lay_out(graph, layouts);
    verify(made);
    ASSERT_EQ(output_names(made), output_names(graph)) << seed;
    ASSERT_TRUE(equal(wanted, outputs_of(made, given))) << seed << '\n' << to_text(made);
    const std::string text = to_text(made);
    ASSERT_EQ(to_text(parse(text)), text) << seed;

    std::vector<TensorId> lie_so;
    for (std::uint32_t t = 0; t < made.tensors().size(); ++t)
      if (!made.tensors()[t].layout.empty()) lie_so.push_back(TensorId{t});
    laid += lie_so.size();
    const Graph again = row_major(made, lie_so);
    verify(again);
    for (const Tensor& tensor : again.tensors()) ASSERT_TRUE(tensor.layout.empty());
    ASSERT_TRUE(equal(wanted, outputs_of(again, given))) << seed;

    // What is joined or cleaned afterwards keeps the layouts of what stays.
    ASSERT_TRUE(equal(wanted, outputs_of(cleaned(made), given))) << seed;
    for (std::size_t n = 1; n < made.nodes().size(); ++n) {
      const auto joined = merged(made, {n - 1, n});
      const auto* both = std::get_if<Graph>(&joined);
      if (both == nullptr) continue;
      ++merged_nodes;
      verify(*both);
      for (const Tensor& tensor : both->tensors())
        ASSERT_EQ(tensor.layout, made.tensor(made.tensor_named(tensor.name)).layout) << tensor.name;
      ASSERT_TRUE(equal(wanted, outputs_of(*both, given))) << seed;
    }
  }
  EXPECT_GT(laid, 300u);
  EXPECT_GT(merged_nodes, 50u);
}

TEST(GraphLayout, RandomCopiesForSomeReaders) {
  std::size_t copied = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Graph graph = RandomGraph(seed)();
    Random random(seed);
    const auto given = random_values(graph, seed);
    const auto wanted = outputs_of(graph, given);
    const auto read_by = readers(graph);
    for (std::uint32_t t = 0; t < graph.tensors().size(); ++t) {
      std::vector<std::size_t> some;
      for (const std::size_t n : read_by[t])
        if (!graph.nodes()[n].is_call() && random.below(3) > 0) some.push_back(n);
      if (some.empty() || element_count(graph.tensors()[t]) == 0) continue;
      TensorId copy{};
      const Graph made = with_copy(graph, TensorId{t}, some, copy);
      verify(made);
      ASSERT_EQ(readers(made)[static_cast<std::size_t>(copy)].size(), some.size());
      const auto both = random_layouts(made, random, false);
      ASSERT_TRUE(equal(wanted, outputs_of(lay_out(made, both), given))) << seed;
      ++copied;
    }
  }
  EXPECT_GT(copied, 100u);
}

struct Chain {
  Graph graph{"chain"};
  TensorId x = graph.add_input("x", {2, 8, 4}, ElementType::F32);
  TensorId w = graph.add_weight("w", {4, 8}, ElementType::F32);
  TensorId add(const std::string& name, const std::string& program, std::vector<TensorId> inputs) {
    graph.add_program(name, parsed(program), std::move(inputs), {name + ".y"}, ElementType::F32);
    return graph.nodes().back().outputs[0];
  }
  TensorId product =
      add("product",
          "input x[2, 8, 4]; weight w[4, 8]\ny[n: 2, o: 4, i: 4] = sum[c: 8] x[n, c, i] * w[o, c]\n", {x, w});
  TensorId relu = add("relu", "input x[2, 4, 4]\ny[n: 2, o: 4, i: 4] = max(x[n, o, i], 0)\n", {product});
  TensorId last = add("last", "input x[2, 4, 4]\ny[n: 2, i: 4] = sum[c: 4] x[n, c, i]\n", {relu});
};

TEST(GraphLayout, TextsSayHowTensorsLie) {
  Chain c;
  c.graph.outputs = {c.last};
  const Graph made = lay_out(c.graph, {{c.relu, parse_layout("split(1, 2, 2) reorder(0, 1, 3, 2)")}});
  const std::string text = to_text(made);
  EXPECT_NE(text.find("node relu = p1(product.y) -> relu.y: float32[2,2,4,2] of [2,4,4] by split(1, 2, 2) "
                      "reorder(0, 1, 3, 2)\n"),
            std::string::npos)
      << text;
  EXPECT_NE(to_dot(made).find("by split(1, 2, 2)"), std::string::npos);
  EXPECT_EQ(made.nodes().size(), c.graph.nodes().size()) << "nothing is converted";
  const Graph twice = lay_out(made, {{made.tensor_named("relu.y"), parse_layout("fuse(2, 2)")}});
  const Tensor& tensor = twice.tensor(twice.tensor_named("relu.y"));
  EXPECT_EQ(schedule::to_text(tensor.layout), "split(1, 2, 2) reorder(0, 1, 3, 2) fuse(2, 2)");
  EXPECT_EQ(tensor.elements, (Shape{2, 4, 4}));
  EXPECT_EQ(tensor.shape, (Shape{2, 2, 8}));
  for (const char* wrong : {" of [2,4,5] by split(1, 2, 2) reorder(0, 1, 3, 2)", " of [2,4,4] by split(1, 4)",
                            " of [2,4,4] by fuse(7, 2)"}) {
    std::string other = text;
    const std::string was = " of [2,4,4] by split(1, 2, 2) reorder(0, 1, 3, 2)";
    other.replace(other.find(was), was.size(), wrong);
    EXPECT_THROW(parse(other), VerifyError) << wrong;
  }
  for (const char* wrong : {" of [2,4,4]", " of [2,4,4] by", " of [2,4,4] by split(1", " of by fuse(0, 2)"}) {
    std::string other = text;
    const std::string was = " of [2,4,4] by split(1, 2, 2) reorder(0, 1, 3, 2)";
    other.replace(other.find(was), was.size(), wrong);
    EXPECT_THROW(parse(other), ParseError) << wrong;
  }
}

TEST(GraphLayout, InputsAndOutputsStayRowMajor) {
  Chain c;
  c.graph.outputs = {c.relu, c.last};
  const Graph made =
      lay_out(c.graph, {{c.x, parse_layout("reorder(0, 2, 1)")}, {c.relu, parse_layout("reorder(2, 1, 0)")}});
  EXPECT_EQ(made.tensor(made.tensor_named("x")).shape, (Shape{2, 8, 4}));
  EXPECT_EQ(output_names(made), (std::vector<std::string>{"relu.y", "last.y"}));
  EXPECT_TRUE(made.tensor(made.outputs[0]).layout.empty());
  EXPECT_EQ(made.nodes().size(), c.graph.nodes().size() + 2);
  EXPECT_TRUE(made.find_node("convert.x") && made.find_node("convert.relu.y"));
}

TEST(GraphLayout, VerifyRefusesLayoutsWhereNoneMayBe) {
  Chain c;
  const auto reorder = parse_layout("reorder(0, 2, 1)");
  EXPECT_THROW(c.graph.set_layout(c.x, reorder, {2, 4, 8}), VerifyError);
  EXPECT_THROW(c.graph.set_layout(c.relu, reorder, {2, 4, 5}), VerifyError);
  EXPECT_THROW(c.graph.set_layout(c.relu, parse_layout("reorder(0, 1)"), {2, 4, 4}), VerifyError);
  c.graph.set_layout(c.relu, reorder, {2, 4, 4});
  c.graph.outputs = {c.last};
  verify(c.graph);
  c.graph.outputs = {c.relu};
  EXPECT_THROW(verify(c.graph), VerifyError);
  c.graph.outputs = {c.last};
  c.graph.add_call("call", "f", "{}", {c.relu}, {{"call.y", {1}, ElementType::F32, {}}});
  EXPECT_THROW(verify(c.graph), VerifyError);
}

TEST(GraphLayout, MistakesAreErrors) {
  Chain c;
  const TensorId counts = c.graph.add_input("counts", {4}, ElementType::I64);
  const TensorId none = c.graph.add_input("none", {0, 4}, ElementType::F32);
  EXPECT_THROW(lay_out(c.graph, {{c.relu, parse_layout("split(1, 3, 2)")}}), ScheduleError);
  EXPECT_THROW(lay_out(c.graph, {{counts, parse_layout("split(0, 2, 2)")}}), ScheduleError);
  EXPECT_THROW(lay_out(c.graph, {{none, parse_layout("reorder(1, 0)")}}), ShapeError);
  EXPECT_THROW(lay_out(c.graph, {{TensorId{99}, {}}}), ShapeError);
  EXPECT_THROW(row_major(c.graph, {c.relu}), ScheduleError);
  EXPECT_THROW(row_major(c.graph, {TensorId{99}}), ScheduleError);
  TensorId copy{};
  EXPECT_THROW(with_copy(c.graph, c.relu, {0}, copy), ScheduleError);
  EXPECT_THROW(with_copy(c.graph, c.relu, {99}, copy), ScheduleError);
  EXPECT_THROW(with_copy(c.graph, TensorId{99}, {0}, copy), ShapeError);
}

struct Biased {
  Graph graph{"biased"};
  TensorId x = graph.add_input("x", {2, 4, 3}, ElementType::F32);
  TensorId w = graph.add_weight("w", {5, 4, 3}, ElementType::F32);
  TensorId b = graph.add_weight("b", {5}, ElementType::F32);
  TensorId y{};
  Biased() {
    graph.add_program("biased",
                      parsed("input x[2, 4, 3]; weight w[5, 4, 3]; weight b[5]\n"
                             "t[n: 2, o: 5] = sum[c: 4, i: 3] x[n, c, i] * w[o, c, i]\n"
                             "y[n: 2, o: 5] = t[n, o] + b[o]\nreturn y\n"),
                      {x, w, b}, {"y"}, ElementType::F32);
    y = graph.nodes().back().outputs[0];
    graph.add_program("more", elementwise({2, 5}, "X + 1"), {y}, {"z"}, ElementType::F32);
    graph.add_program("late", parsed("input b[5]\ny[o: 5] = b[4 - o] * 2\n"), {b}, {"late.y"},
                      ElementType::F32);
    graph.outputs = {graph.nodes()[1].outputs[0], graph.nodes()[2].outputs[0]};
  }
};

TEST(GraphLayout, AConstantIsStoredInAnothersRows) {
  Biased c;
  const auto given = random_values(c.graph, 3);
  const auto wanted = outputs_of(c.graph, given);
  const Graph made = store_at(c.graph, c.b, c.w, 1);
  verify(made);
  EXPECT_EQ(made.tensor(made.tensor_named("w.stored")).shape, (Shape{5, 5, 3}));
  EXPECT_EQ(constant_nodes(made), (std::vector<std::string>{"late", "store.w"}));
  EXPECT_EQ(made.nodes()[made.node_named("biased")].inputs.size(), 2u) << "the bias is no input any more";
  EXPECT_TRUE(equal(wanted, outputs_of(made, given)));
  EXPECT_THROW(store_at(c.graph, c.b, c.w, 0), ShapeError);
  EXPECT_THROW(store_at(c.graph, c.b, c.w, 2), ShapeError);
  EXPECT_THROW(store_at(c.graph, c.w, c.w, 1), ShapeError);
  EXPECT_THROW(store_at(c.graph, TensorId{99}, c.w, 1), ShapeError);
  EXPECT_THROW(store_at(c.graph, c.b, c.x, 1), ScheduleError);
}

}  // namespace
}  // namespace syno::graph
