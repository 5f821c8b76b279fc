// program/product_sum.hpp — sums of products of elements that lie in memory, a row of terms at a time: nearly
// all that checking a convolution or a matrix product takes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "program/scope_code.hpp"
#include "program/tracked.hpp"

namespace syno::program::detail {

/// What is known of a tensor whose elements are given: none of them a literal that may be rounded.
struct Elements {
  const double* data = nullptr;  ///< null: they are computed
  bool finite = false;           ///< all of them
};

/// The reduction of a scope whose body is an element or the product of two, by affine indices, 0 where an
/// index is outside. Holds where it stands, so one per thread.
class ProductSum {
 public:
  /// Nothing where the scope reduces something else.
  static std::optional<ProductSum> of(const ScopeCode& code);

  /// By factor.
  std::uint32_t tensor(std::size_t factor) const { return factors_[factor].tensor; }
  std::size_t factor_count() const { return factors_.size(); }
  /// Whether a factor is left out where its indices are outside: the other one must be finite then.
  bool may_be_outside() const;

  /// The terms folded as TrackedNumbers::fold() folds them one by one, `lanes` being the values of the
  /// scope's lanes at the first term. Nothing where a term may leave the numbers of the precision: one by one
  /// then.
  std::optional<Tracked> at(const std::vector<std::int64_t>& lanes, const Elements* elements,
                            const Precision& precision);

 private:
  /// `value` in [0, extent) or the term is 0; it grows by a step each.
  struct Check {
    std::uint32_t lane = 0;
    std::int64_t begin = 0, extent = 0, value = 0;
    std::vector<std::int64_t> steps;  ///< by loop
  };
  struct Factor {
    std::uint32_t tensor = 0, lane = 0;
    std::int64_t offset = 0;
    std::vector<std::int64_t> steps;
    std::vector<Check> checks;
  };

  void move(std::size_t loop, std::int64_t times);
  void add_row(const Elements* elements);

  std::vector<Factor> factors_;
  std::vector<std::int64_t> extents_, counters_;  ///< of the loops; the last one is the row
  std::int64_t terms_ = 1;
  double value_ = 0, absolute_ = 0;
};

}  // namespace syno::program::detail
