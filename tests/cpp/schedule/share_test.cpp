// Functions that two scopes have in common: computed once, and to the same result.

#include <gtest/gtest.h>

#include <algorithm>

#include "construct/construct.hpp"
#include "fixture.hpp"
#include "support/error.hpp"

namespace syno::schedule {
namespace {

struct Common {
  const char* name;
  const char* text;
  const char* iterators;  ///< one letter each
  bool shared = true;
};
void PrintTo(const Common& c, std::ostream* out) { *out << c.name; }

class EveryCommon : public ::testing::TestWithParam<Common> {};

TEST_P(EveryCommon, IsComputedOnceAndKeepsTheMeaning) {
  Random random(83);
  for (int trial = 0; trial < 8; ++trial) {
    program::ParseOptions options;
    const std::int64_t row = draw(random, 5, 40);
    for (const char name : std::string(GetParam().iterators))
      options.sizes.emplace(std::string(1, name), name == 'j' || name == 'k' ? row : draw(random, 1, 9));
    const auto p = program::parse(GetParam().text, options);
    for (const Target target : {Target{}, Target{256, 16, 2}, Target{128, 16, 1}}) {
      const Schedule schedule = default_schedule(p, trial % 3 == 2 ? Dtype::F64 : Dtype::F32, target);
      const std::string text = to_text(schedule);
      EXPECT_EQ(text.find("share ") != std::string::npos, GetParam().shared) << text;
      const LoopNest nest = apply(p, schedule);
      const auto count = std::count_if(nest.values.begin(), nest.values.end(), [](const Value& value) {
        return value.kind == ValueKind::Unary && value.function == program::Function::Exp;
      });
      if (GetParam().shared) EXPECT_GE(count, 1);
      expect_same(p, nest, random_arguments(p, random), text);
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Programs, EveryCommon,
    ::testing::Values(
        Common{"softmax", "y[i,j] = exp(x[i,j]) / sum[k] exp(x[i,k])", "ijk"},
        Common{"first_axis", "y[j,i] = exp(x[j,i]) / sum[k] exp(x[k,i])", "ijk"},
        Common{"less_the_greatest",
               "m[i] = max[k] x[i,k]\ns[i] = sum[k] exp(x[i,k] - m[i])\ny[i,j] = exp(x[i,j] - m[i]) / s[i]",
               "ijk"},
        Common{"of_a_sum_of_indices", "y[i,j] = exp(x[i,j+i]) / sum[k] exp(x[i,k+i])", "ijk"},
        Common{"at_a_border", "y[i,j] = exp(x[i,j-2]) / sum[k] exp(x[i,k-2])", "ijk"},
        Common{"two_sums", "y[i] = (sum[k] exp(x[i,k]) * z[k]) / sum[j] exp(x[i,j])", "ijk"},
        Common{"other_places", "y[i,j] = exp(x[i,j]) / sum[k] exp(x[i,k+1])", "ijk", false},
        Common{"other_values", "y[i,j] = exp(x[i,j]) / sum[k] exp(z[i,k])", "ijk", false},
        Common{"a_diagonal", "y[i,j] = exp(x[j,j]) / sum[k] exp(x[i,k])", "ijk", false},
        Common{"of_rows_alone", "y[i,j] = exp(x[i]) / sum[k] exp(x[i]) * z[k]", "ijk", false},
        Common{"nothing_elementary", "y[i,j] = (x[i,j] * x[i,j]) / sum[k] x[i,k] * x[i,k]", "ijk", false}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Share, RefusesWhatIsNotAlike) {
  const auto p = program::parse("s[i] = sum[k] exp(x[i,k])\ny[i,j] = exp(x[i,j]) / s[i]\nreturn y",
                                {.sizes = {{"i", 4}, {"j", 8}, {"k", 8}}});
  Plan plan(p, Dtype::F32);
  EXPECT_THROW(decide(plan, {"share", "s", {}, {}, "s", {}}), ScheduleError);
  Plan twice(p, Dtype::F32);
  decide(twice, {"share", "s", {}, {}, "y", {"kept"}});
  EXPECT_NE(twice.program.find_tensor("kept"), std::nullopt);
  EXPECT_THROW(decide(twice, {"share", "s", {}, {}, "y", {}}), ScheduleError);
  const auto other = program::parse("s[i] = sum[k] exp(x[i,k])\ny[i,j] = exp(x[i,j]) / s[i]\nreturn y",
                                    {.sizes = {{"i", 4}, {"j", 7}, {"k", 8}}});
  Plan shorter(other, Dtype::F32);
  EXPECT_THROW(decide(shorter, {"share", "s", {}, {}, "y", {}}), ScheduleError);
}

}  // namespace
}  // namespace syno::schedule
