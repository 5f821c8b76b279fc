// derive/toom_cook_matrices.hpp — the constants of Toom–Cook (Winograd) algorithms for sliding windows.
#pragma once

#include <cstdint>
#include <vector>

#include "support/rational.hpp"

namespace syno::derive {

using Matrix = std::vector<std::vector<Rational>>;  ///< by rows

/// Which points the polynomials are evaluated at, beside infinity; as many of the list as are needed.
/// Balanced: 0, 1, -1, 2, -1/2, -2, 1/2, 3/2, -2/3. Integers: 0, 1, -1, 2, -2, 1/2, -1/2, 4, -4, which Lavin
/// and Gray (2016) begin with, fewer of whose numbers in `input` are not 0. Of six products, F(4, 3), the
/// balanced ones are two to four times as accurate on normal data. (On points with their negated inverses:
/// B. Barabasz et al., Error analysis and improving the accuracy of Winograd convolution, 2020.)
enum class PointSet : std::uint8_t { Balanced, Integers };

/// y[j] = sum[r: n] x[j + r] * k[r] for j in [0, m) is output * ((weights * k) ⊙ (input * x)), exactly.
/// m + n - 1 products, one a point; m = n = 2 is Karatsuba's algorithm. `input` holds integers.
/// (A. L. Toom 1963; S. Winograd, Arithmetic Complexity of Computations, 1980.)
struct ToomCook {
  Matrix output;   ///< m x points
  Matrix weights;  ///< points x n
  Matrix input;    ///< points x points
};

inline constexpr std::int64_t kMostPoints = 10;  ///< beyond, single precision is lost

/// Of a window of n >= 1 at m >= 1 places; m + n - 1 <= kMostPoints.
ToomCook toom_cook_matrices(std::int64_t m, std::int64_t n, PointSet set = PointSet::Balanced);

}  // namespace syno::derive
