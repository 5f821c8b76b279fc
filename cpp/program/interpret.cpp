#include "program/interpret.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <type_traits>

#include "program/evaluator.hpp"
#include "program/interpret_inputs.hpp"
#include "program/scalars.hpp"
#include "program/verify.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"
#include "support/memory.hpp"

namespace syno::program {

double apply(Function function, double a, double b) {
  switch (function) {
    case Function::Negate:
      return -a;
    case Function::Exp:
      return std::exp(a);
    case Function::Log:
      return std::log(a);
    case Function::Sqrt:
      return std::sqrt(a);
    case Function::Rsqrt:
      return 1 / std::sqrt(a);
    case Function::Erf:
      return std::erf(a);
    case Function::Tanh:
      return std::tanh(a);
    case Function::Sigmoid:
      return a >= 0 ? 1 / (1 + std::exp(-a)) : std::exp(a) / (1 + std::exp(a));
    case Function::Relu:
      return a < 0 ? 0 : a;
    case Function::Abs:
      return std::abs(a);
    case Function::Gelu: {  // 1 + erf would cancel in the left tail, and an argument's error be magnified
      const long double wide = a;
      return static_cast<double>(wide * (0.5L * std::erfc(-wide / std::numbers::sqrt2_v<long double>)));
    }
    case Function::Add:
      return a + b;
    case Function::Subtract:
      return a - b;
    case Function::Multiply:
      return a * b;
    case Function::Divide:
      return a / b;
    case Function::Maximum:
      return a > b || std::isnan(a) ? a : b;  // a NaN on either side stays visible
    case Function::Minimum:
      return a < b || std::isnan(a) ? a : b;
    case Function::Power:
      return std::pow(a, b);
    case Function::Less:
      return a < b;
    case Function::LessEqual:
      return a <= b;
    case Function::Equal:
      return a == b;
    case Function::NotEqual:
      return a != b;
    case Function::And:
      return a != 0 && b != 0;
    case Function::Or:
      return a != 0 || b != 0;
    case Function::Floor:
      return std::floor(a);
    case Function::Ceil:
      return std::ceil(a);
    case Function::Round:
      return std::nearbyint(a);
    case Function::Trunc:
      return std::trunc(a);
    case Function::Sin:
      return std::sin(a);
    case Function::Cos:
      return std::cos(a);
    case Function::Atan:
      return std::atan(a);
    case Function::Fmod:
      return std::fmod(a, b);
  }
  return 0;
}

namespace detail {

namespace {

constexpr const char* kDivisionByZero = "a division by zero";
constexpr const char* kEndless = "a remainder of infinity";
constexpr const char* kPower = "a power whose exponent is not an integer";

Rational floor(Rational x) {
  const std::int64_t quotient = x.num() / x.den();
  return x.num() % x.den() < 0 ? quotient - 1 : quotient;
}

/// What `rounds(function)` makes of a number; halves go to the even one of their neighbours.
Rational rounded(Function function, Rational x) {
  const Rational below = floor(x);
  if (x == below || function == Function::Floor) return below;
  const Rational above = below + Rational(1);
  if (function == Function::Ceil) return above;
  if (function == Function::Trunc) return x < Rational(0) ? above : below;
  const Rational rest = x - below, half{1, 2};
  if (rest == half) return below.num() % 2 == 0 ? below : above;
  return rest < half ? below : above;
}

Exact power(Rational base, Rational exponent) {
  if (!exponent.integral()) return {Rational(), kPower};
  if (exponent < Rational(0) && base == Rational(0)) return {Rational(), kDivisionByZero};
  if (exponent < Rational(0)) return power(Rational(1) / base, Rational(0) - exponent);
  Rational result = 1;
  for (std::int64_t left = exponent.num(); left > 0; left /= 2) {  // squares only what is still needed
    if (left % 2 == 1) result = result * base;
    if (left > 1) base = base * base;
  }
  return {result};
}

}  // namespace

Exact Numbers<Exact>::function(Function f, const Exact& a, const Exact& b) {
  if (a.undefined) return a;
  if (b.undefined) return b;
  const Rational x = a.value, y = b.value, zero = 0;
  switch (f) {
    case Function::Negate:
      return {zero - x};
    case Function::Relu:
      return {std::max(x, zero)};
    case Function::Abs:
      return {x < zero ? zero - x : x};
    case Function::Add:
      return {x + y};
    case Function::Subtract:
      return {x - y};
    case Function::Multiply:
      return {x * y};
    case Function::Divide:
      return y == zero ? Exact{Rational(), kDivisionByZero} : Exact{x / y};
    case Function::Maximum:
      return {std::max(x, y)};
    case Function::Minimum:
      return {std::min(x, y)};
    case Function::Power:
      return power(x, y);
    case Function::Less:
      return {Rational(x < y)};
    case Function::LessEqual:
      return {Rational(x <= y)};
    case Function::Equal:
      return {Rational(x == y)};
    case Function::NotEqual:
      return {Rational(!(x == y))};
    case Function::And:
      return {Rational(x != zero && y != zero)};
    case Function::Or:
      return {Rational(x != zero || y != zero)};
    case Function::Floor:
    case Function::Ceil:
    case Function::Round:
    case Function::Trunc:
      if (!x.finite()) return a;
      return {rounded(f, x)};
    case Function::Fmod:
      if (y == zero || !x.finite()) return {Rational(), y == zero ? kDivisionByZero : kEndless};
      if (!y.finite()) return a;
      return {x - rounded(Function::Trunc, x / y) * y};
    default:
      return {Rational(), "a function that is not rational"};
  }
}

namespace {

bool rational(Function function) {
  return function == Function::Negate || function == Function::Relu || function == Function::Abs ||
         rounds(function) || !is_unary(function);
}

void require_rational(const Program& program) {
  for (const Scope& scope : program.scopes)
    for (const ScalarId id : scalars_of(program, scope.body)) {
      const Scalar& scalar = program.scalar(id);
      if (scalar.kind == ScalarKind::Unary && !rational(scalar.function))
        fail<VerifyError>(kInterpret,
                          "'{}' in the scope of '{}' is not a rational function: interpret it in float64",
                          name_of(scalar.function), program.tensor(scope.output).name);
    }
}

// Registers hold Exact where tensors hold Rational.
template <class T>
using RegisterOf = std::conditional_t<std::is_same_v<T, Rational>, Exact, T>;

double store(double value, const Program&, const Scope&) { return value; }
Rational store(const Exact& value, const Program& program, const Scope& scope) {
  if (value.undefined)
    fail<VerifyError>(kInterpret, "{} in the scope of '{}' has no exact value", value.undefined,
                      program.tensor(scope.output).name);
  return value.value;
}

template <class T>
void run_scope(const Program& program, const Scope& scope, std::vector<std::vector<T>>& owned,
               std::vector<const T*>& data) {
  Evaluator<RegisterOf<T>> evaluator(program, scope);
  const ScopeCode& code = evaluator.code();
  const auto output = static_cast<std::size_t>(scope.output);
  owned[output].assign(element_count(program, scope.output, sizeof(T)), T(0));
  T* result = owned[output].data();
  data[output] = result;

  const auto load = [&](std::uint32_t tensor, std::int64_t offset) {
    return RegisterOf<T>{data[tensor][static_cast<std::size_t>(offset)]};
  };
  const std::vector<std::int64_t> begin(
      code.begin.begin(), code.begin.begin() + static_cast<std::ptrdiff_t>(code.traversal_count));
  std::vector<std::int64_t> point = begin;
  std::int64_t next = 0;
  do {
    interruption_point();
    evaluator.move_to(point.data());
    if (!code.accumulates) {
      result[next++] = store(evaluator.value(load), program, scope);
    } else if (std::int64_t offset = 0; evaluator.target(offset)) {
      result[offset] = result[offset] + store(evaluator.value(load), program, scope);
    }
  } while (advance(point, begin, code.extent));
}

}  // namespace

template <class T>
void check_inputs(const Program& program, const std::map<std::string, Values<T>>& inputs) {
  if (!program.concrete())
    fail<ShapeError>(kInterpret, "the program has symbolic sizes: choose one of its {} valuations with at()",
                     program.sizes.valuation_count());
  verify(program);
  std::vector<std::string> names;
  for (const TensorId id : program.inputs()) {
    const Tensor& tensor = program.tensor(id);
    names.push_back(tensor.name);
    const auto found = inputs.find(tensor.name);
    const std::vector<std::int64_t> shape = shape_of(program, id);
    if (found == inputs.end())
      fail<ShapeError>(kInterpret, "no values for '{}' of shape [{}]", tensor.name, fmt::join(shape, ", "));
    if (found->second.shape != shape)
      fail<ShapeError>(kInterpret, "'{}' has shape [{}], but the program wants [{}]", tensor.name,
                       fmt::join(found->second.shape, ", "), fmt::join(shape, ", "));
    if (static_cast<std::int64_t>(found->second.data.size()) != checked_product(kInterpret, shape))
      fail<ShapeError>(kInterpret, "'{}' has {} values, but its shape [{}] needs {}", tensor.name,
                       found->second.data.size(), fmt::join(shape, ", "), checked_product(kInterpret, shape));
  }
  for (const auto& [name, values] : inputs)
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw UnknownName(kInterpret, unknown_name("input", name, names));
}

template void check_inputs(const Program&, const std::map<std::string, Values<double>>&);
template void check_inputs(const Program&, const std::map<std::string, Values<Rational>>&);

std::size_t element_count(const Program& program, TensorId tensor, std::size_t bytes) {
  const std::vector<std::int64_t> shape = shape_of(program, tensor);
  const std::int64_t count = checked_product(kInterpret, shape);
  require_memory(kInterpret,
                 fmt::format("'{}' of shape [{}]", program.tensor(tensor).name, fmt::join(shape, ", ")),
                 count, static_cast<std::int64_t>(bytes));
  return static_cast<std::size_t>(count);
}

}  // namespace detail

template <class T>
std::map<std::string, Values<T>> interpret(const Program& program,
                                           const std::map<std::string, Values<T>>& inputs) {
  using namespace detail;
  check_inputs(program, inputs);
  if constexpr (std::is_same_v<T, Rational>) require_rational(program);
  std::vector<std::vector<T>> owned(program.tensors.size());
  std::vector<const T*> data(program.tensors.size());
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const Tensor& tensor = program.tensors[t];
    if (tensor.role == Role::Computed) continue;
    if (tensor.role == Role::Constant) {
      for (const Rational& value : tensor.literal) {
        if constexpr (std::is_same_v<T, Rational>)
          owned[t].push_back(value);
        else
          owned[t].push_back(value.to_double());
      }
      data[t] = owned[t].data();
    } else {
      data[t] = inputs.at(tensor.name).data.data();
    }
  }
  for (const Scope& scope : program.scopes) run_scope(program, scope, owned, data);
  std::map<std::string, Values<T>> outputs;
  for (const TensorId id : program.outputs)
    outputs[program.tensor(id).name] = {shape_of(program, id),
                                        std::move(owned[static_cast<std::size_t>(id)])};
  return outputs;
}

template std::map<std::string, Values<double>> interpret(const Program&,
                                                         const std::map<std::string, Values<double>>&);
template std::map<std::string, Values<Rational>> interpret(const Program&,
                                                           const std::map<std::string, Values<Rational>>&);

}  // namespace syno::program
