// Random operators: different, the same for any number of threads, and all of them in the end.
#include "synth/sample.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "small_specs.hpp"
#include "support/error.hpp"
#include "synth/duplicates.hpp"
#include "synth/scout.hpp"
#include "synth/walk.hpp"

namespace syno::synth {
namespace {

std::set<Hash128> keys_of(const std::vector<Found>& operators) {
  OperatorKeys key_of;
  std::set<Hash128> keys;
  for (const Found& found : operators) keys.insert(key_of(found.graph));
  return keys;
}

std::set<Hash128> built(const std::vector<Found>& operators, int min_steps = 0) {
  std::set<Hash128> hashes;
  for (const Found& found : operators) {
    if (found.steps >= min_steps) hashes.insert(pgraph::hash_of(found.graph));
  }
  return hashes;
}

SampleOptions options(int min_steps, int max_steps, std::uint64_t seed, int threads = 1) {
  SampleOptions result;
  result.min_steps = min_steps;
  result.max_steps = max_steps;
  result.seed = seed;
  result.threads = threads;
  return result;
}

TEST(Sample, IsTheSameForAnyNumberOfThreadsAndNothingTwice) {
  const Spec spec = spec_named("conv");
  const Enumeration one = sample(spec, 90, options(0, 7, 3));
  const Enumeration three = sample(spec, 90, options(0, 7, 3, 3));
  ASSERT_EQ(one.operators.size(), 90U);
  ASSERT_EQ(three.operators.size(), 90U);
  for (std::size_t i = 0; i < 90; ++i) EXPECT_EQ(one.operators[i].graph, three.operators[i].graph) << i;
  EXPECT_EQ(keys_of(one.operators).size(), 90U);
  EXPECT_NE(keys_of(sample(spec, 90, options(0, 7, 4)).operators), keys_of(one.operators));
}

TEST(Sample, BeginsWithWindowsAlongTheDimensionsThatHaveRoomForThem) {
  using symbolic::VariableKind;
  Spec spec;
  spec.name = "flat volume";
  spec.signature.sizes = Sizes({{"C", VariableKind::Primary},
                                {"D", VariableKind::Primary},
                                {"H", VariableKind::Primary},
                                {"W", VariableKind::Primary},
                                {"k", VariableKind::Coefficient},
                                {"g", VariableKind::Coefficient}},
                               {{64, 2, 16, 16, 3, 8}, {128, 1, 8, 8, 3, 8}});
  spec.occurrences = {5, 0, 0, 0, 4, 3};
  const auto size = [&](const char* text) { return spec.signature.sizes.parse(text); };
  for (auto* dims : {&spec.signature.output, &spec.signature.input})
    *dims = {{"c", size("C"), true}, {"d", size("D")}, {"h", size("H")}, {"w", size("W")}};
  spec.budgets.max_steps = 12;
  // Between a ninth and all of a window along two dimensions: pointwise operators are too small.
  spec.budgets.max_flops = 9.0 * (64 * 64 * 2 * 16 * 16 + 128 * 128 * 8 * 8);
  spec.budgets.min_flops = spec.budgets.max_flops / 8.5;
  EXPECT_FALSE(known_operators(spec, 12).empty());
  SampleOptions few = options(0, 12, 1);
  few.effort = 5'000;
  few.least = 0;
  EXPECT_GE(sample(spec, 20, few).operators.size(), 10U);
}

TEST(Sample, WithLessEffortItIsTheBeginning) {
  const Spec spec = spec_named("conv");
  const Enumeration whole = sample(spec, 90, options(0, 7, 3));
  std::size_t before = 0;
  for (const std::size_t effort : {1U, 300U, 1'000U}) {
    std::size_t count = 0;
    for (const int threads : {1, 3}) {
      SampleOptions few = options(0, 7, 3, threads);
      few.effort = effort;
      few.least = 5;
      const Enumeration some = sample(spec, 90, few);
      EXPECT_TRUE(threads == 1 || some.operators.size() == count);
      count = some.operators.size();
      ASSERT_LE(count, whole.operators.size());
      for (std::size_t i = 0; i < count; ++i)
        EXPECT_EQ(some.operators[i].graph, whole.operators[i].graph) << i;
    }
    EXPECT_GE(count, 5U) << "as many as have to be";
    EXPECT_GE(count, before) << effort;
    before = count;
  }
  EXPECT_LT(before, 90U) << "the effort ended nothing";
}

TEST(Sample, AnExhaustedSpaceGivesAllItHas) {
  for (const Spec& spec : {testing::line_spec(2), testing::line_spec(4), testing::rich_line_spec(3)}) {
    EXPECT_EQ(keys_of(sample(spec, 100'000, options(0, 0, 1)).operators), keys_of(enumerate(spec).operators))
        << spec.name;
  }
}

TEST(Sample, OfAtLeastSoManyStepsTheyAreAllFoundToo) {
  const Spec spec = testing::line_spec(5);
  EnumerationOptions all;
  all.operator_keys = false;
  SampleOptions deep = options(4, 5, 8);
  deep.operator_keys = false;
  const std::vector<Found> drawn = sample(spec, 100'000, deep).operators;
  EXPECT_EQ(built(drawn), built(enumerate(spec, all).operators, 4));
  EXPECT_EQ(built(drawn).size(), built(drawn, 4).size());
}

TEST(Sample, EveryNumberOfStepsIsDrawn) {
  const Enumeration drawn = sample(spec_named("resnet18"), 200, options(5, 9, 2));
  ASSERT_EQ(drawn.operators.size(), 200U);
  const std::vector<std::uint64_t>& by_steps = drawn.statistics.by_steps;
  ASSERT_EQ(by_steps.size(), 10U);
  for (std::size_t steps = 0; steps < by_steps.size(); ++steps)
    EXPECT_EQ(by_steps[steps] > 0, steps >= 5) << steps;
}

TEST(Sample, AStridedSiteGivesAsManyAsAreWanted) {
  const Spec spec = testing::strided_spec(7);
  const Enumeration drawn = sample(spec, 40, options(0, 0, 1));
  ASSERT_EQ(drawn.operators.size(), 40U);
  const Size extent = spec.signature.sizes.parse("s*H");
  for (const Found& found : drawn.operators) {
    EXPECT_EQ(found.graph.graph.coordinate(found.graph.input[2]).extent, extent);
    EXPECT_LE(found.work.flops, spec.budgets.max_flops);
  }
}

TEST(Sample, AskingForMoreStepsThanAllowedIsRefused) {
  try {
    sample(testing::line_spec(4), 1, options(5, 0, 1));
    FAIL() << "operators of five steps among those of four";
  } catch (const SpecError& error) {
    EXPECT_NE(std::string(error.what()).find("give at most 4"), std::string::npos) << error.what();
  }
}

TEST(Sample, PatienceEndsASearchForWhatIsNotThere) {
  Spec spec = testing::line_spec(6);
  spec.budgets.max_params = 1;
  SampleOptions limited = options(0, 0, 1);
  const Enumeration all = sample(spec, 5, limited);
  limited.patience = 100;
  const Enumeration some = sample(spec, 5, limited);
  EXPECT_TRUE(all.operators.empty());
  EXPECT_TRUE(some.operators.empty());
  EXPECT_LT(some.statistics.states, all.statistics.states);
}

/// The first operator that a walk from the root finds, as a text; the outcome's number where it finds none.
std::string walked(Walker& walker, Engine& engine, const WalkOptions& walk, std::uint64_t seed,
                   const BarrenTable& known, const Walker::Accept& accept) {
  const Outcome outcome = walker.walk(engine.root(), walk, Random(seed), known, accept);
  return outcome == Outcome::Found ? pgraph::to_text(walker.found().graph)
                                   : std::to_string(static_cast<int>(outcome));
}

TEST(BarrenTable, LearnsUntilItIsFull) {
  BarrenTable table;
  for (std::uint32_t i = 1; i <= BarrenTable::kMost + 10; ++i) table.add({0x9e3779b97f4a7c15ULL * i, i});
  EXPECT_EQ(table.size(), BarrenTable::kMost);
  EXPECT_EQ(table.bytes(), std::size_t{32} << 20);
  EXPECT_EQ(table.states(0x9e3779b97f4a7c15ULL * 7), 7u);
  EXPECT_EQ(table.states(0x9e3779b97f4a7c15ULL * (BarrenTable::kMost + 1)), 0u);
  EXPECT_EQ(table.states(5), 0u);
}

TEST(Walk, ChargedKnowledgeChangesNoResult) {
  const Spec spec = testing::line_spec(6);
  Engine engine(spec);
  Walker walker(engine);
  const Walker::Accept any = [](const Found&) { return true; };
  BarrenTable known;
  const BarrenTable nothing;
  std::set<std::string> results;
  std::size_t facts = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const WalkOptions walk{
        .min_steps = 5, .max_steps = 6, .patience = 20 + 10 * (seed % 20), .charge_known = true};
    const std::string without = walked(walker, engine, walk, seed, nothing, any);
    const std::size_t looked = walker.looked();
    EXPECT_EQ(walked(walker, engine, walk, seed, known, any), without) << seed;
    EXPECT_EQ(walker.looked(), looked) << seed;
    for (const Barren& fact : walker.learnt()) known.add(fact);
    facts += walker.learnt().size();
    results.insert(without);
  }
  EXPECT_GT(results.size(), 20U);
  EXPECT_GT(facts, 100U);
}

TEST(Walk, IsBarrenExactlyWhereNothingIsAccepted) {
  const Spec spec = testing::line_spec(4);
  EnumerationOptions all;
  all.operator_keys = false;
  const std::vector<Found> operators = enumerate(spec, all).operators;
  Engine engine(spec);
  Walker walker(engine);
  BarrenTable known;
  std::set<Hash128> drawn;
  const Walker::Accept is_new = [&](const Found& found) {
    return !drawn.contains(pgraph::hash_of(found.graph));
  };
  const WalkOptions walk{.min_steps = 0, .max_steps = 4, .patience = 1'000'000};
  Outcome outcome = Outcome::Found;
  for (std::uint64_t seed = 0; outcome == Outcome::Found; ++seed) {
    outcome = walker.walk(engine.root(), walk, Random(seed), known, is_new);
    if (outcome == Outcome::Found) drawn.insert(pgraph::hash_of(walker.found().graph));
    for (const Barren& fact : walker.learnt()) known.add(fact);
  }
  EXPECT_EQ(outcome, Outcome::Barren);
  EXPECT_EQ(drawn, built(operators));
  EXPECT_NE(known.states(Walker::barren_key(0, 0, 4)), 0U);
  EXPECT_EQ(known.states(Walker::barren_key(0, 0, 5)), 0U) << "barren of other numbers of steps as well";
}

TEST(Scout, FindsTheShallowestOperatorsAndTheirBeginnings) {
  const Spec spec = testing::line_spec(5);
  const std::vector<Found> some = scout(spec, 5, 10);
  ASSERT_GE(some.size(), 10U);
  int deepest = 0;
  for (const Found& found : some) deepest = std::max(deepest, found.steps);
  EnumerationOptions all;
  all.operator_keys = false;
  all.max_steps = deepest;
  EXPECT_EQ(built(some), built(enumerate(spec, all).operators));
  all.max_steps = deepest - 1;
  EXPECT_LT(enumerate(spec, all).operators.size(), 10U) << "a smaller depth had enough";
  Engine engine(spec);
  for (const Found& found : some) {
    const pgraph::PGraph& graph = found.graph.graph;
    EXPECT_EQ(engine.to_graph(prefix(engine, graph, graph.steps().size())), graph);
    const State one = prefix(engine, graph, 1);
    EXPECT_EQ(engine.to_graph(one).steps(), std::vector<pgraph::Step>(1, graph.steps()[0]));
  }
}

}  // namespace
}  // namespace syno::synth
