// Which places of temporaries a loop nest reads though it wrote nothing there.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "nest/loop_nest.hpp"

namespace syno::nest::testing {

/// Runs a nest and counts reads of temporaries' places that nobody wrote since they were allocated.
class Reads {
 public:
  explicit Reads(const LoopNest& nest)
      : nest_(nest), variables_(nest.next_slot, 0), written_(nest.buffers.size()) {
    run(nest.root);
  }
  int unwritten = 0, stores = 0;

 private:
  const LoopNest& nest_;
  std::vector<std::int64_t> variables_;
  std::vector<std::set<std::vector<std::int64_t>>> written_;

  std::vector<std::int64_t> at(const std::vector<ExprId>& indices) const {
    std::vector<std::int64_t> made;
    for (const ExprId index : indices) made.push_back(evaluate(nest_, index, variables_));
    return made;
  }
  void look(BufferId id, const std::vector<ExprId>& indices) {
    if (nest_.buffer(id).kind == BufferKind::Temporary) unwritten += !written_[raw(id)].contains(at(indices));
  }
  void value(ValueId id) {
    const Value& v = nest_.value(id);
    if (v.kind == ValueKind::Load && hold(nest_, v.guards, variables_)) look(v.buffer, v.indices);
    if (v.kind == ValueKind::Unary || v.kind == ValueKind::Binary || v.kind == ValueKind::Select) value(v.a);
    if (v.kind == ValueKind::Binary || v.kind == ValueKind::Select) value(v.b);
    if (v.kind == ValueKind::Select) value(v.c);
  }
  void run(StatementId id) {
    const Statement& s = nest_.statement(id);
    if (s.kind == StatementKind::If && !hold(nest_, s.conditions, variables_)) return;
    if (s.kind == StatementKind::Allocate) written_[raw(s.buffer)].clear();
    if (s.kind == StatementKind::Store) {
      value(s.value);
      if (s.mode != StoreMode::Assign) look(s.buffer, s.indices);
      written_[raw(s.buffer)].insert(at(s.indices));
      ++stores;
    } else if (s.kind == StatementKind::For) {
      const auto begin = evaluate(nest_, s.begin, variables_), end = evaluate(nest_, s.end, variables_);
      for (variables_[s.slot] = begin; variables_[s.slot] < end; ++variables_[s.slot])
        for (const StatementId child : s.children) run(child);
    } else if (s.kind != StatementKind::Prefetch) {
      for (const StatementId child : s.children) run(child);
    }
  }
};

}  // namespace syno::nest::testing
