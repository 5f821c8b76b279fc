// synth/duplicates.hpp — tells new operators from known ones.
#pragma once

#include <unordered_set>

#include "equality/keys.hpp"
#include "pgraph/pgraph.hpp"

namespace syno::synth {

/// lower::operator_key with its cache; one per thread.
class OperatorKeys {
 public:
  Hash128 operator()(const pgraph::CompleteGraph& graph);

 private:
  equality::OperatorKeyCache cache_;
};

/// Tells new operators from known ones: by how they are built; then by what they compute.
class Novelty {
 public:
  /// `operator_keys` false: only by how they are built.
  explicit Novelty(bool operator_keys) : operator_keys_(operator_keys) {}
  /// True the first time an operator is seen.
  bool is_new(const pgraph::CompleteGraph& graph);
  /// True where is_new() was asked of an operator that is built like this one.
  bool is_known(const pgraph::CompleteGraph& graph) const { return built_.contains(pgraph::hash_of(graph)); }

 private:
  bool operator_keys_;
  OperatorKeys keys_;
  std::unordered_set<Hash128, HashKey> built_;
  std::unordered_set<Hash128, HashKey> computed_;
};

}  // namespace syno::synth
