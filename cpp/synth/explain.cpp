#include "synth/explain.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "support/error.hpp"
#include "synth/engine.hpp"

namespace syno::synth {
namespace {

constexpr int kFar = 60;

class Replay {
 public:
  Replay(const Spec& spec, const pgraph::CompleteGraph& graph)
      : engine_(spec), graph_(graph), partial_(spec.signature) {}

  Derivation run() {
    State state = engine_.root();
    std::vector<Coordinate> coordinates = engine_.root_coordinates(state);
    result_.steps.push_back(look(state));
    for (const pgraph::Step& step : graph_.graph.steps()) {
      const Move move = engine_.move_for(state, step, coordinates);
      const std::string text = pgraph::to_text(partial_, step);
      partial_ = pgraph::apply_all(std::move(partial_), {step});
      const Reason reason = engine_.check_alone(state, move);
      State next;
      engine_.apply(state, move, next);
      Engine::record_results(next, coordinates);
      state = next;
      DerivationStep here = look(state);
      here.step = text;
      if (reason != kAccepted) here.removed_by = name_of(reason);
      result_.legal =
          result_.legal && reason == kAccepted && here.distance >= 0 && here.distance <= here.steps_left;
      result_.steps.push_back(std::move(here));
    }
    finish(state, coordinates);
    return std::move(result_);
  }

 private:
  DerivationStep look(const State& state) {
    DerivationStep here;
    for (std::size_t k = 0; k < state.dim_count; ++k) {
      here.frontier.push_back(
          engine_.spec().signature.sizes.to_text(engine_.sizes()[state.dims[k].extent].size));
    }
    here.steps_left = engine_.spec().budgets.max_steps - state.step_count;
    const int distance = engine_.distance(state, kFar);
    here.distance = distance > kFar ? -1 : distance;
    if (here.steps_left <= 0) return here;
    std::vector<Move> moves;
    engine_.moves(state, moves);
    State next;
    for (const Move& move : moves) {
      const Reason reason = engine_.take(state, move, here.steps_left - 1, next);
      if (reason == kAccepted) {
        ++here.kept;
      } else {
        ++here.pruned[std::string(name_of(reason))];
      }
    }
    return here;
  }

  void finish(const State& state, const std::vector<Coordinate>& coordinates) {
    const Counters before = engine_.counters;
    bool kept = false;
    engine_.completions(state, [&](const State& s, std::span<const std::uint8_t> position, const Work&) {
      std::size_t at = 0;
      bool same = true;
      for (std::size_t i = 0; i < graph_.input.size(); ++i) {
        const Coordinate wanted = coordinates[static_cast<std::uint32_t>(graph_.input[i])];
        if (wanted == 0) continue;  // a fixed dimension
        same = same && at < position.size() && s.dims[position[at]].coordinate == wanted;
        ++at;
      }
      kept = kept || same;
    });
    if (kept) return;
    result_.legal = false;
    for (std::size_t r = 0; r < before.rejected.size(); ++r) {
      if (engine_.counters.rejected[r] > before.rejected[r])
        result_.finished_by = name_of(static_cast<Reason>(r));
    }
  }

  Engine engine_;
  const pgraph::CompleteGraph& graph_;
  pgraph::PGraph partial_;
  Derivation result_;
};

}  // namespace

Derivation derivation(const Spec& spec, const pgraph::CompleteGraph& graph) {
  if (!(graph.graph.signature() == spec.signature)) {
    fail<SpecError>("explain",
                    "the operator's signature is not the spec's: give the spec '{}' was synthesised for",
                    spec.name);
  }
  return Replay(spec, graph).run();
}

std::string to_text(const Derivation& derivation) {
  std::string text;
  for (std::size_t i = 0; i < derivation.steps.size(); ++i) {
    const DerivationStep& here = derivation.steps[i];
    text += i == 0 ? std::string("output") : fmt::format("{:2}. {}", i, here.step);
    if (!here.removed_by.empty()) text += fmt::format("    [refused by {}]", here.removed_by);
    text += fmt::format("\n    frontier [{}]; distance {}, {} steps left\n", fmt::join(here.frontier, ", "),
                        here.distance < 0 ? std::string("infinite") : std::to_string(here.distance),
                        here.steps_left);
    if (here.kept > 0 || !here.pruned.empty()) {
      std::size_t pruned = 0;
      std::string why;
      for (const auto& [name, count] : here.pruned) {
        pruned += count;
        why += fmt::format("{}{} {}", why.empty() ? "" : ", ", name, count);
      }
      text += fmt::format("    {} steps may follow, {} pruned{}{}\n", here.kept, pruned,
                          why.empty() ? "" : ": ", why);
    }
  }
  text += derivation.legal ? "kept: rules, budgets and distance allow every step\n"
          : derivation.finished_by.empty()
              ? std::string("refused on the way\n")
              : fmt::format("refused as a finished operator by {}\n", derivation.finished_by);
  return text;
}

}  // namespace syno::synth
