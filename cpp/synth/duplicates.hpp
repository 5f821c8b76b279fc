// synth/duplicates.hpp — the key by which two finished operators are the same (design: operator equality).
#pragma once

#include <unordered_set>

#include "pgraph/pgraph.hpp"
#include "program/keys.hpp"

namespace syno::synth {

/// program::operator_key of an operator's one-scope form, with the channels its signature leaves unordered.
/// Remembers what operators have in common; one per thread.
class OperatorKeys {
 public:
  Hash128 operator()(const pgraph::CompleteGraph& graph);

 private:
  program::OperatorKeyCache cache_;
};

/// Tells new operators from known ones: first by how they are built, then by what they compute.
class Novelty {
 public:
  explicit Novelty(bool operator_keys) : operator_keys_(operator_keys) {}
  /// True the first time an operator is seen; `key` receives its key.
  bool is_new(const pgraph::CompleteGraph& graph, Hash128& key);

 private:
  bool operator_keys_;
  OperatorKeys keys_;
  std::unordered_set<Hash128, HashKey> built_;
  std::unordered_set<Hash128, HashKey> computed_;
};

}  // namespace syno::synth
