// Where a scope is computed, and over what: all that its consumers read of it from inside the loop it is
// attached to.
#include <algorithm>
#include <set>

#include "schedule/plan.hpp"
#include "support/error.hpp"
#include "symbolic/condition.hpp"

namespace syno::schedule {

using program::Scalar;
using program::ScalarId;
using program::TensorId;

/// Bounding boxes of what consumers read, as seen from a loop.
struct Regions {
  Plan& plan;
  AffineForms forms;
  std::set<std::uint32_t> outer;  ///< slots of the loops around the place

  struct Dim {
    bool seen = false;
    AffineForm base;  ///< over `outer` only, without constant
    std::int64_t least = 0, greatest = 0;
  };

  bool is_outer(const AffineForm& form, bool* mixed) const {
    bool any_outer = false, any_inner = false;
    const auto visit = [&](const auto& self, const AffineForm& f) -> void {
      for (const auto& [id, coefficient] : f.terms) {
        const Atom& atom = forms.atom(id);
        if (atom.kind == Atom::Kind::Slot)
          (outer.contains(atom.slot) ? any_outer : any_inner) = true;
        else
          self(self, atom.inner);
      }
    };
    visit(visit, form);
    *mixed = any_outer && any_inner;
    return any_outer && !any_inner;
  }

  void join(Dim& dim, const AffineForm& index) {
    AffineForm base, rest;
    rest.constant = index.constant;
    for (const auto& term : index.terms) {
      bool mixed = false;
      const bool outside = is_outer(AffineForm{{term}, 0}, &mixed);
      (outside ? base : rest).terms.push_back(term);
    }
    const Interval range = forms.bounds(rest);
    if (!dim.seen) {
      dim = {true, base, range.least, range.greatest};
      return;
    }
    if (dim.base == base) {
      dim.least = std::min(dim.least, range.least);
      dim.greatest = std::max(dim.greatest, range.greatest);
      return;
    }
    // Two reads that move apart: the box that holds both wherever the outer loops are.
    const Interval a = forms.bounds(dim.base), b = forms.bounds(base);
    dim.least = std::min(dim.least + a.least, range.least + b.least);
    dim.greatest = std::max(dim.greatest + a.greatest, range.greatest + b.greatest);
    dim.base = {};
  }

  /// The value of a loop, taken whole where all its parts run inside the place.
  ExprId seen_value(std::size_t scope, int index) {
    auto& arena = plan.program.arena;
    const PlannedLoop& loop = plan.scopes[scope].loops[static_cast<std::size_t>(index)];
    const auto slots = arena.iterators(plan.value_of(scope, index));
    if (std::none_of(slots.begin(), slots.end(), [&](std::uint32_t slot) { return outer.contains(slot); }))
      return arena.iterator(loop.slot);
    if (loop.outer < 0) return plan.value_of(scope, index);
    const ExprId blocks = arena.multiply(seen_value(scope, loop.outer), loop.factor);
    return arena.add(blocks, seen_value(scope, loop.inner));
  }

  /// What `scope` reads at `index`, its iterators and parts of them taken whole where all their loops run
  /// inside the place, so that dead iterations ask for nothing.
  AffineForm seen_from(std::size_t scope, ExprId index) {
    auto& arena = plan.program.arena;
    const auto seen = [&](std::uint32_t slot) {
      std::size_t i = 0;
      while (i < plan.iterator_count(scope) && plan.iterator(scope, i).slot != slot) ++i;
      SYNO_ASSERT(i < plan.iterator_count(scope), "an index uses iterators of its scope only");
      const ExprId value = plan.iterator_value(scope, i);
      const auto slots = arena.iterators(value);
      if (std::none_of(slots.begin(), slots.end(), [&](std::uint32_t s) { return outer.contains(s); }))
        return arena.iterator(slot);
      const auto loop = static_cast<int>(i);
      return arena.add(arena.subtract(value, plan.value_of(scope, loop)), seen_value(scope, loop));
    };
    std::vector<Condition> ignored;
    index = symbolic::without_inside(arena, index, ignored);
    index = arena.substitute(index, seen);
    return forms.form(arena, index);
  }
};

Refused Plan::try_domain(std::size_t scope) {
  if (scopes[scope].has_domain) return {};
  const program::Scope s = program.scopes[scope];
  const TensorId tensor = s.output;
  const std::string name = program.tensor(tensor).name;
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  for (const auto& dim : program.tensor(tensor).dims) ranges.push_back(range(dim));
  const int at = scopes[scope].attach_scope;

  if (!s.target.empty()) {
    ranges.clear();
    for (const auto& iterator : s.traversal) ranges.push_back(range(iterator.range));
  } else if (!is_argument(tensor) && (scopes[scope].total || at >= 0)) {
    const auto readers = consumers(tensor);
    if (readers.empty())
      return refuse("schedule", "nothing reads '{}', so that it cannot be staged or computed at a loop",
                    name);
    for (const std::size_t reader : readers) SYNO_ACCEPT(try_domain(reader));
    change_program(scope);
    change_dims(tensor);
    Regions regions{*this, bound_forms(), {}};
    for (int around = at, loop = scopes[scope].attach_loop; around >= 0;) {
      const ScopePlan& outer = scopes[static_cast<std::size_t>(around)];
      const int last = position(static_cast<std::size_t>(around), loop);
      SYNO_ASSERT(last >= 0, "a scope is attached to a leaf loop");
      for (int p = 0; p <= last; ++p)
        regions.outer.insert(
            outer.loops[static_cast<std::size_t>(outer.order[static_cast<std::size_t>(p)])].slot);
      loop = outer.attach_loop;
      around = outer.attach_scope;
    }
    std::vector<Regions::Dim> dims(ranges.size());
    for (const std::size_t reader : readers) {
      change(reader).frozen = true;
      for (const ScalarId id : all_reads(reader)) {
        const Scalar read = program.scalar(id);
        if (read.tensor != tensor) continue;
        for (std::size_t d = 0; d < dims.size(); ++d)
          regions.join(dims[d], regions.seen_from(reader, read.indices[d]));
      }
    }
    std::vector<ExprId> bases;
    for (std::size_t d = 0; d < dims.size(); ++d) {
      auto& dim = dims[d];
      const auto domain = ranges[d];
      if (!scopes[scope].total) {
        const std::int64_t whole = domain.second - domain.first;
        if (dim.base.terms.empty()) {
          dim.least = std::max(dim.least, domain.first);
          dim.greatest = std::min(dim.greatest, domain.second - 1);
          if (dim.greatest < dim.least) dim.least = dim.greatest = domain.first;
        } else if (dim.greatest - dim.least + 1 >= whole) {
          dim.base = {};
          dim.least = domain.first;
          dim.greatest = domain.second - 1;
        }
      }
      const Interval reach = regions.forms.bounds(dim.base);
      // The range of the iterator: all it can be. The loop: what one visit needs, from the base on.
      ranges[d] = {dim.least, dim.greatest + 1};
      AffineForm base = dim.base;
      base.constant += dim.least;
      bases.push_back(to_expr(program.arena, regions.forms, base));
      std::int64_t first = dim.least + reach.least, last = dim.greatest + reach.greatest + 1;
      if (!scopes[scope].total) {
        first = std::max(first, domain.first);
        last = std::min(last, domain.second);
      } else {
        auto& range = program.tensors[static_cast<std::size_t>(tensor)].dims[d];
        range = {program.arena.constant(first), program.arena.constant(last)};
      }
      program::Range& made = program.scopes[scope].traversal[d].range;
      made = {program.arena.constant(first), program.arena.constant(last),
              scopes[scope].total ? symbolic::Live() : made.live};
    }
    change(scope).bases = std::move(bases);
  }
  for (const auto& sum : s.sums) ranges.push_back(range(sum.range));
  start_loops(scope, ranges);
  return {};
}

}  // namespace syno::schedule
