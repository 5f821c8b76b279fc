// Everything in one scope: where synthesised operators start, whose stages another order of sums may serve
// better.
#include <algorithm>

#include "derive/moved.hpp"
#include "derive/tools.hpp"
#include "equality/keys.hpp"

namespace syno::derive {

namespace {

/// Matrices that a derivation brought are no part of what was given.
bool has_constants(const Program& program) {
  return std::any_of(program.tensors.begin(), program.tensors.end(),
                     [](const Tensor& tensor) { return tensor.role == program::Role::Constant; });
}

}  // namespace

std::vector<Site> find_one_scope(const Program& program, std::size_t at) {
  if (program.scopes.size() < 2 || at + 1 != program.scopes.size() || program.outputs.size() != 1) return {};
  const Scope& last = program.scopes.back();
  if (last.output != program.outputs[0] || has_constants(program)) return {};
  // What only copies is put where it is read by `inline`.
  const auto sums = std::count_if(program.scopes.begin(), program.scopes.end(), [](const Scope& scope) {
    return scope.reduction == program::Reduction::Sum;
  });
  if (sums < 2 || !equality::try_one_scope_form(program)) return {};
  return {{name_of(program, last), {}, {}, {}}};
}

void put_into_one_scope(Program& program, const Site& site) {
  place_of(program, rewrite_named("one_scope"), site);
  program = equality::one_scope_form(program);
  // Sums that came from several scopes may be called alike.
  for (Scope& scope : program.scopes) {
    Scope named = scope;
    named.traversal.clear();
    named.sums.clear();
    for (auto [from, to] :
         {std::pair(&scope.traversal, &named.traversal), std::pair(&scope.sums, &named.sums)})
      for (Iterator& iterator : *from) {
        iterator.name = fresh_iterator_name(named, iterator.name);
        to->push_back(iterator);
      }
  }
}

}  // namespace syno::derive
