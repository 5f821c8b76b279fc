#include "schedule/analysis.hpp"

#include <algorithm>
#include <functional>
#include <optional>

#include "schedule/decisions.hpp"

namespace syno::schedule {

std::int64_t ScopeFacts::points() const {
  std::int64_t product = 1;
  for (const auto extent : extents) product *= extent;
  return product;
}

namespace {

/// A leaf that a quotient or remainder in some index cuts into whole blocks, and the block.
std::optional<std::pair<std::string, std::int64_t>> block_of(Plan& plan, std::size_t scope) {
  LinearForms forms = plan.bound_forms();
  std::optional<std::pair<std::string, std::int64_t>> found;
  const std::function<void(const LinearForm&)> visit = [&](const LinearForm& form) {
    for (const auto& [id, coefficient] : form.terms) {
      const Atom atom = forms.atom(id);
      if (atom.kind == Atom::Kind::Slot) continue;
      for (const auto& [inner, times] : atom.inner.terms) {
        const Atom part = forms.atom(inner);
        if (part.kind != Atom::Kind::Slot || times <= 0 || atom.divisor % times != 0) continue;
        const std::int64_t factor = atom.divisor / times;
        for (const int leaf : plan.scopes[scope].order) {
          const PlannedLoop& loop = plan.scopes[scope].loops[static_cast<std::size_t>(leaf)];
          if (loop.slot == part.slot && factor > 1 && loop.extent > factor && loop.extent % factor == 0 &&
              !found)
            found = {loop.name, factor};
        }
      }
      visit(atom.inner);
    }
  };
  for (const auto id : plan.reads(scope)) {
    const program::Scalar read = plan.program.scalar(id);
    for (const ExprId index : read.indices) {
      std::vector<Condition> conditions;
      const ExprId e = plan.over_loops(scope, without_inside(plan.program.arena, index, conditions));
      visit(forms.form(plan.program.arena, e));
    }
  }
  return found;
}

}  // namespace

ScopeFacts analyse(Plan& original, std::size_t scope) {
  original.need_domain(scope);
  Plan plan = original;
  ScopeFacts facts;
  constexpr std::size_t kMaxSplits = 8;
  while (facts.splits.size() < kMaxSplits) {
    const auto block = block_of(plan, scope);
    if (!block || plan.scopes[scope].frozen) break;
    decide(plan, {"split",
                  plan.program.tensor(plan.program.scopes[scope].output).name,
                  {block->first},
                  {block->second},
                  "",
                  {}});
    facts.splits.push_back(*block);
  }
  const program::Scope& s = plan.program.scopes[scope];
  facts.reduces = s.reduction != program::Reduction::None && !s.sums.empty();
  LinearForms forms = plan.bound_forms();
  std::vector<std::uint32_t> slots;
  for (const int leaf : plan.scopes[scope].order) {
    const PlannedLoop& loop = plan.scopes[scope].loops[static_cast<std::size_t>(leaf)];
    facts.extents.push_back(loop.extent);
    slots.push_back(loop.slot);
    if (!loop.reduction) ++facts.traversal;
  }
  for (const auto id : plan.reads(scope)) {
    const program::Scalar read = plan.program.scalar(id);
    ReadFacts r;
    r.id = id;
    r.tensor = read.tensor;
    r.linear = true;
    r.depends.assign(facts.extents.size(), false);
    r.address.assign(facts.extents.size(), 0);
    const auto made_by = plan.producer(read.tensor);
    const bool total = made_by && plan.scopes[*made_by].total;
    const auto& dims = plan.program.tensor(read.tensor).dims;
    Shape shape;
    for (const auto& dim : dims) {
      const auto [begin, end] = plan.range(dim);
      shape.push_back(end - begin);
    }
    const auto strides = row_major_strides(shape);
    for (std::size_t d = 0; d < read.indices.size(); ++d) {
      std::vector<Condition> conditions;
      const ExprId index =
          plan.over_loops(scope, without_inside(plan.program.arena, read.indices[d], conditions));
      const LinearForm form = forms.form(plan.program.arena, index);
      const Interval range = forms.bounds(form);
      const auto [begin, end] = plan.range(dims[d]);
      if (!total && (range.least < begin || range.greatest >= end)) r.guarded = true;
      for (const auto& condition : conditions) {
        const Interval inner =
            forms.bounds(forms.form(plan.program.arena, plan.over_loops(scope, condition.expr)));
        if (inner.least < condition.begin || inner.greatest >= condition.end) r.guarded = true;
      }
      r.extents.push_back(range.greatest - range.least + 1);
      r.elements *= r.extents.back();
      r.coefficients.emplace_back();
      for (std::size_t i = 0; i < facts.extents.size(); ++i) {
        bool linear = true;
        const std::int64_t c = forms.coefficient(form, slots[i], &linear);
        r.linear = r.linear && linear;
        r.coefficients.back().push_back(c);
        if (!linear || c != 0) r.depends[i] = true;
        r.address[i] += c * strides[d];
      }
    }
    facts.reads.push_back(std::move(r));
  }
  return facts;
}

}  // namespace syno::schedule
