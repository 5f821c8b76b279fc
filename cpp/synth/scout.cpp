#include "synth/scout.hpp"

#include <utility>

namespace syno::synth {

std::vector<Found> scout(const Spec& spec, int max_steps, std::size_t enough) {
  constexpr std::uint64_t kAffordable = 5'000;  // states; one step more means a few times as many
  std::vector<Found> found;
  for (int depth = 1; depth <= max_steps; ++depth) {
    EnumerationOptions options;
    options.max_steps = depth;
    options.operator_keys = false;
    Enumeration all = enumerate(spec, options);
    found = std::move(all.operators);
    if (found.size() >= enough || all.statistics.states > kAffordable) break;
  }
  return found;
}

State prefix(Engine& engine, const pgraph::PGraph& graph, std::size_t steps) {
  State state = engine.root();
  std::vector<Coordinate> coordinates = engine.root_coordinates(state);
  State next;
  for (std::size_t t = 0; t < steps; ++t) {
    engine.apply(state, engine.move_for(state, graph.steps()[t], coordinates), next);
    Engine::record_results(next, coordinates);
    std::swap(state, next);
  }
  return state;
}

}  // namespace syno::synth
