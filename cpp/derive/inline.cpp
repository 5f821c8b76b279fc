// Scopes without a reduction take the place of their reads.
#include <algorithm>
#include <map>

#include "derive/tools.hpp"
#include "lower/compacted.hpp"
#include "support/error.hpp"
#include "symbolic/condition.hpp"

namespace syno::derive {

namespace {

constexpr std::int64_t kMostParts = 1 << 13;  ///< nodes that inlining one scope adds to another

bool too_large(const Program& program, ScalarId written, ScalarId body, TensorId tensor) {
  return program::count_reads(program, body, tensor) >
         kMostParts / program::nodes_of(program, written, kMostParts);
}

std::vector<std::size_t> readers_of(const Program& program, TensorId tensor) {
  std::vector<std::size_t> readers;
  for (std::size_t s = 0; s < program.scopes.size(); ++s)
    if (program::reads_tensor(program, program.scopes[s].body, tensor)) readers.push_back(s);
  return readers;
}

}  // namespace

ScalarId with_inlined(Program& program, const Inlined& inlined, ScalarId reading, const std::string& reader) {
  const Scope& producer = inlined.producer;
  const TensorId tensor = producer.output;
  if (too_large(program, inlined.written, reading, tensor))
    fail<ScheduleError>(kWhere, "'{}' reads '{}' {} times: its body would have more than {} parts", reader,
                        program.tensor(tensor).name, program::count_reads(program, reading, tensor),
                        kMostParts);
  const auto context = program::context_of(program);
  return program::rebuild(program, reading, [&](ScalarId id) -> std::optional<ScalarId> {
    const Scalar read = program.scalar(id);
    if (read.kind != ScalarKind::Read || read.tensor != tensor) return std::nullopt;
    // Where the read takes its fill: an index outside the tensor, or a guard that fails.
    std::vector<symbolic::Condition> conditions;
    std::vector<std::pair<std::uint32_t, ExprId>> values;
    for (std::size_t d = 0; d < read.indices.size(); ++d) {
      const ExprId index = symbolic::without_inside(program.arena, read.indices[d], conditions);
      values.emplace_back(producer.traversal[d].slot, index);
      const auto [begin, end] = range_of(program, producer.traversal[d].range);
      if (!inlined.total) conditions.push_back({index, begin, end});
    }
    const ScalarId body = program::with_iterators(program, inlined.written, values);
    std::optional<ScalarId> inside;
    const auto both = [&](ScalarId test) {
      inside = inside ? program.binary(Function::And, *inside, test) : test;
    };
    for (const auto& condition : conditions) {
      const symbolic::Interval range = symbolic::bounds(program.arena, condition.expr, context, 0);
      if (inlined.guarded || range.least < condition.begin)
        both(program.binary(Function::LessEqual, program.literal(condition.begin),
                            program.index_value(condition.expr)));
      if (inlined.guarded || range.greatest >= condition.end)
        both(program.binary(Function::Less, program.index_value(condition.expr),
                            program.literal(condition.end)));
    }
    return inside ? program.select(*inside, body, program.literal(read.fill)) : body;
  });
}

std::vector<Site> find_inlinable(const Program& program, std::size_t at) {
  const Scope& scope = program.scopes[at];
  if (is_output(program, scope.output) || !scope.sums.empty() || !scope.target.empty()) return {};
  for (const std::size_t reader : readers_of(program, scope.output))
    if (too_large(program, scope.body, program.scopes[reader].body, scope.output)) return {};
  return {{name_of(program, scope), {}, {}, {}}};
}

void inline_scope(Program& program, const Site& site) {
  const std::size_t at = scope_named(program, site.scope);
  const Scope producer = program.scopes[at];
  if (is_output(program, producer.output))
    fail<ScheduleError>(kWhere, "'{}' is an output; it must be written", site.scope);
  if (!producer.sums.empty() || !producer.target.empty())
    fail<ScheduleError>(kWhere, "'{}' reduces or accumulates; every read of it would repeat that",
                        site.scope);
  const auto readers = readers_of(program, producer.output);
  std::vector<ScalarId> bodies;  // all of them before one is changed: any may be refused
  for (const std::size_t reader : readers)
    bodies.push_back(with_inlined(program, {producer, producer.body}, program.scopes[reader].body,
                                  name_of(program, program.scopes[reader])));
  for (std::size_t i = 0; i < readers.size(); ++i) program.scopes[readers[i]].body = bodies[i];
  program.scopes.erase(program.scopes.begin() + static_cast<std::ptrdiff_t>(at));
}

Program without_copies(Program program) {
  for (std::size_t s = 0; s < program.scopes.size();) {
    const std::vector<Site> found = find_inlinable(program, s);
    const bool copies = program.scalar(program.scopes[s].body).kind == ScalarKind::Read;
    if (copies && !found.empty())
      derive::apply(rewrite_named("inline"), program, found[0]);
    else
      ++s;
  }
  const auto inputs = program.inputs();
  return lower::compacted(program, {inputs.begin(), inputs.end()});
}

}  // namespace syno::derive
