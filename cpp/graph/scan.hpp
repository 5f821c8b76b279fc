// graph/scan.hpp — running sums, products and logarithms of sums along an axis: in programs each of n
// elements is a sum of its own, n^2 / 2 terms; here each is the one before it and one more.
#pragma once

#include "graph/builtins.hpp"

namespace syno::graph {

/// What the row of `builtins()` consists of.
Operand scan_result(const std::vector<Operand>& inputs, std::string_view attributes);
BoundBuiltin scan_bind(const std::vector<Operand>& inputs, std::string_view attributes);
Values scan_interpret(const std::vector<Operand>& inputs, std::string_view attributes,
                      const std::vector<Values>& values);

}  // namespace syno::graph
