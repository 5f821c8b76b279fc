#include "support/rational.hpp"

#include <limits>
#include <numeric>

#include "support/checked.hpp"
#include "support/error.hpp"

namespace syno {

void fail_overflow(const char* operation, std::int64_t a, std::int64_t b) {
  fail<ShapeError>("integer", "{} {} {} does not fit 64 bits; use smaller sizes", a, operation, b);
}

namespace {

Int128 gcd(Int128 a, Int128 b) {
  if (a < 0) a = -a;
  if (b < 0) b = -b;
  while (b != 0) {
    const Int128 rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/// The finite number numerator / denominator; denominator > 0.
Rational reduced(Int128 numerator, Int128 denominator, Rational a, const char* operation, Rational b) {
  const Int128 divisor = gcd(numerator, denominator);
  numerator /= divisor;
  denominator /= divisor;
  constexpr Int128 most = std::numeric_limits<std::int64_t>::max();
  if (numerator > most || numerator < -most || denominator > most) {
    fail<ShapeError>("rational", "{} {} {} does not fit 64 bits", a.to_text(), operation, b.to_text());
  }
  return Rational(static_cast<std::int64_t>(numerator), static_cast<std::int64_t>(denominator));
}

int sign(std::int64_t value) { return value > 0 ? 1 : value < 0 ? -1 : 0; }

[[noreturn]] void undefined(Rational a, const char* operation, Rational b) {
  fail<ShapeError>("rational", "{} {} {} is undefined", a.to_text(), operation, b.to_text());
}

}  // namespace

Rational::Rational(std::int64_t numerator, std::int64_t denominator) {
  if (denominator == 0) fail<ShapeError>("rational", "{}/0 is undefined", numerator);
  if (denominator == 1) {
    num_ = numerator;
    return;
  }
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
  if (numerator == least || denominator == least) {
    fail<ShapeError>("rational", "{}/{} does not fit 64 bits", numerator, denominator);
  }
  const std::int64_t divisor = std::gcd(numerator, denominator) * (denominator < 0 ? -1 : 1);
  num_ = numerator / divisor;
  den_ = denominator / divisor;
}

Rational Rational::infinity(bool negative) {
  Rational result;
  result.num_ = negative ? -1 : 1;
  result.den_ = 0;
  return result;
}

double Rational::to_double() const {
  if (den_ == 0)
    return num_ < 0 ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  return static_cast<double>(num_) / static_cast<double>(den_);
}

std::string Rational::to_text() const {
  if (den_ == 0) return num_ < 0 ? "-inf" : "inf";
  return den_ == 1 ? fmt::format("{}", num_) : fmt::format("{}/{}", num_, den_);
}

Rational operator+(Rational a, Rational b) {
  if (std::int64_t sum = 0; a.den_ == 1 && b.den_ == 1 && !__builtin_add_overflow(a.num_, b.num_, &sum) &&
                            sum != std::numeric_limits<std::int64_t>::min()) {
    return sum;
  }
  if (a.finite() && b.finite()) {
    return reduced(Int128{a.num_} * b.den_ + Int128{b.num_} * a.den_, Int128{a.den_} * b.den_, a, "+", b);
  }
  if (!a.finite() && !b.finite() && a.num_ != b.num_) undefined(a, "+", b);
  return a.finite() ? b : a;
}

Rational operator-(Rational a, Rational b) {
  if (a.finite() && b.finite()) {
    return reduced(Int128{a.num_} * b.den_ - Int128{b.num_} * a.den_, Int128{a.den_} * b.den_, a, "-", b);
  }
  if (!a.finite() && !b.finite() && a.num_ == b.num_) undefined(a, "-", b);
  return a.finite() ? Rational::infinity(b.num_ > 0) : a;
}

Rational operator*(Rational a, Rational b) {
  if (std::int64_t product = 0; a.den_ == 1 && b.den_ == 1 &&
                                !__builtin_mul_overflow(a.num_, b.num_, &product) &&
                                product != std::numeric_limits<std::int64_t>::min()) {
    return product;
  }
  if (a.finite() && b.finite()) {
    return reduced(Int128{a.num_} * b.num_, Int128{a.den_} * b.den_, a, "*", b);
  }
  const int result = sign(a.num_) * sign(b.num_);
  if (result == 0) undefined(a, "*", b);
  return Rational::infinity(result < 0);
}

Rational operator/(Rational a, Rational b) {
  if (b.num_ == 0 || (!a.finite() && !b.finite())) undefined(a, "/", b);
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
  if (a.den_ == 1 && b.den_ == 1 && a.num_ != least && b.num_ != least) return Rational(a.num_, b.num_);
  if (!b.finite()) return 0;
  if (!a.finite()) return Rational::infinity(sign(a.num_) * sign(b.num_) < 0);
  const Int128 flip = b.num_ < 0 ? -1 : 1;
  return reduced(flip * a.num_ * b.den_, flip * b.num_ * a.den_, a, "/", b);
}

std::strong_ordering operator<=>(Rational a, Rational b) {
  if (!a.finite() || !b.finite()) {
    const int left = a.finite() ? 0 : sign(a.num_);
    const int right = b.finite() ? 0 : sign(b.num_);
    return left <=> right;
  }
  const Int128 left = Int128{a.num_} * b.den_;
  const Int128 right = Int128{b.num_} * a.den_;
  return left < right   ? std::strong_ordering::less
         : left > right ? std::strong_ordering::greater
                        : std::strong_ordering::equal;
}

}  // namespace syno
