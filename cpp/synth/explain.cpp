#include "synth/explain.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "support/error.hpp"
#include "synth/engine.hpp"

namespace syno::synth {
namespace {

constexpr int kFar = 60;

class Replay {
 public:
  Replay(const Spec& spec, const pgraph::CompleteGraph& graph, std::size_t examples)
      : engine_(spec),
        graph_(graph),
        partial_(spec.signature),
        limits_(nlohmann::json::parse(spec_to_json(spec))),
        examples_(examples) {}

  Derivation run() {
    State state = engine_.root();
    coordinates_ = engine_.root_coordinates(state);
    std::string text;
    std::string removed_by;
    for (const pgraph::Step& step : graph_.graph.steps()) {
      const Move move = engine_.move_for(state, step, coordinates_);
      result_.steps.push_back(look(state, &move));
      name(text, removed_by);
      text = pgraph::to_text(partial_, step);
      const Reason reason = engine_.check_alone(state, move);
      removed_by = reason == kAccepted ? std::string() : std::string(name_of(reason));
      partial_ = pgraph::apply_all(std::move(partial_), {step});
      State next;
      engine_.apply(state, move, next);
      Engine::record_results(next, coordinates_);
      state = next;
    }
    result_.steps.push_back(look(state, nullptr));
    name(text, removed_by);
    for (std::size_t i = 1; i < result_.steps.size(); ++i) {
      const DerivationStep& here = result_.steps[i];
      result_.legal =
          result_.legal && here.removed_by.empty() && here.distance >= 0 && here.distance <= here.steps_left;
    }
    finish(state);
    return std::move(result_);
  }

 private:
  void name(const std::string& step, const std::string& removed_by) {
    result_.steps.back().step = step;
    result_.steps.back().removed_by = removed_by;
  }

  int distance_from(const State& state) {
    const int distance = engine_.distance(state, kFar);
    return distance > kFar ? -1 : distance;
  }

  DerivationStep look(const State& state, const Move* taken) {
    DerivationStep here;
    for (std::size_t k = 0; k < state.dim_count; ++k) {
      here.frontier.push_back(
          engine_.spec().signature.sizes.to_text(engine_.sizes()[state.dims[k].extent].size));
    }
    here.steps_left = engine_.spec().budgets.max_steps - state.step_count;
    here.distance = distance_from(state);
    if (here.steps_left <= 0) return here;
    std::vector<Move> moves;
    engine_.moves(state, moves);
    // Of Reduces and of weights only one order is generated, which need not be the operator's.
    if (taken != nullptr && std::find(moves.begin(), moves.end(), *taken) == moves.end()) {
      const Reason alone = engine_.check_alone(state, *taken);
      const Reason reason = alone == kAccepted ? reason_of(Limit::Order) : alone;
      ++here.pruned[std::string(name_of(reason))];
      if (examples_ > 0) {
        here.neighbours.push_back(neighbour(state, *taken, reason, here.steps_left - 1));
        here.neighbours.back().taken = true;
      }
    }
    State next;
    for (const Move& move : moves) {
      const Reason reason = engine_.take(state, move, here.steps_left - 1, next);
      const std::size_t so_far =
          reason == kAccepted ? here.kept++ : here.pruned[std::string(name_of(reason))]++;
      const bool chosen = taken != nullptr && move == *taken;
      if (so_far < examples_ || (chosen && examples_ > 0)) {
        here.neighbours.push_back(neighbour(state, move, reason, here.steps_left - 1));
        here.neighbours.back().taken = chosen;
      }
    }
    return here;
  }

  Neighbour neighbour(const State& state, const Move& move, Reason reason, int steps_left) {
    Neighbour result;
    result.step = pgraph::to_text(partial_, step_of(state, move));
    State next;
    engine_.apply(state, move, next);
    result.distance = distance_from(next);
    if (reason == kAccepted) return result;
    result.pruned_by = name_of(reason);
    if (reason < rules().size()) {
      result.why = rules()[reason].statement;
    } else if (reason == reason_of(Limit::Distance)) {
      result.why = result.distance < 0 ? std::string("the input is out of reach from there")
                                       : fmt::format("at least {} more steps from there, {} left",
                                                     result.distance, steps_left);
    } else if (reason == reason_of(Limit::Order)) {
      result.why = "it commutes with an earlier step; the other order makes the same operator";
    } else {
      result.why = budget_of(result.pruned_by);
    }
    return result;
  }

  std::string budget_of(const std::string& reason) const {
    for (const char* section : {"budgets", "thresholds"}) {
      const nlohmann::json& fields = limits_.at(section);
      if (fields.contains(reason)) return fmt::format("beyond {} = {}", reason, fields.at(reason).dump());
    }
    if (reason == name_of(reason_of(Limit::MatchedReduce))) {
      const nlohmann::json& fields = limits_.at("thresholds");
      return fmt::format("a second weight matches Reduces of {} to {} points only, where most of the work is",
                         fields.at("min_matched_reduce").dump(), fields.at("max_matched_reduce").dump());
    }
    return "a variable would occur more often than the spec allows";
  }

  /// The pGraph's coordinate at a frontier position of the search.
  pgraph::CoordinateId id_at(const State& state, std::size_t position) const {
    const auto& frontier = partial_.frontier();
    const auto found = std::find_if(frontier.begin(), frontier.end(), [&](pgraph::CoordinateId id) {
      return coordinates_[static_cast<std::uint32_t>(id)] == state.dims[position].coordinate;
    });
    SYNO_ASSERT(found != frontier.end(), "the replayed pGraph has the search's frontier");
    return *found;
  }

  std::vector<pgraph::CoordinateId> ids_of(const State& state, std::uint16_t positions) const {
    std::vector<pgraph::CoordinateId> ids;
    for (std::size_t k = 0; k < state.dim_count; ++k) {
      if (((positions >> k) & 1U) != 0) ids.push_back(id_at(state, k));
    }
    std::sort(ids.begin(), ids.end());
    return ids;
  }

  pgraph::Step step_of(const State& state, const Move& move) const {
    pgraph::Step step;
    step.primitive = move.primitive;
    step.amount = move.amount;
    switch (move.primitive) {
      case pgraph::Primitive::Reduce:
        step.size = engine_.sizes()[move.parameter].size;
        break;
      case pgraph::Primitive::Contraction:
        step.operands = ids_of(state, move.inner);
        step.matched = ids_of(state, move.outer);
        step.source = move.source;
        break;
      case pgraph::Primitive::Split:
      case pgraph::Primitive::Unfold:
        step.operands = {id_at(state, move.i), id_at(state, move.j)};
        break;
      case pgraph::Primitive::Merge:
      case pgraph::Primitive::Stride:
        step.size = engine_.sizes()[move.parameter].size;
        [[fallthrough]];
      default:
        step.operands = {id_at(state, move.i)};
    }
    return step;
  }

  void finish(const State& state) {
    const Counters before = engine_.counters;
    const Hash128 wanted = pgraph::hash_of(graph_);
    bool kept = false;
    engine_.completions(state, [&](const State& s, std::span<const std::uint8_t> position, const Work&) {
      kept = kept || pgraph::hash_of(engine_.to_graph(s, position)) == wanted;
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
  nlohmann::json limits_;  ///< the spec's budgets and thresholds by name
  std::size_t examples_;
  std::vector<Coordinate> coordinates_;  ///< of the search, by the pGraph's
  Derivation result_;
};

/// The same operator with its Reduces first, where the search takes them: which other steps may precede them
/// says nothing of an operator.
pgraph::CompleteGraph reduces_first(const pgraph::CompleteGraph& given) {
  const auto& steps = given.graph.steps();
  std::vector<std::size_t> order(steps.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto sums = [&](std::size_t t) { return steps[t].primitive == pgraph::Primitive::Reduce; };
  if (std::is_partitioned(order.begin(), order.end(), sums)) return given;
  std::stable_partition(order.begin(), order.end(), sums);
  std::vector<pgraph::CoordinateId> now(given.graph.coordinate_count());
  for (std::size_t i = 0; i < now.size(); ++i) now[i] = static_cast<pgraph::CoordinateId>(i);
  const auto rename = [&](std::vector<pgraph::CoordinateId> ids) {
    for (auto& id : ids) id = now[static_cast<std::size_t>(id)];
    return ids;
  };
  pgraph::PGraph graph(given.graph.signature());
  for (const std::size_t t : order) {
    pgraph::Step step = steps[t];
    step.operands = rename(step.operands);
    step.matched = rename(step.matched);
    graph = pgraph::apply_all(std::move(graph), {step});
    const auto old = given.graph.results_of(t);
    const auto made = graph.results_of(graph.steps().size() - 1);
    for (std::size_t r = 0; r < old.size(); ++r) now[static_cast<std::size_t>(old[r])] = made[r];
  }
  std::vector<std::vector<pgraph::CoordinateId>> further;
  for (const auto& ids : given.further) further.push_back(rename(ids));
  return pgraph::complete(std::move(graph), rename(given.input), std::move(further));
}

}  // namespace

Derivation derivation(const Spec& spec, const pgraph::CompleteGraph& graph, std::size_t examples) {
  if (!(graph.graph.signature() == spec.signature)) {
    fail<SpecError>("explain",
                    "the operator's signature is not the spec's: give the spec '{}' was synthesised for",
                    spec.name);
  }
  const pgraph::CompleteGraph ordered = reduces_first(graph);
  return Replay(spec, ordered, examples).run();
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
    for (const Neighbour& other : here.neighbours) {
      if (other.taken) continue;  // the next step
      text += other.pruned_by.empty()
                  ? fmt::format("      may follow: {}\n", other.step)
                  : fmt::format("      {}: {}  ({})\n", other.pruned_by, other.step, other.why);
    }
  }
  text += derivation.legal ? "kept: rules, budgets and distance allow every step\n"
          : derivation.finished_by.empty()
              ? std::string("refused on the way\n")
              : fmt::format("refused as a finished operator by {}\n", derivation.finished_by);
  return text;
}

}  // namespace syno::synth
