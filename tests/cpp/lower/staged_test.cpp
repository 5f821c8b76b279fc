// Staging keeps the meaning and lowers the work.
#include <gtest/gtest.h>

#include "lower/lower.hpp"
#include "pgraph/named.hpp"
#include "program/text.hpp"
#include "program/verify.hpp"
#include "random_graph.hpp"

namespace syno {
namespace {

using pgraph::Primitive;
using pgraph::Step;
using symbolic::Size;

pgraph::CoordinateId id(std::uint32_t number) { return static_cast<pgraph::CoordinateId>(number); }

/// Points of all iteration spaces, by walking the loops.
std::int64_t loop_points(const program::Program& program) {
  std::int64_t total = 0;
  for (const program::Scope& scope : program.scopes) {
    std::vector<std::int64_t> extents;
    for (const auto* iterators : {&scope.traversal, &scope.sums}) {
      for (const auto& iterator : *iterators) {
        const auto extent = program::extent_of(program, iterator.range, 0);
        extents.push_back(extent.end - extent.begin);
      }
    }
    std::vector<std::int64_t> at(extents.size());
    for (bool more = true; more;) {
      ++total;
      std::size_t d = extents.size();
      while (d > 0 && ++at[d - 1] == extents[d - 1]) at[--d] = 0;
      more = d > 0;
    }
  }
  return total;
}

TEST(Staged, EqualsOneScopeOnRandomGraphs) {
  int staged_differently = 0, with_weights = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    Random random(seed);
    const pgraph::CompleteGraph graph = test::random_graph(random, 9);
    const program::Program one = lower::one_scope(graph), staged = lower::staged(graph);
    ASSERT_NO_THROW(program::verify(one)) << seed << "\n" << pgraph::to_text(graph) << program::to_text(one);
    ASSERT_NO_THROW(program::verify(staged)) << seed << "\n"
                                             << pgraph::to_text(graph) << program::to_text(staged);
    EXPECT_LE(program::cost(staged, 0).flops, program::cost(one, 0).flops)
        << seed << "\n"
        << pgraph::to_text(graph) << program::to_text(one) << program::to_text(staged);
    EXPECT_EQ(program::cost(staged, 0).params, program::cost(one, 0).params);
    staged_differently += staged.scopes.size() > 1;
    with_weights += one.inputs().size() > 1;
    const auto inputs = test::random_inputs(one, random);
    const auto expected = program::interpret(one, inputs), actual = program::interpret(staged, inputs);
    ASSERT_EQ(expected.at("y").data, actual.at("y").data)
        << seed << "\n"
        << pgraph::to_text(graph) << program::to_text(one) << program::to_text(staged);
    // The greedy order must be as sound as the exhaustive one.
    const program::Program greedy = lower::staged(graph, {.max_stages = 0});
    ASSERT_EQ(expected.at("y").data, program::interpret(greedy, inputs).at("y").data)
        << seed << "\n"
        << pgraph::to_text(graph) << program::to_text(greedy);
    EXPECT_LE(program::cost(staged, 0).flops, program::cost(greedy, 0).flops) << seed;
  }
  EXPECT_GT(staged_differently, 100) << "hardly any random graph has something to stage";
  EXPECT_GT(with_weights, 300);
}

TEST(Staged, FigureFiveTakesExactlyOnePlusKOverSTimesH) {
  for (const auto& [h, s, k] : {std::tuple{24, 2, 3}, {56, 4, 7}, {30, 5, 3}}) {
    // Y[i] = sum over k and s of X[(H/s)*s_ + (i + k_ - k/2)]; the window clips within a block.
    pgraph::Signature signature;
    signature.output = {{"i", Size(h / s), false}};
    signature.input = {{"i", Size(h), false}};
    pgraph::PGraph graph =
        pgraph::apply_all(pgraph::PGraph(signature), {Step{Primitive::Reduce, {}, {}, Size(k), 0},
                                                      Step{Primitive::Reduce, {}, {}, Size(s), 0},
                                                      Step{Primitive::Unfold, {id(0), id(1)}, {}, Size(), 0},
                                                      Step{Primitive::Split, {id(2), id(3)}, {}, Size(), 0}});
    const auto complete = pgraph::complete(graph, {id(4)});
    const auto one = lower::one_scope(complete), staged = lower::staged(complete);
    EXPECT_EQ(loop_points(one), h / s * k * s);
    EXPECT_EQ(loop_points(staged), h + k * h / s) << program::to_text(staged);
    EXPECT_EQ(program::cost(staged, 0).flops, h + k * h / s);
  }
}

/// A named operator on ResNet's 64 -> 64 layer at 56x56 (batch 1), beside a second valuation.
pgraph::CompleteGraph named(const char* name, std::int64_t groups) {
  using enum symbolic::VariableKind;
  symbolic::Sizes sizes({{"N", Primary},
                         {"C_in", Primary},
                         {"C_out", Primary},
                         {"H", Primary},
                         {"k", Coefficient},
                         {"s", Coefficient},
                         {"g", Coefficient}},
                        {{1, 64, 64, 56, 3, 2, groups}, {1, 128, 128, 28, 3, 2, groups}});
  const auto v = [](std::size_t i) { return Size::variable(i); };
  pgraph::Signature signature{sizes,
                              {{"n", v(0), false}, {"o", v(2), true}, {"h", v(3), false}, {"w", v(3), false}},
                              {{"n", v(0), false}, {"c", v(1), true}, {"h", v(3), false}, {"w", v(3), false}},
                              {{0, 0}}};
  pgraph::NamedParameters parameters;
  parameters.kernel = v(4);
  parameters.shrink = v(5);
  parameters.groups = v(6);
  return pgraph::named_operator(name).build(signature, parameters);
}

TEST(Staged, CostsOfNamedOperatorsAreExact) {
  struct Row {
    const char* name;
    std::int64_t groups, flops, params;
    std::size_t stages;
  };
  for (const Row& row : {Row{"conv", 2, 115'605'504, 36'864, 1},
                         {"conv1x1", 2, 12'845'056, 4'096, 1},
                         {"grouped_conv", 2, 57'802'752, 18'432, 1},
                         {"bottleneck_conv", 2, 64'225'280, 20'480, 2},
                         {"operator1", 32, 58'404'864, 18'624, 2},
                         {"operator2", 32, 21'073'920, 6'720, 2},
                         {"stacked_conv", 32, 58'404'864, 18'624, 2}}) {
    const auto staged = lower::staged(named(row.name, row.groups));
    EXPECT_EQ(program::cost(staged, 0).flops, row.flops) << row.name << "\n" << program::to_text(staged);
    EXPECT_EQ(program::cost(staged, 0).params, row.params) << row.name;
    EXPECT_EQ(staged.scopes.size(), row.stages) << row.name << "\n" << program::to_text(staged);
  }
}

TEST(Staged, MultipliesWeightsFirstWhereThatIsCheaper) {
  // y[n,o] = sum[c,r] x[n,c] w2[c,r] w1[r,o] with a wide r: w2*w1 once is cheaper than x through r.
  pgraph::Signature signature;
  signature.output = {{"n", Size(64), false}, {"o", Size(4), false}};
  signature.input = {{"n", Size(64), false}, {"c", Size(4), false}};
  auto graph = pgraph::apply_all(
      pgraph::PGraph(signature),
      {Step{Primitive::Reduce, {}, {}, Size(4), 0}, Step{Primitive::Reduce, {}, {}, Size(32), 0},
       Step{Primitive::Contraction, {id(3)}, {id(1)}, Size(), 0},
       Step{Primitive::Contraction, {id(2)}, {id(3)}, Size(), 0}});
  const auto complete = pgraph::complete(graph, {id(0), id(2)});
  EXPECT_EQ(program::cost(lower::staged(complete), 0).flops, 4 * 32 * 4 + 64 * 4 * 4);
  EXPECT_EQ(loop_points(lower::staged(complete)), 4 * 32 * 4 + 64 * 4 * 4);
}

TEST(Staged, RepeatsAfterSummingNotBefore) {
  // y[i] = sum[c] x[i / 8, c]: eight equal elements are summed once.
  pgraph::Signature signature;
  signature.output = {{"i", Size(32), false}};
  signature.input = {{"i", Size(4), false}, {"c", Size(10), false}};
  auto graph =
      pgraph::apply_all(pgraph::PGraph(signature), {Step{Primitive::Reduce, {}, {}, Size(10), 0},
                                                    Step{Primitive::Merge, {id(0)}, {}, Size(8), 0},
                                                    Step{Primitive::Expand, {id(3)}, {}, Size(), 0}});
  const auto complete = pgraph::complete(graph, {id(2), id(1)});
  EXPECT_EQ(program::cost(lower::staged(complete), 0).flops, 40);
  EXPECT_EQ(program::cost(lower::one_scope(complete), 0).flops, 320);
}

}  // namespace
}  // namespace syno
