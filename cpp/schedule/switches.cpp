#include "schedule/switches.hpp"

#include <algorithm>

#include "program/scalars.hpp"

namespace syno::schedule {

namespace {

using program::Function;
using program::Program;
using program::Scalar;
using program::ScalarId;
using program::ScalarKind;
using symbolic::Arena;
using symbolic::ExprId;

/// The value of a literal that is a whole number so small that sums of a few fit.
std::optional<std::int64_t> whole_literal(const Scalar& scalar) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (scalar.kind != ScalarKind::Literal || scalar.literal.den() != 1) return std::nullopt;
  const std::int64_t value = scalar.literal.num();
  return value >= -kMost && value <= kMost ? std::optional(value) : std::nullopt;
}

/// A scalar as an index expression, where it is one.
std::optional<ExprId> whole_number(const Program& program, Arena& arena, ScalarId id,
                                   std::optional<ScalarId> open) {
  if (open == id) return std::nullopt;
  const Scalar& scalar = program.scalar(id);
  if (const auto literal = whole_literal(scalar)) return arena.constant(*literal);
  if (scalar.kind == ScalarKind::Index)
    return arena.has_inside(scalar.index) ? std::nullopt : std::optional(scalar.index);
  if (program::is_call(scalar, Function::Negate)) {
    const auto a = whole_number(program, arena, scalar.a, open);
    return a ? std::optional(arena.multiply(*a, -1)) : std::nullopt;
  }
  const bool adds = program::is_call(scalar, Function::Add) || program::is_call(scalar, Function::Subtract);
  if (!adds && !program::is_call(scalar, Function::Multiply)) return std::nullopt;
  const auto a = whole_number(program, arena, scalar.a, open),
             b = whole_number(program, arena, scalar.b, open);
  if (!a || !b) return std::nullopt;
  if (adds) return scalar.function == Function::Add ? arena.add(*a, *b) : arena.subtract(*a, *b);
  if (const auto factor = whole_literal(program.scalar(scalar.a))) return arena.multiply(*b, *factor);
  if (const auto factor = whole_literal(program.scalar(scalar.b))) return arena.multiply(*a, *factor);
  return std::nullopt;
}

}  // namespace

std::optional<ExprId> when_not_negative(const Program& program, Arena& arena, ScalarId comparison,
                                        std::optional<ScalarId> open) {
  const Scalar& scalar = program.scalar(comparison);
  const bool less = program::is_call(scalar, Function::Less);
  if (!less && !program::is_call(scalar, Function::LessEqual)) return std::nullopt;
  const auto a = whole_number(program, arena, scalar.a, open),
             b = whole_number(program, arena, scalar.b, open);
  if (!a || !b) return std::nullopt;
  const ExprId apart = arena.subtract(*b, *a);
  return less ? arena.add(apart, arena.constant(-1)) : apart;
}

std::optional<bool> decided(const Program& program, Arena& arena, ScalarId condition,
                            const std::function<std::optional<bool>(ExprId)>& known,
                            std::optional<ScalarId> open) {
  const Scalar& scalar = program.scalar(condition);
  const bool all = program::is_call(scalar, Function::And);
  if (all || program::is_call(scalar, Function::Or)) {
    const auto a = decided(program, arena, scalar.a, known, open),
               b = decided(program, arena, scalar.b, known, open);
    if ((a && *a != all) || (b && *b != all)) return !all;  // one says it
    return a && b ? std::optional(all) : std::nullopt;
  }
  const auto e = when_not_negative(program, arena, condition, open);
  return e ? known(*e) : std::nullopt;
}

std::vector<ExprId> switches_of(Program& program, ScalarId body) {
  std::vector<ExprId> found;
  const std::function<std::optional<bool>(ExprId)> collect = [&](ExprId e) -> std::optional<bool> {
    if (std::find(found.begin(), found.end(), e) == found.end()) found.push_back(e);
    return std::nullopt;
  };
  for (const ScalarId id : program::scalars_of(program, body)) {
    if (program.scalar(id).kind == ScalarKind::Select)
      static_cast<void>(decided(program, program.arena, program.scalar(id).a, collect));
  }
  return found;
}

}  // namespace syno::schedule
