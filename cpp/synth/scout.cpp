#include "synth/scout.hpp"

#include <algorithm>
#include <bit>
#include <optional>
#include <set>
#include <utility>

#include "pgraph/named.hpp"
#include "support/error.hpp"

namespace syno::synth {
namespace {

using pgraph::CoordinateId;
using pgraph::Primitive;
using pgraph::Step;

template <class List>
bool holds(const List& list, CoordinateId id) {
  return std::find(list.begin(), list.end(), id) != list.end();
}

/// The step `later` of a graph needs what the earlier one made, or what it left of a coordinate. Weights
/// share in any order.
bool depends(const Step& later, const Step& earlier, const std::vector<CoordinateId>& made) {
  const auto one = [&](CoordinateId id) { return holds(later.operands, id) || holds(later.matched, id); };
  if (std::any_of(made.begin(), made.end(), one)) return true;
  const bool weights =
      later.primitive == Primitive::Contraction && earlier.primitive == Primitive::Contraction;
  for (const CoordinateId id : earlier.operands) {
    if (holds(later.matched, id) || (!weights && holds(later.operands, id))) return true;
  }
  return std::any_of(earlier.matched.begin(), earlier.matched.end(), one);
}

/// An operator with its steps in the order of the search; nothing when the space has no such operator.
std::optional<Found> in_search_order(Engine& engine, const pgraph::CompleteGraph& graph, int max_steps) {
  const auto& steps = graph.graph.steps();
  if (steps.size() > static_cast<std::size_t>(max_steps)) return std::nullopt;
  State state = engine.root();
  std::vector<Coordinate> coordinates = engine.root_coordinates(state);
  coordinates.resize(graph.graph.coordinate_count());
  std::vector<bool> done(steps.size());
  std::vector<Move> moves;
  for (std::size_t taken = 0; taken < steps.size(); ++taken) {
    std::optional<std::size_t> chosen;
    Move least;
    for (std::size_t t = 0; t < steps.size(); ++t) {
      bool ready = !done[t];
      for (std::size_t u = 0; u < t && ready; ++u)
        ready = done[u] || !depends(steps[t], steps[u], graph.graph.results_of(u));
      if (!ready) continue;
      const Move move = engine.move_for(state, steps[t], coordinates);
      const auto rank = [&](const Move& m) {
        return std::pair(engine.letter_key(state, m), m.primitive == Primitive::Reduce ? m.parameter : 0);
      };
      if (chosen && rank(least) <= rank(move)) continue;
      chosen = t;
      least = move;
    }
    State next;
    const int left = max_steps - state.step_count - 1;
    if (!chosen) return std::nullopt;
    engine.moves(state, moves);
    if (std::find(moves.begin(), moves.end(), least) == moves.end()) return std::nullopt;
    if (engine.take(state, least, left, next) != kAccepted) return std::nullopt;
    std::vector<Coordinate> made;
    Engine::record_results(next, made);
    const auto results = graph.graph.results_of(*chosen);
    for (std::size_t r = 0; r < results.size() && r < made.size(); ++r)
      coordinates[static_cast<std::uint32_t>(results[r])] = made[r];
    done[*chosen] = true;
    state = next;
  }
  std::optional<Found> found;
  engine.completions(state, [&](const State& s, std::span<const std::uint8_t> position, const Work& work) {
    if (!found) found = Found{engine.to_graph(s, position), work, s.step_count};
  });
  return found;
}

/// 0 where roles cannot be told.
std::size_t spatial_dimensions(const pgraph::Signature& signature) {
  try {
    return pgraph::roles_of(signature).spatial.size();
  } catch (const SpecError&) {
    return 0;
  }
}

}  // namespace

std::vector<Found> known_operators(const Spec& spec, int max_steps) {
  std::vector<Size> sizes;
  const auto& variables = spec.signature.sizes.variables();
  for (std::size_t v = 0; v < variables.size(); ++v) {
    if (variables[v].kind == symbolic::VariableKind::Coefficient)
      sizes.push_back(spec.signature.sizes.parse(variables[v].name));
  }
  sizes.emplace_back();
  Engine engine(spec);
  std::vector<Found> found;
  std::set<Hash128> seen;
  const auto find_with = [&](pgraph::NamedParameters parameters) {
    for (const pgraph::NamedOperator& known : pgraph::named_operators()) {
      try {
        const pgraph::CompleteGraph graph = known.build(spec.signature, parameters);
        if (!seen.insert(pgraph::hash_of(graph)).second) continue;
        if (auto here = in_search_order(engine, graph, max_steps)) found.push_back(std::move(*here));
      } catch (const Error&) {
        continue;  // these sizes do not fit
      }
    }
  };
  const auto find_windowed = [&](std::uint32_t windowed) {
    for (const Size& kernel : sizes) {
      for (const Size& groups : sizes) {
        for (const Size& shrink : sizes) {
          pgraph::NamedParameters parameters;
          parameters.kernel = kernel;
          parameters.groups = groups;
          parameters.shrink = parameters.dilation = parameters.block = shrink;
          parameters.windowed = windowed;
          find_with(parameters);
        }
      }
    }
  };
  find_windowed(~std::uint32_t{0});
  // Where layers are too small for a window along one dimension, windows along the others.
  const std::size_t spatial = spatial_dimensions(spec.signature);
  for (std::size_t fewer = 1; found.empty() && fewer < spatial; ++fewer)
    for (std::uint32_t windowed = 0; windowed < std::uint32_t{1} << spatial; ++windowed)
      if (std::popcount(windowed) == static_cast<int>(spatial - fewer)) find_windowed(windowed);
  return found;
}

std::vector<Found> scout(const Spec& spec, int max_steps, std::size_t enough, std::uint64_t affordable) {
  std::vector<Found> found;
  std::uint64_t before = 0;
  for (int depth = 1; depth <= max_steps; ++depth) {
    EnumerationOptions options;
    options.max_steps = depth;
    options.operator_keys = false;
    options.most_children = affordable;
    Enumeration all = enumerate(spec, options);
    const std::uint64_t children = all.statistics.children;
    // What ends in the middle holds what begins with the first steps only.
    if (!all.statistics.truncated || found.empty()) found = std::move(all.operators);
    const bool grows = before > 0 && children * children / before > affordable;
    if (found.size() >= enough || all.statistics.truncated || (grows && !found.empty())) break;
    before = children;
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
