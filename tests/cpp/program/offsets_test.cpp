#include "program/offsets.hpp"

#include <gtest/gtest.h>

#include "naive.hpp"
#include "program/interpret.hpp"
#include "program/text.hpp"
#include "program/verify.hpp"
#include "random_program.hpp"
#include "support/error.hpp"

namespace syno::program {
namespace {

using testing::random_inputs;
using testing::same;

std::string short_of(const std::string& text) { return to_text(with_least_offsets(parse(text)).program); }

/// The tensor whose element i is that at i + by, or anything where there is none.
Values<double> moved(const Values<double>& from, const std::vector<std::int64_t>& by) {
  Values<double> made = from;
  std::vector<std::int64_t> at(from.shape.size(), 0);
  for (std::size_t i = 0; i < made.data.size(); ++i) {
    std::int64_t source = 0;
    bool inside = true;
    for (std::size_t d = 0; d < at.size(); ++d) {
      inside = inside && at[d] + by[d] < from.shape[d];
      source = source * from.shape[d] + at[d] + by[d];
    }
    made.data[i] = inside ? from.data[static_cast<std::size_t>(source)] : 1e6;
    for (std::size_t d = at.size(); d-- > 0;) {
      if (++at[d] < from.shape[d]) break;
      at[d] = 0;
    }
  }
  return made;
}

/// How many dimensions begin elsewhere.
int check(const Program& p, std::uint64_t seed) {
  const LeastOffsets least = with_least_offsets(p);
  verify(least.program);
  const auto inputs = random_inputs(p, seed);
  auto others = inputs;
  int taken = 0;
  for (std::size_t t = 0; t < p.tensors.size(); ++t)
    if (const auto found = others.find(p.tensors[t].name); found != others.end()) {
      found->second = moved(found->second, least.taken[t]);
      for (const std::int64_t by : least.taken[t]) taken += by != 0 ? 1 : 0;
    }
  const auto wanted = interpret(p, inputs), got = interpret(least.program, others);
  for (const auto& [name, values] : wanted)
    for (std::size_t v = 0; v < values.data.size(); ++v)
      EXPECT_TRUE(same(values.data[v], got.at(name).data[v])) << to_text(p);
  EXPECT_EQ(to_text(with_least_offsets(least.program).program), to_text(least.program));
  return taken;
}

TEST(Offsets, RandomProgramsComputeTheSameOfMovedInputs) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    check(at(testing::ProgramGenerator(seed)(), 0), seed);
    ASSERT_FALSE(::testing::Test::HasFailure()) << seed;
  }
}

TEST(Offsets, PartsOfTensorsComputeTheSameOfMovedInputs) {
  int taken = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(random.below(n)); };
    // Two reads of one tensor; some begin before it or end behind it, and are 0 there.
    const std::int64_t a = below(9), b = below(9), i = 1 + below(3), j = 1 + below(6);
    const std::int64_t from = below(30) - 2, other = below(30) - 2;
    const std::string text = fmt::format(
        "input x[12, 8, 40]\ninput w[9]\nt[i: {}, j: {}] = x[{}, i + {}, j + {}] * w[{}] + x[{}, i, j + {}]\n"
        "y[j: {}] = sum[i: {}] t[i, j] * w[i + 3]\n",
        i, j, a, below(5), from, b, b, other, j, i);
    taken += check(parse(text), seed);
    ASSERT_FALSE(::testing::Test::HasFailure()) << text;
  }
  EXPECT_GT(taken, 250);
}

TEST(Offsets, StepsOfOneLoopAreOneProgram) {
  const auto step = [](int t, const std::string& extra) {
    return short_of(fmt::format(
        "input x[1, 50, 64]\ninput h[1, 64]\ny[i: 1, j: 64] = x[i, {}, j] * h[i, j]{}\n", t, extra));
  };
  EXPECT_EQ(step(3, ""), step(41, ""));
  EXPECT_EQ(step(3, " + x[i, 5, j]"), step(30, " + x[i, 32, j]"));
  EXPECT_NE(step(3, " + x[i, 5, j]"), step(30, " + x[i, 33, j]"));
}

TEST(Offsets, LinesStayAndWhatMayBeOutsideToo) {
  const auto at = [](const std::string& index) {
    return short_of(fmt::format("input x[100]\ny[i: 8] = x[{}]\n", index));
  };
  EXPECT_EQ(at("i + 16"), at("i"));
  EXPECT_EQ(at("i + 35"), at("i + 3"));
  EXPECT_NE(at("i + 35"), at("i + 4"));
  EXPECT_NE(at("i + 96"), at("i"));  // behind 99 there are zeros
  EXPECT_NE(at("i - 2"), at("i"));
  const std::string constant = "constant k[4] = {1, 2, 3, 4}\ninput x[2]\ny[i: 2] = x[i] * k[i + 2]\n";
  EXPECT_EQ(short_of(constant), to_text(parse(constant)));  // its elements are known
}

}  // namespace
}  // namespace syno::program
