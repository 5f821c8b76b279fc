// Verification of kernels: what is right passes in every dtype, and a mistake at one border does not.
#include <gtest/gtest.h>

#include "construct/construct.hpp"
#include "jit/check_data.hpp"
#include "jit/kernel.hpp"
#include "program/text.hpp"
#include "schedule/schedule.hpp"
#include "support/error.hpp"

namespace syno::jit {
namespace {

using nest::Dtype;

program::Program parsed(const std::string& text, const std::map<std::string, std::int64_t>& sizes) {
  program::ParseOptions options;
  options.sizes = {sizes.begin(), sizes.end()};
  return program::parse(text, options);
}

struct ScheduledCase {
  std::string name, text;
  std::map<std::string, std::int64_t> sizes;
};
void PrintTo(const ScheduledCase& value, std::ostream* out) { *out << value.name; }

class ScheduledKernel : public ::testing::TestWithParam<ScheduledCase> {};

TEST_P(ScheduledKernel, PassesInEveryDtypeOnEveryCpu) {
  const program::Program program = parsed(GetParam().text, GetParam().sizes);
  const Cpu generic = cpu_named("generic"), v3 = cpu_named("x86-64-v3");
  for (const Dtype dtype : {Dtype::F32, Dtype::F64, Dtype::BF16})
    for (const Cpu* cpu : {&host_cpu(), &v3, &generic}) {
      const auto made = construct::default_schedule(program, dtype, cpu->target);
      CompileOptions options;
      options.cpu = cpu;
      const auto kernel = compile(schedule::apply(program, made), options);
      const Verification result = verify(*kernel, program, 7);
      EXPECT_TRUE(result.passed) << nest::name_of(dtype) << " on " << cpu->name << ": " << result.max_rel_err
                                 << " " << result.detail << "\n"
                                 << nest::to_text(kernel->nest());
      EXPECT_GT(result.points, 0);
    }
}

/// What was drawn beforehand is what a check draws itself, and it is not drawn again.
TEST_P(ScheduledKernel, IsCheckedOnWhatWasDrawnBefore) {
  const program::Program program = parsed(GetParam().text, GetParam().sizes);
  const auto kernel =
      compile(schedule::apply(program, construct::default_schedule(program, Dtype::F32, host_cpu().target)));
  const Verification own = verify(*kernel, program, 7);
  DrawnInputs drawn;
  draw_inputs(nullptr, *kernel, program, 7, drawn);
  for (int time = 0; time < 2; ++time) {
    const Verification again = verify(nullptr, *kernel, program, 7, {}, drawn);
    EXPECT_EQ(again.max_rel_err, own.max_rel_err);
    EXPECT_EQ(again.points, own.points);
    EXPECT_EQ(again.detail, own.detail);
    for (std::size_t i = 0; i < program.inputs().size(); ++i) EXPECT_TRUE(drawn.found(i)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, ScheduledKernel,
    ::testing::Values(
        ScheduledCase{"matmul", "c[i,j] = sum[k] a[i,k] * b[k,j]", {{"i", 37}, {"j", 45}, {"k", 29}}},
        ScheduledCase{"conv",
                      "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]",
                      {{"n", 1}, {"o", 19}, {"c", 5}, {"h", 9}, {"w", 11}, {"r", 3}, {"s", 3}}},
        ScheduledCase{"strided_conv",
                      "y[n,o,h,w] = sum[c,r,s] x[n,c,2*h+r-1,2*w+s-1] * k[o,c,r,s]",
                      {{"n", 2}, {"o", 6}, {"c", 3}, {"h", 7}, {"w", 5}, {"r", 3}, {"s", 3}}},
        ScheduledCase{"grouped_conv",
                      "y[g,o,h,w] = sum[c,r,s] x[g,c,h+r-1,w+s-1] * k[g,o,c,r,s]",
                      {{"g", 4}, {"o", 3}, {"c", 2}, {"h", 6}, {"w", 13}, {"r", 3}, {"s", 3}}},
        ScheduledCase{"conv_residual",
                      "y[n,o,h,w] = max(sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s] + b[o] + z[n,o,h,w], 0)",
                      {{"n", 2}, {"o", 21}, {"c", 5}, {"h", 9}, {"w", 11}, {"r", 3}, {"s", 3}}},
        ScheduledCase{"small_conv_residual",
                      "y[o,h,w] = max(sum[c,r,s] x[c,h+r-1,w+s-1] * k[o,c,r,s] + b[o] + z[o,h,w], 0)",
                      {{"o", 39}, {"c", 17}, {"h", 5}, {"w", 5}, {"r", 3}, {"s", 3}}},
        ScheduledCase{
            "linear_gelu", "y[m,n] = gelu(sum[k] x[m,k] * w[n,k] + b[n])", {{"m", 19}, {"n", 45}, {"k", 29}}},
        ScheduledCase{"two_stages",
                      "t[i,j] = sum[k] a[i,k] * b[k,j]; y[i,l] = sum[j] t[i,j] * d[j,l]",
                      {{"i", 11}, {"j", 21}, {"k", 9}, {"l", 17}}},
        ScheduledCase{"max_pool",
                      "y[c,h,w] = max[r,s] x[c,2*h+r,2*w+s]",
                      {{"c", 5}, {"h", 7}, {"w", 9}, {"r", 2}, {"s", 2}}},
        ScheduledCase{
            "softmax",
            "m[i] = max[j] x[i,j]; s[i] = sum[j] exp(x[i,j] - m[i]); y[i,j] = exp(x[i,j] - m[i]) / s[i]",
            {{"i", 7}, {"j", 33}}},
        ScheduledCase{
            "outputs_of_outputs",
            "t[i,j] = sum[k] a[i,k] * b[k,j]; u[i,l] = sum[j] t[i,j] * d[j,l]; v[i] = sum[l] u[i,l]; "
            "return t, u, v",
            {{"i", 11}, {"j", 21}, {"k", 9}, {"l", 17}}},
        ScheduledCase{"fill_of_many_digits", "y[i] = sum[r] x[i+r-1] fill 1/3", {{"i", 37}, {"r", 3}}},
        ScheduledCase{"constant_of_many_digits",
                      "constant c[3] = {1/3, 1/10, 7/9}; y[i] = sum[r] x[i+r-1] * c[r]",
                      {{"i", 37}}},
        ScheduledCase{"shifted", "y[i] = x[(i + 3) % 20] * 2", {{"i", 20}}}),
    [](const auto& info) { return info.param.name; });

TEST(Verification, FindsAMistakeAtOneElementOfABorder) {
  const program::Program program = parsed("y[i,j] = x[i,j] + z[j]", {{"i", 41}, {"j", 67}});
  const std::string head = "nest wrong\ninput x: f32[41, 67]\ninput z: f32[67]\noutput y: f32[41, 67]\n";
  const std::string right =
      "for i in 0..41\n  for o in 0..5\n    for v in 0..16 vector\n      if 16 * o + v in 0..67\n"
      "        y[i, 16 * o + v] = x[i, 16 * o + v] + z[16 * o + v]\n";
  EXPECT_TRUE(verify(*compile(nest::parse_loop_nest(head + right)), program));
  for (const std::string mistake : {
           "y[40, 66] = 0\n",                         // a corner
           "for i in 0..41\n  y[i, 63] = 0\n",        // the last column before the tail
           "for i in 0..41\n  y[i, 64] = 0\n",        // the first of the tail
           "for j in 0..67\n  y[0, j] += 0.01\n",     // a border, slightly
           "for i in 0..41\n  y[i, 66] = y[i, 65]\n"  // the tail's end
       }) {
    const auto kernel = compile(nest::parse_loop_nest(head + right + mistake));
    const Verification result = verify(*kernel, program);
    EXPECT_FALSE(result.passed) << mistake;
    EXPECT_NE(result.detail.find("y["), std::string::npos);
    EXPECT_GE(result.points, 256);
    const Verification quick = verify(*kernel, program, 0, {48, 1 << 17});
    EXPECT_FALSE(quick.passed) << mistake;
    EXPECT_LT(quick.points, result.points);
  }
}

/// With fewer terms to spend, rows that share what is added up are fewer; each one's elements are compared as
/// before.
TEST(Verification, SpendsNoMoreTermsThanItIsGiven) {
  const program::Program program =
      parsed("m[i] = mean[k] x[i,k]; y[i,j] = x[i,j] - m[i]; return y", {{"i", 300}, {"j", 500}, {"k", 500}});
  const std::string right =
      "nest means\ninput x: f32[300, 500]\noutput y: f32[300, 500]\ntemporary s: f32[1]\nfor i in 0..300\n"
      "  allocate s\n    s[0] = 0\n    for k in 0..500\n      s[0] += x[i, k] / 500\n    for j in 0..500\n"
      "      y[i, j] = x[i, j] - s[0]\n";
  for (const std::string mistake :
       {"", "for i in 0..300\n  y[i, 499] = 0\n", "for j in 0..500\n  y[299, j] = 0\n"}) {
    const auto kernel = compile(nest::parse_loop_nest(right + mistake));
    const Verification all = verify(*kernel, program), some = verify(*kernel, program, 0, {256, 1 << 14});
    EXPECT_EQ(some.passed, mistake.empty()) << mistake << some.detail;
    EXPECT_LT(some.points, all.points);
    EXPECT_GE(some.points, 64);
  }
}

TEST(Verification, ComparesFewerPointsOfVeryLongSums) {
  const program::Program program =
      parsed("y[a] = sum[m,n] x[m] * z[n] * w[a]", {{"a", 90}, {"m", 256}, {"n", 256}});
  const std::string right =
      "nest long\ninput x: f32[256]\ninput z: f32[256]\ninput w: f32[90]\n"
      "output y: f32[90]\ntemporary s: f32[2]\nallocate s\n  s[0] = 0\n  s[1] = 0\n  for m in 0..256\n    "
      "s[0] += x[m]\n"
      "    s[1] += z[m]\n  for a in 0..90\n    y[a] = s[0] * s[1] * w[a]\n";
  for (const bool wrong : {false, true}) {
    const auto kernel = compile(nest::parse_loop_nest(right + (wrong ? "  y[89] = 0\n" : "")));
    const Verification result = verify(*kernel, program, 0, {256, 1 << 21});
    EXPECT_EQ(result.passed, !wrong) << result.detail;
    EXPECT_EQ(result.points, 32);
  }
}

/// Results of a batch's channels share what is added up over the batch: as many channels are compared as can
/// be paid, at all places, and a mistake in one of them, or at one place, is seen.
TEST(Verification, ComparesFewerChannelsWhereEachAddsUpABatch) {
  const program::Program program = parsed(
      "c[n,o,w] = sum[k] x[n,k,w] * x[n,k,w] * f[o,k] * f[o,k]; m[o] = mean[n,w] c[n,o,w]; "
      "y[n,o,w] = c[n,o,w] + m[o]; return y, m",
      {{"n", 20}, {"o", 48}, {"w", 60}, {"k", 60}});
  const std::string right =
      "nest channels\ninput x: f32[20, 60, 60]\ninput f: f32[48, 60]\noutput y: f32[20, 48, 60]\n"
      "output m: f32[48]\nfor o in 0..48\n  m[o] = 0\nfor n in 0..20\n  for o in 0..48\n    for w in 0..60\n"
      "      y[n, o, w] = 0\n      for k in 0..60\n        y[n, o, w] += x[n, k, w] * x[n, k, w] * f[o, k] "
      "* "
      "f[o, k]\n      m[o] += y[n, o, w] / 1200\n"
      "for n in 0..20\n  for o in 0..48\n    for w in 0..60\n      y[n, o, w] += m[o]\n";
  for (const std::string mistake :
       {"", "m[47] = 0\n", "for n in 0..20\n  for o in 0..48\n    y[n, o, 59] = 0\n"}) {
    const auto kernel = compile(nest::parse_loop_nest(right + mistake));
    const Verification result = verify(*kernel, program, 0, {256, 1 << 21});
    EXPECT_EQ(result.passed, mistake.empty()) << mistake << result.detail;
    EXPECT_GE(result.points, 256 + 32) << "all places of few channels";
  }
}

TEST(Verification, SeesElementsNothingWrote) {
  const program::Program program = parsed("y[i] = x[i]", {{"i", 9}});
  const auto kernel = compile(
      nest::parse_loop_nest("nest n\ninput x: f32[9]\noutput y: f32[9]\nfor i in 0..8\n  y[i] = x[i]\n"));
  EXPECT_FALSE(verify(*kernel, program));
}

TEST(Verification, RefusesAnotherProgramsKernel) {
  const program::Program program = parsed("y[i] = x[i]", {{"i", 9}});
  const auto kernel = compile(
      nest::parse_loop_nest("nest n\ninput x: f32[8]\noutput y: f32[8]\nfor i in 0..8\n  y[i] = x[i]\n"));
  EXPECT_THROW(verify(*kernel, program), KernelError);
}

}  // namespace
}  // namespace syno::jit
