// synth/walk.hpp — one random walk from a partial operator to a finished one.
#pragma once

#include <optional>

#include "support/random.hpp"
#include "synth/engine.hpp"
#include "synth/enumerate.hpp"

namespace syno::synth {

/// Walks with at most `steps_left` further steps, turning back at dead ends, until an operator is met; looks
/// at no more than `patience` steps. Nothing when none was met: `exhausted` then says whether that is because
/// there is none. `met` receives the finished state.
std::optional<Found> random_walk(Engine& engine, const State& from, int steps_left, Random& random,
                                 std::size_t patience = 2'000, State* met = nullptr,
                                 bool* exhausted = nullptr);

}  // namespace syno::synth
