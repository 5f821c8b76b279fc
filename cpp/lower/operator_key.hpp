// lower/operator_key.hpp — the key by which two finished pGraphs are one operator.
#pragma once

#include "equality/keys.hpp"
#include "pgraph/pgraph.hpp"

namespace syno::lower {

/// equality::operator_key of one_scope(graph) with the dimensions its signature leaves unordered, without
/// building the program.
Hash128 operator_key(const pgraph::CompleteGraph& graph, equality::OperatorKeyCache& cache);

}  // namespace syno::lower
