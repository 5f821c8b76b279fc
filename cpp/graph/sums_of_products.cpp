#include "graph/sums_of_products.hpp"

#include <algorithm>

#include "program/scalars.hpp"
#include "support/error.hpp"
#include "symbolic/affine.hpp"

namespace syno::graph {

namespace {

using program::Program;
using program::Scalar;
using program::Scope;

std::string name_of(const Scope& scope, std::uint32_t slot) {
  for (const auto* iterators : {&scope.traversal, &scope.sums})
    for (const program::Iterator& iterator : *iterators)
      if (iterator.slot == slot) return iterator.name;
  SYNO_ASSERT(false, "an index is over iterators of its scope");
  return {};
}

FactorIndex index_of(const Program& program, const Scope& scope, symbolic::ExprId index) {
  FactorIndex made;
  const auto form = symbolic::affine_form(program.arena, index);
  made.constant = form.constant;
  for (const auto& [atom, coefficient] : form.terms) {
    if (const std::uint32_t slot = symbolic::slot_of(program.arena, atom); slot != symbolic::kNoSlot) {
      made.terms.push_back({name_of(scope, slot), coefficient});
      continue;
    }
    made.affine = false;
    for (const std::uint32_t slot : program.arena.iterators(atom))
      made.terms.push_back({name_of(scope, slot), 0});
  }
  return made;
}

std::vector<NamedRange> ranges_of(const Program& program, const std::vector<program::Iterator>& iterators) {
  std::vector<NamedRange> made;
  for (const program::Iterator& iterator : iterators) {
    const auto [begin, end] = program::extent_of(program, iterator.range, 0);
    made.push_back({iterator.name, begin, end});
  }
  return made;
}

}  // namespace

std::vector<SumOfProducts> sums_of_products(const Program& concrete) {
  if (!concrete.concrete())
    fail<ShapeError>("layout", "the program has size variables; choose a valuation with at()");
  std::vector<SumOfProducts> found;
  for (const Scope& scope : concrete.scopes) {
    if (scope.reduction != program::Reduction::Sum || !scope.target.empty()) continue;
    SumOfProducts made{scope.output, {}, {}, {}};
    for (const program::ScalarId id : program::factors_of(concrete, scope.body)) {
      const Scalar& scalar = concrete.scalar(id);
      if (scalar.kind != program::ScalarKind::Read) continue;
      Factor factor{scalar.tensor, {}};
      for (const symbolic::ExprId index : scalar.indices)
        factor.indices.push_back(index_of(concrete, scope, index));
      made.factors.push_back(std::move(factor));
    }
    if (made.factors.size() < 2) continue;
    made.traversal = ranges_of(concrete, scope.traversal);
    made.sums = ranges_of(concrete, scope.sums);
    found.push_back(std::move(made));
  }
  return found;
}

}  // namespace syno::graph
