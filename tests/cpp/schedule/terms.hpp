// What a nest adds up, term by term.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/names.hpp"

namespace syno::schedule {

/// How many terms of reductions a nest adds up: stores to what gathers them, run one by one.
class Terms {
 public:
  explicit Terms(const LoopNest& nest) : nest_(nest), variables_(nest.next_slot) { run(nest.root); }
  std::int64_t added = 0;

 private:
  std::int64_t integer(ExprId e) const { return *symbolic::evaluate(nest_.arena, e, sizes_, 0, variables_); }
  void run(StatementId id) {
    const Statement& statement = nest_.statement(id);
    if (statement.kind == StatementKind::Store) {
      const Value& stored = nest_.value(statement.value);
      added += statement.mode != StoreMode::Assign &&
               (stored.kind != ValueKind::Load || nest_.buffer(stored.buffer).kind != BufferKind::Register);
    }
    if (statement.kind == StatementKind::If)
      for (const Condition& condition : statement.conditions) {
        const std::int64_t at = integer(condition.expr);
        if (at < condition.begin || at >= condition.end) return;
      }
    if (statement.kind != StatementKind::For) {
      for (const StatementId child : statement.children) run(child);
      return;
    }
    for (std::int64_t i = integer(statement.begin); i < integer(statement.end); ++i) {
      variables_[statement.slot] = i;
      run(statement.children[0]);
    }
  }

  const LoopNest& nest_;
  const symbolic::Sizes sizes_;
  std::vector<std::int64_t> variables_;
};

}  // namespace syno::schedule
