// Vectors along a sum: over one of its loops, or over several that follow each other in memory.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "construct/construct.hpp"
#include "schedule/fixture.hpp"
#include "support/error.hpp"

namespace syno::construct {

using namespace schedule;
namespace {

Sketches along_sums(Construction& c, const std::string& scope) {
  Sketches sketches;
  along_reduction(c, scope, facts_of(c, scope), sketches);
  return sketches;
}

bool is_flat(const Sketch& sketch) { return sketch.name.ends_with("/flat"); }

struct Sum {
  const char* name;
  const char* text;  ///< over n, g results and d, i, j sums
  bool flat;         ///< some of its loops follow each other
};
void PrintTo(const Sum& sum, std::ostream* out) { *out << sum.name; }

class EverySum : public ::testing::TestWithParam<Sum> {};

TEST_P(EverySum, IsFlatWhereItsLoopsFollowEachOther) {
  Random random(71);
  int built = 0, flat = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const auto p = program::parse(GetParam().text, {.sizes = {{"n", draw(random, 1, 3)},
                                                              {"g", draw(random, 1, 5)},
                                                              {"d", draw(random, 2, 4)},
                                                              {"i", draw(random, 4, 7)},
                                                              {"j", draw(random, 4, 40)}},
                                                    .shapes = {},
                                                    .weights = {},
                                                    .data = {}});
    const Target target = trial % 3 == 2 ? Target{128, 16, 1} : Target{512, 32, 1 + trial % 2};
    Construction c(p, trial % 4 == 3 ? Dtype::F64 : Dtype::F32, target);
    const std::string scope = p.tensor(p.scopes[0].output).name;
    const Sketches sketches = along_sums(c, scope);
    for (const Sketch& sketch : sketches) {
      flat += is_flat(sketch);
      EXPECT_NEAR(sketch.estimate(sketch.counted), sketch.cycles, 1e-6 * sketch.cycles) << sketch.name;
      Numbers numbers = sketch.counted;
      for (const Choice& open : sketch.choices)
        numbers.*open.number = open.values[random.below(open.values.size())];
      Draft draft(c);
      if (sketch.write(c, numbers)) continue;
      ++built;
      const auto nest = try_emit_call(c.plan);
      ASSERT_TRUE(nest) << nest.refusal().reason();
      ASSERT_NO_THROW(verify(*nest));
      expect_same(p, *nest, random_arguments(p, random), sketch.name + "\n" + to_text(c.schedule));
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(built, 20);
  EXPECT_EQ(flat > 0, GetParam().flat);
}

INSTANTIATE_TEST_SUITE_P(
    Programs, EverySum,
    ::testing::Values(Sum{"places", "y[n,g] = mean[d,i,j] x[n,g,d,i,j]", true},
                      Sum{"product", "y[n,g] = sum[d,i,j] x[n,d,i,j] * w[g,d,i,j]", true},
                      Sum{"scaled", "y[n,g] = sum[d,i,j] x[n,g,d,i,j] * s[n]", true},
                      Sum{"scaled_in_between", "y[n,g] = sum[d,i,j] x[n,g,d,i,j] * s[i]", false},
                      Sum{"partly", "y[n,g] = max[d,i,j] x[n,d,g,i,j]", true},
                      Sum{"turned", "y[n,g] = sum[d,i,j] x[n,g,d,j,i]", false},
                      Sum{"strided", "y[n,g] = sum[d,i,j] x[n,g,d,2*i,j]", false},
                      Sum{"at_a_border", "y[n,g] = sum[d,i,j] x[n,g,d,i+1,j-1]", false}),
    [](const auto& info) { return std::string(info.param.name); });

/// A mean over 7 x 7 places in 512 bits: 49 elements are four vectors, seven rows seven.
TEST(AlongReduction, CountsFewerVectorsOfOneRun) {
  Construction c(
      program::parse("y[c] = mean[h,w] x[c,h,w]",
                     {.sizes = {{"c", 64}, {"h", 7}, {"w", 7}}, .shapes = {}, .weights = {}, .data = {}}),
      Dtype::F32, Target{});
  const Sketches sketches = along_sums(c, "y");
  const auto flat = std::find_if(sketches.begin(), sketches.end(), is_flat);
  ASSERT_NE(flat, sketches.end());
  for (const Sketch& other : sketches)
    if (!is_flat(other)) {
      EXPECT_LT(flat->cycles, other.cycles) << other.name;
    }
}

/// Its results are finished where they are complete: a scope that is computed a piece at a time has its place
/// already, and nothing can be staged behind it.
TEST(AlongReduction, IsWrittenWhereAPieceHasAnExpensiveEpilogue) {
  const auto p = program::parse(
      "m[n,g] = mean[d,i,j] x[n,8*g+d,i,j]\n"
      "v[n,g] = mean[d,i,j] (x[n,8*g+d,i,j] - m[n,g]) * (x[n,8*g+d,i,j] - m[n,g])\n"
      "s[n,g] = rsqrt(v[n,g] + 0.00001)\n"
      "y[n,c,i,j] = (x[n,c,i,j] - m[n,c/8]) * s[n,c/8]\nreturn y",
      {.sizes = {{"n", 2}, {"g", 8}, {"d", 8}, {"c", 64}, {"i", 40}, {"j", 40}},
       .shapes = {{"x", {2, 64, 40, 40}}},
       .weights = {},
       .data = {}});
  const std::string text = to_text(default_schedule(p, Dtype::F32, Target{}));
  EXPECT_NE(text.find("compute_at s tensor=y"), std::string::npos) << text;
  EXPECT_EQ(text.find("transpose"), std::string::npos) << "x is read where it lies\n" << text;
}

}  // namespace
}  // namespace syno::construct
