#include "synth/duplicates.hpp"

#include "lower/lower.hpp"

namespace syno::synth {

Hash128 OperatorKeys::operator()(const pgraph::CompleteGraph& graph) {
  const program::Program scope = lower::one_scope(graph);
  const pgraph::Signature& signature = graph.graph.signature();
  std::vector<program::UnorderedDim> unordered;
  const auto add = [&](std::string_view tensor, const std::vector<pgraph::Dim>& dims) {
    const auto id = scope.find_tensor(tensor);
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (id && dims[i].unordered) unordered.push_back({*id, i});
    }
  };
  add("y", signature.output);
  add("x", signature.input);
  return program::operator_key(scope, unordered, &cache_);
}

bool Novelty::is_new(const pgraph::CompleteGraph& graph, Hash128& key) {
  key = pgraph::hash_of(graph);
  if (!built_.insert(key).second) return false;
  if (!operator_keys_) return true;
  key = keys_(graph);
  return computed_.insert(key).second;
}

}  // namespace syno::synth
