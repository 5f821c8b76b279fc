// program/product_run.hpp — sums of products for several elements of a scope at once, which follow each other
// along one of its dimensions: term by term, the elements side by side. Nearly all that checking a sum over
// what a kernel computes itself takes, as a batch's statistics of a convolution are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "program/product_sum.hpp"
#include "program/product_walk.hpp"
#include "program/tracked.hpp"
#include "support/zeros.hpp"

namespace syno::program::detail {

/// Elements of a computed tensor that are usual numbers, their parts in planes: rows of them are read side by
/// side.
struct Planes {
  enum State : std::uint8_t { Unknown, Usual, Guessed, Unusual };
  explicit Planes(std::size_t elements);
  void put(std::int64_t offset, const Tracked& element, const Precision& precision);
  /// Whether these elements are known and usual, none of them a guess.
  bool all_usual(std::int64_t first, std::int64_t step, std::int64_t count) const;

  Zeros<double> value, absolute, low, high;
  Zeros<std::uint8_t> state;
  bool guesses = false;  ///< some are Guessed
};

/// Where a row of a factor's elements lies. Of given ones there is the value alone.
struct FactorRow {
  const double *value = nullptr, *absolute = nullptr, *low = nullptr, *high = nullptr;
  std::int64_t step = 0;
};

/// As ProductSum, for a row of elements of the scope. Holds where it stands, so one per thread.
class ProductRun {
 public:
  using Point = ProductWalk::Point;

  /// Of elements along this iterator of the traversal. Nothing where the scope is no sum of products of two
  /// elements each, an index guards what moves along the iterator or the reduction, or neighbours read
  /// elements that lie far apart.
  static std::optional<ProductRun> of(const ScopeCode& code, std::size_t iterator);

  /// Elements so far apart are side by side: 2 where an index is (i + 1) / 2.
  std::int64_t stride() const { return stride_; }

  /// The reductions of `count` elements, `stride()` apart, from where the scope stands on, as
  /// TrackedNumbers::fold() folds their terms, into `made`; false where a term may leave the numbers of the
  /// precision, or is no usual one: element by element then. `load.elements(tensor, finite)` gives what is
  /// given of a tensor, `load.planes(tensor, first, step, count)` the planes that hold these elements of a
  /// computed one, or null if some are unusual.
  template <class Load>
  bool at(const Point& point, std::int64_t count, Load& load, const TrackedNumbers& numbers,
          std::vector<Tracked>& made) {
    const auto& factors = walk_.factors();
    const bool outside = walk_.may_be_outside();
    Elements given[2];
    for (std::size_t f = 0; f < 2; ++f) {
      given[f] = load.elements(factors[f].tensor, outside);
      if (given[f].data != nullptr && outside && !given[f].finite) return false;
    }
    begin(count, given[0].data != nullptr && given[1].data != nullptr, numbers.precision());
    bool usual = true;
    // Elements [first, last) of a factor's row; those of others are made when they are asked for.
    const auto row_of = [&](std::size_t f, std::int64_t first, std::int64_t last) -> FactorRow {
      const std::int64_t step = walk_.step(f), at = factors[f].offset + first * step;
      if (given[f].data != nullptr) return {given[f].data + at, nullptr, nullptr, nullptr, step};
      const Planes* planes = load.planes(factors[f].tensor, at, step, last - first);
      usual = planes != nullptr;
      if (!usual) return {};
      if (planes->guesses) note_guesses(*planes, at, step, first, last);
      return {planes->value.get() + at, planes->absolute.get() + at, planes->low.get() + at,
              planes->high.get() + at, step};
    };
    walk_.for_each_row(point, [&] {
      if (!usual) return;
      const ProductWalk::Range own[2] = {walk_.inside_of_row(factors[0]), walk_.inside_of_row(factors[1])};
      const ProductWalk::Range both = {std::max(own[0].first, own[1].first),
                                       std::min(own[0].second, own[1].second)};
      for (std::size_t f = 0; outside && usual && f < 2; ++f)
        // Where the other factor is outside, the term is 0 if this one is a usual number.
        if (given[f].data == nullptr && own[f].first < own[f].second && own[f] != both)
          row_of(f, own[f].first, own[f].second);
      if (!usual || both.first >= both.second) return;
      FactorRow rows[2];
      for (std::size_t f = 0; usual && f < 2; ++f) rows[f] = row_of(f, both.first, both.second);
      if (usual) add_products(rows[0], rows[1], both.first, both.second - both.first);
    });
    return usual && finish(made);
  }

 private:
  ProductRun(ProductWalk walk, std::int64_t stride) : walk_(std::move(walk)), stride_(stride) {}
  void begin(std::int64_t count, bool given, const Precision& precision);
  void note_guesses(const Planes& planes, std::int64_t at, std::int64_t step, std::int64_t first,
                    std::int64_t last);
  void add_products(FactorRow a, FactorRow b, std::int64_t first, std::int64_t count);
  bool finish(std::vector<Tracked>& made) const;

  ProductWalk walk_;
  std::int64_t stride_ = 1, terms_ = 1;
  bool given_ = false;  ///< all factors: sums of ranges are not needed
  double unit_ = 0;     ///< largest relative error of a product
  Precision precision_;
  std::vector<double> value_, absolute_, low_, high_, size_;  ///< by element
  std::vector<std::uint8_t> guessed_;
};

}  // namespace syno::program::detail
