// schedule/outside.hpp — terms of a reduction that add nothing because they read outside a tensor: taps of a
// window over its padding. Where whole iterations of a loop, or elements of a register tile, are such terms
// alone, they are left out.
#pragma once

#include <optional>
#include <vector>

#include "schedule/names.hpp"
#include "schedule/plan.hpp"
#include "schedule/prefetch.hpp"

namespace syno::schedule {

/// Under which conditions, over a scope's iterators, a term of its reduction counts: where one fails, a read
/// in it (`only` this one, if given) is its fill, and the term neutral. A product with a fill of zero counts
/// as zero, whatever else the tensors hold that are multiplied. Of padded copies: what they were made of.
std::vector<Condition> terms_inside(Plan& plan, std::size_t scope,
                                    std::optional<program::ScalarId> only = std::nullopt);

/// What `condition` asks of the loops around for any iteration of `inner` loops to pass it, by interval
/// arithmetic: where it fails, none does. All other slots are bound in `forms`.
Condition for_any(symbolic::Arena& arena, AffineForms& forms, const Condition& condition,
                  const std::vector<Trips>& inner);

}  // namespace syno::schedule
