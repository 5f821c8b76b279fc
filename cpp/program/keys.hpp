// program/keys.hpp — the two equalities of programs, as stable 128-bit keys.
#pragma once

#include "program/program.hpp"
#include "support/hash.hpp"

namespace syno::program {

/// Structural: equal up to names of tensors and iterators, order of commuting terms and of sums, and equal
/// index expressions. Sizes enter by value table. For caches and records; a staged program has another key
/// than its one-scope form.
Hash128 structural_key(const Program& program);

/// Operator equality: at every valuation the one-scope forms have the same terms up to a permutation of each
/// weight's elements and of the channels in `unordered` (tensor dimensions). A weight enters only by which
/// points of the iteration space share an element. Weights of an operator commute with each other.
struct UnorderedDim {
  TensorId tensor;
  std::size_t dim;
};
Hash128 operator_key(const Program& one_scope, const std::vector<UnorderedDim>& unordered);

/// Substitutes producers into consumers until one scope per output is left (EINNET's fusion): what operator
/// equality is defined on. Only for programs whose intermediate scopes are sums of products or copies.
Program one_scope_form(const Program& program);

}  // namespace syno::program
