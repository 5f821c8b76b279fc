#include "graph/merge.hpp"

#include <algorithm>

#include "graph/merged_node.hpp"
#include "graph/rebuild.hpp"
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
        found.reason = comes_back(graph, node, input, graph.nodes()[*producer]);
        return found;
      }
    }
  }
  return found;
}

void check_places(const Graph& graph, const std::vector<std::size_t>& ascending) {
  if (ascending.empty()) fail<ShapeError>(kMerge, "there are no nodes to merge");
  for (std::size_t i = 0; i < ascending.size(); ++i) {
    if (ascending[i] >= graph.nodes().size())
      fail<ShapeError>(kMerge, "node {} asked for, but the graph has {}", ascending[i], graph.nodes().size());
    if (i > 0 && ascending[i] == ascending[i - 1])
      fail<ShapeError>(kMerge, "node '{}' is there twice", shown(graph.nodes()[ascending[i]].name));
  }
}

}  // namespace

std::string comes_back(const Graph& graph, const Node& node, TensorId tensor, const Node& through) {
  return fmt::format("'{}' reads '{}' of node '{}', which is not among them and needs what they compute",
                     shown(node.name), shown(graph.tensor(tensor).name), shown(through.name));
}

std::variant<Graph, std::string> merged(const Graph& graph, std::vector<std::size_t> nodes,
                                        const std::string& name) {
  std::sort(nodes.begin(), nodes.end());
  check_places(graph, nodes);
  std::vector<bool> member(graph.nodes().size(), false);
  NodePointers all;
  for (const std::size_t n : nodes) {
    member[n] = true;
    all.push_back(&graph.nodes()[n]);
  }
  if (std::string reason = reason_against(graph, all); !reason.empty()) return reason;
  const After behind = after(graph, member);
  if (!behind.reason.empty()) return behind.reason;
  const auto read_by = readers(graph);
  const MergedNode one = merged_node(graph, all, [&](TensorId output) {
    const auto& who = read_by[place(output)];
    if (std::find(graph.outputs.begin(), graph.outputs.end(), output) != graph.outputs.end() ||
        std::any_of(who.begin(), who.end(), [&](std::size_t reader) { return !member[reader]; }))
      return ReadBy::Others;
    return who.empty() ? ReadBy::Nobody : ReadBy::Themselves;
  });
  const std::string wanted = name.empty() ? name_of_all(all) : name;
  const auto taken = graph.find_node(wanted);

  // What does not need them, up to the last of them; they; the rest.
  Rebuilt result(graph);
  for (std::size_t n = 0; n < nodes.back(); ++n)
    if (!member[n] && !behind.outside[n]) result.keep(n);
  std::vector<TensorId> inputs;
  for (const TensorId input : one.inputs) inputs.push_back(result.at(input));
  const std::size_t made =
      result.graph.add_program(taken && !member[*taken] ? graph.fresh_node_name(wanted) : wanted, one.program,
                               inputs, tensor_names(graph, one.outputs), one.type);
  for (std::size_t i = 0; i < one.outputs.size(); ++i)
    result.stands_for(one.outputs[i], result.graph.nodes()[made].outputs[i]);
  for (std::size_t n = 0; n < graph.nodes().size(); ++n)
    if (!member[n] && (n > nodes.back() || behind.outside[n])) result.keep(n);
  return result.finish();
}

}  // namespace syno::graph
