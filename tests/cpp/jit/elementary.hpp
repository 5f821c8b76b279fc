// The elementary functions with their bounds, points to try them at, and their errors in ulp.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "nests.hpp"

namespace syno::jit::testing_nests {

struct ElementaryCase {
  std::string word;
  long double (*exact)(long double);
  double low, high;
  double float_ulps, double_ulps;
};
inline void PrintTo(const ElementaryCase& value, std::ostream* out) { *out << value.word; }

inline long double exact_exp(long double x) { return std::exp(x); }
inline long double exact_log(long double x) { return std::log(x); }
inline long double exact_tanh(long double x) { return std::tanh(x); }
inline long double exact_erf(long double x) { return std::erf(x); }
inline long double exact_sigmoid(long double x) { return 1 / (1 + std::exp(-x)); }
inline long double exact_sqrt(long double x) { return std::sqrt(x); }
inline long double exact_rsqrt(long double x) { return 1 / std::sqrt(x); }
inline long double exact_gelu(long double x) {
  return x * (0.5L * std::erfc(-x / std::numbers::sqrt2_v<long double>));
}

inline long double exact_floor(long double x) { return std::floor(x); }
inline long double exact_ceil(long double x) { return std::ceil(x); }
inline long double exact_round(long double x) { return std::nearbyint(x); }
inline long double exact_trunc(long double x) { return std::trunc(x); }
inline long double exact_sin(long double x) { return std::sin(x); }
inline long double exact_cos(long double x) { return std::cos(x); }
inline long double exact_atan(long double x) { return std::atan(x); }

inline const std::vector<ElementaryCase>& elementary_cases() {
  static const std::vector<ElementaryCase> all{ElementaryCase{"exp", exact_exp, -100, 88, 3, 3},
                                               ElementaryCase{"log", exact_log, 0, 50, 3, 3},
                                               ElementaryCase{"tanh", exact_tanh, -9, 9, 3, 3},
                                               ElementaryCase{"erf", exact_erf, -5, 5, 3, 3},
                                               ElementaryCase{"sigmoid", exact_sigmoid, -100, 30, 3, 3},
                                               ElementaryCase{"gelu", exact_gelu, -14, 8, 8, 8},
                                               ElementaryCase{"sqrt", exact_sqrt, 0, 1000, 0.5, 0.5},
                                               ElementaryCase{"rsqrt", exact_rsqrt, 0, 1000, 2, 2},
                                               ElementaryCase{"floor", exact_floor, -9, 9, 0, 0},
                                               ElementaryCase{"ceil", exact_ceil, -9, 9, 0, 0},
                                               ElementaryCase{"round", exact_round, -9, 9, 0, 0},
                                               ElementaryCase{"trunc", exact_trunc, -9, 9, 0, 0},
                                               ElementaryCase{"sin", exact_sin, -1e4, 1e4, 0.51, 1},
                                               ElementaryCase{"cos", exact_cos, -1e4, 1e4, 0.51, 1},
                                               ElementaryCase{"atan", exact_atan, -20, 20, 2, 2}};
  return all;
}

inline LoopNest elementary_nest(const ElementaryCase& value, const std::string& dtype) {
  return nest::parse_loop_nest("nest f\ninput x: " + dtype + "[4107]\noutput y: " + dtype +
                               "[4107]\nfor i in 0..4107 vector\n  y[i] = " + value.word + "(x[i])\n");
}

/// Where the function is tried: random places, and first those where something changes.
template <class T>
std::vector<T> elementary_points(const ElementaryCase& value) {
  std::vector<T> at(4107);
  Random random(17);
  for (T& x : at) x = static_cast<T>(value.low + (value.high - value.low) * random.unit());
  const double special[] = {0.0,
                            -0.0,
                            1e-30,
                            -1e-30,
                            1e-5,
                            0.5,
                            1,
                            -1,
                            2,
                            std::numeric_limits<double>::infinity(),
                            -std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::quiet_NaN(),
                            1e-40,
                            200,
                            -200,
                            89,
                            -104,
                            1000,
                            -1000,
                            -88,
                            -95,
                            -103,
                            -13,
                            -14.1,
                            -38.4,
                            -740};
  std::size_t i = 0;
  for (const double x : special) at[i++] = static_cast<T>(x);
  return at;
}

template <class T>
double worst_ulps(const ElementaryCase& value, const std::vector<T>& at, const std::vector<T>& got) {
  double worst = 0;
  const T least = std::numeric_limits<T>::denorm_min();
  for (std::size_t i = 0; i < at.size(); ++i) {
    const long double exact = value.exact(static_cast<long double>(at[i]));
    const T nearest = static_cast<T>(exact);
    if (std::isnan(exact) || std::isinf(nearest) || nearest == 0) {
      EXPECT_TRUE(std::isnan(exact) ? std::isnan(got[i]) : got[i] == nearest || std::abs(got[i]) <= 2 * least)
          << value.word << "(" << at[i] << ") = " << got[i];
      EXPECT_TRUE(at[i] != 0 || nearest != 0 || std::signbit(got[i]) == std::signbit(nearest))
          << value.word << "(" << at[i] << ") = " << got[i];
      continue;
    }
    const long double ulp = std::max<long double>(
        std::nextafter(std::abs(nearest), std::numeric_limits<T>::infinity()) - std::abs(nearest),
        std::numeric_limits<T>::denorm_min());
    worst = std::max(worst, static_cast<double>(std::abs(static_cast<long double>(got[i]) - exact) / ulp));
  }
  return worst;
}

inline LoopNest power_nest() {
  return nest::parse_loop_nest(
      "nest f\ninput x: f64[4107]\ninput z: f64[4107]\noutput y: f64[4107]\nfor i in 0..4107 vector\n"
      "  y[i] = power(x[i], z[i])\n");
}

struct PowerPoints {
  std::vector<double> x, z;
};
inline PowerPoints power_points() {
  constexpr int kCount = 4107;
  PowerPoints made{std::vector<double>(kCount), std::vector<double>(kCount)};
  Random random(9);
  for (int i = 0; i < kCount; ++i) {
    double& x = made.x[static_cast<std::size_t>(i)];
    x = std::exp2(2000 * random.unit() - 1000);
    // Close to 1, too, where only exponents of millions change anything.
    if (i % 3 == 0) x = 1 + std::ldexp(random.unit() - 0.5, -i % 40);
    const double most = 700 / std::abs(std::log(x));
    made.z[static_cast<std::size_t>(i)] = (2 * random.unit() - 1) * std::min(most, 1e18);
  }
  return made;
}
inline double worst_power_ulps(const PowerPoints& points, const std::vector<double>& got) {
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const long double exact =
        std::pow(static_cast<long double>(points.x[i]), static_cast<long double>(points.z[i]));
    const auto nearest = static_cast<double>(exact);
    const double ulp = std::nextafter(nearest, std::numeric_limits<double>::infinity()) - nearest;
    worst = std::max(worst, static_cast<double>(std::abs(got[i] - exact) / ulp));
  }
  return worst;
}

}  // namespace syno::jit::testing_nests
