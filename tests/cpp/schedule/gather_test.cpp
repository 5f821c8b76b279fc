// What a staged copy is indexed by: linear parts from which the read's indices can be had again.
#include "schedule/gather.hpp"

#include <gtest/gtest.h>

#include "fixture.hpp"
#include "schedule/decisions.hpp"

namespace syno::schedule {
namespace {

using symbolic::Arena;
using symbolic::Size;

bool only_iterators(const Arena& arena, ExprId e) {
  const auto& node = arena[e];
  if (node.op == symbolic::Op::Add) return only_iterators(arena, node.a) && only_iterators(arena, node.b);
  if (node.op == symbolic::Op::Multiply) return only_iterators(arena, node.a);
  return node.op == symbolic::Op::Iterator || !arena.has_iterator(e);
}

ExprId random_index(Arena& arena, Random& random, int depth) {
  if (depth == 0 || random.below(4) == 0) return arena.iterator(static_cast<std::uint32_t>(random.below(4)));
  const ExprId a = random_index(arena, random, depth - 1);
  switch (random.below(6)) {
    case 0:
      return arena.add(a, random_index(arena, random, depth - 1));
    case 1:
      return arena.add(a, arena.constant(draw(random, -2, 2)));
    case 2:
      return arena.multiply(a, draw(random, 1, 3));
    case 3:
      return arena.divide(a, Size(draw(random, 2, 3)));
    case 4:
      return arena.modulo(a, Size(draw(random, 2, 5)));
    default:
      return arena.inside(a, Size(draw(random, 2, 6)));
  }
}

TEST(Gather, PartsAreLinearAndGiveTheIndicesBack) {
  Random random(5);
  int several = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    Arena arena;
    std::vector<ExprId> indices;
    for (int d = 0; d < 3; ++d) indices.push_back(random_index(arena, random, 3));
    const IsLinear linear = [&](ExprId e) { return only_iterators(arena, e); };
    const auto parts = gathered_parts(arena, indices, linear);
    if (parts.size() > 3) ++several;
    std::vector<ExprId> places;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      EXPECT_TRUE(only_iterators(arena, parts[i]));
      for (std::size_t j = 0; j < i; ++j) EXPECT_NE(parts[i], parts[j]);
      places.push_back(arena.iterator(static_cast<std::uint32_t>(10 + i)));
    }
    const auto from = gathered_from(arena, indices, linear, parts, places);
    const symbolic::Sizes sizes;
    std::vector<std::int64_t> values(10 + parts.size());
    for (int point = 0; point < 8; ++point) {
      for (std::size_t i = 0; i < 4; ++i) values[i] = draw(random, 0, 7);
      for (std::size_t i = 0; i < parts.size(); ++i)
        values[10 + i] = symbolic::evaluate(arena, parts[i], sizes, 0, values).value();
      for (std::size_t d = 0; d < indices.size(); ++d)
        ASSERT_EQ(symbolic::evaluate(arena, indices[d], sizes, 0, values),
                  symbolic::evaluate(arena, from[d], sizes, 0, values));
    }
  }
  EXPECT_GT(several, 50) << "an index of several parts was hardly drawn";
}

TEST(Gather, ACopyHoldsWhatIsReadAndNothingBetween) {
  Arena arena;
  const auto slot = [&](std::uint32_t i) { return arena.iterator(i); };
  const ExprId even =
      arena.add(arena.add(arena.multiply(slot(0), 2), arena.multiply(slot(1), 2)), arena.constant(-2));
  const ExprId sixths = arena.add(arena.multiply(slot(2), 12), arena.multiply(slot(3), -18));
  const IsLinear linear = [&](ExprId e) { return only_iterators(arena, e); };
  const auto parts = gathered_parts(arena, {even, sixths}, linear);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0], arena.add(slot(0), slot(1)));
  EXPECT_EQ(parts[1], arena.add(arena.multiply(slot(2), 2), arena.multiply(slot(3), -3)));
  const auto from = gathered_from(arena, {even, sixths}, linear, parts, {slot(10), slot(11)});
  EXPECT_EQ(from[0], arena.add(arena.multiply(slot(10), 2), arena.constant(-2)));
  EXPECT_EQ(from[1], arena.multiply(slot(11), 6));
}

TEST(Gather, ACopyHasADimensionAPart) {
  struct GatheredCase {
    const char* text;
    program::ParseOptions options;
    std::size_t dimensions;
  };
  const GatheredCase cases[] = {
      {"y[h,w] = sum[c] x[c,h+c-1,w]",
       {.sizes = {{"h", 4}, {"w", 5}, {"c", 3}}, .shapes = {{"x", {3, 4, 5}}}},
       3},
      {"y[w] = sum[c] x[c,7*((w+1)%8)+(w/8+1)%7]", {.sizes = {{"w", 56}, {"c", 3}}}, 2},
      {"y[w] = sum[c] x[c,w/8,w%8]", {.sizes = {{"w", 56}, {"c", 3}}}, 2},
      {"y[w] = sum[k,c] x[k+inside(c+w-2,5)-1]",
       {.sizes = {{"w", 5}, {"c", 3}, {"k", 3}}, .shapes = {{"x", {5}}}},
       2},
      {"y[w] = sum[c] x[c,c,0,w]", {.sizes = {{"w", 5}, {"c", 3}}, .shapes = {{"x", {3, 3, 2, 5}}}}, 2},
  };
  Random random(6);
  for (const auto& test : cases) {
    const auto p = program::parse(test.text, test.options);
    Plan plan(p, Dtype::F32);
    decide(plan, {"stage", "y", {}, {}, "x", {"copy"}});
    EXPECT_EQ(plan.program.tensor(plan.tensor_named("copy")).dims.size(), test.dimensions) << test.text;
    Schedule schedule;
    schedule.trace = {{"stage", "y", {}, {}, "x", {"copy"}}};
    const LoopNest nest = apply(p, schedule);
    ASSERT_NO_THROW(verify(nest)) << to_text(nest);
    expect_same(p, nest, random_arguments(p, random), test.text);
  }
}

/// Split first, a block is linear: the copy keeps the source's dimension rather than taking one of its own.
TEST(Gather, BlocksThatAreLoopsAreLinear) {
  const auto p =
      program::parse("y[c,w] = sum[d] x[2*d+c/4,w] * k[c%4,d]", {.sizes = {{"c", 8}, {"w", 5}, {"d", 3}}});
  for (const bool split : {false, true}) {
    Plan plan(p, Dtype::F32);
    if (split) decide(plan, {"split", "y", {"c"}, {4}, "", {}});
    decide(plan, {"stage", "y", {}, {}, "x", {"copy"}});
    EXPECT_EQ(plan.program.tensor(plan.tensor_named("copy")).dims.size(), split ? 2U : 3U);
  }
}

}  // namespace
}  // namespace syno::schedule
