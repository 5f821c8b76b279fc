// Decisions that rewrite the program: staged copies and inlining.
#include <algorithm>
#include <map>

#include "schedule/decisions.hpp"
#include "schedule/gather.hpp"
#include "support/error.hpp"

namespace syno::schedule {

namespace {

using program::Program;
using program::Scalar;
using program::ScalarId;
using program::ScalarKind;
using symbolic::Op;

constexpr const char* kWhere = "schedule";

/// Rebuilds a body, replacing what `replacement` gives another scalar for.
ScalarId rebuild(Program& program, ScalarId id,
                 const std::function<std::optional<ScalarId>(ScalarId)>& replacement) {
  if (const auto replaced = replacement(id)) return *replaced;
  Scalar scalar = program.scalar(id);
  switch (scalar.kind) {
    case ScalarKind::Literal:
    case ScalarKind::Index:
    case ScalarKind::Read:
      return id;
    case ScalarKind::Unary:
      scalar.a = rebuild(program, scalar.a, replacement);
      break;
    case ScalarKind::Binary:
      scalar.a = rebuild(program, scalar.a, replacement);
      scalar.b = rebuild(program, scalar.b, replacement);
      break;
    case ScalarKind::Select:
      scalar.a = rebuild(program, scalar.a, replacement);
      scalar.b = rebuild(program, scalar.b, replacement);
      scalar.c = rebuild(program, scalar.c, replacement);
      break;
  }
  return program.add_scalar(std::move(scalar));
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
  for (const auto& iterator : scope.traversal) {
    out.traversal.push_back(program.new_iterator(iterator.name, iterator.range));
    indices.push_back(program.arena.iterator(out.traversal.back().slot));
  }
  out.body = program.read(staged, std::move(indices));
  program.scopes[at].output = staged;
  plan.scopes[at] = ScopePlan{};
  plan.insert_scope(at + 1, std::move(out), ScopePlan{});
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
  if (const auto made_by = plan.producer(source);
      made_by && (plan.scopes[*made_by].has_domain || plan.scopes[*made_by].attach_scope >= 0) &&
      !plan.is_argument(source))
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

  program::Tensor copy;
  copy.name = name;
  copy.role = program::Role::Computed;
  program::Scope filling;
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
  for (const std::size_t reader : readers) {
    if (plan.scopes[reader].frozen)
      fail<ScheduleError>(kWhere, "'{}' already has a producer placed by its loops; inline '{}' before",
                          program.tensor(program.scopes[reader].output).name, decision.scope);
    const auto context = program::context_of(program);
    program.scopes[reader].body =
        rebuild(program, program.scopes[reader].body, [&](ScalarId id) -> std::optional<ScalarId> {
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
          const auto moved = [&](ExprId e) {
            return program.arena.substitute(e, [&](std::uint32_t slot) { return values.at(slot); });
          };
          std::function<ScalarId(ScalarId)> copy = [&](ScalarId from) {
            Scalar scalar = program.scalar(from);
            switch (scalar.kind) {
              case ScalarKind::Literal:
                return from;
              case ScalarKind::Index:
                scalar.index = moved(scalar.index);
                break;
              case ScalarKind::Read:
                for (auto& index : scalar.indices) index = moved(index);
                break;
              case ScalarKind::Unary:
                scalar.a = copy(scalar.a);
                break;
              case ScalarKind::Binary:
                scalar.a = copy(scalar.a);
                scalar.b = copy(scalar.b);
                break;
              case ScalarKind::Select:
                scalar.a = copy(scalar.a);
                scalar.b = copy(scalar.b);
                scalar.c = copy(scalar.c);
                break;
            }
            return program.add_scalar(std::move(scalar));
          };
          ScalarId body = copy(producer.body);
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
          for (const auto& condition : conditions) {
            const Interval range = symbolic::bounds(program.arena, condition.expr, context, 0);
            if (range.least < condition.begin)
              both(program.binary(program::Function::LessEqual, program.literal(condition.begin),
                                  index_scalar(condition.expr)));
            if (range.greatest >= condition.end)
              both(program.binary(program::Function::Less, index_scalar(condition.expr),
                                  program.literal(condition.end)));
          }
          return inside ? program.select(*inside, body, program.literal(read.fill)) : body;
        });
  }
  plan.erase_scope(at);
}

}  // namespace syno::schedule
