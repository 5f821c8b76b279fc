// equality/term_counts.hpp — how many tuples of terms share elements in a given way.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "support/checked.hpp"

namespace syno::equality {

/// Counts are numbers modulo the prime 2^61 - 1.
inline constexpr std::uint64_t kPrime = (std::uint64_t{1} << 61) - 1;
inline std::uint64_t add_mod(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t sum = a + b;
  return sum >= kPrime ? sum - kPrime : sum;
}
inline std::uint64_t multiply_mod(std::uint64_t a, std::uint64_t b) {
  const UInt128 product = static_cast<UInt128>(a) * b;
  return add_mod(static_cast<std::uint64_t>(product) & kPrime, static_cast<std::uint64_t>(product >> 61));
}
std::uint64_t power_mod(std::uint64_t base, std::uint64_t exponent);
std::uint64_t from_integer(std::int64_t value);

/// The terms of a factor: for each role the element of every term, numbered from 0; for each label the weight
/// of every term. A role the factor does not have has no elements listed: all terms share one.
struct TermTable {
  struct Role {
    std::vector<std::uint32_t> element;
    std::uint32_t count = 1;
    bool absent() const { return element.empty(); }
  };
  static constexpr std::size_t kLabels = 4;
  std::size_t size = 0;
  std::vector<Role> roles;
  std::array<std::vector<std::uint64_t>, kLabels> labels;  ///< empty: one everywhere
};

/// Which roles there are; the same for all factors of an operator.
struct RoleKinds {
  std::size_t count = 0;
  std::uint32_t cyclic = 0;  ///< a bit per role: closed walks through it are counted
  std::vector<std::pair<std::uint32_t, std::uint32_t>>
      crossed;  ///< roles that share their elements (two ways)
};

/// The patterns, by role; term nodes are t0, t1, ... and each has its label.
///   pair(S)      t0, t1 share their elements of all roles of S
///   path(r, s)   t0 ~r t1 ~s t2 ~r t3
///   tree(d)      a node of depth d has a child per role and crossing that shares it
///   closed(u, s) t0 ~s t1 ~u t2 ~s ... ~u t0, of 4 and of 24 terms
///   cross(r, s)  t0's element of r is t1's of s; and t0's own
class PatternTable {
 public:
  static constexpr std::size_t kDepth = 3;
  explicit PatternTable(const RoleKinds& kinds);

  struct Pattern {
    enum class Kind : std::uint8_t { Single, Pair, Path, Tree, Closed, Cross, Loop } kind = Kind::Single;
    std::uint32_t a = 0, b = 0;  ///< Pair: set of roles; Tree: depth; Closed: roles u, s, two in a row
    std::uint64_t terms = 1;     ///< nodes of the pattern
  };
  const std::vector<Pattern>& patterns() const { return patterns_; }
  const RoleKinds& kinds() const { return kinds_; }
  /// The place of every pattern when role r is called order[r].
  std::vector<std::uint32_t> renamed(std::span<const std::uint32_t> order) const;
  /// All counts of one factor, in the order of patterns().
  void count(const TermTable& terms, std::vector<std::uint64_t>& out) const;

 private:
  RoleKinds kinds_;
  std::vector<Pattern> patterns_;
};

}  // namespace syno::equality
