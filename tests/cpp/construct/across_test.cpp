// Element-wise work on tensors that lie across each other: random programs keep their meaning, and what lies
// across is transposed in blocks.
#include <gtest/gtest.h>

#include "construct/construct.hpp"
#include "schedule/fixture.hpp"

namespace syno::construct {

using namespace schedule;
namespace {

struct Mixed {
  const char* name;
  const char* text;
  bool copies;  ///< what lies across is copied; else all of it is transposed
};
void PrintTo(const Mixed& m, std::ostream* out) { *out << m.name; }

class EveryMixed : public ::testing::TestWithParam<Mixed> {};

TEST_P(EveryMixed, KeepsTheMeaning) {
  Random random(71);
  int used = 0;
  for (int trial = 0; trial < 12; ++trial) {
    program::ParseOptions options;
    for (const char* name : {"i", "j"}) options.sizes.emplace(name, draw(random, 6, 90));
    if (std::string(GetParam().text).starts_with("y[c")) options.sizes.emplace("c", draw(random, 1, 3));
    const auto p = program::parse(GetParam().text, options);
    for (const Target target : {Target{}, Target{256, 16, 2}, Target{128, 16, 1}}) {
      Construction c(p, trial % 3 == 2 ? Dtype::F64 : Dtype::F32, target);
      if (!*write_across(c, "y")) continue;
      const std::string text = to_text(c.schedule);
      EXPECT_EQ(text.find("_across") != std::string::npos, GetParam().copies) << text;
      const LoopNest nest = emit(c.plan);
      ASSERT_NO_THROW(verify(nest)) << text << to_text(nest);
      expect_same(p, nest, random_arguments(p, random), text);
      if (HasFatalFailure()) return;
      ++used;
    }
  }
  EXPECT_GT(used, 20);
}

INSTANTIATE_TEST_SUITE_P(Programs, EveryMixed,
                         ::testing::Values(Mixed{"sum", "y[i,j] = a[i,j] + b[j,i]", true},
                                           Mixed{"two_across", "y[i,j] = a[i,j] * b[j,i] + d[j,i]", true},
                                           Mixed{"planes", "y[c,i,j] = a[c,i,j] * b[j,c,i] + d[c]", true},
                                           Mixed{"at_a_border", "y[i,j] = a[i,j] - b[j-2,i-1]", true},
                                           Mixed{"strided_columns", "y[i,j] = a[i,j] - b[2*j,i]", true},
                                           Mixed{"channels_last", "y[c,i,j] = x[c,j,i] * g[i] + b[i]",
                                                 false}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Across, LeavesAloneWhatLiesAlong) {
  for (const char* text : {"y[i,j] = a[i,j] + b[i]", "y[i,j] = a[i,2*j] + b[i,j]", "y[i,j] = a[j,i]"}) {
    const auto p = program::parse(text, {.sizes = {{"i", 40}, {"j", 40}}});
    Construction c(p, Dtype::F32, Target{});
    EXPECT_FALSE(*write_across(c, "y")) << text;
  }
}

}  // namespace
}  // namespace syno::construct
