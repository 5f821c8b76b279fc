// graph/scatter.hpp — rows written to places that are data: the reverse of gather.
#pragma once

#include "graph/builtins.hpp"

namespace syno::graph {

/// What the row of `builtins()` consists of.
Operand scatter_result(const std::vector<Operand>& inputs, std::string_view attributes);
BoundBuiltin scatter_bind(const std::vector<Operand>& inputs, std::string_view attributes);
Values scatter_interpret(const std::vector<Operand>& inputs, std::string_view attributes,
                         const std::vector<Values>& values);

}  // namespace syno::graph
