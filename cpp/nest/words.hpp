// nest/words.hpp — the words of the text form of loop nests, for printing and parsing.
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "nest/loop_nest.hpp"

namespace syno::nest {

template <class Enum, std::size_t n>
using Words = std::array<std::pair<Enum, std::string_view>, n>;

inline constexpr Words<BufferKind, 5> kBufferWords{{{BufferKind::Input, "input"},
                                                    {BufferKind::Output, "output"},
                                                    {BufferKind::Constant, "constant"},
                                                    {BufferKind::Temporary, "temporary"},
                                                    {BufferKind::Register, "register"}}};
inline constexpr Words<Dtype, 3> kDtypeWords{
    {{Dtype::F32, "f32"}, {Dtype::F64, "f64"}, {Dtype::BF16, "bf16"}}};
inline constexpr Words<LoopKind, 4> kLoopWords{{{LoopKind::Serial, "serial"},
                                                {LoopKind::Unroll, "unroll"},
                                                {LoopKind::Vector, "vector"},
                                                {LoopKind::Parallel, "parallel"}}};
inline constexpr Words<StoreMode, 5> kStoreWords{{{StoreMode::Assign, "="},
                                                  {StoreMode::Add, "+="},
                                                  {StoreMode::Max, "max="},
                                                  {StoreMode::Min, "min="},
                                                  {StoreMode::Multiply, "*="}}};
/// Functions written as calls; + - * / are written between their operands.
inline constexpr Words<program::Function, 20> kFunctionWords{
    {{program::Function::Negate, "negate"}, {program::Function::Exp, "exp"},
     {program::Function::Log, "log"},       {program::Function::Sqrt, "sqrt"},
     {program::Function::Rsqrt, "rsqrt"},   {program::Function::Erf, "erf"},
     {program::Function::Tanh, "tanh"},     {program::Function::Sigmoid, "sigmoid"},
     {program::Function::Relu, "relu"},     {program::Function::Abs, "abs"},
     {program::Function::Gelu, "gelu"},     {program::Function::Maximum, "max"},
     {program::Function::Minimum, "min"},   {program::Function::Power, "power"},
     {program::Function::Less, "less"},     {program::Function::LessEqual, "less_equal"},
     {program::Function::Equal, "equal"},   {program::Function::NotEqual, "not_equal"},
     {program::Function::And, "and"},       {program::Function::Or, "or"}}};

template <class Enum, std::size_t n>
std::string_view word_of(const Words<Enum, n>& words, Enum value) {
  for (const auto& [key, word] : words)
    if (key == value) return word;
  return {};
}

/// Unary functions of a nest take one operand, all others two.
constexpr bool takes_one(program::Function function) { return function <= program::Function::Gelu; }

}  // namespace syno::nest
