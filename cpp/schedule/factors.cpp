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

/// How a product comes apart.
class Factors {
 public:
  Factors(const Program& program, const program::Scope& scope) : program_(program), sums_(scope.sums) {}

  /// Which of the two parts a product has.
  struct Parts {
    bool moving = false, still = false;
  };
  Parts parts(ScalarId id) const {
    if (!moves(id)) return {false, true};
    const Scalar& scalar = program_.scalar(id);
    if (multiplies(scalar)) {
      const Parts a = parts(scalar.a), b = parts(scalar.b);
      return {a.moving || b.moving, a.still || b.still};
    }
    if (divides(scalar) || negates(scalar)) return {parts(scalar.a).moving, true};
    return {true, false};
  }

  static bool multiplies(const Scalar& scalar) {
    return scalar.kind == ScalarKind::Binary && scalar.function == Function::Multiply;
  }
  /// By what the sum does not move.
  bool divides(const Scalar& scalar) const {
    return scalar.kind == ScalarKind::Binary && scalar.function == Function::Divide && !moves(scalar.b);
  }
  static bool negates(const Scalar& scalar) {
    return scalar.kind == ScalarKind::Unary && scalar.function == Function::Negate;
  }

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

 private:
  const Program& program_;
  std::vector<program::Iterator> sums_;
};

/// Writes the parts of a product.
class Separator {
 public:
  Separator(Program& program, const program::Scope& scope) : program_(program), factors_(program, scope) {}

  Product apart(ScalarId id) {
    if (!factors_.moves(id)) return {std::nullopt, id};
    const Scalar scalar = program_.scalar(id);
    if (Factors::multiplies(scalar)) {
      const Product a = apart(scalar.a), b = apart(scalar.b);
      return {times(a.moving, b.moving), times(a.still, b.still)};
    }
    if (factors_.divides(scalar)) {
      const Product a = apart(scalar.a);
      return {a.moving, times(a.still, inverse(scalar.b))};
    }
    if (Factors::negates(scalar)) {
      const Product a = apart(scalar.a);
      return {a.moving, times(a.still, program_.literal(-1))};
    }
    return {id, std::nullopt};
  }

 private:
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
  Factors factors_;
};

}  // namespace

bool has_common_factor(const Plan& plan, std::size_t at) {
  const program::Scope& scope = plan.program.scopes[at];
  const bool adds = scope.reduction == program::Reduction::Sum || scope.reduction == program::Reduction::Mean;
  if (!adds || scope.sums.empty() || !scope.target.empty() || !untouched(plan, at)) return false;
  const Factors::Parts parts = Factors(plan.program, scope).parts(scope.body);
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
  const Product parts = Separator(program, program.scopes[at]).apart(program.scopes[at].body);
  const auto before = plan.scopes[at].epilogue;
  const ScalarId value = before ? before->value : program.literal(0);
  const ScalarId result = program.binary(Function::Multiply, value, *parts.still);
  const ScalarId body = !before ? result : rebuild(program, before->body, [&](ScalarId id) {
    return id == value ? std::optional(result) : std::nullopt;
  });
  program.scopes[at].body = *parts.moving;
  plan.scopes[at].epilogue = {body, value};
}

}  // namespace syno::schedule
