// schedule/switches.hpp — what a `select` in a body is decided by: comparisons of whole numbers made of
// indices. Where the loops around say how such a one comes out, one branch is all there is.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "program/program.hpp"

namespace syno::schedule {

/// `e` such that a comparison, `<` or `<=`, of sums and multiples of indices and whole literals holds exactly
/// where e >= 0; made in `arena`, which has the program's expressions. Nothing for another scalar, or where
/// `open` is part of it: a scalar that stands for something else, as the literal of an epilogue for a sum.
std::optional<symbolic::ExprId> when_not_negative(const program::Program& program, symbolic::Arena& arena,
                                                  program::ScalarId comparison,
                                                  std::optional<program::ScalarId> open = {});

/// Whether a condition made of such comparisons by `and` and `or` holds, where `known(e)` says it of each
/// e >= 0 or says nothing.
std::optional<bool> decided(const program::Program& program, symbolic::Arena& arena,
                            program::ScalarId condition,
                            const std::function<std::optional<bool>(symbolic::ExprId)>& known,
                            std::optional<program::ScalarId> open = {});

/// The e of all comparisons that decide selects of a body, each once, over the scope's iterators.
std::vector<symbolic::ExprId> switches_of(program::Program& program, program::ScalarId body);

}  // namespace syno::schedule
