// program/product_sum.hpp — sums of products of elements that lie in memory, a row of terms at a time: nearly
// all that checking a convolution or a matrix product takes.
#pragma once

#include <cstdint>
#include <optional>

#include "program/product_walk.hpp"
#include "program/tracked.hpp"

namespace syno::program::detail {

/// What is known of a tensor's elements: those that are given, none of them a literal that may be rounded, or
/// those that have been computed until now.
struct Elements {
  const double* data = nullptr;         ///< null: they are computed
  bool finite = false;                  ///< all of `data`
  const Tracked* computed = nullptr;    ///< null: they have to be asked for one by one
  const std::uint8_t* known = nullptr;  ///< 1 where an element of `computed` is
};

/// The reduction of a scope whose body is an element or the product of two, by indices that are affine along
/// the reduction, 0 where an index is outside. Holds where it stands, so one per thread.
class ProductSum {
 public:
  using Point = ProductWalk::Point;  ///< where the scope stands at the first term

  /// Nothing where the scope reduces something else.
  static std::optional<ProductSum> of(const ScopeCode& code);

  /// By factor.
  std::uint32_t tensor(std::size_t factor) const { return walk_.factors()[factor].tensor; }
  std::size_t factor_count() const { return walk_.factors().size(); }
  bool may_be_outside() const { return walk_.may_be_outside(); }

  /// The terms folded as TrackedNumbers::fold() folds them one by one. Nothing where a term may leave the
  /// numbers of the precision: one by one then.
  std::optional<Tracked> at(const Point& point, const Elements* elements, const Precision& precision);

  /// The same where elements of a factor are computed: `load(tensor, offset)` gives one of any factor, and
  /// `load.elements(tensor, finite)` what is known of a factor by then.
  template <class Load>
  std::optional<Tracked> computed_at(const Point& point, Load& load, const TrackedNumbers& numbers) {
    const std::size_t count = factor_count();
    const bool outside = may_be_outside();
    Products sum(numbers.precision(), terms_, count > 1);
    Elements known[2];
    const auto ask = [&] {
      for (std::size_t f = 0; f < count; ++f) known[f] = load.elements(tensor(f), outside);
    };
    ask();
    Tracked room[2];
    const auto element = [&](std::size_t f, std::int64_t k) -> const Tracked& {
      const std::int64_t offset = walk_.factors()[f].offset + k * walk_.step(f);
      if (known[f].computed != nullptr && known[f].known[offset] == 1) return known[f].computed[offset];
      room[f] =
          known[f].data != nullptr ? TrackedNumbers::loaded(known[f].data[offset]) : load(tensor(f), offset);
      if (known[f].data == nullptr) ask();  // a table may have moved
      return room[f];
    };
    bool regular = true;
    walk_.for_each_row(point, [&] {
      if (!regular) return;
      const ProductWalk::Range both = walk_.inside_of_row();
      for (std::int64_t k = both.first; regular && k < both.second; ++k)
        regular = count == 1 ? sum.add(element(0, k)) : sum.add(element(0, k), element(1, k));
      // Where one factor is outside, the term is 0 if the other one is a usual number.
      for (std::size_t f = 0; count > 1 && f < count; ++f) {
        if (walk_.factors()[1 - f].checks.empty() || (known[f].data != nullptr && known[f].finite)) continue;
        const ProductWalk::Range own = walk_.inside_of_row(walk_.factors()[f]);
        for (std::int64_t k = own.first; regular && k < own.second; ++k)
          if (k < both.first || k >= both.second) regular = sum.leave_out(element(f, k));
      }
    });
    return regular ? sum.total() : std::nullopt;
  }

 private:
  /// Terms of usual numbers, folded as TrackedNumbers folds them; false where a term is not one.
  class Products {
   public:
    Products(const Precision& precision, std::int64_t terms, bool products)
        : precision_(precision), left_(terms), products_(products) {}
    bool add(const Tracked& a);
    bool add(const Tracked& a, const Tracked& b);
    bool leave_out(const Tracked& a);  ///< 0 times that
    std::optional<Tracked> total() const;

   private:
    bool fold(double low, double high);

    Precision precision_;
    std::int64_t left_;  ///< terms that were not added
    bool products_;      ///< of two factors
    Tracked total_ = TrackedNumbers::start(Reduction::Sum);
  };

  explicit ProductSum(ProductWalk walk) : walk_(std::move(walk)) {}
  void add_row(const Elements* elements);

  ProductWalk walk_;
  std::int64_t terms_ = 1;
  double value_ = 0, absolute_ = 0;
};

}  // namespace syno::program::detail
