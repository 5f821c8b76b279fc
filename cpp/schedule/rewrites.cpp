// Decisions that rewrite the program: staged copies, inlining and epilogues.
#include <algorithm>
#include <functional>
#include <map>

#include "schedule/decisions.hpp"
#include "schedule/gather.hpp"
#include "schedule/inlining.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"

namespace syno::schedule {

using program::Program;
using program::Scalar;
using program::ScalarId;
using program::ScalarKind;
using symbolic::Op;

ScalarId rebuild(Program& program, ScalarId id,
                 const std::function<std::optional<ScalarId>(ScalarId)>& replacement,
                 const std::function<ExprId(ExprId)>& move) {
  interruption_point();
  if (const auto replaced = replacement(id)) return *replaced;
  Scalar scalar = program.scalar(id);
  switch (scalar.kind) {
    case ScalarKind::Literal:
      return id;
    case ScalarKind::Index:
      if (!move) return id;
      scalar.index = move(scalar.index);
      break;
    case ScalarKind::Read:
      if (!move) return id;
      for (auto& index : scalar.indices) index = move(index);
      break;
    case ScalarKind::Unary:
      scalar.a = rebuild(program, scalar.a, replacement, move);
      break;
    case ScalarKind::Binary:
      scalar.a = rebuild(program, scalar.a, replacement, move);
      scalar.b = rebuild(program, scalar.b, replacement, move);
      break;
    case ScalarKind::Select:
      scalar.a = rebuild(program, scalar.a, replacement, move);
      scalar.b = rebuild(program, scalar.b, replacement, move);
      scalar.c = rebuild(program, scalar.c, replacement, move);
      break;
  }
  return program.add_scalar(std::move(scalar));
}

bool untouched(const Plan& plan, std::size_t scope) {
  const ScopePlan& s = plan.scopes[scope];
  if (s.total || s.prepacked || s.frozen || s.attach_scope >= 0) return false;
  if (s.loops.size() != (s.has_domain ? plan.iterator_count(scope) : 0)) return false;
  return s.tile.empty() && std::all_of(s.loops.begin(), s.loops.end(), [](const PlannedLoop& loop) {
           return loop.kind == LoopKind::Serial && loop.cuts.empty() && loop.live == loop.extent;
         });
}

namespace {

constexpr const char* kWhere = "schedule";
constexpr std::int64_t kMostInlined = 1 << 13;  ///< nodes that inlining one scope adds to another

std::optional<ScalarId> as_it_is(ScalarId) { return std::nullopt; }

/// Replaces iterators of one scope by expressions over another one's.
std::function<ExprId(ExprId)> moving(Program& program, std::map<std::uint32_t, ExprId> values) {
  return [&program, values = std::move(values)](ExprId e) {
    return program.arena.substitute(e, [&](std::uint32_t slot) {
      const auto found = values.find(slot);
      return found == values.end() ? program.arena.iterator(slot) : found->second;
    });
  };
}

void stage_write(Plan& plan, std::size_t at, const std::string& name) {
  Program& program = plan.program;
  const program::Scope scope = program.scopes[at];
  if (!scope.target.empty())
    fail<ScheduleError>(kWhere, "'{}' accumulates; its result cannot be staged", name);
  const program::Tensor written = program.tensor(scope.output);
  if (plan.scopes[at].total) fail<ScheduleError>(kWhere, "'{}' is a staged copy already", written.name);
  if (plan.scopes[at].frozen || plan.scopes[at].attach_scope >= 0 ||
      plan.scopes[at].loops.size() != (plan.scopes[at].has_domain ? plan.iterator_count(at) : 0))
    fail<ScheduleError>(kWhere, "decisions about '{}' came before; stage what it writes first", written.name);
  program::Tensor copy = written;
  copy.name = name;
  copy.role = program::Role::Computed;
  const program::TensorId staged = program.add_tensor(std::move(copy));
  plan.tensors.emplace_back();
  program::Scope out;
  out.output = scope.output;
  std::vector<ExprId> indices;
  std::map<std::uint32_t, ExprId> values;
  for (const auto& iterator : scope.traversal) {
    out.traversal.push_back(program.new_iterator(iterator.name, iterator.range));
    indices.push_back(program.arena.iterator(out.traversal.back().slot));
    values.emplace(iterator.slot, indices.back());
  }
  out.body = program.read(staged, std::move(indices));
  ScopePlan written_later;
  // The epilogue goes with what is written last: the copy.
  if (const auto& epilogue = plan.scopes[at].epilogue) {
    written_later.epilogue = {rebuild(program, epilogue->body, as_it_is, moving(program, values)),
                              epilogue->value};
  }
  program.scopes[at].output = staged;
  plan.scopes[at] = ScopePlan{};
  plan.insert_scope(at + 1, std::move(out), std::move(written_later));
  if (plan.is_argument(scope.output)) plan.need_domain(at + 1);
}

}  // namespace

void stage(Plan& plan, const Decision& decision) {
  Program& program = plan.program;
  const std::size_t at = plan.scope_named(decision.scope);
  const auto source = plan.tensor_named(decision.tensor);
  const std::string name =
      plan.fresh_tensor_name(decision.words.empty() ? decision.tensor + "_s" : decision.words[0]);
  if (!decision.words.empty() && name != decision.words[0])
    fail<ScheduleError>(kWhere, "there is a tensor '{}' already", decision.words[0]);
  if (source == program.scopes[at].output) return stage_write(plan, at, name);
  // How far the loops of a tensor's scope run follows from its readers, of which the copy will be one.
  if (const auto made_by = plan.producer(source);
      made_by && !plan.makes_all(*made_by) &&
      (plan.scopes[*made_by].has_domain || plan.scopes[*made_by].attach_scope >= 0))
    fail<ScheduleError>(kWhere, "'{}' has its place already; stage it before deciding about it",
                        decision.tensor);
  const auto reads = plan.reads_of(at, source);
  if (reads.empty()) fail<ScheduleError>(kWhere, "'{}' does not read '{}'", decision.scope, decision.tensor);
  std::size_t which = 0;
  if (!decision.numbers.empty()) {
    if (decision.numbers[0] < 0 || decision.numbers[0] >= static_cast<std::int64_t>(reads.size()))
      fail<ScheduleError>(kWhere, "'{}' reads '{}' at {} places; there is no number {}", decision.scope,
                          decision.tensor, reads.size(), decision.numbers[0]);
    which = static_cast<std::size_t>(decision.numbers[0]);
  } else if (reads.size() > 1) {
    fail<ScheduleError>(kWhere, "'{}' reads '{}' at {} places; give the number of one", decision.scope,
                        decision.tensor, reads.size());
  }
  const Scalar read = program.scalar(reads[which]);

  // How far loops run decides which indices are linear, whatever was asked about them before.
  const auto readers = plan.consumers(program.scopes[at].output);
  if (std::all_of(readers.begin(), readers.end(),
                  [&](std::size_t reader) { return plan.scopes[reader].has_domain; }))
    plan.need_domain(at);

  program::Tensor copy;
  copy.name = name;
  copy.role = program::Role::Computed;
  program::Scope filling;
  if (plan.scopes[at].attach_scope >= 0) plan.need_domain(at);  // what is linear in a piece may not be in all
  const IsLinear linear = linear_over_loops(plan, at);
  const std::vector<ExprId> parts = gathered_parts(program.arena, read.indices, linear);
  std::vector<ExprId> places;
  for (std::size_t d = 0; d < parts.size(); ++d) {
    const program::Range unknown{program.arena.constant(0), program.arena.constant(1)};
    filling.traversal.push_back(program.new_iterator(fmt::format("i{}", d), unknown));
    copy.dims.push_back(unknown);
    places.push_back(program.arena.iterator(filling.traversal.back().slot));
  }
  std::vector<ExprId> from = gathered_from(program.arena, read.indices, linear, parts, places);
  const program::TensorId staged = program.add_tensor(std::move(copy));
  plan.tensors.emplace_back();
  filling.output = staged;
  filling.body = program.read(source, std::move(from), read.fill);
  const ScalarId direct = program.read(staged, parts, read.fill);
  program.scopes[at].body =
      rebuild(program, program.scopes[at].body, [&](ScalarId id) -> std::optional<ScalarId> {
        const Scalar& scalar = program.scalar(id);
        if (scalar.kind == ScalarKind::Read && scalar.tensor == read.tensor &&
            scalar.indices == read.indices && scalar.fill == read.fill)
          return direct;
        return std::nullopt;
      });
  ScopePlan made;
  made.total = true;
  plan.insert_scope(at, std::move(filling), std::move(made));
}

void inline_scope(Plan& plan, const Decision& decision) {
  Program& program = plan.program;
  const std::size_t at = plan.scope_named(decision.scope);
  const program::Scope producer = program.scopes[at];
  const auto tensor = producer.output;
  if (plan.is_argument(tensor))
    fail<ScheduleError>(kWhere, "'{}' is an output; it must be written", decision.scope);
  if (!producer.sums.empty() || !producer.target.empty())
    fail<ScheduleError>(kWhere, "'{}' reduces or accumulates; every read of it would repeat that",
                        decision.scope);
  if (plan.scopes[at].has_domain || plan.scopes[at].attach_scope >= 0)
    fail<ScheduleError>(kWhere, "decisions about '{}' came before; inline it first", decision.scope);
  const auto readers = plan.consumers(tensor);
  const bool total = plan.scopes[at].total;
  ScalarId written = producer.body;
  if (const auto& epilogue = plan.scopes[at].epilogue)
    written = rebuild(program, epilogue->body, [&](ScalarId id) {
      return id == epilogue->value ? std::optional(producer.body) : std::nullopt;
    });
  for (const std::size_t reader : readers) {
    if (plan.scopes[reader].frozen)
      fail<ScheduleError>(kWhere, "'{}' already has a producer placed by its loops; inline '{}' before",
                          program.tensor(program.scopes[reader].output).name, decision.scope);
    const std::int64_t times = reads_written(program, program.scopes[reader].body, tensor);
    if (times > kMostInlined / nodes_of(program, written, kMostInlined))
      fail<ScheduleError>(kWhere, "'{}' reads '{}' {} times: its body would have more than {} parts",
                          program.tensor(program.scopes[reader].output).name, decision.scope, times,
                          kMostInlined);
    const auto context = program::context_of(program);
    const auto inlined = [&](ScalarId id) -> std::optional<ScalarId> {
      const Scalar read = program.scalar(id);
      if (read.kind != ScalarKind::Read || read.tensor != tensor) return std::nullopt;
      // Where the read takes its fill: an index outside the tensor, or a guard that fails.
      std::vector<Condition> conditions;
      std::map<std::uint32_t, ExprId> values;
      for (std::size_t d = 0; d < read.indices.size(); ++d) {
        const ExprId index = without_inside(program.arena, read.indices[d], conditions);
        values.emplace(producer.traversal[d].slot, index);
        const auto [begin, end] = plan.range(producer.traversal[d].range);
        if (!total) conditions.push_back({index, begin, end});
      }
      ScalarId body = rebuild(program, written, as_it_is, moving(program, values));
      std::optional<ScalarId> inside;
      const auto index_scalar = [&](ExprId e) {
        Scalar scalar;
        scalar.kind = ScalarKind::Index;
        scalar.index = e;
        return program.add_scalar(std::move(scalar));
      };
      const auto both = [&](ScalarId test) {
        inside = inside ? program.binary(program::Function::And, *inside, test) : test;
      };
      // How far a staged copy reaches is known once its consumers are decided.
      const bool reaches = plan.scopes[reader].total && !plan.scopes[reader].has_domain;
      for (const auto& condition : conditions) {
        const Interval range = symbolic::bounds(program.arena, condition.expr, context, 0);
        if (reaches || range.least < condition.begin)
          both(program.binary(program::Function::LessEqual, program.literal(condition.begin),
                              index_scalar(condition.expr)));
        if (reaches || range.greatest >= condition.end)
          both(program.binary(program::Function::Less, index_scalar(condition.expr),
                              program.literal(condition.end)));
      }
      return inside ? program.select(*inside, body, program.literal(read.fill)) : body;
    };
    program.scopes[reader].body = rebuild(program, program.scopes[reader].body, inlined);
    if (auto& epilogue = plan.scopes[reader].epilogue)
      epilogue->body = rebuild(program, epilogue->body, inlined);
  }
  plan.erase_scope(at);
  plan.drop_unused_scalars();
}

std::optional<std::string> epilogue_obstacle(Plan& plan, std::size_t at, program::TensorId tensor) {
  const Program& program = plan.program;
  const program::Scope& consumer = program.scopes[at];
  const std::string& name = program.tensor(tensor).name;
  const std::string& own = program.tensor(consumer.output).name;
  const auto made_by = plan.producer(tensor);
  if (!made_by) return fmt::format("'{}' is not computed", name);
  const program::Scope& producer = program.scopes[*made_by];
  if (producer.reduction == program::Reduction::None || producer.sums.empty() || !producer.target.empty())
    return fmt::format("'{}' is no plain reduction", name);
  if (!consumer.sums.empty() || !consumer.target.empty())
    return fmt::format("'{}' reduces or accumulates itself", own);
  if (plan.is_argument(tensor)) return fmt::format("'{}' is an output; it must be written itself", name);
  for (const std::size_t scope : {at, *made_by})
    if (!untouched(plan, scope) || (scope == at && plan.scopes[at].epilogue))
      return fmt::format("decisions about '{}' came before", scope == at ? own : name);
  const auto readers = plan.consumers(tensor);
  if (readers != std::vector<std::size_t>{at})
    return fmt::format("'{}' is read by other scopes than '{}', too", name, own);
  const auto reads = plan.reads_of(at, tensor);
  if (reads.size() != 1) return fmt::format("'{}' reads '{}' at {} places", own, name, reads.size());
  // Each dimension moves with an iterator of its own, and every iterator with a dimension.
  const Scalar& read = program.scalar(reads[0]);
  LinearForms forms = plan.bound_forms();
  std::vector<std::uint32_t> seen;
  for (std::size_t i = 0; i < plan.iterator_count(at); ++i) {
    const auto [begin, end] = plan.range(plan.iterator(at, i).range);
    forms.bind(plan.iterator(at, i).slot, {begin, end - 1});
  }
  for (std::size_t d = 0; d < read.indices.size(); ++d) {
    if (program.arena.has_inside(read.indices[d]))
      return fmt::format("'{}' reads '{}' under a condition", own, name);
    const LinearForm form = forms.form(program.arena, read.indices[d]);
    const auto [begin, end] = plan.range(program.tensor(tensor).dims[d]);
    const Interval range = forms.bounds(form);
    if (range.least < begin || range.greatest >= end)
      return fmt::format("'{}' reads '{}' outside its dimension {}", own, name, d);
    if (form.is_constant()) continue;
    const Atom* atom = form.terms.size() == 1 ? &forms.atom(form.terms[0].first) : nullptr;
    if (!atom || atom->kind != Atom::Kind::Slot || form.terms[0].second != 1 ||
        std::find(seen.begin(), seen.end(), atom->slot) != seen.end())
      return fmt::format("dimension {} of '{}' is no iterator of its own of '{}'", d, name, own);
    seen.push_back(atom->slot);
  }
  for (const auto& iterator : consumer.traversal) {
    const auto [begin, end] = plan.range(iterator.range);
    if (end - begin > 1 && std::find(seen.begin(), seen.end(), iterator.slot) == seen.end())
      return fmt::format("'{}' takes the elements of '{}' again for each '{}'", own, name, iterator.name);
  }
  return std::nullopt;
}

void fuse_epilogue(Plan& plan, const Decision& decision) {
  Program& program = plan.program;
  const std::size_t at = plan.scope_named(decision.scope);
  const auto tensor = plan.tensor_named(decision.tensor);
  if (const auto obstacle = epilogue_obstacle(plan, at, tensor)) fail<ScheduleError>(kWhere, "{}", *obstacle);
  const std::size_t made_by = *plan.producer(tensor);
  const program::Scope producer = program.scopes[made_by];
  const ScalarId place = plan.reads_of(at, tensor)[0];
  std::map<std::uint32_t, ExprId> values;
  for (std::size_t d = 0; d < producer.traversal.size(); ++d)
    values.emplace(producer.traversal[d].slot, program.scalar(place).indices[d]);
  const auto move = moving(program, values);

  // A chain: the outer epilogue is made of what the inner one makes.
  const auto inner = plan.scopes[made_by].epilogue;
  const ScalarId value = inner ? inner->value : program.literal(0);
  const ScalarId result = inner ? rebuild(program, inner->body, as_it_is, move) : value;
  const ScalarId body =
      rebuild(program, program.scopes[at].body, [&](ScalarId id) -> std::optional<ScalarId> {
        const Scalar& scalar = program.scalar(id);
        return scalar.kind == ScalarKind::Read && scalar.tensor == tensor ? std::optional(result)
                                                                          : std::nullopt;
      });
  program::Scope& joint = program.scopes[at];
  joint.body = rebuild(program, producer.body, as_it_is, move);
  joint.sums = producer.sums;
  joint.reduction = producer.reduction;
  plan.scopes[at] = ScopePlan{};
  plan.scopes[at].epilogue = {body, value};
  plan.erase_scope(made_by);
  if (plan.is_argument(program.scopes[at - 1].output)) plan.need_domain(at - 1);
}

}  // namespace syno::schedule
