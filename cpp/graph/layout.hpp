// graph/layout.hpp — edges that lie in other layouts (ALT §4): whoever computes one writes its places,
// whoever reads it reads them, and conversions are nodes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/graph.hpp"

namespace syno::graph {

using schedule::Layout;

/// The graph in which each of these tensors lies by its layout, and says so. A program that computes or reads
/// it is rewritten (schedule::laid_out). An input, a weight and what a call computes stay as they are, beside
/// a copy that lies so, which programs read; what the graph returns or a call reads is copied back. Copies
/// are nodes, and of weights constant ones. A tensor that has a layout gets the further steps.
///
///     x -> conv1 -> t1 -> conv2 -> y,  t1 by split(1, 4, 8) reorder(0, 1, 3, 4, 2)
///
/// has the same nodes, of which conv1 runs over channels of 8 last, and conv2 sums over blocks of them.
///
/// With `inner`, tensors within a program that are elementwise of a tensor with a layout of one element a
/// place get it, too, so that their loops stay those of one nest: of conv and relu in one program the sum
/// that relu reads lies as what relu writes. What a program computes goes before what it reads.
///
/// ScheduleError where a step does not fit the tensor, or no program can compute on its type; ShapeError for
/// a tensor without elements.
Graph lay_out(const Graph& graph, const std::map<TensorId, Layout>& layouts, bool inner = true);

/// The inverse: these tensors are row-major again. ScheduleError where one has no layout.
Graph row_major(const Graph& graph, const std::vector<TensorId>& tensors);

/// With a node that copies a tensor, for these of its readers alone: so that they may read it in a layout of
/// its own. `made` gets the copy. ScheduleError where one is no program that reads it.
Graph with_copy(const Graph& graph, TensorId tensor, const std::vector<std::size_t>& for_nodes,
                TensorId& made);

/// One constant tensor with another one's elements behind each of its rows (ALT's store_at): `guest` has the
/// shape that `host` has without the dimensions from `dim` on, and lies in a slot behind dimension `dim` of
/// it, at the first place of the dimensions after that. Both are weights, or computed of weights alone; what
/// programs read of either they read of the tensor that is computed of both, once. ShapeError where they do
/// not fit, ScheduleError where one of them is no constant.
Graph store_at(const Graph& graph, TensorId guest, TensorId host, std::size_t dim);

}  // namespace syno::graph
