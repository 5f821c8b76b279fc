// construct/phases.hpp — loops of few iterations each of which decides what terms of a reduction there are: a
// transposed convolution of 3 taps and stride 2 has two taps at even places and one at odd ones.
#pragma once

#include "construct/construct.hpp"

namespace syno::construct {

/// The part of a scope's terms that count: 9 of 16 where each of four phases goes through 2 x 2 taps of which
/// nine are inside. 1 where nothing, or more than such loops, decides.
double counted_terms(Plan& plan, std::size_t scope);

/// Makes the iterations of such loops, around the register tile, nests of their own: the loops of the
/// reduction run over the terms that count, and nothing asks for each.
[[nodiscard]] Refused peel_phases(Construction& c, const std::string& scope);

}  // namespace syno::construct
