// derive/roughness.hpp — how many times the rounding errors of a plain sum of products a program makes,
// counted from the constant matrices of bilinear identities in it: which of several programs are accurate
// enough, before any of them is compiled.
#pragma once

#include <cstdint>

#include "derive/bilinear.hpp"

namespace syno::derive {

/// y = C((A x) ⊙ (B k)), each y a sum of `terms` products x * k. With factors that are independent and of
/// the same size the products of C's row j are sqrt(sum[p] C[j,p]^2 |A[p]|^2 |B[p]|^2) large where y itself
/// is sqrt(terms): what they are rounded by grows by the quotient, here that of the worst row. F(2,3) 1.3,
/// F(4,3) 3.2, F(6,3) 6.8, F(4,7) 20. (The sum over p of Barabasz et al., Error analysis and improving the
/// accuracy of Winograd convolution, 2020, §3, in squares: errors of either sign.)
double growth(const Matrix& c, const Matrix& a, const Matrix& b, std::int64_t terms);

/// The largest product of growths on a way from inputs to an output, at least 1: of nested identities, as in
/// two dimensions, the product; of pieces side by side, the worse. Matrices are known by their values.
double roughness(const Program& program);

}  // namespace syno::derive
