// Conditions on ranges of one index, of which one holds at most, are found by halves: the same elements,
// whatever the ranges.
#include <gtest/gtest.h>

#include "nest/loop_nest.hpp"
#include "nests.hpp"

namespace syno::jit {
namespace {

using namespace testing_nests;

/// Sums in a register tile over `outer`, of whose values each condition takes some: most ranges ascend and
/// leave gaps, some meet or overlap; a body adds to the tile, keeps sums of its own, or writes memory that
/// the next reads.
std::string random_conditions(Random& random) {
  const std::int64_t count = 2 + random.below(9), slope = random.below(2) == 0 ? 1 : -3;
  const std::int64_t shift = random.below(9) - 4;
  std::string bodies;
  std::int64_t at = random.below(4) - 6;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t begin = at + random.below(4) - (random.below(5) == 0 ? 4 : 0),
                       end = begin + 1 + random.below(5);
    at = end;
    bodies += fmt::format("    if {} * outer + {} in {}..{}\n", slope, shift, begin, end);
    if (random.below(7) == 0) bodies.replace(bodies.rfind("if "), 3, "if outer in 0..9, ");
    switch (random.below(4)) {
      case 0:
        bodies += fmt::format(
            "      for r in 0..3 unroll\n        for l in 0..8 vector\n          t[r, l] += x[{0}, l] * "
            "{1}\n",
            i, i + 1);
        break;
      case 1:
        bodies += fmt::format(
            "      allocate own\n        for l in 0..8 vector\n          own[l] = {0}\n        for k in "
            "0..4\n"
            "          for l in 0..8 vector\n            own[l] += x[k, l]\n        for l in 0..8 vector\n"
            "          t[{1}, l] += own[l]\n",
            i + 1, random.below(3));
        break;
      case 2:
        bodies +=
            fmt::format("      for l in 0..8 vector\n        y[{0}, l] = y[{0}, l] + x[{0}, l] * 3\n", i);
        break;
      default:
        bodies += fmt::format(
            "      for l in 0..8 vector\n        if l + outer in 2..{1}\n          t[1, l] += x[{0}, l]\n", i,
            3 + random.below(12));
    }
  }
  return fmt::format(
      "nest conditions\ninput x: f32[12, 8]\noutput y: f32[12, 8]\noutput z: f32[3, 8]\nregister t: f32[3, "
      "8]\n"
      "register own: f32[8]\nfor a in 0..12\n  for l in 0..8 vector\n    y[a, l] = 1\n"
      "allocate t\n  for r in 0..3 unroll\n    for l in 0..8 vector\n      t[r, l] = 0\n  for outer in "
      "0..12\n{}"
      "  for r in 0..3 unroll\n    for l in 0..8 vector\n      z[r, l] = t[r, l]\n",
      bodies);
}

TEST(Alternatives, ComputeWhatTheInterpreterDoes) {
  const Cpu v3 = cpu_named("x86-64-v3"), generic = cpu_named("generic");
  Random random(20261128);
  for (int i = 0; i < 150; ++i) {
    const std::string text = random_conditions(random);
    const LoopNest nest = nest::parse_loop_nest(text);
    SCOPED_TRACE(text);
    for (const Cpu* cpu : {static_cast<const Cpu*>(nullptr), &v3, &generic})
      expect_as_interpreted(nest, 1 + static_cast<std::uint64_t>(i), cpu);
    if (HasFailure()) return;
  }
}

/// How many comparisons the longest way through the conditions of a loop has.
std::size_t comparisons(const std::string& text) {
  const std::string ir = compile(nest::parse_loop_nest(text))->llvm();
  std::size_t count = 0;
  for (std::size_t at = 0; (at = ir.find("icmp ", at)) != std::string::npos; ++at) ++count;
  return count;
}

TEST(Alternatives, AreComparedOnceWhereOneFollowsAnother) {
  // What is left of a row, in vectors: of eight, seven comparisons tell which; each of its own would take
  // sixteen.
  std::string text = "nest rest\nparameter n in 1..9\ninput x: f32[64]\noutput y: f32[64]\nfor i in 0..4\n";
  for (int left = 1; left < 9; ++left)
    text +=
        fmt::format("  if n in {}..{}\n    for l in 0..8 vector\n      y[8 * i + l] = x[8 * i + l] * {}\n",
                    left, left + 1, left);
  EXPECT_LE(comparisons(text), 8) << "and one of the loop";
}

}  // namespace
}  // namespace syno::jit
