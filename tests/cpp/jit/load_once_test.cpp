// Iterations of an unrolled loop share what they load, until something is written there.
#include <gtest/gtest.h>

#include "nest/loop_nest.hpp"
#include "nests.hpp"

namespace syno::jit {
namespace {

using namespace testing_nests;

struct LoadOnceCase {
  std::string name, text;
  int vectors = 0;   ///< loaded of `b`
  int products = 0;  ///< that nothing is added to
};
void PrintTo(const LoadOnceCase& value, std::ostream* out) { *out << value.name; }

const std::vector<LoadOnceCase>& load_once_cases() {
  static const std::vector<LoadOnceCase> all{
      {"rows_of_a_tile",
       "input a: T[6]\ninput b: T[8]\noutput y: T[6, 8]\nregister s: T[6, 8]\nallocate s\n"
       "  for i in 0..6 unroll\n    for l in 0..8 vector\n      s[i, l] = 0\n"
       "  for i in 0..6 unroll\n    for l in 0..8 vector\n      s[i, l] += a[i] * b[l]\n"
       "  for i in 0..6 unroll\n    for l in 0..8 vector\n      y[i, l] = s[i, l]\n",
       1},
      {"shifted_by_the_iteration",
       "input a: T[3]\ninput b: T[10]\noutput y: T[3, 8]\n"
       "for i in 0..3 unroll\n  for l in 0..8 vector\n    y[i, l] = a[i] * b[i + l]\n",
       3, 3},
      {"strides_that_differ",
       "input b: T[16]\noutput y: T[2, 8]\n"
       "for l in 0..8 vector\n  y[0, l] = b[l]\nfor l in 0..8 vector\n  y[1, l] = b[8 - l]\n",
       2},
      {"written_in_between",
       "input a: T[8]\noutput y: T[3, 8]\ntemporary b: T[8]\nallocate b\n  for l in 0..8 vector\n    b[l] = "
       "a[l]\n"
       "  for i in 0..3 unroll\n    for l in 0..8 vector\n      y[i, l] = b[l]\n"
       "    for l in 0..8 vector\n      b[l] = b[l] * 2\n",
       4, 3},
      {"guarded_by_the_iteration",
       "input b: T[8]\noutput y: T[3, 8]\nfor i in 0..3 unroll\n  for l in 0..8 vector\n"
       "    y[i, l] = b[l + i - 1] {l + i - 1 in 0..8 else 3}\n",
       3},
      {"in_another_block",
       "input b: T[8]\noutput y: T[9, 8]\nfor l in 0..8 vector\n  y[0, l] = b[l]\nfor i in 1..9\n"
       "  for l in 0..8 vector\n    y[i, l] = b[l]\n",
       2},
  };
  return all;
}

std::string typed(const LoadOnceCase& value, const std::string& dtype) {
  std::string text = "nest " + value.name + "\n" + value.text;
  for (std::size_t at = 0; (at = text.find(": T[", at)) != std::string::npos;) text.replace(at + 2, 1, dtype);
  return text;
}

int occurrences(const std::string& text, const std::string& wanted) {
  int count = 0;
  for (std::size_t at = 0; (at = text.find(wanted, at)) != std::string::npos; at += wanted.size()) ++count;
  return count;
}

class LoadOnce : public ::testing::TestWithParam<LoadOnceCase> {};

TEST_P(LoadOnce, ComputesWhatTheInterpreterDoes) {
  const Cpu v3 = cpu_named("x86-64-v3"), generic = cpu_named("generic");
  std::uint64_t seed = 1;
  for (const std::string dtype : {"f32", "f64"})
    for (const Cpu* cpu : {static_cast<const Cpu*>(nullptr), &v3, &generic})
      expect_as_interpreted(nest::parse_loop_nest(typed(GetParam(), dtype)), seed++, cpu, 1);
}

TEST_P(LoadOnce, LoadsEachVectorOnce) {
  const Cpu v3 = cpu_named("x86-64-v3");
  const auto nest = nest::parse_loop_nest(typed(GetParam(), "f32"));
  const std::string ir = compile(nest, {.cpu = &v3})->llvm();
  EXPECT_EQ(occurrences(ir, "= load <8 x float>") + occurrences(ir, "= call <8 x float> @llvm.masked.load"),
            GetParam().vectors)
      << ir;
  EXPECT_EQ(occurrences(ir, "fmul <8 x float>"), GetParam().products) << ir;
}

INSTANTIATE_TEST_SUITE_P(Table, LoadOnce, ::testing::ValuesIn(load_once_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace syno::jit
