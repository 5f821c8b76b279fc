#include "synth/walk.hpp"

#include <algorithm>
#include <limits>

#include "support/mix.hpp"

namespace syno::synth {

std::uint64_t Walker::next_key(std::uint64_t state_key, std::uint64_t arc) {
  return state_key + split_mix(arc);
}

std::uint64_t Walker::state_key(const Engine& engine, const State& state) {
  std::uint64_t key = 0;
  for (std::size_t t = 0; t < state.step_count; ++t) key = next_key(key, engine.arc_of(state, t));
  return key;
}

std::uint64_t Walker::barren_key(std::uint64_t state_key, int min_steps, int max_steps) {
  return split_mix(state_key + kGoldenGamma * static_cast<std::uint64_t>(64 * min_steps + max_steps + 1));
}

Outcome Walker::walk(const State& from, const WalkOptions& options, const Random& stream,
                     const BarrenTable& known, const Accept& accept) {
  options_ = options;
  stream_ = &stream;
  known_ = &known;
  accept_ = &accept;
  learnt_.clear();
  found_.reset();
  looked_ = 0;
  return visit(from, state_key(engine_, from));
}

bool Walker::take_finished(const State& state, Random& random) {
  std::vector<Found> all;
  engine_.completions(state, [&](const State& s, std::span<const std::uint8_t> position, const Work& work) {
    all.push_back({engine_.to_graph(s, position), work, s.step_count});
  });
  while (!all.empty()) {
    std::swap(all[random.below(all.size())], all.back());
    if ((*accept_)(all.back())) {
      found_ = std::move(all.back());
      met_ = state;
      return true;
    }
    all.pop_back();
  }
  return false;
}

Outcome Walker::visit(const State& state, std::uint64_t key) {
  const std::uint64_t fact = barren_key(key, options_.min_steps, options_.max_steps);
  if (const std::uint32_t states = known_->states(fact); states != 0) {
    if (!options_.charge_known) return Outcome::Barren;
    if (options_.patience - looked_ < states) {
      looked_ = options_.patience;
      return Outcome::GaveUp;
    }
    looked_ += states;
    return Outcome::Barren;
  }
  if (looked_ == options_.patience) return Outcome::GaveUp;
  const std::size_t looked_before = looked_++;
  const std::size_t learnt_before = learnt_.size();
  const int left = options_.max_steps - state.step_count;
  Random random = stream_->fork(key);
  bool finished = state.step_count >= options_.min_steps && engine_.finished(state);
  if (finished && (left == 0 || random.below(2) == 0)) {
    if (take_finished(state, random)) return Outcome::Found;
    finished = false;
  }
  if (left > 0) {
    Level& here = levels_[state.step_count];
    engine_.moves(state, here.moves, left);
    for (auto& moves : here.open) moves.clear();
    for (const Move& move : here.moves) here.open[static_cast<std::size_t>(move.primitive)].push_back(move);
    State next;
    std::array<std::size_t, pgraph::kPrimitiveCount> primitives{};
    std::size_t count = 0;
    for (std::size_t p = 0; p < here.open.size(); ++p) {
      if (!here.open[p].empty()) primitives[count++] = p;
    }
    while (count > 0) {
      std::swap(primitives[random.below(count)], primitives[count - 1]);
      std::vector<Move>& choices = here.open[primitives[--count]];
      while (!choices.empty()) {
        std::swap(choices[random.below(choices.size())], choices.back());
        const Move move = choices.back();
        choices.pop_back();
        if (engine_.take(state, move, left - 1, next) != kAccepted) continue;
        const Outcome outcome = visit(next, next_key(key, engine_.arc_of(next, state.step_count)));
        if (outcome != Outcome::Barren) return outcome;
      }
    }
  }
  if (finished && take_finished(state, random)) return Outcome::Found;
  // What is barren above this state follows from it.
  learnt_.resize(learnt_before);
  const std::size_t states = looked_ - looked_before;
  constexpr std::size_t kMost = std::numeric_limits<std::uint32_t>::max();
  learnt_.push_back({fact, static_cast<std::uint32_t>(std::min(states, kMost))});
  return Outcome::Barren;
}

}  // namespace syno::synth
