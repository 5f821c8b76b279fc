#include "derive/toom_cook_matrices.hpp"

#include <array>
#include <numeric>

#include "support/error.hpp"

namespace syno::derive {

namespace {

using Polynomial = std::vector<Rational>;  ///< coefficients, that of x^0 first

using Points = std::array<Rational, kMostPoints - 1>;

const Points& list_of(PointSet set) {
  // Each point with its negated inverse as soon as possible: their powers grow apart least.
  static const Points kBalanced{0, 1, -1, 2, {-1, 2}, -2, {1, 2}, {3, 2}, {-2, 3}};
  static const Points kIntegers{0, 1, -1, 2, -2, {1, 2}, {-1, 2}, 4, -4};
  return set == PointSet::Balanced ? kBalanced : kIntegers;
}

std::vector<Rational> finite_points(std::int64_t count, PointSet set) {
  const Points& points = list_of(set);
  SYNO_ASSERT(count <= static_cast<std::int64_t>(points.size()), "there is a point for each product");
  return {points.begin(), points.begin() + count};
}

/// The product of x - p over the points, but for one of them.
Polynomial product_without(const std::vector<Rational>& points, std::size_t left_out) {
  Polynomial product{1};
  for (std::size_t k = 0; k < points.size(); ++k) {
    if (k == left_out) continue;
    Polynomial next(product.size() + 1);
    for (std::size_t d = 0; d < product.size(); ++d) {
      next[d + 1] = next[d + 1] + product[d];
      next[d] = next[d] - points[k] * product[d];
    }
    product = std::move(next);
  }
  return product;
}

/// [1, p, p², ...].
std::vector<Rational> powers(Rational p, std::int64_t count) {
  std::vector<Rational> row;
  Rational power = 1;
  for (std::int64_t d = 0; d < count; ++d, power = power * p) row.push_back(power);
  return row;
}

Rational value_at(const Polynomial& polynomial, Rational x) {
  Rational value = 0;
  for (std::size_t d = polynomial.size(); d-- > 0;) value = value * x + polynomial[d];
  return value;
}

/// The least positive factor that makes integers without a common divisor of the coefficients.
Rational to_integers(const Polynomial& row) {
  std::int64_t multiple = 1, divisor = 0;
  for (const Rational& value : row) multiple = std::lcm(multiple, value.den());
  for (const Rational& value : row) divisor = std::gcd(divisor, (value * Rational(multiple)).num());
  return {multiple, divisor};
}

}  // namespace

ToomCook toom_cook_matrices(std::int64_t m, std::int64_t n, PointSet set) {
  SYNO_ASSERT(m >= 1 && n >= 1 && m + n - 1 <= kMostPoints, "there are points for tiles of this size");
  const std::int64_t count = m + n - 1;
  const auto points = finite_points(count - 1, set);
  ToomCook made;
  made.output.resize(static_cast<std::size_t>(m));
  // Polynomials multiplied at points and interpolated, transposed: what interpolates is done to the input.
  for (std::size_t k = 0; k < static_cast<std::size_t>(count); ++k) {
    const bool infinite = k + 1 == static_cast<std::size_t>(count);
    Polynomial lagrange = product_without(points, k);
    lagrange.resize(static_cast<std::size_t>(count));
    Rational norm = infinite ? Rational(1) : value_at(lagrange, points[k]);
    const Rational scale = to_integers(lagrange) * (norm < 0 ? -1 : 1);
    norm = norm * scale;
    for (Rational& value : lagrange) value = value * scale;
    std::vector<Rational> weights(static_cast<std::size_t>(n)), output(static_cast<std::size_t>(m));
    if (infinite) {
      weights.back() = 1, output.back() = 1;
    } else {
      weights = powers(points[k], n), output = powers(points[k], m);
    }
    for (Rational& value : weights) value = value / norm;
    made.input.push_back(std::move(lagrange));
    made.weights.push_back(std::move(weights));
    for (std::size_t j = 0; j < output.size(); ++j) made.output[j].push_back(output[j]);
  }
  return made;
}

}  // namespace syno::derive
