#include "schedule/share.hpp"

#include <algorithm>
#include <map>

#include "support/error.hpp"

namespace syno::schedule {

namespace {

using program::Function;
using program::Program;
using program::Scalar;
using program::ScalarId;
using program::ScalarKind;
using symbolic::Op;

bool elementary(const Scalar& scalar) {
  if (scalar.kind == ScalarKind::Binary) return scalar.function == Function::Power;
  if (scalar.kind != ScalarKind::Unary) return false;
  return scalar.function != Function::Negate && scalar.function != Function::Relu &&
         scalar.function != Function::Abs;
}

/// The elementary functions in a body, the outermost ones alone.
void collect(const Program& program, ScalarId id, std::vector<ScalarId>& found) {
  const Scalar& scalar = program.scalar(id);
  if (elementary(scalar)) {
    found.push_back(id);
    return;
  }
  switch (scalar.kind) {
    case ScalarKind::Unary:
      return collect(program, scalar.a, found);
    case ScalarKind::Binary:
      collect(program, scalar.a, found);
      return collect(program, scalar.b, found);
    case ScalarKind::Select:
      collect(program, scalar.a, found);
      collect(program, scalar.b, found);
      return collect(program, scalar.c, found);
    default:
      return;
  }
}

/// Compares two expressions while it finds out which iterator of the one is which of the other.
class Matching {
 public:
  Matching(const Plan& plan, std::size_t scope, std::size_t other)
      : plan_(plan), arena_(plan.program.arena), scope_(scope), other_(other) {}

  std::optional<Shared> match(ScalarId here, ScalarId there) {
    if (!same(here, there)) return std::nullopt;
    Shared made{here, there, {}, {}};
    for (std::size_t i = 0; i < plan_.iterator_count(other_); ++i) {
      const program::Iterator& iterator = plan_.iterator(other_, i);
      for (const auto& [slot, to] : to_)
        if (to == iterator.slot) {
          made.points.push_back(iterator);
          made.places.push_back(here_.at(slot));
        }
    }
    if (made.points.empty()) return std::nullopt;
    return made;
  }

 private:
  bool same(ScalarId here, ScalarId there) {
    const Scalar a = plan_.program.scalar(here), b = plan_.program.scalar(there);
    if (a.kind != b.kind) return false;
    switch (a.kind) {
      case ScalarKind::Literal:
        return a.literal == b.literal;
      case ScalarKind::Index:
        return same_index(a.index, b.index);
      case ScalarKind::Read:
        if (a.tensor != b.tensor || !(a.fill == b.fill)) return false;
        for (std::size_t d = 0; d < a.indices.size(); ++d)
          if (!same_index(a.indices[d], b.indices[d])) return false;
        return true;
      case ScalarKind::Unary:
        return a.function == b.function && same(a.a, b.a);
      case ScalarKind::Binary:
        return a.function == b.function && same(a.a, b.a) && same(a.b, b.b);
      case ScalarKind::Select:
        return same(a.a, b.a) && same(a.b, b.b) && same(a.c, b.c);
    }
    return false;
  }

  bool same_index(ExprId a, ExprId b) {
    const symbolic::Expr one = arena_[a], two = arena_[b];
    if (one.op != two.op || one.size != two.size || one.value != two.value) return false;
    switch (one.op) {
      case Op::Iterator:
        return bind(a, b);
      case Op::Constant:
      case Op::SizeValue:
        return true;
      case Op::Add:
        return same_index(one.a, two.a) && same_index(one.b, two.b);
      default:
        return same_index(one.a, two.a);
    }
  }

  bool bind(ExprId a, ExprId b) {
    const std::uint32_t here = arena_.iterators(a).front(), there = arena_.iterators(b).front();
    const auto known = to_.find(here);
    if (known != to_.end()) return known->second == there;
    if (std::any_of(to_.begin(), to_.end(), [&](const auto& pair) { return pair.second == there; }))
      return false;
    const auto mine = find(scope_, here), theirs = find(other_, there);
    if (!mine || !theirs || plan_.range(mine->range) != plan_.range(theirs->range)) return false;
    to_.emplace(here, there);
    here_.emplace(here, a);
    return true;
  }

  std::optional<program::Iterator> find(std::size_t scope, std::uint32_t slot) const {
    for (std::size_t i = 0; i < plan_.iterator_count(scope); ++i)
      if (plan_.iterator(scope, i).slot == slot) return plan_.iterator(scope, i);
    return std::nullopt;
  }

  const Plan& plan_;
  const symbolic::Arena& arena_;
  std::size_t scope_, other_;
  std::map<std::uint32_t, std::uint32_t> to_;  ///< iterators of the other scope by those of the one
  std::map<std::uint32_t, ExprId> here_;       ///< the latter as expressions
};

ScalarId with_read(Program& program, ScalarId body, ScalarId replaced, ScalarId read) {
  return rebuild(program, body,
                 [&](ScalarId id) { return id == replaced ? std::optional(read) : std::nullopt; });
}

}  // namespace

std::optional<Shared> find_shared(const Plan& plan, std::size_t scope, std::size_t other) {
  for (const std::size_t s : {scope, other})
    if (!untouched(plan, s) || plan.scopes[s].epilogue || !plan.program.scopes[s].target.empty())
      return std::nullopt;
  std::vector<ScalarId> here, there;
  collect(plan.program, plan.program.scopes[scope].body, here);
  collect(plan.program, plan.program.scopes[other].body, there);
  for (const ScalarId a : here)
    for (const ScalarId b : there)
      if (auto found = Matching(plan, scope, other).match(a, b)) return found;
  return std::nullopt;
}

void share(Plan& plan, const Decision& decision) {
  Program& program = plan.program;
  const std::size_t at = plan.scope_named(decision.scope), other = plan.scope_named(decision.tensor);
  const auto found = at == other ? std::nullopt : find_shared(plan, at, other);
  if (!found)
    fail<ScheduleError>("schedule",
                        "'{}' and '{}' compute no elementary function alike over the same iterations, or "
                        "decisions about them came before",
                        decision.scope, decision.tensor);
  const std::string name =
      plan.fresh_tensor_name(decision.words.empty() ? decision.scope + "_shared" : decision.words[0]);
  program::Tensor tensor;
  tensor.name = name;
  tensor.role = program::Role::Computed;
  program::Scope made;
  std::vector<ExprId> there;
  std::map<std::uint32_t, ExprId> moved;
  for (const program::Iterator& iterator : found->points) {
    tensor.dims.push_back(iterator.range);
    made.traversal.push_back(program.new_iterator(iterator.name, iterator.range));
    there.push_back(program.arena.iterator(iterator.slot));
    moved.emplace(iterator.slot, program.arena.iterator(made.traversal.back().slot));
  }
  made.output = program.add_tensor(std::move(tensor));
  plan.tensors.emplace_back();
  made.body = rebuild(
      program, found->there, [](ScalarId) { return std::optional<ScalarId>(); },
      [&](ExprId e) {
        return program.arena.substitute(e, [&](std::uint32_t slot) {
          const auto to = moved.find(slot);
          return to == moved.end() ? program.arena.iterator(slot) : to->second;
        });
      });
  const ScalarId read_here = program.read(made.output, found->places),
                 read_there = program.read(made.output, std::move(there));
  program.scopes[at].body = with_read(program, program.scopes[at].body, found->here, read_here);
  program.scopes[other].body = with_read(program, program.scopes[other].body, found->there, read_there);
  plan.insert_scope(std::min(at, other), std::move(made), ScopePlan{});
}

}  // namespace syno::schedule
