// Factors that all terms of a sum share: multiplied once a result instead of once a term. What q·kᵀ / 8 and
// gradients of means need.
#include <algorithm>
#include <optional>

#include "schedule/decisions.hpp"
#include "support/error.hpp"

namespace syno::schedule {

using program::Function;
using program::Program;
using program::Scalar;
using program::ScalarId;
using program::ScalarKind;

namespace {

/// A product, apart: what the sum moves, and what it does not.
struct Product {
  std::optional<ScalarId> moving, still;
};

class Factors {
 public:
  Factors(Program& program, const program::Scope& scope) : program_(program), sums_(scope.sums) {}

  Product apart(ScalarId id) {
    if (!moves(id)) return {std::nullopt, id};
    const Scalar scalar = program_.scalar(id);
    const bool binary = scalar.kind == ScalarKind::Binary;
    if (binary && scalar.function == Function::Multiply) {
      const Product a = apart(scalar.a), b = apart(scalar.b);
      return {times(a.moving, b.moving), times(a.still, b.still)};
    }
    if (binary && scalar.function == Function::Divide && !moves(scalar.b)) {
      const Product a = apart(scalar.a);
      return {a.moving, times(a.still, inverse(scalar.b))};
    }
    if (scalar.kind == ScalarKind::Unary && scalar.function == Function::Negate) {
      const Product a = apart(scalar.a);
      return {a.moving, times(a.still, program_.literal(-1))};
    }
    return {id, std::nullopt};
  }

 private:
  bool moves(ScalarId id) const {
    const Scalar& scalar = program_.scalar(id);
    const auto by_sums = [&](ExprId e) {
      const auto slots = program_.arena.iterators(e);
      return std::any_of(sums_.begin(), sums_.end(), [&](const program::Iterator& sum) {
        return std::find(slots.begin(), slots.end(), sum.slot) != slots.end();
      });
    };
    switch (scalar.kind) {
      case ScalarKind::Literal:
        return false;
      case ScalarKind::Index:
        return by_sums(scalar.index);
      case ScalarKind::Read:
        return std::any_of(scalar.indices.begin(), scalar.indices.end(), by_sums);
      case ScalarKind::Unary:
        return moves(scalar.a);
      case ScalarKind::Binary:
        return moves(scalar.a) || moves(scalar.b);
      case ScalarKind::Select:
        return moves(scalar.a) || moves(scalar.b) || moves(scalar.c);
    }
    return true;
  }

  std::optional<ScalarId> times(std::optional<ScalarId> a, std::optional<ScalarId> b) {
    if (!a || !b) return a ? a : b;
    return program_.binary(Function::Multiply, *a, *b);
  }

  ScalarId inverse(ScalarId id) {
    const Scalar& scalar = program_.scalar(id);
    if (scalar.kind == ScalarKind::Literal && !(scalar.literal == Rational(0)))
      return program_.literal(Rational(1) / scalar.literal);
    return program_.binary(Function::Divide, program_.literal(1), id);
  }

  Program& program_;
  std::vector<program::Iterator> sums_;
};

}  // namespace

bool has_common_factor(const Plan& plan, std::size_t at) {
  const program::Scope& scope = plan.program.scopes[at];
  const bool adds =
      scope.reduction == program::Reduction::Sum || scope.reduction == program::Reduction::Mean;
  if (!adds || scope.sums.empty() || !scope.target.empty() || !untouched(plan, at)) return false;
  Program copy = plan.program;
  const Product parts = Factors(copy, scope).apart(scope.body);
  return parts.moving && parts.still;
}

void take_out_factors(Plan& plan, const Decision& decision) {
  const std::size_t at = plan.scope_named(decision.scope);
  if (!has_common_factor(plan, at))
    fail<ScheduleError>("schedule",
                        "'{}' is no sum about which nothing was decided and whose terms share a factor that "
                        "the summation does not move",
                        decision.scope);
  Program& program = plan.program;
  const Product parts = Factors(program, program.scopes[at]).apart(program.scopes[at].body);
  const auto before = plan.scopes[at].epilogue;
  const ScalarId value = before ? before->value : program.literal(0);
  const ScalarId result = program.binary(Function::Multiply, value, *parts.still);
  const ScalarId body = !before ? result
                                : rebuild(program, before->body, [&](ScalarId id) {
                                    return id == value ? std::optional(result) : std::nullopt;
                                  });
  program.scopes[at].body = *parts.moving;
  program.scopes[at].label.reset();
  plan.scopes[at].epilogue = {body, value};
}

}  // namespace syno::schedule
