#include "synth/enumerate.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <utility>

#include "support/error.hpp"
#include "support/thread_pool.hpp"
#include "synth/checkpoint.hpp"
#include "synth/duplicates.hpp"
#include "synth/engine.hpp"

namespace syno::synth {
namespace {

/// Where a piece of the space begins, and in which order it was met.
struct Branch {
  std::vector<Move> path;
  std::vector<symbolic::Size> parameters;  ///< of the path; size numbers differ between engines
  std::vector<Found> found;                ///< in the order of the search
};

constexpr std::size_t kTick = 256;  ///< states between two looks at the memory limit and at signals

/// Depth-first, in the order of moves. States `cut` steps deep are left to others as branches.
class Walk {
 public:
  /// `tick` is called now and then.
  Walk(Engine& engine, std::vector<Found>& found, const std::function<void()>& tick)
      : engine_(engine), found_(found), tick_(tick) {}

  void from(const State& state, int steps_left) {
    std::optional<pgraph::PGraph> graph;  // one for all assignments
    engine_.completions(state, [&](const State& s, std::span<const std::uint8_t> position, const Work& work) {
      if (!graph) graph = engine_.to_graph(s);
      found_.push_back({engine_.to_graph(s, position, *graph), work, s.step_count});
    });
    if (steps_left == 0) return;
    if (branches_ != nullptr && state.step_count == cut_) {
      branches_->push_back({path_, {}, {}});
      for (const Move& move : path_)
        branches_->back().parameters.push_back(engine_.sizes()[move.parameter].size);
      return;
    }
    below(state, steps_left);
  }
  /// The state's descendants without the state itself.
  void below(const State& state, int steps_left) {
    if (++looked_ % kTick == 0) tick_();
    ended_ = ended_ || engine_.counters.children > most_children_;
    if (ended_) return;
    std::vector<Move>& moves = moves_[state.step_count];
    engine_.moves(state, moves, steps_left);
    State next;
    for (const Move& move : moves) {
      if (engine_.take(state, move, steps_left - 1, next) != kAccepted) continue;
      path_.push_back(move);
      from(next, steps_left - 1);
      path_.pop_back();
    }
  }
  /// Looks no further once the engine counts more steps than this.
  void end_at(std::uint64_t children) { most_children_ = children; }
  bool ended() const { return ended_; }
  /// `path` leads to where the walk begins.
  void cut_at(int depth, std::vector<Branch>& branches, std::vector<Move> path = {}) {
    cut_ = depth;
    branches_ = &branches;
    path_ = std::move(path);
  }

 private:
  Engine& engine_;
  std::vector<Found>& found_;
  const std::function<void()>& tick_;
  std::size_t looked_ = 0;
  std::uint64_t most_children_ = std::numeric_limits<std::uint64_t>::max();
  bool ended_ = false;
  std::array<std::vector<Move>, kMaxSteps + 1> moves_;
  std::vector<Move> path_;
  int cut_ = -1;
  std::vector<Branch>* branches_ = nullptr;
};

/// Steps. The first pieces only find the others, which are small enough to share out evenly.
constexpr int kFirstCut = 1;
constexpr int kSecondCut = 2;

/// Of operators that are built alike, then of those that compute the same, the first. Threads make the keys.
std::vector<Found> distinct(std::vector<Found> found, bool operator_keys, ThreadPool& threads) {
  constexpr std::size_t kTogether = 64;
  std::vector<Hash128> keys(found.size());
  const auto keep_first = [&] {
    std::unordered_set<Hash128, HashKey> seen;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (!seen.insert(keys[i]).second) continue;
      if (kept != i) found[kept] = std::move(found[i]);
      ++kept;
    }
    found.erase(found.begin() + static_cast<std::ptrdiff_t>(kept), found.end());
    keys.resize(kept);
  };
  const auto for_pieces = [&](const std::function<void(std::size_t, std::size_t)>& piece) {
    threads.for_each((found.size() + kTogether - 1) / kTogether, [&](std::size_t i) {
      piece(i * kTogether, std::min((i + 1) * kTogether, found.size()));
    });
  };
  for_pieces([&](std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) keys[i] = pgraph::hash_of(found[i].graph);
  });
  keep_first();
  if (!operator_keys) return found;
  std::mutex mutex;
  std::vector<OperatorKeys> idle;
  for_pieces([&](std::size_t from, std::size_t to) {
    OperatorKeys key_of;
    {
      const std::lock_guard lock(mutex);
      if (!idle.empty()) {
        key_of = std::move(idle.back());
        idle.pop_back();
      }
    }
    for (std::size_t i = from; i < to; ++i) keys[i] = key_of(found[i].graph);
    const std::lock_guard lock(mutex);
    idle.push_back(std::move(key_of));
  });
  keep_first();
  return found;
}

/// An estimate of what operators hold: steps, coordinates, and each its signature.
std::size_t bytes_of(const std::vector<Found>& found) {
  std::size_t bytes = found.capacity() * sizeof(Found);
  for (const Found& op : found) {
    const pgraph::PGraph& graph = op.graph.graph;
    const auto& sizes = graph.signature().sizes;
    bytes += graph.steps().size() * (sizeof(pgraph::Step) + 64) +
             graph.coordinate_count() * (sizeof(pgraph::Coordinate) + 8) +
             sizes.valuation_count() * sizes.variables().size() * sizeof(std::int64_t) + 512;
  }
  return bytes;
}

/// Differs where another search would cut the space into other branches.
Hash128 fingerprint_of(const symbolic::Sizes& sizes, const std::vector<Branch>& branches,
                       const Counters& shallow) {
  Hasher hasher;
  for (const Rule& rule : rules()) hasher.add(rule.name);
  for (const std::uint64_t count : shallow.rejected) hasher.add(count);
  for (const Branch& branch : branches) {
    for (std::size_t k = 0; k < branch.path.size(); ++k) {
      const Move& move = branch.path[k];
      hasher.add(move.primitive).add(move.i).add(move.j).add(move.amount).add(move.inner).add(move.outer);
      hasher.add(move.source).add(sizes.to_text(branch.parameters[k]));
    }
  }
  return hasher.finish();
}

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
  // the order of branches, so that nothing depends on who did what.
  ThreadPool threads(static_cast<std::size_t>(std::max(options.threads, 1)));
  auto first = std::make_unique<Engine>(spec);
  Engine& shallow = *first;
  shallow.use_distance = options.shape_distance;
  std::vector<Found> found;
  std::vector<Branch> branches;
  // What the threads hold together; each adds what it holds more since it last looked.
  std::atomic<std::size_t> held = 0;
  std::atomic<std::size_t> met = 0;
  const auto hold = [&](const std::vector<Found>& more) {
    if (options.memory_limit != 0) held += bytes_of(more);
  };
  const auto check_memory = [&] {
    if (options.memory_limit == 0 || held <= options.memory_limit) return;
    fail<SpecError>(
        "spec",
        "all operators of at most {} steps of '{}' need more than the memory limit of {:.0f} MB ({} "
        "met so far); raise the limit, or look for at most {} steps",
        max_steps, spec.name, static_cast<double>(options.memory_limit) / 1e6, met.load(),
        std::max(max_steps - 1, 1));
  };
  struct Worker {
    std::unique_ptr<Engine> engine;
    std::size_t bytes = 0;
  };
  // Weighing what was found takes as long as it is large: only where there is a limit.
  const auto weigh = [&](Worker& worker) {
    if (options.memory_limit == 0) return;
    const std::size_t bytes = worker.engine->bytes();
    held += bytes - worker.bytes;
    worker.bytes = bytes;
  };
  const std::thread::id caller = std::this_thread::get_id();
  const auto poll = [&] {
    if (options.poll && std::this_thread::get_id() == caller) options.poll();
  };
  std::vector<Worker> workers;
  workers.push_back({std::move(first), 0});
  const std::function<void()> look = [&] {
    weigh(workers.front());
    check_memory();
    poll();
  };
  std::atomic<bool> ended = false;
  const auto children_left = [&](std::uint64_t so_far) {
    if (options.most_children == 0) return std::numeric_limits<std::uint64_t>::max();
    return options.most_children - std::min(options.most_children, so_far);
  };
  Walk walk(shallow, found, look);
  walk.cut_at(kFirstCut, branches);
  walk.end_at(children_left(0));
  walk.from(shallow.root(), max_steps);
  ended = walk.ended();
  met += found.size();
  hold(found);
  look();
  Counters counters = std::exchange(shallow.counters, Counters());
  std::optional<Checkpoint> checkpoint;
  std::mutex mutex;
  // A branch with all below it, or down to a cut.
  const auto explore = [&](Branch& branch, std::vector<Branch>* finer) {
    Worker worker;
    std::uint64_t left = 0;
    {
      const std::lock_guard lock(mutex);
      if (options.most_children != 0 && counters.children > options.most_children) {
        ended = true;
        return;
      }
      left = children_left(counters.children);
      if (!workers.empty()) {
        worker = std::move(workers.back());
        workers.pop_back();
      }
    }
    if (!worker.engine) {
      worker.engine = std::make_unique<Engine>(spec);
      worker.engine->use_distance = options.shape_distance;
    }
    Engine& engine = *worker.engine;
    State state = engine.root();
    for (std::size_t k = 0; k < branch.path.size(); ++k) {
      Move& move = branch.path[k];
      move.parameter = engine.number_of(branch.parameters[k]);
      State next;
      engine.apply(state, move, next);
      state = next;
    }
    Checkpoint::Branch done;
    std::size_t weighed = 0;  // of what this branch found
    const std::function<void()> tick = [&] {
      weigh(worker);
      if (options.memory_limit != 0) {
        const std::size_t bytes = bytes_of(done.found);
        held += bytes - weighed;
        weighed = bytes;
      }
      check_memory();
      poll();
    };
    Walk deep(engine, done.found, tick);
    deep.end_at(left);
    if (finer != nullptr) deep.cut_at(kSecondCut, *finer, branch.path);
    deep.below(state, max_steps - state.step_count);
    tick();
    met += done.found.size();
    done.counters = std::exchange(engine.counters, Counters());
    if (deep.ended()) ended = true;
    if (checkpoint && !deep.ended()) {
      done.number = static_cast<std::size_t>(&branch - branches.data());
      checkpoint->append(done);
    }
    branch.found = std::move(done.found);
    const std::lock_guard lock(mutex);
    counters.add(done.counters);
    workers.push_back(std::move(worker));
  };
  std::vector<std::vector<Branch>> finer(branches.size());
  threads.for_each(branches.size(), [&](std::size_t i) { explore(branches[i], &finer[i]); });
  const std::size_t coarse = branches.size();
  for (std::vector<Branch>& below : finer) std::ranges::move(below, std::back_inserter(branches));
  finer.clear();
  std::vector<bool> finished(branches.size());
  if (!options.checkpoint.empty()) {
    checkpoint.emplace(
        options.checkpoint, spec,
        Checkpoint::Space{.max_steps = max_steps,
                          .shape_distance = options.shape_distance,
                          .branches = branches.size(),
                          .fingerprint = fingerprint_of(spec.signature.sizes, branches, counters)});
    for (Checkpoint::Branch& branch : checkpoint->take_finished()) {
      finished[branch.number] = true;
      counters.add(branch.counters);
      met += branch.found.size();
      hold(branch.found);
      branches[branch.number].found = std::move(branch.found);
    }
    check_memory();
  }
  threads.for_each(branches.size() - coarse, [&](std::size_t i) {
    if (!finished[coarse + i]) explore(branches[coarse + i], nullptr);
  });
  workers.clear();
  for (Branch& branch : branches) {
    for (Found& op : branch.found) found.push_back(std::move(op));
  }
  branches.clear();
  std::stable_sort(found.begin(), found.end(),
                   [](const Found& a, const Found& b) { return a.steps < b.steps; });
  Enumeration result;
  if (options.limit) {
    Novelty novelty(options.operator_keys);
    for (Found& op : found) {
      if (result.operators.size() >= *options.limit) {
        result.statistics.truncated = true;
        break;
      }
      if (novelty.is_new(op.graph)) result.operators.push_back(std::move(op));
    }
  } else {
    result.operators = distinct(std::move(found), options.operator_keys, threads);
  }
  const bool truncated = result.statistics.truncated || ended;
  result.statistics = statistics_of(counters, result.operators);
  result.statistics.truncated = truncated;
  result.statistics.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace syno::synth
