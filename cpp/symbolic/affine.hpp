// symbolic/affine.hpp — affine forms: integers as a constant plus multiples of atoms, what is reasoned about
// of indices. What an atom is, is the user's: an expression here, a loop variable or a quotient in a loop
// nest, an iterator's position in the interpreter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "support/checked.hpp"
#include "support/inline_vector.hpp"
#include "symbolic/expr.hpp"

namespace syno::symbolic {

/// Coefficients of 64 bits: ShapeError beyond.
struct Checked {
  static std::int64_t add(std::int64_t a, std::int64_t b) { return checked_add(a, b); }
  static std::int64_t multiply(std::int64_t a, std::int64_t b) { return checked_multiply(a, b); }
};

/// constant + sum of coefficient * atom; atoms ascending, each once, no coefficient 0.
template <class Atom, class Arithmetic = Checked>
struct AffineForm {
  InlineVector<std::pair<Atom, std::int64_t>, 4> terms;
  std::int64_t constant = 0;
  bool is_constant() const { return terms.empty(); }
  auto operator<=>(const AffineForm&) const = default;
};

template <class Atom, class Arithmetic>
AffineForm<Atom, Arithmetic> add(const AffineForm<Atom, Arithmetic>& a,
                                 const AffineForm<Atom, Arithmetic>& b) {
  AffineForm<Atom, Arithmetic> sum;
  sum.terms.reserve(a.terms.size() + b.terms.size());
  std::size_t i = 0, j = 0;
  while (i < a.terms.size() || j < b.terms.size()) {
    if (j == b.terms.size() || (i < a.terms.size() && a.terms[i].first < b.terms[j].first)) {
      sum.terms.push_back(a.terms[i++]);
    } else if (i == a.terms.size() || b.terms[j].first < a.terms[i].first) {
      sum.terms.push_back(b.terms[j++]);
    } else {
      const std::int64_t coefficient = Arithmetic::add(a.terms[i].second, b.terms[j].second);
      if (coefficient != 0) sum.terms.emplace_back(a.terms[i].first, coefficient);
      ++i, ++j;
    }
  }
  sum.constant = Arithmetic::add(a.constant, b.constant);
  return sum;
}

template <class Atom, class Arithmetic>
AffineForm<Atom, Arithmetic> multiply(const AffineForm<Atom, Arithmetic>& a, std::int64_t factor) {
  AffineForm<Atom, Arithmetic> product;
  if (factor == 0) return product;
  product.terms.reserve(a.terms.size());
  for (const auto& [atom, coefficient] : a.terms)
    product.terms.emplace_back(atom, Arithmetic::multiply(coefficient, factor));
  product.constant = Arithmetic::multiply(a.constant, factor);
  return product;
}

/// The form + added.
template <class Atom, class Arithmetic>
AffineForm<Atom, Arithmetic> with_constant(AffineForm<Atom, Arithmetic> form, std::int64_t added) {
  form.constant = Arithmetic::add(form.constant, added);
  return form;
}

/// An expression over the parts of it that are no sums and no multiples by integers: iterators, quotients,
/// remainders and guarded values, and with symbolic sizes also a size or a multiple by one. A part that holds
/// a guard stays where its coefficient is 0.
AffineForm<ExprId> affine_form(const Arena& arena, ExprId root);
ExprId expression_of(Arena& arena, const AffineForm<ExprId>& form);

/// Whether an expression is written as sums of iterators, multiples by integers and integers alone.
bool is_affine(const Arena& arena, ExprId root);
/// How much an expression grows with an iterator; nothing where that is not the same everywhere.
std::optional<std::int64_t> coefficient_of(const Arena& arena, ExprId root, std::uint32_t slot);

/// The slot when `root` is an iterator and nothing else, else kNoSlot.
inline constexpr std::uint32_t kNoSlot = ~std::uint32_t{0};
inline std::uint32_t slot_of(const Arena& arena, ExprId root) {
  const Expr& node = arena[root];
  return node.op == Op::Iterator ? static_cast<std::uint32_t>(node.a) : kNoSlot;
}

inline bool is_integer(const Arena& arena, SizeId size) {
  return !arena[size].has_variables() && arena[size].factor().integral();
}
/// The integer that a size of a concrete program is.
std::int64_t integer_of(const Arena& arena, SizeId size);

}  // namespace syno::symbolic
