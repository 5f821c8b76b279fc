// Engine: the budgets of a spec, held against a state.
#include <algorithm>
#include <bit>

#include "support/error.hpp"
#include "synth/engine.hpp"

namespace syno::synth {

using P = pgraph::Primitive;

Reason Engine::check_contraction(const State& state, const Move& move) {
  if (move.source != 0) return kAccepted;  // its shape is given
  SizeNumber elements = kOne;
  SizeNumber matched = kOne;
  for (std::size_t k = 0; k < state.dim_count; ++k) {
    const FrontierDim& dim = state.dims[k];
    if (((move.inner | move.outer) >> k & 1) == 0) continue;
    elements = sizes_.times(elements, dim.extent);
    if ((move.outer >> k & 1) == 0) continue;
    const bool rank = pool_[dim.coordinate].kind == Kind::Reduce && (dim.shared & ~state.data) != 0;
    if (rank && !sizes_[dim.extent].matchable_again) return reason_of(Limit::MatchedReduce);
    if (!rank) matched = sizes_.times(matched, dim.extent);
  }
  if (!sizes_[matched].matchable) return reason_of(Limit::Matched);
  const bool learns = sizes_.mostly(
      [&](std::size_t v) { return sizes_.value(elements, v) >= spec_.budgets.min_weight_params; });
  if (!learns) return reason_of(Limit::WeightParams);
  return kAccepted;
}

/// The Reduces that have met no weight yet average more away than is allowed.
bool Engine::pools_too_much(const State& state) const {
  Pooled pooled;
  for (std::size_t k = 0; k < state.dim_count; ++k) {
    if (state.dims[k].shared == 0) pooled.add(state, pool_, state.dims[k].coordinate);
  }
  return !sizes_.mostly(
      [&](std::size_t v) { return pooled.product(sizes_, v) <= spec_.budgets.max_pooling; });
}

bool Engine::must_contract(const State& state) const {
  if (state.weight_count == 0 && !weightless_) return true;
  return pools_too_much(state);
}

bool Engine::within_reduction_ratio(const State& state, SizeNumber extent) const {
  return sizes_.mostly([&](std::size_t v) {
    return sizes_.value(state.reduces, v) * sizes_.value(extent, v) <=
           spec_.budgets.max_reduction_ratio * sizes_.value(open_input_elements_, v);
  });
}

Reason Engine::check_budgets(const State& next, const Move& move) {
  const Budgets& budgets = spec_.budgets;
  for (std::size_t k = 0; k < next.dim_count; ++k) {
    if (next.dims[k].height > budgets.max_chain) return reason_of(Limit::Chain);
  }
  if (move.primitive == P::Contraction) {
    if (budgets.max_params < kUnbounded && work_->params(next, pool_) > budgets.max_params)
      return reason_of(Limit::Params);
    if (weights_left(next) <= 0 && further_->missing(next) == 0 && pools_too_much(next)) {
      return reason_of(Limit::Pooling);
    }
  }
  return kAccepted;
}

}  // namespace syno::synth
