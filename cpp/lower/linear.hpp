// lower/linear.hpp — index expressions as sums of integer multiples of atoms.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "symbolic/expr.hpp"

namespace syno::lower {

/// constant + sum of coefficient * atom; an atom is an iterator, a quotient, a remainder or a guarded value,
/// and with symbolic sizes also a size or a multiple by one. Coefficients are not 0 (but for an atom that
/// holds a guard), atoms distinct, in order of their ids.
struct LinearForm {
  std::vector<std::pair<symbolic::ExprId, std::int64_t>> terms;
  std::int64_t constant = 0;
};

LinearForm linear_form(const symbolic::Arena& arena, symbolic::ExprId root);
symbolic::ExprId expression_of(symbolic::Arena& arena, const LinearForm& form);

/// The slot when `root` is an iterator and nothing else, else kNoSlot.
inline constexpr std::uint32_t kNoSlot = ~std::uint32_t{0};
inline std::uint32_t slot_of(const symbolic::Arena& arena, symbolic::ExprId root) {
  const symbolic::Expr& node = arena[root];
  return node.op == symbolic::Op::Iterator ? static_cast<std::uint32_t>(node.a) : kNoSlot;
}

inline bool is_integer(const symbolic::Arena& arena, symbolic::SizeId size) {
  return !arena[size].has_variables() && arena[size].factor().integral();
}
/// The integer that a size of a concrete program is.
std::int64_t integer_of(const symbolic::Arena& arena, symbolic::SizeId size);

}  // namespace syno::lower
