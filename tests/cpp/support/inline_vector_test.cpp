// InlineVector does what std::vector does, near and far.
#include "support/inline_vector.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

namespace syno {
namespace {

using Pair = std::pair<std::uint32_t, std::int64_t>;

template <class T>
std::vector<T> plain(const InlineVector<T, 3>& values) {
  return {values.begin(), values.end()};
}

RC_GTEST_PROP(InlineVector, HoldsWhatAVectorHolds, (const std::vector<std::string>& values)) {
  InlineVector<std::string, 3> made;
  for (const auto& value : values) made.push_back(value);
  RC_ASSERT(plain(made) == values);
  RC_ASSERT(made.size() == values.size());
  RC_ASSERT(made.empty() == values.empty());
  if (!values.empty()) {
    RC_ASSERT(made.front() == values.front());
    RC_ASSERT(made.back() == values.back());
    RC_ASSERT(made[values.size() / 2] == values[values.size() / 2]);
  }
  InlineVector<std::string, 3> copy = made;
  RC_ASSERT(copy == made);
  copy.push_back("more");
  RC_ASSERT(plain(made) == values);  // a copy has memory of its own
  RC_ASSERT(copy != made);
  InlineVector<std::string, 3> moved = std::move(copy);
  RC_ASSERT(moved.size() == values.size() + 1);
  RC_ASSERT(copy.empty());  // NOLINT: what was moved from is empty, as a vector
  moved.clear();
  RC_ASSERT(moved.empty());
  for (const auto& value : values) moved.push_back(value);  // once far, still whole
  RC_ASSERT(plain(moved) == values);
}

RC_GTEST_PROP(InlineVector, ComparesAsAVectorDoes,
              (const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b)) {
  InlineVector<std::int64_t, 3> x, y;
  for (const auto value : a) x.push_back(value);
  for (const auto value : b) y.push_back(value);
  RC_ASSERT((x == y) == (a == b));
  RC_ASSERT((x < y) == (a < b));
  RC_ASSERT((x > y) == (a > b));
}

TEST(InlineVector, TakesListsAndCounts) {
  const InlineVector<Pair, 3> two{{1, 2}, {3, 4}};
  EXPECT_EQ(plain(two), (std::vector<Pair>{{1, 2}, {3, 4}}));
  InlineVector<Pair, 3> built;
  built.emplace_back(1u, 2);
  built.emplace_back(3u, 4);
  EXPECT_EQ(two, built);
  EXPECT_EQ(plain(InlineVector<std::int64_t, 3>(5, 7)), std::vector<std::int64_t>(5, 7));
  EXPECT_TRUE((InlineVector<std::int64_t, 3>(0, 7)).empty());
}

}  // namespace
}  // namespace syno
