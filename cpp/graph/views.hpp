// graph/views.hpp — which nodes only arrange elements, and which every call computes alike.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.hpp"

namespace syno::graph {

/// Of a program that only reads: one scope, whose elements are elements of its one input, each of them inside
/// of it. x.T, x[:, 2:4], x.reshape(6, 2), x.expand(3, 4), and a copy of x are such.
bool only_reads(const Program& program);

/// Of a program whose output is a run of the one input's elements in row-major order: at which element it
/// begins. x[2:4] of x[8, 3] begins at 6. Proven by the simplifier, or, up to about a million elements, by
/// looking at each; otherwise there is none.
std::optional<std::int64_t> run_of(const Program& program);
/// Whether that is all of the input: x.reshape(6, 2) is.
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
