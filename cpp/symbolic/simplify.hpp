// symbolic/simplify.hpp — the one simplifier: a table of named rules over index expressions.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "symbolic/expr.hpp"
#include "symbolic/facts.hpp"

namespace syno::symbolic {

/// One rewriting. `apply` looks at one node (what is below it is already simplified) and returns the
/// rewritten expression, or the same id where the rule does not match. A condition on sizes or ranges must
/// hold for every valuation. Each row shrinks a fixed measure, so that rewriting ends.
struct Rule {
  std::string_view name;
  std::string_view statement;  ///< `(B*x + y) / B -> x + y / B`
  ExprId (*apply)(Facts& facts, ExprId node);
};
std::span<const Rule> rules();

struct SimplifyOptions {
  std::set<std::string, std::less<>> disabled;     ///< names of rules; unknown ones throw UnknownName
  std::vector<std::string_view>* trace = nullptr;  ///< names of the rules that fired, in order
};

/// Simplifies many expressions of one arena under one context, remembering what it has seen. Keeps references
/// to both; the context's ranges must not change while it lives.
class Simplifier {
 public:
  Simplifier(Arena& arena, Context context, const SimplifyOptions& options = {});
  Simplifier(const Simplifier&) = delete;
  Simplifier& operator=(const Simplifier&) = delete;
  ExprId operator()(ExprId root);
  Facts& facts() { return facts_; }

 private:
  ExprId rewrite(ExprId id);
  ExprId rebuild(ExprId id);
  void remember(ExprId id, ExprId result);

  Context context_;
  Facts facts_;
  std::vector<const Rule*> enabled_;
  std::vector<std::string_view>* trace_;
  std::vector<ExprId> memo_;  ///< by ExprId; an id past every node: not seen yet
};

/// Rewrites bottom-up until no rule applies; sums come out flattened, like terms collected, in a fixed order.
///
///     ((i*B + j) / B) * B + (i*B + j) % B   ->   i*B + j      (0 <= j < B)
///
/// Pure (interns only), idempotent, each distinct subterm visited once, equal value wherever the input has
/// one; an `inside` is dropped only where it can never fail.
ExprId simplify(Arena& arena, ExprId root, const Context& context, const SimplifyOptions& options = {});

}  // namespace syno::symbolic
