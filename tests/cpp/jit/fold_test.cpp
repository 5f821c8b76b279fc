// Lanes that meet in one element, of several vectors at once: every number of lanes and of results, every way
// to join them, results that are numbers or lanes of one vector, on every CPU level and dtype.
#include <gtest/gtest.h>

#include "nests.hpp"

namespace syno::jit {
namespace {

using namespace testing_nests;

struct Fold {
  std::int64_t lanes, rows, columns;
};
void PrintTo(const Fold& fold, std::ostream* out) {
  *out << fold.lanes << "_lanes_of_" << fold.rows << "x" << fold.columns;
}

/// What is joined with `join`, as `sum` from `start` on, of lanes that `guard` lets in; `write`: how the
/// results' inner loop runs.
std::string nest_of(const Fold& fold, const std::string& dtype, const char* join, const char* start,
                    const std::string& guard, const char* write) {
  const std::string rows = fmt::format("for i in 0..{} unroll\n", fold.rows),
                    columns = fmt::format("for j in 0..{}", fold.columns),
                    lanes = fmt::format("for l in 0..{} vector\n", fold.lanes);
  const std::string in = guard.empty() ? "" : "  ";
  return fmt::format("nest fold\ninput x: {0}[{1}, {2}, {3}]\noutput y: {0}[{1}, {2}]\n", dtype, fold.rows,
                     fold.columns, fold.lanes) +
         fmt::format("register t: {0}[{1}, {2}]\nallocate t\n", dtype, fold.rows, fold.columns) + "  " +
         rows + "    " + columns + fmt::format(" {}\n      t[i, j] = {}\n", write, start) + "  " + rows +
         "    " + columns + " unroll\n      " + lanes + guard + "        " + in +
         fmt::format("t[i, j] {} x[i, j, l] * 0.5\n", join) + "  " + rows + "    " + columns +
         fmt::format(" {}\n      y[i, j] = t[i, j]\n", write);
}

class EveryFold : public ::testing::TestWithParam<Fold> {};

TEST_P(EveryFold, ComputesWhatTheInterpreterDoes) {
  const Fold& fold = GetParam();
  const Cpu v3 = cpu_named("x86-64-v3"), generic = cpu_named("generic");
  std::uint64_t seed = 11;
  for (const char* dtype : {"f32", "f64"})
    for (const auto& [join, start] :
         {std::pair{"+=", "0"}, {"+=", "3"}, {"max=", "-inf"}, {"min=", "inf"}, {"*=", "1"}})
      for (const std::string guard : {"", "        if i + l in 0..3\n"})
        for (const char* write : {"unroll", "vector"})
          for (const Cpu* cpu : {static_cast<const Cpu*>(nullptr), &v3, &generic}) {
            const std::string text = nest_of(fold, dtype, join, start, guard, write);
            SCOPED_TRACE(text);
            expect_as_interpreted(nest::parse_loop_nest(text), seed++, cpu, 1);
            if (HasFailure()) return;
          }
}

INSTANTIATE_TEST_SUITE_P(Table, EveryFold,
                         ::testing::Values(Fold{2, 1, 1}, Fold{16, 1, 1}, Fold{16, 1, 16}, Fold{16, 1, 17},
                                           Fold{16, 4, 5}, Fold{8, 3, 8}, Fold{5, 2, 3}, Fold{3, 1, 9},
                                           Fold{4, 2, 2}, Fold{7, 3, 1}, Fold{13, 2, 7}, Fold{16, 2, 12},
                                           Fold{20, 2, 3}),
                         [](const auto& info) { return ::testing::PrintToString(info.param); });

/// The same element, met by several vectors.
TEST(EveryFold, JoinsWhatMeetsInOneElement) {
  for (const char* write : {"t[0]", "t[k]"})
    for (const char* join : {"+=", "max="})
      expect_as_interpreted(
          nest::parse_loop_nest(fmt::format(
              "nest fold\ninput x: f32[3, 4, 16]\noutput y: f32[3]\nregister t: f32[3]\nallocate t\n"
              "  for k in 0..3 unroll\n    t[k] = -1\n  for k in 0..3 unroll\n    for m in 0..4 unroll\n"
              "      for l in 0..16 vector\n        {} {} x[k, m, l]\n  for k in 0..3 unroll\n    y[k] = "
              "t[k]\n",
              write, join)),
          5);
}

/// One vector from sixteen takes fewer instructions than sixteen that are folded alone.
TEST(EveryFold, IsShorterTogether) {
  const auto size = [](const Fold& fold) {
    CompileOptions options;
    const Cpu v3 = cpu_named("x86-64-v3");
    options.cpu = &v3;
    const std::string text =
        compile(nest::parse_loop_nest(nest_of(fold, "f32", "+=", "0", "", "vector")), options)->assembly();
    return std::count(text.begin(), text.end(), '\n');
  };
  const auto one = size({8, 1, 1}), eight = size({8, 1, 8});
  EXPECT_LT(eight, 5 * one);
}

}  // namespace
}  // namespace syno::jit
