// synth/places.hpp — which places of their extents coordinates take: what a Stride leaves out, a window may
// fill.
#pragma once

#include <span>

#include "synth/state.hpp"

namespace syno::synth {

/// Whether the coordinates, together, take every place of their extents for some point of what they are made
/// of, at a valuation; true as well where to find out would take too long. The pool remembers the answer.
bool take_every_place(const CoordinatePool& pool, const SizePool& sizes,
                      std::span<const Coordinate> coordinates, std::size_t valuation);

}  // namespace syno::synth
