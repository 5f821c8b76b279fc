#include "derive/einnet.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <set>

#include "derive/folded.hpp"
#include "derive/tools.hpp"
#include "equality/keys.hpp"
#include "lower/compacted.hpp"
#include "program/verify.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"

namespace syno::derive {

namespace {

using packed::Move;
using packed::Space;
using packed::State;
using Clock = std::chrono::steady_clock;

constexpr int kStatesBetweenWatches = 2048;  // applications
constexpr int kAnywhere = 1 << 20;           // apart from a target

/// Numbers in blocks, so that growing moves none of them.
template <class T>
class Blocks {
 public:
  T& operator[](std::size_t i) { return blocks_[i >> kBits][i & kMask]; }
  const T& operator[](std::size_t i) const { return blocks_[i >> kBits][i & kMask]; }
  std::size_t size() const { return size_; }
  void push_back(const T& value) {
    if ((size_ & kMask) == 0) blocks_.push_back(std::make_unique<T[]>(kMask + 1));
    blocks_[size_ >> kBits][size_ & kMask] = value;
    ++size_;
  }
  std::int64_t bytes() const { return static_cast<std::int64_t>(blocks_.size() * (kMask + 1) * sizeof(T)); }

 private:
  static constexpr std::size_t kBits = 16, kMask = (std::size_t{1} << kBits) - 1;
  std::vector<std::unique_ptr<T[]>> blocks_;
  std::size_t size_ = 0;
};

/// States by their bytes, each once.
class Store {
 public:
  struct Node {
    std::uint64_t hash = 0;
    const std::uint8_t* bytes = nullptr;
    std::uint32_t parent = 0, length = 0;
    Move move;
  };

  const Node& operator[](std::size_t i) const { return nodes_[i]; }
  std::size_t size() const { return nodes_.size(); }
  std::int64_t bytes() const {
    return nodes_.bytes() + static_cast<std::int64_t>(blocks_.size() * kBlock + 4 * places_.size());
  }

  /// Whether it is new.
  bool add(const std::vector<std::uint8_t>& bytes, std::uint32_t parent, const Move& move, bool once) {
    const Hash128 hash = hash_bytes(bytes.data(), bytes.size());
    std::size_t at = 0;
    if (once) {
      if (2 * (nodes_.size() + 1) > places_.size()) grow();
      const std::size_t mask = places_.size() - 1;
      for (at = hash.high & mask; places_[at] != 0; at = (at + 1) & mask) {
        const Node& there = nodes_[places_[at] - 1];
        if (there.hash == hash.low && there.length == bytes.size() &&
            std::memcmp(there.bytes, bytes.data(), bytes.size()) == 0)
          return false;
      }
      places_[at] = static_cast<std::uint32_t>(nodes_.size()) + 1;
    }
    if (blocks_.empty() || used_ + bytes.size() > kBlock) {
      blocks_.push_back(std::make_unique<std::uint8_t[]>(kBlock));
      used_ = 0;
    }
    std::uint8_t* to = blocks_.back().get() + used_;
    std::memcpy(to, bytes.data(), bytes.size());
    used_ += bytes.size();
    nodes_.push_back({hash.low, to, parent, static_cast<std::uint32_t>(bytes.size()), move});
    return true;
  }

 private:
  static constexpr std::size_t kBlock = std::size_t{1} << 20;

  void grow() {
    places_.assign(places_.empty() ? 1024 : 2 * places_.size(), 0);
    const std::size_t mask = places_.size() - 1;
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      const Hash128 hash = hash_bytes(nodes_[n].bytes, nodes_[n].length);
      std::size_t at = hash.high & mask;
      while (places_[at] != 0) at = (at + 1) & mask;
      places_[at] = static_cast<std::uint32_t>(n) + 1;
    }
  }

  Blocks<Node> nodes_;
  std::vector<std::unique_ptr<std::uint8_t[]>> blocks_;
  std::size_t used_ = 0;
  std::vector<std::uint32_t> places_;
};

Program tidy(const Program& program) {
  const auto inputs = program.inputs();
  return lower::compacted(program, {inputs.begin(), inputs.end()});
}

double points(const Program& program, const Scope& scope) {
  double all = 1;
  for (const auto* list : {&scope.traversal, &scope.sums})
    for (const Iterator& iterator : *list) {
      const auto [begin, end] = range_of(program, iterator.range);
      all *= static_cast<double>(end - begin);
    }
  return all;
}

std::string label_text(const Space& space, const State& state, const packed::Target& target) {
  std::string text;
  for (const packed::Label& each : packed::labels_of(space, state, target))
    text += (text.empty() ? "" : " | ") + each.text;
  return text;
}

/// The program whose scope is packed, the steps to it, and the scope.
struct Start {
  Program program;
  std::vector<Step> steps;
  std::size_t scope = 0;
  Space space;
};

/// The largest scope that is a sum of products; strides that guards say are taken out by the rows for them.
Start start_of(const Program& given) {
  Start start{given, {}, 0, {}};
  std::string reasons;
  for (int round = 0; round < 16; ++round) {
    const Program& program = start.program;
    std::vector<std::size_t> order(program.scopes.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return points(program, program.scopes[a]) > points(program, program.scopes[b]);
    });
    reasons.clear();
    for (const std::size_t scope : order) {
      packed::Packed made = packed::pack(program, scope);
      const std::string& name = name_of(program, program.scopes[scope]);
      if (made.space && made.space->operands.size() > 1) {
        start.scope = scope;
        start.space = std::move(*made.space);
        return start;
      }
      reasons += fmt::format("{}'{}': {}", reasons.empty() ? "" : "; ", name,
                             made.space ? "it multiplies no two tensors" : made.reason);
    }
    std::optional<Step> step;
    for (const char* row : {"solve", "polyphase"}) {
      const auto found = sites(rewrite_named(row), program);
      if (found.empty()) continue;
      step = {row, found.front()};
      break;
    }
    if (!step) break;
    apply(rewrite_named(step->row), start.program, step->site);
    start.program = tidy(start.program);
    start.steps.push_back(std::move(*step));
  }
  fail<ScheduleError>(
      kWhere, "EINNET's rules are about sums of products of tensors' elements, and no scope is one: {}",
      reasons);
}

class EinnetSearch {
 public:
  EinnetSearch(const Program& program, const EinnetOptions& options, const Watch& watch)
      : options_(options),
        watch_(watch),
        began_(Clock::now()),
        target_(packed::parse_target(options.target)) {
    program::verify(program);
    if (!program.concrete())
      fail<VerifyError>(kWhere, "a program of several sizes is derived at one valuation: at() gives it");
    given_ = tidy(program);
    start_ = start_of(given_);
    for (const std::int64_t extent :
         program::shape_of(start_.program, start_.program.scopes[start_.scope].output))
      output_ *= static_cast<double>(extent);
  }

  EinnetFound run() {
    add(start_.space.given, 0, {});
    best_ = estimated(given_).seconds;
    finish_level();
    std::size_t from = 0;
    for (depth_ = 1; depth_ <= options_.depth && from < store_.size() && running(); ++depth_) {
      const std::size_t to = store_.size();
      for (std::size_t node = from; node < to && running(); ++node)
        expand(static_cast<std::uint32_t>(node), kAnywhere);
      if (!running()) break;
      if (store_.size() > to) found_.found.deepest = depth_;
      finish_level();
      from = to;
    }
    converge(from);
    return finished();
  }

 private:
  bool running() const { return found_.found.ended == Ended::Exhausted && !found_.memory; }
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

  void look() {
    if (options_.states > 0 && static_cast<std::int64_t>(store_.size()) >= options_.states)
      found_.found.ended = Ended::States;
    if (++since_ < kStatesBetweenWatches) return;
    since_ = 0;
    const double seconds = elapsed();
    if (options_.seconds > 0 && seconds >= options_.seconds) found_.found.ended = Ended::Seconds;
    if (options_.bytes > 0 && store_.bytes() >= options_.bytes) found_.memory = true;
    if (store_.size() > 0xfff00000U) found_.memory = true;
    if (watch_ && !watch_({static_cast<std::int64_t>(store_.size()), seconds, best_}))
      found_.found.ended = Ended::Stopped;
  }

  /// The states from the one numbered `from` on are those of the last depth.
  void converge(std::size_t from) {
    const std::size_t explored = store_.size();
    for (; from < store_.size() && running(); ++depth_) {
      const std::size_t to = store_.size();
      for (std::size_t node = from; node < to && running(); ++node) {
        const int apart = packed::distance(packed::read(store_[node].bytes), target_, options_.converging);
        if (apart > 0 && apart <= options_.converging) expand(static_cast<std::uint32_t>(node), apart - 1);
      }
      if (store_.size() > to) found_.found.deepest = depth_;
      from = to;
    }
    found_.converged = static_cast<std::int64_t>(store_.size() - explored);
  }

  /// Adds what every step makes of a state that is at most `far` from the target.
  void expand(std::uint32_t node, int far) {
    const State state = packed::read(store_[node].bytes);
    packed::moves(start_.space, state, options_.amounts, moves_);
    for (const Move& move : moves_) {
      State next = state;
      ++found_.found.applications;
      if (packed::apply(start_.space, next, move) &&
          (far == kAnywhere || packed::distance(next, target_, far) <= far))
        add(next, node, move);
      look();
      if (!running()) return;
    }
  }

  void add(const State& state, std::uint32_t parent, const Move& move) {
    packed::write(state, bytes_);
    if (!store_.add(bytes_, parent, move, options_.key)) {
      ++found_.found.repeats;
      return;
    }
    const auto node = static_cast<std::uint32_t>(store_.size() - 1);
    const int apart = packed::distance(state, target_, nearest_ - 1);
    if (apart < nearest_) {
      nearest_ = apart;
      nearest_node_ = node;
    }
    if (apart > 0) return;
    nearest_ = 1;  // all that follow are as near
    if (candidates_ == 0) found_.target_depth = depth_;
    ++candidates_;
    keep(state, node);
  }

  /// The cheapest candidates, by a guess that needs no program.
  void keep(const State& state, std::uint32_t node) {
    const auto size = [](double a, std::int32_t b) { return a * b; };
    double terms = 1, result = 1;
    for (int i = 0; i < state.iterators; ++i) {
      terms = size(terms, state.extent[static_cast<std::size_t>(i)]);
      if (!state.sum(i)) result = size(result, state.extent[static_cast<std::size_t>(i)]);
    }
    double outer = output_;
    for (int s = 0; s < state.outer; ++s)
      outer = size(outer, state.outer_extent[static_cast<std::size_t>(s)]);
    const double copied = state.dims > start_.space.given.dims ? 1 : 0;
    const double seconds =
        terms / options_.rates.multiply_adds_per_s +
        options_.rates.element_bytes * (2 * result + outer) / options_.rates.memory_bytes_per_s +
        copied * options_.rates.scope_s;
    const std::pair ranked(seconds, node);
    const auto most = 4 * static_cast<std::size_t>(std::max(options_.keep, 1));
    if (kept_.size() == most && !(ranked < *kept_.rbegin())) return;
    kept_.insert(ranked);
    if (kept_.size() > most) kept_.erase(std::prev(kept_.end()));
  }

  void finish_level() {
    EinnetLevel level;
    level.states = static_cast<std::int64_t>(store_.size()) - before_;
    level.candidates = candidates_ - candidates_before_;
    level.seconds = elapsed();
    found_.levels.push_back(level);
    before_ = static_cast<std::int64_t>(store_.size());
    candidates_before_ = candidates_;
  }

  std::vector<std::int64_t> numbers_to(std::uint32_t node) const {
    std::vector<Move> path;
    for (; node != 0; node = store_[node].parent) path.push_back(store_[node].move);
    std::vector<std::int64_t> numbers;
    for (auto move = path.rbegin(); move != path.rend(); ++move)
      numbers.insert(numbers.end(), {static_cast<std::int64_t>(move->rule), move->a, move->b, move->number});
    return numbers;
  }

  Estimate estimated(const Program& program) const {
    return estimate(program, options_.rates, before_calls(program, options_.constants));
  }

  EinnetFound finished() {
    Found& found = found_.found;
    found.states = static_cast<std::int64_t>(store_.size());
    found.seconds = elapsed();
    found_.candidates = candidates_;
    found_.bytes = store_.bytes();
    found_.nearest = candidates_ > 0 ? 0 : nearest_;
    if (candidates_ == 0)
      found_.missing = packed::missing(start_.space, packed::read(store_[nearest_node_].bytes), target_);
    add_derivations();
    return std::move(found_);
  }

  void add_derivations() {
    Found& found = found_.found;
    Derivation first;
    first.program = given_;
    first.estimate = estimated(given_);
    first.key = equality::structural_key(given_);
    std::set<Hash128> seen{first.key};
    found.derivations.push_back(std::move(first));
    found_.labels.push_back(start_.steps.empty() ? label_text(start_.space, start_.space.given, target_)
                                                 : "");
    std::vector<std::pair<Derivation, std::string>> made;
    for (const auto& [seconds, node] : kept_) {
      const State state = packed::read(store_[node].bytes);
      Derivation one;
      one.steps = start_.steps;
      const std::string scope = name_of(start_.program, start_.program.scopes[start_.scope]);
      if (node != 0)
        one.steps.push_back({std::string(kEinnetStep), Site{scope, "", "", "", numbers_to(node)}});
      one.program = tidy(packed::program_of(start_.program, start_.scope, start_.space, state));
      one.key = equality::structural_key(one.program);
      if (!seen.insert(one.key).second) continue;
      one.estimate = estimated(one.program);
      made.emplace_back(std::move(one), label_text(start_.space, state, target_));
    }
    std::stable_sort(made.begin(), made.end(), [](const auto& a, const auto& b) {
      return a.first.estimate.seconds < b.first.estimate.seconds;
    });
    if (made.size() > static_cast<std::size_t>(std::max(options_.keep, 0)))
      made.resize(static_cast<std::size_t>(std::max(options_.keep, 0)));
    for (auto& [one, text] : made) {
      found.derivations.push_back(std::move(one));
      found_.labels.push_back(std::move(text));
    }
  }

  const EinnetOptions& options_;
  const Watch& watch_;
  Clock::time_point began_;
  packed::Target target_;
  Program given_;
  Start start_;
  double output_ = 1, best_ = 0;
  Store store_;
  EinnetFound found_;
  std::vector<std::uint8_t> bytes_;
  std::vector<Move> moves_;
  std::set<std::pair<double, std::uint32_t>> kept_;
  std::int64_t before_ = 0, candidates_ = 0, candidates_before_ = 0;
  int nearest_ = kAnywhere, since_ = 0, depth_ = 0;
  std::uint32_t nearest_node_ = 0;
};

/// Calls visit(state, move) before each move; the state after all.
template <class Visit>
State replayed(Space& space, const Site& site, const Visit& visit) {
  State state = space.given;
  const auto& numbers = site.numbers;
  if (numbers.size() % 4 != 0)
    fail<ScheduleError>(kWhere, "'{}' has {} numbers: four to a move", kEinnetStep, numbers.size());
  for (std::size_t n = 0; n < numbers.size(); n += 4) {
    const bool fits = numbers[n] >= 0 && numbers[n] < packed::kRules && numbers[n + 1] >= 0 &&
                      numbers[n + 1] < 64 && numbers[n + 2] >= 0 && numbers[n + 2] < 64 &&
                      std::abs(numbers[n + 3]) < (1 << 20);
    const Move move{fits ? static_cast<packed::Rule>(numbers[n]) : packed::Rule{},
                    static_cast<std::uint8_t>(numbers[n + 1]), static_cast<std::uint8_t>(numbers[n + 2]),
                    static_cast<std::int32_t>(numbers[n + 3])};
    if (fits) visit(state, move);
    if (!fits || !packed::apply(space, state, move))
      fail<ScheduleError>(kWhere, "move {} of '{}' does not apply to '{}'", n / 4 + 1, kEinnetStep,
                          site.scope);
  }
  return state;
}

Space space_of(const Program& program, std::size_t scope) {
  packed::Packed made = packed::pack(program, scope);
  if (!made.space) fail<ScheduleError>(kWhere, "'{}' does not apply: {}", kEinnetStep, made.reason);
  return std::move(*made.space);
}

}  // namespace

EinnetFound search_einnet(const Program& program, const EinnetOptions& options, const Watch& watch) {
  std::optional<Unheard> unheard;  // as in search()
  if (watch) unheard.emplace();
  return EinnetSearch(program, options, watch).run();
}

void apply_einnet(Program& program, const Site& site) {
  const std::size_t scope = scope_named(program, site.scope);
  Space space = space_of(program, scope);
  const State state = replayed(space, site, [](const State&, const Move&) {});
  program = tidy(packed::program_of(program, scope, space, state));
}

EinnetStep einnet_step(const Program& program, const Site& site, const std::string& target) {
  const packed::Target wanted = packed::parse_target(target);
  const std::size_t scope = scope_named(program, site.scope);
  Space space = space_of(program, scope);
  EinnetStep step;
  const State last = replayed(space, site, [&](const State& state, const Move& move) {
    const auto name = [&](int i) {
      return state.sum(i) ? fmt::format("r{}", i - state.traversals) : fmt::format("z{}", i);
    };
    std::string text(packed::name_of(move.rule));
    switch (move.rule) {
      case packed::Rule::SumSplit:
        for (int i = state.traversals; i < state.iterators; ++i)
          if ((move.number >> (i - state.traversals) & 1) != 0) text += ' ' + name(i);
        break;
      case packed::Rule::Substitute:
        text += move.a < state.iterators && move.b < state.iterators
                    ? fmt::format(" {} + {}*{}", name(move.a), move.number, name(move.b))
                    : "";
        break;
      case packed::Rule::Merge:
        text += fmt::format(" {}, {}", name(move.a), name(move.b));
        break;
      case packed::Rule::SplitIterator:
      case packed::Rule::Relax:
        text += fmt::format(" {} {} {}", name(move.a), move.rule == packed::Rule::Relax ? "to" : "by",
                            move.number);
        break;
      case packed::Rule::Relayout:
        if (move.a < state.dims) {
          const packed::Dim& dim = state.dim[move.a];
          text += fmt::format(" {} dimension {} by {}",
                              space.operand_names[static_cast<std::size_t>(dim.operand)], dim.source,
                              move.number);
        }
        break;
      case packed::Rule::Tighten:
        break;
    }
    step.moves.push_back(std::move(text));
  });
  step.label = label_text(space, last, wanted);
  return step;
}

}  // namespace syno::derive
