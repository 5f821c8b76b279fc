// Sizes, iterators and random expressions that the tests of this level share.
#pragma once

#include <string>
#include <vector>

#include "support/random.hpp"
#include "symbolic/expr.hpp"

namespace syno::symbolic::testing {

/// Variables C, H (primary), k, s, g (coefficient) at three valuations where s | k*s.., g | C, k*s | H.
inline Sizes usual_sizes() {
  using enum VariableKind;
  return Sizes({{"C", Primary}, {"H", Primary}, {"k", Coefficient}, {"s", Coefficient}, {"g", Coefficient}},
               {{8, 12, 3, 2, 4}, {12, 30, 5, 2, 4}, {16, 36, 3, 2, 8}});
}

/// An arena with named iterators whose ranges are [begin, end) given as text.
struct Fixture {
  Sizes sizes;
  Arena arena;
  std::vector<std::string> names;
  std::vector<Range> ranges;

  explicit Fixture(Sizes table = usual_sizes()) : sizes(std::move(table)) {}

  std::uint32_t iterate(const std::string& name, const std::string& end, const std::string& begin = "0") {
    names.push_back(name);
    ranges.push_back({parse(begin), parse(end)});
    return static_cast<std::uint32_t>(names.size() - 1);
  }
  ExprId parse(const std::string& text) {
    return parse_expr(arena, text, sizes, [&](std::string_view name) -> std::optional<std::uint32_t> {
      for (std::uint32_t i = 0; i < names.size(); ++i) {
        if (names[i] == name) return i;
      }
      return std::nullopt;
    });
  }
  std::string text(ExprId id) const {
    return to_text(arena, id, sizes, [&](std::uint32_t slot) { return names[slot]; });
  }
  Context context() const {
    return {&sizes, [this](std::uint32_t slot) { return ranges[slot]; }};
  }
  /// A random point of the iteration space at a valuation.
  std::vector<std::int64_t> point(Random& random, std::size_t valuation) const {
    std::vector<std::int64_t> values;
    for (const Range& range : ranges) {
      const std::int64_t begin = *evaluate(arena, range.begin, sizes, valuation, {});
      const std::int64_t end = *evaluate(arena, range.end, sizes, valuation, {});
      values.push_back(begin +
                       static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(end - begin))));
    }
    return values;
  }
};

}  // namespace syno::symbolic::testing
