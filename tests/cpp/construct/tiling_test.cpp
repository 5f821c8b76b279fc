// Tilings by lot, not only those that strategies propose: each keeps the meaning of the program, or is
// refused.
#include "construct/tiling.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "schedule/fixture.hpp"
#include "support/error.hpp"

namespace syno::construct {

using namespace schedule;
namespace {

template <class T>
const T& any_of(Random& random, const std::vector<T>& values) {
  return values[random.below(values.size())];
}

OperandTiling drawn_operand(const Tiling& tiling, const ScopeFacts& facts, const ReadFacts& read,
                            Random& random) {
  OperandTiling operand;
  const std::size_t rank = read.copy.extents.size();
  const bool along_results = tiling.lanes.back() < facts.traversal;
  switch (random.below(4)) {
    case 0: {
      operand.way = Way::Ordered;
      operand.suffix = "_pad";
      operand.permutation.resize(rank);
      std::iota(operand.permutation.begin(), operand.permutation.end(), std::int64_t{0});
      for (std::size_t i = rank; i-- > 1;)
        std::swap(operand.permutation[i], operand.permutation[random.below(i + 1)]);
      break;
    }
    case 1: {
      const auto rows = along_results ? plan_row_copy(facts, read, tiling.lanes.size()) : std::nullopt;
      if (!rows || tiling.lanes.back() + 1 != facts.traversal || tiling.pitch.empty()) break;
      operand.way = Way::Rows;
      operand.suffix = "_pad";
      operand.rows = *rows;
      operand.depth = own_depth(facts, read, tiling.lanes.front());
      break;
    }
    case 2: {
      if (rank == 0) break;
      const std::size_t row = tiling.rows.empty() ? tiling.lanes.back() : tiling.rows.back();
      const auto dim = dimension_along(facts, read.copy, row);
      if (!dim) break;
      operand.way = Way::Blocks;
      operand.suffix = "_pack";
      operand.blocks = {
          .dim = *dim, .part = 0, .width = tiling.rows.empty() ? tiling.width : tiling.row_size};
      operand.sequence.resize(facts.extents.size());
      std::iota(operand.sequence.begin(), operand.sequence.end(), std::size_t{0});
      break;
    }
    default:
      break;
  }
  return operand;
}

Tiling drawn(const Construction& c, const ScopeFacts& facts, bool output, Random& random) {
  Tiling tiling;
  std::vector<std::size_t> results(facts.traversal);
  std::iota(results.begin(), results.end(), std::size_t{0});
  const bool along_sum = random.below(4) == 0 && facts.extents.size() > facts.traversal;
  if (along_sum) {
    tiling.lanes = {facts.traversal + random.below(facts.extents.size() - facts.traversal)};
  } else {
    const std::size_t lane = random.below(3) == 0 ? random.below(results.size()) : results.size() - 1;
    tiling.lanes = {lane};
    if (lane > 0 && random.below(3) == 0) tiling.lanes.insert(tiling.lanes.begin(), lane - 1);
    for (const std::size_t loop : tiling.lanes) tiling.pitch.push_back(facts.extents[loop]);
    if (tiling.lanes.size() > 1 && random.below(2) == 0) tiling.pitch.back() += draw(random, 1, 3);
  }
  tiling.width = c.lanes * draw(random, 1, 3);
  std::erase_if(results, [&](std::size_t i) {
    return std::find(tiling.lanes.begin(), tiling.lanes.end(), i) != tiling.lanes.end();
  });
  const auto take = [&](std::vector<std::size_t>& side, std::int64_t& size) {
    if (results.empty() || random.below(4) == 0) return;
    side = {any_of(random, results)};
    std::erase(results, side.front());
    size = draw(random, 1, 5);
  };
  take(tiling.rows, tiling.row_size);
  if (random.below(2) == 0) take(tiling.columns, tiling.column_size);
  tiling.columns_first = !tiling.rows.empty() && !tiling.columns.empty() && random.below(2) == 0;
  if (!along_sum && !results.empty() && tiling.lanes.size() == 1 && random.below(5) == 0) {
    tiling.filling = any_of(random, results);
    tiling.filled = draw(random, 1, 4);
    tiling.width = c.lanes;
    tiling.pitch.clear();
  }
  for (const std::size_t loop : results) tiling.around.push_back({Around::Of::Loop, loop});
  for (std::size_t i = tiling.around.size(); i-- > 1;)
    std::swap(tiling.around[i], tiling.around[random.below(i + 1)]);
  tiling.behind = random.below(tiling.around.size() + 1);
  std::vector<Around::Of> tiles{Around::Of::Rows, Around::Of::Columns, Around::Of::Lanes};
  for (std::size_t i = tiles.size(); i-- > 1;) std::swap(tiles[i], tiles[random.below(i + 1)]);
  for (const auto of : tiles)
    if (!along_sum || of != Around::Of::Lanes) tiling.around.push_back({of});
  tiling.around.push_back({Around::Of::Sums});
  if (along_sum) tiling.around.push_back({Around::Of::Lanes});
  if (!along_sum && random.below(3) == 0) tiling.steps = draw(random, 1, 6);
  for (std::size_t i = facts.traversal; i < facts.extents.size() && tiling.steps == 0; ++i) {
    if (along_sum && i == tiling.lanes.back()) continue;
    switch (random.below(5)) {
      case 0:
        tiling.unrolled.push_back(i);
        break;
      case 1:
        if (!tiling.rows.empty() && !tiling.columns_first) tiling.sliding.push_back(i);
        break;
      case 2:
        tiling.blocked = {i, draw(random, 2, 3)};
        break;
      default:
        break;
    }
  }
  tiling.cut_borders = random.below(2) == 0;
  tiling.ahead = random.below(2) == 0;
  for (const ReadFacts& read : facts.reads) {
    tiling.operands.push_back(drawn_operand(tiling, facts, read, random));
    tiling.operands.back().spared =
        tiling.operands.back().way == Way::Ordered && !tiling.rows.empty() && random.below(2) == 0;
  }
  const bool dead = !tiling.pitch.empty() && tiling.pitch.back() != facts.extents[tiling.lanes.back()];
  if (dead)
    tiling.result = Result::Rows;
  else if (!along_sum && output && random.below(4) == 0)
    tiling.result = Result::Whole;
  else if (!along_sum && output && !tiling.rows.empty() && random.below(4) == 0)
    tiling.result = Result::Turned;
  else if (random.below(6) == 0)
    tiling.result = Result::Finished;
  tiling.turned = tiling.result == Result::Whole || tiling.result == Result::Turned;
  return tiling;
}

class EveryTiling : public ::testing::TestWithParam<Template> {};

TEST_P(EveryTiling, KeepsTheMeaningOrIsRefused) {
  Random random(61);
  int built = 0, scopes = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const auto p = instance(GetParam(), random);
    const Target target = trial % 3 == 2 ? Target{128, 16, 1} : Target{512, 32, 1 + trial % 2};
    Construction c(p, trial % 4 == 3 ? Dtype::F64 : Dtype::F32, target);
    for (std::size_t s = p.scopes.size(); s-- > 0;) {
      const program::Scope scope = p.scopes[s];
      const std::string name = p.tensor(scope.output).name;
      if (scope.sums.empty() || !scope.target.empty()) continue;
      const Facts facts = facts_of(c, name);
      if (facts->traversal == 0) continue;
      ++scopes;
      const Tiling tiling = drawn(c, *facts, c.plan.is_output(scope.output), random);
      EXPECT_FALSE(to_text(tiling, *facts).empty());

      Draft draft(c);
      if (write_tiling(c, name, *facts, tiling)) continue;  // no nest has such loops
      draft.keep();
      ++built;
      break;
    }
    const auto nest = try_emit_call(c.plan);
    if (!nest) continue;  // some rules speak only once all loops are known
    ASSERT_NO_THROW(verify(*nest)) << to_text(c.schedule);
    expect_same(p, *nest, random_arguments(p, random), to_text(c.schedule));
    if (HasFatalFailure()) return;
  }
  if (scopes > 20) {
    EXPECT_GT(built, scopes / 5) << "hardly any tiling was written";
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, EveryTiling, ::testing::ValuesIn(templates()),
                         [](const auto& info) { return std::string(info.param.name); });

/// Past the last row of a group lies the first one of the next: vectors that run over a group's end must not
/// write there, whichever of the two is computed first, and in however many parts.
TEST(Tilings, KeepToThemselvesWhereTheyRunOverTheEndOfAGroup) {
  Random random(62);
  int built = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const std::int64_t groups = draw(random, 2, 4), rows = draw(random, 2, 4);
    const auto p =
        program::parse(fmt::format("y[i, j] = sum[k] x[i/{},j,k] * w[i,k]", rows),
                       {.sizes = {{"i", groups * rows}, {"j", draw(random, 2, 9)}, {"k", draw(random, 2, 9)}},
                        .shapes = {},
                        .weights = {},
                        .data = {}});
    Construction c(p, Dtype::F32, Target{128, 16, 1 + trial % 2});
    const Facts facts = facts_of(c, "y");
    if (facts->traversal != 3) continue;  // one group, or one row in each
    Tiling tiling;
    tiling.lanes = {1, 2};
    tiling.pitch = {rows, facts->extents[2] + draw(random, 0, 3)};
    tiling.width = c.lanes * draw(random, 1, 3);
    if (random.below(2) == 0) {
      tiling.rows = {0};
      tiling.row_size = draw(random, 1, groups);
      tiling.around = {{Around::Of::Rows}, {Around::Of::Lanes}};
    } else {
      tiling.around = {{Around::Of::Loop, 0}, {Around::Of::Lanes}};
    }
    if (random.below(2) == 0) std::swap(tiling.around[0], tiling.around[1]);
    tiling.around.push_back({Around::Of::Sums});
    tiling.steps = draw(random, 0, 3);
    tiling.cut_borders = random.below(2) == 0;
    tiling.result = Result::Rows;
    Draft draft(c);
    if (write_tiling(c, "y", *facts, tiling)) continue;
    const auto nest = try_emit_call(c.plan);
    if (!nest) continue;
    ASSERT_NO_THROW(verify(*nest)) << to_text(c.schedule);
    ++built;
    expect_same(p, *nest, random_arguments(p, random), to_text(tiling, *facts) + to_text(c.schedule));
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(built, 150);
}

/// What a sketch is without its numbers, and with them.
TEST(Tilings, SayInWordsWhatTheyAre) {
  const auto p = program::parse("y[o,h,w] = sum[c,r,s] x[c,h+r-1,w+s-1] * k[o,c,r,s]",
                                {.sizes = {{"o", 64}, {"h", 56}, {"w", 56}, {"c", 32}, {"r", 3}, {"s", 3}},
                                 .shapes = {{"x", {32, 56, 56}}}});
  Construction c(p, Dtype::F32, Target{}, {"k"});
  const Sketches sketches = sketches_of(c, "y");
  const auto flat = std::find_if(sketches.begin(), sketches.end(),
                                 [](const Sketch& sketch) { return sketch.name == "along_output/2"; });
  ASSERT_NE(flat, sketches.end());
  Numbers numbers = flat->counted;
  numbers.rows = 6;
  numbers.vectors = 4;
  numbers.vectors_outer = 1;
  numbers.steps = 0;
  const std::string text = to_text(flat->tiling(numbers), *flat->facts);
  EXPECT_NE(text.find("o x 6; h w, w to 58 x 64 in vectors"), std::string::npos) << text;
  EXPECT_NE(text.find("tiles of h w; tiles of o; c r s"), std::string::npos) << text;
  EXPECT_NE(text.find("a padded copy along h w"), std::string::npos) << text;
}

}  // namespace
}  // namespace syno::construct
