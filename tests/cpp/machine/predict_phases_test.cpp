// What is moved while something else is computed, what waits, and what parts of a nest share: phases, inputs
// that come from far, loops that were cut in two.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "machine/predict.hpp"
#include "nest/loop_nest.hpp"
#include "support/random.hpp"

namespace syno::machine {
namespace {

/// Small caches, so that small nests overflow them.
Machine three_caches() {
  Machine machine;
  machine.vector_bits = 512;
  machine.levels = {{"L1", 4 << 10, 1, 64, 0, 1, 200, 100},
                    {"L2", 32 << 10, 1, 64, 0, 5, 100, 100},
                    {"L3", 1 << 20, 1, 64, 0, 15, 80, 80},
                    {"memory", 1 << 30, 1, 64, 0, 100, 20, 20}};
  return machine;
}

Prediction predicted_so(const std::string& text, const PredictOptions& options = {}) {
  return predict(nest::parse_loop_nest(text), three_caches(), options);
}

// The one computes without reading from afar, the other hardly computes; the shorter takes a third of the
// longer one's time or more.
constexpr const char* kComputes =
    "{0}for j in 0..16\n{0}  for i in 0..32768\n{0}    for l in 0..16 vector\n{0}      y[j, l] += w[l] * w[l "
    "+ 16]\n";
constexpr const char* kMoves =
    "{0}for i in 0..{1}\n{0}  for l in 0..16 vector\n{0}    z[i, l] = x[i, l] + 1\n";
constexpr const char* kBuffers =
    "nest n\ninput x: f32[65536, 16]\ninput w: f32[32]\noutput y: f32[16, 16]\noutput z: f32[65536, 16]\n";

/// One after the other they take as long as both together, in turns in short pieces as the longer one.
TEST(PredictedPhases, WhatIsMovedWaitsForNothingThatIsComputedLater) {
  const double computing = predicted_so(kBuffers + fmt::format(kComputes, "")).seconds;
  const double moving = predicted_so(kBuffers + fmt::format(kMoves, "", 65536)).seconds;
  const double apart =
      predicted_so(kBuffers + fmt::format(kComputes, "") + fmt::format(kMoves, "", 65536)).seconds;
  EXPECT_NEAR(apart / (computing + moving), 1, 0.02);
  const double woven = predicted_so(std::string(kBuffers) +
                                    "for i in 0..65536\n  for j in 0..8\n    for l in 0..16 vector\n"
                                    "      y[j, l] += w[l] * w[l + 16]\n"
                                    "  for l in 0..16 vector\n    z[i, l] = x[i, l] + 1\n")
                           .seconds;
  EXPECT_LT(woven, 0.85 * (computing + moving));
  EXPECT_GT(woven, 0.99 * std::max(computing, moving));
}

/// Long sums whose results are stored far away: what the sums ask for ahead comes while they are computed.
TEST(PredictedPhases, WhatIsAskedForComesWhileSumsAreComputed) {
  const auto seconds = [](const char* asks) {
    return predicted_so(
               std::string("nest n\ninput x: f32[256, 4096]\ninput w: f32[32]\noutput y: f32[256, 16]\n"
                           "for o in 0..256\n  for i in 0..2048\n") +
               asks +
               "    for l in 0..16 vector\n      y[o, l] += w[l] * w[l + 16]\n"
               "  for k in 0..256\n    for l in 0..16 vector\n      y[o, l] += x[o, 16 * k + l]\n")
        .seconds;
  };
  EXPECT_LT(seconds("    prefetch x[o, 16 * i]\n"), 0.9 * seconds(""));
}

/// Each call reads them again from the level that holds all that was read since.
TEST(PredictedPhases, FarInputsComeFromTheirLevelAtEachCall) {
  const std::string text =
      "nest n\ninput x: f32[128, 16]\ninput w: f32[128, 16]\noutput y: f32[16]\n"
      "for i in 0..128\n  for l in 0..16 vector\n    y[l] += x[i, l] * w[i, l]\n";  // 8 KB each
  const auto moved = [&](std::size_t far, bool given = true) {
    PredictOptions options;
    if (given) options.near = {"x"};
    options.far = far;
    return predicted_so(text, options).moved_bytes;
  };
  const std::vector<double> near = moved(3, false), middle = moved(2), far = moved(3);
  EXPECT_GE(near[1], 16384);
  EXPECT_EQ(near[2] + near[3], 0);
  EXPECT_EQ(middle[1], near[1] - middle[2]) << "x alone, which still lies in the second cache";
  EXPECT_NEAR(middle[2], 8192, 128);
  EXPECT_EQ(middle[3], 0);
  EXPECT_EQ(far[2], 0);
  EXPECT_EQ(far[3], middle[2]);
  EXPECT_EQ(moved(SIZE_MAX), far) << "where there is no such level, main memory";
  EXPECT_EQ(moved(1), near);
  PredictOptions cold;
  cold.cold = true;
  EXPECT_GT(predicted_so(text, cold).moved_bytes[3], 1.9 * far[3]);
}

/// A loop cut in two walks over one panel, which passes by once if it stays near together with the rest.
TEST(Predict, BothPartsOfALoopReadTheSameMemory) {
  const auto passes = [](std::int64_t rows) {
    const auto nest = nest::parse_loop_nest(
        fmt::format("nest n\ninput k: f32[64, {0}, 16]\ninput x: f32[16, {0}]\noutput y: f32[64, 16, "
                    "16]\nfor o in 0..64\n"
                    "  for h in 0..8\n    for c in 0..{0}\n      for l in 0..16 vector\n"
                    "        y[o, h, l] += x[h, c] * k[o, c, l]\n"
                    "  for g in 0..8\n    for c in 0..{0}\n      for l in 0..16 vector\n"
                    "        y[o, g + 8, l] += x[g + 8, c] * k[o, c, l]\n",
                    rows));
    const auto moved = predict(nest, three_caches(), {}).moved_bytes;
    return (moved[2] + moved[3]) / static_cast<double>(64 * rows * 64);
  };
  EXPECT_LT(passes(160), 1.2);  // 10 KB of 32 KB for a panel, 10 KB for x
  EXPECT_GT(passes(640), 8);
}

/// And of a loop cut in two where each part has a panel of its own, or columns of its own of every row, both
/// are counted.
TEST(Predict, PartsOfALoopThatReadTheirOwnCountTheirOwn) {
  for (int seed = 0; seed < 60; ++seed) {
    Random random(static_cast<std::uint64_t>(seed));
    const int batch = 2 + static_cast<int>(random.below(4)), rows = 24 + static_cast<int>(random.below(40)),
              wide = 3 + static_cast<int>(random.below(3)), rest = 1 + static_cast<int>(random.below(3)),
              uses = 1 + static_cast<int>(random.below(4));
    const bool panels = random.below(2) == 0;
    const auto part = [&](int number, const char* r, const char* o, int vectors) {
      const std::string lane = fmt::format("16 * {} + l", o);
      return fmt::format(
          "  for {0} in 0..{1}\n    for c in 0..{2}\n      for {3} in 0..{4} unroll\n        for l in 0..16 "
          "vector\n          y[{0}, {5}] += x[{0}, c] * k[b, {6}]\n",
          r, uses, rows, o, vectors, number == 0 ? lane : fmt::format("{} + {}", lane, 16 * wide),
          panels        ? fmt::format("{}, c, {}", number, lane)
          : number == 0 ? fmt::format("c, {}", lane)
                        : fmt::format("c, {} + {}", lane, 16 * wide));
    };
    const std::string text = fmt::format(
        "nest n\ninput k: f32[{}, {}]\ninput x: f32[{}, {}]\noutput y: f32[{}, {}]\nfor b in 0..{}\n{}{}",
        batch,
        panels ? fmt::format("2, {}, {}", rows, 16 * wide) : fmt::format("{}, {}", rows, 16 * (wide + rest)),
        uses, rows, uses, 16 * (wide + rest), batch, part(0, "r", "o", wide), part(1, "q", "z", rest));
    const auto nest = nest::parse_loop_nest(text);
    const std::vector<std::string> near{"x"};
    const double moved = predict(nest, three_caches(), {.near = near}).moved_bytes[3];
    const double read = 64.0 * batch * rows * (wide + rest);
    EXPECT_GT(moved, 0.95 * read) << text;
    EXPECT_LT(moved, 1.35 * read) << text;  // half a line more for each run
  }
}

}  // namespace
}  // namespace syno::machine
