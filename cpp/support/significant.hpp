// support/significant.hpp — measured numbers as text.
#pragma once

#include <string>

namespace syno {

/// `value` with at least `digits` significant digits: 0.0312, 12.3, 1235. What stands before the point is
/// never rounded; an exponent only outside 1e-9 … 1e15.
std::string significant(double value, int digits = 3);

}  // namespace syno
