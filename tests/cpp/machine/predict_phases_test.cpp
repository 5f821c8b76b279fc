// What is moved while something else is computed, and what waits: phases of a nest, and inputs that come from
// far.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "machine/predict.hpp"
#include "nest/loop_nest.hpp"

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

// The one computes without reading from afar, the other hardly computes; each takes some tens of
// microseconds.
constexpr const char* kComputes =
    "{0}for j in 0..16\n{0}  for i in 0..8192\n{0}    for l in 0..16 vector\n{0}      y[j, l] += w[l] * w[l "
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
                                    "for i in 0..65536\n  for j in 0..2\n    for l in 0..16 vector\n"
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

}  // namespace
}  // namespace syno::machine
