// graph/rebuild.hpp — a graph made again, node by node, with some of them left out or others in their place.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "graph/graph.hpp"

namespace syno::graph {

/// Begins with the inputs and weights of `from`, under their names; what follows is up to the caller, in an
/// order in which each node finds what it reads.
class Rebuilt {
 public:
  explicit Rebuilt(const Graph& from);
  Graph graph;

  void keep(std::size_t node);  ///< as it is, over what stands for its inputs
  /// The same with other inputs, of the old graph.
  void keep(std::size_t node, const std::vector<TensorId>& inputs);
  void stands_for(TensorId old_tensor, TensorId new_tensor);
  TensorId at(TensorId old_tensor) const;  ///< what stands for it
  /// With what stands for the old outputs.
  Graph finish();

 private:
  const Graph& from_;
  std::vector<std::optional<TensorId>> places_;
};

}  // namespace syno::graph
