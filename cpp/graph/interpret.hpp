// graph/interpret.hpp — the reference meaning of graphs: slow, in double precision, the oracle of what is
// done to them.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "graph/builtins.hpp"
#include "graph/graph.hpp"

namespace syno::graph {

/// What a call computes of the values of its inputs: one for each output.
using CallFunction = std::function<std::vector<Values>(const Node& node, const std::vector<Values>& inputs)>;

/// The outputs, by name, of inputs and weights by theirs. Built-ins run by themselves, other calls by `call`;
/// KernelError where there is none. ShapeError where a value is missing or of another shape. Types do not
/// round: programs compute in double precision whatever theirs is.
std::map<std::string, Values> interpret(const Graph& graph, const std::map<std::string, Values>& given,
                                        const CallFunction& call = {});

}  // namespace syno::graph
