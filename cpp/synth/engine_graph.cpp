// Engine: states as pGraphs and back, and the operators that finished ones are.
#include <algorithm>
#include <bit>

#include "support/error.hpp"
#include "support/interrupt.hpp"
#include "synth/engine.hpp"

namespace syno::synth {

using P = pgraph::Primitive;

void Engine::completions(const State& state, const OnOperator& on_operator) {
  if (!finished(state)) return;
  std::optional<Work> work;
  std::array<std::uint8_t, kMaxFrontier * (1 + kMaxWeights)> position;  // written before it is read
  std::uint32_t used = 0;
  const auto read_further = [&](const auto& self, std::size_t input, std::size_t at) -> void {
    const auto* record = std::find_if(state.weights.begin(), state.weights.begin() + state.weight_count,
                                      [&](const WeightRecord& w) { return w.source == input + 1; });
    if (record == state.weights.begin() + state.weight_count) {  // there are no more inputs
      ++counters.finished;
      on_operator(state, {position.data(), at}, *work);
      return;
    }
    further_->assignments(*record, pool_, [&](std::span<const std::uint8_t> given) {
      std::copy(given.begin(), given.end(), position.begin() + static_cast<std::ptrdiff_t>(at));
      self(self, input + 1, at + given.size());
    });
  };
  const auto place = [&](const auto& self, std::size_t at) -> void {
    if (at < wanted_.size()) {
      for (std::uint8_t k = 0; k < state.dim_count; ++k) {
        if ((used >> k & 1) != 0 || state.dims[k].extent != wanted_[at]) continue;
        used |= 1U << k;
        position[at] = k;
        self(self, at + 1);
        used &= ~(1U << k);
      }
      return;
    }
    const std::span<const std::uint8_t> assigned{position.data(), wanted_.size()};
    const Finished candidate{spec_, sizes_, pool_, state, assigned, open_inputs_};
    for (const std::uint16_t rule : finished_rules_) {
      if (rules()[rule].removes_finished(candidate)) {
        ++counters.rejected[rule];
        return;
      }
    }
    if (!work) work = work_->finished(state, pool_);
    const Budgets& budgets = spec_.budgets;
    const auto reject = [&](Limit limit) { ++counters.rejected[reason_of(limit)]; };
    if (work->flops > budgets.max_flops) return reject(Limit::Flops);
    if (work->flops < budgets.min_flops) return reject(Limit::MinFlops);
    if (work->params > budgets.max_params) return reject(Limit::Params);
    if (work->bytes > budgets.max_bytes) return reject(Limit::Bytes);
    read_further(read_further, 0, wanted_.size());
  };
  place(place, 0);
}

Move Engine::move_for(const State& state, const pgraph::Step& step,
                      const std::vector<Coordinate>& coordinate_of) {
  const bool adds = step.primitive == P::Reduce || step.primitive == P::Merge;
  if (state.step_count >= kMaxSteps) {
    fail<SpecError>("synthesis", "the operator has more steps than a search takes, {}", kMaxSteps);
  }
  if (adds && state.dim_count >= kMaxFrontier) {
    fail<SpecError>("synthesis", "the operator has more coordinates at a time than a search, {}",
                    kMaxFrontier);
  }
  if (step.primitive == P::Contraction && state.weight_count >= kMaxWeights) {
    fail<SpecError>("synthesis", "the operator has more weights and further inputs than a search, {}",
                    kMaxWeights);
  }
  if (step.amount < -128 || step.amount > 127) {
    fail<SpecError>("synthesis", "the operator shifts by {} places; a search shifts by -128 to 127",
                    step.amount);
  }
  const auto position = [&](pgraph::CoordinateId id) -> std::uint8_t {
    const Coordinate wanted = coordinate_of[static_cast<std::uint32_t>(id)];
    for (std::uint8_t k = 0; k < state.dim_count; ++k) {
      if (state.dims[k].coordinate == wanted) return k;
    }
    fail<VerifyError>("synthesis", "coordinate c{} is not in the frontier", static_cast<std::uint32_t>(id));
  };
  Move move{.primitive = step.primitive, .amount = static_cast<std::int8_t>(step.amount)};
  if (step.primitive == P::Contraction) {
    for (const auto id : step.operands)
      move.inner = static_cast<std::uint16_t>(move.inner | 1U << position(id));
    for (const auto id : step.matched)
      move.outer = static_cast<std::uint16_t>(move.outer | 1U << position(id));
    move.source = static_cast<std::uint8_t>(step.source);
    return move;
  }
  if (!step.operands.empty()) move.i = position(step.operands[0]);
  if (step.operands.size() > 1) move.j = position(step.operands[1]);
  if (step.primitive == P::Reduce || step.primitive == P::Merge || step.primitive == P::Stride) {
    move.parameter = sizes_.intern(step.size);
  }
  return move;
}

void Engine::record_results(const State& next, std::vector<Coordinate>& coordinate_of) {
  const Letter& letter = next.path[next.step_count - 1U];
  if (letter.first != 0) coordinate_of.push_back(letter.first);
  if (letter.second != 0) coordinate_of.push_back(letter.second);
}

std::uint64_t Engine::arc_of(const State& state, std::size_t t) const {
  const Letter& letter = state.path[t];
  return letter.primitive == P::Reduce ? pool_[letter.first].hash : letter.key;
}

pgraph::PGraph Engine::to_graph(const State& state) const {
  pgraph::PGraph graph(spec_.signature);
  std::unordered_map<Coordinate, pgraph::CoordinateId> ids;
  for (Coordinate c = 1; c < pool_.size() && c <= spec_.signature.output.size(); ++c) {
    if (pool_[c].kind == Kind::Output) ids[c] = static_cast<pgraph::CoordinateId>(pool_[c].amount);
  }
  for (std::size_t t = 0; t < state.step_count; ++t) {
    const Letter& letter = state.path[t];
    pgraph::Step step;
    step.primitive = letter.primitive;
    if (letter.a != 0) step.operands.push_back(ids.at(letter.a));
    if (letter.b != 0) step.operands.push_back(ids.at(letter.b));
    if (letter.primitive == P::Contraction) {
      const WeightRecord& weight = state.weights[letter.weight];
      for (std::size_t k = 0; k < weight.inner_count; ++k) step.operands.push_back(ids.at(weight.inner[k]));
      for (std::size_t k = 0; k < weight.outer_count; ++k) step.matched.push_back(ids.at(weight.outer[k]));
      step.source = weight.source;
    }
    if (letter.parameter != kOne) step.size = sizes_[letter.parameter].size;
    if (letter.primitive == P::Shift) step.amount = letter.amount;
    const auto first = static_cast<std::uint32_t>(graph.coordinate_count());
    graph = pgraph::apply_all(std::move(graph), {step});
    if (letter.first != 0) ids[letter.first] = static_cast<pgraph::CoordinateId>(first);
    if (letter.second != 0) ids[letter.second] = static_cast<pgraph::CoordinateId>(first + 1);
  }
  return graph;
}

pgraph::CompleteGraph Engine::to_graph(const State& state, std::span<const std::uint8_t> position) const {
  return to_graph(state, position, to_graph(state));
}

pgraph::CompleteGraph Engine::to_graph(const State& state, std::span<const std::uint8_t> position,
                                       pgraph::PGraph graph) const {
  std::vector<pgraph::CoordinateId> input(spec_.signature.input.size());
  for (const auto& [out, in] : spec_.signature.fixed) input[in] = static_cast<pgraph::CoordinateId>(out);
  std::unordered_map<Coordinate, pgraph::CoordinateId> ids;
  for (Coordinate c = 1; c < pool_.size() && c <= spec_.signature.output.size(); ++c) {
    if (pool_[c].kind == Kind::Output) ids[c] = static_cast<pgraph::CoordinateId>(pool_[c].amount);
  }
  for (std::size_t t = 0; t < state.step_count; ++t) {
    const auto results = graph.results_of(t);
    if (!results.empty()) ids[state.path[t].first] = results[0];
    if (results.size() > 1) ids[state.path[t].second] = results[1];
  }
  for (std::size_t k = 0; k < open_inputs_.size(); ++k) {
    input[open_inputs_[k]] = ids.at(state.dims[position[k]].coordinate);
  }
  std::vector<std::vector<pgraph::CoordinateId>> further;
  std::size_t at = open_inputs_.size();
  for (const pgraph::FurtherInput& shape : spec_.signature.further) {
    const std::size_t number = further.size() + 1;
    const auto* record = std::find_if(state.weights.begin(), state.weights.begin() + state.weight_count,
                                      [&](const WeightRecord& w) { return w.source == number; });
    auto& dims = further.emplace_back(shape.dims.size());
    for (const auto& [out, in] : shape.fixed) dims[in] = static_cast<pgraph::CoordinateId>(out);
    for (const std::size_t d : further_->open(number - 1))
      dims[d] = ids.at(coordinate_at(*record, position[at++]));
  }
  return pgraph::complete(std::move(graph), std::move(input), std::move(further));
}

}  // namespace syno::synth
