// program/scalars.hpp — walking over the scalars of a body, and making one body of another. Which operands a
// kind of scalar has is said here and nowhere else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "program/program.hpp"

namespace syno::program {

/// Of a Unary one, of a Binary two, of a Select three: `a`, `b`, `c`; of a Literal, Index or Read none.
constexpr std::size_t operand_count(ScalarKind kind) {
  return kind == ScalarKind::Unary ? 1 : kind == ScalarKind::Binary ? 2 : kind == ScalarKind::Select ? 3 : 0;
}

/// Whether a scalar is `function` of its operands.
inline bool is_call(const Scalar& scalar, Function function) {
  return (scalar.kind == ScalarKind::Unary || scalar.kind == ScalarKind::Binary) &&
         scalar.function == function;
}

/// Calls `use(operand)` for each operand, first to last; a scalar that is not const may get others so.
template <class AnyScalar, class Use>
void over_operands(AnyScalar& scalar, Use&& use) {
  const std::size_t count = operand_count(scalar.kind);
  if (count > 0) use(scalar.a);
  if (count > 1) use(scalar.b);
  if (count > 2) use(scalar.c);
}

/// Calls `use(index)` for the index expressions in a scalar itself: of an Index its own, of a Read one a
/// dimension.
template <class AnyScalar, class Use>
void over_indices(AnyScalar& scalar, Use&& use) {
  if (scalar.kind == ScalarKind::Index) use(scalar.index);
  for (auto& index : scalar.indices) use(index);
}

/// Visits a body from its root on, a scalar before its operands and as often as it is written.
/// `enter(id, scalar)` says whether to go on to the operands.
template <class Enter>
void visit(const Program& program, ScalarId root, Enter&& enter) {
  const Scalar& scalar = program.scalar(root);
  if (enter(root, scalar)) over_operands(scalar, [&](ScalarId operand) { visit(program, operand, enter); });
}

/// Whether `holds(scalar)` is true of some scalar of a body.
template <class Predicate>
bool any_scalar(const Program& program, ScalarId root, Predicate&& holds) {
  const Scalar& scalar = program.scalar(root);
  bool found = holds(scalar);
  over_operands(scalar, [&](ScalarId operand) { found = found || any_scalar(program, operand, holds); });
  return found;
}

/// Calls `use(id, read)` for each read of a body, once however often its value is used.
template <class Use>
void over_reads(const Program& program, ScalarId root, Use&& use) {
  for (const ScalarId id : scalars_of(program, root))
    if (program.scalar(id).kind == ScalarKind::Read) use(id, program.scalar(id));
}

/// The factors of a product, first to last: of a * (b * a) these are a, b, a. What is no product is its only
/// factor.
std::vector<ScalarId> factors_of(const Program& program, ScalarId root);

/// A body made again in `to`, which may be the program it is in, each scalar once: over the copies of its
/// operands, and with what `change(scalar)` does to the rest. What `copies` names already is taken from
/// there.
template <class Change>
ScalarId copy_body(const Program& from, ScalarId root, Program& to, std::map<ScalarId, ScalarId>& copies,
                   Change&& change) {
  for (const ScalarId id : scalars_of(from, root)) {
    if (copies.contains(id)) continue;
    Scalar scalar = from.scalar(id);
    over_operands(scalar, [&](ScalarId& operand) { operand = copies.at(operand); });
    change(scalar);
    copies.emplace(id, to.add_scalar(std::move(scalar)));
  }
  return copies.at(root);
}

/// Another body: what `replacement` gives a scalar for is taken as it is, the rest is made again, its indices
/// moved by `move`. x[i] + 1 with i -> i + 2 is x[i + 2] + 1.
ScalarId rebuild(Program& program, ScalarId root,
                 const std::function<std::optional<ScalarId>(ScalarId)>& replacement,
                 const std::function<ExprId(ExprId)>& move = {});
/// The same with iterators, by slot, replaced by expressions and nothing else.
ScalarId with_iterators(Program& program, ScalarId root,
                        const std::vector<std::pair<std::uint32_t, ExprId>>& iterators);

/// Nodes of a body and of the indices in it, each as often as it is written: bodies are trees. Where there
/// are more than `most` of them, `most + 1`; no more than that are visited.
std::int64_t nodes_of(const Program& program, ScalarId body, std::int64_t most);

/// The reads of a body (of `tensor`), in the order and as often as they are written.
std::vector<ScalarId> reads_in(const Program& program, ScalarId body);
std::int64_t count_reads(const Program& program, ScalarId body, TensorId tensor);
bool reads_tensor(const Program& program, ScalarId body, TensorId tensor);

}  // namespace syno::program
