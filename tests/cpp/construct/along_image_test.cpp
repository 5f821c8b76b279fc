// Small images in registers: which windows they serve, and that they keep their meaning.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "construct/construct.hpp"
#include "program/text.hpp"
#include "schedule/fixture.hpp"

namespace syno::construct {

using namespace schedule;
namespace {

/// The sketches of the first scope of a program.
Sketches sketches(const program::Program& p, const Target& target = {}) {
  Construction c(p, Dtype::F32, target);
  Sketches found;
  along_image(c, p.tensor(p.scopes[0].output).name, facts_of(c, p.tensor(p.scopes[0].output).name), found);
  return found;
}

program::Program depthwise(std::int64_t channels, std::int64_t height, std::int64_t width, std::int64_t kh,
                           std::int64_t kw) {
  return program::parse(
      fmt::format("y[n,c,h,w] = sum[r,s] x[n,c,h+r-{},w+s-{}] * k[c,r,s]", kh / 2, kw / 2),
      {.sizes = {{"n", 2}, {"c", channels}, {"h", height}, {"w", width}, {"r", kh}, {"s", kw}}});
}

TEST(AlongImage, KeepsTheMeaningOfSmallWindows) {
  Random random(11);
  int built = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const auto at_most = [&](std::int64_t n) { return 1 + static_cast<std::int64_t>(random.below(n)); };
    const auto p = depthwise(at_most(4), 1 + at_most(8), 1 + at_most(10), at_most(4), at_most(4));
    for (const Sketch& sketch : sketches(p)) {
      ++built;
      Construction c(p, Dtype::F32, Target{});
      ASSERT_FALSE(sketch.write(c, sketch.counted));
      const LoopNest nest = apply(p, c.schedule);
      expect_same(p, nest, random_arguments(p, random), to_text(c.schedule));
      EXPECT_EQ(std::count_if(nest.buffers.begin(), nest.buffers.end(),
                              [](const Buffer& b) { return b.kind == BufferKind::Temporary; }),
                0)
          << "a copy was made:\n"
          << to_text(nest);
    }
  }
  EXPECT_GE(built, 20);
}

TEST(AlongImage, ServesVolumesAndPoolingToo) {
  Random random(12);
  for (const char* text : {"y[c: 3,d: 3,h: 4,w: 5] = sum[q: 3,r: 3,s: 3] x[c,d+q-1,h+r-1,w+s-1] * k[c,q,r,s]",
                           "y[c: 3,h: 6,w: 7] = max[r: 3,s: 3] x[c,h+r-1,w+s-1]"}) {
    const auto p = program::parse(text);
    const Sketches found = sketches(p);
    ASSERT_EQ(found.size(), 1u) << text;
    Construction c(p, Dtype::F32, Target{});
    ASSERT_FALSE(found[0].write(c, found[0].counted));
    expect_same(p, apply(p, c.schedule), random_arguments(p, random), to_text(c.schedule));
  }
}

TEST(AlongImage, LeavesTheRestToOthers) {
  EXPECT_EQ(sketches(depthwise(8, 7, 7, 3, 3)).size(), 1u);
  EXPECT_TRUE(sketches(depthwise(8, 7, 7, 3, 3), Target{256, 16, 1}).empty()) << "no mask registers";
  EXPECT_TRUE(sketches(depthwise(8, 28, 28, 3, 3)).empty()) << "too many positions for registers";
  EXPECT_TRUE(sketches(depthwise(8, 7, 7, 7, 7)).empty()) << "too many taps";
  const program::ParseOptions sizes{.sizes = {{"c", 8}, {"h", 7}, {"w", 7}, {"r", 3}, {"s", 3}}};
  EXPECT_TRUE(sketches(program::parse("y[c,h,w] = sum[r,s] x[c,2*h+r-1,2*w+s-1] * k[c,r,s]", sizes)).empty())
      << "positions two apart";
  EXPECT_TRUE(sketches(program::parse("y[c,h,w] = sum[r,s] x[c,h+r,w+s] * k[c,r,s]", sizes)).empty())
      << "nothing outside the image";
}

}  // namespace
}  // namespace syno::construct
