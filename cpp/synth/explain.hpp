// synth/explain.hpp — how an operator comes about in the search: step by step, with what was pruned beside
// it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "pgraph/pgraph.hpp"
#include "synth/spec.hpp"

namespace syno::synth {

/// One partial operator on the way.
struct DerivationStep {
  std::string step;                   ///< the step that led here, as in the text form; empty at the output
  std::string removed_by;             ///< the rule or budget that forbids the step; empty when it is allowed
  std::vector<std::string> frontier;  ///< extents of the data coordinates
  int distance = 0;                   ///< least number of further steps; -1: the input is out of reach
  int steps_left = 0;
  std::size_t kept = 0;                       ///< steps that may follow here
  std::map<std::string, std::size_t> pruned;  ///< steps that may not, by rule, budget, `distance` or `order`
};

struct Derivation {
  std::vector<DerivationStep> steps;
  std::string finished_by;  ///< the rule or budget that refuses the finished operator; empty when it is kept
  bool legal = true;        ///< rules, budgets and distance allow every prefix and the whole
};

/// Replays `graph` on `spec`. SpecError when their signatures differ.
Derivation derivation(const Spec& spec, const pgraph::CompleteGraph& graph);
std::string to_text(const Derivation& derivation);

}  // namespace syno::synth
