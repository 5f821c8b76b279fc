// Factors that all terms of a sum share: multiplied once a result instead of once a term. What q·kᵀ / 8 and
// gradients of means need.
#include <algorithm>
#include <optional>

#include "derive/tools.hpp"
#include "support/error.hpp"

namespace syno::derive {

namespace {

/// A product, apart: what the sum moves, and what it does not.
struct Product {
  std::optional<ScalarId> moving, still;
};

/// How a product comes apart.
class Factors {
 public:
  Factors(const Program& program, const Scope& scope) : program_(program), sums_(scope.sums) {}

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

  static bool multiplies(const Scalar& scalar) { return program::is_call(scalar, Function::Multiply); }
  /// By what the sum does not move.
  bool divides(const Scalar& scalar) const {
    return program::is_call(scalar, Function::Divide) && !moves(scalar.b);
  }
  static bool negates(const Scalar& scalar) { return program::is_call(scalar, Function::Negate); }

  bool moves(ScalarId id) const {
    const Scalar& scalar = program_.scalar(id);
    const auto by_sums = [&](ExprId e) {
      const auto slots = program_.arena.iterators(e);
      return std::any_of(sums_.begin(), sums_.end(), [&](const Iterator& sum) {
        return std::find(slots.begin(), slots.end(), sum.slot) != slots.end();
      });
    };
    bool found = false;
    program::over_indices(scalar, [&](ExprId index) { found = found || by_sums(index); });
    program::over_operands(scalar, [&](ScalarId operand) { found = found || moves(operand); });
    return found;
  }

 private:
  const Program& program_;
  std::vector<Iterator> sums_;
};

/// Writes the parts of a product.
class Separator {
 public:
  Separator(Program& program, const Scope& scope) : program_(program), factors_(program, scope) {}

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

std::vector<Site> find_factors(const Program& program, std::size_t at) {
  const Scope& scope = program.scopes[at];
  const bool adds = scope.reduction == program::Reduction::Sum || scope.reduction == program::Reduction::Mean;
  if (!adds || scope.sums.empty() || !scope.target.empty()) return {};
  const Factors::Parts parts = Factors(program, scope).parts(scope.body);
  if (!parts.moving || !parts.still) return {};
  return {{name_of(program, scope), {}, {}, {}}};
}

void take_out_factors(Program& program, const Site& site) {
  const std::size_t at = scope_named(program, site.scope);
  if (find_factors(program, at).empty())
    fail<ScheduleError>(kWhere, "'{}' is no sum whose terms share a factor that the summation does not move",
                        site.scope);
  const Product parts = Separator(program, program.scopes[at]).apart(program.scopes[at].body);
  Scope sums = program.scopes[at];
  Tensor tensor = program.tensor(sums.output);
  tensor.name = name_for(program, site, site.scope + "_factored");
  tensor.role = program::Role::Computed;
  std::vector<ExprId> places;
  std::vector<std::pair<std::uint32_t, ExprId>> moved;
  for (Iterator& iterator : sums.traversal) {
    places.push_back(program.arena.iterator(iterator.slot));
    const Iterator own = program.new_iterator(iterator.name, iterator.range);
    moved.emplace_back(iterator.slot, program.arena.iterator(own.slot));
    iterator = own;
  }
  sums.output = program.add_tensor(std::move(tensor));
  sums.body = program::with_iterators(program, *parts.moving, moved);
  Scope& product = program.scopes[at];
  product.sums.clear();
  product.reduction = program::Reduction::None;
  const ScalarId sum = program.read(sums.output, std::move(places));
  product.body = program.binary(Function::Multiply, sum, *parts.still);
  program.scopes.insert(program.scopes.begin() + static_cast<std::ptrdiff_t>(at), std::move(sums));
}

}  // namespace syno::derive
