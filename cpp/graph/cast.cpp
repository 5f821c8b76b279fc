// Conversions between the types of elements, each pair a loop.
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "graph/builtins.hpp"
#include "graph/elements.hpp"

namespace syno::graph {

namespace {

struct Truth {
  std::uint8_t bits;
};

// In the order of ElementType.
using Types = std::tuple<float, double, Brain, Half, std::int64_t, std::int32_t, std::int16_t, std::int8_t,
                         std::uint8_t, Truth>;
constexpr std::size_t kTypeCount = std::tuple_size_v<Types>;

/// A float, double or int64 of the same value.
template <class T>
auto widened(T value) {
  if constexpr (std::is_same_v<T, Brain>)
    return Brain::read(value);
  else if constexpr (std::is_same_v<T, Half>)
    return Half::read(value);
  else if constexpr (std::is_same_v<T, Truth>)
    return static_cast<std::int64_t>(value.bits != 0);
  else if constexpr (std::is_floating_point_v<T>)
    return value;
  else
    return static_cast<std::int64_t>(value);
}

/// Towards 0; the ends of the integers beyond them, 0 for NaN.
template <class To, class Float>
To saturated(Float value) {
  constexpr Float least = static_cast<Float>(std::numeric_limits<To>::min());
  // One above the greatest is a power of two, which every float holds.
  constexpr Float above = static_cast<Float>(std::numeric_limits<To>::max() / 2 + 1) * Float(2);
  if (!(value == value)) return 0;
  if (value <= least) return std::numeric_limits<To>::min();
  if (value >= above) return std::numeric_limits<To>::max();
  return static_cast<To>(value);
}

template <class To, class Wide>
To narrowed(Wide value) {
  if constexpr (std::is_same_v<To, Brain>)
    return Brain::write(static_cast<float>(value));
  else if constexpr (std::is_same_v<To, Half>)
    return Half::write(static_cast<float>(value));
  else if constexpr (std::is_same_v<To, Truth>)
    return {static_cast<std::uint8_t>(value != 0)};
  else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<Wide>)
    return saturated<To>(value);
  else
    return static_cast<To>(value);
}

template <std::size_t Pair>
void convert(const void* from, void* to, std::int64_t count) {
  using From = std::tuple_element_t<Pair / kTypeCount, Types>;
  using To = std::tuple_element_t<Pair % kTypeCount, Types>;
  const auto* source = static_cast<const From*>(from);
  auto* target = static_cast<To*>(to);
  for (std::int64_t i = 0; i < count; ++i) target[i] = narrowed<To>(widened(source[i]));
}

template <std::size_t... Pairs>
constexpr std::array<CastFunction*, sizeof...(Pairs)> table(std::index_sequence<Pairs...>) {
  return {convert<Pairs>...};
}
constexpr auto kTable = table(std::make_index_sequence<kTypeCount * kTypeCount>());

/// Bits of the integers.
int bits_of(ElementType type) { return static_cast<int>(8 * byte_size(type)); }

}  // namespace

CastFunction* cast_function(ElementType from, ElementType to) {
  return kTable.at(static_cast<std::size_t>(from) * kTypeCount + static_cast<std::size_t>(to));
}

double cast_value(double value, ElementType from, ElementType to) {
  if (is_float(to)) return value;
  if (to == ElementType::Bool) return value != 0 ? 1 : 0;
  const bool is_signed = to != ElementType::U8;
  const double steps = std::ldexp(1.0, bits_of(to));
  const double least = is_signed ? -steps / 2 : 0;
  if (is_float(from)) {
    if (std::isnan(value)) return 0;
    return std::min(std::max(std::trunc(value), least), least + steps - 1);
  }
  return value - steps * std::floor((value - least) / steps);
}

}  // namespace syno::graph
