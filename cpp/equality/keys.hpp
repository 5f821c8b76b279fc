// equality/keys.hpp — the two equalities of programs, as stable 128-bit keys.
#pragma once

#include <memory>
#include <vector>

#include "equality/names.hpp"
#include "support/hash.hpp"
#include "support/refusal.hpp"

namespace syno::equality {

/// Structural: equal up to names of tensors and iterators, order of commuting terms and of sums, and equal
/// index expressions. Sizes enter by value table. For caches and records; a staged program has another key
/// than its one-scope form. Inputs keep their order.
Hash128 structural_key(const Program& program);

/// A tensor dimension whose positions may be permuted: channels.
struct UnorderedDim {
  TensorId tensor;
  std::size_t dim = 0;
  bool operator==(const UnorderedDim&) const = default;
};

/// Remembers the parts operators have in common, so that the next key costs microseconds. Changes no key.
/// For one thread at a time.
class OperatorKeyCache {
 public:
  OperatorKeyCache();
  ~OperatorKeyCache();
  OperatorKeyCache(OperatorKeyCache&&) noexcept;
  OperatorKeyCache& operator=(OperatorKeyCache&&) noexcept;

  struct State;
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

/// Operator equality: at every valuation the one-scope forms have the same terms up to a permutation of each
/// weight's elements and of the channels in `unordered`. A weight enters only by which points of the
/// iteration space share an element. Weights of an operator commute with each other.
///
/// The program must compute one output by sums of products of reads (several scopes are fused first);
/// VerifyError names what is not. Equal operators have equal keys, and keys differ where operators do, within
/// the limits that equality/term_space.hpp states.
Hash128 operator_key(const Program& one_scope, const std::vector<UnorderedDim>& unordered = {},
                     OperatorKeyCache* cache = nullptr);

/// Substitutes producers into consumers until one scope per output is left (EINNET's fusion): what operator
/// equality is defined on. VerifyError for a program whose intermediate scopes are not sums of products or
/// copies, naming the scope.
Program one_scope_form(const Program& program);
OrRefusal<Program> try_one_scope_form(const Program& program);  ///< for searches

}  // namespace syno::equality
