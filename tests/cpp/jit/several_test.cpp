// Iterations of a short serial loop of sums are written behind one another: the same elements, whatever the
// count.
#include <gtest/gtest.h>

#include "jit/machine_code.hpp"
#include "nest/loop_nest.hpp"
#include "nests.hpp"

namespace syno::jit {
namespace {

using namespace testing_nests;

/// A product of rows with vectors over `begin`..`end`, whose operands move with the loop in a way that random
/// numbers choose.
std::string random_tile(Random& random, std::int64_t begin, std::int64_t end) {
  const std::int64_t rows = 1 + random.below(6), vectors = 1 + random.below(3), lanes = 8,
                     width = vectors * lanes;
  const std::string index =
      std::vector<std::string>{"k", "2 * k", "k / 3", "k % 5", "k + 4"}[random.below(5)];
  const std::string mode = random.below(4) == 0 ? "max" : "+";
  const std::string ahead = random.below(3) == 0 ? "      prefetch a[0, k / 2]\n" : "";
  return fmt::format(
      "nest tile\ninput a: f32[{0}, {1}]\ninput b: f32[{1}, {2}]\noutput c: f32[{0}, {2}]\nregister t: "
      "f32[{0}, {2}]\n"
      "for outer in 0..2\n  allocate t\n    for i in 0..{0} unroll\n      for j in 0..{3} unroll\n"
      "        for l in 0..{4} vector\n          t[i, {4} * j + l] = 0\n    for k in {5}..{6}\n{7}"
      "      for i in 0..{0} unroll\n        for j in 0..{3} unroll\n          for l in 0..{4} vector\n"
      "            t[i, {4} * j + l] {8}= a[i, {9}] * b[k, {4} * j + l]\n"
      "    for i in 0..{0} unroll\n      for j in 0..{3} unroll\n        for l in 0..{4} vector\n"
      "          c[i, {4} * j + l] = t[i, {4} * j + l]\n",
      rows, 2 * end + 4, width, vectors, lanes, begin, end, ahead, mode, index);
}

TEST(SeveralIterations, ComputeWhatTheInterpreterDoes) {
  const Cpu v3 = cpu_named("x86-64-v3"), generic = cpu_named("generic");
  Random random(20261125);
  for (std::int64_t count = 1; count < 26; ++count)
    for (const std::int64_t begin : {0, 1, 7}) {
      const LoopNest nest = nest::parse_loop_nest(random_tile(random, begin, begin + count));
      for (const Cpu* cpu : {static_cast<const Cpu*>(nullptr), &v3, &generic})
        expect_as_interpreted(nest, 1 + static_cast<std::uint64_t>(count), cpu);
      if (HasFatalFailure()) return;
    }
}

std::int64_t multiply_adds_at_once(const std::string& text) {
  const Cpu v3 = cpu_named("x86-64-v3");
  const auto loops = innermost_loops(compile(nest::parse_loop_nest(text), {.cpu = &v3})->object(), v3);
  std::int64_t most = 0;
  for (const LoopCode& loop : loops) most = std::max<std::int64_t>(most, loop.multiply_adds);
  return most;
}
std::string tile_of(int rows, int count, const std::string& body) {
  return fmt::format(
      "nest tile\ninput a: f32[{0}, {1}]\ninput b: f32[{1}, 8]\noutput c: f32[{0}, 8]\nregister t: f32[{0}, "
      "8]\n"
      "allocate t\n  for i in 0..{0} unroll\n    for l in 0..8 vector\n      t[i, l] = 0\n  for k in 0..{1}\n"
      "    for i in 0..{0} unroll\n      for l in 0..8 vector\n        t[i, l] += {2}\n"
      "  for i in 0..{0} unroll\n    for l in 0..8 vector\n      c[i, l] = t[i, l]\n",
      rows, count, body);
}

TEST(SeveralIterations, AreWrittenWhereOneIsLittleWork) {
  const std::string product = "a[i, k] * b[k, l]";
  EXPECT_EQ(multiply_adds_at_once(tile_of(4, 64, product)), 16) << "four of four";
  EXPECT_EQ(multiply_adds_at_once(tile_of(12, 64, product)), 48);
  EXPECT_EQ(multiply_adds_at_once(tile_of(12, 6, product)), 24) << "few iterations: two at once";
  EXPECT_EQ(multiply_adds_at_once(tile_of(12, 3, product)), 0) << "a window's taps: no loop";
  EXPECT_EQ(multiply_adds_at_once(tile_of(4, 64, "a[i, k] * b[k, l] {k + i in 1..63 else 0}")), 4)
      << "what may lie outside is a branch or a mask: enough work";
}

/// Sums of a row of so many floats, read in steps of `step` of them: eight to a vector.
std::string rows_of(std::int64_t step, std::int64_t sums) {
  return fmt::format(
      "nest rows\ninput x: f32[64, {0}]\noutput y: f32[{1}]\nregister t: f32[{1}]\nallocate t\n"
      "  for l in 0..{1} vector\n    t[l] = 0\n  for k in 0..64\n"
      "    for l in 0..{1} vector\n      t[l] += x[k, l] * x[k, l]\n"
      "  for l in 0..{1} vector\n    y[l] = t[l]\n",
      step, sums);
}

TEST(SeveralIterations, LeaveEachLoadAStepThatPrefetchersFollow) {
  EXPECT_EQ(multiply_adds_at_once(rows_of(32, 32)), 16) << "128 bytes: four of four vectors";
  EXPECT_EQ(multiply_adds_at_once(rows_of(127, 32)), 16) << "4 * 508 bytes";
  EXPECT_EQ(multiply_adds_at_once(rows_of(128, 32)), 8) << "4 * 512 bytes are too far: two at once";
  EXPECT_EQ(multiply_adds_at_once(rows_of(300, 32)), 4) << "2 * 1200 bytes are";
  EXPECT_EQ(multiply_adds_at_once(rows_of(511, 32)), 4);
  EXPECT_EQ(multiply_adds_at_once(rows_of(512, 32)), 16) << "a step of 2048 bytes is not followed anyhow";
}

}  // namespace
}  // namespace syno::jit
