// What takes long is computed before the loops that do not change it, and nowhere else.
#include <gtest/gtest.h>

#include "nest/loop_nest.hpp"
#include "nests.hpp"

namespace syno::jit {
namespace {

using namespace testing_nests;

struct InvariantCase {
  std::string name, text;
  bool moves = false;  ///< out of the loop called `j`
};
void PrintTo(const InvariantCase& value, std::ostream* out) { *out << value.name; }

const std::vector<InvariantCase>& cases() {
  static const std::vector<InvariantCase> all{
      {"root_of_a_row",
       "input x: T[5, 40]\ninput s: T[5]\noutput y: T[5, 40]\nfor i in 0..5\n  for j in 0..40\n"
       "    y[i, j] = x[i, j] * sqrt(abs(s[i]))\n",
       true},
      {"quotient_by_a_row",
       "input x: T[5, 160]\ninput s: T[5]\noutput y: T[5, 160]\nfor i in 0..5\n  for j in 0..10\n"
       "    for l in 0..16 vector\n      y[i, 16 * j + l] = x[i, 16 * j + l] / (2 + s[i])\n",
       true},
      {"quotient_by_a_number",
       "input x: T[160]\noutput y: T[160]\nfor j in 0..10\n  for l in 0..16 vector\n"
       "    y[16 * j + l] = x[16 * j + l] / 9\n",
       true},
      {"quotients_by_divisors_near_the_ends_of_the_exponents",
       "input x: T[6, 64]\noutput y: T[6, 64]\nconstant d: T[6] = {1e-40, 1e-38, 3e38, 1e30, -2e-39, 7}\n"
       "for i in 0..6\n  for j in 0..2\n    for l in 0..16 vector\n"
       "      y[i, 16 * j + l] = x[i, 16 * j + l] * 0.5 * d[i] / d[i]\n"
       "      y[i, 32 + 16 * j + l] = x[i, 16 * j + l] * 0 / d[i]\n",
       true},
      {"of_a_temporary",
       "input x: T[5, 40]\noutput y: T[5, 40]\ntemporary t: T[1]\nfor i in 0..5\n  allocate t\n    t[0] = 0\n"
       "    for k in 0..40\n      t[0] += x[i, k] * x[i, k]\n    for j in 0..40\n"
       "      y[i, j] = x[i, j] + sqrt(t[0])\n",
       true},
      {"of_what_the_loop_writes",
       "input x: T[40]\noutput y: T[40]\ntemporary t: T[1]\nallocate t\n  t[0] = 1\n  for j in 0..40\n"
       "    t[0] += x[j] * x[j]\n    y[j] = sqrt(t[0])\n"},
      {"of_the_loop_itself", "input x: T[40]\noutput y: T[40]\nfor j in 0..40\n  y[j] = sqrt(abs(x[j]))\n"},
      {"behind_a_guard",
       "input x: T[5, 40]\ninput s: T[3]\noutput y: T[5, 40]\nfor i in 0..5\n  for j in 0..40\n"
       "    y[i, j] = x[i, j] * sqrt(abs(s[i - 1] {i - 1 in 0..3 else 4}))\n"},
      {"in_bounds_only_inside_an_if",
       "input x: T[9, 40]\ninput s: T[3]\noutput y: T[9, 40]\nfor i in 0..9\n  for j in 0..40\n    y[i, j] = "
       "0\n"
       "    if i in 0..3\n      y[i, j] = x[i, j] * sqrt(abs(s[i]))\n"},
      {"different_at_unrolled_iterations",
       "input x: T[4, 40]\ninput s: T[4]\noutput y: T[4, 40]\nfor j in 0..40\n  for i in 0..4 unroll\n"
       "    y[i, j] = x[i, j] * sqrt(abs(s[i]))\n",
       true},
      {"maybe_no_iterations",
       "input x: T[5, 5]\ninput s: T[5]\noutput y: T[5, 5]\nfor i in 0..5\n  for k in 0..5\n    y[i, k] = 0\n"
       "  for j in 0..i\n    y[i, j] = x[i, j] * sqrt(abs(s[i]))\n",
       true},
  };
  return all;
}

std::string with_dtype(const InvariantCase& value, const std::string& dtype) {
  std::string text = "nest " + value.name + "\n" + value.text;
  for (std::size_t at = 0; (at = text.find(": T[", at)) != std::string::npos;) text.replace(at + 2, 1, dtype);
  return text;
}

class BeforeLoops : public ::testing::TestWithParam<InvariantCase> {};

TEST_P(BeforeLoops, ComputesWhatTheInterpreterDoes) {
  const Cpu v3 = cpu_named("x86-64-v3"), generic = cpu_named("generic");
  std::uint64_t seed = 1;
  for (const std::string dtype : {"f32", "f64", "bf16"})
    for (const Cpu* cpu : {static_cast<const Cpu*>(nullptr), &v3, &generic})
      expect_as_interpreted(nest::parse_loop_nest(with_dtype(GetParam(), dtype)), seed++, cpu, 1);
}

TEST_P(BeforeLoops, LeavesNothingSlowInTheLoopThatNeedNotBe) {
  const auto kernel = compile(nest::parse_loop_nest(with_dtype(GetParam(), "f32")), {});
  const std::string ir = kernel->llvm();
  const std::size_t begin = ir.find("\nj:"), end = ir.find("\n}", begin);
  ASSERT_NE(begin, std::string::npos) << ir;
  const std::string loop = ir.substr(begin, end - begin);  // and what follows it, which is nothing slow here
  const bool slow = loop.find("fdiv") != std::string::npos || loop.find("@llvm.sqrt") != std::string::npos;
  EXPECT_EQ(!slow, GetParam().moves) << ir;
}

INSTANTIATE_TEST_SUITE_P(Table, BeforeLoops, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace syno::jit
