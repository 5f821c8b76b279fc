#include "construct/analysis.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "construct/caches.hpp"
#include "construct/phases.hpp"
#include "schedule/decisions.hpp"
#include "schedule/gather.hpp"
#include "support/checked.hpp"

namespace syno::construct {

std::int64_t ScopeFacts::points() const {
  std::int64_t product = 1;
  for (const auto extent : extents) product *= extent;
  return product;
}

bool ScopeFacts::split(std::size_t loop) const {
  return std::count(iterators.begin(), iterators.end(), iterators[loop]) > 1;
}

namespace {

/// A leaf that a quotient or remainder in some index cuts into whole blocks, and the block.
std::optional<std::pair<std::string, std::int64_t>> block_of(Plan& plan, std::size_t scope) {
  AffineForms forms = plan.bound_forms();
  std::optional<std::pair<std::string, std::int64_t>> found;
  const std::function<void(const AffineForm&)> visit = [&](const AffineForm& form) {
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
      const ExprId e =
          plan.over_loops(scope, symbolic::without_inside(plan.program.arena, index, conditions));
      visit(forms.form(plan.program.arena, e));
    }
  }
  return found;
}

}  // namespace

ScopeFacts analyse(Plan& plan, std::size_t scope, bool blocks) {
  plan.need_domain(scope);
  schedule::Attempt tried(plan);  // with loops split into blocks
  ScopeFacts facts;
  facts.blocks = blocks;
  constexpr std::size_t kMaxSplits = 8;
  while (blocks && facts.splits.size() < kMaxSplits && !plan.scopes[scope].frozen) {
    const auto block = block_of(plan, scope);
    if (!block) break;
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
  if (facts.reduces) facts.counted = counted_terms(plan, scope);
  AffineForms forms = plan.bound_forms();
  std::vector<std::uint32_t> slots;
  for (const int leaf : plan.scopes[scope].order) {
    const PlannedLoop& loop = plan.scopes[scope].loops[static_cast<std::size_t>(leaf)];
    facts.names.push_back(loop.name);
    facts.extents.push_back(loop.extent);
    slots.push_back(loop.slot);
    int root = leaf;
    while (plan.scopes[scope].loops[static_cast<std::size_t>(root)].parent >= 0)
      root = plan.scopes[scope].loops[static_cast<std::size_t>(root)].parent;
    facts.iterators.push_back(static_cast<std::size_t>(root));
    if (!loop.reduction) ++facts.traversal;
  }
  std::vector<std::uint32_t> outside;
  for (int at = plan.scopes[scope].attach_scope; at >= 0;
       at = plan.scopes[static_cast<std::size_t>(at)].attach_scope) {
    const ScopePlan& around = plan.scopes[static_cast<std::size_t>(at)];
    for (const int leaf : around.order) outside.push_back(around.loops[static_cast<std::size_t>(leaf)].slot);
  }
  const schedule::IsLinear is_linear = schedule::linear_over_loops(plan, scope);
  for (const auto id : plan.reads(scope)) {
    const program::Scalar read = plan.program.scalar(id);
    ReadFacts r;
    r.id = id;
    r.tensor = read.tensor;
    r.name = plan.program.tensor(read.tensor).name;
    r.linear = true;
    r.depends.assign(facts.extents.size(), false);
    r.guards.assign(facts.extents.size(), false);
    r.address.assign(facts.extents.size(), 0);
    const auto made_by = plan.producer(read.tensor);
    const bool total = made_by && plan.scopes[*made_by].total;
    const auto& dims = plan.program.tensor(read.tensor).dims;
    schedule::Shape shape;
    for (const auto& dim : dims) {
      const auto [begin, end] = plan.range(dim);
      shape.push_back(end - begin);
    }
    const auto strides =
        plan.is_argument(read.tensor) ? plan.strides(read.tensor) : nest::row_major_strides(shape);
    const auto add_dimension = [&](BoxFacts& box, const AffineForm& form) {
      AffineForm visit = form;  // the loops around the place a scope is computed at stand still
      for (const std::uint32_t slot : outside) visit = forms.substitute(visit, slot, 0);
      const Interval range = forms.bounds(visit), whole = forms.bounds(form);
      box.extents.push_back(range.greatest - range.least + 1);
      box.whole.push_back(whole.greatest - whole.least + 1);
      box.elements *= box.extents.back();
      box.coefficients.emplace_back();
      box.linear.push_back(true);
      for (const std::uint32_t slot : slots) {
        bool linear = true;
        box.coefficients.back().push_back(forms.coefficient(form, slot, &linear));
        box.linear.back() = box.linear.back() && linear;
      }
    };
    for (std::size_t d = 0; d < read.indices.size(); ++d) {
      std::vector<Condition> conditions;
      const ExprId index =
          plan.over_loops(scope, symbolic::without_inside(plan.program.arena, read.indices[d], conditions));
      const AffineForm form = forms.form(plan.program.arena, index);
      const Interval range = forms.bounds(form);
      const auto [begin, end] = plan.range(dims[d]);
      const auto guarded_by = [&](const AffineForm& guard) {
        r.guarded = true;
        for (std::size_t i = 0; i < slots.size(); ++i)
          if (forms.depends_on(guard, slots[i])) r.guards[i] = true;
      };
      if (!total && (range.least < begin || range.greatest >= end)) guarded_by(form);
      for (const auto& condition : conditions) {
        const AffineForm inside = forms.form(plan.program.arena, plan.over_loops(scope, condition.expr));
        const Interval inner = forms.bounds(inside);
        if (inner.least < condition.begin || inner.greatest >= condition.end) guarded_by(inside);
        for (std::size_t i = 0; i < slots.size(); ++i)
          if (r.guarded && forms.depends_on(inside, slots[i])) r.depends[i] = true;
      }
      add_dimension(r.box, form);
      r.linear = r.linear && r.box.linear.back();
      for (std::size_t i = 0; i < facts.extents.size(); ++i) {
        if (forms.depends_on(form, slots[i])) r.depends[i] = true;
        r.address[i] += r.box.coefficients.back()[i] * strides[d];
      }
    }
    for (const ExprId part : schedule::gathered_parts(plan.program.arena, read.indices, is_linear))
      add_dimension(r.copy, forms.form(plan.program.arena, plan.over_loops(scope, part)));
    facts.reads.push_back(std::move(r));
  }
  return facts;
}

namespace {

std::optional<std::size_t> dimension_of(const ScopeFacts& facts, const BoxFacts& box, std::size_t loop,
                                        bool in_parts) {
  std::optional<std::size_t> found;
  for (std::size_t d = 0; d < box.extents.size(); ++d) {
    if (box.coefficients[d][loop] == 0) continue;
    if (found || box.coefficients[d][loop] != 1 || !box.linear[d]) return std::nullopt;
    found = d;
  }
  if (!found) return found;
  const std::int64_t part = facts.extents[loop];
  if (in_parts && box.extents[*found] % part != 0) return std::nullopt;
  for (std::size_t i = 0; i < facts.extents.size(); ++i) {
    if (i == loop || facts.extents[i] == 1 || (i >= facts.traversal && !in_parts)) continue;
    const std::int64_t step = box.coefficients[*found][i];
    if (step != 0 && (!in_parts || step % part != 0)) return std::nullopt;
  }
  return found;
}

}  // namespace

std::int64_t span_of(const BoxFacts& box, std::size_t d, std::span<const std::int64_t> iterations) {
  std::int64_t span = 1;
  for (std::size_t i = 0; i < iterations.size(); ++i)
    span += std::abs(box.coefficients[d][i]) * (iterations[i] - 1);
  return std::min(box.linear[d] ? span : box.extents[d], box.whole[d]);
}

Touched touched(const BoxFacts& box, std::span<const std::int64_t> iterations, double element_bytes) {
  double run = 1, pieces = 1, apart = 0, within = element_bytes;
  bool whole = true;  // of the dimensions within: the next one lengthens the run
  for (std::size_t d = box.extents.size(); d-- > 0;) {
    const std::int64_t span = span_of(box, d, iterations);
    (whole ? run : pieces) *= static_cast<double>(span);
    if (!whole && span > 1 && apart == 0) apart = within;
    whole = whole && span == box.whole[d];
    within *= static_cast<double>(box.whole[d]);
  }
  const double lines = run * element_bytes / kLine;
  return {pieces * std::max(1.0, lines > 1 ? lines + 0.5 : lines), pieces, apart};
}

std::optional<std::size_t> dimension_along(const ScopeFacts& facts, const BoxFacts& box, std::size_t loop) {
  return dimension_of(facts, box, loop, false);
}

std::optional<std::size_t> dimension_in_parts(const ScopeFacts& facts, const BoxFacts& box,
                                              std::size_t loop) {
  return dimension_of(facts, box, loop, true);
}

std::vector<std::int64_t> border_cuts(Plan& plan, std::size_t scope, const std::string& name) {
  const PlannedLoop loop = plan.scopes[scope].loops[static_cast<std::size_t>(plan.leaf_named(scope, name))];
  AffineForms forms = plan.bound_forms();
  std::int64_t first = 0, last = loop.extent;  // iterations in [first, last) are inside
  const auto inside = [&](ExprId e, std::int64_t begin, std::int64_t end) {
    const AffineForm form = forms.form(plan.program.arena, plan.over_loops(scope, e));
    bool linear = true;
    const std::int64_t step = forms.coefficient(form, loop.slot, &linear);
    if (!linear || step == 0) return;
    const Interval rest = forms.bounds(forms.substitute(form, loop.slot, 0));
    // begin <= step * i + rest < end for all of `rest`
    std::int64_t low = begin - rest.least, high = end - 1 - rest.greatest;
    if (step < 0) {
      std::swap(low, high);
      low = -low;
      high = -high;
    }
    const std::int64_t size = std::abs(step);
    first = std::max(first, floor_divide(low + size - 1, size));
    last = std::min(last, floor_divide(high, size) + 1);
  };
  for (const auto id : plan.reads(scope)) {
    const program::Scalar read = plan.program.scalar(id);
    const auto made_by = plan.producer(read.tensor);
    const bool total = made_by && plan.scopes[*made_by].total;
    const auto dims = plan.program.tensor(read.tensor).dims;
    std::vector<Condition> conditions;
    for (std::size_t d = 0; d < read.indices.size(); ++d) {
      const ExprId index = symbolic::without_inside(plan.program.arena, read.indices[d], conditions);
      const auto [begin, end] = plan.range(dims[d]);
      if (!total) inside(index, begin, end);
    }
    for (const auto& condition : conditions) inside(condition.expr, condition.begin, condition.end);
  }
  std::vector<std::int64_t> cuts;
  // Where no iteration is inside, two of them know their own guards apart.
  if (last <= first) return loop.extent == 2 ? std::vector<std::int64_t>{1} : cuts;
  if (first > 0) cuts.push_back(first);
  if (last < loop.extent) cuts.push_back(last);
  return cuts;
}

std::vector<std::int64_t> wrap_cuts(Plan& plan, std::size_t scope, const std::string& outer,
                                    const std::string& inner) {
  constexpr std::int64_t kMostIterations = 256;
  constexpr std::size_t kMostCuts = 2;
  const auto loop = [&](const std::string& name) {
    return plan.scopes[scope].loops[static_cast<std::size_t>(plan.leaf_named(scope, name))];
  };
  const PlannedLoop around = loop(outer);
  const std::uint32_t slot = loop(inner).slot;
  if (around.extent > kMostIterations) return {};
  AffineForms forms = plan.bound_forms();
  std::vector<bool> wraps(static_cast<std::size_t>(around.extent), false);
  const std::function<void(const AffineForm&)> visit = [&](const AffineForm& form) {
    for (const auto& [id, coefficient] : form.terms) {
      const Atom atom = forms.atom(id);
      if (atom.kind == Atom::Kind::Slot || !forms.depends_on(atom.inner, slot)) continue;
      bool linear = true;
      const std::int64_t step = forms.coefficient(atom.inner, around.slot, &linear);
      const Interval first = forms.bounds(forms.substitute(atom.inner, around.slot, 0));
      for (std::int64_t v = 0; v < around.extent; ++v) {
        const Interval range = linear ? Interval{first.least + v * step, first.greatest + v * step}
                                      : forms.bounds(forms.substitute(atom.inner, around.slot, v));
        if (floor_divide(range.least, atom.divisor) != floor_divide(range.greatest, atom.divisor))
          wraps[static_cast<std::size_t>(v)] = true;
      }
      visit(atom.inner);
    }
  };
  for (const auto id : plan.reads(scope)) {
    const program::Scalar read = plan.program.scalar(id);
    for (const ExprId index : read.indices) {
      std::vector<Condition> ignored;
      const ExprId e = plan.over_loops(scope, symbolic::without_inside(plan.program.arena, index, ignored));
      visit(forms.form(plan.program.arena, e));
    }
  }
  std::vector<std::int64_t> cuts;
  if (2 * std::count(wraps.begin(), wraps.end(), true) > around.extent) return cuts;
  for (std::size_t v = 1; v < wraps.size(); ++v)
    if (wraps[v] != wraps[v - 1]) cuts.push_back(static_cast<std::int64_t>(v));
  return cuts.size() <= kMostCuts ? cuts : std::vector<std::int64_t>{};
}

}  // namespace syno::construct
