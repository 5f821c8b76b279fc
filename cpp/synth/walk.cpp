#include "synth/walk.hpp"

#include <algorithm>

namespace syno::synth {
namespace {

class Walker {
 public:
  Walker(Engine& engine, Random& random, std::size_t patience)
      : engine_(engine), random_(random), patience_(patience) {}

  bool visit(const State& state, int steps_left) {
    // A finished operator is taken at once half of the time, always where no step is left.
    if (engine_.finished(state) && (steps_left == 0 || random_.below(2) == 0) && accept(state)) return true;
    if (steps_left == 0) return false;
    std::vector<Move> moves;
    engine_.moves(state, moves, steps_left);
    std::array<std::vector<Move>, pgraph::kPrimitiveCount> by_primitive;
    for (const Move& move : moves) by_primitive[static_cast<std::size_t>(move.primitive)].push_back(move);
    State next;
    for (;;) {
      std::array<std::size_t, pgraph::kPrimitiveCount> open{};
      std::size_t count = 0;
      for (std::size_t p = 0; p < by_primitive.size(); ++p) {
        if (!by_primitive[p].empty()) open[count++] = p;
      }
      if (count == 0) break;
      std::vector<Move>& choices = by_primitive[open[random_.below(count)]];
      while (!choices.empty()) {
        if (patience_ == 0) return false;
        --patience_;
        std::swap(choices[random_.below(choices.size())], choices.back());
        const Move move = choices.back();
        choices.pop_back();
        if (engine_.take(state, move, steps_left - 1, next) != kAccepted) continue;
        if (visit(next, steps_left - 1)) return true;
        break;  // choose the primitive afresh
      }
    }
    return engine_.finished(state) && accept(state);
  }

  std::size_t patience() const { return patience_; }

  std::optional<Found> found;
  State met;

 private:
  bool accept(const State& state) {
    std::vector<Found> all;
    engine_.completions(state, [&](const State& s, std::span<const std::uint8_t> position, const Work& work) {
      all.push_back({engine_.to_graph(s, position), work, s.step_count});
    });
    if (all.empty()) return false;
    found = std::move(all[random_.below(all.size())]);
    met = state;
    return true;
  }

  Engine& engine_;
  Random& random_;
  std::size_t patience_;
};

}  // namespace

std::optional<Found> random_walk(Engine& engine, const State& from, int steps_left, Random& random,
                                 std::size_t patience, State* met, bool* exhausted) {
  Walker walker(engine, random, patience);
  if (!walker.visit(from, steps_left)) {
    if (exhausted != nullptr) *exhausted = walker.patience() > 0;
    return std::nullopt;
  }
  if (met != nullptr) *met = walker.met;
  return std::move(walker.found);
}

}  // namespace syno::synth
