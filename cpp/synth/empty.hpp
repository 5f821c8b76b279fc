// synth/empty.hpp — why a spec has no operators, and what would give it some.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "synth/spec.hpp"

namespace syno::synth {

/// Nothing where the spec has an operator of at most `max_steps` steps (0: the spec's own limit). Else a
/// sentence that names every single constraint whose change alone lets in operators of the fewest steps
/// possible, with its value and the nearest one that works; or says that none does.
///
/// Constraints are tried one by one, at one step more each time, until `most_children` steps were looked at,
/// and no more; the sentence says where it stopped. `poll` is called now and then; what it throws ends the
/// search.
std::optional<std::string> why_empty(const Spec& spec, int max_steps = 0,
                                     std::uint64_t most_children = 20'000'000,
                                     const std::function<void()>& poll = {});

}  // namespace syno::synth
