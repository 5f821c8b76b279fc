#include "graph/merged_node.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "graph/merge.hpp"
#include "program/common_scopes.hpp"
#include "program/names.hpp"
#include "program/scalars.hpp"
#include "support/error.hpp"
#include "support/shown.hpp"

namespace syno::graph {

namespace {

/// A word that a program can call a tensor by.
std::string as_identifier(std::string_view name) {
  std::string made(name.substr(0, 60));
  for (char& c : made)
    if (!program::is_identifier(std::string("a") + c)) c = '_';
  if (!program::is_identifier(made)) made = "t" + made;
  if (program::is_reserved(made)) made += "_";
  return made;
}

/// Puts programs one after the other into one.
class Joined {
 public:
  Program program;

  program::TensorId add(std::string_view wanted, program::Role role, const Program& from,
                        program::TensorId tensor) {
    program::Tensor made = from.tensor(tensor);
    made.role = role;
    const std::string base = as_identifier(wanted);
    made.name = base;
    for (int i = 2; !names_.insert(made.name).second; ++i) made.name = fmt::format("{}_{}", base, i);
    for (program::Range& dim : made.dims) dim = {import(from, dim.begin, 0), import(from, dim.end, 0)};
    return program.add_tensor(std::move(made));
  }

  /// The scopes of `from` over `tensors`, which names each of its tensors here.
  void append(const Program& from, const std::vector<program::TensorId>& tensors) {
    const std::uint32_t shift = program.next_slot;
    program.next_slot += from.next_slot;
    std::map<program::ScalarId, program::ScalarId> copies;
    for (program::Scope scope : from.scopes) {
      scope.output = tensors[static_cast<std::size_t>(scope.output)];
      for (auto* list : {&scope.traversal, &scope.sums})
        for (program::Iterator& iterator : *list) {
          iterator.slot += shift;
          iterator.range = {import(from, iterator.range.begin, 0), import(from, iterator.range.end, 0)};
        }
      for (symbolic::ExprId& target : scope.target) target = import(from, target, shift);
      scope.body = program::copy_body(from, scope.body, program, copies, [&](program::Scalar& scalar) {
        if (scalar.kind == program::ScalarKind::Read)
          scalar.tensor = tensors[static_cast<std::size_t>(scalar.tensor)];
        program::over_indices(scalar, [&](symbolic::ExprId& index) { index = import(from, index, shift); });
      });
      program.scopes.push_back(std::move(scope));
    }
  }

 private:
  symbolic::ExprId import(const Program& from, symbolic::ExprId root, std::uint32_t shift) {
    const symbolic::ExprId here = program.arena.import(from.arena, root);
    if (shift == 0) return here;
    return program.arena.substitute(here,
                                    [&](std::uint32_t slot) { return program.arena.iterator(slot + shift); });
  }
  std::set<std::string> names_;
};

/// The tensors that the whole reads from outside, in order of first read, and those that it gives.
void find_border(const NodePointers& nodes, const std::function<ReadBy(TensorId)>& read_by,
                 MergedNode& made) {
  std::set<TensorId> own, seen;
  for (const Node* node : nodes) {
    for (const TensorId input : node->inputs)
      if (!own.contains(input) && seen.insert(input).second) made.inputs.push_back(input);
    own.insert(node->outputs.begin(), node->outputs.end());
  }
  std::vector<TensorId> unread;
  for (const Node* node : nodes)
    for (const TensorId output : node->outputs) {
      const ReadBy who = read_by(output);
      if (who == ReadBy::Others) made.outputs.push_back(output);
      if (who == ReadBy::Nobody) unread.push_back(output);
    }
  if (made.outputs.empty()) made.outputs = unread;
}

Program joined(const Graph& graph, const NodePointers& nodes, const MergedNode& border) {
  Joined made;
  std::map<TensorId, program::TensorId> known;
  const auto input_in = [&](TensorId wanted) -> std::pair<const Program*, program::TensorId> {
    for (const Node* node : nodes)
      for (std::size_t i = 0; i < node->inputs.size(); ++i)
        if (node->inputs[i] == wanted) return {&node->program->program, node->program->program.inputs()[i]};
    SYNO_ASSERT(false, "some node reads each input");
  };
  for (const TensorId input : border.inputs) {
    const auto [program, tensor] = input_in(input);
    const bool weight = graph.tensor(input).role == Role::Weight;
    known.emplace(input, made.add(graph.tensor(input).name,
                                  weight ? program::Role::Weight : program::Role::Input, *program, tensor));
  }
  for (const Node* each : nodes) {
    const Node& node = *each;
    const Program& program = node.program->program;
    const auto inputs = program.inputs();
    std::vector<program::TensorId> tensors(program.tensors.size());
    for (std::size_t i = 0; i < inputs.size(); ++i)
      tensors[static_cast<std::size_t>(inputs[i])] = known.at(node.inputs[i]);
    for (std::size_t t = 0; t < program.tensors.size(); ++t) {
      const auto id = static_cast<program::TensorId>(t);
      const program::Role role = program.tensors[t].role;
      if (role == program::Role::Input || role == program::Role::Weight) continue;
      const auto found = std::find(program.outputs.begin(), program.outputs.end(), id);
      if (found == program.outputs.end()) {
        tensors[t] = made.add(node.name + "_" + program.tensors[t].name, role, program, id);
        continue;
      }
      const TensorId edge = node.outputs[static_cast<std::size_t>(found - program.outputs.begin())];
      tensors[t] = made.add(graph.tensor(edge).name, role, program, id);
      known.emplace(edge, tensors[t]);
    }
    made.append(program, tensors);
  }
  for (const TensorId output : border.outputs) made.program.outputs.push_back(known.at(output));
  return std::move(made.program);
}

}  // namespace

std::string name_of_all(const NodePointers& nodes) {
  std::string all;
  for (const Node* node : nodes) all += (all.empty() ? "" : "+") + node->name;
  if (all.size() <= 80) return all;
  return nodes.front()->name + "+..+" + nodes.back()->name;
}

std::string reason_against(const Graph& graph, const NodePointers& nodes) {
  std::size_t scopes = 0;
  for (const Node* each : nodes) {
    const Node& node = *each;
    if (node.is_call()) return fmt::format("'{}' is a call of {}", shown(node.name), shown(node.function));
    const ElementType type = type_of(graph, node), first = type_of(graph, *nodes[0]);
    if (type != first)
      return fmt::format("'{}' computes {}, but '{}' {}", shown(node.name), name_of(type),
                         shown(nodes[0]->name), name_of(first));
    scopes += node.program->program.scopes.size();
  }
  if (scopes > kMostScopes)
    return fmt::format("together they have {} scopes; the limit is {}", scopes, kMostScopes);
  return "";
}

MergedNode merged_node(const Graph& graph, const NodePointers& nodes,
                       const std::function<ReadBy(TensorId)>& read_by) {
  MergedNode made;
  made.type = type_of(graph, *nodes[0]);
  find_border(nodes, read_by, made);
  made.program = program::with_common_scopes(joined(graph, nodes, made));
  return made;
}

}  // namespace syno::graph
