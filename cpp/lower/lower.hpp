// lower/lower.hpp — pGraph -> tensor program, with materialised reduction (Syno §8).
#pragma once

#include "pgraph/pgraph.hpp"
#include "program/program.hpp"

namespace syno::lower {

/// The operator as one scope: y[out...] = sum[reduces] x[...] * w1[...] * ... Tensor names: y, x, w1, w2, ...
/// Symbolic over the signature's sizes; weights have Role::Weight.
program::Program one_scope(const pgraph::CompleteGraph& graph);

/// The operator staged for the least FLOPs summed over all valuations, ties by the bytes of intermediates:
/// the order of contractions and where each reduction is materialised are searched exhaustively up to
/// `max_states`, then greedily. Equal in meaning to one_scope().
struct StagingOptions { std::size_t max_states = 20'000; };
program::Program staged(const pgraph::CompleteGraph& graph, const StagingOptions& options = {});

}  // namespace syno::lower
