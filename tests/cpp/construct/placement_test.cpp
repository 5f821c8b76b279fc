// Scopes computed inside loops of their consumers: what is fused, what must not be, and that the meaning
// stays.
#include <gtest/gtest.h>

#include <algorithm>

#include "construct/construct.hpp"
#include "program/builders.hpp"
#include "schedule/fixture.hpp"

namespace syno::construct {

using namespace schedule;
namespace {

struct PlacementCase {
  const char* name;
  const char* text;
  std::map<std::string, std::int64_t, std::less<>> sizes;
  std::int64_t largest;  ///< elements of the largest temporary, when scheduled for a thread
};
void PrintTo(const PlacementCase& c, std::ostream* out) { *out << c.name; }

class Placement : public ::testing::TestWithParam<PlacementCase> {};

TEST_P(Placement, KeepsTemporariesAsSmallAsTheyCanBe) {
  const auto p = program::parse(GetParam().text, {.sizes = GetParam().sizes});
  const Schedule schedule = default_schedule(p, Dtype::F32, Target{});
  const LoopNest nest = apply(p, schedule);
  std::int64_t largest = 0;
  for (const auto& buffer : nest.buffers) {
    if (buffer.kind != BufferKind::Temporary) continue;
    std::int64_t elements = 1;
    for (const auto extent : buffer.extents) elements *= extent;
    largest = std::max(largest, elements);
  }
  EXPECT_EQ(largest, GetParam().largest) << to_text(schedule) << to_text(nest);
}

TEST_P(Placement, KeepsTheMeaningAtAnySize) {
  Random random(61);
  for (int trial = 0; trial < 6; ++trial) {
    program::ParseOptions options;
    for (const auto& [name, size] : GetParam().sizes)
      options.sizes.emplace(name, size <= 3 ? size : draw(random, 1, 21));
    if (options.sizes.contains("k")) options.sizes["k"] = options.sizes["j"];  // rows of normalisations
    const auto p = program::parse(GetParam().text, options);
    for (const Target target : {Target{}, Target{256, 16, 2}, Target{128, 16, 1}}) {
      constexpr Dtype kDtypes[] = {Dtype::F32, Dtype::F64, Dtype::BF16};
      const Schedule schedule = default_schedule(p, kDtypes[trial % 3], target);
      const LoopNest nest = apply(p, schedule);
      ASSERT_NO_THROW(verify(nest)) << to_text(schedule) << to_text(nest);
      expect_same(p, nest, random_arguments(p, random), to_text(schedule));
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Programs, Placement,
    ::testing::Values(
        PlacementCase{
            "softmax",
            "m[b,i] = max[k] x[b,i,k]; e[b,i,j] = exp(x[b,i,j] - m[b,i]); s[b,i] = sum[k] e[b,i,k]; "
            "y[b,i,j] = e[b,i,j] / s[b,i]",
            {{"b", 12}, {"i", 128}, {"j", 128}, {"k", 128}},
            4 * 128},  // the lanes of several rows are added up side by side
        PlacementCase{"layer_norm",
                      "m[i] = mean[k] x[i,k]; v[i] = mean[k] (x[i,k]-m[i])*(x[i,k]-m[i]); "
                      "y[i,j] = (x[i,j]-m[i]) * rsqrt(v[i] + 0.1) * g[j] + b[j]",
                      {{"i", 128}, {"j", 768}, {"k", 768}},
                      2},
        PlacementCase{
            "attention",
            "s[b,i,j] = sum[d] q[b,i,d]*c[b,j,d]; m[b,i] = max[j] s[b,i,j]; e[b,i,j] = exp(s[b,i,j]-m[b,i]); "
            "z[b,i] = sum[j] e[b,i,j]; o[b,i,d] = sum[j] e[b,i,j]*v[b,j,d]; y[b,i,d] = o[b,i,d]/z[b,i]",
            {{"b", 12}, {"i", 128}, {"j", 128}, {"d", 64}},
            130 * 128},  // one head: rows one by one would fill no registers
        PlacementCase{"a_window_would_be_repeated",
                      "t[c,h,w] = exp(x[c,h,w]); y[c,h,w] = sum[r,s] t[c,h+r,w+s] * k[r,s]",
                      {{"c", 8}, {"h", 40}, {"w", 40}, {"r", 3}, {"s", 3}},
                      40 * 40}),  // whole channels, never rows
    [](const auto& info) { return std::string(info.param.name); });

TEST(Placement, RowsThatArePutTogetherStayTogether) {
  const auto p = program::parse(
      "m[b,i] = max[k] x[b,i,k]; e[b,i,j] = exp(x[b,i,j] - m[b,i]); s[b,i] = sum[k] e[b,i,k]; "
      "y[b,i,j] = e[b,i,j] / s[b,i]",
      {.sizes = {{"b", 12}, {"i", 128}, {"j", 128}, {"k", 128}}});
  int rows = 0;
  for (const Decision& decision : default_schedule(p, Dtype::F32, Target{}).trace) {
    if (decision.name != "split" || decision.loops != std::vector<std::string>{"i"}) continue;
    EXPECT_EQ(decision.scope, "y") << "the rows of a piece are split again: " << to_text(decision);
    ++rows;
  }
  EXPECT_EQ(rows, 1);
}

TEST(Placement, IsRefusedToOutputsAndToWhatNothingReads) {
  const auto p = program::parse("t[i] = max[k] x[i,k]; y[i,j] = exp(t[i] - x[i,j])",
                                {.sizes = {{"i", 9}, {"j", 20}, {"k", 999}}});
  Construction c(p, Dtype::F32, Target{});
  EXPECT_FALSE(placement(c, "y"));
  ASSERT_FALSE(c.vectorize_innermost("y"));
  const auto decision = placement(c, "t");
  ASSERT_TRUE(decision);
  EXPECT_EQ(to_text(*decision), "compute_at t tensor=y loops=i");
  ASSERT_FALSE(c.add(*decision));
  EXPECT_FALSE(placement(c, "t")) << "it has its place";
}

}  // namespace
}  // namespace syno::construct
