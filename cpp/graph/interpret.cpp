#include "graph/interpret.hpp"

#include "support/error.hpp"
#include "support/shown.hpp"

namespace syno::graph {

namespace {

constexpr std::string_view kInterpret = "interpret";

void require_shape(const Tensor& tensor, const Values& value) {
  if (value.shape != tensor.shape ||
      static_cast<std::int64_t>(value.data.size()) != program::checked_product(kInterpret, tensor.shape))
    fail<ShapeError>(kInterpret, "'{}' has shape [{}], but the value has shape [{}] and {} elements",
                     shown(tensor.name), fmt::join(tensor.shape, ", "), fmt::join(value.shape, ", "),
                     value.data.size());
}

std::vector<Values> of_program(const Program& program, const std::vector<Values>& inputs) {
  std::map<std::string, Values> named;
  const auto ids = program.inputs();
  for (std::size_t i = 0; i < ids.size(); ++i) named.emplace(program.tensor(ids[i]).name, inputs[i]);
  auto made = program::interpret(program, named);
  std::vector<Values> results;
  for (const program::TensorId output : program.outputs)
    results.push_back(made.at(program.tensor(output).name));
  return results;
}

std::vector<Values> of_call(const Graph& graph, const Node& node, const std::vector<Values>& inputs,
                            const CallFunction& call) {
  if (const Builtin* builtin = find_builtin(node.function)) {
    std::vector<Operand> operands;
    for (const TensorId input : node.inputs)
      operands.push_back({graph.tensor(input).type, graph.tensor(input).shape});
    return {builtin->interpret(operands, node.attributes, inputs)};
  }
  if (!call)
    fail<KernelError>(kInterpret, "call '{}' of \"{}\" needs a host; pass the function that runs it",
                      shown(node.name), shown(node.function));
  return call(node, inputs);
}

}  // namespace

std::map<std::string, Values> interpret(const Graph& graph, const std::map<std::string, Values>& given,
                                        const CallFunction& call) {
  std::vector<Values> values(graph.tensors().size());
  for (std::size_t t = 0; t < values.size(); ++t) {
    const Tensor& tensor = graph.tensors()[t];
    if (tensor.role == Role::Computed) continue;
    const auto found = given.find(tensor.name);
    if (found == given.end()) fail<ShapeError>(kInterpret, "no value is given for '{}'", shown(tensor.name));
    require_shape(tensor, found->second);
    values[t] = found->second;
  }
  for (const Node& node : graph.nodes()) {
    std::vector<Values> inputs;
    for (const TensorId input : node.inputs) inputs.push_back(values[static_cast<std::size_t>(input)]);
    std::vector<Values> results =
        node.is_call() ? of_call(graph, node, inputs, call) : of_program(node.program->program, inputs);
    if (results.size() != node.outputs.size())
      fail<ShapeError>(kInterpret, "call '{}' gives {} values for its {} outputs", shown(node.name),
                       results.size(), node.outputs.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      require_shape(graph.tensor(node.outputs[i]), results[i]);
      values[static_cast<std::size_t>(node.outputs[i])] = std::move(results[i]);
    }
  }
  std::map<std::string, Values> outputs;
  for (const TensorId output : graph.outputs)
    outputs.emplace(graph.tensor(output).name, values[static_cast<std::size_t>(output)]);
  return outputs;
}

}  // namespace syno::graph
