// Vectors that the rows and the taps of a window share, and sums that share nothing: what registers hold of
// them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "machine/machine.hpp"
#include "machine/nest_facts.hpp"
#include "machine/predict.hpp"

namespace syno::machine {
namespace {

Machine with_registers(int registers) {
  Machine machine;
  machine.vector_registers = registers;
  machine.fma_per_cycle = 2;
  machine.levels = {{"L1", 1 << 20, 1, 64, 16, 1, 200, 200}, {"memory", 1 << 30, 1, 64, 0, 100, 40, 40}};
  return machine;
}

/// Eight rows of a window of seven taps, rows inside taps or taps inside rows.
nest::LoopNest window(bool sliding) {
  const std::string rows = "for h in 0..8 unroll\n", taps = "for r in 0..7 unroll\n";
  return nest::parse_loop_nest(fmt::format(
      "nest window\ninput x: f32[64, 14, 16]\ninput k: f32[64, 7]\noutput y: f32[8, 16]\nregister t: f32[8, "
      "16]\nallocate t\n  for h in 0..8 unroll\n    for l in 0..16 vector\n      t[h, l] = 0\n  for c in "
      "0..64\n    {}      {}        for l in 0..16 vector\n          t[h, l] += x[c, h + r, l] * k[c, r]\n"
      "  for h in 0..8 unroll\n    for l in 0..16 vector\n      y[h, l] = t[h, l]\n",
      sliding ? rows : taps, sliding ? taps : rows));
}

TEST(HeldVectors, AWindowNeedsRegistersForWhatItsTapsShare) {
  const auto computing = [](bool sliding, int registers) {
    return predict(window(sliding), with_registers(registers)).compute_s;
  };
  // Eight sums, the eight rows of a tap until the next one reads seven of them again, and a number.
  EXPECT_EQ(computing(false, 17), computing(false, 64));
  EXPECT_GT(computing(false, 16), 1.3 * computing(false, 17));
  // Row by row, seven vectors slide through.
  EXPECT_EQ(computing(true, 16), computing(true, 64));
  EXPECT_GT(computing(true, 15), 1.3 * computing(true, 16));
}

/// Sums that each have an operand of their own load it when they take it.
TEST(HeldVectors, WhatIsReadOnceNeedsNoRegister) {
  const auto nest = [](const char* read) {
    return nest::parse_loop_nest(fmt::format(
        "nest sums\ninput x: f32[6, 1024]\ninput b: f32[1024]\noutput y: f32[6, 2, 16]\nregister t: f32[6, "
        "2, "
        "16]\nallocate t\n  for m in 0..6 unroll\n    for j in 0..2 unroll\n      for l in 0..16 vector\n"
        "        t[m, j, l] = 0\n  for k in 0..32\n    for m in 0..6 unroll\n      for j in 0..2 unroll\n"
        "        for l in 0..16 vector\n          t[m, j, l] += x[{}, 32 * k + (16 * j + l)] * b[32 * k + "
        "(16 * "
        "j + l)]\n  for m in 0..6 unroll\n    for j in 0..2 unroll\n      for l in 0..16 vector\n"
        "        y[m, j, l] = t[m, j, l]\n",
        read));
  };
  const NestFacts facts = facts_of(nest("m"), 64);
  double registers = 0;
  for (const NestNode& node : facts.nodes) registers = std::max(registers, node.work.registers);
  EXPECT_EQ(registers, 12 + 2 + 1);  // sums, both vectors that all rows share, one of their own
  EXPECT_NE(predict(nest("m"), with_registers(16)).bottleneck, "registers");
}

}  // namespace
}  // namespace syno::machine
