#include "schedule/outside.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "program/scalars.hpp"
#include "support/error.hpp"

namespace syno::schedule {

namespace {

using program::Reduction;
using program::Scalar;
using program::ScalarId;
using program::ScalarKind;

/// Where a read takes a value of memory, and not its fill: the conditions, appended. Copies are looked
/// through as long as their own fill is the same.
void conditions_of(Plan& plan, const Scalar& read, std::vector<Condition>& conditions) {
  symbolic::Arena& arena = plan.program.arena;
  std::vector<ExprId> indices;
  for (const ExprId index : read.indices)
    indices.push_back(symbolic::without_inside(arena, index, conditions));
  const auto made_by = plan.producer(read.tensor);
  if (!made_by || !plan.scopes[*made_by].total) {
    const auto& dims = plan.program.tensor(read.tensor).dims;
    for (std::size_t d = 0; d < dims.size(); ++d) {
      const auto [begin, end] = plan.range(dims[d]);
      conditions.push_back({indices[d], begin, end});
      if (const auto live = plan.live_end(arena, dims[d]))
        conditions.push_back({arena.subtract(indices[d], *live), begin - end, 0});
    }
    return;
  }
  const program::Scope& copy = plan.program.scopes[*made_by];
  Scalar source = plan.program.scalar(copy.body);
  if (source.kind != ScalarKind::Read || source.fill != read.fill || !copy.sums.empty() ||
      plan.scopes[*made_by].epilogue)
    return;
  for (ExprId& index : source.indices)
    index = arena.substitute(index, [&](std::uint32_t slot) {
      for (std::size_t d = 0; d < copy.traversal.size(); ++d)
        if (copy.traversal[d].slot == slot) return indices[d];
      return arena.iterator(slot);
    });
  conditions_of(plan, source, conditions);
}

/// What a read must be worth for a term to be neutral, among so many factors.
std::optional<double> neutral_fill(Reduction reduction, std::size_t factors) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (reduction == Reduction::Sum || reduction == Reduction::Mean) return 0;
  if (factors > 1) return std::nullopt;
  switch (reduction) {
    case Reduction::Max:
      return -kInfinity;
    case Reduction::Min:
      return kInfinity;
    case Reduction::Product:
      return 1;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::vector<Condition> terms_inside(Plan& plan, std::size_t scope, std::optional<ScalarId> only) {
  const program::Scope& s = plan.program.scopes[scope];
  std::vector<Condition> conditions;
  if (s.sums.empty()) return conditions;
  const std::vector<ScalarId> factors = program::factors_of(plan.program, s.body);
  const auto fill = neutral_fill(s.reduction, factors.size());
  // What is computed may be infinite, and its product with zero no number.
  const bool plain = std::all_of(factors.begin(), factors.end(), [&](ScalarId id) {
    const ScalarKind kind = plan.program.scalar(id).kind;
    return kind == ScalarKind::Read || kind == ScalarKind::Literal;
  });
  if (!fill || !plain) return conditions;
  AffineForms forms = plan.bound_forms();
  for (const ScalarId id : factors) {
    const Scalar read = plan.program.scalar(id);
    if (read.kind != ScalarKind::Read || read.fill.to_double() != *fill || id != only.value_or(id)) continue;
    std::vector<Condition> found;
    conditions_of(plan, read, found);
    for (const Condition& condition : found) {
      const Interval range = forms.bounds(forms.form(plan.program.arena, condition.expr));
      if (range.least < condition.begin || range.greatest >= condition.end) conditions.push_back(condition);
    }
  }
  return conditions;
}

Condition for_any(symbolic::Arena& arena, AffineForms& forms, const Condition& condition,
                  const std::vector<Trips>& inner) {
  for (const Trips& trips : inner) forms.bind(trips.slot, {trips.begin, trips.begin + trips.count - 1});
  AffineForm around, inside;
  const AffineForm whole = forms.form(arena, condition.expr);
  around.constant = whole.constant;
  for (const auto& term : whole.terms) {
    const AffineForm alone{{term}, 0};
    const bool moves = std::any_of(inner.begin(), inner.end(),
                                   [&](const Trips& trips) { return forms.depends_on(alone, trips.slot); });
    (moves ? inside : around).terms.push_back(term);
  }
  const Interval range = forms.bounds(inside);
  for (const Trips& trips : inner) forms.unbind(trips.slot);
  return {to_expr(arena, forms, around), condition.begin - range.greatest, condition.end - range.least};
}

}  // namespace syno::schedule
