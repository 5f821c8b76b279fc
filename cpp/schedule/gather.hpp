// schedule/gather.hpp — what a staged copy of a read is indexed by: parts of the read's indices that move
// with the iterators one by one, so that the copy is read without guards, divisions and remainders.
#pragma once

#include <functional>
#include <vector>

#include "schedule/plan.hpp"

namespace syno::schedule {

/// Whether an expression without guards is a sum of loops times integers.
using IsLinear = std::function<bool(ExprId)>;

/// The dimensions of a copy, one a part. x[n, 7 * ((w + 1) % 8) + (w / 8 + 1) % 7, h + r - 1] is copied by
/// n, w and h + r: a copy may have fewer dimensions than what it copies, or more.
std::vector<ExprId> gathered_parts(symbolic::Arena& arena, const std::vector<ExprId>& indices,
                                   const IsLinear& linear);

/// The indices with part i replaced by `places[i]`: what the copy at `places` is filled from.
std::vector<ExprId> gathered_from(symbolic::Arena& arena, const std::vector<ExprId>& indices,
                                  const IsLinear& linear, const std::vector<ExprId>& parts,
                                  const std::vector<ExprId>& places);

/// Linear over the loops of a scope as they are split now; over its iterators while it has no loops.
IsLinear linear_over_loops(Plan& plan, std::size_t scope);

}  // namespace syno::schedule
