// A sum that a remainder decides about runs over the terms that are left, and means the same.
#include <gtest/gtest.h>

#include <algorithm>

#include "construct/construct.hpp"
#include "fixture.hpp"
#include "program/builders.hpp"
#include "schedule/decisions.hpp"
#include "support/error.hpp"

namespace syno::schedule {
namespace {

struct Solved {
  const char* name;
  const char* text;      ///< with {m}, the modulus, and {t}, an offset
  std::int64_t modulus;  ///< 0: drawn
};
void PrintTo(const Solved& s, std::ostream* out) { *out << s.name; }

class EverySum : public ::testing::TestWithParam<Solved> {};

TEST_P(EverySum, KeepsItsValueOverTheTermsThatAreLeft) {
  Random random(71);
  for (int trial = 0; trial < 40; ++trial) {
    const std::int64_t m = GetParam().modulus ? GetParam().modulus : draw(random, 2, 4);
    const std::string text =
        fmt::format(fmt::runtime(GetParam().text), fmt::arg("m", m), fmt::arg("t", draw(random, 0, 3)));
    program::ParseOptions options;
    options.sizes = {{"h", draw(random, 12, 17)}, {"r", draw(random, m, 5)}, {"c", draw(random, 1, 3)}};
    const auto p = program::parse(text, options);
    Plan plan(p, Dtype::F32);
    const auto found = sites_of(plan, "solve", 0);
    ASSERT_EQ(found.size(), 1u) << text;
    ASSERT_EQ(found[0].iterator, "r");
    const std::int64_t before = plan.range(plan.program.scopes[0].sums.back().range).second;
    decide(plan, {"solve", "y", {"r"}, {}, "", {}});
    EXPECT_TRUE(sites_of(plan, "solve", 0).empty());
    EXPECT_EQ(plan.range(plan.program.scopes[0].sums.back().range).second, (before + m - 1) / m);
    const LoopNest nest = emit(plan);
    ASSERT_NO_THROW(verify(nest)) << text << to_text(nest);
    expect_same(p, nest, random_arguments(p, random), text);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Programs, EverySum,
    ::testing::Values(
        Solved{"transposed", "y[h] = sum[c,r] x[c,(h+{t}-r)/{m} + inside((h+{t}-r)%{m},1)] * w[c,r]", 0},
        Solved{"forward", "y[h] = sum[c,r] x[c,(h+{t}+r)/{m} + inside((h+{t}+r)%{m},1)] * w[r,c]", 0},
        Solved{"dilated", "y[h] = sum[c,r] x[c,(h+{t}-2*r)/{m} + inside((h+{t}-2*r)%{m},1)] * w[c,r]", 3},
        Solved{"far_apart", "y[h] = sum[c,r] w[r] * x[c,(2*h+5*r)/{m} + inside((2*h+5*r)%{m},1)]", 4},
        Solved{"guard_alone",
               "y[h] = sum[c,r] x[c,h + inside((h+{t}-r)%{m},1)] * w[c,r] * v[(h+{t}-r)/{m}+3]", 2},
        Solved{"index_as_number", "y[h] = sum[c,r] (x[c,inside((h+{t}-r)%{m},1)] * r) * w[c,r]", 0}),
    [](const auto& info) { return std::string(info.param.name); });

/// What must stay as it is, and why.
TEST(Solve, RefusesWhatARemainderDoesNotDecide) {
  for (const char* text :
       {"y[h] = sum[c,r] x[c,(h-2*r)/2 + inside((h-2*r)%2,1)] * w[c,r]",       // every r, or none
        "y[h] = max[c,r] x[c,(h-r)/2 + inside((h-r)%2,1)] * w[c,r]",           // zeros count
        "y[h] = sum[c,r] (x[c,(h-r)/2 + inside((h-r)%2,1)] fill 1) * w[c,r]",  // no zero
        "y[h] = sum[c,r] (x[c,(h-r)/2 + inside((h-r)%2,1)] + w[c,r])",         // no factor
        "y[h] = sum[c,r] exp(x[c,(h-r)/2 + inside((h-r)%2,1)]) * w[c,r]",      // exp(0) is 1
        "y[h] = sum[c,r] x[c,(h-r)/2 + inside((h-r)%3,2)] * w[c,r]",           // two remainders of three
        "y[h] = sum[c,r] x[c,(h-r)/2 + inside((h-r/2)%2,1)] * w[c,r]"}) {      // no multiple of r
    SCOPED_TRACE(text);
    program::ParseOptions options;
    options.sizes = {{"h", 12}, {"r", 4}, {"c", 2}};
    Plan plan(program::parse(text, options), Dtype::F32);
    EXPECT_TRUE(sites_of(plan, "solve", 0).empty());
    EXPECT_THROW(decide(plan, {"solve", "y", {"r"}, {}, "", {}}), ScheduleError);
  }
}

TEST(Solve, ComesBeforeDecisionsAboutLoops) {
  program::ParseOptions options;
  options.sizes = {{"h", 12}, {"r", 4}, {"c", 2}};
  const auto p = program::parse("y[h] = sum[c,r] x[c,(h-r)/2 + inside((h-r)%2,1)] * w[c,r]", options);
  Plan plan(p, Dtype::F32);
  decide(plan, {"split", "y", {"h"}, {2}, "", {}});
  EXPECT_THROW(decide(plan, {"solve", "y", {"r"}, {}, "", {}}), ScheduleError);
  Plan other(p, Dtype::F32);
  EXPECT_THROW(decide(other, {"solve", "y", {"c"}, {}, "", {}}), ScheduleError);
  EXPECT_THROW(decide(other, {"solve", "y", {"q"}, {}, "", {}}), ScheduleError);
  EXPECT_THROW(decide(other, {"solve", "y", {}, {}, "", {}}), ScheduleError);
}

/// A transposed convolution of stride 2 does a quarter of what its text says.
TEST(Solve, TransposedConvolutionsMultiplyOnlyWhatIsThere) {
  program::ConvAttributes a;
  a.in_channels = 8;
  a.out_channels = 16;
  a.in_size = {8, 8};
  a.kernel = {4, 4};
  a.stride = {2, 2};
  a.dilation = {1, 1};
  a.pad_begin = a.pad_end = {1, 1};
  a.output_padding = {0, 0};
  const auto p = program::conv_transposed(a);
  const Schedule schedule = default_schedule(p, Dtype::F32, Target{});
  EXPECT_EQ(std::count_if(schedule.trace.begin(), schedule.trace.end(),
                          [](const Decision& d) { return d.name == "solve"; }),
            2)
      << to_text(schedule);
  Random random(5);
  expect_same(p, apply(p, schedule), random_arguments(p, random), to_text(schedule));
}

}  // namespace
}  // namespace syno::schedule
