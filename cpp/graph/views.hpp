// graph/views.hpp — which nodes only arrange elements, and which every call computes alike.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.hpp"

namespace syno::graph {

/// Of a program that only reads: one scope, whose elements are elements of its one input, each of them inside
/// of it. x.T, x[:, 2:4], x.reshape(6, 2), x.expand(3, 4), and a copy of x are such.
bool only_reads(const Program& program);

/// Whether the output holds the elements of the one input in their row-major order: x.reshape(6, 2) does.
/// Proven by the simplifier, or, up to about a million elements, by looking at each; otherwise it is false.
bool is_view(const Program& program);
/// The same with equal shapes: y[i] = x[i].
bool is_copy(const Program& program);

/// Of a program that puts its inputs one behind the other, each in one run of the output's row-major order:
/// at which element each of them begins, in the order of the inputs. Empty for any other program.
std::vector<std::int64_t> joined_parts(const Program& program);

/// The nodes whose values depend on weights alone, by name, in order: computed once. Those that depend on
/// nothing are among them, random ones are not.
std::vector<std::string> constant_nodes(const Graph& graph);

}  // namespace syno::graph
