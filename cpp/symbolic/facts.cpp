#include "symbolic/facts.hpp"

#include <algorithm>

#include "support/checked.hpp"
#include "support/error.hpp"

namespace syno::symbolic {
namespace {

std::size_t at(ExprId id) { return static_cast<std::size_t>(id); }

template <class T>
int three_way(const T& a, const T& b) {
  return a < b ? -1 : b < a ? 1 : 0;
}

std::size_t known_valuations(const Sizes& sizes) { return sizes.valuation_count(); }

}  // namespace

Facts::Facts(Arena& arena, const Context& context)
    : arena_(arena),
      context_(context),
      valuations_(known_valuations(*context.sizes)),
      one_(arena.constant(1)) {}

bool Facts::integral(const Size& size) {
  bool symbolic = size.factor().integral();
  bool constant = true;
  for (std::size_t i = 0; i < kMaxVariables; ++i) {
    symbolic &= size.exponent(i) >= 0;
    constant &= size.exponent(i) == 0;
  }
  if (symbolic) return true;
  if (constant || valuations_ == 0) return false;
  const auto id = static_cast<std::size_t>(arena_.intern(size));
  if (id >= integral_.size()) integral_.resize(id + 16, -1);
  if (integral_[id] < 0) integral_[id] = context_.sizes->integral(size);
  return integral_[id] != 0;
}

bool Facts::less_equal(const Size& a, const Size& b) {
  const Size ratio = b / a;
  if (!ratio.has_variables()) return ratio.factor() >= 1;
  return valuations_ != 0 && context_.sizes->less_equal(a, b);
}

std::span<const Interval> Facts::bounds_of(ExprId id) {
  if (at(id) >= bounded_.size()) {
    bounded_.resize(arena_.node_count(), 0);
    bounds_.resize(bounded_.size() * valuations_);
  }
  Interval* const place = bounds_.data() + at(id) * valuations_;
  if (!bounded_[at(id)]) {
    const Expr node = arena_[id];
    if (node.op == Op::Add) {  // the others are short chains; sums repeat in every partial sum
      const auto a = bounds_of(node.a);
      const auto b = bounds_of(node.b);
      for (std::size_t v = 0; v < valuations_; ++v) {
        place[v] = {checked_add(a[v].least, b[v].least), checked_add(a[v].greatest, b[v].greatest)};
      }
    } else {
      for (std::size_t v = 0; v < valuations_; ++v) place[v] = bounds(arena_, id, context_, v);
    }
    bounded_[at(id)] = 1;
  }
  return {place, valuations_};
}

std::optional<std::int64_t> Facts::block_of(ExprId x, const Size& block) {
  if (valuations_ == 0) return std::nullopt;
  const auto intervals = bounds_of(x);
  std::optional<std::int64_t> result;
  for (std::size_t v = 0; v < valuations_; ++v) {
    const std::int64_t size = context_.sizes->integer_value(block, v);
    const std::int64_t quotient = floor_divide(intervals[v].least, size);
    if (quotient != floor_divide(intervals[v].greatest, size) || quotient != result.value_or(quotient)) {
      return std::nullopt;
    }
    result = quotient;
  }
  return result;
}

int Facts::compare(ExprId a, ExprId b) const {
  if (a == b) return 0;
  const Expr& left = arena_[a];
  const Expr& right = arena_[b];
  if (left.op != right.op) return three_way(left.op, right.op);
  switch (left.op) {
    case Op::Iterator:
      return three_way(left.a, right.a);
    case Op::Constant:
      return three_way(left.value, right.value);
    case Op::SizeValue:
      return three_way(arena_[left.size], arena_[right.size]);
    default:
      break;
  }
  if (const int order = compare(left.a, right.a); order != 0) return order;
  if (left.op == Op::Add) return compare(left.b, right.b);
  if (left.size != right.size) return three_way(arena_[left.size], arena_[right.size]);
  return three_way(left.value, right.value);
}

void Facts::gather(ExprId id, Rational factor, const Size& monomial, Terms& out) {
  const Expr& node = arena_[id];
  const auto scaled = [&](const Size& size) {
    return std::pair(factor * size.factor() * Rational(node.value), monomial * size / Size(size.factor()));
  };
  switch (node.op) {
    case Op::Constant:
      out.push_back({one_, factor * Rational(node.value), monomial});
      return;
    case Op::SizeValue: {
      const Size& size = arena_[node.size];
      out.push_back({one_, factor * size.factor(), monomial * size / Size(size.factor())});
      return;
    }
    case Op::Add:
      gather(node.a, factor, monomial, out);
      gather(arena_[id].b, factor, monomial, out);
      return;
    case Op::Multiply: {
      const auto [f, m] = scaled(arena_[node.size]);
      gather(node.a, f, m, out);
      return;
    }
    default:
      out.push_back({id, factor, monomial});
      return;
  }
}

void Facts::collect(Terms& terms) const {
  const auto order = [&](const Term& a, const Term& b) {
    const bool a_last = a.atom == one_, b_last = b.atom == one_;
    if (a_last != b_last) return b_last;
    if (const int by_atom = compare(a.atom, b.atom); by_atom != 0) return by_atom < 0;
    return b.monomial < a.monomial;
  };
  std::stable_sort(terms.begin(), terms.end(), order);
  std::size_t kept = 0;
  const auto is_needed = [&](const Term& term) {
    return term.factor != Rational(0) || arena_.has_inside(term.atom);
  };
  for (std::size_t i = 0; i < terms.size();) {
    Term term = terms[i++];
    while (i < terms.size() && terms[i].atom == term.atom && terms[i].monomial == term.monomial) {
      term.factor = term.factor + terms[i++].factor;
    }
    if (term.factor == Rational(0)) term.monomial = Size();
    if (is_needed(term)) terms[kept++] = term;
  }
  terms.resize(kept);
  // Of the multiples of one x, a kept 0 * x is idle beside any other, which holds the same inside().
  std::size_t out = 0;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const bool idle =
        terms[i].factor == Rational(0) && ((out > 0 && terms[out - 1].atom == terms[i].atom) ||
                                           (i + 1 < terms.size() && terms[i + 1].atom == terms[i].atom));
    if (!idle) terms[out++] = terms[i];
  }
  terms.resize(out);
}

Terms Facts::terms(ExprId id) {
  Terms result;
  gather(id, 1, Size(), result);
  collect(result);
  return result;
}

ExprId Facts::product(const Term& term) {
  if (term.factor == Rational(0)) return arena_.multiply(term.atom, 0);
  const bool negative = term.factor < 0;
  const Rational magnitude = negative ? Rational(0) - term.factor : term.factor;
  if (!term.monomial.has_variables() && magnitude.integral()) {
    return arena_.multiply(term.atom, negative ? -magnitude.num() : magnitude.num());
  }
  const ExprId result = arena_.multiply(term.atom, Size(magnitude) * term.monomial);
  return negative ? arena_.multiply(result, -1) : result;
}

ExprId Facts::sum(Terms terms) {
  collect(terms);
  if (terms.empty()) return arena_.constant(0);
  ExprId result = product(terms[0]);
  for (std::size_t i = 1; i < terms.size(); ++i) result = arena_.add(result, product(terms[i]));
  return result;
}

}  // namespace syno::symbolic
