#include "lower/tangled.hpp"

#include <cmath>
#include <cstdlib>
#include <vector>

namespace syno::lower {

namespace {

using program::Scalar;
using program::ScalarId;
using program::ScalarKind;
using program::TensorId;
using symbolic::Op;

bool cut_up(const symbolic::Arena& arena, ExprId root, const auto& both) {
  const symbolic::Expr node = arena[root];
  switch (node.op) {
    case Op::Divide:
    case Op::Modulo:
      return both(node.a) || cut_up(arena, node.a, both);
    case Op::Add:
      return cut_up(arena, node.a, both) || cut_up(arena, node.b, both);
    case Op::Multiply:
    case Op::Inside:
      return cut_up(arena, node.a, both);
    default:
      return false;
  }
}

/// A sum of element and term in which different pairs meet: p - k, not B*p + k with k in [0, B).
bool overlaps(Iterators& iterators, ExprId root, const std::set<Slot>& elements,
              const std::set<Slot>& terms) {
  struct Part {
    std::int64_t step, span;
  };
  std::vector<Part> of_elements, of_terms;
  for (const auto& [atom, factor] : affine_form(iterators.arena(), root).terms) {
    const symbolic::Interval reach = iterators.bounds(atom);
    const Part part{std::abs(factor), std::abs(factor) * (reach.greatest - reach.least)};
    bool element = false, term = false;
    for (const Slot slot : iterators.arena().iterators(atom)) {
      element = element || elements.contains(slot);
      term = term || terms.contains(slot);
    }
    if (element) of_elements.push_back(part);
    if (term) of_terms.push_back(part);
  }
  for (const Part& e : of_elements)
    for (const Part& t : of_terms)
      if (e.step <= t.span && t.step <= e.span) return true;
  return false;
}

}  // namespace

bool tangled(Iterators& iterators, program::ScalarId body, const std::set<Slot>& elements,
             const std::set<Slot>& terms) {
  program::Program& p = iterators.program();
  const auto both = [&](ExprId root) {
    bool element = false, term = false;
    for (const Slot slot : p.arena.iterators(root)) {
      element = element || elements.contains(slot);
      term = term || terms.contains(slot);
    }
    return element && term;
  };
  std::set<TensorId> moving;
  for (const ScalarId id : program::scalars_of(p, body)) {
    const Scalar scalar = p.scalar(id);
    if (scalar.kind == ScalarKind::Index && both(scalar.index)) return true;
    for (const ExprId index : scalar.indices) {
      if (cut_up(p.arena, index, both)) return true;
      if (overlaps(iterators, index, elements, terms)) moving.insert(scalar.tensor);
    }
  }
  return moving.size() > 1;
}

}  // namespace syno::lower
