// Intermediate results with another dimension innermost: they keep their meaning, told numbers mean the same
// at all sizes, and a constructed schedule has them where vectors would be gathered otherwise.
#include <gtest/gtest.h>

#include <algorithm>

#include "construct/construct.hpp"
#include "construct/gensor.hpp"
#include "construct/machines.hpp"
#include "derive/rewrite.hpp"
#include "fixture.hpp"
#include "schedule/decisions.hpp"
#include "support/error.hpp"

namespace syno::schedule {
namespace {

/// Programs whose readers move along a dimension of an intermediate result step by step that does not lie
/// innermost in it, by an extent of that dimension.
struct Family {
  const char* name;
  const char* text;  ///< with {c} for the extent
};
void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

constexpr Family kFamilies[] = {
    {"Blocks",
     "t[c: {c},h: 5,w: 2] = sum[d: 6] x[d,h,w] * k[c,d]\n"
     "y[c: {c},h: 5,w: 8] = t[c,h,w/4] * l[w%4,c]\nreturn y"},
    {"Windows",
     "t[c: {c},h: 9] = sum[d: 4] x[d,h] * k[c,d]\n"
     "y[c: {c},h: 9] = sum[r: 3] t[c,h+r-1] * l[c,r]\nreturn y"},
    {"Strides",
     "t[c: {c},w: 13] = x[c,w] * exp(x[c,w+1])\ny[c: {c},w: 7] = sum[r: 2] t[c,2*w+r] * l[c,r]\n"
     "return y"},
    {"ChainOfTwo",
     "t[c: {c},h: 9] = sum[d: 4] x[d,h] * k[c,d]\n"
     "u[c: {c},h: 9] = sum[r: 3] t[c,h+r-1] * l[c,r]\n"
     "y[c: {c},h: 4] = sum[s: 2] u[c,2*h+s] * m[c,s]\nreturn y"},
    {"Reduced",
     "t[c: {c},h: 5,w: 2] = sum[d: 6] x[d,h,w] * k[c,d]\n"
     "y[h: 5,w: 8] = sum[c: {c}] t[c,h,w/4] * l[w%4,c]\nreturn y"},
    {"ShortRows",
     "t[c: {c},d: 6,w: 7] = sum[k: 3] x[c,w,k] * l[d,k]\n"
     "y[c: {c},h: 5,w: 7] = sum[d: 6] t[c,d,w] * k[h,c,d]\nreturn y"},
    {"Maximum",
     "t[c: {c},w: 13] = max[d: 3] x[c,d,w]\ny[c: {c},w: 6] = max[r: 3] (t[c,2*w+r] fill -inf)\n"
     "return y"},
};

/// Vectors of 512, 256 and 128 bits.
std::vector<machine::Machine> machines() {
  machine::Machine small = construct::desktop();
  small.name = "small";
  small.vector_bits = 128;
  small.vector_registers = 32;
  return {construct::server(), construct::desktop(), small};
}

program::Program program_of(const Family& family, std::int64_t extent) {
  return program::parse(fmt::format(fmt::runtime(family.text), fmt::arg("c", extent)));
}

class EveryFamily : public ::testing::TestWithParam<Family> {};

TEST_P(EveryFamily, KeepsItsMeaning) {
  Random random(5);
  for (const std::int64_t extent : {8, 13, 33}) {
    const auto p = program_of(GetParam(), extent);
    Plan plan(p, Dtype::F32);
    const std::size_t output = plan.scope_named("y");
    const auto sites = sites_of(plan, "innermost", output);
    ASSERT_EQ(sites.size(), 1U) << program::to_text(p);
    const auto dims = derive::innermost_dims(plan.program, output);
    Plan told = plan;
    decide(plan, decision_for("innermost", sites[0]));
    decide(told, {"innermost", "y", {}, dims, "", {}});
    EXPECT_EQ(program::to_text(plan.program), program::to_text(told.program));
    EXPECT_TRUE(sites_of(plan, "innermost", plan.scope_named("y")).empty()) << "moved once";
    const LoopNest nest = emit(plan);
    ASSERT_NO_THROW(verify(nest)) << to_text(nest);
    expect_same(p, nest, random_arguments(p, random), to_text(nest));
    if (HasFatalFailure()) return;
  }
}

TEST_P(EveryFamily, TakesAnyDimension) {
  Random random(6);
  const auto p = program_of(GetParam(), 9);
  const Plan plan(p, Dtype::F32);
  for (int trial = 0; trial < 20; ++trial) {
    Plan next = plan;
    std::vector<std::int64_t> dims = derive::innermost_dims(plan.program, plan.scope_named("y"));
    for (std::int64_t& dim : dims) dim = draw(random, -1, 1);  // none has fewer than two dimensions
    decide(next, {"innermost", "y", {}, dims, "", {}});
    expect_same(p, emit(next), random_arguments(p, random), fmt::format("{}", fmt::join(dims, ",")));
    if (HasFatalFailure()) return;
  }
}

/// The longest dimension is another one at 9 and at 3; what numbers say of 9 holds at 3, where nothing would
/// be moved by itself.
TEST_P(EveryFamily, MovesTheSameAtOtherSizes) {
  Random random(7);
  const auto p = program_of(GetParam(), 9);
  const Plan plan(p, Dtype::F32);
  const Decision told{"innermost", "y", {}, derive::innermost_dims(plan.program, plan.scope_named("y")),
                      "",          {}};
  for (const std::int64_t extent : {1, 3, 40}) {
    const auto other = program_of(GetParam(), extent);
    Plan there(other, Dtype::F32), here = plan;
    decide(there, told);
    decide(here, told);
    for (std::size_t t = 0; t < here.program.tensors.size(); ++t)
      EXPECT_EQ(there.program.tensors[t].dims.size(), here.program.tensors[t].dims.size());
    for (std::size_t s = 0; s < here.program.scopes.size(); ++s)
      for (std::size_t i = 0; i < here.program.scopes[s].traversal.size(); ++i)
        EXPECT_EQ(there.program.scopes[s].traversal[i].name, here.program.scopes[s].traversal[i].name);
    expect_same(other, emit(there), random_arguments(other, random), "told");
  }
}

/// Every policy's schedule keeps the meaning, on CPUs of three widths.
TEST_P(EveryFamily, IsConstructed) {
  Random random(8);
  const auto p = program_of(GetParam(), 32);
  for (const auto& machine : machines())
    for (const char* policy : {"graph", "counted"}) {
      construct::ConstructOptions options;
      options.policy = policy;
      const auto made = construct::construct(p, Dtype::F32, machine, options);
      expect_same(p, apply(p, made.schedule), random_arguments(p, random), to_text(made.schedule));
      if (HasFatalFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(Programs, EveryFamily, ::testing::ValuesIn(kFamilies),
                         [](const auto& info) { return std::string(info.param.name); });

/// Vectors of the intermediate result go along its channels, of which its reader takes one after the other;
/// its own innermost dimension is read in blocks of seven.
TEST(Innermost, IsChosenWhereVectorsWouldBeGathered) {
  const auto p = program::parse(
      "t[c: 64,h: 28,w: 4] = sum[d: 64] x[d,h,w] * k[c,d]\ny[c: 64,h: 28,w: 28] = t[c,h,w/7] * l[w%7,c]\n"
      "return y");
  const auto has = [](const Schedule& schedule) {
    return std::any_of(schedule.trace.begin(), schedule.trace.end(),
                       [](const Decision& decision) { return decision.name == "innermost"; });
  };
  for (const auto& machine : machines()) {
    const auto made = construct::construct(p, Dtype::F32, machine, {});
    EXPECT_TRUE(has(made.schedule)) << machine.name << '\n' << to_text(made.schedule);
  }
  const auto plain = program::parse(
      "t[c: 64,w: 28] = sum[d: 64] x[d,w] * k[c,d]\ny[c: 64,w: 28] = relu(t[c,w]) + b[c]\nreturn y");
  for (const auto& machine : machines())
    EXPECT_FALSE(has(construct::construct(plain, Dtype::F32, machine, {}).schedule));
}

TEST(Innermost, RefusesWhatItCannotDo) {
  const auto p = program_of(kFamilies[0], 9);
  const auto refused = [&](const Decision& decision, std::string_view part, const Plan& plan) {
    Plan next = plan;
    const Refused why = try_decide(next, decision);
    ASSERT_TRUE(why) << decision.scope;
    EXPECT_NE(why->reason().find(part), std::string::npos) << why->reason();
  };
  const Plan plan(p, Dtype::F32);
  refused({"innermost", "t", {}, {}, "", {}}, "'t' is no output", plan);
  refused({"innermost", "q", {}, {}, "", {}}, "'q'", plan);
  refused({"innermost", "y", {}, {0, 1}, "", {}}, "1 intermediate results, not of 2", plan);
  refused({"innermost", "y", {}, {3}, "", {}}, "no number 3", plan);
  refused({"innermost", "y", {}, {-2}, "", {}}, "no number -2", plan);
  Plan moved = plan;
  decide(moved, {"innermost", "y", {}, {}, "", {}});
  refused({"innermost", "y", {}, {}, "", {}}, "does not apply", moved);
  Plan split = plan;
  decide(split, {"split", "y", {"c"}, {4}, "", {}});
  refused({"innermost", "y", {}, {}, "", {}}, "came before", split);
}

}  // namespace
}  // namespace syno::schedule
