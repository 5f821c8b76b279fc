// graph/merge.hpp — several nodes of a graph as one: what is fused is one program.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "graph/graph.hpp"

namespace syno::graph {

/// A merged program has no more scopes.
inline constexpr std::size_t kMostScopes = 512;

/// The graph in which these program nodes, by their places, are one, or why they cannot be. Its program has
/// the scopes of all; its inputs are the tensors from outside that they read, in the order of the first read,
/// weights where the graph's are; its outputs are those of theirs that others read or the graph returns (if
/// there are none, those that none of them reads), under the names and in the order that they had. With y =
/// p0(x, w) and z = p1(y, x), where nobody else reads y, it is z = p2(x, w).
///
/// Refused: a call; another element type; a path from one of them through a node that is not among them to
/// another one; more scopes than kMostScopes. ShapeError where `nodes` are none, or one is twice.
///
/// Takes as long as the graph is large; graph/merging.hpp merges many pairs, one after the other.
std::variant<Graph, std::string> merged(const Graph& graph, std::vector<std::size_t> nodes,
                                        const std::string& name = "");

/// Why nodes cannot be one where `node`, one of them, reads `tensor`, which `through`, none of them, computes
/// from what they do.
std::string comes_back(const Graph& graph, const Node& node, TensorId tensor, const Node& through);

}  // namespace syno::graph
