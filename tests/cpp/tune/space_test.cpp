// Everything a search can draw keeps the meaning of every program; every mutation changes some trace.
#include "tune/space.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "jit/kernel.hpp"
#include "machine/features.hpp"
#include "machine/predict.hpp"
#include "schedule/fixture.hpp"
#include "support/error.hpp"

namespace syno::tune {
void PrintTo(const TraceMutation& row, std::ostream* out) { *out << row.name; }

namespace {

using nest::Dtype;

class EveryCandidate : public ::testing::TestWithParam<schedule::Template> {};

TEST_P(EveryCandidate, KeepsTheMeaning) {
  Random random(43);
  const Machine machine = describe_machine(jit::cpu_named("x86-64-v3"));
  for (int trial = 0; trial < 4; ++trial) {
    const auto p = schedule::instance(GetParam(), random);
    const ScheduleSpace space(p, trial == 3 ? Dtype::BF16 : Dtype::F32, machine, 1 + trial % 2);
    const auto arguments = schedule::random_arguments(p, random);
    auto candidate = space.sample(random);
    ASSERT_TRUE(candidate);
    for (int generation = 0; generation < 6 && candidate; ++generation) {
      const auto nest = schedule::apply(p, candidate->schedule);
      schedule::expect_same(p, nest, arguments, to_text(candidate->schedule));
      if (HasFatalFailure()) return;
      EXPECT_EQ(candidate->features.size(), machine::feature_names().size());
      EXPECT_GT(candidate->predicted_s, 0);
      const auto other = space.sample(random);
      auto child = generation % 3 == 2 && other ? space.cross(*candidate, *other, random)
                                                : space.mutate(*candidate, random);
      if (!child) child = space.sample(random);
      candidate = std::move(child);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Programs, EveryCandidate, ::testing::ValuesIn(schedule::templates()),
                         [](const auto& info) { return std::string(info.param.name); });

class EveryTraceMutation : public ::testing::TestWithParam<TraceMutation> {};

TEST_P(EveryTraceMutation, KeepsTheMeaningAndIsReached) {
  Random random(47);
  const Machine machine = describe_machine(jit::cpu_named("x86-64-v3"));
  int applied = 0;
  using Sizes = std::vector<std::pair<const char*, std::int64_t>>;
  const std::vector<std::pair<const char*, Sizes>> programs{
      {"y[m,n] = sum[k] a[m,k] * b[k,n]", {{"m", 19}, {"n", 45}, {"k", 21}}},
      {"y[o,h,w] = sum[c,r,s] x[c,h+r-1,w+s-1] * k[o,c,r,s]",
       {{"o", 11}, {"h", 10}, {"w", 21}, {"c", 6}, {"r", 3}, {"s", 3}}},
      {"t[g,h,w] = sum[c] x[c,h,w] * a[g,c]; y[o,h,w] = sum[g,r] t[g,h+r-1,w] * b[o,g,r]",
       {{"o", 11}, {"h", 10}, {"w", 21}, {"c", 6}, {"r", 3}, {"g", 5}}}};
  for (const auto& [text, sizes] : programs) {
    program::ParseOptions options;
    for (const auto& [name, size] : sizes) options.sizes.emplace(name, size);
    const auto p = program::parse(text, options);
    const ScheduleSpace space(p, Dtype::F32, machine, 2);
    const auto arguments = schedule::random_arguments(p, random);
    for (int trial = 0; trial < 24; ++trial) {
      auto parent = space.sample(random);
      ASSERT_TRUE(parent);
      schedule::Schedule changed = parent->schedule;
      if (!GetParam().change(changed.trace, random)) continue;
      EXPECT_NE(changed, parent->schedule);
      const auto child = space.candidate(changed);
      if (!child) continue;  // does not apply: never returned by a search
      ++applied;
      schedule::expect_same(p, schedule::apply(p, child->schedule), arguments, to_text(child->schedule));
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(applied, 0) << "no trace could be changed so: the property was not tested";
}
INSTANTIATE_TEST_SUITE_P(Table, EveryTraceMutation,
                         ::testing::ValuesIn(trace_mutations().begin(), trace_mutations().end()),
                         [](const auto& info) {
                           std::string name(info.param.name);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(ScheduleSpace, DrawsTheSameForTheSameSeed) {
  program::ParseOptions options;
  options.sizes = {{"m", 60}, {"n", 70}, {"k", 50}};
  const auto p = program::parse("y[m,n] = sum[k] a[m,k] * b[k,n]", options);
  const ScheduleSpace space(p, Dtype::F32, describe_machine(jit::host_cpu()), 1);
  Random one(5), two(5);
  for (int i = 0; i < 5; ++i) {
    const auto a = space.sample(one), b = space.sample(two);
    ASSERT_TRUE(a && b);
    EXPECT_EQ(a->schedule, b->schedule);
    const auto c = space.mutate(*a, one), d = space.mutate(*b, two);
    ASSERT_EQ(c.has_value(), d.has_value());
    if (c) EXPECT_EQ(c->schedule, d->schedule);
  }
}

/// Whether a decision makes a scope of this name.
bool makes(const schedule::Schedule& schedule, const std::string& scope) {
  return std::any_of(schedule.trace.begin(), schedule.trace.end(), [&](const auto& decision) {
    return (decision.name == "turn" && decision.scope + "_turned" == scope) ||
           (decision.name == "polyphase" && decision.scope + "_phases" == scope);
  });
}

/// Choices belong to scopes by name: crossing a candidate with itself gives it again, also where some scopes
/// have no sketches and where pieces of a stage could not be built at first.
TEST(ScheduleSpace, ChoicesAreThoseOfTheScopesTheyName) {
  Random random(53);
  const Machine machine = describe_machine(jit::cpu_named("x86-64-v3"));
  int crossed = 0;
  for (const auto& each : schedule::templates()) {
    const auto p = schedule::instance(each, random);
    const ScheduleSpace space(p, Dtype::F32, machine, 1);
    const auto made = space.sample(random);
    ASSERT_TRUE(made) << each.name;
    for (const auto& [scope, choice] : made->choices)
      EXPECT_TRUE(p.find_tensor(scope) || makes(made->schedule, scope)) << scope;
    const auto again = space.cross(*made, *made, random);
    if (!again) continue;
    ++crossed;
    EXPECT_EQ(to_text(again->schedule), to_text(made->schedule)) << each.name;
  }
  EXPECT_GT(crossed, 3);
}

TEST(ScheduleSpace, BeginsWithEverySketchByCount) {
  Random random(54);
  const Machine machine = describe_machine(jit::cpu_named("x86-64-v3"));
  std::size_t most = 0, separable = 0, movable = 0;
  for (const auto& each : schedule::templates()) {
    const auto p = schedule::instance(each, random);
    const auto starts = ScheduleSpace(p, Dtype::F32, machine, 1).starts();
    ASSERT_FALSE(starts.empty()) << each.name;
    most = std::max(most, starts.size());
    // By count, with what is computed by its place in a block, and with dimensions of intermediate results,
    // in the one of two ways that is predicted to be faster.
    const auto counted = [&](construct::Phases phases, construct::Innermost innermost) {
      return construct::construct_with(
          p, Dtype::F32, machine.target(1),
          [](const construct::Question& question) {
            return construct::fewest_cycles(question.construction, question.scope, question.sketches);
          },
          {}, {}, phases, {}, innermost);
    };
    using construct::Innermost, construct::Phases;
    auto expected = counted(Phases::Together, Innermost::AsGiven);
    auto phases = Phases::Together;
    const auto take_if_faster = [&](Phases places, Innermost innermost) {
      const auto seconds = [&](const construct::Finished& made) {
        return machine::predict(made.nest, machine, {1, false}).seconds;
      };
      auto other = counted(places, innermost);
      if (seconds(other) >= seconds(expected)) return;
      expected = std::move(other);
      phases = places;
    };
    if (expected.separable) {
      ++separable;
      take_if_faster(Phases::Apart, Innermost::AsGiven);
    }
    if (construct::prepared(p, Dtype::F32, machine.target(1), {}, {}, phases).movable) {
      ++movable;
      for (const Candidate& start : ScheduleSpace(p, Dtype::F32, machine, 1, {}, true).starts())
        EXPECT_TRUE(std::none_of(start.schedule.trace.begin(), start.schedule.trace.end(),
                                 [](const auto& decision) { return decision.name == "innermost"; }));
      take_if_faster(phases, Innermost::Moved);
    }
    EXPECT_TRUE(std::any_of(starts.begin(), starts.end(), [&](const Candidate& c) {
      return c.schedule == expected.schedule;
    })) << each.name;
    for (std::size_t i = 0; i < starts.size(); ++i) {
      if (i > 0) EXPECT_LE(starts[i - 1].predicted_s, starts[i].predicted_s);
      for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(starts[i].schedule == starts[j].schedule);
      schedule::expect_same(p, schedule::apply(p, starts[i].schedule), schedule::random_arguments(p, random),
                            to_text(starts[i].schedule));
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(separable, 0U) << "some program is computed by its place in a block";
  EXPECT_GT(movable, 0U) << "some program is made of what may lie with another dimension innermost";
  EXPECT_GT(most, 3U) << "programs with several sketches have as many beginnings";
}

TEST(ScheduleSpace, RefusesWhatDoesNotApply) {
  program::ParseOptions options;
  options.sizes = {{"i", 8}};
  const ScheduleSpace space(program::parse("y[i] = x[i] + 1", options), Dtype::F32,
                            describe_machine(jit::host_cpu()), 1);
  EXPECT_FALSE(space.candidate(schedule::parse_schedule("schedule f32\nunroll y loops=nothing\n")));
  EXPECT_TRUE(space.candidate({}));
}

}  // namespace
}  // namespace syno::tune
