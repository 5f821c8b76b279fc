#include "symbolic/affine.hpp"

#include <algorithm>
#include <vector>

#include "support/error.hpp"

namespace syno::symbolic {

std::int64_t integer_of(const Arena& arena, SizeId size) {
  const Size value = arena[size];
  SYNO_ASSERT(!value.has_variables() && value.factor().integral(), "a concrete program has integer sizes");
  return value.factor().num();
}

namespace {

struct Gatherer {
  const Arena& arena;
  std::vector<std::pair<ExprId, std::int64_t>> terms;
  std::int64_t constant = 0;

  void gather(ExprId id, std::int64_t factor) {
    const Expr& node = arena[id];
    switch (node.op) {
      case Op::Constant:
        constant = checked_add(constant, checked_multiply(factor, node.value));
        return;
      case Op::SizeValue:
        if (!is_integer(arena, node.size)) break;
        constant = checked_add(constant, checked_multiply(factor, integer_of(arena, node.size)));
        return;
      case Op::Add:
        gather(node.a, factor);
        gather(node.b, factor);
        return;
      case Op::Multiply:
        if (!is_integer(arena, node.size)) break;
        gather(node.a, checked_multiply(checked_multiply(factor, node.value), integer_of(arena, node.size)));
        return;
      default:
        break;
    }
    const auto at = std::lower_bound(terms.begin(), terms.end(), id,
                                     [](const auto& term, ExprId atom) { return term.first < atom; });
    if (at != terms.end() && at->first == id)
      at->second = checked_add(at->second, factor);
    else
      terms.insert(at, {id, factor});
  }
};

}  // namespace

AffineForm<ExprId> affine_form(const Arena& arena, ExprId root) {
  Gatherer gathered{arena, {}, 0};
  gathered.gather(root, 1);
  AffineForm<ExprId> form;
  form.constant = gathered.constant;
  for (const auto& term : gathered.terms)
    if (term.second != 0 || arena.has_inside(term.first)) form.terms.push_back(term);
  return form;
}

ExprId expression_of(Arena& arena, const AffineForm<ExprId>& form) {
  ExprId sum = arena.constant(form.constant);
  for (const auto& [atom, coefficient] : form.terms) sum = arena.add(sum, arena.multiply(atom, coefficient));
  return sum;
}

bool is_affine(const Arena& arena, ExprId root) {
  const Expr& node = arena[root];
  switch (node.op) {
    case Op::Iterator:
    case Op::Constant:
      return true;
    case Op::SizeValue:
      return is_integer(arena, node.size);
    case Op::Add:
      return is_affine(arena, node.a) && is_affine(arena, node.b);
    case Op::Multiply:
      return is_integer(arena, node.size) && is_affine(arena, node.a);
    default:
      return false;
  }
}

std::optional<std::int64_t> coefficient_of(const Arena& arena, ExprId root, std::uint32_t slot) {
  std::int64_t found = 0;
  for (const auto& [atom, coefficient] : affine_form(arena, root).terms) {
    if (slot_of(arena, atom) == slot) {
      found = coefficient;
    } else {
      const auto slots = arena.iterators(atom);
      if (std::find(slots.begin(), slots.end(), slot) != slots.end()) return std::nullopt;
    }
  }
  return found;
}

}  // namespace syno::symbolic
