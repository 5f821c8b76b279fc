// Interval arithmetic over index expressions at one valuation.
#include <algorithm>

#include "support/checked.hpp"
#include "support/error.hpp"
#include "symbolic/expr.hpp"

namespace syno::symbolic {
namespace {

Interval scaled(Interval a, Rational factor) {
  const auto times = [&](std::int64_t value, bool up) {
    const Rational product = Rational(value) * factor;
    const std::int64_t floor = floor_divide(product.num(), product.den());
    return up && !product.integral() ? floor + 1 : floor;
  };
  if (factor < 0) std::swap(a.least, a.greatest);
  return {times(a.least, false), times(a.greatest, true)};
}

}  // namespace

Interval bounds(const Arena& arena, ExprId root, const Context& context, std::size_t valuation) {
  const Expr& node = arena[root];
  const auto size = [&] { return context.sizes->integer_value(arena[node.size], valuation); };
  switch (node.op) {
    case Op::Iterator: {
      const Range range = context.range(static_cast<std::uint32_t>(node.a));
      const auto begin = evaluate(arena, range.begin, *context.sizes, valuation, {});
      const auto end = evaluate(arena, range.end, *context.sizes, valuation, {});
      SYNO_ASSERT(begin && end, "the bounds of a range hold no inside()");
      return {*begin, std::max(*begin, checked_subtract(*end, 1))};
    }
    case Op::Constant:
      return {node.value, node.value};
    case Op::SizeValue: {
      const std::int64_t value = size();
      return {value, value};
    }
    default:
      break;
  }
  const Interval a = bounds(arena, node.a, context, valuation);
  switch (node.op) {
    case Op::Add: {
      const Interval b = bounds(arena, node.b, context, valuation);
      return {checked_add(a.least, b.least), checked_add(a.greatest, b.greatest)};
    }
    case Op::Multiply:
      return scaled(a, context.sizes->value(arena[node.size], valuation) * Rational(node.value));
    case Op::Divide: {
      const std::int64_t divisor = size();
      return {floor_divide(a.least, divisor), floor_divide(a.greatest, divisor)};
    }
    case Op::Modulo: {
      const std::int64_t divisor = size();
      if (floor_divide(a.least, divisor) == floor_divide(a.greatest, divisor)) {
        return {floor_modulo(a.least, divisor), floor_modulo(a.greatest, divisor)};
      }
      return {0, divisor - 1};
    }
    case Op::Inside: {
      const Interval kept{std::max<std::int64_t>(a.least, 0), std::min(a.greatest, size() - 1)};
      if (kept.least > kept.greatest) return {0, size() - 1};  // fails everywhere
      return kept;
    }
    default:
      SYNO_ASSERT(false, "an index expression has a known operation");
  }
  return {};
}

}  // namespace syno::symbolic
