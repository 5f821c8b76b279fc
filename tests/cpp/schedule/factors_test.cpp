// Factors that all terms of a sum share: taken out they keep the meaning, and sums without any are refused.
#include <gtest/gtest.h>

#include <algorithm>

#include "construct/construct.hpp"
#include "fixture.hpp"
#include "schedule/decisions.hpp"
#include "support/error.hpp"

namespace syno::schedule {
namespace {

class Factored : public ::testing::TestWithParam<const char*> {};

program::Program instance_of(const std::string& text, Random& random) {
  const auto size = [&] { return draw(random, 1, 19); };
  return program::parse(text, {.sizes = {{"i", size()}, {"j", size()}, {"k", size()}}});
}

TEST_P(Factored, KeepsTheMeaning) {
  Random random(71);
  for (int trial = 0; trial < 12; ++trial) {
    const auto p = instance_of(GetParam(), random);
    constexpr Dtype kDtypes[] = {Dtype::F32, Dtype::F64, Dtype::BF16};
    const Target target = trial % 2 ? Target{128, 16, 1} : Target{};
    Plan plan(p, kDtypes[trial % 3]);
    EXPECT_EQ(sites_of(plan, "factor", 0).size(), 1u);
    const Schedule schedule = default_schedule(p, kDtypes[trial % 3], target);
    EXPECT_EQ(std::count_if(schedule.trace.begin(), schedule.trace.end(),
                            [](const Decision& d) { return d.name == "factor"; }),
              1)
        << to_text(schedule);
    const LoopNest nest = apply(p, schedule);
    ASSERT_NO_THROW(verify(nest)) << to_text(schedule) << to_text(nest);
    expect_same(p, nest, random_arguments(p, random), to_text(schedule));
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Programs, Factored,
    ::testing::Values("y[i,j] = sum[k] a[i,k] * b[j,k] / 8", "y[i,j] = sum[k] a[i,k] * b[j,k] / (3 + j)",
                      "y[i,j] = sum[k] -(g[i] * a[i,k]) * b[k,j]", "y[i,j] = mean[k] s[] * (a[i,k] + b[j,k])",
                      "y[i,j] = max(sum[k] 0.25 * a[i,k] * b[j,k] + z[j], 0)",
                      "t[i,j] = sum[k] g[j] * a[i,k] * b[j,k+1]; y[i,j] = t[i,j] / (2 + exp(t[i,j]))"));

TEST(Factors, AreRefusedWhereThereAreNone) {
  Random random(3);
  for (const char* text :
       {"y[i,j] = sum[k] a[i,k] * b[j,k]", "y[i,j] = max[k] 2 * a[i,k] * b[j,k]",
        "y[i,j] = sum[k] (2 + a[i,k]) * b[j,k]", "y[i,j] = sum[k] (a[i,j] * 2 + b[j,k])",
        "y[i,j] = sum[k] a[i,k] / (b[j,k] * 0 + 2)", "y[i,j] = sum[k] (g[i] * z[j] + k * 0)"}) {
    const auto p = instance_of(text, random);
    Plan plan(p, Dtype::F32);
    EXPECT_TRUE(sites_of(plan, "factor", 0).empty()) << text;
    EXPECT_THROW(apply(p, {Dtype::F32, {{"factor", "y", {}, {}, "", {}}}}), ScheduleError) << text;
  }
}

TEST(Factors, ScoresOfAttentionAreDividedOnceAResult) {
  const auto p =
      program::parse("y[i,j] = sum[k] a[i,k] * b[j,k] / 8", {.sizes = {{"i", 32}, {"j", 32}, {"k", 64}}});
  const LoopNest nest = apply(p, default_schedule(p, Dtype::F32, Target{}));
  for (const auto& statement : nest.statements) {
    if (statement.kind != StatementKind::Store || statement.mode != StoreMode::Add) continue;
    const auto& product = nest.value(statement.value);
    if (product.kind != ValueKind::Binary) continue;
    EXPECT_EQ(nest.value(product.a).kind, ValueKind::Load) << to_text(nest);
    EXPECT_EQ(nest.value(product.b).kind, ValueKind::Load) << to_text(nest);
  }
}

}  // namespace
}  // namespace syno::schedule
