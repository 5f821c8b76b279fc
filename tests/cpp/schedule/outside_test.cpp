// Terms that read outside: they are left out, no others are, and the meaning stays.
#include "schedule/outside.hpp"

#include <gtest/gtest.h>

#include "fixture.hpp"
#include "support/error.hpp"
#include "terms.hpp"

namespace syno::schedule {
namespace {

struct OutsideCase {
  const char* name;
  const char* text;
  std::map<std::string, std::int64_t, std::less<>> sizes;
  std::int64_t inside;  ///< how many terms are: counted by hand
};
void PrintTo(const OutsideCase& c, std::ostream* out) { *out << c.name; }

class Outside : public ::testing::TestWithParam<OutsideCase> {};

TEST_P(Outside, IsLeftOutTermByTermInPlainLoops) {
  const auto p = program::parse(GetParam().text, {.sizes = GetParam().sizes});
  const LoopNest plain = apply(p, {});
  const LoopNest nest = apply(p, {Dtype::F32, {{"skip", "y", {}, {}, "", {}}}});
  ASSERT_NO_THROW(verify(nest)) << to_text(nest);
  EXPECT_EQ(to_text(parse_loop_nest(to_text(nest))), to_text(nest));
  EXPECT_EQ(Terms(nest).added, GetParam().inside) << to_text(nest);
  EXPECT_GT(Terms(plain).added, GetParam().inside) << to_text(plain);
  Random random(3);
  expect_same(p, nest, random_arguments(p, random), "skip");
}

TEST_P(Outside, KeepsTheMeaningOfConstructedSchedulesAtAnySize) {
  Random random(41);
  for (int trial = 0; trial < 4; ++trial) {
    program::ParseOptions options;
    for (const auto& [name, size] : GetParam().sizes)
      options.sizes.emplace(name, name.size() > 1 || size <= 3 ? size : draw(random, 2, 3 * size));
    options.sizes["o"] = draw(random, 8, 40);
    const auto p = program::parse(GetParam().text, options);
    Target target;
    const auto with_k = std::string_view(GetParam().text).find("k[") != std::string_view::npos;
    const std::vector<std::string> constants(with_k ? 1 : 0, "k");
    if (trial % 2) target.vector_bits = 256, target.vector_registers = 16;
    constexpr Dtype kDtypes[] = {Dtype::F32, Dtype::F64, Dtype::BF16, Dtype::F32};
    const Schedule schedule = default_schedule(p, kDtypes[trial], target, constants);
    const LoopNest nest = apply(p, schedule);
    ASSERT_NO_THROW(verify(nest)) << to_text(schedule) << to_text(nest);
    EXPECT_EQ(to_text(parse_loop_nest(to_text(nest))), to_text(nest));
    expect_same(p, nest, random_arguments(p, random), to_text(schedule));
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Programs, Outside,
    ::testing::Values(
        // Of three taps at five places, (2 + 3 * 3 + 2) are inside, in each direction.
        OutsideCase{"image",
                    "y[o,h,w] = sum[c,r,s] x[c,h+r-1,w+s-1] * k[o,c,r,s]",
                    {{"o", 2}, {"h", 5}, {"w", 5}, {"c", 3}, {"r", 3}, {"s", 3}},
                    2 * 3 * 13 * 13},
        // Rows 2h + r - 1 of nine: all but the first of h = 0 and the last of h = 4.
        OutsideCase{"stride",
                    "y[o,h,w] = sum[c,r,s] x[c,2*h+r-1,w+s-1] * k[o,c,r,s]",
                    {{"o", 1}, {"h", 5}, {"w", 5}, {"c", 2}, {"r", 3}, {"s", 3}},
                    2 * 13 * 13},
        OutsideCase{"dilation",
                    "y[o,h] = sum[c,rr] x[c,h+2*rr-2] * k[o,c,rr]",
                    {{"o", 2}, {"h", 6}, {"c", 1}, {"rr", 3}},
                    2 * (4 + 6 + 4)},
        OutsideCase{"volume",
                    "y[o,d,h,w] = sum[c,q,r,s] x[c,d+q-1,h+r-1,w+s-1] * k[o,c,q,r,s]",
                    {{"o", 1}, {"d", 3}, {"h", 4}, {"w", 4}, {"c", 1}, {"q", 3}, {"r", 3}, {"s", 3}},
                    7 * 10 * 10},
        OutsideCase{"gradient",
                    "y[c,h,w] = sum[o,r,s] x[o,h-r+1,w-s+1] * k[o,c,r,s]",
                    {{"o", 2}, {"h", 5}, {"w", 5}, {"c", 3}, {"r", 3}, {"s", 3}},
                    2 * 3 * 13 * 13},
        OutsideCase{"unfold",
                    "y[o,i] = sum[c,r] x[c,inside(i+r-1,6)%6] * k[o,c,r]",
                    {{"o", 2}, {"i", 6}, {"c", 2}, {"r", 3}},
                    2 * 2 * 16},
        OutsideCase{"greatest",
                    "y[o,h,w] = max[r,s] x[o,h+r-1,w+s-1] fill -inf",
                    {{"o", 2}, {"h", 5}, {"w", 5}, {"r", 3}, {"s", 3}},
                    2 * 13 * 13},
        OutsideCase{"mean", "y[o,h] = mean[r] x[o,h+r-1]", {{"o", 2}, {"h", 5}, {"r", 3}}, 2 * 13}),
    [](const auto& info) { return std::string(info.param.name); });

/// Rows of taps above and below an image are skipped as a whole, columns of it element by element of the
/// register tile.
TEST(OutsideSkip, LeavesBordersOfConstructedConvolutionsOut) {
  for (const std::int64_t size : {7, 14}) {
    const auto p =
        program::parse("y[o,h,w] = sum[c,r,s] x[c,h+r-1,w+s-1] * k[o,c,r,s]",
                       {.sizes = {{"o", 32}, {"h", size}, {"w", size}, {"c", 64}, {"r", 3}, {"s", 3}}});
    const Schedule schedule = default_schedule(p, Dtype::F32, Target{}, {"k"});
    Schedule all = schedule;
    std::erase_if(all.trace, [](const Decision& decision) { return decision.name == "skip"; });
    ASSERT_LT(all.trace.size(), schedule.trace.size()) << to_text(schedule);
    const double part = static_cast<double>(Terms(apply(p, schedule)).added) /
                        static_cast<double>(Terms(apply(p, all)).added);
    const double columns = 1 - 2.0 / static_cast<double>(3 * size);
    EXPECT_LT(part, columns * (size == 14 ? columns : 1) + 1e-9) << to_text(apply(p, schedule));
    Random random(5);
    expect_same(p, apply(p, schedule), random_arguments(p, random), to_text(schedule));
  }
}

/// A stage's padding is that of its copy, and of the copy's copy.
TEST(OutsideSkip, LooksThroughCopies) {
  const auto p = program::parse("y[o,h] = sum[c,r] x[c,h+r-1] * k[o,c,r]",
                                {.sizes = {{"o", 2}, {"h", 5}, {"c", 2}, {"r", 3}}});
  const LoopNest nest = apply(p, {Dtype::F32,
                                  {{"stage", "y", {}, {}, "x", {"a"}},
                                   {"stage", "a", {}, {}, "x", {"b"}},
                                   {"skip", "y", {}, {}, "", {}}}});
  EXPECT_EQ(Terms(nest).added, 2 * 2 * 13) << to_text(nest);
  Random random(7);
  expect_same(p, nest, random_arguments(p, random), "copies");
}

/// Where a loop around is a constant, the reduction runs over the terms that count: nothing asks for each.
TEST(OutsideSkip, LeavesNoConditionWhereALoopAroundIsConstant) {
  const auto p =
      program::parse("y[z: 3,w] = sum[c,r: 2,s: 4] x[c,w-r,s] * k[c,inside(3*r+z,5)] * m[inside(z+s-2,3)]",
                     {.sizes = {{"w", 6}, {"c", 2}}});
  const Decision skip{"skip", "y", {}, {}, "", {}};
  const LoopNest guarded = apply(p, {Dtype::F32, {skip}});
  const LoopNest exact = apply(p, {Dtype::F32, {{"peel", "y", {"z"}, {1, 2}, "", {}}, skip}});
  // r: 2, 2, 1 of 2; s from 2, 1, 0 up to 4, 4, 3; five of six w each: x has five.
  const std::int64_t inside = 2 * (2 * 5 * 2 + 2 * 5 * 3 + 5 * 3);
  EXPECT_EQ(Terms(guarded).added, inside) << to_text(guarded);
  EXPECT_EQ(Terms(exact).added, inside) << to_text(exact);
  const std::string text = to_text(exact);
  EXPECT_NE(text.find("for s in 2..4"), std::string::npos) << text;
  EXPECT_NE(text.find("for s in 1..4"), std::string::npos) << text;
  EXPECT_NE(text.find("for s in 0..3"), std::string::npos) << text;
  EXPECT_EQ(text.find(" + 3 * r in"), std::string::npos) << text;
  Random random(7);
  expect_same(p, exact, random_arguments(p, random), text);
}

TEST(OutsideSkip, SaysWhatIsWrong) {
  const auto refused = [](const char* text, std::vector<Decision> trace, const char* reason) {
    const auto p = program::parse(text, {.sizes = {{"i", 6}, {"r", 3}}});
    try {
      apply(p, {Dtype::F32, std::move(trace)});
      ADD_FAILURE() << "accepted; expected: " << reason;
    } catch (const ScheduleError& error) {
      EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
    }
  };
  const Decision skip{"skip", "y", {}, {}, "", {}};
  refused("y[i] = sum[r] x[i+r-1] * k[r]", {skip, skip}, "already");
  refused("y[i] = sum[r] x[i+r-1] * k[r]", {{"skip", "y", {"r"}, {}, "", {}}}, "needs 0 loop");
  for (const char* counts : {"y[i] = sum[r] x[i+r] * k[r]",           // nothing is outside
                             "y[i] = max[r] x[i+r-1]",                // zero may be the greatest
                             "y[i] = sum[r] x[i+r-1] fill 1 * k[r]",  // and one is no zero
                             "y[i] = sum[r] exp(x[i+r-1]) * k[r]",    // nor is exp(0)
                             "y[i] = sum[r] x[i+r-1] * (1 / k[r])",   // which may be infinite
                             "y[i] = sum[r] (x[i+r-1] + k[r])"})
    refused(counts, {skip}, "no term of 'y' is neutral");
}

}  // namespace
}  // namespace syno::schedule
