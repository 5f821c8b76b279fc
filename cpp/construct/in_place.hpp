// construct/in_place.hpp — operands read where they lie, over their padding, and the terms outside left out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "construct/construct.hpp"

namespace syno::construct {

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
[[nodiscard]] Refused skip_outside(Construction& c, const std::string& scope, bool guarded = false);

}  // namespace syno::construct
