#include "synth/sample.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>

#include "support/error.hpp"
#include "support/thread_pool.hpp"
#include "synth/duplicates.hpp"
#include "synth/scout.hpp"
#include "synth/walk.hpp"

namespace syno::synth {
namespace {

constexpr std::size_t kDraws = 64;  ///< draws between two looks at the results; independent of the threads
constexpr std::uint64_t kScouted = 500;  ///< steps to look at for each operator wanted, before any walk
constexpr std::size_t kRestart =
    24;  ///< states; the unit of patience of one walk: one straight to an operator has fewer

/// 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 …: within a logarithmic factor of the best restarts, whatever the
/// distribution of a walk's length (Luby, Sinclair, Zuckerman 1993). `i` counts from 1.
std::size_t luby(std::size_t i) {
  for (;;) {
    const std::size_t power = std::bit_floor(i + 1);
    if (power == i + 1) return power / 2;
    i -= power - 1;
  }
}

struct Searcher {
  explicit Searcher(const Spec& spec) : engine(spec), walker(engine) {}
  Engine engine;
  Walker walker;
};

/// Searchers are built once and handed to whichever thread asks: what they memoise never changes an answer.
class SearcherStore {
 public:
  explicit SearcherStore(const Spec& spec) : spec_(spec) {}
  std::unique_ptr<Searcher> borrow() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Searcher>(spec_);
    auto searcher = std::move(free_.back());
    free_.pop_back();
    return searcher;
  }
  void give_back(std::unique_ptr<Searcher> searcher) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(searcher));
  }
  Counters counters() const {
    Counters total;
    for (const auto& searcher : free_) total.add(searcher->engine.counters);
    return total;
  }

 private:
  const Spec& spec_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Searcher>> free_;
};

/// How far an operator is to be drawn, and from where.
struct Aim {
  int steps = 0;  ///< of the operator
  const Found* origin = nullptr;
  int kept = 0;  ///< of the origin's steps
  std::size_t patience = 0;
};

struct Draw {
  std::optional<Found> found;
  std::vector<Barren> learnt;
  std::size_t looked = 0;
};

/// Shares the search out among pairs of a number of steps and of how many of them are taken from a known
/// operator: few means new regions, most of them barren; many means sure neighbours of what is known.
class Aims {
 public:
  Aims(int min_steps, int max_steps, std::vector<Found> known)
      : min_steps_(min_steps), max_steps_(max_steps), longer_than_(max_steps + 1) {
    for (Found& found : known) add(std::move(found));
  }
  void add(Found found) {
    known_.push_back(std::move(found));
    const Found* origin = &known_.back();
    std::uint32_t kind = 0;
    for (const pgraph::Step& step : origin->graph.graph.steps())
      kind |= 1U << static_cast<unsigned>(step.primitive);
    for (int kept = 1; kept <= std::min(origin->steps, max_steps_); ++kept)
      longer_than_[kept][kind].push_back(origin);
  }
  /// Nothing is left of this number of steps.
  void close(int steps) { closed_[steps] = true; }
  bool all_closed() const {
    for (int steps = min_steps_; steps <= max_steps_; ++steps) {
      if (!closed_[steps]) return false;
    }
    return true;
  }
  /// Some number of steps has to be open.
  Aim draw(Random& random) {
    const auto each_pair = [&](auto&& visit) {
      for (int steps = min_steps_; steps <= max_steps_; ++steps) {
        if (closed_[steps]) continue;
        visit(steps, 0);
        for (int kept = 1; kept <= steps && !longer_than_[kept].empty(); ++kept) visit(steps, kept);
      }
    };
    // As likely as a draw is cheap.
    const auto weight = [&](const Effort& effort) {
      return static_cast<double>(effort.draws + 1) / static_cast<double>(effort.looked + 1);
    };
    double total = 0;
    each_pair([&](int steps, int kept) { total += weight(effort_[steps][kept]); });
    double rest = random.unit() * total;
    Aim aim;
    each_pair([&](int steps, int kept) {
      if (rest < 0) return;
      rest -= weight(effort_[steps][kept]);
      aim.steps = steps;
      aim.kept = kept;
    });
    if (aim.kept > 0) {
      const auto& kinds = longer_than_[aim.kept];
      const auto& origins =
          std::next(kinds.begin(), static_cast<std::ptrdiff_t>(random.below(kinds.size())))->second;
      aim.origin = origins[random.below(origins.size())];
    }
    aim.patience = kRestart * luby(++effort_[aim.steps][aim.kept].draws);
    return aim;
  }
  void account(const Aim& aim, std::size_t looked) { effort_[aim.steps][aim.kept].looked += looked + 1; }

 private:
  struct Effort {
    std::size_t draws = 0;
    std::size_t looked = 0;  ///< at partial operators, and one for the draw itself
  };
  int min_steps_;
  int max_steps_;
  std::deque<Found> known_;  ///< stays in place as it grows
  /// Known operators of at least so many steps, by the primitives that they have, as bits.
  std::vector<std::map<std::uint32_t, std::vector<const Found*>>> longer_than_;
  std::array<bool, kMaxSteps + 1> closed_{};
  std::array<std::array<Effort, kMaxSteps + 1>, kMaxSteps + 1> effort_{};
};

}  // namespace

Enumeration sample(const Spec& spec, std::size_t count, const SampleOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  const int max_steps = std::min(options.max_steps > 0 ? options.max_steps : spec.budgets.max_steps,
                                 static_cast<int>(kMaxSteps));
  const int min_steps = std::max(options.min_steps, 0);
  if (min_steps > max_steps) {
    fail<SpecError>("sample", "min_steps is {} but operators have at most {} steps; give at most {}",
                    min_steps, max_steps, max_steps);
  }
  SearcherStore searchers(spec);
  constexpr std::uint64_t kRootKey = 0;
  std::vector<Found> origins = scout(spec, max_steps, std::clamp<std::size_t>(count / 4, 32, 100),
                                     std::clamp<std::uint64_t>(count * kScouted, 20'000, 400'000));
  for (Found& known : known_operators(spec, max_steps)) origins.push_back(std::move(known));
  Aims aims(min_steps, max_steps, std::move(origins));
  Enumeration result;
  Novelty novelty(options.operator_keys);
  BarrenTable barren;
  ThreadPool threads(static_cast<std::size_t>(std::max(options.threads, 1)));
  const Random seed = Random(options.seed).fork("sample");
  std::size_t fruitless = 0, looked = 0;
  const auto spent = [&] {
    return options.effort > 0 && looked >= options.effort && result.operators.size() >= options.least;
  };
  for (std::size_t done = 0; result.operators.size() < count && fruitless < options.patience && !spent();
       done += kDraws) {
    if (options.poll) options.poll();
    for (int steps = min_steps; steps <= max_steps; ++steps) {
      if (barren.states(Walker::barren_key(kRootKey, steps, steps)) != 0) aims.close(steps);
    }
    if (aims.all_closed() || (options.seconds > 0 && elapsed() >= options.seconds)) break;
    std::array<Aim, kDraws> aim;
    std::array<Draw, kDraws> drawn;
    for (std::size_t i = 0; i < kDraws; ++i) {
      Random random = seed.fork(done + i);
      aim[i] = aims.draw(random);
    }
    threads.for_each(kDraws, [&](std::size_t i) {
      auto searcher = searchers.borrow();
      Engine& engine = searcher->engine;
      const auto kept = static_cast<std::size_t>(aim[i].kept);
      const State from = kept == 0 ? engine.root() : prefix(engine, aim[i].origin->graph.graph, kept);
      const WalkOptions walk{
          .min_steps = aim[i].steps, .max_steps = aim[i].steps, .patience = aim[i].patience};
      const auto is_new = [&](const Found& found) { return !novelty.is_known(found.graph); };
      const Random stream = seed.fork(done + i).fork("walk");
      if (searcher->walker.walk(from, walk, stream, barren, is_new) == Outcome::Found) {
        drawn[i].found = searcher->walker.found();
      }
      drawn[i].learnt = searcher->walker.learnt();
      drawn[i].looked = searcher->walker.looked();
      searchers.give_back(std::move(searcher));
    });
    for (std::size_t i = 0; i < kDraws; ++i) {
      for (const Barren& fact : drawn[i].learnt) barren.add(fact);
      aims.account(aim[i], drawn[i].looked);
      fruitless += drawn[i].looked + 1;
      looked += drawn[i].looked + 1;
      std::optional<Found>& found = drawn[i].found;
      if (!found || result.operators.size() >= count || !novelty.is_new(found->graph)) continue;
      fruitless = 0;
      aims.add(*found);
      result.operators.push_back(std::move(*found));
    }
  }
  result.statistics = statistics_of(searchers.counters(), result.operators);
  result.statistics.truncated = result.operators.size() >= count;
  result.statistics.seconds = elapsed();
  return result;
}

}  // namespace syno::synth
