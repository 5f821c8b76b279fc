#include "emit/triton_ways.hpp"

#include <algorithm>
#include <cstddef>
#include <set>

#include "program/scalars.hpp"

namespace syno::emit {
namespace {

using program::Scalar;
using program::ScalarId;
using program::ScalarKind;

/// Operands of a product beyond which not every way to share them out is looked at.
constexpr std::size_t kMostFactors = 8;

std::set<Slot> slots_in(const program::Program& program, ScalarId root) {
  std::set<Slot> found;
  for (const ScalarId id : program::scalars_of(program, root))
    program::over_indices(program.scalar(id), [&](ExprId index) {
      for (const Slot slot : program.arena.iterators(index)) found.insert(slot);
    });
  return found;
}

/// Whether both operands are as they are loaded, of the same 16 bits.
bool are_narrow(const TritonContext& context, const Operands& operands) {
  const auto dtype = [&](const std::vector<ScalarId>& side) -> std::string {
    const Scalar& scalar = context.program->scalar(side[0]);
    if (side.size() != 1 || scalar.kind != ScalarKind::Read) return {};
    const std::string& held = context.dtypes[static_cast<std::size_t>(scalar.tensor)];
    return held == context.compute ? std::string() : held;
  };
  return !dtype(operands.left).empty() && dtype(operands.left) == dtype(operands.right);
}

}  // namespace

std::vector<Operands> ways_of(const TritonContext& context, const Indices& ranges,
                              const program::Scope& scope) {
  std::vector<Operands> found;
  const program::Program& program = *context.program;
  if (context.compute != "float32") return found;  // tl.dot has no float64 everywhere
  const std::vector<ScalarId> factors = program::factors_of(program, scope.body);
  if (factors.size() < 2 || factors.size() > kMostFactors) return found;
  std::vector<std::set<Slot>> slots;
  for (const ScalarId factor : factors) slots.push_back(slots_in(program, factor));
  // The first factor stands left: the other half of the ways are these, transposed.
  for (std::size_t way = 1; way < std::size_t{1} << (factors.size() - 1); ++way) {
    Operands operands;
    std::set<Slot> left, right;
    for (std::size_t f = 0; f < factors.size(); ++f) {
      const bool to_right = f > 0 && (way >> (f - 1) & 1) != 0;
      (to_right ? operands.right : operands.left).push_back(factors[f]);
      (to_right ? right : left).insert(slots[f].begin(), slots[f].end());
    }
    for (const program::Iterator& i : scope.traversal) {
      const bool in_left = left.contains(i.slot), in_right = right.contains(i.slot);
      (in_left && in_right ? operands.batch : in_right ? operands.columns : operands.rows).push_back(i.slot);
    }
    for (const program::Iterator& i : scope.sums) operands.sums.push_back(i.slot);
    operands.narrow = are_narrow(context, operands);
    found.push_back(operands);
    // Where short sums, such as those over a window, are outermost, the terms of a step share their place in
    // them.
    std::stable_partition(operands.sums.begin(), operands.sums.end(),
                          [&](Slot slot) { return ranges.extent(slot) % kLeastDepth != 0; });
    if (operands.sums != found.back().sums) found.push_back(std::move(operands));
  }
  return found;
}

}  // namespace syno::emit
