#include "emit/indices.hpp"

#include "program/verify.hpp"
#include "support/error.hpp"

namespace syno::emit {

Indices::Indices(const program::Program& program) : arena_(program.arena), ranges_(program.next_slot) {
  for (const program::Scope& scope : program.scopes) {
    for (const auto* iterators : {&scope.traversal, &scope.sums}) {
      for (const program::Iterator& i : *iterators) ranges_[i.slot] = program::extent_of(program, i.range, 0);
    }
  }
}

Slot Indices::new_slot(std::int64_t extent) {
  ranges_.push_back({0, extent});
  return static_cast<Slot>(ranges_.size() - 1);
}

symbolic::Context Indices::context() {
  symbolic::Context context;
  context.sizes = &sizes_;
  context.range = [this](Slot slot) {
    const program::Extent range = ranges_.at(slot);
    return symbolic::Range{arena_.constant(range.begin), arena_.constant(range.end)};
  };
  return context;
}

ExprId Indices::simplified(ExprId root) { return symbolic::simplify(arena_, root, context()); }

symbolic::Interval Indices::bounds(ExprId root) { return symbolic::bounds(arena_, root, context(), 0); }

program::Program concrete(std::string_view where, const program::Program& program) {
  program::verify(program);
  if (program.concrete()) return program;
  if (program.sizes.valuation_count() != 1) {
    fail<ShapeError>(where, "the program has symbolic sizes with {} valuations: choose one with at()",
                     program.sizes.valuation_count());
  }
  return program::at(program, 0);
}

}  // namespace syno::emit
