// graph/propagate.hpp — to which further tensors a layout spreads (ALT §4.1.3), and what that depends on.
#pragma once

#include <map>
#include <vector>

#include "graph/graph.hpp"

namespace syno::graph {

/// The rules, each of which may be switched off.
struct Propagation {
  bool up = true;    ///< to what an elementwise node reads, so that its producer writes the layout
  bool down = true;  ///< to what an elementwise node computes, so that its nest is the one before it
  /// Only along elementwise nodes, between tensors of one shape. Without: along all that are not complex,
  /// where the steps fit the other shape.
  bool equal_shapes = true;
  /// Only layouts with one element a place: the others, such as padding, are for who asked for them.
  bool one_to_one = true;
  /// Complex nodes are decided for themselves. Without: their outputs take their inputs' layouts, and the
  /// other way round, where the steps fit.
  bool independent = true;
};

/// `layouts`, and those that follow: down first, in the order of the nodes, each output taking the layout of
/// the first input that has one; then up. What has a layout keeps it; what programs do not compute, what the
/// graph returns and what calls read gets none.
std::map<TensorId, schedule::Layout> propagated(const Graph& graph,
                                                std::map<TensorId, schedule::Layout> layouts,
                                                const Propagation& rules = {});

/// Whether all that a program does is elementwise over one shape: no scope reduces, each computes the shape
/// of the output, and each read of a tensor of that shape is at the scope's own place.
bool is_elementwise(const Program& program);

/// Whether a program sums products of two tensors: convolutions, products of matrices.
bool is_complex(const Program& program);

/// Tensors within a program that are elementwise of what it computes, or else of what it reads: by the output
/// or input whose layout they take.
std::map<program::TensorId, program::TensorId> owners_of(const Program& program);

/// Of a program that sums products: a dimension of an input or output that an iterator of its own moves, and
/// with it another factor: of y[n, o, h, w] = sum[c, r] x[n, c, h + r, w] * k[o, c, r] dimension 1 of x and
/// of y, and 0 and 1 of k. In the order of the program's tensors.
struct Channel {
  program::TensorId tensor{};
  std::size_t dim = 0;
};
std::vector<Channel> channels_of(const Program& program);

}  // namespace syno::graph
