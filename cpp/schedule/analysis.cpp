#include "schedule/analysis.hpp"

#include <algorithm>

namespace syno::schedule {

std::int64_t ScopeFacts::points() const {
  std::int64_t product = 1;
  for (const auto extent : extents) product *= extent;
  return product;
}

ScopeFacts analyse(Plan& plan, std::size_t scope) {
  plan.need_domain(scope);
  ScopeFacts facts;
  const program::Scope& s = plan.program.scopes[scope];
  facts.traversal = s.traversal.size();
  facts.reduces = s.reduction != program::Reduction::None && !s.sums.empty();
  LinearForms forms = plan.bound_forms();
  for (std::size_t i = 0; i < plan.iterator_count(scope); ++i) {
    facts.extents.push_back(plan.scopes[scope].loops[i].extent);
    facts.names.push_back(plan.scopes[scope].loops[i].name);
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
      const ExprId index = without_inside(plan.program.arena, read.indices[d], conditions);
      const LinearForm form = forms.form(plan.program.arena, index);
      const Interval range = forms.bounds(form);
      const auto [begin, end] = plan.range(dims[d]);
      if (!total && (range.least < begin || range.greatest >= end)) r.guarded = true;
      for (const auto& condition : conditions) {
        const Interval inner = forms.bounds(forms.form(plan.program.arena, condition.expr));
        if (inner.least < condition.begin || inner.greatest >= condition.end) r.guarded = true;
      }
      r.extents.push_back(range.greatest - range.least + 1);
      r.elements *= r.extents.back();
      r.coefficients.emplace_back();
      for (std::size_t i = 0; i < facts.extents.size(); ++i) {
        const std::uint32_t slot = plan.iterator(scope, i).slot;
        bool linear = true;
        const std::int64_t c = forms.coefficient(form, slot, &linear);
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
