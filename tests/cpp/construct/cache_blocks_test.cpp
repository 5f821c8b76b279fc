// Tiles of caches as loops: whatever tiles a sketch is given, the nest computes the program, and its loops go
// round them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "construct/etir.hpp"
#include "construct/gensor.hpp"
#include "construct/machines.hpp"
#include "schedule/fixture.hpp"

namespace syno::construct {

using namespace schedule;

namespace {

using nest::Dtype;

/// A random sketch that can be cut, with random tiles: of any size, so that rests are left at every level.
Choosing random_blocks(const Sketches& sketches, const ScopeFacts& facts, Random& random) {
  std::vector<std::size_t> able;
  for (std::size_t s = 0; s < sketches.size(); ++s)
    if (!sketches[s].blocks.empty()) able.push_back(s);
  if (able.empty()) return {};
  Choosing made;
  made.sketch = able[random.below(able.size())];
  made.numbers = sketches[made.sketch].counted;
  made.numbers.steps = 0;
  for (const auto& loops : sketches[made.sketch].blocks) {
    std::int64_t extent = 1;
    for (const std::size_t loop : loops) extent *= facts.extents[loop];
    CacheTiles tiles{loops, {}};
    for (int level = 0; level < 2; ++level) {
      extent = 1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(extent)));
      tiles.tiles.push_back(extent);
    }
    made.numbers.blocks.push_back(std::move(tiles));
  }
  return made;
}

class EveryProgram : public ::testing::TestWithParam<schedule::Template> {};

TEST_P(EveryProgram, KeepsItsMeaningInBlocks) {
  Random random(7);
  for (int trial = 0; trial < 12; ++trial) {
    const auto p = schedule::instance(GetParam(), random);
    const Machine machine = trial % 2 ? server() : desktop();
    const Target target = machine.target(1 + trial % 3 / 2);
    const Dtype dtype = trial % 4 == 3 ? Dtype::F64 : Dtype::F32;
    const Finished made = construct_with(p, dtype, target, [&](const Question& question) {
      const Choosing answer = random_blocks(question.sketches, question.facts, random);
      return answer.numbers.blocks.empty()
                 ? fewest_cycles(question.construction, question.scope, question.sketches)
                 : answer;
    });
    const auto nest = schedule::apply(p, made.schedule);
    ASSERT_NO_THROW(nest::verify(nest)) << to_text(made.schedule);
    schedule::expect_same(p, nest, schedule::random_arguments(p, random), to_text(made.schedule));
    if (HasFatalFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(Blocks, EveryProgram, ::testing::ValuesIn(schedule::templates()),
                         [](const auto& info) { return std::string(info.param.name); });

/// Trips of every loop of a scope by name, and the factor of the split that made it.
std::map<std::string, std::int64_t> factors(const Schedule& schedule) {
  std::map<std::string, std::int64_t> found;
  for (const Decision& decision : schedule.trace)
    if (decision.name == "split") found[decision.loops[0]] = decision.numbers[0];
  return found;
}

TEST(CacheBlocks, StandOutsideEachOther) {
  program::ParseOptions options;
  options.sizes = {{"m", 96}, {"n", 512}, {"k", 1000}};
  const auto p = program::parse("y[m,n] = sum[k] a[m,k] * b[k,n]", options);
  const Finished made = construct_with(p, Dtype::F32, server().target(1), [&](const Question& question) {
    const Sketches& sketches = question.sketches;
    const auto at = std::find_if(sketches.begin(), sketches.end(),
                                 [](const Sketch& sketch) { return sketch.name == "along_output/1"; });
    Choosing answer{static_cast<std::size_t>(at - sketches.begin()), at->counted};
    answer.numbers = {.rows = 4, .vectors = 4};
    answer.numbers.blocks = {{{0}, {48, 12}}, {{1}, {512, 128}}, {{2}, {250, 250}}};
    return answer;
  });
  const auto found = factors(made.schedule);
  EXPECT_EQ(found.at("m"), 4);
  EXPECT_EQ(found.at("m_o"), 12);   // tiles of 4 in 48 rows
  EXPECT_EQ(found.at("m_o_i"), 3);  // and in 12
  EXPECT_EQ(found.at("n_o"), 2);    // of 64 in 128 columns
  EXPECT_EQ(found.at("k"), 250);
  std::vector<std::string> order;
  for (const Decision& decision : made.schedule.trace)
    if (decision.name == "reorder" && decision.scope == "y") order = decision.loops;
  const std::vector<std::string> wanted = {"m_o_o", "k_o", "n_o_o", "m_o_i_o", "n_o_i", "m_o_i_i", "k_i"};
  std::vector<std::string> outside;
  for (const std::string& loop : order)
    if (outside.size() < wanted.size()) outside.push_back(loop);
  std::vector<std::string> a = outside, b = wanted;
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  EXPECT_EQ(a, b);
  const auto position = [&](const std::string& loop) {
    return std::find(order.begin(), order.end(), loop) - order.begin();
  };
  for (const char* far : {"m_o_o", "k_o"})
    for (const char* near : {"n_o_o", "m_o_i_o"}) EXPECT_LT(position(far), position(near));
  for (const char* near : {"n_o_o", "m_o_i_o"})
    for (const char* inner : {"n_o_i", "m_o_i_i", "k_i"}) EXPECT_LT(position(near), position(inner));
  // Nothing is left over: the only condition is whether sums were kept by an earlier part.
  const std::string text = nest::to_text(made.nest);
  for (std::size_t at = text.find("if "); at != std::string::npos; at = text.find("if ", at + 1))
    EXPECT_EQ(text.substr(at, 6), "if k_o");
}

}  // namespace
}  // namespace syno::construct
