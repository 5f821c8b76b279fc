// lower/vanishing.hpp — conditions that need not be written: what they guard is zero anyway.
#pragma once

#include "lower/index_inverse.hpp"

namespace syno::lower {

/// Whether a product is zero where the condition fails: a factor reads zero there, and the rest is finite.
bool covered(const program::Program& program, program::ScalarId body, const RangeCondition& condition);

}  // namespace syno::lower
