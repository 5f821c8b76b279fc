#include "lower/linear.hpp"

#include <algorithm>

#include "support/checked.hpp"
#include "support/error.hpp"

namespace syno::lower {

using symbolic::Arena;
using symbolic::Expr;
using symbolic::ExprId;
using symbolic::Op;

std::int64_t integer_of(const Arena& arena, symbolic::SizeId size) {
  const symbolic::Size value = arena[size];
  SYNO_ASSERT(!value.has_variables() && value.factor().integral(), "a concrete program has integer sizes");
  return value.factor().num();
}

namespace {

void gather(const Arena& arena, ExprId id, std::int64_t factor, LinearForm& form) {
  const Expr& node = arena[id];
  switch (node.op) {
    case Op::Constant:
      form.constant = checked_add(form.constant, checked_multiply(factor, node.value));
      return;
    case Op::SizeValue:
      if (!is_integer(arena, node.size)) break;
      form.constant = checked_add(form.constant, checked_multiply(factor, integer_of(arena, node.size)));
      return;
    case Op::Add:
      gather(arena, node.a, factor, form);
      gather(arena, node.b, factor, form);
      return;
    case Op::Multiply:
      if (!is_integer(arena, node.size)) break;
      gather(arena, node.a,
             checked_multiply(checked_multiply(factor, node.value), integer_of(arena, node.size)), form);
      return;
    default:
      break;
  }
  const auto at = std::lower_bound(form.terms.begin(), form.terms.end(), id,
                                   [](const auto& term, ExprId atom) { return term.first < atom; });
  if (at != form.terms.end() && at->first == id) {
    at->second = checked_add(at->second, factor);
  } else {
    form.terms.insert(at, {id, factor});
  }
}

}  // namespace

LinearForm linear_form(const Arena& arena, ExprId root) {
  LinearForm form;
  gather(arena, root, 1, form);
  std::erase_if(form.terms,
                [&](const auto& term) { return term.second == 0 && !arena.has_inside(term.first); });
  return form;
}

ExprId expression_of(Arena& arena, const LinearForm& form) {
  ExprId sum = arena.constant(form.constant);
  for (const auto& [atom, coefficient] : form.terms) sum = arena.add(sum, arena.multiply(atom, coefficient));
  return sum;
}

}  // namespace syno::lower
