// equality/term_space.hpp — the terms of an operator, the matter of operator equality.
//
// An operator y[out(p)] = sum over p of x[in(p)] * w1[a(p)] * ... is the multiset of its terms (out, in,
// element of w1, ...). Two operators are equal when a renaming of weight elements and unordered channels maps
// one multiset to the other. Ordered coordinates are values; of the others, the *roles*, only equality
// counts.
//
// The key counts patterns (equality/term_counts.hpp): how many tuples of terms share elements in a given way,
// each weighted by a pseudo-random function of the ordered coordinates of its terms. A renaming changes no
// such count, whatever the operator was written like: equal operators have equal keys, always. By Lovász
// (Operations with structures, 1967) all counts together determine the terms; the patterns taken here tell
// apart what tests/ could find.
//
// Counts of a product are products of counts. Iterators that share no coordinate make independent factors,
// which are listed and counted one by one and remembered: operators have most of their factors in common. How
// the terms are taken apart changes no count either.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/hash.hpp"
#include "symbolic/size.hpp"

namespace syno::equality {

class OperatorKeyCache;

inline constexpr std::size_t kTermRows = 2;  ///< valuations at which terms are compared, at most
using RowValues = std::array<std::int64_t, kTermRows>;

enum class TermOp : std::uint8_t { Iterator, Constant, Add, Scale, Divide, Modulo, Inside };

using TermNode = std::uint32_t;

/// An operator as its iteration space and its coordinates, in numbers at one or two valuations. Build it,
/// then ask for its key. A read is 0 for the output, then the factors of the product in any order.
class TermSpace {
 public:
  explicit TermSpace(std::size_t rows) : rows_(rows) {}
  std::size_t rows() const { return rows_; }
  /// Least and greatest value of an index at a row.
  std::pair<std::int64_t, std::int64_t> bounds(TermNode node, std::size_t row) const {
    return {nodes_[node].least[row], nodes_[node].most[row]};
  }

  TermNode iterator(const RowValues& extent);  ///< 0 .. extent - 1
  TermNode constant(const RowValues& value);
  TermNode add(TermNode a, TermNode b);
  TermNode scale(TermNode a, const RowValues& factor);
  TermNode divide(TermNode a, const RowValues& divisor);
  TermNode modulo(TermNode a, const RowValues& divisor);
  TermNode inside(TermNode a, const RowValues& extent);  ///< outside [0, extent) there is no term

  /// Declares read `read` of data tensor or weight `tensor` (any numbers; one number for one tensor). Reads
  /// are declared in order, the output first.
  void read(std::uint32_t tensor, bool weight);
  /// One more dimension of the last read declared.
  void dimension(TermNode index, bool unordered);
  void multiply(std::int64_t numerator, std::int64_t denominator, std::size_t row);

  /// VerifyError when weights and repeated reads can be exchanged in too many ways.
  Hash128 key(OperatorKeyCache& cache) const;

 private:
  friend class TermFactors;
  struct Node {
    TermOp op = TermOp::Constant;
    TermNode a = 0, b = 0;
    RowValues parameter{};      ///< extent, value, factor or divisor
    RowValues least{}, most{};  ///< bounds of the value
    std::uint64_t support = 0;  ///< iterators it depends on
  };
  struct Dimension {
    std::uint32_t read = 0;
    std::uint32_t number = 0;
    bool unordered = false;
    TermNode index = 0;
  };
  struct Read {
    std::uint32_t tensor = 0;
    bool weight = false;
    std::uint32_t dimensions = 0;
  };
  TermNode push(Node node);

  std::size_t rows_;
  std::vector<Node> nodes_;
  std::vector<TermNode> guards_;
  std::vector<TermNode> iterators_;
  std::vector<Read> reads_;
  std::vector<Dimension> dimensions_;
  std::array<std::uint64_t, kTermRows> scale_{1, 1};  ///< modulo the prime of term_counts.hpp
};

/// small_sizes(sizes) (equality/small_sizes.hpp), remembered.
const symbolic::Sizes& small_sizes_of(const symbolic::Sizes& sizes, OperatorKeyCache& cache);

}  // namespace syno::equality
