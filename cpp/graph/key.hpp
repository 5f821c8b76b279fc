// graph/key.hpp — equality of graphs as a stable key, for caches and records.
#pragma once

#include <string>

#include "graph/graph.hpp"

namespace syno::graph {

/// 32 hexadecimal digits, equal for graphs that are equal up to names of the graph, its tensors and nodes,
/// the order of nodes that do not depend on each other and of weights, the layout of attributes, and what
/// equality::structural_key does not see of programs. All inputs and the outputs count, in their order; of
/// nodes and weights those that an output depends on. Values of weights are no part.
std::string structural_key(const Graph& graph);

}  // namespace syno::graph
