// synth/scout.hpp — the shallow end of a space, searched exhaustively to show where deeper operators may be.
#pragma once

#include <vector>

#include "synth/engine.hpp"
#include "synth/enumerate.hpp"

namespace syno::synth {

/// All operators of at most d steps, for the least d at which there are `enough`, at most `max_steps`; fewer
/// where one step more means to look at more than `affordable` steps; no more are ever looked at for a d.
/// Nearly every partial operator leads nowhere, and those that begin an operator of few steps mostly begin
/// one of many.
std::vector<Found> scout(const Spec& spec, int max_steps, std::size_t enough,
                         std::uint64_t affordable = 400'000);

/// Operators that people know, as far as the space has them: long ones, too, which only few partial operators
/// lead to. Coefficients of the spec take the places of their sizes, in every combination.
std::vector<Found> known_operators(const Spec& spec, int max_steps);

/// The first `steps` steps of an operator that the search found, as a partial operator of this engine.
State prefix(Engine& engine, const pgraph::PGraph& graph, std::size_t steps);

}  // namespace syno::synth
