// Where the range of a loop falls into pieces that are alike within.
#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "construct/analysis.hpp"
#include "program/scalars.hpp"
#include "schedule/switches.hpp"
#include "support/checked.hpp"

namespace syno::construct {

std::vector<bool> loops_that_switch(Plan& plan, std::size_t scope) {
  plan.need_domain(scope);
  AffineForms forms = plan.bound_forms();
  std::vector<bool> found(plan.scopes[scope].order.size(), false);
  for (const ExprId e : schedule::switches_of(plan.program, plan.program.scopes[scope].body)) {
    const AffineForm form = forms.form(plan.program.arena, plan.over_loops(scope, e));
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto leaf = static_cast<std::size_t>(plan.scopes[scope].order[i]);
      found[i] = found[i] || forms.depends_on(form, plan.scopes[scope].loops[leaf].slot);
    }
  }
  return found;
}

std::vector<std::int64_t> switch_cuts(Plan& plan, std::size_t scope, const std::string& name,
                                      std::size_t most) {
  constexpr std::int64_t kMostWraps = 4;
  const PlannedLoop loop = plan.scopes[scope].loops[static_cast<std::size_t>(plan.leaf_named(scope, name))];
  AffineForms forms = plan.bound_forms();
  std::set<std::int64_t> cuts;
  const auto not_negative = [&](const AffineForm& form) {
    bool linear = true;
    const std::int64_t step = forms.coefficient(form, loop.slot, &linear), size = std::abs(step);
    if (!linear || step == 0) return;
    const Interval rest = forms.bounds(forms.substitute(form, loop.slot, 0));
    if (rest.greatest - rest.least >= size) return;  // other loops have their say
    for (const std::int64_t at : {rest.least, rest.greatest}) {
      // The first iteration with step * i + at >= 0, or the one behind the last.
      const std::int64_t cut = step > 0 ? floor_divide(size - 1 - at, size) : floor_divide(at, size) + 1;
      if (cut > 0 && cut < loop.extent) cuts.insert(cut);
    }
  };
  const std::function<void(const AffineForm&)> wraps = [&](const AffineForm& form) {
    for (const auto& [id, coefficient] : form.terms) {
      const Atom atom = forms.atom(id);
      if (atom.kind == Atom::Kind::Slot) continue;
      const Interval range = forms.bounds(atom.inner);
      const std::int64_t first = floor_divide(range.least, atom.divisor) + 1,
                         last = floor_divide(range.greatest, atom.divisor);
      for (std::int64_t k = first; last - first < kMostWraps && k <= last; ++k)
        not_negative(nest::add(atom.inner, AffineForm{{}, -k * atom.divisor}));
      wraps(atom.inner);
    }
  };
  for (const ExprId e : schedule::switches_of(plan.program, plan.program.scopes[scope].body))
    not_negative(forms.form(plan.program.arena, plan.over_loops(scope, e)));
  for (const auto id : plan.reads(scope)) {
    const program::Scalar read = plan.program.scalar(id);
    const auto made_by = plan.producer(read.tensor);
    const bool total = made_by && plan.scopes[*made_by].total;
    std::vector<Condition> conditions;
    const auto dims = plan.program.tensor(read.tensor).dims;
    for (std::size_t d = 0; d < read.indices.size(); ++d) {
      const ExprId index = symbolic::without_inside(plan.program.arena, read.indices[d], conditions);
      const auto [begin, end] = plan.range(dims[d]);
      if (!total) conditions.push_back({index, begin, end});
      wraps(forms.form(plan.program.arena, plan.over_loops(scope, index)));
    }
    for (const Condition& condition : conditions) {
      const AffineForm form = forms.form(plan.program.arena, plan.over_loops(scope, condition.expr));
      not_negative(nest::add(form, AffineForm{{}, -condition.begin}));
      not_negative(nest::add(nest::multiply(form, -1), AffineForm{{}, condition.end - 1}));
    }
  }
  return cuts.size() <= most ? std::vector<std::int64_t>(cuts.begin(), cuts.end())
                             : std::vector<std::int64_t>{};
}

}  // namespace syno::construct
