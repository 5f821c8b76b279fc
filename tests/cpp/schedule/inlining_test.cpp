// Inlining and everything after it grow with the program, not with the number of ways through it: what is
// counted here is work, never time.
#include <gtest/gtest.h>

#include <string>

#include "fixture.hpp"
#include "schedule/decisions.hpp"
#include "schedule/plan.hpp"
#include "support/error.hpp"

namespace syno::schedule {
namespace {

/// t1 = first(t0), t2 = first(t1), ...: `step` with `@` where the tensor before stands.
std::string chain(int length, const std::string& step) {
  std::string text = "input t0[24]\n";
  for (int k = 1; k <= length; ++k) {
    std::string body = step;
    for (auto at = body.find('@'); at != std::string::npos; at = body.find('@'))
      body.replace(at, 1, fmt::format("t{}", k - 1));
    text += fmt::format("t{}[i: 24] = {}\n", k, body);
  }
  return text;
}

struct Made {
  std::size_t inlined = 0, scopes = 0, values = 0;
};

Made made_of(const std::string& text, bool check = true) {
  const auto p = program::parse(text);
  const Schedule schedule = default_schedule(p, Dtype::F32, Target{});
  const LoopNest nest = apply(p, schedule);
  EXPECT_NO_THROW(verify(nest));
  Made made;
  for (const Decision& decision : schedule.trace) made.inlined += decision.name == "inline";
  made.scopes = p.scopes.size() - made.inlined;
  made.values = nest.values.size();
  Random random(7);
  if (check) expect_same(p, nest, random_arguments(p, random), text);
  return made;
}

TEST(Inlining, WhatIsReadAtSeveralPlacesGrowsByThem) {
  // Three times the nodes in each line: 3^24 of them, if all were inlined.
  const std::string step = "@[i] + @[i]*@[i]";
  const Made twelve = made_of(chain(12, "0.25*" + step)), some = made_of(chain(24, "0.25*" + step));
  EXPECT_LT(twelve.values, 12 * 400U);
  EXPECT_LT(some.values, 24 * 400U);
  EXPECT_GT(some.inlined, some.scopes) << "most lines still become one with another";
  // A statement that says as much at once is one loop, whatever its size.
  EXPECT_EQ(made_of(chain(3, step)).scopes, 1U);
}

TEST(Inlining, ChainsAreCutIntoBodiesOfLimitedSize) {
  const Made few = made_of(chain(200, "relu(@[i]) + 1"), false);
  const Made many = made_of(chain(800, "relu(@[i]) + 1"), false);
  EXPECT_GT(few.inlined, 20 * few.scopes) << "inlining is what makes chains fast";
  EXPECT_LE(many.values, 5 * few.values);
  EXPECT_LE(many.scopes, 4 * few.scopes + 4);
}

TEST(Inlining, RepeatedWorkIsCountedOverAllLevels) {
  // Each level reads its input at two places: inlining all would compute the first one 2^10 times.
  const Made made = made_of(chain(10, "@[i] + @[(i+1)%24]"));
  EXPECT_GE(made.scopes, 4U);
  EXPECT_LT(made.values, 2000U);
}

TEST(Inlining, IndicesAreCountedAsWell) {
  // The index doubles with each level, though its value does not.
  const Made made = made_of(chain(40, "@[(i + i/2) % 24]"));
  EXPECT_LT(made.values, 4000U);
  EXPECT_GT(made.scopes, 4U);
}

TEST(Inlining, WideGraphsKeepTheirSize) {
  std::string text = "input x[24]\n", sum = "y[i: 24] = 0";
  for (int k = 0; k < 600; ++k) {
    text += fmt::format("t{}[i: 24] = x[i] * {}\n", k, k % 5);
    sum += fmt::format(" + t{}[i]", k);
  }
  const Made made = made_of(text + sum, false);
  EXPECT_LT(made.values, 20'000U);
}

TEST(Inlining, KeepsFewerScalarsThanItMakes) {
  const auto p = program::parse(chain(2000, "relu(@[i]) + 1"));
  Construction c(p, Dtype::F32, Target{});
  const std::size_t before = c.plan.program.scalars.size();
  inline_cheap_scopes(c);
  EXPECT_LE(c.plan.program.scalars.size(), 3 * before);
}

TEST(Inlining, ATraceThatAsksForTooMuchIsRefused) {
  const auto p = program::parse(chain(30, "@[i] + @[i]*@[i]"));
  Schedule schedule;
  for (int k = 1; k < 30; ++k) schedule.trace.push_back({"inline", fmt::format("t{}", k), {}, {}, "", {}});
  try {
    apply(p, schedule);
    FAIL() << "a body of 3^30 parts";
  } catch (const ScheduleError& error) {
    EXPECT_NE(std::string(error.what()).find("parts"), std::string::npos) << error.what();
  }
}

TEST(Epilogues, LongChainsOfReductionsAndFunctionsFuseEach) {
  std::string text = "input t0[6]\n";
  for (int k = 1; k <= 40; ++k)
    text +=
        fmt::format("s{0}[i: 6] = mean[j: 3] t{1}[(i+j)%6]\nt{0}[i: 6] = relu(s{0}[i]) + 0.5\n", k, k - 1);
  const auto p = program::parse(text);
  const Schedule schedule = default_schedule(p, Dtype::F32, Target{});
  std::size_t fused = 0;
  for (const Decision& decision : schedule.trace) fused += decision.name == "epilogue";
  EXPECT_EQ(fused, 40U);
  Random random(8);
  expect_same(p, apply(p, schedule), random_arguments(p, random), text);
}

}  // namespace
}  // namespace syno::schedule
