// graph/joins.hpp — layers of one input as one layer: the products that make queries, keys and values, the
// first convolutions of parallel branches.
//
// Of q = x * a, k = x * b, v = x * c with weights of one shape it makes y[j] = x * w[j], where w is a, b, c
// along a new dimension, and q = y[0], k = y[1], v = y[2]. Weights of several lengths lie one behind the
// other instead, and so they do wherever their results then are runs of memory: channels of one image.
#pragma once

#include <vector>

#include "graph/rewrites.hpp"

namespace syno::graph {

/// Where it applies: `node` and `other` are the first and the last of layers that are alike: programs that
/// differ by weights, and by the extent of one dimension at most. What follows each of them alone and in the
/// same way, without reductions, is joined with them.
std::vector<GraphSite> find_joins(const Graph& graph);

/// ScheduleError where find_joins() does not give the site.
Graph join_layers(const Graph& graph, const GraphSite& site);

}  // namespace syno::graph
