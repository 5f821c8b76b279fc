// program/functions.hpp — the scalar functions: how they are written, and what kind each is. The one table of
// them.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace syno::program {

/// Gelu is the exact erf form. Comparisons, And and Or give 0 or 1. Round: halves to the even integer. Fmod:
/// C's, the sign of its first operand. Their numbers are part of programs' keys: new ones go to the end.
enum class Function : std::uint8_t {
  Negate,
  Exp,
  Log,
  Sqrt,
  Rsqrt,
  Erf,
  Tanh,
  Sigmoid,
  Relu,
  Abs,
  Gelu,
  Add,
  Subtract,
  Multiply,
  Divide,
  Maximum,
  Minimum,
  Power,
  Less,
  LessEqual,
  Equal,
  NotEqual,
  And,
  Or,
  Floor,
  Ceil,
  Round,
  Trunc,
  Sin,
  Cos,
  Atan,
  Fmod,
};

struct FunctionRow {
  Function function;
  std::string_view symbol;  ///< in the text form: "exp", "+"
  std::string_view word;    ///< of `elementwise`: "exp", "add"
  int operands;
};

/// In the order of the enumeration.
inline constexpr std::array<FunctionRow, 32> kFunctions{{
    {Function::Negate, "-", "neg", 1},      {Function::Exp, "exp", "exp", 1},
    {Function::Log, "log", "log", 1},       {Function::Sqrt, "sqrt", "sqrt", 1},
    {Function::Rsqrt, "rsqrt", "rsqrt", 1}, {Function::Erf, "erf", "erf", 1},
    {Function::Tanh, "tanh", "tanh", 1},    {Function::Sigmoid, "sigmoid", "sigmoid", 1},
    {Function::Relu, "relu", "relu", 1},    {Function::Abs, "abs", "abs", 1},
    {Function::Gelu, "gelu", "gelu", 1},    {Function::Add, "+", "add", 2},
    {Function::Subtract, "-", "sub", 2},    {Function::Multiply, "*", "mul", 2},
    {Function::Divide, "/", "div", 2},      {Function::Maximum, "max", "max", 2},
    {Function::Minimum, "min", "min", 2},   {Function::Power, "pow", "pow", 2},
    {Function::Less, "<", "less", 2},       {Function::LessEqual, "<=", "less_equal", 2},
    {Function::Equal, "==", "equal", 2},    {Function::NotEqual, "!=", "not_equal", 2},
    {Function::And, "and", "and", 2},       {Function::Or, "or", "or", 2},
    {Function::Floor, "floor", "floor", 1}, {Function::Ceil, "ceil", "ceil", 1},
    {Function::Round, "round", "round", 1}, {Function::Trunc, "trunc", "trunc", 1},
    {Function::Sin, "sin", "sin", 1},       {Function::Cos, "cos", "cos", 1},
    {Function::Atan, "atan", "atan", 1},    {Function::Fmod, "fmod", "fmod", 2},
}};

constexpr const FunctionRow& row_of(Function function) {
  return kFunctions[static_cast<std::size_t>(function)];
}
static_assert([] {
  for (std::size_t i = 0; i < kFunctions.size(); ++i)
    if (static_cast<std::size_t>(kFunctions[i].function) != i) return false;
  return kFunctions.size() == static_cast<std::size_t>(Function::Fmod) + 1;
}());

bool is_unary(Function function);
std::string_view name_of(Function function);  ///< its symbol
/// Written as a call, f(a) or f(a, b).
constexpr bool is_call(Function function) {
  const FunctionRow& row = row_of(function);
  return row.symbol == row.word && function != Function::And && function != Function::Or;
}
/// Worth 0 or 1.
constexpr bool gives_truth(Function function) {
  return function >= Function::Less && function <= Function::Or;
}
/// Whole numbers from any: constant but at steps.
constexpr bool rounds(Function function) {
  return function >= Function::Floor && function <= Function::Trunc;
}

}  // namespace syno::program
