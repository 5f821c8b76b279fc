#include "graph/text.hpp"

#include <gtest/gtest.h>

#include "random_graph.hpp"

namespace syno::graph {
namespace {

using testing::elementwise;
using testing::equal;
using testing::outputs_of;
using testing::random_values;
using testing::RandomGraph;

TEST(GraphText, RandomGraphsAreReadBack) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Graph graph = RandomGraph(seed)();
    const std::string text = to_text(graph);
    const Graph again = parse(text);
    ASSERT_EQ(to_text(again), text) << seed;
    ASSERT_EQ(again.name, graph.name);
    ASSERT_EQ(again.nodes().size(), graph.nodes().size());
    ASSERT_EQ(again.programs().size(), graph.programs().size());
    const auto given = random_values(graph, seed);
    ASSERT_TRUE(equal(outputs_of(graph, given), outputs_of(again, given))) << seed;
  }
}

const std::string kSmall =
    "graph small\n"                                                              // 1
    "input x: float32[2,3]\n"                                                    // 2
    "weight w.a: float32[3]\n"                                                   // 3
    "program p0 {\n"                                                             // 4
    "  input x[2, 3]\n"                                                          // 5
    "  weight w[3]\n"                                                            // 6
    "  y[i: 2, j: 3] = x[i, j] * w[j]\n"                                         // 7
    "  return y\n"                                                               // 8
    "}\n"                                                                        // 9
    "node a = p0(x, w.a) -> t: float32[2,3]\n"                                   // 10
    "call b \"f\" {\"k\": [1, \"}\"]} (t, t) -> v: int64[5], \"a b\": bool[]\n"  // 11
    "return v, t, v\n";                                                          // 12

TEST(GraphText, TheFormOfTheHeaderIsRead) {
  const Graph graph = parse(kSmall);
  ASSERT_EQ(graph.nodes().size(), 2u);
  EXPECT_EQ(graph.nodes()[1].attributes, R"({"k": [1, "}"]})");
  EXPECT_EQ(graph.tensor(graph.nodes()[1].outputs[1]).name, "a b");
  EXPECT_TRUE(graph.tensor(graph.nodes()[1].outputs[1]).shape.empty());
  EXPECT_EQ(graph.outputs.size(), 3u);
  EXPECT_EQ(to_text(parse(to_text(graph))), to_text(graph));
}

TEST(GraphText, EmptyGraphsAndEmptyTensorsAreReadBack) {
  Graph graph("");
  EXPECT_EQ(to_text(parse(to_text(graph))), to_text(graph));
  graph.add_input("x", {0, 3}, ElementType::U8);
  graph.add_call("f", "copy", "{}", {TensorId{0}}, {{"y", {0, 3}, ElementType::U8, {}}});
  graph.outputs = {TensorId{1}};
  EXPECT_EQ(to_text(parse(to_text(graph))), to_text(graph));
}

struct Damage {
  std::string from, to, says;
};

TEST(GraphText, DamagedTextsAreRefusedWithTheLine) {
  const Damage table[] = {
      {"graph small", "grph small", "line 1"},
      {"graph small", "graph \"small", "line 1"},
      {"graph small", "graph small x", "line 1"},
      {"float32[2,3]\nweight", "float33[2,3]\nweight", "line 2"},
      {"float32[2,3]\nweight", "float32[2,-3]\nweight", "line 2"},
      {"float32[2,3]\nweight", "float32[2,]\nweight", "line 2"},
      {"float32[2,3]\nweight", "float32[99999999999999999999]\nweight", "line 2"},
      {"float32[2,3]\nweight", "float32[4611686018427387904,4]\nweight", "line 2"},
      {"float32[2,3]\nweight", "float32[2,3]]\nweight", "line 2"},
      {"weight w.a", "weight x", "line 3"},
      {"weight w.a", "weights w.a", "line 3"},
      {"weight w.a", "weight \"\"", "line 3"},
      {"weight w.a", "weight \"\\q\"", "line 3"},
      {"program p0 {", "program p0", "line 4"},
      {"program p0 {", "program {", "line 4"},
      {"  weight w[3]", " weight w[3]", "line 6"},
      {"  weight w[3]", "  weight w[", "program p0 of line 4"},
      {"x[i, j] * w[j]", "x[i] * w[j]", "program p0 of line 4"},
      {"}\nnode", "}}\nnode", "line 9"},
      {"node a = p0", "node a = p1", "line 10"},
      {"node a = p0", "node a p0", "line 10"},
      {"node a = p0", "node = p0", "line 10"},
      {"(x, w.a)", "(x)", "line 10"},
      {"(x, w.a)", "(x, w.a, x)", "line 10"},
      {"(x, w.a)", "(w.a, x)", "line 10"},
      {"(x, w.a)", "(t, w.a)", "line 10"},
      {"(x, w.a)", "(v, w.a)", "line 10"},
      {"(x, w.a)", "(x, w.a", "line 10"},
      {"-> t: float32[2,3]", "-> t: float32[3,2]", "line 10"},
      {"-> t: float32[2,3]", "-> t: float64[2,3]", "line 10"},
      {"-> t: float32[2,3]", "-> t: int64[2,3]", "line 10"},
      {"-> t: float32[2,3]", "-> t: float32[2,3], u: float32[2,3]", "line 10"},
      {"-> t: float32[2,3]", "-> x: float32[2,3]", "line 10"},
      {"-> t: float32[2,3]", "-> ", "line 10"},
      {"call b \"f\"", "call a \"f\"", "line 11"},
      {"call b \"f\"", "call b f", "line 11"},
      {"call b \"f\"", "call b \"\"", "line 11"},
      {"{\"k\": [1, \"}\"]}", "{\"k\": [1, \"}\"]", "line 11"},
      {"{\"k\": [1, \"}\"]}", "{\"k\" 1}", "line 11"},
      {"{\"k\": [1, \"}\"]}", "[1]", "line 11"},
      {"v: int64[5], \"a b\"", "v: int64[5], v", "line 11"},
      {"return v, t, v", "return u", "line 12"},
      {"return v, t, v", "return v,", "line 12"},
      {"return v, t, v\n", "", "line 11"},
      {"return v, t, v\n", "return v\nreturn v\n", "line 13"},
      {"node a", "nodes a", "line 10"},
  };
  for (const Damage& row : table) {
    std::string text = kSmall;
    const std::size_t at = text.find(row.from);
    ASSERT_NE(at, std::string::npos) << row.from;
    text.replace(at, row.from.size(), row.to);
    try {
      parse(text);
      ADD_FAILURE() << "read: " << row.to;
    } catch (const Error& error) {
      const bool typed = dynamic_cast<const ParseError*>(&error) || dynamic_cast<const VerifyError*>(&error);
      EXPECT_TRUE(typed) << row.to << ": " << error.what();
      EXPECT_NE(std::string(error.what()).find(row.says), std::string::npos)
          << row.to << ": " << error.what();
    }
  }
  EXPECT_NO_THROW(parse(kSmall));
  EXPECT_THROW(parse(""), ParseError);
  EXPECT_THROW(parse("\n\n"), ParseError);
}

TEST(GraphText, AProgramNobodyComputesIsRefused) {
  std::string text = kSmall;
  text.insert(text.find("program p0"), "program p1 {\n  input x[2]\n  y[i: 2] = x[i]\n  return y\n}\n");
  EXPECT_THROW(parse(text), ParseError);
}

TEST(GraphText, CutAndFlippedTextsAreReadOrRefused) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const std::string text = to_text(RandomGraph(seed)(5));
    Random random(seed);
    for (int i = 0; i < 60; ++i) {
      std::string damaged = text.substr(0, i % 2 == 0 ? random.below(text.size()) : text.size());
      if (i % 2 == 1) damaged[random.below(damaged.size())] = static_cast<char>(random.below(256));
      try {
        const Graph graph = parse(damaged);
        EXPECT_EQ(to_text(parse(to_text(graph))), to_text(graph));
      } catch (const Error&) {
      }
    }
  }
}

TEST(GraphText, DotNamesEveryNodeOnce) {
  const std::string dot = to_dot(RandomGraph(3)());
  for (int n = 0; n < 12; ++n) EXPECT_NE(dot.find(fmt::format("  n{} [label=", n)), std::string::npos);
  EXPECT_EQ(dot.substr(dot.size() - 2), "}\n");
}

// verify and the builders -----------------------------------------------------------------------------------

struct Built {
  Graph graph;
  TensorId x = graph.add_input("x", {2}, ElementType::F32);
  TensorId y = graph.add_input("y", {2}, ElementType::F64);
  TensorId i = graph.add_input("i", {2}, ElementType::I64);
  Program plus = elementwise({2}, "X + B", true);
};

TEST(GraphVerify, RandomGraphsAreWellFormed) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) EXPECT_NO_THROW(verify(RandomGraph(seed)()));
}

TEST(GraphVerify, BuildersRefuseAndAddNothing) {
  Built b;
  const std::string before = to_text(b.graph);
  const auto refuses = [&](auto&& build) {
    EXPECT_THROW(build(), VerifyError);
    EXPECT_EQ(to_text(b.graph), before);
    EXPECT_EQ(b.graph.nodes().size(), 0u);
    EXPECT_EQ(b.graph.programs().size(), 0u);
  };
  using F = ElementType;
  refuses([&] { b.graph.add_input("x", {2}, F::F32); });
  refuses([&] { b.graph.add_input("", {2}, F::F32); });
  refuses([&] { b.graph.add_input("\xff", {2}, F::F32); });
  refuses([&] { b.graph.add_weight("w", {-1}, F::F32); });
  refuses([&] { b.graph.add_weight("w", {std::int64_t{1} << 62, 2}, F::F32); });
  refuses([&] { b.graph.add_weight("w", Shape(65, 1), F::F32); });
  refuses([&] { b.graph.add_program("n", b.plus, {b.x}, {"t"}, F::F32); });
  refuses([&] { b.graph.add_program("n", b.plus, {b.x, b.y}, {"t"}, F::F32); });
  refuses([&] { b.graph.add_program("n", b.plus, {b.x, b.x}, {"t"}, F::F64); });
  refuses([&] { b.graph.add_program("n", b.plus, {b.i, b.i}, {"t"}, F::I64); });
  refuses([&] { b.graph.add_program("n", b.plus, {b.x, b.x}, {"t", "u"}, F::F32); });
  refuses([&] { b.graph.add_program("n", b.plus, {b.x, b.x}, {"x"}, F::F32); });
  refuses([&] { b.graph.add_program("", b.plus, {b.x, b.x}, {"t"}, F::F32); });
  refuses([&] { b.graph.add_program("n", b.plus, {b.x, TensorId{9}}, {"t"}, F::F32); });
  refuses([&] { b.graph.add_program("n", elementwise({3}, "X"), {b.x}, {"t"}, F::F32); });
  refuses([&] { b.graph.add_call("n", "f", "{}", {b.x}, {}); });
  refuses([&] { b.graph.add_call("n", "", "{}", {b.x}, {{"t", {1}, F::F32, {}}}); });
  refuses([&] { b.graph.add_call("n", "f", "{}", {TensorId{7}}, {{"t", {1}, F::F32, {}}}); });
  refuses([&] { b.graph.add_call("n", "f", "{}", {b.x}, {{"t", {1}, F::F32, {}}, {"t", {1}, F::F32, {}}}); });
  EXPECT_THROW(b.graph.add_call("n", "f", "3", {b.x}, {{"t", {1}, F::F32, {}}}), FormatError);
  EXPECT_EQ(to_text(b.graph), before);
}

TEST(GraphVerify, OutputsMustBeTensors) {
  Built b;
  b.graph.outputs = {b.i, b.i};
  EXPECT_NO_THROW(verify(b.graph));
  b.graph.outputs = {TensorId{3}};
  EXPECT_THROW(verify(b.graph), VerifyError);
}

TEST(GraphVerify, EqualProgramsAreShared) {
  Built b;
  b.graph.add_program("n", b.plus, {b.x, b.x}, {"t"}, ElementType::F32);
  b.graph.add_program("m", b.plus, {b.x, b.x}, {"u"}, ElementType::F32);
  EXPECT_EQ(b.graph.programs().size(), 1u);
  EXPECT_EQ(b.graph.nodes()[0].program, b.graph.nodes()[1].program);
}

TEST(GraphVerify, UnknownNamesListTheNearest) {
  Built b;
  EXPECT_THROW(b.graph.tensor_named("z"), UnknownName);
  EXPECT_THROW(b.graph.node_named("z"), UnknownName);
  EXPECT_THROW(element_type_named("float"), UnknownName);
}

}  // namespace
}  // namespace syno::graph
