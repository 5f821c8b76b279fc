// lower/tangled.hpp — sums of which no loop reads in order.
#pragma once

#include <set>

#include "lower/index_inverse.hpp"

namespace syno::lower {

/// Whether indices or conditions of a sum cut up what element and term make together, or several factors move
/// with such a sum: then no loop over elements reads any factor in order.
///
/// `elements`, `terms`: iterators over what is written, and those that are summed over. Concrete programs
/// only.
bool tangled(Iterators& iterators, program::ScalarId body, const std::set<Slot>& elements,
             const std::set<Slot>& terms);

}  // namespace syno::lower
