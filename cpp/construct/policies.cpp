#include "construct/policies.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "support/error.hpp"

namespace syno::construct {

namespace {

using Edges = std::vector<EtirGraph::Edge>;

/// Recording probability, with T0 = 1 (paper, Algorithm 1).
double record_probability(int iteration) {
  const double log_temperature = -static_cast<double>(iteration) * std::log(2.0);
  return 1 - 1 / (1 + std::exp(-0.5 * (-log_temperature - 10)));
}

std::size_t roulette(const Edges& edges, double total, Random& random) {
  double ball = random.unit() * total;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    ball -= edges[i].benefit;
    if (ball < 0) return i;
  }
  return edges.size() - 1;
}

/// A walk along the edges, each with a probability that is its share of the benefits.
Walked walk(const EtirGraph& graph, const WalkOptions& options, Random random, bool uniform) {
  Walked made;
  Etir state = graph.start();
  for (int t = 0; t < options.iterations; ++t) {
    Edges edges = graph.edges(state, t, options.annealing);
    if (uniform)
      for (auto& edge : edges) edge.benefit = 1;
    double total = 0;
    for (const auto& edge : edges) total += edge.benefit;
    if (edges.empty() || !(total > 0)) break;
    const auto& edge = edges[roulette(edges, total, random)];
    state = graph.apply(state, edge.action);
    if (options.explain) made.taken.push_back({edge.action, edge.benefit, edge.benefit / total, state});
    const bool recorded = options.record_all || random.unit() < record_probability(t);
    if (recorded && state.level == 0 && graph.fits(state, 0))
      made.states.push_back({state, static_cast<std::size_t>(t) + 1});
  }
  return made;
}

Walked walk_graph(const EtirGraph& graph, const WalkOptions& options, Random random) {
  return walk(graph, options, random, false);
}

Walked walk_uniform(const EtirGraph& graph, const WalkOptions& options, Random random) {
  return walk(graph, options, random, true);
}

/// Roller's order: registers first, then each cache outwards; the action that saves most traffic, until
/// nothing that fits saves any; what was decided stays. The states on the way are proposed, too, the last one
/// first.
Walked walk_tree(const EtirGraph& graph, const WalkOptions&, Random) {
  constexpr std::size_t kMostSteps = 1000;
  Walked made;
  Etir state = graph.start();
  const auto propose = [&](std::size_t steps) {
    Etir built = state;
    built.level = 0;
    if (graph.fits(built, 0)) made.states.push_back({built, steps});
  };
  std::size_t t = 0;
  for (std::size_t level = 0; level < graph.levels(); ++level) {
    state.level = level;
    for (; t < kMostSteps; ++t) {
      const auto edges = graph.edges(state, 0, false);
      const EtirGraph::Edge* best = nullptr;
      double best_saving = 1 + 1e-9;
      for (const auto& edge : edges) {
        if (edge.action.kind != ActionKind::Tile) continue;
        const double saving =
            graph.traffic(state, level) / graph.traffic(graph.apply(state, edge.action), level);
        if (saving <= best_saving) continue;
        best = &edge;
        best_saving = saving;
      }
      if (best == nullptr) break;
      state = graph.apply(state, best->action);
      made.taken.push_back({best->action, best_saving, 1, state});
      propose(t + 1);
    }
  }
  if (made.states.empty()) propose(t);
  std::reverse(made.states.begin(), made.states.end());
  return made;
}

Walked enumerate(const EtirGraph& graph, const WalkOptions& options, Random) {
  Walked made;
  for (Etir& state : graph.all(options.budget)) made.states.push_back({std::move(state), 0});
  return made;
}

constexpr std::array kPolicies = {
    PolicyRow{"graph", "Gensor: a random walk led by benefits, with a way back", true, true, true,
              walk_graph},
    PolicyRow{"tree", "as Roller: the action that saves most traffic, again and again, no way back", false,
              false, false, walk_tree},
    PolicyRow{"uniform", "a random walk along the same edges, all equally probable", true, true, true,
              walk_uniform},
    PolicyRow{"all", "every state that can be built, up to a budget", true, true, false, enumerate},
    PolicyRow{"counted", "no construction: the strategies' own count of cycles", true, true, false, nullptr},
};

}  // namespace

std::span<const PolicyRow> policies() { return kPolicies; }

const PolicyRow& policy_named(std::string_view name) {
  std::vector<std::string> valid;
  for (const PolicyRow& row : kPolicies) {
    if (row.name == name) return row;
    valid.emplace_back(row.name);
  }
  fail<UnknownName>("construct", "{}", unknown_name("policy", std::string(name), valid));
}

}  // namespace syno::construct
