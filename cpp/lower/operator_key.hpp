// lower/operator_key.hpp — the key by which two finished pGraphs are one operator.
#pragma once

#include "pgraph/pgraph.hpp"
#include "program/keys.hpp"

namespace syno::lower {

/// program::operator_key of one_scope(graph) with the dimensions its signature leaves unordered, without
/// building the program.
Hash128 operator_key(const pgraph::CompleteGraph& graph, program::OperatorKeyCache& cache);

}  // namespace syno::lower
