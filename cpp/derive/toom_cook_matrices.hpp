// derive/toom_cook_matrices.hpp — the constants of Toom–Cook (Winograd) algorithms for sliding windows.
#pragma once

#include <cstdint>
#include <vector>

#include "support/rational.hpp"

namespace syno::derive {

using Matrix = std::vector<std::vector<Rational>>;  ///< by rows

/// y[j] = sum[r: n] x[j + r] * k[r] for j in [0, m) is output * ((weights * k) ⊙ (input * x)), exactly.
/// m + n - 1 products: one a point, of 0, 1, -1, 2, -2, 1/2, ... and infinity; m = n = 2 is Karatsuba's
/// algorithm. `input` holds integers.
/// (A. L. Toom 1963; S. Winograd, Arithmetic Complexity of Computations, 1980.)
struct ToomCook {
  Matrix output;   ///< m x points
  Matrix weights;  ///< points x n
  Matrix input;    ///< points x points
};

inline constexpr std::int64_t kMostPoints = 10;  ///< beyond, single precision is lost

/// Of a window of n >= 1 at m >= 1 places; m + n - 1 <= kMostPoints.
ToomCook toom_cook_matrices(std::int64_t m, std::int64_t n);

}  // namespace syno::derive
