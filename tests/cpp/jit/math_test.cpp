// The elementary functions' accuracy, measured against the C library in the wider type.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "nests.hpp"

namespace syno::jit {
namespace {

using namespace testing_nests;

struct Case {
  std::string word;
  long double (*exact)(long double);
  double low, high;
  double float_ulps, double_ulps;
};
void PrintTo(const Case& value, std::ostream* out) { *out << value.word; }

long double exact_exp(long double x) { return std::exp(x); }
long double exact_log(long double x) { return std::log(x); }
long double exact_tanh(long double x) { return std::tanh(x); }
long double exact_erf(long double x) { return std::erf(x); }
long double exact_sigmoid(long double x) { return 1 / (1 + std::exp(-x)); }
long double exact_sqrt(long double x) { return std::sqrt(x); }
long double exact_rsqrt(long double x) { return 1 / std::sqrt(x); }
long double exact_gelu(long double x) {
  return x * (0.5L * std::erfc(-x / std::numbers::sqrt2_v<long double>));
}

class ElementaryFunction : public testing::TestWithParam<Case> {};

template <class T>
double worst_ulps(const Case& value, const std::vector<T>& at, const std::vector<T>& got) {
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

template <class T>
double measure(const Case& value, const std::string& dtype) {
  const LoopNest nest =
      nest::parse_loop_nest("nest f\ninput x: " + dtype + "[4107]\noutput y: " + dtype +
                            "[4107]\nfor i in 0..4107 vector\n  y[i] = " + value.word + "(x[i])\n");
  std::vector<T> at(4107), got(4107);
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
  void* pointers[] = {at.data(), got.data()};
  compile(nest)->call_unchecked(pointers, 1);
  return worst_ulps(value, at, got);
}

TEST_P(ElementaryFunction, IsWithinItsBound) {
  const Case& value = GetParam();
  const double narrow = measure<float>(value, "f32"), wide = measure<double>(value, "f64");
  RecordProperty("float_ulps", std::to_string(narrow));
  RecordProperty("double_ulps", std::to_string(wide));
  std::cout << value.word << ": f32 " << narrow << " ulp, f64 " << wide << " ulp\n";
  EXPECT_LE(narrow, value.float_ulps);
  EXPECT_LE(wide, value.double_ulps);
}

INSTANTIATE_TEST_SUITE_P(
    Table, ElementaryFunction,
    testing::Values(Case{"exp", exact_exp, -100, 88, 3, 3}, Case{"log", exact_log, 0, 50, 3, 3},
                    Case{"tanh", exact_tanh, -9, 9, 3, 3}, Case{"erf", exact_erf, -5, 5, 3, 3},
                    Case{"sigmoid", exact_sigmoid, -100, 30, 3, 3}, Case{"gelu", exact_gelu, -14, 8, 8, 8},
                    Case{"sqrt", exact_sqrt, 0, 1000, 0.5, 0.5}, Case{"rsqrt", exact_rsqrt, 0, 1000, 2, 2}),
    [](const auto& info) { return info.param.word; });

TEST(Power, IsWithinTwoUnits) {
  constexpr int kCount = 4107;
  const LoopNest nest = nest::parse_loop_nest(
      "nest f\ninput x: f64[4107]\ninput z: f64[4107]\noutput y: f64[4107]\nfor i in 0..4107 vector\n"
      "  y[i] = power(x[i], z[i])\n");
  std::vector<double> x(kCount), z(kCount), got(kCount);
  Random random(9);
  for (int i = 0; i < kCount; ++i) {
    x[static_cast<std::size_t>(i)] = std::exp2(2000 * random.unit() - 1000);
    // Close to 1, too, where only exponents of millions change anything.
    if (i % 3 == 0) x[static_cast<std::size_t>(i)] = 1 + std::ldexp(random.unit() - 0.5, -i % 40);
    const double most = 700 / std::abs(std::log(x[static_cast<std::size_t>(i)]));
    z[static_cast<std::size_t>(i)] = (2 * random.unit() - 1) * std::min(most, 1e18);
  }
  const Cpu generic = cpu_named("generic");
  for (const Cpu* cpu : {&host_cpu(), &generic}) {
    void* pointers[] = {x.data(), z.data(), got.data()};
    CompileOptions options;
    options.cpu = cpu;
    compile(nest, options)->call_unchecked(pointers, 1);
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const long double exact = std::pow(static_cast<long double>(x[i]), static_cast<long double>(z[i]));
      const auto nearest = static_cast<double>(exact);
      const double ulp = std::nextafter(nearest, std::numeric_limits<double>::infinity()) - nearest;
      worst = std::max(worst, static_cast<double>(std::abs(got[i] - exact) / ulp));
    }
    EXPECT_LE(worst, 2) << cpu->name;
  }
}

template <class T>
void expect_whole_powers(Dtype dtype) {
  using Limits = std::numeric_limits<T>;
  std::vector<T> bases{0,
                       -T(0),
                       Limits::infinity(),
                       -Limits::infinity(),
                       Limits::max(),
                       Limits::min(),
                       Limits::denorm_min(),
                       -Limits::denorm_min()};
  Random random(11);
  while (bases.size() < 512) {
    const double e = (2 * random.unit() - 1) * (Limits::max_exponent + Limits::digits);
    const T size = static_cast<T>(std::exp2(static_cast<long double>(e)));
    if (std::isfinite(size)) bases.push_back(random.below(2) ? size : -size);
  }
  for (const int n : {-16, -13, -7, -5, -4, -3, -2, -1, 1, 2, 3, 4, 5, 7, 13, 16}) {
    LoopNest made = nest::parse_loop_nest(fmt::format(
        "nest f\ninput x: f32[512]\noutput y: f32[512]\nfor i in 0..512 vector\n  y[i] = power(x[i], {})\n",
        n));
    for (nest::Buffer& buffer : made.buffers) buffer.dtype = dtype;
    NestRun run = random_arguments(made, random);
    for (std::size_t i = 0; i < bases.size(); ++i)
      run.arguments[0].set(static_cast<std::int64_t>(i), static_cast<double>(bases[i]));
    compile(made)->call(run.views(), 1);
    for (std::size_t i = 0; i < bases.size(); ++i) {
      const T got = static_cast<T>(run.arguments[1].get(static_cast<std::int64_t>(i)));
      const long double exact = std::pow(static_cast<long double>(bases[i]), static_cast<long double>(n));
      const T nearest = static_cast<T>(exact);
      EXPECT_EQ(std::signbit(got), std::signbit(nearest)) << bases[i] << "^" << n;
      if (std::isinf(nearest) || std::isinf(got)) {  // within the error of the end of the range
        EXPECT_GE(std::abs(got), Limits::max() * (1 - 32 * Limits::epsilon())) << bases[i] << "^" << n;
        EXPECT_GE(std::abs(nearest), Limits::max() * (1 - 32 * Limits::epsilon())) << bases[i] << "^" << n;
        continue;
      }
      const T ulp = std::max(std::nextafter(std::abs(nearest), Limits::infinity()) - std::abs(nearest),
                             Limits::denorm_min());
      EXPECT_LE(std::abs(static_cast<long double>(got) - exact),
                static_cast<long double>(n < 0 ? -2 * n : n) * static_cast<long double>(ulp))
          << bases[i] << "^" << n << " = " << got;
    }
  }
}

TEST(Power, OfLiteralWholeExponentsIsExactOverTheWholeRange) {
  expect_whole_powers<float>(Dtype::F32);
  expect_whole_powers<double>(Dtype::F64);
}

TEST(Power, FollowsTheCLibrary) {
  for (const std::string dtype : {"f32", "f64"}) {
    const LoopNest nest = nest::parse_loop_nest(
        "nest f\ninput x: f32[64]\ninput z: f32[64]\noutput y: f32[64]\noutput c: f32[64]\nfor i in 0..64 "
        "vector\n"
        "  y[i] = power(x[i], z[i])\n  c[i] = power(x[i], -3) + power(x[i], 0) + power(x[i], 5)\n");
    LoopNest typed = nest;
    for (nest::Buffer& buffer : typed.buffers) buffer.dtype = dtype == "f32" ? Dtype::F32 : Dtype::F64;
    Random random(5);
    NestRun run = random_arguments(typed, random);
    const double bases[] = {0, 1, -1, 2, -2, 0.5, -0.5, 3.25};
    const double exponents[] = {0, 1, -1, 2, 3, 0.5, -2.5, 7};
    for (std::int64_t i = 0; i < 64; ++i) {
      run.arguments[0].set(i, bases[i / 8]);
      run.arguments[1].set(i, exponents[i % 8]);
    }
    compile(typed)->call(run.views(), 1);
    for (std::int64_t i = 0; i < 64; ++i) {
      const double x = bases[i / 8], z = exponents[i % 8], wanted = std::pow(x, z);
      const double got = run.arguments[2].get(i);
      if (std::isnan(wanted))
        EXPECT_TRUE(std::isnan(got)) << x << "^" << z;
      else if (std::isinf(wanted))
        EXPECT_TRUE(std::isinf(got)) << x << "^" << z << " = " << got;
      else
        EXPECT_NEAR(got, wanted, 2e-7 * std::abs(wanted)) << x << "^" << z;
      if (x != 0) EXPECT_NEAR(run.arguments[3].get(i), std::pow(x, -3) + 1 + std::pow(x, 5), 1e-4 * 400);
    }
  }
}

}  // namespace
}  // namespace syno::jit
