#include "synth/duplicates.hpp"

#include "lower/operator_key.hpp"

namespace syno::synth {

Hash128 OperatorKeys::operator()(const pgraph::CompleteGraph& graph) {
  return lower::operator_key(graph, cache_);
}

bool Novelty::is_new(const pgraph::CompleteGraph& graph) {
  if (!built_.insert(pgraph::hash_of(graph)).second) return false;
  return !operator_keys_ || computed_.insert(keys_(graph)).second;
}

}  // namespace syno::synth
