// Pieces of loops in which it is known what is read: tensors one behind the other, borders, rotations.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "construct/analysis.hpp"
#include "construct/construct.hpp"
#include "schedule/fixture.hpp"
#include "schedule/schedule.hpp"

namespace syno::construct {

using namespace schedule;
namespace {

/// y = some tensors one behind the other along a dimension, chosen between by halves.
std::string joined_text(Random& random) {
  const std::size_t rank = 1 + random.below(3), dim = random.below(rank);
  std::vector<std::int64_t> extents, ends;
  for (std::size_t d = 0; d < rank; ++d) extents.push_back(draw(random, 1, d + 1 == rank ? 40 : 6));
  const std::int64_t parts = draw(random, 2, 5);
  std::string inputs;
  for (std::int64_t k = 0; k < parts; ++k) {
    const std::int64_t own = draw(random, 1, 21);
    ends.push_back((ends.empty() ? 0 : ends.back()) + own);
    std::vector<std::string> shape;
    for (std::size_t d = 0; d < rank; ++d) shape.push_back(std::to_string(d == dim ? own : extents[d]));
    inputs += fmt::format("input x{}[{}]; ", k, fmt::join(shape, ","));
  }
  const std::function<std::string(std::size_t, std::size_t)> chosen = [&](std::size_t a, std::size_t b) {
    if (b == a + 1) {
      std::vector<std::string> at;
      for (std::size_t d = 0; d < rank; ++d)
        at.push_back(d == dim && a > 0 ? fmt::format("i{} - {}", d, ends[a - 1]) : fmt::format("i{}", d));
      return fmt::format("x{}[{}]", a, fmt::join(at, ","));
    }
    const std::size_t half = (a + b) / 2;
    return fmt::format("select(index(i{}) < {}, {}, {})", dim, ends[half - 1], chosen(a, half),
                       chosen(half, b));
  };
  std::vector<std::string> loops;
  for (std::size_t d = 0; d < rank; ++d)
    loops.push_back(fmt::format("i{}: {}", d, d == dim ? ends.back() : extents[d]));
  return fmt::format("{}y[{}] = {}\nreturn y", inputs, fmt::join(loops, ", "), chosen(0, ends.size()));
}

/// y = x with a border that mirrors, repeats or wraps around.
std::string bordered_text(Random& random) {
  const std::size_t rank = 1 + random.below(3);
  const std::uint64_t kind = random.below(3);
  std::vector<std::string> shape, loops;
  std::vector<std::int64_t> extents, before, behind;
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t n = draw(random, 2, d + 1 == rank ? 45 : 6);
    extents.push_back(n);
    before.push_back(draw(random, 0, n - 1));
    behind.push_back(draw(random, 0, n - 1));
    shape.push_back(std::to_string(n));
    loops.push_back(fmt::format("i{}: {}", d, n + before.back() + behind.back()));
  }
  const std::function<std::string(std::vector<std::string>)> read = [&](std::vector<std::string> at) {
    const std::size_t d = at.size();
    if (d == rank) return fmt::format("x[{}]", fmt::join(at, ","));
    const auto with = [&](std::string index) {
      auto longer = at;
      longer.push_back(std::move(index));
      return read(std::move(longer));
    };
    const std::int64_t n = extents[d], a = before[d];
    if (kind == 2) return with(fmt::format("(i{} + {}) % {}", d, n - a, n));
    const std::string first = kind == 0 ? fmt::format("{} - i{}", a, d) : "0";
    const std::string last = kind == 0 ? fmt::format("{} - i{}", 2 * n - 2 + a, d) : std::to_string(n - 1);
    const std::string body = fmt::format("select(index(i{}) < {}, {}, {})", d, a + n,
                                         with(fmt::format("i{} - {}", d, a)), with(last));
    return fmt::format("select(index(i{}) >= {}, {}, {})", d, a, body, with(first));
  };
  return fmt::format("input x[{}]; y[{}] = {}\nreturn y", fmt::join(shape, ","), fmt::join(loops, ", "),
                     read({}));
}

/// What two loops decide together, and what one decides of what is computed.
std::string together_text(Random& random) {
  const std::int64_t m = draw(random, 1, 20), n = draw(random, 1, 40);
  return fmt::format(
      "input a[{0},{1}]; y[i: {0}, j: {1}] = select(index(i) - index(j) <= {2} and 2 * index(j) < {3} or "
      "index(i) < {4}, exp(a[i,j]), select(index(j) <= {3}, a[i, j + {5}], 2))\nreturn y",
      m, n, draw(random, -3, 3), draw(random, 0, 2 * n), draw(random, 0, m), draw(random, -4, 4));
}

TEST(SwitchCuts, EveryPieceReadsWhatTheWholeWould) {
  Random random(71);
  for (int trial = 0; trial < 150; ++trial) {
    const std::string text = trial % 5 < 2   ? joined_text(random)
                             : trial % 5 < 4 ? bordered_text(random)
                                             : together_text(random);
    const auto p = program::parse(text);
    const Target target = trial % 2 != 0 ? Target{} : Target{256, 16, 2};
    const Schedule schedule = default_schedule(p, trial % 3 == 0 ? Dtype::F64 : Dtype::F32, target);
    const LoopNest nest = apply(p, schedule);
    ASSERT_NO_THROW(verify(nest)) << text << to_text(schedule) << to_text(nest);
    expect_same(p, nest, random_arguments(p, random), text + "\n" + to_text(schedule));
    if (HasFatalFailure()) return;
  }
}

std::vector<std::int64_t> cuts_of(const Schedule& schedule, std::string_view loop) {
  std::vector<std::int64_t> cuts;
  for (const Decision& decision : schedule.trace)
    if (decision.name == "peel" && decision.loops.front() == loop) cuts = decision.numbers;
  return cuts;
}

TEST(SwitchCuts, TensorsThatAreJoinedAreCopiedEachByItself) {
  const auto p = program::parse(
      "input a[3,70,9]; input b[3,30,9]\n"
      "y[n: 3, c: 100, w: 9] = select(index(c) < 70, a[n,c,w], b[n,c - 70,w])\nreturn y");
  const Schedule schedule = default_schedule(p, Dtype::F32, Target{});
  EXPECT_EQ(cuts_of(schedule, "c"), std::vector<std::int64_t>{70});
  const LoopNest nest = apply(p, schedule);
  for (const auto& value : nest.values) {
    EXPECT_NE(value.kind, ValueKind::Select) << to_text(nest);
    EXPECT_TRUE(value.guards.empty()) << to_text(nest);
  }
}

TEST(SwitchCuts, DimensionsBehindOneThatIsCutAreOneLoop) {
  const auto p = program::parse(
      "input a[3,4,5,6]; input b[3,2,5,6]\n"
      "y[n: 3, c: 6, h: 5, w: 6] = select(index(c) < 4, a[n,c,h,w], b[n,c - 4,h,w])\nreturn y");
  const Schedule schedule = default_schedule(p, Dtype::F32, Target{});
  const auto fused = std::count_if(schedule.trace.begin(), schedule.trace.end(),
                                   [](const Decision& decision) { return decision.name == "fuse"; });
  EXPECT_EQ(fused, 1) << to_text(schedule);  // h with w, not c with them
}

TEST(SwitchCuts, WhatSeveralLoopsDecideIsCutNowhere) {
  const auto p =
      program::parse("input a[40,40]; y[i: 40, j: 40] = select(index(i) < index(j), 0, a[i,j])\nreturn y");
  Construction c(p, Dtype::F32, Target{}, {});
  for (const std::string& loop : c.leaves("y")) EXPECT_TRUE(switch_cuts(c.plan, 0, loop, 64).empty());
  EXPECT_EQ(loops_that_switch(c.plan, 0), (std::vector<bool>{true, true}));
}

TEST(SwitchCuts, MoreCutsThanAskedForAreNone) {
  const auto p = program::parse(
      "input a[10]; y[i: 40] = select(index(i) < 10, a[i], select(index(i) < 20, a[i - 10], a[i % 10]))\n"
      "return y");
  Construction c(p, Dtype::F32, Target{}, {});
  EXPECT_EQ(switch_cuts(c.plan, 0, "i", 64), (std::vector<std::int64_t>{10, 20, 30}));
  EXPECT_TRUE(switch_cuts(c.plan, 0, "i", 2).empty());
}

}  // namespace
}  // namespace syno::construct
