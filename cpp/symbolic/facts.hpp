// symbolic/facts.hpp — what the simplifier's rules may ask about expressions, memoised: values of sizes,
// bounds, linear forms.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "symbolic/expr.hpp"

namespace syno::symbolic {

/// coefficient * atom in a sum. The coefficient is factor * monomial, the monomial without a factor of its
/// own; the atom is neither a sum nor a product, and Facts::one() in a term that holds no iterators.
struct Term {
  ExprId atom{};
  Rational factor = 1;
  Size monomial;
  Size magnitude() const { return Size(factor < 0 ? Rational(0) - factor : factor) * monomial; }
  bool operator==(const Term&) const = default;
};
using Terms = std::vector<Term>;

class Facts {
 public:
  Facts(Arena& arena, const Context& context);

  Arena& arena() { return arena_; }
  ExprId one() const { return one_; }

  // Predicates hold for every valuation; what cannot be known without valuations is false.
  bool integral(const Size& size);
  bool divides(const Size& divisor, const Size& size) { return integral(size / divisor); }
  bool less_equal(const Size& a, const Size& b);

  /// The q with q*B <= x < (q+1)*B, when it is one integer at all points and valuations.
  std::optional<std::int64_t> block_of(ExprId x, const Size& block);

  /// `id` as a sum of terms, like terms collected, in the fixed order. A term that comes to nothing is left
  /// out unless an inside() in it may fail.
  Terms terms(ExprId id);
  ExprId sum(Terms terms);  ///< collects, orders and builds
  ExprId product(const Term& term);

  /// A fixed order of expressions by structure, not by when they were interned.
  int compare(ExprId a, ExprId b) const;

 private:
  void collect(Terms& terms) const;
  void gather(ExprId id, Rational factor, const Size& monomial, Terms& out);
  std::span<const Interval> bounds_of(ExprId id);

  Arena& arena_;
  const Context& context_;
  std::size_t valuations_;
  ExprId one_;
  std::vector<std::int8_t> integral_;  ///< by SizeId: -1 unknown, 0, 1
  std::vector<std::uint8_t> bounded_;  ///< by ExprId: bounds_ holds its intervals
  std::vector<Interval> bounds_;       ///< by ExprId, then valuation
};

}  // namespace syno::symbolic
