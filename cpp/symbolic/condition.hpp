// symbolic/condition.hpp — conditions on integers: an expression lies in a range.
#pragma once

#include <cstdint>
#include <vector>

#include "symbolic/expr.hpp"

namespace syno::symbolic {

/// expr in [begin, end).
struct Condition {
  ExprId expr{};
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// `e` without its `inside` guards, which become conditions; sizes are concrete.
ExprId without_inside(Arena& arena, ExprId e, std::vector<Condition>& conditions);

}  // namespace syno::symbolic
