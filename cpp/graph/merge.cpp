#include "graph/merge.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "graph/rebuild.hpp"
#include "program/names.hpp"
#include "program/scalars.hpp"
#include "support/error.hpp"
#include "support/shown.hpp"

namespace syno::graph {

namespace {

constexpr std::string_view kMerge = "merge";

/// Which nodes are after some of `nodes`, themselves not among them unless by a path through others.
struct After {
  std::vector<bool> outside;  ///< by node: it is not one of them and reads what comes of them
  std::string reason;         ///< a path that comes back
};

After after(const Graph& graph, const std::vector<bool>& member) {
  After found{std::vector<bool>(graph.nodes().size(), false), ""};
  const auto made = producers(graph);
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    for (const TensorId input : node.inputs) {
      const auto producer = made[static_cast<std::size_t>(input)];
      if (!producer) continue;
      if (!member[n]) {
        found.outside[n] = found.outside[n] || member[*producer] || found.outside[*producer];
      } else if (found.outside[*producer]) {
        found.reason = fmt::format(
            "'{}' reads '{}' of node '{}', which is not among them and needs what they compute",
            shown(node.name), shown(graph.tensor(input).name), shown(graph.nodes()[*producer].name));
        return found;
      }
    }
  }
  return found;
}

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

std::string name_of_all(const Graph& graph, const std::vector<std::size_t>& nodes) {
  std::string all;
  for (const std::size_t n : nodes) all += (all.empty() ? "" : "+") + graph.nodes()[n].name;
  if (all.size() <= 80) return all;
  return graph.nodes()[nodes.front()].name + "+..+" + graph.nodes()[nodes.back()].name;
}

/// The tensors that the whole reads from outside, in order of first read, and those that it gives.
struct Border {
  std::vector<TensorId> inputs, outputs;
};

Border border_of(const Graph& graph, const std::vector<std::size_t>& nodes, const std::vector<bool>& member) {
  Border border;
  std::set<TensorId> own, seen;
  for (const std::size_t n : nodes) {
    for (const TensorId input : graph.nodes()[n].inputs)
      if (!own.contains(input) && seen.insert(input).second) border.inputs.push_back(input);
    own.insert(graph.nodes()[n].outputs.begin(), graph.nodes()[n].outputs.end());
  }
  const auto read_by = readers(graph);
  std::vector<TensorId> unread;
  for (const std::size_t n : nodes)
    for (const TensorId output : graph.nodes()[n].outputs) {
      const auto& all = read_by[static_cast<std::size_t>(output)];
      const bool returned =
          std::find(graph.outputs.begin(), graph.outputs.end(), output) != graph.outputs.end();
      if (returned ||
          std::any_of(all.begin(), all.end(), [&](std::size_t reader) { return !member[reader]; }))
        border.outputs.push_back(output);
      else if (all.empty())
        unread.push_back(output);
    }
  if (border.outputs.empty()) border.outputs = unread;
  return border;
}

Program joined(const Graph& graph, const std::vector<std::size_t>& nodes, const Border& border) {
  Joined made;
  std::map<TensorId, program::TensorId> known;
  const auto input_in = [&](TensorId wanted) -> std::pair<const Program*, program::TensorId> {
    for (const std::size_t n : nodes) {
      const Node& node = graph.nodes()[n];
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        if (node.inputs[i] == wanted) return {&node.program->program, node.program->program.inputs()[i]};
    }
    SYNO_ASSERT(false, "some node reads each input");
  };
  for (const TensorId input : border.inputs) {
    const auto [program, tensor] = input_in(input);
    const bool weight = graph.tensor(input).role == Role::Weight;
    known.emplace(input, made.add(graph.tensor(input).name,
                                  weight ? program::Role::Weight : program::Role::Input, *program, tensor));
  }
  for (const std::size_t n : nodes) {
    const Node& node = graph.nodes()[n];
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

std::string reason_against(const Graph& graph, const std::vector<std::size_t>& nodes) {
  std::size_t scopes = 0;
  for (const std::size_t n : nodes) {
    const Node& node = graph.nodes()[n];
    if (node.is_call()) return fmt::format("'{}' is a call of {}", shown(node.name), shown(node.function));
    const ElementType type = type_of(graph, node), first = type_of(graph, graph.nodes()[nodes[0]]);
    if (type != first)
      return fmt::format("'{}' computes {}, but '{}' {}", shown(node.name), name_of(type),
                         shown(graph.nodes()[nodes[0]].name), name_of(first));
    scopes += node.program->program.scopes.size();
  }
  if (scopes > kMostScopes)
    return fmt::format("together they have {} scopes; the limit is {}", scopes, kMostScopes);
  return "";
}

/// What is checked before nodes become one: their places ascending, and who is behind them.
struct Members {
  std::vector<std::size_t> nodes;
  std::vector<bool> member;
  After behind;
};

std::variant<Members, std::string> members_of(const Graph& graph, std::vector<std::size_t> nodes) {
  if (nodes.empty()) fail<ShapeError>(kMerge, "there are no nodes to merge");
  std::sort(nodes.begin(), nodes.end());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i] >= graph.nodes().size())
      fail<ShapeError>(kMerge, "node {} asked for, but the graph has {}", nodes[i], graph.nodes().size());
    if (i > 0 && nodes[i] == nodes[i - 1])
      fail<ShapeError>(kMerge, "node '{}' is there twice", shown(graph.nodes()[nodes[i]].name));
  }
  if (std::string reason = reason_against(graph, nodes); !reason.empty()) return reason;
  std::vector<bool> member(graph.nodes().size(), false);
  for (const std::size_t n : nodes) member[n] = true;
  After behind = after(graph, member);
  if (!behind.reason.empty()) return behind.reason;
  return Members{std::move(nodes), std::move(member), std::move(behind)};
}

std::string name_for(const Graph& graph, const Members& all, const std::string& name) {
  const std::string wanted = name.empty() ? name_of_all(graph, all.nodes) : name;
  const auto taken = graph.find_node(wanted);
  return taken && !all.member[*taken] ? graph.fresh_node_name(wanted) : wanted;
}

std::vector<std::string> names_of(const Graph& graph, const std::vector<TensorId>& tensors) {
  std::vector<std::string> names;
  for (const TensorId each : tensors) names.push_back(graph.tensor(each).name);
  return names;
}

}  // namespace

std::variant<Graph, std::string> merged(const Graph& graph, std::vector<std::size_t> nodes,
                                        const std::string& name) {
  auto found = members_of(graph, std::move(nodes));
  if (auto* reason = std::get_if<std::string>(&found)) return std::move(*reason);
  const Members& all = std::get<Members>(found);
  const Border border = border_of(graph, all.nodes, all.member);

  // What does not need them, up to the last of them; they; the rest.
  Rebuilt result(graph);
  for (std::size_t n = 0; n < all.nodes.back(); ++n)
    if (!all.member[n] && !all.behind.outside[n]) result.keep(n);
  std::vector<TensorId> inputs;
  for (const TensorId input : border.inputs) inputs.push_back(result.at(input));
  const std::size_t made =
      result.graph.add_program(name_for(graph, all, name), joined(graph, all.nodes, border), inputs,
                               names_of(graph, border.outputs), type_of(graph, graph.nodes()[all.nodes[0]]));
  for (std::size_t i = 0; i < border.outputs.size(); ++i)
    result.stands_for(border.outputs[i], result.graph.nodes()[made].outputs[i]);
  for (std::size_t n = 0; n < graph.nodes().size(); ++n)
    if (!all.member[n] && (n > all.nodes.back() || all.behind.outside[n])) result.keep(n);
  return result.finish();
}

std::variant<Graph, std::string> merged_alone(const Graph& graph, std::vector<std::size_t> nodes) {
  auto found = members_of(graph, std::move(nodes));
  if (auto* reason = std::get_if<std::string>(&found)) return std::move(*reason);
  const Members& all = std::get<Members>(found);
  const Border border = border_of(graph, all.nodes, all.member);
  Graph alone(graph.name);
  std::vector<TensorId> inputs;
  for (const TensorId input : border.inputs) {
    const Tensor& tensor = graph.tensor(input);
    if (!tensor.layout.empty()) return merged(graph, all.nodes);  // inputs have none
    inputs.push_back(tensor.role == Role::Weight ? alone.add_weight(tensor.name, tensor.shape, tensor.type)
                                                 : alone.add_input(tensor.name, tensor.shape, tensor.type));
  }
  const std::size_t made =
      alone.add_program(name_for(graph, all, ""), joined(graph, all.nodes, border), inputs,
                        names_of(graph, border.outputs), type_of(graph, graph.nodes()[all.nodes[0]]));
  alone.outputs = alone.nodes()[made].outputs;
  return alone;
}

}  // namespace syno::graph
