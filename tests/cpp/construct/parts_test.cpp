// Parts of a reduction: results that the output keeps between them mean the same, whatever is added up, and
// long reductions are cut where what they read would not stay near.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "construct/construct.hpp"
#include "schedule/fixture.hpp"
#include "schedule/plan.hpp"
#include "support/error.hpp"

namespace syno::construct {

using namespace schedule;
namespace {

/// A trace that computes `y` of y[m,n] = reduction[k] in parts, registers holding some of n.
LoopNest in_parts_by_hand(const program::Program& p, const std::string& more = "", Dtype dtype = Dtype::F32) {
  const std::string text =
      "split y loops=k numbers=3\n"
      "split y loops=n numbers=4\n"
      "reorder y loops=k_o,m,n_o,k_i,n_i\n"
      "vectorize y loops=n_i\n"
      "register_tile y loops=n_i\n";
  return apply(p, parse_schedule("schedule " + std::string(name_of(dtype)) + "\n" + text + more));
}

program::Program reduction(const std::string& body, std::int64_t k) {
  return program::parse("y[m,n] = " + body, {.sizes = {{"m", 3}, {"n", 10}, {"k", k}}});
}

TEST(Parts, AnyReductionIsTheSameInParts) {
  Random random(5);
  for (const char* body : {"sum[k] a[m,k] * b[k,n]", "mean[k] a[m,k] * b[k,n]", "max[k] (a[m,k] + b[k,n])",
                           "min[k] (a[m,k] + b[k,n])", "prod[k] (a[m,k] + b[k,n])"})
    for (const std::int64_t k : {2, 3, 7, 12})
      for (const char* peel :
           {"", "peel y loops=k_o numbers=1\n", "peel y loops=n_o\n", "parallel y loops=m\n"}) {
        if (k < 4 && std::string(peel).find("k_o") != std::string::npos) continue;
        const auto p = reduction(body, k);
        const LoopNest nest = in_parts_by_hand(p, peel);
        ASSERT_NO_THROW(verify(nest)) << to_text(nest);
        expect_same(p, nest, random_arguments(p, random), peel);
        if (HasFatalFailure()) return;
      }
}

TEST(Parts, ThreadsShareEachOfThemAroundARegisterTile) {
  const auto p = reduction("sum[k] a[m,k] * b[k,n]", 12);
  EXPECT_NE(to_text(in_parts_by_hand(p, "parallel y loops=m\n")).find("for m in 0..3 parallel"),
            std::string::npos);
  try {
    apply(p, parse_schedule("schedule f32\nreorder y loops=k,m,n\nparallel y loops=m\n"));
    FAIL() << "each multiply-add would hand out work";
  } catch (const ScheduleError& error) {
    EXPECT_NE(std::string(error.what()).find("inside the reduction 'k'"), std::string::npos) << error.what();
  }
}

TEST(Parts, AnEpilogueComesWithTheLastOne) {
  Random random(6);
  for (const std::int64_t k : {3, 6, 7, 12}) {
    const auto p = program::parse("t[m,n] = sum[k] a[m,k] * b[k,n]; y[m,n] = max(t[m,n] + c[n], 0) * 2",
                                  {.sizes = {{"m", 3}, {"n", 10}, {"k", k}}});
    const auto schedule = parse_schedule(
        "schedule f32\n"
        "epilogue y tensor=t\n"
        "split y loops=k numbers=3\n"
        "reorder y loops=k_o,m,k_i,n\n"
        "vectorize y loops=n\n"
        "register_tile y loops=n\n");
    const LoopNest nest = apply(p, schedule);
    ASSERT_NO_THROW(verify(nest)) << to_text(nest);
    expect_same(p, nest, random_arguments(p, random), "epilogue");
    if (HasFatalFailure()) return;
  }
}

TEST(Parts, AreNotKeptInMemoryThatRounds) {
  try {
    in_parts_by_hand(reduction("sum[k] a[m,k] * b[k,n]", 12), "", Dtype::BF16);
    FAIL() << "bf16 would round what is kept";
  } catch (const ScheduleError& error) {
    EXPECT_NE(std::string(error.what()).find("summed up in bf16"), std::string::npos) << error.what();
  }
}

bool has_parts(const program::Program& p, const Schedule& schedule) {
  Plan plan(p, schedule.dtype);
  for (const Decision& decision : schedule.trace) decide(plan, decision);
  for (std::size_t s = 0; s < plan.scopes.size(); ++s) {
    const ScopePlan& scope = plan.scopes[s];
    for (std::size_t at = 0; at < plan.core(s); ++at)
      if (scope.loops[static_cast<std::size_t>(scope.order[at])].reduction) return true;
  }
  return false;
}

class PartsOf : public ::testing::TestWithParam<Template> {};

/// Every sketch with any numbers, its reductions in parts of a few steps.
TEST_P(PartsOf, EverySketchKeepsTheMeaning) {
  Random random(44);
  int parted = 0;
  for (int trial = 0; trial < 24; ++trial) {
    const auto p = instance(GetParam(), random);
    const Target target = trial % 3 == 2 ? Target{128, 16, 2} : Target{};
    const auto policy = [&](const Construction&, const std::string&, const Sketches& sketches) {
      Choosing choice;
      choice.sketch = random.below(sketches.size());
      choice.numbers = sketches[choice.sketch].counted;
      for (const Choice& open : sketches[choice.sketch].choices)
        choice.numbers.*open.number = open.values[random.below(open.values.size())];
      choice.numbers.steps = draw(random, 1, 3);
      return choice;
    };
    const Schedule schedule = construct(p, Dtype::F32, target, policy);
    parted += has_parts(p, schedule);
    const LoopNest nest = apply(p, schedule);
    ASSERT_NO_THROW(verify(nest)) << to_text(schedule) << to_text(nest);
    expect_same(p, nest, random_arguments(p, random), to_text(schedule));
    if (HasFatalFailure()) return;
  }
  const std::string name = GetParam().name;
  if (name.ends_with("conv") || name.ends_with("matmul")) EXPECT_GT(parted, 0) << "hardly any was in parts";
}

INSTANTIATE_TEST_SUITE_P(Programs, PartsOf, ::testing::ValuesIn(templates()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Parts, ALongReductionIsCutWhereItsOperandsWouldNotStayNear) {
  const auto product = [](std::int64_t m, std::int64_t k, std::int64_t n) {
    return program::parse("y[m,n] = sum[k] a[m,k] * b[k,n]", {.sizes = {{"m", m}, {"n", n}, {"k", k}}});
  };
  const auto cut = [&](const program::Program& p) {
    return has_parts(p, default_schedule(p, Dtype::F32, Target{}));
  };
  EXPECT_TRUE(cut(product(96, 8192, 128)));
  EXPECT_TRUE(cut(product(128, 50176, 1152)));
  EXPECT_FALSE(cut(product(128, 128, 128)));
  EXPECT_FALSE(cut(product(512, 256, 512))) << "panels stay in the second cache";
}

TEST(Parts, AreOfFewStepsWhereEachReadsFromAPageOfItsOwn) {
  const auto gradient = [](std::int64_t c, std::int64_t o) {
    return program::parse("y[o,w,h] = sum[c,k] x[c,h+k,w] * v[c,k,o,w]",
                          {.sizes = {{"o", o}, {"w", 7}, {"h", 5}, {"c", c}, {"k", 3}}});
  };
  const auto cut = [&](const program::Program& p, int threads) {
    Target target;
    target.threads = threads;
    const Policy places = [](const Construction& c, const std::string& scope, const Sketches& sketches) {
      const auto found = std::find_if(sketches.begin(), sketches.end(), [](const Sketch& sketch) {
        return sketch.name.starts_with("along_places");
      });
      if (found == sketches.end()) return fewest_cycles(c, scope, sketches);
      return Choosing{static_cast<std::size_t>(found - sketches.begin()), found->counted};
    };
    return has_parts(p, construct(p, Dtype::F32, target, places));
  };
  EXPECT_TRUE(cut(gradient(512, 512), 1));
  EXPECT_FALSE(cut(gradient(512, 512), 2)) << "each thread would go through all pages";
  EXPECT_FALSE(cut(gradient(512, 8), 1)) << "steps lie side by side";
  EXPECT_FALSE(cut(gradient(8, 512), 1)) << "everything stays near";
}

TEST(Parts, HaveStepsThatDivideTheReductionWhereItCanBeDivided) {
  const auto p = program::parse("y[m,n] = sum[c,r] a[m,c,r] * b[c,r,n]",
                                {.sizes = {{"m", 4}, {"n", 16}, {"c", 1000}, {"r", 3}}});
  Construction c(p, Dtype::F32, Target{});
  c.plan.need_domain(0);
  const ReductionLoops loops = in_parts(c, "y", {"c", "r"}, 1024).or_raise();
  ASSERT_EQ(loops.around.size(), 1U);
  ASSERT_EQ(loops.inside.size(), 2U);
  EXPECT_EQ(c.extent("y", loops.inside[0]), 250);
  EXPECT_EQ(loops.inside[1], "r");
  EXPECT_TRUE(loops.incomplete.empty());
  Construction whole(p, Dtype::F32, Target{});
  whole.plan.need_domain(0);
  EXPECT_TRUE(in_parts(whole, "y", {"c", "r"}, 0).or_raise().around.empty());
}

TEST(Parts, APartHasTheStepsThatItsLoopsTake) {
  Random random(32);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<std::int64_t> extents;
    for (std::uint64_t i = 1 + random.below(4); i > 0; --i)
      extents.push_back(1 + static_cast<std::int64_t>(random.below(30)));
    const auto steps = static_cast<std::int64_t>(random.below(200));
    const auto part = iterations_of_part(extents, steps);
    if (steps == 0) {
      EXPECT_EQ(part, extents);
      continue;
    }
    std::int64_t taken = 1;
    bool within =
        true;  // loops outside of the one that is cut take one iteration, those inside all of theirs
    for (std::size_t i = extents.size(); i-- > 0;) {
      taken *= part[i];
      if (!within) EXPECT_EQ(part[i], 1);
      within = within && part[i] == extents[i];
    }
    EXPECT_LE(taken, steps);
    const auto all = std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
    if (steps >= all) EXPECT_EQ(part, extents);
  }
}

}  // namespace
}  // namespace syno::construct
