// bindings/node_view.hpp — a node of a graph as Python sees it.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.hpp"

namespace syno {

/// A node by what Python asks of it, apart from its graph.
struct NodeView {
  std::string name;
  graph::ProgramPointer program;
  std::string function, attributes;
  std::vector<std::string> inputs, outputs;
};

inline std::vector<std::string> names_of(const graph::Graph& g, const std::vector<graph::TensorId>& ids) {
  std::vector<std::string> names;
  for (const graph::TensorId id : ids) names.push_back(g.tensor(id).name);
  return names;
}

inline NodeView view_of(const graph::Graph& g, const graph::Node& node) {
  return {node.name,
          node.program,
          node.function,
          node.attributes,
          names_of(g, node.inputs),
          names_of(g, node.outputs)};
}

}  // namespace syno
