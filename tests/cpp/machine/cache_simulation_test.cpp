// Accesses of nests run through simulated caches.
#include "machine/cache_simulation.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "../jit/random_nest.hpp"
#include "support/error.hpp"

namespace syno::machine {
namespace {

/// Caches of so many bytes and ways.
Machine with_caches(std::int64_t l1, int ways1, std::int64_t l2 = 1 << 20, int ways2 = 16) {
  Machine machine;
  machine.levels = {{"L1", l1, 1, 64, ways1, 1, 200, 100},
                    {"L2", l2, 1, 64, ways2, 5, 100, 100},
                    {"memory", 1 << 30, 1, 64, 0, 100, 20, 20}};
  return machine;
}

CacheTraffic of(const std::string& text, const Machine& machine, std::int64_t lines = 1) {
  return simulate_caches(nest::parse_loop_nest(text), machine, {lines});
}

TEST(SimulatedCaches, ACopyReadsAndWritesEachLineOnce) {
  const std::string text =
      "nest copy\ninput x: f32[1024]\noutput y: f32[1024]\nfor i in 0..64\n  for v in 0..16 vector\n"
      "    y[i * 16 + v] = x[i * 16 + v]\n";
  const CacheTraffic made = of(text, with_caches(32 << 10, 8));
  EXPECT_EQ(made.loads, 64);
  EXPECT_EQ(made.stores, 64);
  EXPECT_EQ(made.misses, (std::vector<std::int64_t>{128, 128}));
  EXPECT_EQ(of(text, with_caches(32 << 10, 8), 4).misses, (std::vector<std::int64_t>{32, 128}));
}

/// What fits stays; of what does not, replacing what was used longest ago keeps nothing.
TEST(SimulatedCaches, HoldWhatFits) {
  const auto swept = [](std::int64_t lines) {
    return fmt::format(
        "nest sum\ninput x: f32[{0}, 16]\noutput y: f32[16]\nfor t in 0..10\n  for i in 0..{0}\n"
        "    for v in 0..16 vector\n      y[v] max= x[i, v]\n",
        lines);
  };
  EXPECT_EQ(of(swept(63), with_caches(64 * 64, 64)).misses[0], 64);
  EXPECT_EQ(of(swept(128), with_caches(64 * 64, 64)).misses[0], 10 * 128 + 1);
  EXPECT_EQ(of(swept(128), with_caches(64 * 64, 64)).misses[1], 129);
  // Eight ways: lines a multiple of the sets apart fall on one another.
  const std::string apart =
      "nest sum\ninput x: f32[16, 4096]\noutput y: f32[]\nfor t in 0..10\n  for i in 0..16\n    y[] += x[i, "
      "0]\n";
  EXPECT_EQ(of(apart, with_caches(32 << 10, 8)).misses[0], 161);
  EXPECT_EQ(of(apart, with_caches(32 << 10, 32)).misses[0], 17);
}

/// A column of a matrix lies on as many pages as it has rows: what the TLB does not hold is walked to again.
TEST(SimulatedCaches, PagesOfRowsFarApart) {
  const auto columns = [](std::int64_t rows) {
    return fmt::format(
        "nest sum\ninput x: f32[{0}, 1024]\noutput y: f32[]\nfor t in 0..10\n  for i in 0..{0}\n    y[] += "
        "x[i, "
        "16 * t]\n",
        rows);
  };
  Machine machine = with_caches(32 << 10, 8);
  EXPECT_EQ(of(columns(100), machine).page_walks, 0);  // nothing is known
  machine.tlb = {64, 4096, 10};
  EXPECT_EQ(of(columns(63), machine).page_walks, 64);
  EXPECT_EQ(of(columns(100), machine).page_walks, 10 * 100 + 1);
  machine.tlb.page_bytes = 16 << 10;  // four rows
  EXPECT_EQ(of(columns(100), machine).page_walks, 26);
}

/// What repeated code reads again is in a register; a number that is added to is read as well.
TEST(SimulatedCaches, CountInstructions) {
  const CacheTraffic made =
      of("nest tile\ninput x: f32[10, 64]\ninput w: f32[10, 4]\noutput y: f32[4, 64]\nfor k in 0..10\n"
         "  for r in 0..4 unroll\n    for u in 0..4 unroll\n      for v in 0..16 vector\n"
         "        y[r, u * 16 + v] += w[k, r] * x[k, u * 16 + v]\n",
         with_caches(32 << 10, 8));
  EXPECT_EQ(made.stores, 10 * 16);
  EXPECT_EQ(made.loads, 10 * (4 + 4) + 10 * 16);
  // A number that repeated code adds to again and again.
  const CacheTraffic number =
      of("nest sum\ninput x: f32[8, 4]\noutput y: f32[]\nfor i in 0..8\n  for u in 0..4 unroll\n    y[] += "
         "x[i, u]\n",
         with_caches(32 << 10, 8));
  EXPECT_EQ(number.stores, 8);
  EXPECT_EQ(number.loads, 8 * 4 + 8);
  EXPECT_EQ(made.misses[0], 40 + 3 + 16);  // 160 bytes of w are three lines
}

/// ALT's Table 2: a tile that lies together, and the same of rows that lie apart; a miss brings four lines.
TEST(SimulatedCaches, ALTsTableTwo) {
  const auto tile = [](std::int64_t width, std::int64_t pitch) {
    return fmt::format(
        "nest tile\ninput x: f32[512, {1}] strides[{2}, 1]\noutput y: f32[4]\nfor i in 0..512\n"
        "  for j in 0..{0}\n    for v in 0..4 vector\n      y[v] max= x[i, j * 4 + v]\n",
        width / 4, width, pitch);
  };
  const Machine machine = with_caches(64 << 10, 4);
  const std::vector<std::int64_t> together = {32, 128, 512, 2048};  // the paper's predictions
  for (std::size_t i = 0; i < 4; ++i) {
    const std::int64_t width = std::vector<std::int64_t>{4, 16, 64, 256}[i];
    EXPECT_EQ(of(tile(width, width), machine, 4).misses[0] - 1, together[i]);
    EXPECT_GE(of(tile(width, 4096 + 16), machine, 4).misses[0] - 1, std::max<std::int64_t>(512, together[i]));
  }
}

/// Sets that hold more never miss more, and the least that can be missed is each line once.
TEST(SimulatedCaches, RandomNestsMissNoMoreWhereMoreIsHeld) {
  std::int64_t less = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const nest::LoopNest nest = jit::testing_nests::RandomNest(seed, nest::Dtype::F32).make();
    std::int64_t before = -1;
    for (const int ways : {1, 2, 4, 64}) {
      const CacheTraffic made = simulate_caches(nest, with_caches(256 * ways, ways));
      EXPECT_LE(made.misses[1], made.misses[0]);
      if (before >= 0) EXPECT_LE(made.misses[0], before) << seed;
      less += before >= 0 && made.misses[0] < before;
      before = made.misses[0];
    }
    std::int64_t lines = 0;
    for (const nest::Buffer& buffer : nest.buffers) {
      std::int64_t elements = 1;
      for (std::size_t d = 0; d < buffer.extents.size(); ++d)
        elements += (buffer.extents[d] - 1) * std::abs(buffer.strides[d]);
      lines += elements / 16 + 1;
    }
    EXPECT_LE(before, lines) << seed;
  }
  EXPECT_GT(less, 50);
}

TEST(SimulatedCaches, RefuseWhatTheyCannotCount) {
  EXPECT_THROW(
      of("nest n\nparameter n in 1..4\ninput x: f32[n]\noutput y: f32[]\ny[] = 0\n", with_caches(1 << 15, 8)),
      ShapeError);
  const std::string plain = "nest n\noutput y: f32[]\ny[] = 0\n";
  EXPECT_THROW(of(plain, with_caches(1 << 15, 8), 0), ShapeError);
  EXPECT_THROW(of(plain, with_caches(1 << 15, 8), 1025), ShapeError);
  EXPECT_EQ(of(plain, with_caches(1 << 15, 8)).misses[0], 1);
}

}  // namespace
}  // namespace syno::machine
