// program/operator_terms.hpp — sets of terms up to renaming, the matter of operator equality.
//
// An operator y[out(p)] = sum over p of x[in(p)] * w1[a(p)] * ... is the multiset of its terms (out, in,
// element of w1, ...). Two operators are equal when a renaming of weight elements and unordered channels maps
// one multiset to the other. Sums, their order and how they are split do not occur in it, so no rewriting of
// index expressions can be missing here: what computes the same terms has the same multiset.
//
// Such a multiset is mostly a product of small ones: rows, columns and channels are independent of each
// other, and a renaming of the whole is a renaming of each. It is taken apart in two steps. Iterators that
// share no coordinate and no irreducible part of a weight make independent factors. A factor has few
// iterators, so its terms are listed, at the valuations themselves, least first, as far as kPoints go; the
// listed terms are taken apart further, since other iterators may have shown more. What is left is brought to
// a form without names by colour refinement: an element's colour is the multiset of its terms' colours, until
// no colour splits; what falls apart is treated apart; then an element of the smallest class that looks least
// is singled out.
//
// Equal keys mean equal terms at the valuations listed, but for 64-bit collisions and term sets so large that
// singling out is left out (program/operator_forms.cpp, kMostWork). Equal operators have equal keys as long
// as elements that look alike after refinement are alike. A factor too large to list at any valuation is
// compared by its simplified expressions: then equal operators may differ in key, never the other way round.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "program/program.hpp"
#include "support/hash.hpp"

namespace syno::program::detail {

inline constexpr std::size_t kPoints = std::size_t{1} << 15;  ///< listed of a factor, all valuations together
inline constexpr std::size_t kMostPoints = std::size_t{1}
                                           << 22;  ///< listed of a factor at the least valuation

/// How a coordinate counts: by its value, up to a permutation of values, or as part of a weight's index, of
/// which only equality counts.
enum class PlaceKind : std::uint8_t { Ordered, Unordered, Weight };

/// One coordinate of the terms. `family`: coordinates of one family share their elements (a dimension that is
/// read twice; all dimensions of a weight).
struct Place {
  PlaceKind kind = PlaceKind::Ordered;
  std::uint32_t read = 0;  ///< 0: the output, then the factors of the product
  std::uint32_t dim = 0;
  std::uint32_t family = 0;
  ExprId index{};
  Range legal;
};

/// A factor: its iterators and the coordinates that depend on them alone.
struct Factor {
  std::vector<std::uint32_t> slots;
  std::vector<Place> places;
};

/// What a factor is looked at in: expressions, sizes, and the range of every slot at every row.
struct Space {
  const Arena& arena;
  const Sizes& sizes;
  std::vector<std::size_t> rows;  ///< different valuations, least first
  /// By slot, then position in rows.
  std::vector<std::vector<std::int64_t>> begin, extent;

  std::size_t points(std::span<const std::uint32_t> slots, std::size_t row) const;  ///< saturates at 2^62
};

/// Values of expressions on the whole space of some iterators at one row; others stand at their begin.
class Grid {
 public:
  Grid(const Space& space, std::span<const std::uint32_t> slots, std::size_t row);
  std::size_t size() const { return size_; }
  /// Where an inside() fails, `alive()` turns false and the value means nothing.
  std::vector<std::int64_t> values(ExprId id);
  std::vector<bool>& alive() { return alive_; }
  /// The integer a bound without iterators stands for.
  std::int64_t constant(ExprId id) const;

 private:
  const Space& space_;
  std::span<const std::uint32_t> slots_;
  std::size_t row_;
  std::size_t size_ = 1;
  std::vector<bool> alive_;
};

/// A way to name the reads: by read, the name it goes by. Tensors that may change places change names, and so
/// do the reads of one tensor.
struct Name {
  std::uint32_t tensor = 0;
  std::uint32_t read = 0;
};
using Naming = std::vector<Name>;

/// The terms of one factor up to renaming, at each row that was listed.
struct Fingerprint {
  struct Row {
    std::int64_t multiplicity = 1;                             ///< how often every term occurs, divided out
    std::vector<std::pair<std::uint32_t, std::int64_t>> free;  ///< (read, n): n copies of a weight's elements
    std::vector<std::vector<Hash128>> parts;                   ///< by naming: independent parts
  };
  std::vector<Row> rows;
  std::vector<Hash128> written;  ///< by naming, when no row could be listed: the simplified expressions
};

Fingerprint fingerprint(const Space& space, const Factor& factor, std::span<const Naming> namings);

/// Whether a weight's index, as a partition of the space of `left` and `right`, is the product of a partition
/// of each: (a, b) and (a', b') share an element exactly when a, a' do and b, b' do.
bool is_product(const Space& space, std::span<const Place> weight, std::span<const std::uint32_t> left,
                std::span<const std::uint32_t> right);

}  // namespace syno::program::detail
