// A sum that a remainder decides about runs over the terms that are left, and means the same.
#include <gtest/gtest.h>

#include <algorithm>

#include "construct/construct.hpp"
#include "fixture.hpp"
#include "program/builders.hpp"
#include "program/text.hpp"
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

/// Of what is one element long one term is left, wherever the window lies.
TEST(Solve, OneElementLeavesOneTerm) {
  Random random(72);
  int guarded = 0, total = 0;
  for (int trial = 0; trial < 120; ++trial) {
    const std::int64_t r = draw(random, 2, 5), s = draw(random, 2, 4);
    const bool whole = trial % 4 == 0;  // each place has a term
    const char* sign = trial % 2 ? "+" : "-";
    const char* order =
        trial % 3 ? "x[n,c,h{4}{3}r,w-s+{5}] * k[c,o,r,s]" : "k[c,o,r,s] * x[n,c,h{4}{3}r,w-s+{5}]";
    const auto drawn = [&](std::int64_t least, std::int64_t greatest) {
      return fmt::format("{:+}", draw(random, least, greatest));
    };
    const std::string h = whole ? "" : drawn(-3, 3), w = std::to_string(whole ? 0 : draw(random, 0, 3));
    const std::string text = fmt::format(
        fmt::runtime("input x[2,{0},1,1]\nweight k[{0},5,{1},{2}]\n"
                     "y[n: 2,o: 5,h: {6},w: {7}] = sum[c: {0},r: {1},s: {2}] " +
                     std::string(order) + "\nreturn y"),
        draw(random, 1, 3), r, s, sign, h, w, draw(random, 2, whole ? r : 6), draw(random, 2, whole ? s : 5));
    const auto p = program::parse(text);
    Plan plan(p, Dtype::F32);
    const auto found = sites_of(plan, "solve", 0);
    ASSERT_EQ(found.size(), 2u) << text;
    for (const auto& site : found) decide(plan, decision_for("solve", site));
    EXPECT_TRUE(sites_of(plan, "solve", 0).empty());
    const auto& sums = plan.program.scopes[0].sums;
    for (std::size_t i = 1; i < sums.size(); ++i) EXPECT_EQ(plan.range(sums[i].range).second, 1) << text;
    const std::string solved = program::to_text(plan.program);
    (solved.find("inside") == std::string::npos ? total : guarded) += 1;
    const LoopNest nest = emit(plan);
    ASSERT_NO_THROW(verify(nest)) << text << to_text(nest);
    expect_same(p, nest, random_arguments(p, random), solved);
    if (HasFatalFailure()) return;
  }
  EXPECT_GE(total, 30) << "every place has its term";
  EXPECT_GT(guarded, 30) << "some have none";
}

/// Of a strip of one column the rows are not one place: its columns keep their sum.
TEST(Solve, LeavesStripsAsTheyAre) {
  const auto p = program::parse(
      "input x[2,3,5,1]\nweight k[4,3,2,2]\n"
      "y[n: 2,o: 4,h: 4,w: 2] = sum[c: 3,r: 2,s: 2] x[n,c,h+r,w-s] * k[o,c,r,s]\n"
      "return y");
  Plan plan(p, Dtype::F32);
  EXPECT_TRUE(sites_of(plan, "solve", 0).empty());
}

TEST(Solve, GeneratorsBeginWithAProduct) {
  const auto p = program::parse(
      "input x[4,20,1,1]\nweight k[20,32,4,4]\n"
      "y[n: 4,o: 32,h: 4,w: 4] = sum[c: 20,r: 4,s: 4] x[n,c,h-r,w-s] * k[c,o,r,s]\n"
      "return y");
  const Schedule schedule = default_schedule(p, Dtype::F32, Target{});
  const LoopNest nest = apply(p, schedule);
  const std::string text = to_text(nest);
  EXPECT_EQ(text.find("else"), std::string::npos) << "nothing is guarded\n" << text;
  EXPECT_EQ(text.find("for r in"), std::string::npos) << text;
  Random random(6);
  expect_same(p, nest, random_arguments(p, random), to_text(schedule));
}

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
  for (const char* text :
       {"y[n: 2,h: 4] = sum[c: 2,r: 3] x[n,c,h-2*r] * w[c,r]",          // every second place has a term
        "y[n: 2,h: 4] = max[c: 2,r: 3] x[n,c,h-r] * w[c,r]",            // zeros count
        "y[n: 2,h: 4] = sum[c: 2,r: 3] (x[n,c,h-r] fill 1) * w[c,r]",   // no zero
        "y[n: 2,h: 4] = sum[c: 2,r: 3] (x[n,c,h-r] + w[c,r])",          // no factor
        "y[n: 2,h: 4] = sum[c: 2,r: 3] x[n,c,inside(h-r,3)] * w[c,r]",  // a guard of its own
        "y[n: 2,h: 4] = sum[c: 2,r: 3] x[n,c,(h-r)/2] * w[c,r]",        // two terms
        "y[n: 2,h: 4] = sum[c: 2,r: 3] x[n,c,r-1] * w[c,r]",            // the sum runs over less
        "y[n: 2,h: 4] = sum[c: 2,r: 3] x[0,c,n+h-r] * w[c,r]",          // every result has its weights
        "y[n: 1,h: 4] = sum[c: 2,r: 3] x[n,c,h-r] * w[c,r]",            // weights are used once
        "y[n: 2,h: 4] = sum[c: 2,r: 3] x[n,c,h-r] * w[n,r]"}) {         // so are these
    SCOPED_TRACE(text);
    Plan plan(program::parse(fmt::format("input x[2,2,1]\nweight w[2,3]\n{}\nreturn y", text)), Dtype::F32);
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
