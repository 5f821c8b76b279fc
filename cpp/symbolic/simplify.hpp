// symbolic/simplify.hpp — the one simplifier: a table of named rules over index expressions.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "symbolic/expr.hpp"

namespace syno::symbolic {

/// One rewriting. `apply` looks at one node (its children are already simplified) and returns the rewritten
/// expression, or the same id where the rule does not match. A condition on sizes or ranges must hold for
/// every valuation. Each row shrinks a fixed measure, so that rewriting ends.
struct Rule {
  std::string_view name;
  std::string_view statement;  ///< `(x*B + y) / B -> x where 0 <= y < B`
  ExprId (*apply)(Arena& arena, ExprId node, const Context& context);
};
std::span<const Rule> rules();

struct SimplifyOptions {
  std::set<std::string, std::less<>> disabled;   ///< names of rules; unknown ones throw UnknownName
  std::vector<std::string_view>* trace = nullptr;  ///< names of the rules that fired, in order
};

/// Rewrites bottom-up until no rule applies; sums come out flattened, like terms collected, in a fixed order.
///
///     ((i*B + j) / B) * B + (i*B + j) % B   ->   i*B + j      (0 <= j < B)
///
/// Pure (interns only), idempotent, each distinct subterm visited once, equal value wherever the input has one;
/// an `inside` is dropped only where it can never fail.
ExprId simplify(Arena& arena, ExprId root, const Context& context, const SimplifyOptions& options = {});

}  // namespace syno::symbolic
