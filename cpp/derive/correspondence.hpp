// derive/correspondence.hpp — which iterator of one scope is which of another.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "derive/moved.hpp"

namespace syno::derive {

/// Pairs the iterators of two scopes while their bodies are compared: traversals by position, sums of equal
/// ranges where they are first met.
class Correspondence {
 public:
  /// Traversals of `left_out` (a position) may have different ranges.
  Correspondence(const Program& program, const Scope& here, const Scope& there,
                 std::optional<std::size_t> left_out = {});

  bool possible() const { return possible_; }
  /// Whether two scalars are the same but for their iterators' names; pairs are kept where they are.
  bool same(ScalarId here, ScalarId there);
  /// The same with tensors of any name that have as many dimensions.
  bool alike(ScalarId here, ScalarId there);
  /// Pairs what is left in its order; false where ranges differ.
  bool complete();
  /// Of each iterator of `here`, the one of `there`.
  const std::map<std::uint32_t, std::uint32_t>& pairs() const { return pairs_; }

 private:
  bool compare(ScalarId here, ScalarId there, bool any_tensor);
  bool compare(ExprId here, ExprId there);
  bool pair(std::uint32_t here, std::uint32_t there);
  const Iterator* sum_of(const Scope& scope, std::uint32_t slot) const;
  bool taken(std::uint32_t there) const;

  const Program& program_;
  const Scope &here_, &there_;
  bool possible_ = true;
  std::map<std::uint32_t, std::uint32_t> pairs_;
};

}  // namespace syno::derive
