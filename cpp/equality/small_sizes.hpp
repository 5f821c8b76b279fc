// equality/small_sizes.hpp — valuations with small values at which operators are compared.
#pragma once

#include "symbolic/size.hpp"

namespace syno::equality {

/// The same variables at one or two valuations with small values that stand for those of `sizes`. Values up
/// to 7 that never change stay what they are. What holds at every valuation of `sizes` among monomials with
/// small exponents holds here too: which are integers, which are one, which variables are equal. The two
/// valuations have different ratios, so that a coincidence of one is none of the other. `sizes` itself where
/// its values are small.
symbolic::Sizes small_sizes(const symbolic::Sizes& sizes);

}  // namespace syno::equality
