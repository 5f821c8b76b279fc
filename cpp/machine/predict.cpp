#include "machine/predict.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

#include "machine/nest_facts.hpp"
#include "machine/tile_cost.hpp"
#include "machine/traffic.hpp"

namespace syno::machine {

namespace {

constexpr double kLoopCycles = 0.2;    ///< of an iteration, beside its body
constexpr double kEnterCycles = 1;     ///< of a loop: its bounds
constexpr double kMissCycles = 10;     ///< of a branch that ends a loop longer than predictors remember
constexpr double kRemembered = 24;     ///< iterations
constexpr double kParallelS = 1.5e-6;  ///< to hand work to other threads and wait for them
/// Of the shorter of computing and moving, what the longer one hides. From 4,300 measured schedules of 90
/// operators on a Xeon and 5,500 of 116 on a Zen 5: 0.76 to 0.85 rank alike, errors are least around it.
constexpr double kHidden = 0.82;
/// Of a walk through page tables, what is not hidden by what is computed, or by other walks. From 102
/// measured schedules of two products on a Xeon.
constexpr double kWalked = 0.5;
/// Cycles: of what takes less, one part is moved while another is computed.
constexpr double kSoonOver = 2000;

/// What is computed while something is moved: the end of one phase waits for what it reads, while the next
/// one computes nothing yet.
struct Phase {
  double cycles = 0;  ///< without overhead
  double speed_up = 1;
  Traffic::Accesses accesses;
};

struct Part {
  Cycles cycles;
  double flops = 0, starts = 0, speed_up = 1;
  Traffic::Accesses accesses;
  std::vector<Phase> phases;
};

class Model {
 public:
  Model(const nest::LoopNest& nest, const Machine& machine, const PredictOptions& options)
      : nest_(nest),
        machine_(machine),
        options_(options),
        facts_(facts_of(nest, machine.vector_bits / 8)),
        traffic_(nest, facts_, machine, options_) {}

  Prediction run() {
    Prediction made;
    Part all = part(facts_.root(), options_.threads);
    const std::size_t levels = machine_.levels.size();
    if (!options_.cold) traffic_.call_again(all.accesses);
    made.moved_bytes.assign(levels, 0);
    made.memory_s.assign(levels, 0);
    const double cycle = 1e-9 / machine_.ghz;
    for (const Phase& phase : all.phases) {
      double moving = 0;
      for (std::size_t l = 1; l < levels; ++l) {
        const double seconds =
            traffic_.moved_s(phase.accesses, l, made.moved_bytes[l]) / sharing(l, phase.speed_up);
        made.memory_s[l] += seconds;
        moving += seconds;
      }
      const double computing = phase.cycles * cycle / phase.speed_up;
      made.compute_s += computing;
      made.seconds += std::max(computing, moving) + (1 - kHidden) * std::min(computing, moving);
    }
    made.waiting_s = traffic_.waiting_s(all.accesses) / all.speed_up;
    made.page_walks = traffic_.page_walks(all.accesses);
    made.walking_s = kWalked * made.page_walks * machine_.tlb.walk_ns * 1e-9 / all.speed_up;
    made.overhead_s = all.cycles.overhead * cycle / all.speed_up + all.starts * kParallelS;
    made.flops = all.flops;
    made.seconds += made.overhead_s + made.waiting_s + made.walking_s;
    const double peak = machine_.peak_gflops(computed_bytes(nest_)) * 1e9 * all.speed_up;
    made.fraction_of_peak = made.seconds > 0 ? made.flops / peak / made.seconds : 0;
    made.cycles = all.cycles;
    made.speed_up = all.speed_up;
    for (const NestNode& node : facts_.nodes)
      if (node.kind == NestNode::Kind::Block)
        made.largest_block = std::max(made.largest_block, node.work.fma);
    made.bottleneck = bottleneck(made);
    return made;
  }

 private:
  std::string bottleneck(const Prediction& made) const {
    const double memory = std::accumulate(made.memory_s.begin(), made.memory_s.end(), 0.0);
    if (made.waiting_s > std::max({made.compute_s, memory, made.overhead_s, made.walking_s}))
      return "short pieces";
    if (made.walking_s > std::max({made.compute_s, memory, made.overhead_s})) return "page walks";
    if (memory > made.compute_s && memory > made.overhead_s) {
      const auto worst = std::max_element(made.memory_s.begin(), made.memory_s.end()) - made.memory_s.begin();
      return machine_.levels[static_cast<std::size_t>(worst)].name;
    }
    if (made.overhead_s > made.compute_s) return "loop overhead";
    const Cycles& cycles = made.cycles;
    const std::array<std::pair<double, const char*>, 5> parts{{{cycles.fma, "multiply-adds"},
                                                               {cycles.loads, "loads"},
                                                               {cycles.stores, "stores"},
                                                               {cycles.latency, "latency of sums"},
                                                               {cycles.spills, "registers"}}};
    return std::max_element(parts.begin(), parts.end())->second;
  }

  /// Several threads have a private level each and share the rate of main memory.
  double sharing(std::size_t level, double speed_up) const {
    return level + 1 == machine_.levels.size() ? std::min(speed_up, 1.3) : speed_up;
  }

  /// Phases of a sequence: those of one that is soon over are one, as a core and its prefetchers look so far
  /// ahead. What the nest asks for ahead comes while the longest one computes.
  void unite(Part& made, double apart) const {
    std::vector<Phase>& phases = made.phases;
    const double after = made.cycles.total - made.cycles.overhead;
    for (Phase& phase : phases) phase.cycles *= apart > 0 ? after / apart : 1;
    if (phases.size() < 2) return;
    if (after < kSoonOver) {
      Phase all = std::move(phases.front());
      double alone = all.cycles / all.speed_up;
      for (std::size_t p = 1; p < phases.size(); ++p) {
        all.cycles += phases[p].cycles;
        alone += phases[p].cycles / phases[p].speed_up;
        all.accesses.insert(all.accesses.end(), phases[p].accesses.begin(), phases[p].accesses.end());
      }
      if (alone > 0) all.speed_up = all.cycles / alone;
      phases.clear();
      phases.push_back(std::move(all));
      return;
    }
    Phase& longest = *std::max_element(phases.begin(), phases.end(), [](const Phase& a, const Phase& b) {
      return a.cycles / a.speed_up < b.cycles / b.speed_up;
    });
    Traffic::Accesses asked;
    for (Phase& phase : phases) {
      const auto other = std::stable_partition(phase.accesses.begin(), phase.accesses.end(),
                                               [&](std::size_t a) { return !traffic_.asked(a); });
      asked.insert(asked.end(), other, phase.accesses.end());
      phase.accesses.erase(other, phase.accesses.end());
    }
    longest.accesses.insert(longest.accesses.end(), asked.begin(), asked.end());
  }

  Part part(std::size_t index, int threads) {
    const NestNode& node = facts_.nodes[index];
    switch (node.kind) {
      case NestNode::Kind::Block:
        return block(node);
      case NestNode::Kind::Loop:
        return loop(node, threads);
      case NestNode::Kind::Sequence:
        break;
    }
    return sequence(node, threads);
  }

  Part block(const NestNode& node) {
    Part made;
    made.cycles = cycles_of(node.work, machine_);
    made.flops = node.work.flops;
    made.accesses = node.accesses;
    made.phases.push_back({made.cycles.total, 1, node.accesses});
    traffic_.block(node.accesses);
    return made;
  }

  Part sequence(const NestNode& node, int threads) {
    Part made;
    double weighted = 0;
    for (const std::size_t child : node.children) {
      Part next = part(child, threads);
      made.cycles.add(next.cycles, 1);
      weighted += next.cycles.total / next.speed_up;
      made.flops += next.flops;
      made.starts += next.starts;
      made.accesses.insert(made.accesses.end(), next.accesses.begin(), next.accesses.end());
      std::move(next.phases.begin(), next.phases.end(), std::back_inserter(made.phases));
    }
    made.speed_up = weighted > 0 ? made.cycles.total / weighted : 1;
    const double apart = made.cycles.total - made.cycles.overhead;
    overlap(made.cycles, node.children.size());
    unite(made, apart);
    traffic_.sequence(made.accesses);
    return made;
  }

  Part loop(const NestNode& node, int threads) {
    const double trips = node.trips;
    if (trips <= 0) return {};  // as of a tail that the sizes of a call leave nothing
    double speed_up = 1;
    if (node.parallel && threads > 1 && trips > 1) speed_up = trips / std::ceil(trips / threads);
    traffic_.enter(node);
    Part body = part(node.children[0], speed_up > 1 ? 1 : threads);
    Part made;
    made.accesses = std::move(body.accesses);
    made.phases = std::move(body.phases);
    for (Phase& phase : made.phases) {
      phase.cycles *= trips;
      if (speed_up > 1) phase.speed_up = speed_up;
    }
    made.flops = body.flops * trips;
    made.starts = speed_up > 1 ? 1 : body.starts * trips;
    made.speed_up = speed_up > 1 ? speed_up : body.speed_up;
    made.cycles.add(body.cycles, trips);
    const double around = kLoopCycles * trips + kEnterCycles + (trips > kRemembered ? kMissCycles : 0);
    made.cycles.total += around;
    made.cycles.overhead += around;
    traffic_.leave(node, made.accesses);
    return made;
  }

  const nest::LoopNest& nest_;
  const Machine& machine_;
  PredictOptions options_;
  NestFacts facts_;
  Traffic traffic_;
};

}  // namespace

Prediction predict(const nest::LoopNest& nest, const Machine& machine, const PredictOptions& options) {
  return Model(nest, machine, options).run();
}

}  // namespace syno::machine
