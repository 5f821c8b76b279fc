// Intermediate results with another dimension innermost: one that whoever reads them moves along step by
// step, so that vectors run along it in what writes them and in what reads them. A transform of windows reads
// t[c,4*w+a] and writes u[c,w]; with c innermost it needs neither strided nor partial vectors.
#include <algorithm>
#include <map>

#include "derive/moved.hpp"
#include "derive/tools.hpp"
#include "support/error.hpp"
#include "symbolic/affine.hpp"

namespace syno::derive {

namespace {

constexpr std::int64_t kFewest = 8;  ///< elements of a dimension that is worth it
constexpr std::int64_t kStays = -1;  ///< in a site's numbers: this result lies as it does

/// The scope that computes a tensor of the program's own, element by element.
std::optional<std::size_t> maker_of(const Program& program, TensorId tensor) {
  if (program.tensor(tensor).role != program::Role::Computed || is_output(program, tensor))
    return std::nullopt;
  for (std::size_t s = 0; s < program.scopes.size(); ++s)
    if (program.scopes[s].output == tensor)
      return program.scopes[s].target.empty() ? std::optional(s) : std::nullopt;
  return std::nullopt;
}

/// By dimension of a tensor: whether every read of it takes an iterator there, and nothing else.
std::vector<bool> read_step_by_step(const Program& program, TensorId tensor) {
  std::vector<bool> plain(program.tensor(tensor).dims.size(), true);
  for (const Scope& scope : program.scopes)
    for (const ScalarId id : program::reads_in(program, scope.body)) {
      const Scalar& read = program.scalar(id);
      for (std::size_t d = 0; read.tensor == tensor && d < plain.size(); ++d)
        plain[d] = plain[d] && symbolic::slot_of(program.arena, read.indices[d]) != symbolic::kNoSlot;
    }
  return plain;
}

/// What an output is made of, itself not included, as places of scopes.
std::vector<std::size_t> makers(const Program& program, std::size_t at) {
  std::vector<std::size_t> found{at};
  for (std::size_t i = 0; i < found.size(); ++i)
    for (const ScalarId id : program::reads_in(program, program.scopes[found[i]].body))
      if (const auto made_by = maker_of(program, program.scalar(id).tensor))
        if (std::find(found.begin(), found.end(), *made_by) == found.end()) found.push_back(*made_by);
  found.erase(found.begin());
  return found;
}

/// By tensor the dimension that becomes its innermost one: the longest of those that are read step by step,
/// for all tensors an output is made of, if the innermost one of any of them is not, or fills no vector.
std::map<TensorId, std::size_t> changes(const Program& program, std::size_t at) {
  std::map<TensorId, std::size_t> found;
  bool any = false;
  for (const std::size_t s : makers(program, at)) {
    const TensorId tensor = program.scopes[s].output;
    const std::vector<bool> plain = read_step_by_step(program, tensor);
    const std::vector<std::int64_t> shape = program::shape_of(program, tensor);
    if (plain.empty()) continue;
    any = any || !plain.back() || shape.back() < kFewest;
    std::optional<std::size_t> longest;
    for (std::size_t d = 0; d < plain.size(); ++d)
      if (plain[d] && shape[d] >= kFewest && (!longest || shape[d] >= shape[*longest])) longest = d;
    if (longest && *longest + 1 < plain.size()) found.emplace(tensor, *longest);
  }
  return any ? found : std::map<TensorId, std::size_t>{};
}

/// The same as a site's numbers say.
std::map<TensorId, std::size_t> told(const Program& program, std::size_t at,
                                     const std::vector<std::int64_t>& dims) {
  const std::string& name = name_of(program, program.scopes[at]);
  if (!is_output(program, program.scopes[at].output) || !program.scopes[at].target.empty())
    fail<ScheduleError>(
        kWhere, "'innermost' is about outputs, as '{}' is none, and not about what accumulates", name);
  const std::vector<std::size_t> made_of = makers(program, at);
  if (dims.size() != made_of.size())
    fail<ScheduleError>(kWhere, "'{}' is made of {} intermediate results, not of {}: a dimension for each",
                        name, made_of.size(), dims.size());
  std::map<TensorId, std::size_t> found;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const TensorId tensor = program.scopes[made_of[i]].output;
    const auto rank = static_cast<std::int64_t>(program.tensor(tensor).dims.size());
    if (dims[i] < kStays || dims[i] >= rank)
      fail<ScheduleError>(kWhere, "'{}' has {} dimensions; there is no number {}",
                          program.tensor(tensor).name, rank, dims[i]);
    if (dims[i] != kStays) found.emplace(tensor, static_cast<std::size_t>(dims[i]));
  }
  return found;
}

template <class T>
void move_last(std::vector<T>& list, std::size_t which) {
  const auto at = list.begin() + static_cast<std::ptrdiff_t>(which);
  std::rotate(at, at + 1, list.end());
}

/// Where the results of a scope lie with the dimension innermost that most of what it reads then has there:
/// its traversal's place; none if that is its last one already.
std::optional<std::size_t> follows(const Program& program, const Scope& scope,
                                   const std::map<TensorId, std::size_t>& moved) {
  std::map<std::size_t, int> votes;
  for (const ScalarId id : program::reads_in(program, scope.body)) {
    const Scalar& read = program.scalar(id);
    const auto change = moved.find(read.tensor);
    if (change == moved.end()) continue;
    const auto slot = symbolic::slot_of(program.arena, read.indices[change->second]);
    for (std::size_t i = 0; i < scope.traversal.size(); ++i)
      if (scope.traversal[i].slot == slot) ++votes[i];
  }
  std::optional<std::size_t> best;
  for (const auto& [place, count] : votes)
    if (!best || count > votes[*best]) best = place;
  return best && *best + 1 < scope.traversal.size() ? best : std::nullopt;
}

}  // namespace

std::vector<Site> find_innermost(const Program& program, std::size_t at) {
  const Scope& scope = program.scopes[at];
  if (!is_output(program, scope.output) || !scope.target.empty() || changes(program, at).empty()) return {};
  return {{name_of(program, scope), {}, {}, {}}};
}

std::vector<std::int64_t> innermost_dims(const Program& program, std::size_t at) {
  const std::map<TensorId, std::size_t> found = changes(program, at);
  std::vector<std::int64_t> dims;
  for (const std::size_t s : makers(program, at)) {
    const auto change = found.find(program.scopes[s].output);
    dims.push_back(change == found.end() ? kStays : static_cast<std::int64_t>(change->second));
  }
  return dims;
}

namespace {

void move(Program& program, std::size_t at, const std::map<TensorId, std::size_t>& moved,
          const std::string& beside_name) {
  const auto result = follows(program, program.scopes[at], moved);
  for (const auto& [tensor, dim] : moved) {
    move_last(program.tensors[static_cast<std::size_t>(tensor)].dims, dim);
    for (Scope& scope : program.scopes)
      if (scope.output == tensor) move_last(scope.traversal, dim);
  }
  for (Scope& scope : program.scopes)
    scope.body = program::rebuild(program, scope.body, [&](ScalarId id) -> std::optional<ScalarId> {
      const Scalar scalar = program.scalar(id);
      const auto change = scalar.kind == ScalarKind::Read ? moved.find(scalar.tensor) : moved.end();
      if (change == moved.end()) return std::nullopt;
      std::vector<ExprId> indices = scalar.indices;
      move_last(indices, change->second);
      return program.read(scalar.tensor, std::move(indices), scalar.fill);
    });
  if (!result) return;
  // The caller's memory keeps its order: the result is made beside it and copied.
  Moved beside{program.scopes[at].traversal, program.scopes[at].body, {}};
  move_last(beside.traversal, *result);
  for (const Iterator& iterator : beside.traversal)
    beside.places.push_back(program.arena.iterator(iterator.slot));
  move_scope(program, at, std::move(beside), beside_name);
}

}  // namespace

void move_innermost(Program& program, std::size_t at, const std::vector<std::int64_t>& dims) {
  const auto moved = told(program, at, dims);
  move(program, at, moved,
       derived_name(program, {name_of(program, program.scopes[at]), "", "", ""}, "turned"));
}

void move_innermost(Program& program, const Site& site) {
  const std::size_t at = place_of(program, rewrite_named("innermost"), site);
  move(program, at, changes(program, at), derived_name(program, site, "turned"));
}

}  // namespace syno::derive
