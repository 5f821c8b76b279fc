// What is remembered of scopes changes nothing: whatever was asked before, each schedule is the one that is
// constructed without it.
#include "construct/written.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "construct/construct.hpp"
#include "construct/machines.hpp"
#include "construct/random_stages.hpp"
#include "construct/tiled_fusion.hpp"
#include "derive/rewrite.hpp"
#include "schedule/fixture.hpp"

namespace syno::construct {

using namespace schedule;
namespace {

/// Every schedule that is met on the way: for each scope those of all its sketches, taken to their ends.
std::vector<std::string> met(const Construction& prepared, const TiledFusions& fusions) {
  std::vector<std::string> schedules;
  const auto ask = [&](const Question& question) {
    for (std::size_t sketch = 0; sketch < question.sketches.size(); ++sketch) {
      const auto finished = question.finish({sketch, question.sketches[sketch].counted});
      schedules.push_back(finished ? to_text(finished->schedule) : "none");
    }
    return fewest_cycles(question.construction, question.scope, question.sketches);
  };
  schedules.push_back(to_text(construct_from(prepared, ask, fusions).schedule));
  schedules.push_back(to_text(construct_counted(prepared, fusions).schedule));
  return schedules;
}

TEST(WrittenScopes, ChangeNoSchedule) {
  Random random(2611);
  std::size_t reused = 0;
  for (int round = 0; round < 60; ++round) {
    program::Program p = random_stages(random);
    const derive::Rewrite& winograd = derive::rewrite_named("toom_cook");
    if (const auto sites = derive::sites(winograd, p); !sites.empty() && random.below(2))
      derive::apply(winograd, p, sites[random.below(sites.size())]);
    const Target target = (random.below(2) ? server() : desktop()).target(1);
    std::vector<std::string> constants;
    for (const auto id : p.inputs())
      if (p.tensor(id).name != "x" && random.below(2)) constants.push_back(p.tensor(id).name);
    const Construction remembering = prepared(p, Dtype::F32, target, constants, {}, Phases::Together);
    Construction forgetful = remembering;
    forgetful.known.reset();
    std::vector<TiledFusions> all{{}};
    for (const auto& scope : remembering.plan.program.scopes)
      for (const TiledFusions& alike :
           tiled_fusions_of(remembering, remembering.plan.program.tensor(scope.output).name))
        for (const TiledFusion& fusion : alike)
          if (random.below(4) == 0) all.push_back({fusion});
    for (const TiledFusions& fusions : all)  // all of them remember what was met before
      ASSERT_EQ(met(remembering, fusions), met(forgetful, fusions)) << program::to_text(p);
    reused += remembering.known->reused();
  }
  EXPECT_GT(reused, 100u);
}

/// Of scope t, after these decisions.
Hash128 situation(const std::string& text, const std::vector<Decision>& decisions) {
  Construction c(program::parse(text), Dtype::F32, desktop().target(1));
  for (const Decision& decision : decisions) raise_if(c.add(decision));
  for (std::size_t s = c.plan.scopes.size(); s-- > c.index("t") + 1;) c.plan.need_domain(s);
  return *situation_of(c, "t", true);
}

TEST(WrittenScopes, TellApartWhatADecisionMayDependOn) {
  const std::string two =
      "t[i: 40] = sum[k: 3] x[i,k] * w[k]\ny[i: 38] = sum[r: 2] t[i+r] * t[i+r+1] * k[r]\nreturn y";
  const auto stage = [](std::int64_t read) { return Decision{"stage", "y", {}, {read}, "t", {"t_pad"}}; };
  const Decision split{"split", "y", {"i"}, {8}, "", {}};
  const std::vector<Hash128> different{
      situation(two, {}),
      situation(two, {split}),
      situation(two, {split, {"reorder", "y", {"i_o", "r", "i_i"}, {}, "", {}}}),
      situation(two, {{"split", "y", {"i"}, {4}, "", {}}}),
      situation(two, {split,
                      {"reorder", "y", {"i_o", "r", "i_i"}, {}, "", {}},
                      {"vectorize", "y", {"i_i"}, {}, "", {}}}),
      situation(two, {stage(0)}),
      situation(two, {stage(1)}),
      situation(two, {stage(0), {"compute_at", "t_pad", {"i"}, {}, "y", {}}}),
      situation(two, {split, stage(0), {"compute_at", "t_pad", {"i_o"}, {}, "y", {}}}),
      situation(
          "t[i: 40] = sum[k: 3] x[i,k] * w[k] * 2\ny[i: 38] = sum[r: 2] t[i+r] * t[i+r+1] * k[r]\nreturn y",
          {}),
      situation("t[i: 40] = sum[k: 3] x[i,k] * w[k]\ny[i: 38] = sum[r: 2] t[i+r] * t[i+1] * k[r]\nreturn y",
                {}),
      situation("t[i: 40] = max[k: 3] x[i,k] * w[k]\ny[i: 38] = sum[r: 2] t[i+r] * t[i+r+1] * k[r]\nreturn y",
                {}),
      situation("t[i: 41] = sum[k: 3] x[i,k] * w[k]\ny[i: 38] = sum[r: 2] t[i+r] * t[i+r+1] * k[r]\nreturn y",
                {}),
  };
  for (std::size_t a = 0; a < different.size(); ++a)
    for (std::size_t b = 0; b < a; ++b) EXPECT_NE(different[a], different[b]) << a << " " << b;
}

TEST(WrittenScopes, AreTheSameWhateverElseWasDecidedBefore) {
  const std::string text =
      "t[i: 40] = sum[k: 3] x[i,k] * w[k]\ny[i: 38] = sum[r: 2] t[i+r] * k[r]\nz[j: 50] = x[j % 40,0]\n"
      "return y, z";
  const Decision split{"split", "y", {"i"}, {8}, "", {}}, other{"split", "z", {"j"}, {4}, "", {}};
  EXPECT_EQ(situation(text, {split}), situation(text, {other, split}));
}

}  // namespace
}  // namespace syno::construct
