#include "graph/rebuild.hpp"

#include "support/error.hpp"

namespace syno::graph {

Rebuilt::Rebuilt(const Graph& from) : graph(from.name), from_(from), places_(from.tensors().size()) {
  for (std::size_t t = 0; t < from.tensors().size(); ++t) {
    const Tensor& tensor = from.tensors()[t];
    const auto old = static_cast<TensorId>(t);
    if (tensor.role == Role::Input) stands_for(old, graph.add_input(tensor.name, tensor.shape, tensor.type));
    if (tensor.role == Role::Weight)
      stands_for(old, graph.add_weight(tensor.name, tensor.shape, tensor.type));
  }
}

TensorId Rebuilt::at(TensorId old_tensor) const {
  const auto& place = places_[static_cast<std::size_t>(old_tensor)];
  SYNO_ASSERT(place.has_value(), "what is read stands before its readers");
  return *place;
}

void Rebuilt::stands_for(TensorId old_tensor, TensorId new_tensor) {
  places_[static_cast<std::size_t>(old_tensor)] = new_tensor;
  // What is the same tensor under the same name lies as it did.
  const Tensor &was = from_.tensor(old_tensor), &now = graph.tensor(new_tensor);
  if (was.name == now.name && was.shape == now.shape && !was.layout.empty())
    graph.set_layout(new_tensor, was.layout, was.elements);
}

void Rebuilt::keep(std::size_t node) { keep(node, from_.nodes()[node].inputs); }

void Rebuilt::keep(std::size_t node, const std::vector<TensorId>& old_inputs) {
  const Node& old = from_.nodes()[node];
  std::vector<TensorId> inputs;
  for (const TensorId input : old_inputs) inputs.push_back(at(input));
  std::size_t made = 0;
  if (old.is_call()) {
    std::vector<Tensor> results;
    for (const TensorId output : old.outputs) results.push_back(from_.tensor(output));
    made = graph.add_call(old.name, old.function, old.attributes, std::move(inputs), std::move(results));
  } else {
    std::vector<std::string> names;
    for (const TensorId output : old.outputs) names.push_back(from_.tensor(output).name);
    made = graph.add_program(old.name, old.program, std::move(inputs), names, type_of(from_, old));
  }
  for (std::size_t i = 0; i < old.outputs.size(); ++i)
    stands_for(old.outputs[i], graph.nodes()[made].outputs[i]);
}

Graph Rebuilt::finish() {
  for (const TensorId output : from_.outputs) graph.outputs.push_back(at(output));
  return std::move(graph);
}

}  // namespace syno::graph
