// emit/index_text.hpp — index expressions in the words of a target language.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "program/program.hpp"
#include "symbolic/expr.hpp"

namespace syno::emit {

/// How a language writes an iterator, a quotient and a remainder that round towards minus infinity (patterns
/// of an expression and a number), and the two conditions of a guard.
struct IndexLanguage {
  std::function<std::string(std::uint32_t slot)> iterator;
  const char* divide;
  const char* modulo;
  const char* from_zero = "{} >= 0";
  const char* below = "{} < {}";
};

/// A concrete index without its guards.
std::string index_text(const symbolic::Arena& arena, symbolic::ExprId root, const IndexLanguage& language);

/// Adds what the guards of an index demand, the inner ones first.
void guard_texts(const symbolic::Arena& arena, symbolic::ExprId root, const IndexLanguage& language,
                 std::vector<std::string>& conditions);

inline std::size_t index_of(program::TensorId id) { return static_cast<std::size_t>(id); }

}  // namespace syno::emit
