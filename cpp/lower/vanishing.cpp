#include "lower/vanishing.hpp"

#include <vector>

#include "program/scalars.hpp"

namespace syno::lower {

namespace {

using program::Function;
using program::Program;
using program::Scalar;
using program::ScalarId;
using program::ScalarKind;

bool same_range(const Program& p, Range a, Range b) {
  for (std::size_t v = 0; v < p.sizes.valuation_count(); ++v) {
    const auto x = program::extent_of(p, a, v), y = program::extent_of(p, b, v);
    if (x.begin != y.begin || x.end != y.end) return false;
  }
  return true;
}

bool finite(const Program& p, ScalarId id) {
  const Scalar scalar = p.scalar(id);
  switch (scalar.kind) {
    case ScalarKind::Literal:
      return scalar.literal.finite();
    case ScalarKind::Index:
      return true;
    case ScalarKind::Read:
      return scalar.fill.finite();
    case ScalarKind::Select:
      return finite(p, scalar.b) && finite(p, scalar.c);
    case ScalarKind::Unary:
      return (scalar.function == Function::Negate || program::rounds(scalar.function)) && finite(p, scalar.a);
    case ScalarKind::Binary:
      if (program::gives_truth(scalar.function)) return true;
      if (scalar.function != Function::Add && scalar.function != Function::Subtract &&
          scalar.function != Function::Multiply) {
        return false;
      }
      return finite(p, scalar.a) && finite(p, scalar.b);
  }
  return false;
}

bool finite_factors(const Program& p, ScalarId id, std::vector<ScalarId>& factors) {
  const Scalar scalar = p.scalar(id);
  if (program::is_call(scalar, Function::Multiply)) {
    return finite_factors(p, scalar.a, factors) && finite_factors(p, scalar.b, factors);
  }
  const auto zero = [&](ScalarId branch) {
    return p.scalar(branch).kind == ScalarKind::Literal && p.scalar(branch).literal == Rational(0);
  };
  if (scalar.kind == ScalarKind::Select && zero(scalar.c)) return finite_factors(p, scalar.b, factors);
  if (scalar.kind == ScalarKind::Select && zero(scalar.b)) return finite_factors(p, scalar.c, factors);
  factors.push_back(id);
  return finite(p, id);
}

}  // namespace

bool covered(const Program& p, ScalarId body, const RangeCondition& condition) {
  std::vector<ScalarId> factors;
  if (!finite_factors(p, body, factors)) return false;
  for (const ScalarId id : factors) {
    const Scalar& scalar = p.scalar(id);
    if (scalar.kind != ScalarKind::Read || !(scalar.fill == Rational(0))) continue;
    for (std::size_t d = 0; d < scalar.indices.size(); ++d) {
      const Range dim = p.tensor(scalar.tensor).dims[d];
      if (scalar.indices[d] == condition.value && same_range(p, dim, condition.range)) return true;
    }
  }
  return false;
}

}  // namespace syno::lower
