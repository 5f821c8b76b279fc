// symbolic/size.hpp — sizes: monomials over primary and coefficient variables, and their valuations.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/rational.hpp"

namespace syno::symbolic {

/// Primary variables are large (`N`, `C_in`, `H`) and never divide; coefficient variables are small
/// (`k`, `s`, `g`) and may have negative exponents. (Syno §5.4)
enum class VariableKind : std::uint8_t { Primary, Coefficient };
struct Variable {
  std::string name;
  VariableKind kind = VariableKind::Primary;
  bool operator==(const Variable&) const = default;
};

inline constexpr std::size_t kMaxVariables = 16;

/// A monomial: a positive rational factor times powers of variables. A concrete size is one without
/// variables. Products and quotients that leave 64 bits or 8-bit exponents throw ShapeError.
class Size {
 public:
  constexpr Size() = default;  ///< one
  explicit Size(std::int64_t value) : factor_(value) {}
  explicit Size(Rational factor) : factor_(factor) {}
  static Size variable(std::size_t index, int exponent = 1);

  Rational factor() const { return factor_; }
  int exponent(std::size_t variable) const { return exponents_[variable]; }
  bool has_variables() const;
  bool is_one() const { return *this == Size(); }

  friend Size operator*(const Size& a, const Size& b);
  friend Size operator/(const Size& a, const Size& b);
  Size pow(int exponent) const;
  bool operator==(const Size&) const = default;
  /// A fixed order for canonical forms; not the order of values.
  std::strong_ordering operator<=>(const Size& other) const;

 private:
  Rational factor_ = 1;
  std::array<std::int8_t, kMaxVariables> exponents_{};
};

/// The variables in scope and all their valuations (one for each layer of the model). With no variables
/// there is one empty valuation, so that "for every valuation" reads the same for concrete programs.
class Sizes {
 public:
  Sizes() = default;
  /// Each row of `valuations` gives every variable a value >= 1; no rows with variables present means
  /// "not known yet": predicates that need values then throw SpecError.
  Sizes(std::vector<Variable> variables, std::vector<std::vector<std::int64_t>> valuations);

  const std::vector<Variable>& variables() const { return variables_; }
  std::optional<std::size_t> find(std::string_view name) const;
  std::size_t valuation_count() const { return variables_.empty() ? 1 : valuations_.size(); }
  std::span<const std::int64_t> valuation(std::size_t index) const;
  std::size_t add_variable(Variable variable);  ///< only while there is no valuation
  bool operator==(const Sizes&) const = default;

  Rational value(const Size& size, std::size_t valuation) const;
  std::int64_t integer_value(const Size& size,
                             std::size_t valuation) const;  ///< ShapeError if not an integer

  // Predicates: true when they hold for every valuation.
  bool integral(const Size& size) const;
  bool divides(const Size& divisor, const Size& size) const;
  bool less(const Size& a, const Size& b) const;
  bool less_equal(const Size& a, const Size& b) const;
  bool equal_values(const Size& a, const Size& b) const;
  bool much_larger(const Size& large, const Size& small, Rational ratio) const;  ///< large >= ratio * small

  /// `C_in*g^-1`, `3*H`, `1/2*k`, `1`. Variables in table order; parse accepts any order, `/` and
  /// parentheses.
  std::string to_text(const Size& size) const;
  Size parse(std::string_view text) const;

 private:
  std::vector<Variable> variables_;
  std::vector<std::vector<std::int64_t>> valuations_;
};

}  // namespace syno::symbolic
