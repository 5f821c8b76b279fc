// lower/lower.hpp — pGraph -> tensor program, with materialised reduction (Syno §8).
#pragma once

#include "pgraph/pgraph.hpp"
#include "program/program.hpp"

namespace syno::lower {

/// The operator as one scope: y[out...] = sum[reduces] x[...] * w1[...] * ... Tensor names: y, x, x2, ... for
/// further inputs, w1, w2, ... Symbolic over the signature's sizes; weights have Role::Weight.
program::Program one_scope(const pgraph::CompleteGraph& graph);

/// The operator staged for the least FLOPs summed over all valuations, ties by the bytes of intermediates:
/// the order of contractions, where each reduction is materialised and which factors are multiplied with each
/// other first are searched exhaustively while that takes at most `max_stages` candidate stages, and along
/// one greedy order of the contractions and reductions otherwise. Equal in meaning to one_scope(); also names
/// t1, t2, ... (intermediates) and v1, ... (products of factors).
struct StagingOptions {
  std::size_t max_stages = 200'000;
};
program::Program staged(const pgraph::CompleteGraph& graph, const StagingOptions& options = {});

}  // namespace syno::lower
