// graph/sample.hpp — tensors sampled at places between their elements: in programs, whose indices depend on
// no data, each neighbour of each place would be a gather of its own.
#pragma once

#include "graph/builtins.hpp"

namespace syno::graph {

/// What the row of `builtins()` consists of.
Operand sample_result(const std::vector<Operand>& inputs, std::string_view attributes);
BoundBuiltin sample_bind(const std::vector<Operand>& inputs, std::string_view attributes);
Values sample_interpret(const std::vector<Operand>& inputs, std::string_view attributes,
                        const std::vector<Values>& values);

}  // namespace syno::graph
