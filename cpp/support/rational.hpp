// support/rational.hpp — exact numbers: what exact interpretation computes with and what fills and literals
// hold.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace syno {

/// numerator / denominator in lowest terms, denominator >= 0. Denominator 0 with numerator ±1 is ±infinity.
/// Arithmetic is exact; a result that does not fit 64 bits throws ShapeError("rational", ...), never wraps.
class Rational {
 public:
  constexpr Rational() = default;
  constexpr Rational(std::int64_t integer) : num_(integer) {}  // NOLINT: implicit on purpose
  Rational(std::int64_t numerator, std::int64_t denominator);  ///< denominator != 0
  static Rational infinity(bool negative = false);

  std::int64_t num() const { return num_; }
  std::int64_t den() const { return den_; }
  bool finite() const { return den_ != 0; }
  bool integral() const { return den_ == 1; }
  double to_double() const;
  std::string to_text() const;  ///< "3", "-1/2", "inf", "-inf"

  friend Rational operator+(Rational a, Rational b);
  friend Rational operator-(Rational a, Rational b);
  friend Rational operator*(Rational a, Rational b);
  friend Rational operator/(Rational a, Rational b);  ///< b != 0
  friend bool operator==(Rational a, Rational b) = default;
  friend std::strong_ordering operator<=>(Rational a, Rational b);

 private:
  std::int64_t num_ = 0;
  std::int64_t den_ = 1;
};

}  // namespace syno
