// graph/text.hpp — the text forms of graphs: one that is read back, one that Graphviz draws.
#pragma once

#include <string>
#include <string_view>

#include "graph/graph.hpp"

namespace syno::graph {

/// One statement a line; the full form of each program in braces, once however many nodes share it. Names
/// that are more than letters, digits, `_` and `.` stand in quotes, as in JSON.
///
///     graph small
///     input x: float32[1,3,8,8]
///     weight conv1.weight: float32[4,3,3,3]
///     program p0 {
///       input x[1, 3, 8, 8]
///       ...
///     }
///     node conv1 = p0(x, conv1.weight) -> t1: float32[1,4,8,8]
///     call top "aten.topk.default" {"k": 5} (t1) -> v: float32[5], i: int64[5]
///     return t1, v
std::string to_text(const Graph& graph);

/// Strict: parse(to_text(g)) prints as g does. Nodes may stand before what they read, but then verify(),
/// which is called, says so. ParseError names the line.
Graph parse(std::string_view text);

/// For Graphviz: a box a node, an edge a tensor with its type and shape.
std::string to_dot(const Graph& graph);

}  // namespace syno::graph
