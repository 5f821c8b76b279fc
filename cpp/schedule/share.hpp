// schedule/share.hpp — what two scopes compute alike is computed once: the exponentials of a softmax.
#pragma once

#include <optional>
#include <string>

#include "schedule/decisions.hpp"

namespace syno::schedule {

/// An elementary function of the same values in two scopes, over the same iterations.
struct Shared {
  program::ScalarId here{}, there{};      ///< in the one scope, in the other
  std::vector<program::Iterator> points;  ///< iterators of the other one that move it, in their order
  std::vector<ExprId> places;             ///< what they are over the iterators of the one
};

/// The first such function, if nothing was decided about the two scopes.
std::optional<Shared> find_shared(const Plan& plan, std::size_t scope, std::size_t other);

/// Makes it a scope of its own, which both read.
void share(Plan& plan, const Decision& decision);

}  // namespace syno::schedule
