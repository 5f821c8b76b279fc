#include "symbolic/expr.hpp"

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "support/checked.hpp"
#include "support/error.hpp"
#include "support/hash.hpp"
#include "support/inline_vector.hpp"

namespace syno::symbolic {
namespace {

std::uint32_t raw(ExprId id) { return static_cast<std::uint32_t>(id); }

bool integer_constant(const Size& size) { return !size.has_variables() && size.factor().integral(); }

std::uint64_t hash_of(const Expr& node) {
  std::uint64_t hash = static_cast<std::uint64_t>(node.op) * 0x9e3779b97f4a7c15ULL;
  const auto mix = [&](std::uint64_t word) { hash = (hash ^ word ^ (hash >> 29)) * 0xbf58476d1ce4e5b9ULL; };
  mix(static_cast<std::uint64_t>(node.a) << 32 | static_cast<std::uint64_t>(node.b));
  mix(static_cast<std::uint64_t>(node.size));
  mix(static_cast<std::uint64_t>(node.value));
  return hash ^ (hash >> 32);
}

std::uint64_t hash_of(const Size& size) {
  std::uint64_t hash = static_cast<std::uint64_t>(size.factor().num()) * 0x9e3779b97f4a7c15ULL +
                       static_cast<std::uint64_t>(size.factor().den());
  for (std::size_t i = 0; i < kMaxVariables; ++i) {
    hash = (hash ^ static_cast<std::uint64_t>(size.exponent(i) + 128) ^ (hash >> 31)) * 0xbf58476d1ce4e5b9ULL;
  }
  return hash ^ (hash >> 32);
}

/// Where the value is, or is to be put, and whether it is new.
template <class T>
std::pair<std::uint32_t, bool> position_of(InternTable& table, const std::vector<T>& values, const T& value) {
  return table.find_or_add(
      hash_of(value), values.size(), [&](std::uint32_t i) { return values[i] == value; },
      [&](std::uint32_t i) { return hash_of(values[i]); });
}

}  // namespace

Arena::Arena() {
  intern(Size());  // SizeId 0 is one, ExprId 0 is zero
  intern(Expr{});
}

SizeId Arena::intern(const Size& size) {
  const auto [place, is_new] = position_of(size_ids_, sizes_, size);
  if (is_new) sizes_.push_back(size);
  return static_cast<SizeId>(place);
}

void Arena::shrink(const Extent& to) {
  while (nodes_.size() > to.nodes) {
    node_ids_.forget_last(hash_of(nodes_.back()), static_cast<std::uint32_t>(nodes_.size()) - 1);
    nodes_.pop_back();
    traits_.pop_back();
  }
  while (sizes_.size() > to.sizes) {
    size_ids_.forget_last(hash_of(sizes_.back()), static_cast<std::uint32_t>(sizes_.size()) - 1);
    sizes_.pop_back();
  }
}

ExprId Arena::intern(const Expr& node) {
  const auto [place, is_new] = position_of(node_ids_, nodes_, node);
  if (is_new) {
    std::uint8_t traits = 0;
    if (node.op == Op::Iterator) {
      traits = kHasIterator;
    } else if (node.op != Op::Constant && node.op != Op::SizeValue) {
      traits = traits_[raw(node.a)];
      if (node.op == Op::Add) traits |= traits_[raw(node.b)];
      if (node.op == Op::Inside) traits |= kHasInside;
    }
    nodes_.push_back(node);
    traits_.push_back(traits);
  }
  return static_cast<ExprId>(place);
}

ExprId Arena::iterator(std::uint32_t slot) {
  return intern({.op = Op::Iterator, .a = static_cast<ExprId>(slot)});
}
ExprId Arena::constant(std::int64_t value) { return intern({.op = Op::Constant, .value = value}); }

ExprId Arena::size(const Size& size) {
  if (integer_constant(size)) return constant(size.factor().num());
  return intern({.op = Op::SizeValue, .size = intern(size)});
}

ExprId Arena::add(ExprId a, ExprId b) {
  const Expr left = (*this)[a], right = (*this)[b];
  if (left.op == Op::Constant && right.op == Op::Constant)
    return constant(checked_add(left.value, right.value));
  if (left.op == Op::Constant && left.value == 0) return b;
  if (right.op == Op::Constant && right.value == 0) return a;
  return intern({.op = Op::Add, .a = a, .b = b});
}

ExprId Arena::subtract(ExprId a, ExprId b) { return add(a, multiply(b, -1)); }

ExprId Arena::multiply(ExprId a, std::int64_t factor) {
  const Expr node = (*this)[a];
  if (node.op == Op::Constant) return constant(checked_multiply(node.value, factor));
  if (factor == 1) return a;
  if (factor == 0 && !has_inside(a)) return constant(0);
  if (node.op == Op::SizeValue && factor != -1) {
    const ExprId magnitude =
        size((*this)[node.size] * Size(factor < 0 ? checked_multiply(factor, -1) : factor));
    return factor < 0 ? multiply(magnitude, -1) : magnitude;
  }
  if (node.op == Op::Multiply && (*this)[node.size].is_one()) {
    return multiply(node.a, checked_multiply(node.value, factor));
  }
  return intern({.op = Op::Multiply, .a = a, .value = factor});
}

ExprId Arena::multiply(ExprId a, const Size& factor) {
  if (integer_constant(factor)) return multiply(a, factor.factor().num());
  const Expr node = (*this)[a];
  if (node.op == Op::Constant) return node.value == 0 ? a : multiply(size(factor), node.value);
  if (node.op == Op::SizeValue) return size((*this)[node.size] * factor);
  if (node.op == Op::Multiply && node.value == 1) return multiply(node.a, (*this)[node.size] * factor);
  // `x * H * k^-1`, read from the left, is x times the integer H/k.
  if (node.op == Op::Multiply && !(*this)[node.size].is_one())
    return multiply(node.a, (*this)[node.size] * factor);
  return intern({.op = Op::Multiply, .a = a, .size = intern(factor), .value = 1});
}

ExprId Arena::divide(ExprId a, const Size& divisor) {
  if (divisor.is_one()) return a;
  const Expr node = (*this)[a];
  if (node.op == Op::Constant && (node.value == 0 || integer_constant(divisor))) {
    return node.value == 0 ? a : constant(floor_divide(node.value, divisor.factor().num()));
  }
  return intern({.op = Op::Divide, .a = a, .size = intern(divisor)});
}

ExprId Arena::modulo(ExprId a, const Size& divisor) {
  if (divisor.is_one()) return multiply(a, 0);
  const Expr node = (*this)[a];
  if (node.op == Op::Constant && (node.value == 0 || integer_constant(divisor))) {
    return node.value == 0 ? a : constant(floor_modulo(node.value, divisor.factor().num()));
  }
  return intern({.op = Op::Modulo, .a = a, .size = intern(divisor)});
}

ExprId Arena::inside(ExprId a, const Size& extent) {
  const Expr node = (*this)[a];
  if (node.op == Op::Constant && node.value >= 0 && integer_constant(extent) &&
      node.value < extent.factor().num()) {
    return a;
  }
  return intern({.op = Op::Inside, .a = a, .size = intern(extent)});
}

namespace {

/// A node (a copy: the arena may grow) in `target`, over other operands and with `size` of its size.
template <class Operand, class SizeOf>
ExprId over_operands(Arena& target, const Expr node, const Operand& operand, const SizeOf& size) {
  switch (node.op) {
    case Op::Iterator:
      return target.iterator(raw(node.a));
    case Op::Constant:
      return target.constant(node.value);
    case Op::SizeValue:
      return target.size(size(node.size));
    case Op::Add: {
      const ExprId a = operand(node.a);
      return target.add(a, operand(node.b));
    }
    case Op::Multiply:
      return target.multiply(target.multiply(operand(node.a), node.value), size(node.size));
    case Op::Divide: {
      const ExprId a = operand(node.a);
      return target.divide(a, size(node.size));
    }
    case Op::Modulo: {
      const ExprId a = operand(node.a);
      return target.modulo(a, size(node.size));
    }
    case Op::Inside: {
      const ExprId a = operand(node.a);
      return target.inside(a, size(node.size));
    }
  }
  SYNO_ASSERT(false, "an index expression has a known operation");
  return {};
}

/// Rebuilds an expression of `source` in `target`, each distinct node once.
class Rebuild {
 public:
  Rebuild(Arena& target, const Arena& source, const std::function<std::optional<ExprId>(ExprId)>& rule,
          const std::function<Size(const Size&)>& resize)
      : target_(target), source_(source), rule_(rule), resize_(resize) {}

  ExprId operator()(ExprId id) {
    for (const auto& [done, result] : first_)
      if (done == id) return result;
    if (const auto done = done_.find(raw(id)); done != done_.end()) return done->second;
    const ExprId result = made(id);
    if (first_.size() < kFew)
      first_.emplace_back(id, result);
    else
      done_.emplace(raw(id), result);
    return result;
  }

 private:
  ExprId made(ExprId id) {
    if (rule_)
      if (const auto replaced = rule_(id)) return *replaced;
    return over_operands(
        target_, source_[id], [this](ExprId child) { return (*this)(child); },
        [this](SizeId size) { return resize_ ? resize_(source_[size]) : Size(source_[size]); });
  }

  Arena& target_;
  const Arena& source_;
  const std::function<std::optional<ExprId>(ExprId)>& rule_;
  const std::function<Size(const Size&)>& resize_;
  static constexpr std::size_t kFew = 16;
  InlineVector<std::pair<ExprId, ExprId>, kFew> first_;  ///< what most expressions are made of altogether
  std::unordered_map<std::uint32_t, ExprId> done_;       ///< the others
};

}  // namespace

ExprId Arena::over(ExprId id, const std::function<ExprId(ExprId)>& operand) {
  return over_operands(*this, (*this)[id], operand, [this](SizeId size) { return Size((*this)[size]); });
}

ExprId Arena::rewrite(ExprId root, const std::function<std::optional<ExprId>(ExprId)>& rule) {
  return Rebuild(*this, *this, rule, {})(root);
}

ExprId Arena::substitute(ExprId root, const std::function<ExprId(std::uint32_t)>& replacement) {
  return rewrite(root, [&](ExprId id) -> std::optional<ExprId> {
    const Expr node = (*this)[id];
    if (node.op != Op::Iterator) return std::nullopt;
    return replacement(raw(node.a));
  });
}

ExprId Arena::import(const Arena& source, ExprId root, const std::function<Size(const Size&)>& resize) {
  return Rebuild(*this, source, {}, resize)(root);
}

std::vector<std::uint32_t> Arena::iterators(ExprId root) const {
  std::vector<std::uint32_t> slots;
  std::vector<ExprId> todo{root};
  while (!todo.empty()) {
    const Expr& node = (*this)[todo.back()];
    const bool skip = !has_iterator(todo.back());
    todo.pop_back();
    if (skip) continue;
    if (node.op == Op::Iterator) {
      slots.push_back(raw(node.a));
      continue;
    }
    todo.push_back(node.a);
    if (node.op == Op::Add) todo.push_back(node.b);
  }
  std::sort(slots.begin(), slots.end());
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  return slots;
}

std::optional<std::int64_t> evaluate(const Arena& arena, ExprId root, const Sizes& sizes,
                                     std::size_t valuation, std::span<const std::int64_t> iterator_values) {
  const Expr& node = arena[root];
  const auto size = [&] { return sizes.integer_value(arena[node.size], valuation); };
  switch (node.op) {
    case Op::Iterator:
      SYNO_ASSERT(raw(node.a) < iterator_values.size(), "every iterator has a value");
      return iterator_values[raw(node.a)];
    case Op::Constant:
      return node.value;
    case Op::SizeValue:
      return size();
    default:
      break;
  }
  const auto a = evaluate(arena, node.a, sizes, valuation, iterator_values);
  if (!a) return std::nullopt;
  switch (node.op) {
    case Op::Add: {
      const auto b = evaluate(arena, node.b, sizes, valuation, iterator_values);
      if (!b) return std::nullopt;
      return checked_add(*a, *b);
    }
    case Op::Multiply: {
      if (arena[node.size].is_one()) return checked_multiply(*a, node.value);
      // A factor may be a fraction (H/2 written as a size) as long as the product is an integer.
      const Rational product = Rational(*a) * sizes.value(arena[node.size], valuation) * Rational(node.value);
      if (!product.integral()) {
        fail<ShapeError>("size", "{} * {} is not an integer at valuation {}", *a,
                         sizes.to_text(arena[node.size]), valuation);
      }
      return product.num();
    }
    case Op::Divide:
      return floor_divide(*a, size());
    case Op::Modulo:
      return floor_modulo(*a, size());
    case Op::Inside:
      if (*a < 0 || *a >= size()) return std::nullopt;
      return a;
    default:
      SYNO_ASSERT(false, "an index expression has a known operation");
  }
  return std::nullopt;
}

}  // namespace syno::symbolic
