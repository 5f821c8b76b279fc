// Derivations of operators as they are used: the steps that lead from each to a form that is known to be
// fast, and what it computes there.
#include <gtest/gtest.h>

#include <cstdlib>

#include "derive/checking.hpp"

namespace syno::derive {
namespace {

using namespace testing;

struct Step {
  std::string row, scope, iterator, other;
  std::vector<std::int64_t> numbers = {};
};

/// One step after the other; every program on the way computes what the first one did.
Program derived(Program p, const std::vector<Step>& steps) {
  const Program first = p;
  for (const Step& step : steps) {
    const Rewrite& row = rewrite_named(step.row);
    const Site site{step.scope, step.iterator, step.other, {}, step.numbers};
    const std::string before = program::to_text(p);
    try {
      p = tidy(applied(row, std::move(p), site));
    } catch (const ScheduleError& error) {
      std::string found;
      for (const Site& other : sites(row, program::parse(before))) found += text_of(row, other) + "\n";
      ADD_FAILURE() << error.what() << "\n" << before << "sites:\n" << found;
      return p;
    }
    EXPECT_EQ(difference(first, p, Random(1)), "") << text_of(row, site) << "\n" << program::to_text(p);
  }
  if (std::getenv("PRINT_DERIVATIONS") != nullptr) fmt::print("{}\n", program::to_text(p));
  return p;
}

constexpr const char* kConvolution =
    "y[n: 1,o: 3,h: 7,w: 6] = sum[c: 2,r: 3,s: 3] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]";

TEST(Derivations, MakeWinogradOfAConvolution) {
  const Program p = derived(program::parse(kConvolution), {{"toom_cook", "y", "h", "r", {4, 3}},
                                                           {"toom_cook", "y_products", "w", "s", {2, 3}}});
  EXPECT_EQ(p.scopes.size(), 7U);
}

TEST(Derivations, MakeAProductOfMatricesOfAConvolution) {
  derived(program::parse(kConvolution), {{"split_sum", "y", "r,s", "", {1, 2}},
                                         {"substitute", "y_terms", "h", "r", {1, 1, -1}},
                                         {"substitute", "y_moved", "w", "s", {1, 1, -1}},
                                         {"tighten", "y_moved2", "h", "", {0, 7}},
                                         {"tighten", "y_moved2", "w", "", {0, 6}},
                                         {"merge_iterators", "y_moved2", "h", "w"},
                                         {"merge_iterators", "y_merged", "r", "s"}});
}

}  // namespace
}  // namespace syno::derive
