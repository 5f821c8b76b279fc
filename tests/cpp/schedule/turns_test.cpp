// Results computed in the order their operands are read in: what is turned, and that it keeps its meaning.
#include <gtest/gtest.h>

#include <algorithm>

#include "fixture.hpp"
#include "schedule/decisions.hpp"
#include "support/error.hpp"

namespace syno::schedule {
namespace {

struct Turned {
  const char* text;
  const char* loop;
  const char* straight;  ///< a part of the loop nest's text: how the weights are read then
};

class EveryTurn : public ::testing::TestWithParam<Turned> {};

TEST_P(EveryTurn, KeepsTheMeaningAndReadsInOrder) {
  Random random(5);
  const auto p = program::parse(GetParam().text);
  Plan plan(p, Dtype::F32);
  const auto sites = sites_of(plan, "turn", 0);
  ASSERT_TRUE(std::any_of(sites.begin(), sites.end(),
                          [](const auto& site) { return site.iterator == GetParam().loop; }));
  decide(plan, {"turn", "y", {GetParam().loop}, {}, "", {}});
  EXPECT_TRUE(sites_of(plan, "turn", 0).empty()) << "turned once";
  const LoopNest nest = emit(plan);
  ASSERT_NO_THROW(verify(nest)) << to_text(nest);
  EXPECT_NE(to_text(nest).find(GetParam().straight), std::string::npos) << to_text(nest);
  expect_same(p, nest, random_arguments(p, random), to_text(nest));
  const Schedule schedule = default_schedule(p, Dtype::F32, Target{});
  EXPECT_TRUE(std::any_of(schedule.trace.begin(), schedule.trace.end(), [](const Decision& d) {
    return d.name == "turn";
  })) << to_text(schedule);
  expect_same(p, apply(p, schedule), random_arguments(p, random), to_text(schedule));
}

INSTANTIATE_TEST_SUITE_P(
    Programs, EveryTurn,
    ::testing::Values(
        Turned{"y[c: 20,h: 5,w: 7] = sum[d: 6] x[d,h,(w+1)%7] * k[c,d,(w+1)%7]", "w", "k[c, d, w]"},
        Turned{"y[c: 20,h: 5,w: 7] = sum[d: 6,r: 3] x[d,(w+6)%7,h+r-1] * k[c,r,d,(w+6)%7]", "w",
               "k[c, r, d, w]"},
        Turned{"y[c: 9,h: 12,w: 3] = sum[d: 6] x[d,w,4*(h/4)+(h+3)%4] * k[c,d,(h+3)%4]", "h",
               "k[c, d, h % 4]"},
        Turned{"y[c: 9,h: 12,w: 3] = sum[d: 6,r: 3] x[d,w,4*(h/4)+inside(r+(h+1)%4-1,4)] * k[c,r,d,(h+1)%4]",
               "h", "k[c, r, d, h % 4]"}));

TEST(Turn, NeedsReadsThatAgree) {
  for (const char* text :
       {"y[c: 8,w: 7] = sum[d: 6] x[d,(w+1)%7] * k[c,d]",          // one read alone: its copy is turned
        "y[c: 8,w: 7] = sum[d: 6] x[d,(w+1)%7] * k[c,d,(w+2)%7]",  // by two
        "y[c: 8,w: 7] = sum[d: 6] x[d,(w+1)%7] * k[c,d,w]",        // one of them not at all
        "y[c: 8,w: 7] = sum[d: 6] x[d,(w+1)%5] * k[c,d,(w+1)%5]",  // blocks that do not divide
        "y[c: 8,w: 12] = sum[d: 6] x[d,(w+1)%4] * k[c,d,(w+1)%4,w/3]",
        "y[c: 8,w: 12] = sum[d: 6] x[d,(w+1)%4] * k[c,d,(w+1)%4,(w+1)/4]",
        "y[c: 8,w: 7] = sum[d: 6] x[d,(w+d)%7] * k[c,d,(w+d)%7]"}) {
    Plan plan(program::parse(text), Dtype::F32);
    EXPECT_TRUE(sites_of(plan, "turn", 0).empty()) << text;
    EXPECT_THROW(decide(plan, {"turn", "y", {"w"}, {}, "", {}}), ScheduleError) << text;
  }
  Plan plan(program::parse("y[c: 8,w: 7] = sum[d: 6] x[d,(w+1)%7] * k[c,d,(w+1)%7]"), Dtype::F32);
  EXPECT_THROW(decide(plan, {"turn", "y", {}, {}, "", {}}), ScheduleError);
  EXPECT_THROW(decide(plan, {"turn", "y", {"d"}, {}, "", {}}), ScheduleError);
  decide(plan, {"split", "y", {"c"}, {4}, "", {}});
  EXPECT_THROW(decide(plan, {"turn", "y", {"w"}, {}, "", {}}), ScheduleError) << "its loops were changed";
}

}  // namespace
}  // namespace syno::schedule
