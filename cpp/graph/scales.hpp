// graph/scales.hpp — factors that weights alone give, moved from what a layer makes into the layer's weights:
// batch normalisation into a convolution, a layer's own scale into a product.
//
// Of a[n, o] = sum[k] x[n, k] * w[o, k] + b[o] and y[n, o] = a[n, o] * s[o] + t[o], it makes
// v[o, k] = w[o, k] * s[o], c[o] = b[o] * s[o], a[n, o] = sum[k] x[n, k] * v[o, k] + c[o], y[n, o] = a[n, o]
// + t[o]. Exact over the reals; sums of floating-point numbers are rounded elsewhere.
#pragma once

#include <vector>

#include "graph/rewrites.hpp"

namespace syno::graph {

/// Where it applies: `node` is the one with the factor, which loses it; `other` the layer, whose result
/// nothing else reads.
std::vector<GraphSite> find_scales(const Graph& graph);

/// ScheduleError where find_scales() does not give the site.
Graph scale_weights(const Graph& graph, const GraphSite& site);

/// What is left when it applies nowhere any more.
Graph scales_in_weights(const Graph& graph);

}  // namespace syno::graph
