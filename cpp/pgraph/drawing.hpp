// pgraph/drawing.hpp — what a drawing of a pGraph shows, before it has positions; to_svg and to_graphviz draw
// it.
#pragma once

#include <string>
#include <vector>

#include "pgraph/pgraph.hpp"

namespace syno::pgraph {

enum class NodeKind : std::uint8_t { Output, Input, Weight, View, Reduce, Share };

struct DrawnNode {
  NodeKind kind = NodeKind::View;
  std::string label;
  int layer = 0;  ///< 0 is the output, at the bottom; unused by weights, which stand at the side
};

/// A coordinate, from the node below to the node above.
struct DrawnEdge {
  std::size_t from = 0;
  std::size_t to = 0;
  std::string label;  ///< its extent
};

struct Drawing {
  std::vector<DrawnNode> nodes;
  std::vector<DrawnEdge> edges;
};

/// A Contraction becomes one Share node for each coordinate that stays with the data and a box for its
/// weight.
Drawing drawing_of(const CompleteGraph& graph);

}  // namespace syno::pgraph
