// schedule/outside.hpp — terms of a reduction that add nothing because they read outside a tensor: taps of a
// window over its padding. Where whole iterations of a loop, or elements of a register tile, are such terms
// alone, they are left out.
#pragma once

#include <optional>
#include <vector>

#include "schedule/construct.hpp"
#include "schedule/loop_nest_affine.hpp"
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
Condition for_any(symbolic::Arena& arena, LinearForms& forms, const Condition& condition,
                  const std::vector<Trips>& inner);

/// How `rows` elements of a register tile along loop `along` of a scope read an operand where it lies,
/// guarded as it is: the terms outside are left out, so that nothing needs a padded copy.
struct InPlace {
  std::vector<std::int64_t> cuts;  ///< of the loop over such tiles
};
/// Nothing where guards would be left in the register tile, where repeating the taps takes too much code, or
/// where what the reduction reads would share the same places of the second cache. `vectors`: of the tile.
/// Decided when the scope has `facts`' loops and no others.
std::optional<InPlace> in_place(Construction& c, const std::string& scope, const ScopeFacts& facts,
                                const ReadFacts& read, std::size_t along, std::int64_t rows,
                                std::int64_t vectors);

/// Has a finished scope leave such terms out where that is worth a branch, or an unrolled loop; `guarded`:
/// also where only that spares the register tile its guards.
void skip_outside(Construction& c, const std::string& scope, bool guarded = false);

}  // namespace syno::schedule
