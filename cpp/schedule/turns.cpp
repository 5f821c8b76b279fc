// Results that are computed for the place they are read for: y[w] = sum[c] x[c,(w+1)%7] * k[c,(w+1)%7] is a
// row t[u] = sum[c] x[c,u] * k[c,u] that is turned while it is copied, y[w] = t[(w+1)%7]. What is summed up
// then lies as it is read.
#include <algorithm>
#include <optional>

#include "schedule/decisions.hpp"
#include "support/error.hpp"

namespace syno::schedule {

namespace {

using program::Program;
using program::Scalar;
using program::ScalarId;
using program::ScalarKind;
using symbolic::Op;

/// Places within blocks of `block` are read `shift` further, around the end of the block.
struct Turn {
  std::int64_t block = 0, shift = 0;
  bool operator==(const Turn&) const = default;
};

/// What all parts of the expressions of a body say about one iterator of the traversal.
class Turns {
 public:
  Turns(const Program& program, std::uint32_t slot) : program_(program), slot_(slot) {}

  void visit(ScalarId id) {
    const Scalar& scalar = program_.scalar(id);
    switch (scalar.kind) {
      case ScalarKind::Literal:
        return;
      case ScalarKind::Index:
        return visit(scalar.index);
      case ScalarKind::Read: {
        turns_ = false;
        for (const ExprId index : scalar.indices) visit(index);
        reads_ += turns_;
        return;
      }
      case ScalarKind::Unary:
        return visit(scalar.a);
      case ScalarKind::Select:
        visit(scalar.c);
        [[fallthrough]];
      case ScalarKind::Binary:
        visit(scalar.a);
        return visit(scalar.b);
    }
  }

  /// The turn that all reads agree on, where several share it.
  std::optional<Turn> found(std::int64_t extent) const {
    if (other_ || reads_ < 2 || !turn_ || extent % turn_->block != 0) return std::nullopt;
    if (whole_ && *whole_ != turn_->block) return std::nullopt;
    return turn_;
  }

 private:
  bool depends(ExprId e) const {
    const auto slots = program_.arena.iterators(e);
    return std::find(slots.begin(), slots.end(), slot_) != slots.end();
  }
  /// The constant in `iterator + constant`.
  std::optional<std::int64_t> further(ExprId e) const {
    const symbolic::Expr& node = program_.arena[e];
    if (node.op == Op::Iterator) return 0;
    if (node.op != Op::Add) return std::nullopt;
    const symbolic::Expr &a = program_.arena[node.a], &b = program_.arena[node.b];
    if (a.op == Op::Iterator && b.op == Op::Constant) return b.value;
    if (b.op == Op::Iterator && a.op == Op::Constant) return a.value;
    return std::nullopt;
  }
  void visit(ExprId e) {
    if (other_ || !depends(e)) return;
    const symbolic::Expr& node = program_.arena[e];
    const auto by = [&] { return program_.arena[node.size].factor().num(); };
    if (node.op == Op::Iterator) {
      other_ = true;
    } else if (const auto shift = node.op == Op::Modulo ? further(node.a) : std::nullopt) {
      const Turn turn{by(), (*shift % by() + by()) % by()};
      other_ = turn.shift == 0 || (turn_ && !(*turn_ == turn));
      turn_ = turn;
      turns_ = true;
    } else if (node.op == Op::Divide && program_.arena[node.a].op == Op::Iterator) {
      other_ = whole_ && *whole_ != by();
      whole_ = by();
    } else {
      visit(node.a);
      if (node.op == Op::Add) visit(node.b);
    }
  }

  const Program& program_;
  std::uint32_t slot_;
  bool other_ = false;  ///< something else is read
  std::optional<Turn> turn_;
  std::optional<std::int64_t> whole_;  ///< of `w / whole`
  bool turns_ = false;                 ///< the read that is visited
  int reads_ = 0;                      ///< that turn
};

std::optional<Turn> turn_of(const Plan& plan, std::size_t at, std::size_t iterator) {
  const program::Scope& scope = plan.program.scopes[at];
  const auto [begin, end] = plan.range(scope.traversal[iterator].range);
  if (begin != 0 || scope.sums.empty() || !scope.target.empty() || plan.scopes[at].epilogue)
    return std::nullopt;
  Turns turns(plan.program, scope.traversal[iterator].slot);
  turns.visit(scope.body);
  return turns.found(end);
}

}  // namespace

std::vector<std::string> turnable(const Plan& plan, std::size_t scope) {
  std::vector<std::string> names;
  const auto& traversal = plan.program.scopes[scope].traversal;
  for (std::size_t i = 0; untouched(plan, scope) && i < traversal.size(); ++i)
    if (turn_of(plan, scope, i)) names.push_back(traversal[i].name);
  return names;
}

void turn(Plan& plan, const Decision& decision) {
  Program& program = plan.program;
  auto& arena = program.arena;
  const std::size_t at = plan.scope_named(decision.scope);
  if (decision.loops.size() != 1)
    fail<ScheduleError>("schedule", "turn needs one loop of the traversal, not {}", decision.loops.size());
  if (!untouched(plan, at))
    fail<ScheduleError>("schedule", "decisions about '{}' came before; turn it first", decision.scope);
  const auto& traversal = program.scopes[at].traversal;
  const auto named = std::find_if(traversal.begin(), traversal.end(),
                                  [&](const program::Iterator& i) { return i.name == decision.loops[0]; });
  if (named == traversal.end())
    fail<ScheduleError>("schedule", "'{}' has no loop '{}' in its traversal", decision.scope,
                        decision.loops[0]);
  const auto which = static_cast<std::size_t>(named - traversal.begin());
  const auto found = turn_of(plan, at, which);
  if (!found)
    fail<ScheduleError>(
        "schedule",
        "the reads of '{}' do not agree on (i + a) % m, m a divisor of the extent, wherever they "
        "move with '{}', or only one of them does",
        decision.scope, decision.loops[0]);
  const std::uint32_t slot = named->slot;
  const symbolic::Size block(found->block);
  const bool one = plan.range(named->range).second == found->block;
  const ExprId place = arena.iterator(slot);
  const ExprId within = one ? place : arena.modulo(place, block);
  const ExprId turned = arena.modulo(arena.add(place, arena.constant(found->shift)), block);
  // The result is copied out: stage() writes the copy, which is then read where it was turned to.
  const std::string name =
      plan.fresh_tensor_name(decision.words.empty() ? decision.scope + "_turned" : decision.words[0]);
  decide(plan, {"stage", decision.scope, {}, {}, decision.scope, {name}});
  const auto straight = [&](ExprId e) {
    return arena.rewrite(e, [&](ExprId part) -> std::optional<ExprId> {
      const symbolic::Expr& node = arena[part];
      if (node.op != Op::Modulo || arena[node.a].op != Op::Add || !(arena[node.size] == block))
        return std::nullopt;
      const auto slots = arena.iterators(node.a);
      if (slots.size() != 1 || slots[0] != slot) return std::nullopt;
      return within;
    });
  };
  program::Scope& sums = program.scopes[at];
  sums.body =
      rebuild(program, sums.body, [](ScalarId) -> std::optional<ScalarId> { return std::nullopt; }, straight);
  program::Scope& copy = program.scopes[at + 1];
  const std::uint32_t written = copy.traversal[which].slot;
  const ExprId from = arena.substitute(
      one ? turned : arena.add(arena.multiply(arena.divide(place, block), found->block), turned),
      [&](std::uint32_t s) { return arena.iterator(s == slot ? written : s); });
  copy.body = rebuild(
      program, copy.body, [](ScalarId) -> std::optional<ScalarId> { return std::nullopt; },
      [&](ExprId e) {
        return arena.substitute(e, [&](std::uint32_t s) { return s == written ? from : arena.iterator(s); });
      });
}

}  // namespace syno::schedule
