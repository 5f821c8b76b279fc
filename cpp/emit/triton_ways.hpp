// emit/triton_ways.hpp — the ways to see a sum of products as a product of matrices: its factors shared out
// to two operands, and its iterators to independent parts, rows, columns and terms.
#pragma once

#include <cstdint>
#include <vector>

#include "emit/indices.hpp"
#include "emit/triton_scope.hpp"

namespace syno::emit {

constexpr std::int64_t kLeastDepth = 16;  ///< of tl.dot

/// Which factors of a product stand left and right, and which iterators are walked how.
struct Operands {
  std::vector<program::ScalarId> left, right;
  std::vector<Slot> batch, rows, columns, sums;
  bool narrow = false;  ///< both as they are loaded, 16 bits
};

/// Of a scope that adds up, in the context's program. None where factors cannot be shared out, or there are
/// too many.
std::vector<Operands> ways_of(const TritonContext& context, const Indices& ranges,
                              const program::Scope& scope);

}  // namespace syno::emit
