// Everything in one scope: where synthesised operators start, whose stages another order of sums may serve
// better.
#include <algorithm>

#include "derive/moved.hpp"
#include "derive/tools.hpp"
#include "equality/keys.hpp"
#include "support/error.hpp"

namespace syno::derive {

namespace {

bool is_product(const Program& program, ScalarId body) {
  bool all = true;
  program::visit(program, body, [&](ScalarId, const Scalar& scalar) {
    all = all && (scalar.kind == ScalarKind::Read || scalar.kind == ScalarKind::Literal ||
                  (scalar.kind == ScalarKind::Unary && scalar.function == Function::Negate) ||
                  (scalar.kind == ScalarKind::Binary && scalar.function == Function::Multiply));
    return all;
  });
  return all;
}

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
  int several = 0;  // what only copies is put where it is read by `inline`
  for (const Scope& scope : program.scopes) {
    const bool sums = scope.reduction == program::Reduction::Sum;
    several += sums ? 1 : 0;
    if (!scope.target.empty() || (!sums && scope.reduction != program::Reduction::None)) return {};
    if (!is_product(program, scope.body)) return {};
  }
  if (several < 2 || !equality::try_one_scope_form(program)) return {};
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
