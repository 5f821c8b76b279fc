// emit/triton_split.hpp — iterators that a scope reads as quotients and remainders, in digits: of
// y[c, w] = sum[k] x[c / 4, k] * v[c % 4, c / 4, k] the channel c is 4 * c1 + c0, of which only v reads c0.
// So a kernel can share out what a scope goes over to the rows and columns of a product.
#pragma once

#include <cstddef>
#include <vector>

#include "program/program.hpp"

namespace syno::emit {

/// A program with one scope over other iterators, and where that writes, whether it has a target or not.
struct DigitScope {
  program::Program program;
  std::vector<symbolic::ExprId> at;
};

/// The scope with the iterators that it has.
DigitScope as_it_is(const program::Program& program, std::size_t scope);

/// The scope with each iterator in digits where its reads have quotients or remainders of it by numbers that
/// divide one another and its extent. Of a concrete program.
DigitScope in_digits(const program::Program& program, std::size_t scope);

}  // namespace syno::emit
