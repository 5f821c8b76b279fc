// synth/explain.hpp — how an operator comes about in the search: step by step, with what was pruned beside
// it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "pgraph/pgraph.hpp"
#include "synth/spec.hpp"

namespace syno::synth {

/// A step that could be thought of at a partial operator, and what became of it.
struct Neighbour {
  std::string step;       ///< as in the text form
  std::string pruned_by;  ///< rule, budget, `distance` or `order`; empty: it may follow
  std::string why;        ///< a sentence with the values; empty when it may follow
  int distance = 0;       ///< least number of steps after it; -1: the input is out of reach
  bool taken = false;     ///< the operator goes on with it
};

/// One partial operator on the way.
struct DerivationStep {
  std::string step;                   ///< the step that led here, as in the text form; empty at the output
  std::string removed_by;             ///< the rule or budget that forbids the step; empty when it is allowed
  std::vector<std::string> frontier;  ///< extents of the data coordinates
  int distance = 0;                   ///< least number of further steps; -1: the input is out of reach
  int steps_left = 0;
  std::size_t kept = 0;                       ///< steps that may follow here
  std::map<std::string, std::size_t> pruned;  ///< steps that may not, by rule, budget, `distance` or `order`
  std::vector<Neighbour> neighbours;  ///< in the order of the search, so many of each kind as asked for
};

struct Derivation {
  std::vector<DerivationStep> steps;
  std::string finished_by;  ///< the rule or budget that refuses the finished operator; empty when it is kept
  bool legal = true;        ///< rules, budgets and distance allow every prefix and the whole
};

/// Replays `graph` on `spec`; beside every step at most `examples` neighbours that may follow, and so many of
/// each reason to prune one. SpecError when the signatures differ.
Derivation derivation(const Spec& spec, const pgraph::CompleteGraph& graph, std::size_t examples = 0);
std::string to_text(const Derivation& derivation);

}  // namespace syno::synth
