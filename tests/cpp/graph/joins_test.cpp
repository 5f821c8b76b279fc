#include "graph/joins.hpp"

#include <gtest/gtest.h>

#include "graph/beside.hpp"
#include "graph/text.hpp"
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

/// Layers of one input, x[batch, 3, 5] or x[batch, 3], and what follows them.
struct Branches {
  Graph graph{"branches"};

  TensorId node(const std::string& name, const Program& program, std::vector<TensorId> inputs,
                ElementType type = ElementType::F32) {
    graph.add_program(name, program, std::move(inputs), {name + "_y"}, type);
    return graph.nodes().back().outputs[0];
  }
  TensorId weight(const std::string& name, Shape shape, ElementType type = ElementType::F32) {
    return graph.add_weight(name, std::move(shape), type);
  }
  TensorId input(const std::string& name, Shape shape, ElementType type = ElementType::F32) {
    return graph.add_input(name, std::move(shape), type);
  }
  /// A convolution along the last dimension of x[batch, 3, 5] with a bias.
  TensorId conv(const std::string& name, TensorId x, std::int64_t length, std::int64_t taps = 3) {
    const std::int64_t batch = graph.tensor(x).shape[0];
    const TensorId w = weight(name + "_w", {length, 3, taps}), b = weight(name + "_b", {length});
    return node(
        name,
        parsed(fmt::format("input x[{0}, 3, 5]\nweight w[{1}, 3, {2}]\nweight b[{1}]\n"
                           "s[n: {0}, o: {1}, h: 5] = sum[c: 3, r: {2}] x[n, c, h + r - 1] * w[o, c, r]\n"
                           "y[n: {0}, o: {1}, h: 5] = s[n, o, h] + b[o]\n",
                           batch, length, taps)),
        {x, w, b});
  }
  /// A product of x[batch, 3].
  TensorId linear(const std::string& name, TensorId x, std::int64_t length) {
    const std::int64_t batch = graph.tensor(x).shape[0];
    return node(name,
                parsed(fmt::format("input x[{0}, 3]\nweight {2}[{1}, 3]\n"
                                   "y[n: {0}, o: {1}] = sum[k: 3] x[n, k] * {2}[o, k]\n",
                                   batch, length, name)),
                {x, weight(name + "_w", {length, 3})});
  }
  TensorId relu(const std::string& name, TensorId x) {
    return node(name, elementwise(graph.tensor(x).shape, "max(X, 0)"), {x});
  }
};

void expect_unchanged(const Graph& graph, const Graph& made) {
  verify(made);
  for (std::uint64_t seed = 0; seed < 2; ++seed) {
    const auto given = random_values(graph, seed);
    ASSERT_TRUE(equal(outputs_of(graph, given), outputs_of(made, given))) << to_text(graph) << to_text(made);
  }
}
std::string shown(const Tensor& tensor) { return described(tensor.shape, tensor.type); }

TEST(Joins, QueriesKeysAndValuesArePiledUp) {
  Branches made;
  const TensorId x = made.input("x", {4, 3});
  made.graph.outputs = {made.linear("q", x, 6), made.linear("k", x, 6), made.linear("v", x, 6)};
  ASSERT_EQ(find_joins(made.graph), (std::vector<GraphSite>{{"q", "v"}}));
  const Graph joined = join_layers(made.graph, {"q", "v"});
  expect_unchanged(made.graph, joined);
  EXPECT_EQ(shown(joined.tensor(joined.tensor_named("q_w_joined"))), "float32[3,6,3]");
  EXPECT_EQ(shown(joined.tensor(joined.tensor_named("q_y_joined"))), "float32[3,4,6]");
  EXPECT_EQ(joined.nodes().size(), 5u);
  EXPECT_EQ(constant_nodes(joined).size(), 1u);
  EXPECT_TRUE(find_joins(joined).empty());
}

TEST(Joins, ChannelsOfOneImageLieBehindOneAnother) {
  Branches made;
  const TensorId x = made.input("x", {1, 3, 5});
  made.graph.outputs = {made.relu("ra", made.conv("a", x, 2)), made.conv("c", x, 2, 2),
                        made.relu("rb", made.conv("b", x, 4))};
  ASSERT_EQ(find_joins(made.graph), (std::vector<GraphSite>{{"a", "b"}}));
  const Graph joined = join_layers(made.graph, {"a", "b"});
  expect_unchanged(made.graph, joined);
  EXPECT_EQ(shown(joined.tensor(joined.tensor_named("a_w_joined"))), "float32[6,3,3]");
  EXPECT_EQ(shown(joined.tensor(joined.tensor_named("a_b_joined"))), "float32[6]");
  // With what follows both of them; the parts are elements of its result.
  const std::size_t last = *joined.find_node("ra_joined");
  EXPECT_EQ(shown(joined.tensor(joined.nodes()[last].outputs[0])), "float32[1,6,5]");
  EXPECT_TRUE(only_reads(joined.nodes()[joined.node_named("ra")].program->program));
  EXPECT_EQ(joined.nodes()[joined.node_named("rb")].inputs[0], joined.nodes()[last].outputs[0]);
}

/// Keys and values of fewer heads than queries: the parts of several rows are no runs.
TEST(Joins, SeveralLengthsLieBehindOneAnotherInEachRow) {
  Branches made;
  const TensorId x = made.input("x", {4, 3});
  made.graph.outputs = {made.linear("q", x, 6), made.linear("k", x, 2), made.linear("v", x, 2)};
  // Those of one length are found first.
  ASSERT_EQ(find_joins(made.graph), (std::vector<GraphSite>{{"k", "v"}}));
  Branches two;
  const TensorId z = two.input("x", {4, 3});
  two.graph.outputs = {two.linear("q", z, 6), two.linear("k", z, 2)};
  const Graph joined = join_layers(two.graph, {"q", "k"});
  expect_unchanged(two.graph, joined);
  EXPECT_EQ(shown(joined.tensor(joined.tensor_named("q_y_joined"))), "float32[4,8]");
}

/// Each element of the result reads its own of x: twice as many would read twice as many.
TEST(Joins, DataAlongTheResultIsPiledUpOver) {
  Branches made;
  const TensorId x = made.input("x", {1, 6});
  const auto scaled = [&](const std::string& name) {
    return made.node(name, parsed("input x[1, 6]\nweight w[6]\ny[n: 1, o: 6] = x[n, o] * w[o]\n"),
                     {x, made.weight(name + "_w", {6})});
  };
  made.graph.outputs = {scaled("a"), scaled("b")};
  ASSERT_EQ(find_joins(made.graph).size(), 1u);
  const Graph joined = join_layers(made.graph, {"a", "b"});
  expect_unchanged(made.graph, joined);
  EXPECT_EQ(shown(joined.tensor(joined.tensor_named("a_y_joined"))), "float32[2,1,6]");
}

/// One number for each branch is no weight along its channels.
TEST(Joins, WhatFollowsWithAWeightOfItsOwnStaysBehind) {
  for (const bool along : {true, false}) {
    Branches made;
    const TensorId x = made.input("x", {1, 3, 5});
    const auto branch = [&](const std::string& name) {
      return made.node(
          name + "_scaled",
          parsed(fmt::format("input x[1, 2, 5]\nweight s[{}]\ny[n: 1, o: 2, h: 5] = x[n, o, h] * s[{}]\n",
                             along ? 2 : 1, along ? "o" : "0")),
          {made.conv(name, x, 2), made.weight(name + "_s", {along ? 2 : 1})});
    };
    made.graph.outputs = {branch("a"), branch("b")};
    const Graph joined = join_layers(made.graph, {"a", "b"});
    expect_unchanged(made.graph, joined);
    EXPECT_EQ(joined.find_node("a_scaled_joined").has_value(), along);
  }
}

/// What could go with several others goes with those that are found first; these stay together without it.
TEST(Joins, ALayerIsOfOneGroup) {
  Branches made;
  const TensorId x = made.input("x", {2, 3});
  const auto layer = [&](const std::string& name, std::int64_t o, std::int64_t p) {
    return made.node(name,
                     parsed(fmt::format("input x[2, 3]\nweight w[{0}, {1}, 3]\n"
                                        "y[n: 2, o: {0}, p: {1}] = sum[k: 3] x[n, k] * w[o, p, k]\n",
                                        o, p)),
                     {x, made.weight(name + "_w", {o, p, 3})});
  };
  made.graph.outputs = {layer("a", 2, 3), layer("b", 4, 3), layer("c", 2, 5), layer("d", 2, 7)};
  ASSERT_EQ(find_joins(made.graph), (std::vector<GraphSite>{{"a", "b"}, {"c", "d"}}));
  const Graph joined = join_layers(join_layers(made.graph, {"a", "b"}), {"c", "d"});
  expect_unchanged(made.graph, joined);
  EXPECT_EQ(shown(joined.tensor(joined.tensor_named("a_y_joined"))), "float32[2,6,3]");
  EXPECT_EQ(shown(joined.tensor(joined.tensor_named("c_y_joined"))), "float32[2,2,12]");
}

TEST(Joins, WhatIsNotAlikeIsLeft) {
  const auto sites = [](const std::function<std::vector<TensorId>(Branches&, TensorId)>& outputs,
                        Shape shape) {
    Branches made;
    const TensorId x = made.input("x", std::move(shape));
    made.graph.outputs = outputs(made, x);
    return find_joins(made.graph).size();
  };
  EXPECT_EQ(sites([](Branches& b, TensorId x) { return std::vector{b.linear("q", x, 6)}; }, {4, 3}), 0u);
  EXPECT_EQ(
      sites([](Branches& b, TensorId x) { return std::vector{b.conv("a", x, 2, 3), b.conv("b", x, 2, 2)}; },
            {1, 3, 5}),
      0u);
  // Of another input, or of data in the weight's place.
  EXPECT_EQ(
      sites([](Branches& b,
               TensorId x) { return std::vector{b.linear("q", x, 6), b.linear("k", b.relu("r", x), 6)}; },
            {4, 3}),
      0u);
  const auto product = [](Branches& b, const std::string& name, TensorId x, TensorId w) {
    return b.node(name, parsed("input x[4, 3]\ninput w[6, 3]\ny[n: 4, o: 6] = sum[k: 3] x[n, k] * w[o, k]\n"),
                  {x, w});
  };
  EXPECT_EQ(sites(
                [&](Branches& b, TensorId x) {
                  return std::vector{product(b, "q", x, b.input("z", {6, 3})),
                                     product(b, "k", x, b.weight("w", {6, 3}))};
                },
                {4, 3}),
            0u);
  // With the same weight they are common nodes.
  EXPECT_EQ(sites(
                [&](Branches& b, TensorId x) {
                  const TensorId w = b.weight("w", {6, 3});
                  return std::vector{product(b, "q", x, w), product(b, "k", x, w)};
                },
                {4, 3}),
            0u);
  // A mean over what would be joined: several lengths are not side by side.
  const auto centred = [](Branches& b, const std::string& name, TensorId x, std::int64_t length) {
    return b.node(
        name,
        parsed(fmt::format("input x[4, 3]\nweight w[{0}, 3]\ns[n: 4, o: {0}] = sum[k: 3] x[n, k] * w[o, k]\n"
                           "m[n: 4] = mean[o: {0}] s[n, o]\ny[n: 4, o: {0}] = s[n, o] - m[n]\n",
                           length)),
        {x, b.weight(name + "_w", {length, 3})});
  };
  EXPECT_EQ(sites([&](Branches& b,
                      TensorId x) { return std::vector{centred(b, "q", x, 6), centred(b, "k", x, 2)}; },
                  {4, 3}),
            0u);
  EXPECT_EQ(sites([&](Branches& b,
                      TensorId x) { return std::vector{centred(b, "q", x, 6), centred(b, "k", x, 6)}; },
                  {4, 3}),
            1u);
}

TEST(Joins, ASiteThatIsNotThereHasASentence) {
  Branches made;
  const TensorId x = made.input("x", {4, 3});
  made.graph.outputs = {made.linear("q", x, 6), made.linear("k", x, 6), made.linear("v", x, 6)};
  EXPECT_THROW(join_layers(made.graph, {"q", "k"}), ScheduleError);
  EXPECT_THROW(join_layers(made.graph, {"nothing", "v"}), ScheduleError);
}

TEST(Joins, ALaneIsADimensionThatOnlySaysWhich) {
  const auto lane = [](const std::string& text, std::size_t dim) {
    const Program program = parsed(text);
    return lane_of(program, program.outputs[0], dim);
  };
  const std::string in = "input x[4, 6]\nweight w[6]\n";
  ASSERT_TRUE(lane(in + "y[i: 4, j: 6] = x[i, j] * w[j]\n", 1));
  EXPECT_TRUE(lane(in + "y[i: 4, j: 6] = x[i, j] * w[j]\n", 0));
  for (const char* text :
       {"y[i: 4, j: 6] = x[i, j] * w[5 - j]\n", "y[i: 4, j: 6] = x[i, j] + index(j)\n",
        "y[i: 4, j: 6] = x[i, j] * x[i, 0]\n",
        "s[i: 4, j: 6] = x[i, j]\nm[i: 4] = sum[k: 6] s[i, k]\ny[i: 4, j: 6] = s[i, j] * m[i]\n",
        "y[i: 4, j: 5] = x[i, j]\n", "y[i: 4, j: 8] = x[i, j] fill 1\n", "y[i: 4, j: 6] = x[i, j / 2]\n",
        "y[4, 6] : [i: 4, j: 6][i, j] += x[i, j]\n", "y[i: 6, j: 6] = x[0, i] * x[0, j]\n"})
    EXPECT_FALSE(lane(in + text, 1)) << text;
}

/// Random branches: layers of several kinds and lengths, alike or not, with what follows them.
Graph random_branches(std::uint64_t seed) {
  Random random(seed);
  const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(random.below(n)); };
  Branches made;
  const ElementType type = below(4) == 0 ? ElementType::F64 : ElementType::F32;
  const std::int64_t batch = 1 + below(2), kind = below(4), layers = 2 + below(3);
  const bool one_length = below(2) == 0;
  const Shape shape = kind == 0 ? Shape{batch, 4} : Shape{batch, 4, 5};
  const TensorId x = made.input("x", shape, type), shared = made.weight("shared", {4}, type);
  struct Follower {
    std::int64_t form;
  };
  std::vector<Follower> followers(static_cast<std::size_t>(below(3)));
  for (Follower& each : followers) each.form = below(5);
  std::vector<TensorId> results;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const std::int64_t length = one_length ? 4 : 2 * (1 + below(3));
    const std::string name = fmt::format("l{}", layer);
    const auto weight = [&](Shape of) {
      const TensorId w = made.weight(fmt::format("w{}", made.graph.tensors().size()), of, type);
      if (below(4) > 0) return w;
      return made.node(fmt::format("halved{}", made.graph.nodes().size()), elementwise(of, "X * 1/2"), {w},
                       type);
    };
    const std::string o = fmt::format("o: {}", length),
                      x_in = fmt::format("input x[{}]\n", fmt::join(shape, ", "));
    TensorId y{};
    switch (kind) {
      case 0:
        y = made.node(
            name,
            parsed(fmt::format(
                "{}weight w[{}, 4]\ninput s[4]\ny[n: {}, {}] = sum[k: 4] x[n, k] * w[o, k] * s[k]\n", x_in,
                length, batch, o)),
            {x, weight({length, 4}), shared}, type);
        break;
      case 1:
        y = made.node(
            name,
            parsed(fmt::format("{}weight w[{}, 4, 3]\nweight b[{}]\ns[n: {}, {}, h: 5] = sum[c: 4, r: 3] "
                               "x[n, c, h + r - 1] * w[o, c, r]\ny[n: {}, {}, h: 5] = s[n, o, h] + b[o]\n",
                               x_in, length, length, batch, o, batch, o)),
            {x, weight({length, 4, 3}), weight({length})}, type);
        break;
      case 2:  // two groups: channels of the input that the index of an output says
        y = made.node(
            name,
            parsed(fmt::format("{}weight w[{}, 2]\ny[n: {}, {}, h: 5] = sum[c: 2] x[n, o / {} * 2 + c, h] * "
                               "w[o, c]\n",
                               x_in, length, batch, o, length / 2)),
            {x, weight({length, 2})}, type);
        break;
      default:  // added to what is there
        y = made.node(
            name,
            parsed(fmt::format(
                "{}weight w[4, {}]\ny[{}, {}, 5] : [n: {}, {}, h: 5, c: 4][n, o, h] += x[n, c, h] * "
                "w[c, o]\n",
                x_in, length, batch, length, batch, o)),
            {x, weight({4, length})}, type);
    }
    if (below(6) == 0) results.push_back(y);
    for (std::size_t f = 0; f < followers.size(); ++f) {
      const Shape now = made.graph.tensor(y).shape;
      const std::string after = fmt::format("{}_{}", name, f);
      const std::int64_t form = below(12) == 0 ? below(5) : followers[f].form;
      if (form == 0) y = made.node(after, elementwise(now, "max(X, 0)"), {y}, type);
      if (form == 1) y = made.node(after, elementwise(now, "X * B + B", true), {y, weight(now)}, type);
      if (form == 2) {
        std::vector<std::size_t> order(now.size());
        for (std::size_t d = 0; d < order.size(); ++d) order[d] = (d + 1) % order.size();
        y = made.node(after, permuted(now, order), {y}, type);
      }
      if (form == 3)
        y = made.node(after, testing::reshape(now, {element_count(made.graph.tensor(y))}), {y}, type);
      if (form == 4)
        y = made.node(after,
                      parsed(fmt::format("input x[{}]\ny[{}] = max[k: {}] x[{}, k]\n", fmt::join(now, ", "),
                                         testing::ranges(Shape(now.begin(), now.end() - 1)), now.back(),
                                         testing::iterators(now.size() - 1))),
                      {y}, type);
      if (made.graph.tensor(y).shape.size() < 2) break;
    }
    results.push_back(y);
  }
  made.graph.outputs = results;
  return std::move(made.graph);
}

TEST(Joins, RandomBranchesComputeTheSame) {
  int piled = 0, behind = 0, with_followers = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const Graph graph = random_branches(seed);
    Graph made = graph;
    for (auto sites = find_joins(made); !sites.empty(); sites = find_joins(made)) {
      const Shape before = made.tensor(made.nodes()[made.node_named(sites[0].node)].outputs[0]).shape;
      const Graph next = join_layers(made, sites[0]);
      for (const Node& node : next.nodes())
        if (node.name == sites[0].node + "_joined") {
          (next.tensor(node.outputs[0]).shape.size() > before.size() ? piled : behind) += 1;
        } else if (node.name.find('_') != std::string::npos && node.name.ends_with("_joined")) {
          with_followers += node.name[0] == 'l';
        }
      made = next;
    }
    expect_unchanged(graph, made);
    for (const TensorId output : graph.outputs)
      EXPECT_TRUE(made.find_tensor(graph.tensor(output).name)) << seed;
  }
  EXPECT_GT(piled, 60);
  EXPECT_GT(behind, 40);
  EXPECT_GT(with_followers, 40);
}

}  // namespace
}  // namespace syno::graph
