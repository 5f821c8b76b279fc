// derive/finite.hpp — whether what is multiplied by zero is zero.
#pragma once

#include "derive/names.hpp"

namespace syno::derive {

/// Whether a body has a finite value at every point where what the caller passes is finite: it is total, and
/// neither in it nor in what computes the tensors it reads is an infinity that may come out. Padding of
/// maxima with -inf does not come out where every window has an element.
bool finite(const Program& program, ScalarId body);

}  // namespace syno::derive
