// program/product_walk.hpp — where the factors of a sum of products lie, row after row of its terms.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "program/scope_code.hpp"
#include "support/interrupt.hpp"

namespace syno::program::detail {

/// The registers of the one or two elements that a scope's terms are the product of, read as 0 where an index
/// is outside; nothing where it reduces something else than a sum or mean of these.
std::optional<std::vector<std::uint32_t>> factors_of(const ScopeCode& code);

/// How much an affine form grows with an iterator.
std::int64_t step_along(const Affine& affine, std::size_t iterator);

/// The iterators of a scope's reduction.
std::vector<std::size_t> sums_of(const ScopeCode& code);

/// Factors whose indices are affine along some loops, the last of which makes rows; where they divide or
/// guard what others move, as (i - r) / 2 with (i - r) % 2 = 0 along r, these are walked outside of all, each
/// step beginning anew. Holds where it stands, so one per thread.
class ProductWalk {
 public:
  /// `reads` as factors_of() gives them, `loops` iterators; a row takes every `stride`-th element of the last
  /// one. Nothing where an index guards what moves along that, or divides it by what its steps are no
  /// multiples of.
  static std::optional<ProductWalk> of(const ScopeCode& code, const std::vector<std::uint32_t>& reads,
                                       const std::vector<std::size_t>& loops, std::int64_t stride = 1);
  /// Whether all indices are affine along an iterator, every `stride`-th element of it.
  static bool affine_along(const ScopeCode& code, const std::vector<std::uint32_t>& reads,
                           std::size_t iterator, std::int64_t stride = 1);

  /// `value` in [0, extent) or the term is 0; it grows by a step each.
  struct Check {
    std::uint32_t lane = 0;
    std::int64_t begin = 0, extent = 0, value = 0;
    std::vector<std::int64_t> steps;  ///< by loop
    std::vector<Step> index;          ///< instead of a lane: what divides by nothing that moves
    std::int64_t stride = 0;          ///< that index's, in the factor's offset
  };
  struct Factor {
    std::uint32_t tensor = 0, lane = 0;
    std::int64_t offset = 0;  ///< of the row's first element, if that is inside
    std::vector<std::int64_t> steps;
    std::vector<Check> checks;
    bool outside = false;  ///< at all terms
  };
  const std::vector<Factor>& factors() const { return factors_; }
  std::int64_t step(std::size_t factor) const { return factors_[factor].steps.back(); }  ///< in a row
  /// Whether a factor is left out where its indices are outside: the other one must be finite then.
  bool may_be_outside() const;

  /// Where a scope stands: the values of its lanes and of its iterators, at the first of each loop.
  struct Point {
    const std::vector<std::int64_t>& lanes;
    const std::vector<std::int64_t>& iterators;
  };
  /// Calls visit() for each row, the factors being moved to its beginning.
  template <class Visit>
  void for_each_row(const Point& point, Visit&& visit) {
    lanes_ = point.lanes;
    iterators_ = point.iterators;
    do {
      begin();
      do {
        interruption_point();
        visit();
      } while (next_row());
    } while (next_outside());
  }
  void set_row(std::int64_t extent) { extents_.back() = extent; }

  using Range = std::pair<std::int64_t, std::int64_t>;  ///< [first, second) of a row
  Range inside_of_row() const;                          ///< no factor is outside
  Range inside_of_row(const Factor& factor) const;      ///< this one is not

 private:
  void begin();
  bool next_row();
  bool next_outside();
  void move(std::size_t loop, std::int64_t times);

  std::vector<Factor> factors_;
  std::vector<std::int64_t> extents_, counters_;  ///< of the loops; the last one is the row
  /// A loop along which some index is not affine.
  struct Outside {
    std::size_t iterator = 0;
    std::int64_t begin = 0, extent = 0;
    std::vector<std::pair<std::uint32_t, std::int64_t>> lanes;  ///< (lane, coefficient)
  };
  std::vector<Outside> outside_;
  std::vector<std::int64_t> lanes_, iterators_;  ///< of the scope, at the current step of these
};

}  // namespace syno::program::detail
