#include "synth/sample.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>

#include "support/thread_pool.hpp"
#include "synth/duplicates.hpp"
#include "synth/walk.hpp"

namespace syno::synth {
namespace {

constexpr std::size_t kBatch = 32;  ///< attempts between two looks at the results; independent of the threads

/// Engines are built once and handed to whichever thread asks: what they memoise never changes an answer.
class EngineStore {
 public:
  explicit EngineStore(const Spec& spec) : spec_(spec) {}
  std::unique_ptr<Engine> borrow() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Engine>(spec_);
    auto engine = std::move(free_.back());
    free_.pop_back();
    return engine;
  }
  void give_back(std::unique_ptr<Engine> engine) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(engine));
  }
  Counters counters() const {
    Counters total;
    for (const auto& engine : free_) total.add(engine->counters);
    return total;
  }

 private:
  const Spec& spec_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Engine>> free_;
};

}  // namespace

Enumeration sample(const Spec& spec, std::size_t count, const SampleOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const int max_steps = options.max_steps > 0 ? options.max_steps : spec.budgets.max_steps;
  const std::size_t max_attempts =
      options.max_attempts > 0 ? options.max_attempts : std::max<std::size_t>(2000, 200 * count);
  EngineStore engines(spec);
  ThreadPool threads(static_cast<std::size_t>(std::max(options.threads, 1)));
  Enumeration result;
  Novelty novelty(options.operator_keys);
  const Random seed = Random(options.seed).fork("sample");
  for (std::size_t done = 0; done < max_attempts && result.operators.size() < count; done += kBatch) {
    std::vector<std::optional<Found>> batch(std::min(kBatch, max_attempts - done));
    threads.for_each(batch.size(), [&](std::size_t i) {
      auto engine = engines.borrow();
      Random random = seed.fork(done + i);
      const int steps = 1 + static_cast<int>(random.below(static_cast<std::uint64_t>(max_steps)));
      batch[i] = random_walk(*engine, engine->root(), steps, random);
      engines.give_back(std::move(engine));
    });
    for (auto& found : batch) {
      if (found && result.operators.size() < count && novelty.is_new(found->graph)) {
        result.operators.push_back(std::move(*found));
      }
    }
  }
  result.statistics = statistics_of(engines.counters(), result.operators);
  result.statistics.truncated = result.operators.size() >= count;
  result.statistics.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace syno::synth
