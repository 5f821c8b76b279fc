#include "schedule/gather.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <numeric>

#include "symbolic/affine.hpp"

namespace syno::schedule {

namespace {

using symbolic::Op;

/// `e` with `visit` applied to what lies under its guards, divisions and remainders: the greatest affine
/// parts.
ExprId over_parts(symbolic::Arena& arena, ExprId e, const IsLinear& linear,
                  const std::function<ExprId(ExprId)>& visit) {
  if (linear(e)) return arena.has_iterator(e) ? visit(e) : e;
  if (arena[e].op != Op::Add)
    return arena.over(e, [&](ExprId child) { return over_parts(arena, child, linear, visit); });
  // What is linear in a sum is one part.
  std::vector<ExprId> summands{arena[e].a, arena[e].b}, rest;
  ExprId plain = arena.constant(0);
  while (!summands.empty()) {
    const ExprId next = summands.back();
    summands.pop_back();
    if (linear(next)) {
      plain = arena.add(plain, next);
    } else if (arena[next].op == Op::Add) {
      summands.push_back(arena[next].a);
      summands.push_back(arena[next].b);
    } else {
      rest.push_back(next);
    }
  }
  ExprId sum = arena.has_iterator(plain) ? visit(plain) : plain;
  for (const ExprId other : rest) sum = arena.add(sum, over_parts(arena, other, linear, visit));
  return sum;
}

/// A linear expression as what moves with the iterators plus what does not.
struct Apart {
  ExprId moving{}, rest{};
};
Apart apart(symbolic::Arena& arena, ExprId e) {
  const symbolic::Expr node = arena[e];
  if (!arena.has_iterator(e)) return {arena.constant(0), e};
  if (node.op != Op::Add) return {e, arena.constant(0)};
  const Apart a = apart(arena, node.a), b = apart(arena, node.b);
  return {arena.add(a.moving, b.moving), arena.add(a.rest, b.rest)};
}

std::int64_t times_of(const symbolic::Arena& arena, const symbolic::Expr& product) {
  return product.value * arena[product.size].factor().num();
}

/// What all coefficients of a linear expression without constants are multiples of.
std::int64_t common_factor(const symbolic::Arena& arena, ExprId e) {
  const auto& node = arena[e];
  if (node.op == Op::Add) return std::gcd(common_factor(arena, node.a), common_factor(arena, node.b));
  return node.op == Op::Multiply ? std::abs(times_of(arena, node)) * common_factor(arena, node.a) : 1;
}

/// `e` over a divisor of its common factor.
ExprId divided(symbolic::Arena& arena, ExprId e, std::int64_t by) {
  if (by == 1) return e;
  const symbolic::Expr node = arena[e];
  if (node.op == Op::Add) {
    const ExprId a = divided(arena, node.a, by);
    return arena.add(a, divided(arena, node.b, by));
  }
  const std::int64_t times = times_of(arena, node), here = std::gcd(times, by);
  return arena.multiply(divided(arena, node.a, by / here), times / here);
}

/// What moves in a linear expression, in steps of one: a copy holds the elements that are read, not those
/// between them.
struct Steps {
  ExprId part{};
  std::int64_t step = 1;
};
Steps steps_of(symbolic::Arena& arena, ExprId moving) {
  const std::int64_t step = common_factor(arena, moving);
  return {divided(arena, moving, step), step};
}
ExprId moving(symbolic::Arena& arena, ExprId e) {
  const ExprId part = apart(arena, e).moving;
  return arena.has_iterator(part) ? steps_of(arena, part).part : part;
}

/// `e` with quotients and remainders of shifted blocks over the blocks and the places in them, where both are
/// linear: (h+1) / 2 is h/2 + (h%2 + 1) / 2, and (h+1) % 2 is (h%2 + 1) % 2. What is gathered along h%2 is as
/// large as the block, along h as the whole.
ExprId by_blocks(symbolic::Arena& arena, ExprId e, const IsLinear& linear) {
  if (linear(e)) return e;
  const symbolic::Expr node = arena[e];
  const bool quotient = node.op == Op::Divide;
  if ((!quotient && node.op != Op::Modulo) || !linear(node.a))
    return arena.over(e, [&](ExprId child) { return by_blocks(arena, child, linear); });
  const symbolic::Size size = arena[node.size];
  const Apart inner = apart(arena, node.a);
  const ExprId block = arena.divide(inner.moving, size), place = arena.modulo(inner.moving, size);
  if (inner.rest == arena.constant(0) || !linear(block) || !linear(place)) return e;
  const ExprId shifted = arena.add(place, inner.rest);
  return quotient ? arena.add(block, arena.divide(shifted, size)) : arena.modulo(shifted, size);
}

bool share_iterators(const symbolic::Arena& arena, ExprId a, ExprId b) {
  const auto first = arena.iterators(a), second = arena.iterators(b);
  return std::any_of(first.begin(), first.end(), [&](std::uint32_t slot) {
    return std::find(second.begin(), second.end(), slot) != second.end();
  });
}

/// The parts of one index. Parts that share an iterator are parts no more: each iterator is one.
std::vector<ExprId> parts_of(symbolic::Arena& arena, ExprId index, const IsLinear& linear) {
  std::vector<ExprId> parts;
  over_parts(arena, index, linear, [&](ExprId part) {
    part = moving(arena, part);
    if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
    return part;
  });
  bool disjoint = true;
  for (std::size_t i = 0; i < parts.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) disjoint = disjoint && !share_iterators(arena, parts[i], parts[j]);
  if (disjoint) return parts;
  parts.clear();
  for (const std::uint32_t slot : arena.iterators(index)) parts.push_back(arena.iterator(slot));
  return parts;
}

}  // namespace

std::vector<ExprId> gathered_parts(symbolic::Arena& arena, const std::vector<ExprId>& indices,
                                   const IsLinear& linear) {
  std::vector<ExprId> parts;
  for (const ExprId whole : indices) {
    const ExprId index = by_blocks(arena, whole, linear);
    if (linear(index)) {  // one dimension stays one, whatever it is
      if (arena.has_iterator(index)) {
        const ExprId part = moving(arena, index);
        if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
      }
      continue;
    }
    for (const ExprId part : parts_of(arena, index, linear))
      if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
  }
  return parts;
}

std::vector<ExprId> gathered_from(symbolic::Arena& arena, const std::vector<ExprId>& indices,
                                  const IsLinear& linear, const std::vector<ExprId>& parts,
                                  const std::vector<ExprId>& places) {
  const auto place_of = [&](ExprId part) {
    const auto found = std::find(parts.begin(), parts.end(), part);
    return found == parts.end() ? std::nullopt
                                : std::optional(places[static_cast<std::size_t>(found - parts.begin())]);
  };
  std::vector<ExprId> from;
  for (const ExprId index : indices)
    from.push_back(over_parts(arena, by_blocks(arena, index, linear), linear, [&](ExprId part) {
      const auto [whole, rest] = apart(arena, part);
      const Steps steps = steps_of(arena, whole);
      if (const auto place = place_of(steps.part)) return arena.add(arena.multiply(*place, steps.step), rest);
      return arena.substitute(part, [&](std::uint32_t slot) {
        return place_of(arena.iterator(slot)).value_or(arena.iterator(slot));
      });
    }));
  return from;
}

IsLinear linear_over_loops(Plan& plan, std::size_t scope) {
  auto& arena = plan.program.arena;
  const bool decided = plan.scopes[scope].has_domain;
  AffineForms bound = plan.bound_forms();
  if (!decided)  // its loops will be the iterators
    for (std::size_t i = 0; i < plan.iterator_count(scope); ++i) {
      const auto [begin, end] = plan.range(plan.iterator(scope, i).range);
      bound.bind(plan.iterator(scope, i).slot, {begin, end - 1});
    }
  return [&plan, &arena, scope, decided, forms = std::move(bound)](ExprId e) mutable {
    if (symbolic::is_affine(arena, e)) return true;
    if (arena.has_inside(e)) return false;
    const AffineForm form = forms.form(arena, decided ? plan.over_loops(scope, e) : e);
    return std::all_of(form.terms.begin(), form.terms.end(),
                       [&](const auto& term) { return forms.atom(term.first).kind == Atom::Kind::Slot; });
  };
}

}  // namespace syno::schedule
