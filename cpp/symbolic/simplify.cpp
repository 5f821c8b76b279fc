// The driver of the simplifier; the rules themselves are in rules.cpp.
#include "symbolic/simplify.hpp"

#include <algorithm>

#include "support/error.hpp"

namespace syno::symbolic {
namespace {

constexpr ExprId kUnseen{0xffffffff};
std::size_t position(ExprId id) { return static_cast<std::size_t>(id); }

}  // namespace

Simplifier::Simplifier(Arena& arena, Context context, const SimplifyOptions& options)
    : context_(std::move(context)), facts_(arena, context_), trace_(options.trace) {
  for (const Rule& rule : rules()) {
    if (!options.disabled.contains(rule.name)) enabled_.push_back(&rule);
  }
  if (enabled_.size() + options.disabled.size() == rules().size()) return;
  std::vector<std::string> names;
  for (const Rule& rule : rules()) names.emplace_back(rule.name);
  for (const std::string& name : options.disabled) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw UnknownName("simplify", unknown_name("simplifier rule", name, names));
    }
  }
}

void Simplifier::remember(ExprId id, ExprId result) {
  if (position(id) >= memo_.size())
    memo_.resize(std::max(position(id) + 1, facts_.arena().node_count()), kUnseen);
  memo_[position(id)] = result;
}

ExprId Simplifier::operator()(ExprId root) {
  if (position(root) < memo_.size() && memo_[position(root)] != kUnseen) return memo_[position(root)];
  const ExprId result = rewrite(rebuild(root));
  remember(root, result);
  remember(result, result);
  return result;
}

/// The node over simplified operands. Of a sum the operands are the ends of its tree: partial sums are not
/// worth simplifying.
ExprId Simplifier::rebuild(ExprId id) {
  Arena& arena = facts_.arena();
  const Op op = arena[id].op;
  const bool linear = op == Op::Add || op == Op::Multiply;
  return arena.over(id, [this, linear](ExprId child) {
    const Op inner = facts_.arena()[child].op;
    return linear && (inner == Op::Add || inner == Op::Multiply) ? rebuild(child) : (*this)(child);
  });
}

ExprId Simplifier::rewrite(ExprId id) {
  for (const Rule* rule : enabled_) {
    const ExprId next = rule->apply(facts_, id);
    if (next == id) continue;
    if (trace_) trace_->push_back(rule->name);
    return (*this)(next);
  }
  return id;
}

ExprId simplify(Arena& arena, ExprId root, const Context& context, const SimplifyOptions& options) {
  return Simplifier(arena, context, options)(root);
}

}  // namespace syno::symbolic
