// Chains of scopes computed tile by tile: any tiles of any iterators keep the meaning, what tiles cannot hold
// stays whole, and they are taken where the machine says that they pay.
#include "construct/tiled_fusion.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "construct/gensor.hpp"
#include "construct/machines.hpp"
#include "construct/random_stages.hpp"
#include "schedule/decisions.hpp"
#include "schedule/fixture.hpp"
#include "support/error.hpp"

namespace syno::construct {

using namespace schedule;
namespace {

const Chooser kCounted = [](const Question& question) {
  return fewest_cycles(question.construction, question.scope, question.sketches);
};

Finished with(const program::Program& p, const Target& target, const TiledFusions& fusions,
              Dtype dtype = Dtype::F32, const std::vector<std::string>& constants = {}) {
  return construct_with(p, dtype, target, kCounted, constants, {}, Phases::Together, fusions);
}

/// Any iterators of any scope, cut into tiles of any size.
TiledFusion random_fusion(const Construction& c, Random& random) {
  const auto s = random.below(c.plan.program.scopes.size());
  const program::Scope& scope = c.plan.program.scopes[s];
  TiledFusion fusion{c.plan.program.tensor(scope.output).name, {}, random.below(2) ? 1.02 : 4.0};
  for (const auto& iterator : scope.traversal) {
    const auto [begin, end] = c.plan.range(iterator.range);
    if (random.below(2) && end > begin)
      fusion.tiles.emplace_back(iterator.name, draw(random, 1, end - begin));
  }
  return fusion;
}

TEST(TiledFusion, KeepsTheMeaningOfRandomChains) {
  Random random(71);
  int tried = 0, hosted = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const auto p = random_stages(random);
    const Target target = trial % 3 == 0   ? Target{}
                          : trial % 3 == 1 ? Target{256, 16, 2}
                                           : Target{128, 16, 2};
    constexpr Dtype kDtypes[] = {Dtype::F32, Dtype::F64, Dtype::BF16};
    const Dtype dtype = kDtypes[random.below(3)];
    std::vector<std::string> constants;
    for (const auto id : p.inputs())
      if (p.tensor(id).name != "x" && random.below(2)) constants.push_back(p.tensor(id).name);
    const Construction c = prepared(p, dtype, target, constants, {}, Phases::Together);
    TiledFusions candidates;
    for (const TiledFusions& alike :
         tiled_fusions_of(c, c.plan.program.tensor(c.plan.program.outputs[0]).name))
      candidates.insert(candidates.end(), alike.begin(), alike.end());
    for (int i = 0; i < 3; ++i) candidates.push_back(random_fusion(c, random));
    const Arguments arguments = random_arguments(p, random);
    const TiledFusion beside = random_fusion(c, random);  // another chain of the same program
    for (const TiledFusion& fusion : candidates) {
      TiledFusions fusions{fusion};
      if (random.below(3) == 0 && beside.last != fusion.last) fusions.push_back(beside);
      Finished made;
      try {
        made = with(p, target, fusions, dtype, constants);
      } catch (const ScheduleError&) {  // tiles that are no tiles: nothing cut
        continue;
      }
      ++tried;
      ASSERT_NO_THROW(verify(made.nest)) << to_text(made.schedule) << to_text(made.nest);
      expect_same(p, apply(p, made.schedule), arguments, to_text(made.schedule));
      if (const auto parts = apply_prepacked(p, made.schedule))
        expect_same_prepacked(p, *parts, arguments, to_text(made.schedule));
      EXPECT_EQ(parse_schedule(to_text(made.schedule)), made.schedule);
      const auto& trace = made.schedule.trace;
      hosted += std::any_of(trace.begin(), trace.end(), [&](const Decision& decision) {
        return decision.name == "compute_at" && decision.tensor == fusion.last;
      });
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(tried, 100);
  EXPECT_GT(hosted, 60) << "of " << tried;
}

class EveryTile : public ::testing::TestWithParam<Template> {};

TEST_P(EveryTile, KeepsTheMeaning) {
  Random random(83);
  for (int trial = 0; trial < 6; ++trial) {
    const auto p = instance(GetParam(), random);
    for (const Target target : {Target{}, Target{256, 16, 2}}) {
      const Construction c = prepared(p, Dtype::F32, target, {}, {}, Phases::Together);
      const TiledFusion fusion = random_fusion(c, random);
      try {
        const Finished made = with(p, target, {fusion});
        expect_same(p, made.nest, random_arguments(p, random), to_text(made.schedule));
      } catch (const ScheduleError&) {  // nothing is cut, or what accumulates
        continue;
      }
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, EveryTile, ::testing::ValuesIn(templates()),
                         [](const auto& info) { return std::string(info.param.name); });

constexpr const char* kAttention =
    "s[b,i,j] = sum[d] q[b,i,d]*c[b,j,d]; m[b,i] = max[j] s[b,i,j]; e[b,i,j] = exp(s[b,i,j]-m[b,i]); "
    "z[b,i] = sum[j] e[b,i,j]; o[b,i,d] = sum[j] e[b,i,j]*v[b,j,d]; y[b,i,d] = o[b,i,d]/z[b,i]";

TEST(TiledFusion, ComputesLongAttentionWithoutTheScoreMatrix) {
  const auto p = program::parse(kAttention, {.sizes = {{"b", 12}, {"i", 2048}, {"j", 2048}, {"d", 64}}});
  const Finished made = with(p, Target{}, {{"y", {{"b", 1}, {"i", 16}}, 1.02}});
  EXPECT_LE(intermediate_bytes(made.nest), 1 << 20) << to_text(made.schedule);
  EXPECT_GT(intermediate_bytes(with(p, Target{}, {}).nest), 2 * 4 * 2048 * 2048);
}

TEST(TiledFusion, ComputesTheMiddleOfAnInvertedBottleneckByBandsOfRows) {
  const auto p = program::parse(
      "a[e,h,w] = sum[c] x[c,h,w]*p[e,c]; b[e,h,w] = relu(a[e,h,w]); "
      "t[e,h,w] = sum[r,s] b[e,h+r-1,w+s-1]*f[e,r,s]; u[e,h,w] = relu(t[e,h,w]); y[k,h,w] = sum[e] "
      "u[e,h,w]*q[k,e]",
      {.sizes = {{"c", 24}, {"e", 144}, {"k", 24}, {"h", 56}, {"w", 56}, {"r", 3}, {"s", 3}}});
  const Finished bands = with(p, Target{}, {{"y", {{"h", 4}}, 2}}, Dtype::F32, {"p", "f", "q"});
  std::map<std::string, std::int64_t> rows;
  for (const auto& buffer : bands.nest.buffers)
    if (buffer.kind == BufferKind::Temporary && buffer.extents.size() == 3)
      rows[buffer.name] = buffer.extents[1];
  EXPECT_EQ(rows["u"], 4);
  EXPECT_EQ(rows["b"], 6) << "two rows are computed again\n" << to_text(bands.schedule);
  // Not where nothing may be computed again.
  const Finished once = with(p, Target{}, {{"y", {{"h", 4}}, 1.02}}, Dtype::F32, {"p", "f", "q"});
  for (const auto& buffer : once.nest.buffers)
    if (buffer.name == "b") EXPECT_EQ(buffer.extents[1], 56) << to_text(once.schedule);
}

TEST(TiledFusion, LeavesWholeWhatOthersRead) {
  const auto p = program::parse(
      "a[i,j] = sum[k] x[i,k]*f[k,j]; t[i,j] = exp(a[i,j]); z[j] = sum[i] t[i,j]; y[i,l] = sum[j] "
      "t[i,j]*g[j,l]; "
      "return z, y",
      {.sizes = {{"i", 40}, {"j", 24}, {"k", 9}, {"l", 8}}});
  const Construction c = prepared(p, Dtype::F32, Target{}, {}, {}, Phases::Together);
  EXPECT_TRUE(tiled_fusions_of(c, "y").empty()) << "z reads t, too";
  const Finished made = with(p, Target{}, {{"y", {{"i", 8}}, 4}});
  for (const Decision& decision : made.schedule.trace)
    EXPECT_FALSE(decision.name == "compute_at" && decision.scope == "t") << to_text(decision);
}

TEST(TiledFusion, IsNotOfferedForWhatAccumulates) {
  const auto p =
      program::parse("t[i] = exp(x[i]); y[2*i + r] += t[i] * f[r]", {.sizes = {{"i", 18}, {"r", 3}}});
  const Construction c = prepared(p, Dtype::F32, Target{}, {}, {}, Phases::Together);
  EXPECT_TRUE(tiled_fusions_of(c, "y").empty());
}

TEST(TiledFusion, SaysWhatIsNoTile) {
  const auto p = program::parse("t[i,j] = sum[k] x[i,k]*f[k,j]; y[i,l] = sum[j] t[i,j]*g[j,l]",
                                {.sizes = {{"i", 40}, {"j", 24}, {"k", 9}, {"l", 8}}});
  EXPECT_THROW(with(p, Target{}, {{"y", {{"q", 8}}, 1}}), ScheduleError);
  EXPECT_THROW(with(p, Target{}, {{"y", {{"i", 40}}, 1}}), ScheduleError);
  EXPECT_THROW(with(p, Target{}, {{"w", {{"i", 4}}, 1}}), ScheduleError);
}

/// Two products after another, whose intermediate result is far larger than what they read and write.
program::Program wide(std::int64_t rows) {
  return program::parse("t[i,j] = sum[k] x[i,k]*f[j,k]; u[i,j] = relu(t[i,j]); y[i,l] = sum[j] u[i,j]*g[l,j]",
                        {.sizes = {{"i", rows}, {"j", 4096}, {"k", 8}, {"l", 8}}});
}

TEST(TiledFusion, IsTakenWhereTheMachineSaysThatItPays) {
  const machine::Machine machine = server();
  const auto p = wide(2048);
  ConstructOptions options;
  options.constants = {"f", "g"};
  const Constructed made = construct(p, Dtype::F32, machine, options);
  EXPECT_EQ(construct(p, Dtype::F32, machine, options).schedule, made.schedule) << "deterministic";
  const Finished whole = with(p, machine.target(1), {}, Dtype::F32, options.constants);
  EXPECT_LT(made.prediction.seconds, 0.9 * machine::predict(whole.nest, machine, {1, false}).seconds);
  EXPECT_LT(intermediate_bytes(apply(p, made.schedule)), intermediate_bytes(whole.nest) / 4)
      << to_text(made.schedule);
}

TEST(TiledFusion, LeavesTheScheduleAsItIsWhereNoClearGainIsPredicted) {
  const auto programs = {
      wide(512),
      program::parse("t[c,h,w] = sum[r,s] x[c,h+r-1,w+s-1]*f[c,r,s]; y[k,h,w] = sum[c] t[c,h,w]*g[k,c]",
                     {.sizes = {{"c", 144}, {"h", 56}, {"w", 56}, {"r", 3}, {"s", 3}, {"k", 24}}}),
      program::parse("t[k,h,w] = sum[c] x[c,h,w]*g[k,c]; y[k,h,w] = sum[r,s] t[k,h+r-1,w+s-1]*f[k,r,s]",
                     {.sizes = {{"c", 24}, {"h", 56}, {"w", 56}, {"r", 3}, {"s", 3}, {"k", 144}}}),
      program::parse(kAttention, {.sizes = {{"b", 2}, {"i", 128}, {"j", 128}, {"d", 32}}})};
  int fused = 0, left = 0;
  for (const auto& p : programs)
    for (const machine::Machine& machine : {server(), desktop()}) {
      ConstructOptions options;
      options.policy = "counted";
      const Finished whole = with(p, machine.target(1), {});
      const double whole_s = machine::predict(whole.nest, machine, {1, false}).seconds;
      const Constructed made = construct(p, Dtype::F32, machine, options);
      if (made.schedule == whole.schedule) {
        ++left;
        continue;
      }
      ++fused;
      const double gain = least_gain(intermediate_bytes(whole.nest), machine);
      EXPECT_GE(gain, 1) << "nothing that is predicted to be slower is taken";
      EXPECT_LT(made.prediction.seconds * gain, whole_s);
    }
  EXPECT_GT(fused, 0);
  EXPECT_GT(left, 0);
}

TEST(TiledFusion, LeavesAloneWhatFitsTheFirstCache) {
  const auto p = program::parse("t[i] = sum[k] x[i,k]; y[i,j] = exp(t[i]) * x[i,j]",
                                {.sizes = {{"i", 64}, {"k", 64}, {"j", 64}}});
  const Construction made = prepared(p, Dtype::F32, server().target(1), {}, {}, Phases::Together);
  EXPECT_TRUE(predicted_fusions(made, server(), {1, false}).fusions.empty());
}

}  // namespace
}  // namespace syno::construct
