// Samples between elements: against sums over all elements, each by its distance.
#include "graph/sample.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "support/bfloat16.hpp"
#include "support/error.hpp"
#include "support/random.hpp"

namespace syno::graph {
namespace {

constexpr double kEndless = std::numeric_limits<double>::infinity();
const double kNothing = std::nan("");

struct Sampling {
  std::string mode, padding;
  bool align = false;
  std::string attributes() const {
    return fmt::format(R"({{"mode": "{}", "padding": "{}", "align": {}}})", mode, padding, align);
  }
};

std::int64_t count_in(const Shape& shape) { return program::checked_product("test", shape); }

/// A whole coordinate as the padding has it; nothing: outside.
std::optional<std::int64_t> met(std::int64_t c, std::int64_t extent, const Sampling& how) {
  if (how.padding == "border") return std::clamp<std::int64_t>(c, 0, extent - 1);
  if (how.padding == "reflection") {
    while (extent > 1 && (c < 0 || c >= extent)) {
      if (c < 0) c = how.align ? -c : -1 - c;
      if (c >= extent) c = how.align ? 2 * extent - 2 - c : 2 * extent - 1 - c;
    }
    return extent == 1 ? 0 : c;
  }
  return c >= 0 && c < extent ? std::optional(c) : std::nullopt;
}

/// How much of each element along one axis a place is.
std::vector<double> weights_of(double g, std::int64_t extent, const Sampling& how) {
  std::vector<double> weights(static_cast<std::size_t>(extent), 0);
  double c = how.align ? (g + 1) / 2 * static_cast<double>(extent - 1)
                       : ((g + 1) * static_cast<double>(extent) - 1) / 2;
  if (!std::isfinite(c)) return weights;
  const auto add = [&](std::int64_t at, double weight) {
    if (const auto found = met(at, extent, how)) weights[static_cast<std::size_t>(*found)] += weight;
  };
  const double last = static_cast<double>(extent - 1);
  if (how.mode != "bicubic" && how.padding == "reflection") {  // of coordinates, before they are rounded
    const double low = how.align ? 0 : -0.5, high = how.align ? last : last + 0.5;
    if (low == high) c = 0;
    while (c < low || c > high) c = c < low ? 2 * low - c : 2 * high - c;
  }
  if (how.mode != "bicubic" && how.padding != "zeros") c = std::clamp(c, 0.0, last);
  const double first = std::floor(c), t = c - first;
  const auto at = static_cast<std::int64_t>(first);
  if (how.mode == "nearest") {
    add(static_cast<std::int64_t>(std::nearbyint(c)), 1);
  } else if (how.mode == "bilinear") {
    add(at, 1 - t);
    add(at + 1, t);
  } else {
    for (std::int64_t tap = -1; tap <= 2; ++tap) {
      const double away = std::abs(t - static_cast<double>(tap)), a = -0.75;
      add(at + tap, away <= 1 ? ((a + 2) * away - (a + 3)) * away * away + 1
                              : ((a * away - 5 * a) * away + 8 * a) * away - 4 * a);
    }
  }
  return weights;
}

/// Every sample as a sum over all elements.
std::vector<double> sums(const Shape& x, const std::vector<double>& values, const Shape& grid,
                         const std::vector<double>& places, const Sampling& how) {
  const std::size_t axes = x.size() - 2;
  const Shape extents(x.begin() + 2, x.end());
  const std::int64_t elements = count_in(extents);
  const std::int64_t each = count_in(Shape(grid.begin() + 1, grid.end() - 1));
  std::vector<double> result;
  for (std::int64_t n = 0; n < x[0]; ++n)
    for (std::int64_t c = 0; c < x[1]; ++c)
      for (std::int64_t p = 0; p < each; ++p) {
        std::vector<std::vector<double>> weights;
        for (std::size_t d = 0; d < axes; ++d) {
          const auto at = static_cast<std::size_t>(n * each + p) * axes + axes - 1 - d;
          weights.push_back(weights_of(places[at], extents[d], how));
        }
        double sum = 0;
        for (std::int64_t e = 0; e < elements; ++e) {
          double weight = 1;
          std::int64_t rest = e;
          for (std::size_t d = axes; d-- > 0; rest /= extents[d])
            weight *= weights[d][static_cast<std::size_t>(rest % extents[d])];
          if (weight != 0) sum += weight * values[static_cast<std::size_t>((n * x[1] + c) * elements + e)];
        }
        result.push_back(sum);
      }
  return result;
}

template <class T>
std::vector<double> sampled(ElementType type, const Shape& x, const std::vector<double>& values,
                            const Shape& grid, const std::vector<double>& places, const Sampling& how,
                            const std::function<T(double)>& stored, const std::function<double(T)>& read) {
  std::vector<T> from, at;
  for (const double value : values) from.push_back(stored(value));
  for (const double place : places) at.push_back(stored(place));
  const std::vector<Operand> inputs{{type, x}, {type, grid}};
  std::vector<T> to(static_cast<std::size_t>(count_in(sample_result(inputs, how.attributes()).shape)));
  void* pointers[] = {from.data(), at.data(), to.data()};
  sample_bind(inputs, how.attributes())(pointers);
  std::vector<double> made;
  for (const T value : to) made.push_back(read(value));
  return made;
}

Sampling random_sampling(Random& random, bool cubic) {
  return {std::array{"bilinear", "nearest", "bicubic"}[random.below(cubic ? 3 : 2)],
          std::array{"zeros", "border", "reflection"}[random.below(3)], random.below(2) == 0};
}

TEST(Sample, IsTheSumOfElementsByTheirDistances) {
  Random random(11);
  for (int trial = 0; trial < 200; ++trial) {
    const std::size_t axes = 1 + random.below(3);
    const Sampling how = random_sampling(random, axes == 2);
    Shape x{1 + static_cast<std::int64_t>(random.below(2)), 1 + static_cast<std::int64_t>(random.below(3))};
    Shape grid{x[0]};
    for (std::size_t d = 0; d < axes; ++d) {
      x.push_back(1 + static_cast<std::int64_t>(random.below(6)));
      // More places than are looked at together, and fewer.
      grid.push_back(1 + static_cast<std::int64_t>(random.below(d == 0 && trial % 4 == 0 ? 200 : 5)));
    }
    grid.push_back(static_cast<std::int64_t>(axes));
    std::vector<double> values, places;
    for (std::int64_t i = count_in(x); i-- > 0;)
      values.push_back(static_cast<double>(random.below(200)) / 64 - 1.5);
    // In steps of which float holds every coordinate, those in the middle of two elements among them.
    for (std::int64_t i = count_in(grid); i-- > 0;)
      places.push_back(static_cast<double>(random.below(97)) / 32 - 1.5);
    const auto wanted = sums(x, values, grid, places, how);
    const std::string what =
        fmt::format("{} of {} at {}", how.attributes(), fmt::join(x, "x"), fmt::join(grid, "x"));
    const Operand in{ElementType::F64, x}, at{ElementType::F64, grid};
    const auto exact = sample_interpret({in, at}, how.attributes(), {{x, values}, {grid, places}}).data;
    ASSERT_EQ(exact.size(), wanted.size()) << what;
    const auto single = sampled<float>(
        ElementType::F32, x, values, grid, places, how, [](double v) { return static_cast<float>(v); },
        [](float v) { return v; });
    const auto twice = sampled<double>(
        ElementType::F64, x, values, grid, places, how, [](double v) { return v; },
        [](double v) { return v; });
    const auto brain = sampled<std::uint16_t>(
        ElementType::BF16, x, values, grid, places, how,
        [](double v) { return to_bfloat16(static_cast<float>(v)); },
        [](std::uint16_t v) { return from_bfloat16(v); });
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_NEAR(exact[i], wanted[i], 1e-12) << what;
      ASSERT_EQ(twice[i], exact[i]) << what;
      ASSERT_NEAR(single[i], wanted[i], 2e-5) << what;
      ASSERT_NEAR(brain[i], wanted[i], 0.05) << what;
    }
  }
}

TEST(Sample, WhatIsNoNumberLiesOutside) {
  const Shape x{1, 1, 2, 2}, grid{1, 1, 3, 2};
  const std::vector<double> values{kEndless, 2, 3, kNothing};
  // Neighbours that are outside count as 0, also beside elements that are no numbers.
  const std::vector<double> places{kNothing, 0, 0, kEndless, -kEndless, kNothing};
  for (const char* mode : {"bilinear", "nearest", "bicubic"}) {
    const Sampling how{mode, "zeros", false};
    const std::vector<Operand> inputs{{ElementType::F64, x}, {ElementType::F64, grid}};
    const auto made = sample_interpret(inputs, how.attributes(), {{x, values}, {grid, places}}).data;
    EXPECT_EQ(made, std::vector<double>(3, 0)) << mode;
  }
}

TEST(Sample, AnElementOutsideDoesNotCount) {
  const Shape x{1, 1, 1, 2}, grid{1, 1, 1, 2};
  // Halfway between the last element and what is behind it.
  const auto made = sample_interpret({{ElementType::F64, x}, {ElementType::F64, grid}}, "{}",
                                     {{x, {kEndless, 3}}, {grid, {1, 0}}});
  EXPECT_EQ(made.data, std::vector<double>{1.5});
}

TEST(Sample, TensorsThatDoNotFitAreRefused) {
  const auto with = [](Shape x, Shape grid, ElementType type = ElementType::F32) {
    return std::vector<Operand>{{type, std::move(x)}, {type, std::move(grid)}};
  };
  for (const auto& inputs :
       {with({1, 2, 3, 4}, {1, 5, 5, 3}), with({1, 2, 3, 4}, {2, 5, 5, 2}), with({1, 2, 3}, {1, 5, 5, 2}),
        with({1, 2}, {1, 0}), with({1, 1, 2, 2, 2, 2}, {1, 1, 1, 1, 1, 4}), with({1, 2, 0, 4}, {1, 5, 5, 2}),
        with({1, 2, 3, 4}, {1, 5, 5, 2}, ElementType::I32),
        with({1, 2, 3, 4}, {1, 5, 5, 2}, ElementType::F16)})
    EXPECT_THROW(sample_bind(inputs, "{}"), ShapeError);
  const auto fits = with({1, 2, 3, 4}, {1, 5, 5, 2});
  EXPECT_EQ(sample_result(fits, "{}"), (Operand{ElementType::F32, {1, 2, 5, 5}}));
  EXPECT_THROW(sample_bind({fits[0]}, "{}"), ShapeError);
  EXPECT_THROW(sample_bind(with({1, 2, 3}, {1, 5, 1}), R"({"mode": "bicubic"})"), ShapeError);
  EXPECT_THROW(sample_bind({fits[0], {ElementType::F64, {1, 5, 5, 2}}}, "{}"), ShapeError);
  for (const char* attributes : {"[]", R"({"mode": 1})", R"({"padding": true})", R"({"align": 1})"})
    EXPECT_THROW(sample_bind(fits, attributes), FormatError) << attributes;
  for (const char* attributes : {R"({"mode": "cubic"})", R"({"padding": "zero"})", R"({"corners": true})"})
    EXPECT_THROW(sample_bind(fits, attributes), UnknownName) << attributes;
}

}  // namespace
}  // namespace syno::graph
