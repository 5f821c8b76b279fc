#include "lower/compacted.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "program/scalars.hpp"

namespace syno::lower {

namespace {

using program::Iterator;
using program::Program;
using program::Role;
using program::Scalar;
using program::ScalarId;
using program::ScalarKind;
using program::Scope;
using program::Tensor;
using program::TensorId;

void unique_names(Scope& scope) {
  std::set<std::string> used;
  for (auto* list : {&scope.traversal, &scope.sums}) {
    for (Iterator& i : *list) {
      const std::string base = i.name;
      for (int n = 2; !used.insert(i.name).second; ++n) i.name = base + std::to_string(n);
    }
  }
}

}  // namespace

Program compacted(const Program& p, const std::set<TensorId>& kept) {
  std::set<TensorId> needed(p.outputs.begin(), p.outputs.end());
  std::vector<Scope> scopes;
  for (std::size_t s = p.scopes.size(); s-- > 0;) {
    if (!needed.contains(p.scopes[s].output)) continue;
    program::over_reads(p, p.scopes[s].body,
                        [&](ScalarId, const Scalar& read) { needed.insert(read.tensor); });
    scopes.push_back(p.scopes[s]);
  }
  std::reverse(scopes.begin(), scopes.end());
  needed.insert(kept.begin(), kept.end());
  Program result;
  result.sizes = p.sizes;
  result.arena = p.arena;
  result.next_slot = p.next_slot;
  std::map<TensorId, TensorId> moved;
  for (const bool inputs : {true, false}) {
    for (std::size_t t = 0; t < p.tensors.size(); ++t) {
      const Tensor& tensor = p.tensors[t];
      const bool input = tensor.role == Role::Input || tensor.role == Role::Weight;
      const auto id = static_cast<TensorId>(t);
      if (input == inputs && needed.contains(id)) moved[id] = result.add_tensor(tensor);
    }
  }
  std::map<ScalarId, ScalarId> copies;
  for (Scope& scope : scopes) {
    scope.body = program::copy_body(p, scope.body, result, copies, [&](Scalar& scalar) {
      if (scalar.kind == ScalarKind::Read) scalar.tensor = moved.at(scalar.tensor);
    });
    scope.output = moved.at(scope.output);
    unique_names(scope);
    result.scopes.push_back(std::move(scope));
  }
  for (const TensorId output : p.outputs) result.outputs.push_back(moved.at(output));
  return result;
}

}  // namespace syno::lower
