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

inline NodeView view_of(const graph::Graph& g, const graph::Node& node) {
  return {node.name,
          node.program,
          node.function,
          node.attributes,
          tensor_names(g, node.inputs),
          tensor_names(g, node.outputs)};
}

}  // namespace syno
