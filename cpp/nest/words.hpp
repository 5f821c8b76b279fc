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
inline constexpr auto kFunctionWords = [] {
  Words<program::Function, program::kFunctions.size() - 4> words{};
  std::size_t at = 0;
  for (const program::FunctionRow& row : program::kFunctions) {
    if (row.function >= program::Function::Add && row.function <= program::Function::Divide) continue;
    words[at++] = {row.function, row.function == program::Function::Negate  ? "negate"
                                 : row.function == program::Function::Power ? "power"
                                                                            : row.word};
  }
  return words;
}();

template <class Enum, std::size_t n>
std::string_view word_of(const Words<Enum, n>& words, Enum value) {
  for (const auto& [key, word] : words)
    if (key == value) return word;
  return {};
}

/// Unary functions of a nest take one operand, all others two.
inline bool takes_one(program::Function function) { return program::is_unary(function); }

}  // namespace syno::nest
