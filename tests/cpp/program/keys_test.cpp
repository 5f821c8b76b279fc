// The two equalities: what must have the same key, what must not, and an independent comparison of terms.
#include "program/keys.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <set>

#include "operators_small.hpp"
#include "support/error.hpp"
#include "support/random.hpp"

namespace syno::program {
namespace {

using testing::channels;
using testing::operator_text;
using testing::operators_small;

TEST(OperatorKey, TheKnownSmallOperatorsAreAllDifferent) {
  const auto entries = operators_small();
  ASSERT_EQ(entries.size(), 132u);
  OperatorKeyCache cache;
  std::map<Hash128, std::string> seen;
  std::vector<Program> programs;
  for (const auto& entry : entries) programs.push_back(parse(operator_text(entry)));
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < programs.size(); ++i) {
    const Hash128 key = operator_key(programs[i], channels(programs[i]), &cache);
    const auto [place, is_new] = seen.try_emplace(key, entries[i].dump());
    EXPECT_TRUE(is_new) << entries[i].dump() << "\n has the key of\n" << place->second;
  }
  const std::chrono::duration<double, std::micro> first = std::chrono::steady_clock::now() - start;
  const auto again = std::chrono::steady_clock::now();
  for (const Program& program : programs) {
    EXPECT_TRUE(seen.contains(operator_key(program, channels(program), &cache)));
  }
  const std::chrono::duration<double, std::micro> second = std::chrono::steady_clock::now() - again;
  std::printf("  %.1f us a key with an empty cache, %.1f us with a full one\n", first.count() / 132,
              second.count() / 132);
}

}  // namespace
}  // namespace syno::program
