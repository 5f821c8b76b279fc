#include "synth/enumerate.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <unordered_set>

#include "support/error.hpp"
#include "support/thread_pool.hpp"
#include "synth/engine.hpp"

namespace syno::synth {
namespace {

/// Depth-first from one state; finds in the order of moves.
class Walk {
 public:
  Walk(Engine& engine, std::vector<Found>& found) : engine_(engine), found_(found) {}

  void from(const State& state, int steps_left) {
    engine_.completions(state, [&](const State& s, std::span<const std::uint8_t> position, const Work& work) {
      Found found{engine_.to_graph(s, position), work, {}, s.step_count};
      found.key = duplicate_key(found.graph);
      found_.push_back(std::move(found));
    });
    if (steps_left == 0) return;
    std::vector<Move> moves;
    engine_.moves(state, moves);
    State next;
    for (const Move& move : moves) {
      if (engine_.take(state, move, steps_left - 1, next) == kAccepted) from(next, steps_left - 1);
    }
  }

 private:
  Engine& engine_;
  std::vector<Found>& found_;
};

}  // namespace

SearchStatistics statistics_of(const Counters& counters, const std::vector<Found>& operators) {
  SearchStatistics statistics;
  statistics.children = counters.children;
  statistics.states = counters.states;
  statistics.finished = counters.finished;
  for (std::size_t r = 0; r < counters.rejected.size(); ++r) {
    if (counters.rejected[r] > 0) {
      statistics.rejected[std::string(name_of(static_cast<Reason>(r)))] = counters.rejected[r];
    }
  }
  for (const Found& op : operators) {
    const auto steps = static_cast<std::size_t>(op.steps);
    if (statistics.by_steps.size() <= steps) statistics.by_steps.resize(steps + 1);
    ++statistics.by_steps[steps];
  }
  return statistics;
}

Hash128 duplicate_key(const pgraph::CompleteGraph& graph) { return pgraph::hash_of(graph); }

Enumeration enumerate(const Spec& spec, const EnumerationOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const int max_steps = options.max_steps > 0 ? options.max_steps : spec.budgets.max_steps;
  Enumeration result;
  Engine engine(spec);
  std::vector<Found> found;
  Walk(engine, found).from(engine.root(), max_steps);
  std::unordered_set<Hash128, HashKey> seen;
  std::stable_sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.steps < b.steps; });
  for (Found& op : found) {
    if (seen.insert(op.key).second) result.operators.push_back(std::move(op));
  }
  result.statistics = statistics_of(engine.counters, result.operators);
  result.statistics.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace syno::synth
