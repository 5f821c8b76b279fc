// program/verify.hpp — what makes a program well formed, and what it costs.
#pragma once

#include <string>
#include <vector>

#include "program/program.hpp"

namespace syno::program {

/// Throws VerifyError naming the scope, the tensor and the index that are wrong: ids out of range, a tensor
/// read before it is written or written twice, ranks that differ, ranges that are empty or hold iterators,
/// slots used outside their scope, sums without a reduction, targets in a scope that does not accumulate,
/// a size that is not an integer at some valuation, a literal of the wrong length.
void verify(const Program& program);

/// One line per tensor with its shape (at every valuation) and role: what a caller who left sizes out should
/// see.
std::string describe_shapes(const Program& program);

/// Exact cost at one valuation. `flops` counts one multiply-add as one: for every scope, points of its
/// iteration space times max(1, reads in the product - 1) when it sums, other scalar functions one each a
/// point, but constants that a sum is scaled with one a result; a scope that only copies counts 0. `params`:
/// elements of weights. `bytes`: compulsory traffic, every tensor each scope touches once, 4 an element.
struct Cost {
  std::int64_t flops = 0;
  std::int64_t params = 0;
  std::int64_t bytes = 0;
};
Cost cost(const Program& program, std::size_t valuation);

}  // namespace syno::program
