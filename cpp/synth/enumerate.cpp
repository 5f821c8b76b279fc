#include "synth/enumerate.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>

#include "support/thread_pool.hpp"
#include "synth/duplicates.hpp"
#include "synth/engine.hpp"

namespace syno::synth {
namespace {

/// Where a piece of the space begins, and in which order it was met.
struct Piece {
  std::vector<Move> path;
  std::vector<symbolic::Size> parameters;  ///< of the path; size numbers differ between engines
  std::vector<Found> found;                ///< in the order of the search
};

/// Depth-first, in the order of moves. States `cut` steps deep are left to others as pieces.
class Walk {
 public:
  Walk(Engine& engine, std::vector<Found>& found) : engine_(engine), found_(found) {}

  void from(const State& state, int steps_left) {
    engine_.completions(state, [&](const State& s, std::span<const std::uint8_t> position, const Work& work) {
      found_.push_back({engine_.to_graph(s, position), work, {}, s.step_count});
    });
    if (steps_left == 0) return;
    if (pieces_ != nullptr && state.step_count == cut_) {
      pieces_->push_back({path_, {}, {}});
      for (const Move& move : path_)
        pieces_->back().parameters.push_back(engine_.sizes()[move.parameter].size);
      return;
    }
    below(state, steps_left);
  }
  /// The state's descendants without the state itself.
  void below(const State& state, int steps_left) {
    std::vector<Move>& moves = moves_[state.step_count];
    engine_.moves(state, moves);
    State next;
    for (const Move& move : moves) {
      if (engine_.take(state, move, steps_left - 1, next) != kAccepted) continue;
      path_.push_back(move);
      from(next, steps_left - 1);
      path_.pop_back();
    }
  }
  void cut_at(int depth, std::vector<Piece>& pieces) {
    cut_ = depth;
    pieces_ = &pieces;
  }

 private:
  Engine& engine_;
  std::vector<Found>& found_;
  std::array<std::vector<Move>, kMaxSteps + 1> moves_;
  std::vector<Move> path_;
  int cut_ = -1;
  std::vector<Piece>* pieces_ = nullptr;
};

constexpr int kCut = 3;  ///< steps; deep enough for pieces that share out evenly

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

Enumeration enumerate(const Spec& spec, const EnumerationOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const int max_steps = options.max_steps > 0 ? options.max_steps : spec.budgets.max_steps;
  // One engine a thread; the first also walks the shallow part. Counters are sums, operators are put back in
  // the order of pieces, so that nothing depends on who did what.
  ThreadPool threads(static_cast<std::size_t>(std::max(options.threads, 1)));
  Engine shallow(spec);
  shallow.use_distance = options.shape_distance;
  std::vector<Found> found;
  std::vector<Piece> pieces;
  Walk walk(shallow, found);
  walk.cut_at(kCut, pieces);
  walk.from(shallow.root(), max_steps);
  Counters counters = shallow.counters;
  std::mutex mutex;
  std::vector<std::unique_ptr<Engine>> engines;
  threads.for_each(pieces.size(), [&](std::size_t i) {
    std::unique_ptr<Engine> engine;
    {
      const std::lock_guard lock(mutex);
      if (!engines.empty()) {
        engine = std::move(engines.back());
        engines.pop_back();
      }
    }
    if (!engine) {
      engine = std::make_unique<Engine>(spec);
      engine->use_distance = options.shape_distance;
    }
    State state = engine->root();
    for (std::size_t k = 0; k < pieces[i].path.size(); ++k) {
      Move move = pieces[i].path[k];
      move.parameter = engine->number_of(pieces[i].parameters[k]);
      State next;
      engine->apply(state, move, next);
      state = next;
    }
    std::vector<Found> all;
    Walk deep(*engine, all);
    deep.below(state, max_steps - state.step_count);
    pieces[i].found = std::move(all);
    const std::lock_guard lock(mutex);
    engines.push_back(std::move(engine));
  });
  for (const auto& engine : engines) counters.add(engine->counters);
  for (Piece& piece : pieces) {
    for (Found& op : piece.found) found.push_back(std::move(op));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Found& a, const Found& b) { return a.steps < b.steps; });
  Enumeration result;
  Novelty novelty(options.operator_keys);
  for (Found& op : found) {
    if (options.limit && result.operators.size() >= *options.limit) {
      result.statistics.truncated = true;
      break;
    }
    if (novelty.is_new(op.graph, op.key)) result.operators.push_back(std::move(op));
  }
  const bool truncated = result.statistics.truncated;
  result.statistics = statistics_of(counters, result.operators);
  result.statistics.truncated = truncated;
  result.statistics.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace syno::synth
