// Property: three to six rewrites in sequence, each at a site by lot, leave what a program computes as it
// was.
//
//   REWRITE_CHAINS=20000 build/release/test_derive    as many chains; 300 otherwise
//   REWRITE_CHAINS_SEED=1234                          the first seed, to see one again: REWRITE_CHAINS=1
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "derive/checking.hpp"

namespace syno::derive {
namespace {

using namespace testing;

std::int64_t number_from_environment(const char* name, std::int64_t otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::strtoll(value, nullptr, 10) : otherwise;
}

/// What the interpreter has to do: points of all scopes, times what a body is made of.
std::int64_t work_of(const Program& p) {
  std::int64_t work = 0;
  for (const Scope& scope : p.scopes) {
    std::int64_t points = program::nodes_of(p, scope.body, 1 << 12);
    for (const auto* list : {&scope.traversal, &scope.sums})
      for (const Iterator& iterator : *list) {
        const auto [begin, end] = program::extent_of(p, iterator.range, 0);
        points *= end - begin;
      }
    work += points;
  }
  return work;
}

struct Chains {
  std::map<std::string_view, std::int64_t> times;
  std::int64_t applications = 0;

  void run(std::uint64_t seed) {
    constexpr std::int64_t kMostWork = 1 << 18;
    Random random(seed);
    const Program before = random_program(random);
    Program p = before;
    std::string trace = program::to_text(p);
    for (std::uint64_t steps = 3 + random.below(4); steps > 0; --steps) {
      std::vector<const Rewrite*> rows;
      for (const Rewrite& row : rewrites()) rows.push_back(&row);
      while (!rows.empty()) {  // every row is as likely as the others, however many sites it has
        const std::size_t which = random.below(rows.size());
        const Rewrite& row = *rows[which];
        rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(which));
        const std::vector<Site> found = sites(row, p);
        if (found.empty()) continue;
        const Site site = found[random.below(found.size())];
        trace += "-- " + text_of(row, site) + "\n";
        Program after = tidy(applied(row, p, site));
        trace += program::to_text(after);
        ++times[row.name], ++applications;
        if (work_of(after) <= kMostWork) p = std::move(after);
        break;
      }
    }
    std::string wrong;
    try {
      wrong = difference(before, p, random);
    } catch (const Error& error) {
      wrong = error.what();
    }
    ASSERT_EQ(wrong, "") << "seed " << seed << "\n" << trace;
  }
};

TEST(RewriteChains, ComputeWhatTheProgramDid) {
  const auto first = static_cast<std::uint64_t>(number_from_environment("REWRITE_CHAINS_SEED", 1));
  const auto count =
      static_cast<std::uint64_t>(std::max<std::int64_t>(0, number_from_environment("REWRITE_CHAINS", 300)));
  Chains chains;
  for (std::uint64_t seed = first; seed < first + count && !HasFatalFailure(); ++seed) chains.run(seed);
  for (const auto& [name, times] : chains.times) RecordProperty(std::string(name), static_cast<int>(times));
  RecordProperty("applications", static_cast<int>(chains.applications));
  if (count >= 100) EXPECT_GT(chains.applications, static_cast<std::int64_t>(2 * count));
}

}  // namespace
}  // namespace syno::derive
