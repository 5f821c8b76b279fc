#include "program/neutral.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "program/names.hpp"
#include "support/error.hpp"

namespace syno::program {

namespace {

constexpr const char* kNeutral = "names";

/// As a float: only compared, and any extents have a product.
double points_of(const Program& program, const Scope& scope) {
  double points = 1;
  for (const auto* group : {&scope.traversal, &scope.sums})
    for (const Iterator& iterator : *group) {
      const Extent extent = extent_of(program, iterator.range, 0);
      points *= static_cast<double>(std::max<std::int64_t>(0, extent.end - extent.begin));
    }
  return points;
}

/// The scope as a program, of inputs that are as large as what it reads.
Program alone(const Program& program, const Scope& scope, const std::vector<TensorId>& reads) {
  Program made = program;
  std::vector<TensorId> places(program.tensors.size());
  made.tensors.clear();
  std::vector<TensorId> kept = reads;
  kept.push_back(scope.output);
  for (const TensorId id : kept) {
    Tensor tensor = program.tensor(id);
    if (id != scope.output && tensor.role == Role::Computed) tensor.role = Role::Input;
    places[static_cast<std::size_t>(id)] = made.add_tensor(std::move(tensor));
  }
  for (Scalar& scalar : made.scalars)
    if (scalar.kind == ScalarKind::Read) scalar.tensor = places[static_cast<std::size_t>(scalar.tensor)];
  made.scopes = {scope};
  made.scopes[0].output = places[static_cast<std::size_t>(scope.output)];
  made.outputs = {made.scopes[0].output};
  return made;
}

/// Whether inputs can lie as the tensors do that it reads: from 0 on.
bool stands_alone(const Program& program, const std::vector<TensorId>& reads) {
  for (const TensorId id : reads)
    for (const Range& range : program.tensor(id).dims)
      if (extent_of(program, range, 0).begin != 0) return false;
  return true;
}

void need_concrete(const Program& program) {
  if (!program.concrete())
    fail<ShapeError>(kNeutral, "it has sizes that are not numbers; take one valuation");
}

const Scope& scope_that_writes(const Program& program, const std::string& name) {
  std::vector<std::string> valid;
  for (const Scope& scope : program.scopes) {
    valid.push_back(program.tensor(scope.output).name);
    if (valid.back() == name) return scope;
  }
  fail<UnknownName>(kNeutral, "no scope writes '{}'. Valid: {}", name, fmt::join(valid, ", "));
}

}  // namespace

std::vector<std::string> heaviest(const Program& program, double share) {
  need_concrete(program);
  std::vector<std::pair<double, std::string>> scopes;
  double total = 0;
  for (const Scope& scope : program.scopes) {
    scopes.emplace_back(points_of(program, scope), program.tensor(scope.output).name);
    total += scopes.back().first;
  }
  std::erase_if(scopes, [&](const auto& scope) { return scope.first < share * total; });
  std::stable_sort(scopes.begin(), scopes.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> names;
  for (auto& [points, name] : scopes) names.push_back(std::move(name));
  return names;
}

Neutral neutral(const Program& program, const std::optional<std::string>& named) {
  need_concrete(program);
  Neutral made{program, {}, std::nullopt};
  for (const Tensor& tensor : program.tensors) made.names.push_back(tensor.name);
  const Scope* core = named ? &scope_that_writes(program, *named) : nullptr;
  double most = -1;
  for (const Scope& scope : program.scopes)
    if (const double points = points_of(program, scope); !named && points > most) {
      most = points;
      core = &scope;
    }
  std::vector<TensorId> reads;
  if (core != nullptr)
    for (const ScalarId id : scalars_of(program, core->body)) {
      const Scalar& scalar = program.scalar(id);
      if (scalar.kind == ScalarKind::Read &&
          std::find(reads.begin(), reads.end(), scalar.tensor) == reads.end())
        reads.push_back(scalar.tensor);
    }
  std::size_t others = 0;
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const auto id = static_cast<TensorId>(t);
    const auto read = std::find(reads.begin(), reads.end(), id);
    made.program.tensors[t].name = core != nullptr && id == core->output ? "core"
                                   : read != reads.end() ? fmt::format("a{}", read - reads.begin())
                                                         : fmt::format("t{}", others++);
  }
  if (core != nullptr && stands_alone(program, reads)) {
    const auto at = static_cast<std::size_t>(core - program.scopes.data());
    made.core = alone(made.program, made.program.scopes[at], reads);
  }
  return made;
}

Program renamed(const Program& program, const std::map<std::string, std::string>& names) {
  Program made = program;
  std::set<std::string> taken;
  for (const auto& [from, to] : names) {
    if (!program.find_tensor(from)) {
      std::vector<std::string> valid;
      for (const Tensor& tensor : program.tensors) valid.push_back(tensor.name);
      fail<UnknownName>(kNeutral, "there is no tensor '{}'. Valid: {}", from, fmt::join(valid, ", "));
    }
    if (!is_identifier(to) || is_reserved(to))
      fail<ShapeError>(kNeutral, "'{}' cannot be the name of a tensor", to);
    if (!taken.insert(to).second) fail<ShapeError>(kNeutral, "two tensors would be named '{}'", to);
  }
  std::set<std::string> kept;
  for (const Tensor& tensor : program.tensors)
    if (!names.contains(tensor.name)) kept.insert(tensor.name);
  for (Tensor& tensor : made.tensors) {
    if (const auto to = names.find(tensor.name); to != names.end()) {
      tensor.name = to->second;
      continue;
    }
    const std::string base = tensor.name;
    for (std::size_t number = 2; taken.contains(tensor.name); ++number) {
      const std::string other = fmt::format("{}_{}", base, number);
      if (!kept.contains(other)) tensor.name = other;
    }
    taken.insert(tensor.name);
  }
  return made;
}

}  // namespace syno::program
