#include "symbolic/condition.hpp"

namespace syno::symbolic {

ExprId without_inside(Arena& arena, ExprId e, std::vector<Condition>& conditions) {
  if (!arena.has_inside(e)) return e;
  const Expr node = arena[e];
  const auto inner = [&](ExprId child) { return without_inside(arena, child, conditions); };
  if (node.op != Op::Inside) return arena.over(e, inner);
  const ExprId a = inner(node.a);
  conditions.push_back({a, 0, arena[node.size].factor().num()});
  return a;
}

}  // namespace syno::symbolic
