// A sum of which only some terms lie inside of what they read runs over those, and means the same.
#include <gtest/gtest.h>

#include <algorithm>

#include "construct/construct.hpp"
#include "fixture.hpp"
#include "program/builders.hpp"
#include "schedule/decisions.hpp"
#include "support/error.hpp"

namespace syno::schedule {
namespace {

/// A window of `taps`, `dilation` apart, over a line of `line` elements with `before` zeros before it.
struct Window {
  std::int64_t line, taps, dilation, before, stride, out;

  /// Taps that some place of the window has inside the line; half open.
  std::pair<std::int64_t, std::int64_t> inside() const {
    std::int64_t first = taps, end = 0;
    for (std::int64_t h = 0; h < out; ++h)
      for (std::int64_t r = 0; r < taps; ++r) {
        const std::int64_t at = stride * h + dilation * r - before;
        if (at < 0 || at >= line) continue;
        first = std::min(first, r);
        end = std::max(end, r + 1);
      }
    return {first, end};
  }
  std::string text() const {
    return fmt::format("y[o,h] = sum[c,r] x[c,{}*h+{}*r-{}] * w[o,c,r]", stride, dilation, before);
  }
  program::Program program() const {
    program::ParseOptions options;
    options.sizes = {{"o", 3}, {"h", out}, {"c", 2}, {"r", taps}};
    options.shapes = {{"x", {2, line}}};
    return program::parse(text(), options);
  }
};

Window window(Random& random) {
  Window w{draw(random, 1, 6), draw(random, 1, 7), draw(random, 1, 4), 0,
           draw(random, 1, 3), draw(random, 1, 6)};
  w.before = draw(random, 0, w.dilation * w.taps);
  return w;
}

TEST(Tighten, KeepsTheTermsThatLieInsideForSomePlace) {
  Random random(29);
  int tightened = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const Window w = window(random);
    const auto [first, end] = w.inside();
    const program::Program p = w.program();
    SCOPED_TRACE(w.text());
    Plan plan(p, Dtype::F32);
    const auto found = sites_of(plan, "tighten", 0);
    const auto of_window = std::find_if(found.begin(), found.end(),
                                        [](const derive::Site& site) { return site.iterator == "r"; });
    // Nothing is inside, or all of it: left as it is. Between two places of a stride all that lies there
    // counts as possible.
    if (w.stride == 1) ASSERT_EQ(of_window == found.end(), end <= first || (first == 0 && end == w.taps));
    if (of_window == found.end()) continue;
    ++tightened;
    if (w.stride == 1) EXPECT_EQ(of_window->numbers, (std::vector{first, end}));
    if (first < end) {
      EXPECT_LE(of_window->numbers[0], first);
      EXPECT_GE(of_window->numbers[1], end);
    }
    decide(plan, decision_for("tighten", *of_window));
    const LoopNest nest = emit(plan);
    ASSERT_NO_THROW(verify(nest)) << to_text(nest);
    expect_same(p, nest, random_arguments(p, random), w.text());
    const Schedule schedule = default_schedule(p, Dtype::F32, Target{});
    expect_same(p, apply(p, schedule), random_arguments(p, random), to_text(schedule));
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(tightened, 60);
}

TEST(Tighten, RefusesWhatIsNotZeroOutside) {
  for (const char* text : {"y[h] = max[c,r] x[c,h+r-2] * w[c,r]",           // zeros count
                           "y[h] = sum[c,r] (x[c,h+r-2] fill 1) * w[c,r]",  // no zero
                           "y[h] = sum[c,r] (x[c,h+r-2] + w[c,r])",         // no factor
                           "y[h] = sum[c,r] exp(x[c,h+r-2]) * w[c,r]",      // exp(0) is 1
                           "y[h] = sum[c,r] x[c,(h+r-2)%1] * w[c,r]"}) {    // inside everywhere
    SCOPED_TRACE(text);
    program::ParseOptions options;
    options.sizes = {{"h", 1}, {"r", 5}, {"c", 2}};
    options.shapes = {{"x", {2, 1}}};
    Plan plan(program::parse(text, options), Dtype::F32);
    EXPECT_TRUE(sites_of(plan, "tighten", 0).empty());
    EXPECT_THROW(decide(plan, {"tighten", "y", {"r"}, {2, 3}, "", {}}), ScheduleError);
  }
}

TEST(Tighten, TakesTheRangeThatIsFoundBeforeDecisionsAboutLoops) {
  const Window w{1, 3, 1, 1, 1, 1};
  const auto p = w.program();
  for (const auto& numbers :
       std::vector<std::vector<std::int64_t>>{{}, {1}, {0, 2}, {1, 3}, {2, 1}, {0, 0}}) {
    Plan plan(p, Dtype::F32);
    EXPECT_THROW(decide(plan, {"tighten", "y", {"r"}, numbers, "", {}}), ScheduleError);
    EXPECT_THROW(decide(plan, {"tighten", "y", {"q"}, {1, 2}, "", {}}), ScheduleError);
    EXPECT_THROW(decide(plan, {"tighten", "y", {}, {1, 2}, "", {}}), ScheduleError);
    EXPECT_NO_THROW(decide(plan, {"tighten", "y", {"r"}, {1, 2}, "", {}}));
  }
  Plan later(p, Dtype::F32);
  decide(later, {"split", "y", {"o"}, {2}, "", {}});
  EXPECT_THROW(decide(later, {"tighten", "y", {"r"}, {1, 2}, "", {}}), ScheduleError);
}

/// Of a 3 x 3 x 3 window over one image, constant weights of the middle third alone are packed.
TEST(Tighten, WindowsLargerThanWhatTheyReadPackTheWeightsTheyUse) {
  program::ConvAttributes a;
  a.in_channels = 16;
  a.out_channels = 32;
  a.in_size = {1, 4, 4};
  a.kernel = {3, 3, 3};
  a.stride = a.dilation = {1, 1, 1};
  a.pad_begin = a.pad_end = {1, 1, 1};
  const auto p = program::conv(a);
  const Schedule schedule = default_schedule(p, Dtype::F32, Target{}, {"w"});
  EXPECT_EQ(std::count_if(schedule.trace.begin(), schedule.trace.end(),
                          [](const Decision& d) { return d.name == "tighten"; }),
            1)
      << to_text(schedule);
  Random random(5);
  expect_same(p, apply(p, schedule), random_arguments(p, random), to_text(schedule));
}

}  // namespace
}  // namespace syno::schedule
