// InternTable gives each value one position, in order of appearance, also where hashes are the same.
#include "support/intern_table.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

namespace syno {
namespace {

/// Values by position; `bits` of their hashes tell them apart.
struct Interned {
  unsigned bits = 64;
  std::vector<int> values;
  InternTable table;

  std::uint64_t hash(int value) const {
    const std::uint64_t mixed = static_cast<std::uint64_t>(value) * 0x9e3779b97f4a7c15ULL;
    return bits == 0 ? 0 : mixed >> (64 - bits);
  }
  std::uint32_t intern(int value) {
    const auto [at, added] = table.find_or_add(
        hash(value), values.size(), [&](std::uint32_t i) { return values[i] == value; },
        [&](std::uint32_t i) { return hash(values[i]); });
    if (added) values.push_back(value);
    return at;
  }
};

RC_GTEST_PROP(InternTable, GivesEachValueOnePlace, (const std::vector<int>& asked)) {
  Interned made;
  made.bits = *rc::gen::element(0u, 1u, 4u, 64u);
  std::vector<int> distinct;
  for (const int value : asked) {
    auto known = std::find(distinct.begin(), distinct.end(), value);
    if (known == distinct.end()) known = distinct.insert(distinct.end(), value);
    RC_ASSERT(made.intern(value) == static_cast<std::uint32_t>(known - distinct.begin()));
  }
  RC_ASSERT(made.values == distinct);
  Interned copy = made;
  copy.intern(1 + (distinct.empty() ? 0 : *std::max_element(distinct.begin(), distinct.end()) / 2));
  for (std::size_t i = 0; i < distinct.size(); ++i) {
    RC_ASSERT(made.intern(distinct[i]) == i);
    RC_ASSERT(copy.intern(distinct[i]) == i);
  }
}

}  // namespace
}  // namespace syno
