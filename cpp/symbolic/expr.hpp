// symbolic/expr.hpp — index expressions: quasi-affine integers over iterators and sizes.
// Semantics: integers that never overflow silently; `/` and `%` round towards minus infinity; divisors are
// sizes, hence positive. `inside(e, S)` is e where 0 <= e < S and makes the whole read take its fill
// elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/intern_table.hpp"
#include "symbolic/size.hpp"

namespace syno::symbolic {

enum class ExprId : std::uint32_t {};  ///< within one arena: ids are equal exactly when structures are
enum class SizeId : std::uint32_t {};

enum class Op : std::uint8_t {
  Iterator,   ///< a: slot
  Constant,   ///< value
  SizeValue,  ///< size: the integer a size stands for
  Add,        ///< a + b
  Multiply,   ///< a * value * size; at most one of value (may be <= 0) and size differs from one
  Divide,     ///< floor(a / size)
  Modulo,     ///< a - size * floor(a / size)
  Inside,     ///< a where 0 <= a < size
};

struct Expr {
  Op op = Op::Constant;
  ExprId a{};
  ExprId b{};
  SizeId size{};
  std::int64_t value = 0;
  bool operator==(const Expr&) const = default;
};

/// Owns expressions and the sizes in them; children precede parents. Copyable: ids stay valid in the copy.
/// The builders fold constants and identities that need no ranges (x + 0, x * 1, x / 1, x % 1); everything
/// else is simplify()'s (symbolic/simplify.hpp). No builder drops an `inside`: x * 0 stays where x holds one.
class Arena {
 public:
  Arena();
  ExprId iterator(std::uint32_t slot);
  ExprId constant(std::int64_t value);
  ExprId size(const Size& size);
  ExprId add(ExprId a, ExprId b);
  ExprId subtract(ExprId a, ExprId b);
  ExprId multiply(ExprId a, std::int64_t factor);
  ExprId multiply(ExprId a, const Size& factor);  ///< a factor that is a constant integer becomes `value`
  ExprId divide(ExprId a, const Size& divisor);
  ExprId modulo(ExprId a, const Size& divisor);
  ExprId inside(ExprId a, const Size& extent);

  const Expr& operator[](ExprId id) const { return nodes_[static_cast<std::uint32_t>(id)]; }
  const Size& operator[](SizeId id) const { return sizes_[static_cast<std::uint32_t>(id)]; }
  std::size_t node_count() const { return nodes_.size(); }
  /// How much it holds.
  struct Extent {
    std::size_t nodes = 0, sizes = 0;
  };
  Extent extent() const { return {nodes_.size(), sizes_.size()}; }
  /// Forgets what was added since it held that much.
  void shrink(const Extent& to);
  SizeId intern(const Size& size);
  bool has_inside(ExprId id) const { return traits_[static_cast<std::uint32_t>(id)] & kHasInside; }
  bool has_iterator(ExprId id) const { return traits_[static_cast<std::uint32_t>(id)] & kHasIterator; }

  /// The node over other operands: `operand(child)` gives what takes a child's place. Leaves stay.
  ExprId over(ExprId id, const std::function<ExprId(ExprId)>& operand);
  /// Rebuilds `root` from its top: what `rule` gives for a node takes its place, every other node is built
  /// over its operands rewritten.
  ExprId rewrite(ExprId root, const std::function<std::optional<ExprId>(ExprId)>& rule);
  /// Rebuilds `root` with every iterator replaced: `replacement(slot)` gives the expression to put there.
  ExprId substitute(ExprId root, const std::function<ExprId(std::uint32_t)>& replacement);
  /// Rebuilds `root` of `source` here; `resize` (may be empty) maps each of its sizes.
  ExprId import(const Arena& source, ExprId root, const std::function<Size(const Size&)>& resize = {});
  /// The slots `root` depends on, ascending.
  std::vector<std::uint32_t> iterators(ExprId root) const;

 private:
  static constexpr std::uint8_t kHasInside = 1, kHasIterator = 2;
  ExprId intern(const Expr& node);
  std::vector<Expr> nodes_;
  std::vector<std::uint8_t> traits_;  ///< of nodes_, same order
  std::vector<Size> sizes_;
  InternTable node_ids_, size_ids_;
};

/// The value of `root` at a valuation; nothing where an `inside` fails.
std::optional<std::int64_t> evaluate(const Arena& arena, ExprId root, const Sizes& sizes,
                                     std::size_t valuation, std::span<const std::int64_t> iterator_values);

/// An end that a size known at run time gives: (times * size + plus) / by, rounded down.
struct Live {
  std::uint32_t parameter = 0;  ///< which size, from 1; 0: none, the end is as it is written
  std::int32_t times = 0, plus = 0, by = 1;
  bool operator==(const Live&) const = default;
};

/// Half-open range of an iterator; the bounds hold no iterators. Where its end is known at run time only,
/// `end` is the largest it can be.
struct Range {
  ExprId begin{};
  ExprId end{};
  Live live{};
  bool operator==(const Range&) const = default;
};

/// What the simplifier may assume: the sizes with their valuations and the range of every slot.
struct Context {
  const Sizes* sizes = nullptr;
  std::function<Range(std::uint32_t slot)> range;
};

/// Least and greatest value (inclusive) of `root` at a valuation by interval arithmetic; `inside(e, S)` lies
/// in [0, S). Conservative: never narrower than the truth.
struct Interval {
  std::int64_t least = 0;
  std::int64_t greatest = 0;
};
Interval bounds(const Arena& arena, ExprId root, const Context& context, std::size_t valuation);

/// Text: `i + j % (C_in*g^-1) * g - k / 2`; names give the iterators. The operators bind as in Python; `/` is
/// floor; a size's powers are written with `^`, its fractions as `2^-1`. parse_expr(to_text(e)) is e.
using Names = std::function<std::string(std::uint32_t slot)>;
std::string to_text(const Arena& arena, ExprId root, const Sizes& sizes, const Names& names);
/// Parses the same language; `slot_of(name)` gives an iterator's slot, nothing when the name is none.
/// Accepts every operand order (`2*h`, `h*2`, `s*h`). A monomial written without spaces after a `/` or `%`
/// written with spaces is one divisor: `i % H*k^-1` is `i % (H*k^-1)`. ParseError points at the place.
using SlotOf = std::function<std::optional<std::uint32_t>(std::string_view name)>;
ExprId parse_expr(Arena& arena, std::string_view text, const Sizes& sizes, const SlotOf& slot_of);

}  // namespace syno::symbolic
