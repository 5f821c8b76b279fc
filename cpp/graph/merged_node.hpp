// graph/merged_node.hpp — what several program nodes are as one: shared by who merges them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/graph.hpp"

namespace syno::graph {

/// Nodes in an order in which each reads what is there already.
using NodePointers = std::vector<const Node*>;

/// Who reads an output of one of them: a node outside or the caller of the graph, nodes among them, or
/// nobody.
enum class ReadBy : std::uint8_t { Others, Themselves, Nobody };

struct MergedNode {
  Program program;
  ElementType type = ElementType::F32;
  std::vector<TensorId> inputs, outputs;  ///< tensors of the graph
};

/// Why they cannot be one whatever lies between them; empty: they can.
std::string reason_against(const Graph& graph, const NodePointers& nodes);
/// `graph`: has their tensors.
MergedNode merged_node(const Graph& graph, const NodePointers& nodes,
                       const std::function<ReadBy(TensorId)>& read_by);
std::string name_of_all(const NodePointers& nodes);

}  // namespace syno::graph
