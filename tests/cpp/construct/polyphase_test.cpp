// Results by their place in a block as channels of their own: what that makes of random transposed
// convolutions, when construction does so, and what it must leave alone.
#include <gtest/gtest.h>

#include <algorithm>

#include "construct/construct.hpp"
#include "construct/gensor.hpp"
#include "construct/machines.hpp"
#include "program/builders.hpp"
#include "schedule/decisions.hpp"
#include "schedule/fixture.hpp"
#include "support/error.hpp"

namespace syno::construct {

using namespace schedule;
namespace {

using nest::Dtype;

program::ConvAttributes random_transposed(Random& random) {
  program::ConvAttributes a;
  a.groups = draw(random, 1, 2);
  a.in_channels = a.groups * draw(random, 1, 3);
  a.out_channels = a.groups * draw(random, 1, 3);
  for (std::int64_t rank = draw(random, 1, 2); rank > 0; --rank) {
    a.in_size.push_back(draw(random, 3, 6));
    a.kernel.push_back(draw(random, 1, 5));
    a.stride.push_back(draw(random, 1, 4));
    a.dilation.push_back(draw(random, 1, 2));
    a.pad_begin.push_back(draw(random, 0, (a.kernel.back() - 1) * a.dilation.back() / 2));
    a.pad_end.push_back(a.pad_begin.back());
    a.output_padding.push_back(draw(random, 0, std::max(a.stride.back(), a.dilation.back()) - 1));
  }
  return a;
}

/// Random transposed convolutions of all strides, kernels, dilations, borders and groups: both ways they mean
/// what the program means, and the row makes blocks.
TEST(Polyphase, KeepsTheMeaningOfTransposedConvolutions) {
  Random random(11);
  int separated = 0, joined = 0;
  for (int trial = 0; trial < 160; ++trial) {
    const auto p = program::conv_transposed(random_transposed(random));
    SCOPED_TRACE(program::to_text(p));
    Plan plan(p, Dtype::F32);
    for (std::size_t s = 0; s < plan.scopes.size(); ++s)
      for (auto sums = sites_of(plan, "solve", s); !sums.empty(); sums = sites_of(plan, "solve", s))
        decide(plan, decision_for("solve", sums.front()));
    const auto sites = sites_of(plan, "polyphase", 0);
    if (sites.empty()) continue;
    ASSERT_EQ(sites.size(), 1u) << "all iterators at once";
    const std::size_t rank = plan.program.scopes[0].traversal.size();
    decide(plan, {"polyphase", sites[0].scope, {}, {}, "", {"phases"}});
    EXPECT_TRUE(sites_of(plan, "polyphase", 0).empty()) << "once";
    ++separated;
    joined += plan.program.scopes[plan.scope_named("phases")].traversal.size() == rank;
    const LoopNest nest = emit(plan);
    ASSERT_NO_THROW(verify(nest)) << to_text(nest);
    expect_same(p, nest, random_arguments(p, random), to_text(nest));
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(separated, 30);
  EXPECT_GT(joined, 15) << "channels and phases are one row of channels";
}

TEST(Polyphase, IsConstructedWhereItIsPredictedToTakeLessTime) {
  const Machine machine = desktop();
  const auto separated = [&](std::int64_t channels) {
    program::ConvAttributes a;
    a.in_channels = 32;
    a.out_channels = channels;
    a.in_size = {16, 16};
    a.kernel = {5, 5};
    a.stride = {2, 2};
    a.dilation = {1, 1};
    a.pad_begin = a.pad_end = {2, 2};
    a.output_padding = {1, 1};
    const auto p = program::conv_transposed(a);
    ConstructOptions options;
    options.constants = {"w"};
    const Constructed made = construct(p, Dtype::F32, machine, options);
    Random random(5);
    expect_same(p, apply(p, made.schedule), random_arguments(p, random), to_text(made.schedule));
    return std::any_of(made.schedule.trace.begin(), made.schedule.trace.end(),
                       [](const Decision& d) { return d.name == "polyphase"; });
  };
  EXPECT_TRUE(separated(1)) << "a channel is no vector";
  EXPECT_FALSE(separated(64)) << "channels fill vectors as they are";
}

TEST(Polyphase, NeedsPlacesInBlocks) {
  for (const char* text :
       {"y[c: 8,w: 12] = sum[d: 6] x[d,w] * k[c,d]",                        // no remainder
        "y[c: 8,w: 12] = sum[d: 6] x[d,(w+1)%3] * k[c,d,w%3]",              // two of them
        "y[c: 8,w: 12] = sum[d: 6] x[d,(2*w+1)%3] * k[c,d]",                // not of w itself
        "y[c: 8,w: 12] = sum[d: 6] x[d,(w+d)%3] * k[c,d]",                  // nor of it alone
        "y[c: 8,w: 12] = x[c,(w+1)/3] * k[(w+1)%3]",                        // no sum
        "y[c: 8,w: 3] = sum[d: 6] x[d,(w+1)%3] * k[c,d]",                   // one block
        "y[c: 8,w: 12] = sum[d: 6] log(x[d,(w+1)/3]) * k[c,d,(w+1)%3]"}) {  // not everywhere
    SCOPED_TRACE(text);
    Plan plan(program::parse(text), Dtype::F32);
    EXPECT_TRUE(sites_of(plan, "polyphase", 0).empty());
    EXPECT_THROW(decide(plan, {"polyphase", "y", {}, {}, "", {}}), ScheduleError);
  }
  Plan plan(program::parse("y[c: 8,w: 12] = sum[d: 6] x[d,(w+1)/3] * k[c,d,(w+1)%3]"), Dtype::F32);
  EXPECT_FALSE(sites_of(plan, "polyphase", 0).empty());
  EXPECT_THROW(decide(plan, {"polyphase", "y", {}, {}, "", {"x"}}), ScheduleError) << "the name is taken";
  decide(plan, {"split", "y", {"w"}, {2}, "", {}});
  EXPECT_THROW(decide(plan, {"polyphase", "y", {}, {}, "", {}}), ScheduleError) << "its loops were changed";
  Plan read(
      program::parse("t[c: 5,u: 8] = sum[d: 4] x[d,u/4] * k[c,d,u%4]\ny[c: 5,h: 8] = t[c,4*(h/4)+(h+3)%4]"),
      Dtype::F32);
  decide(read, {"stage", "y", {}, {0}, "t", {"t_s"}});
  EXPECT_THROW(decide(read, {"polyphase", "t", {}, {}, "", {}}), ScheduleError)
      << "how far t_s reaches is open";
}

}  // namespace
}  // namespace syno::construct
