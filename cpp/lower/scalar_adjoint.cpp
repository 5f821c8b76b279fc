#include "lower/scalar_adjoint.hpp"

#include <cstdlib>
#include <map>

#include "support/error.hpp"

namespace syno::lower {

using program::Function;
using program::Program;
using program::Scalar;
using program::ScalarId;
using program::ScalarKind;

namespace {

// Irrational constants to 18 digits.
const Rational kTwoOverRootPi{1'128'379'167'095'512'574, 1'000'000'000'000'000'000};
const Rational kOneOverRootTwo{707'106'781'186'547'524, 1'000'000'000'000'000'000};
const Rational kOneOverRootTwoPi{398'942'280'401'432'678, 1'000'000'000'000'000'000};

bool is_literal(const Program& program, ScalarId id, Rational value) {
  const Scalar& scalar = program.scalar(id);
  return scalar.kind == ScalarKind::Literal && scalar.literal == value;
}

class Adjoints {
 public:
  Adjoints(Program& program, const std::set<program::TensorId>& wanted) : p_(program), wanted_(wanted) {}

  std::vector<std::pair<ScalarId, ScalarId>> run(ScalarId body, ScalarId seed) {
    const std::vector<ScalarId> order = program::scalars_of(p_, body);
    for (const ScalarId id : order) depends_[id] = depends(id);
    std::vector<std::pair<ScalarId, ScalarId>> result;
    if (!depends_[body]) return result;
    adjoint_[body] = seed;
    for (std::size_t i = order.size(); i-- > 0;) {
      const auto found = adjoint_.find(order[i]);
      if (found == adjoint_.end()) continue;
      const Scalar scalar = p_.scalar(order[i]);
      if (scalar.kind == ScalarKind::Read)
        result.emplace_back(order[i], found->second);
      else
        propagate(order[i], scalar, found->second);
    }
    return result;
  }

 private:
  bool depends(ScalarId id) {
    const Scalar& scalar = p_.scalar(id);
    switch (scalar.kind) {
      case ScalarKind::Read:
        return wanted_.contains(scalar.tensor);
      case ScalarKind::Unary:
        return !program::rounds(scalar.function) && depends_[scalar.a];  // steps have no slope
      case ScalarKind::Binary:
        return !program::gives_truth(scalar.function) && (depends_[scalar.a] || depends_[scalar.b]);
      case ScalarKind::Select:
        return depends_[scalar.b] || depends_[scalar.c];
      default:
        return false;
    }
  }

  void add(ScalarId to, ScalarId term) {
    const auto [at, first] = adjoint_.emplace(to, term);
    if (!first) at->second = p_.binary(Function::Add, at->second, term);
  }
  ScalarId times(ScalarId a, ScalarId b) { return product_of(p_, a, b); }
  ScalarId number(Rational value) { return p_.literal(value); }
  ScalarId less(ScalarId a, ScalarId b) { return p_.binary(Function::Less, a, b); }

  void propagate(ScalarId id, const Scalar& s, ScalarId g) {
    if (s.kind == ScalarKind::Unary) add(s.a, times(g, unary(id, s)));
    if (s.kind == ScalarKind::Select) {
      const ScalarId zero = number(0);
      if (depends_[s.b]) add(s.b, p_.select(s.a, g, zero));
      if (depends_[s.c]) add(s.c, p_.select(s.a, zero, g));
    }
    if (s.kind == ScalarKind::Binary) binary(id, s, g);
  }

  /// d(function(a))/da; `y` is the function's value.
  ScalarId unary(ScalarId y, const Scalar& s) {
    const ScalarId a = s.a;
    const ScalarId one = number(1), zero = number(0);
    const auto bell = [&](Rational scale) {  // scale * exp(-a*a)
      return times(number(scale), p_.unary(Function::Exp, p_.unary(Function::Negate, times(a, a))));
    };
    switch (s.function) {
      case Function::Negate:
        return number(-1);
      case Function::Exp:
        return y;
      case Function::Log:
        return p_.binary(Function::Divide, one, a);
      case Function::Sqrt:
        return p_.binary(Function::Divide, number({1, 2}), y);
      case Function::Rsqrt:
        return times(number({-1, 2}), times(y, times(y, y)));
      case Function::Erf:
        return bell(kTwoOverRootPi);
      case Function::Tanh:
        return p_.binary(Function::Subtract, one, times(y, y));
      case Function::Sigmoid:
        return times(y, p_.binary(Function::Subtract, one, y));
      case Function::Relu:
        return p_.select(p_.binary(Function::LessEqual, a, zero), zero, one);
      case Function::Abs:
        return p_.select(less(a, zero), number(-1), p_.select(less(zero, a), one, zero));
      case Function::Gelu: {
        const ScalarId scaled = times(a, number(kOneOverRootTwo));
        const ScalarId normal =
            times(number({1, 2}), p_.binary(Function::Add, one, p_.unary(Function::Erf, scaled)));
        const ScalarId density =
            times(number(kOneOverRootTwoPi),
                  p_.unary(Function::Exp, p_.unary(Function::Negate, times(scaled, scaled))));
        return p_.binary(Function::Add, normal, times(a, density));
      }
      case Function::Sin:
        return p_.unary(Function::Cos, a);
      case Function::Cos:
        return p_.unary(Function::Negate, p_.unary(Function::Sin, a));
      case Function::Atan:
        return p_.binary(Function::Divide, one, p_.binary(Function::Add, one, times(a, a)));
      default:
        break;
    }
    SYNO_ASSERT(false, "a unary function has a derivative");
    return one;
  }

  void binary(ScalarId y, const Scalar& s, ScalarId g) {
    const auto to = [&](ScalarId operand, auto&& factor) {
      if (depends_[operand]) add(operand, factor());
    };
    switch (s.function) {
      case Function::Add:
        to(s.a, [&] { return g; });
        to(s.b, [&] { return g; });
        return;
      case Function::Subtract:
        to(s.a, [&] { return g; });
        to(s.b, [&] { return p_.unary(Function::Negate, g); });
        return;
      case Function::Multiply:
        to(s.a, [&] { return times(g, s.b); });
        to(s.b, [&] { return times(g, s.a); });
        return;
      case Function::Divide:
        to(s.a, [&] { return p_.binary(Function::Divide, g, s.b); });
        to(s.b, [&] { return p_.unary(Function::Negate, p_.binary(Function::Divide, times(g, y), s.b)); });
        return;
      case Function::Maximum:
        extreme(s.a, s.b, g, s.a, s.b);
        return;
      case Function::Minimum:
        extreme(s.a, s.b, g, s.b, s.a);
        return;
      case Function::Power:
        to(s.a, [&] { return of_base(s, g); });
        to(s.b, [&] {  // 0^b does not change with b >= 0
          const ScalarId still = p_.binary(Function::And, p_.binary(Function::Equal, s.a, number(0)),
                                           p_.binary(Function::LessEqual, number(0), s.b));
          return times(g, p_.select(still, number(0), times(y, p_.unary(Function::Log, s.a))));
        });
        return;
      case Function::Fmod:  // a - trunc(a / b) * b
        to(s.a, [&] { return g; });
        to(s.b, [&] {
          const ScalarId whole = p_.unary(Function::Trunc, p_.binary(Function::Divide, s.a, s.b));
          return p_.unary(Function::Negate, times(g, whole));
        });
        return;
      default:
        return;  // comparisons are constant almost everywhere
    }
  }

  /// g * b * a^(b - 1), which is 0 for b = 0 whatever a is: also 0 and what is not a number.
  ScalarId of_base(const Scalar& s, ScalarId g) {
    if (is_literal(p_, s.b, 2)) return times(g, times(number(2), s.a));
    const Scalar& exponent = p_.scalar(s.b);
    const bool literal = exponent.kind == ScalarKind::Literal;
    if (literal && exponent.literal == Rational(0)) return number(0);
    constexpr std::int64_t kSmall = std::int64_t{1} << 31;
    const bool small = literal && exponent.literal.finite() && std::abs(exponent.literal.num()) < kSmall &&
                       exponent.literal.den() < kSmall;
    const ScalarId less_one =
        small ? number(exponent.literal - Rational(1)) : p_.binary(Function::Subtract, s.b, number(1));
    const ScalarId slope = times(g, times(s.b, p_.binary(Function::Power, s.a, less_one)));
    if (literal) return slope;
    return p_.select(p_.binary(Function::Equal, s.b, number(0)), number(0), slope);
  }

  /// The operand that is the extreme takes all of g, each half where they are equal, both all of it where one
  /// is not a number. An operand loses where `first` < `second`, these being (a, b) or (b, a).
  void extreme(ScalarId a, ScalarId b, ScalarId g, ScalarId first, ScalarId second) {
    const ScalarId tie = p_.binary(Function::Equal, a, b), half = times(g, number({1, 2})), zero = number(0);
    if (depends_[a]) add(a, p_.select(tie, half, p_.select(less(first, second), zero, g)));
    if (depends_[b]) add(b, p_.select(tie, half, p_.select(less(second, first), zero, g)));
  }

  Program& p_;
  const std::set<program::TensorId>& wanted_;
  std::map<ScalarId, bool> depends_;
  std::map<ScalarId, ScalarId> adjoint_;
};

}  // namespace

ScalarId product_of(Program& program, ScalarId a, ScalarId b) {
  if (is_literal(program, a, 1)) return b;
  if (is_literal(program, b, 1)) return a;
  return program.binary(Function::Multiply, a, b);
}

std::vector<std::pair<ScalarId, ScalarId>> scalar_adjoints(Program& program, ScalarId body, ScalarId seed,
                                                           const std::set<program::TensorId>& wanted) {
  return Adjoints(program, wanted).run(body, seed);
}

}  // namespace syno::lower
