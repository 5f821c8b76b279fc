// Lanes whose places lie in two blocks, as quotients and remainders say, and conditions around a block: what
// code does anew in each iteration, and what it knows before.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "machine/nest_facts.hpp"
#include "machine/predict.hpp"

namespace syno::machine {
namespace {

/// The work of the block that does most.
Work most_work(const nest::LoopNest& nest) {
  Work most;
  for (const NestNode& node : facts_of(nest, 64).nodes)
    if (node.kind == NestNode::Kind::Block && node.work.fma > most.fma) most = node.work;
  return most;
}

/// Sums over the taps of a window that lies in blocks of 16.
nest::LoopNest window_in_blocks(int sums, int taps, int step) {
  return nest::parse_loop_nest(fmt::format(
      "nest blocks\ninput x: f32[4, 64, 16]\ninput k: f32[{0}, 64, {1}]\noutput y: f32[{0}, 16]\nregister t: "
      "f32[{0}, 16]\nallocate t\n  for o in 0..{0} unroll\n    for w in 0..16 vector\n      t[o, w] = 0\n  "
      "for "
      "c in 0..64\n    for s in 0..{1}\n      for o in 0..{0} unroll\n        for w in 0..16 vector\n"
      "          t[o, w] += x[({2} * s + w) / 16, c, ({2} * s + w) % 16] * k[o, c, s]\n  for o in 0..{0} "
      "unroll\n    for w in 0..16 vector\n      y[o, w] = t[o, w]\n",
      sums, taps, step));
}

TEST(Places, TapsOfFewSumsAreShuffledOutOfTheirBlocks) {
  for (const int sums : {1, 4, 16}) {
    const Work work = most_work(window_in_blocks(sums, 3, 2));
    EXPECT_EQ(work.gathers, 0) << sums;
    // The first tap lies in one block, both others in two.
    EXPECT_NEAR(work.vector_loads, 5.0 / 3, 1e-9) << sums;
    EXPECT_NEAR(work.picks, 4.0 / 3, 1e-9) << sums;
  }
  // Whole blocks on: no lane leaves its block.
  const Work whole = most_work(window_in_blocks(4, 3, 16));
  EXPECT_EQ(whole.vector_loads, 1);
  EXPECT_EQ(whole.picks + whole.gathers, 0);
}

TEST(Places, OfManySumsTheyAreComputedAnewAndGathered) {
  for (const auto& [sums, taps] : {std::pair{17, 3}, {22, 3}, {16, 5}, {4, 17}}) {
    const Work work = most_work(window_in_blocks(sums, taps, 2));
    EXPECT_GT(work.gathers, 16) << sums << " sums, " << taps << " taps";
    EXPECT_EQ(work.picks, 0);
  }
}

/// A block below a condition about the loop outside, the innermost loop, or nothing.
nest::LoopNest below(const std::string& condition) {
  const std::string indent = condition.empty() ? "" : "  ";
  return nest::parse_loop_nest(fmt::format(
      "nest below\ninput x: f32[64, 16]\ninput k: f32[8, 64]\noutput y: f32[14, 8, 16]\nregister t: f32[8, "
      "16]\nfor h in 0..14\n  allocate t\n    for o in 0..8 unroll\n      for w in 0..16 vector\n        "
      "t[o, "
      "w] = 0\n    for c in 0..64\n{0}{1}      for o in 0..8 unroll\n{1}        for w in 0..16 vector\n{1}   "
      "   "
      "    t[o, w] += x[c, w] * k[o, c]\n    for o in 0..8 unroll\n      for w in 0..16 vector\n        y[h, "
      "o, w] = t[o, w]\n",
      condition.empty() ? "" : "      if " + condition + "\n", indent));
}

TEST(Places, WhatTheLoopOutsideDecidesIsNotAskedInside) {
  const Work plain = most_work(below("")), outside = most_work(below("h in 0..13")),
             inside = most_work(below("c in 0..63"));
  EXPECT_EQ(plain.conditions + plain.masks, 0);
  EXPECT_EQ(outside.conditions + outside.masks, 0);
  EXPECT_EQ(inside.conditions, 1);
  EXPECT_EQ(inside.masks, 0);
  Machine machine;
  machine.levels = {{"L1", 1 << 20, 1, 64, 16, 1, 200, 100}, {"memory", 1 << 30, 1, 64, 0, 100, 40, 40}};
  const double all = predict(below(""), machine).compute_s;
  EXPECT_LE(predict(below("h in 0..13"), machine).compute_s, all);
  EXPECT_GE(predict(below("h in 0..13"), machine).compute_s, all * 0.92);
}

}  // namespace
}  // namespace syno::machine
