// The elementary functions' accuracy, measured against the C library in the wider type.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "elementary.hpp"

namespace syno::jit {
namespace {

using namespace testing_nests;

class ElementaryFunction : public ::testing::TestWithParam<ElementaryCase> {};

template <class T>
double measure(const ElementaryCase& value, const std::string& dtype) {
  std::vector<T> at = elementary_points<T>(value), got(at.size());
  void* pointers[] = {at.data(), got.data()};
  compile(elementary_nest(value, dtype))->call_unchecked(pointers, 1);
  return worst_ulps(value, at, got);
}

TEST_P(ElementaryFunction, IsWithinItsBound) {
  const ElementaryCase& value = GetParam();
  const double narrow = measure<float>(value, "f32"), wide = measure<double>(value, "f64");
  RecordProperty("float_ulps", std::to_string(narrow));
  RecordProperty("double_ulps", std::to_string(wide));
  std::cout << value.word << ": f32 " << narrow << " ulp, f64 " << wide << " ulp\n";
  EXPECT_LE(narrow, value.float_ulps);
  EXPECT_LE(wide, value.double_ulps);
}

INSTANTIATE_TEST_SUITE_P(Table, ElementaryFunction, ::testing::ValuesIn(elementary_cases()),
                         [](const auto& info) { return info.param.word; });

TEST(Power, IsWithinTwoUnits) {
  PowerPoints points = power_points();
  std::vector<double> got(points.x.size());
  const Cpu generic = cpu_named("generic");
  for (const Cpu* cpu : {&host_cpu(), &generic}) {
    void* pointers[] = {points.x.data(), points.z.data(), got.data()};
    CompileOptions options;
    options.cpu = cpu;
    compile(power_nest(), options)->call_unchecked(pointers, 1);
    EXPECT_LE(worst_power_ulps(points, got), 2) << cpu->name;
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
