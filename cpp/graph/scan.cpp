#include "graph/scan.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>

#include "graph/along_axis.hpp"
#include "graph/elements.hpp"
#include "support/json.hpp"

namespace syno::graph {

namespace {

using Json = nlohmann::json;

constexpr std::string_view kScan = "scan";

enum class Joined : std::uint8_t { Sum, Product, LogSumExp };
constexpr std::array<std::pair<std::string_view, Joined>, 3> kJoined{
    {{"sum", Joined::Sum}, {"prod", Joined::Product}, {"logsumexp", Joined::LogSumExp}}};

/// The tensor as outer x axis x inner, and how elements along the axis are joined.
struct ScanPlan {
  Joined joined = Joined::Sum;
  bool exclusive = false, reverse = false;
  std::int64_t outer = 1, axis = 1, inner = 1;
};

Joined joined_named(const Json& word) {
  std::vector<std::string> words;
  for (const auto& [name, joined] : kJoined) {
    if (word.is_string() && word.get<std::string>() == name) return joined;
    words.emplace_back(name);
  }
  if (!word.is_string()) fail<FormatError>(kScan, "by is a word, not {}", syno::described(word));
  throw UnknownName(kScan, unknown_name("way of joining", word.get<std::string>(), words));
}

std::int64_t product(const Shape& shape, std::size_t first, std::size_t last) {
  return program::checked_product(kScan, Shape(shape.begin() + static_cast<std::ptrdiff_t>(first),
                                               shape.begin() + static_cast<std::ptrdiff_t>(last)));
}

ScanPlan plan_of(const std::vector<Operand>& inputs, std::string_view attributes) {
  const Json json = parse_json(kScan, attributes);
  if (!json.is_object())
    fail<FormatError>(kScan, "the attributes are a JSON object, not {}", syno::described(json));
  if (inputs.size() != 1) fail<ShapeError>(kScan, "it takes 1 tensor; {} are given", inputs.size());
  const Shape& shape = inputs[0].shape;
  ScanPlan plan;
  std::optional<std::size_t> axis;
  for (const auto& [key, value] : json.items()) {
    if (key == "by") {
      plan.joined = joined_named(value);
    } else if (key == "axis") {
      axis = axis_of(kScan, value, shape.size());
    } else if (key == "exclusive" || key == "reverse") {
      if (!value.is_boolean())
        fail<FormatError>(kScan, "{} is true or false, not {}", key, syno::described(value));
      (key == "reverse" ? plan.reverse : plan.exclusive) = value.get<bool>();
    } else {
      throw UnknownName(kScan, unknown_name("attribute", key, {"axis", "by", "exclusive", "reverse"}));
    }
  }
  if (!axis) fail<FormatError>(kScan, "`axis` says along which dimension of {} it runs", shape.size());
  const ElementType type = inputs[0].type;
  const bool whole = type == ElementType::I64 || type == ElementType::I32;
  const bool floating = type == ElementType::F32 || type == ElementType::F64 || type == ElementType::F16 ||
                        type == ElementType::BF16;
  if (!floating && !(whole && plan.joined != Joined::LogSumExp))
    fail<ShapeError>(kScan, "no running {} of {}", kJoined[static_cast<std::size_t>(plan.joined)].first,
                     name_of(type));
  plan.outer = product(shape, 0, *axis);
  plan.axis = shape[*axis];
  plan.inner = product(shape, *axis + 1, shape.size());
  return plan;
}

double log_of_sum(double a, double b) {
  if (a == b) return a + std::log(2.0);  // infinities, too
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
}

template <Joined J, class Sum>
Sum join(Sum a, Sum b) {
  if constexpr (J == Joined::LogSumExp)
    return log_of_sum(a, b);
  else if constexpr (J == Joined::Sum)
    return a + b;
  else
    return a * b;
}
template <Joined J>
constexpr double neutral() {
  return J == Joined::Sum ? 0 : J == Joined::Product ? 1 : -std::numeric_limits<double>::infinity();
}

/// How elements are added up: floats in double precision, as PyTorch does on a CPU, whole numbers modulo a
/// power of two.
template <class Element>
struct Summed {
  using Sum = double;
  static Sum read(Element value) { return static_cast<double>(value); }
  static Element write(Sum value) { return static_cast<Element>(value); }
};
template <>
struct Summed<Brain> {
  using Sum = double;
  static Sum read(Brain value) { return Brain::read(value); }
  static Brain write(Sum value) { return Brain::write(static_cast<float>(value)); }
};
template <>
struct Summed<Half> {
  using Sum = double;
  static Sum read(Half value) { return Half::read(value); }
  static Half write(Sum value) { return Half::write(static_cast<float>(value)); }
};
template <>
struct Summed<std::int64_t> {
  using Sum = std::uint64_t;
  static Sum read(std::int64_t value) { return static_cast<Sum>(value); }
  static std::int64_t write(Sum value) { return static_cast<std::int64_t>(value); }
};
template <>
struct Summed<std::int32_t> {
  using Sum = std::uint64_t;
  static Sum read(std::int32_t value) { return static_cast<Sum>(value); }
  static std::int32_t write(Sum value) { return static_cast<std::int32_t>(value); }
};

/// Lines side by side: so many sums are under way that none waits for the one before it.
constexpr std::int64_t kLanes = 64, kFewLanes = 4;

/// Lines that lie next to each other, each along memory: a few sums at a time, in registers.
template <Joined J, class Element, std::int64_t kLines>
void scan_along(const ScanPlan& plan, const Element* from, Element* to) {
  using Kind = Summed<Element>;
  std::array<typename Kind::Sum, static_cast<std::size_t>(kLines)> sums;
  sums.fill(static_cast<typename Kind::Sum>(neutral<J>()));
  const std::int64_t line = plan.axis, step = plan.reverse ? -1 : 1;
  const bool exclusive = plan.exclusive;
  std::int64_t at = plan.reverse ? line - 1 : 0;
  for (std::int64_t n = 0; n < line; ++n, at += step)
#pragma GCC unroll 8
    for (std::int64_t l = 0; l < kLines; ++l) {
      auto& sum = sums[static_cast<std::size_t>(l)];
      const auto before = sum;
      sum = join<J>(sum, Kind::read(from[at + l * line]));
      to[at + l * line] = Kind::write(exclusive ? before : sum);
    }
}

/// `lanes` lines that lie `apart` from each other, elements of a line `step`.
template <Joined J, class Element, std::int64_t kMost>
void scan_lines(const ScanPlan& plan, const Element* from, Element* to, std::int64_t lanes,
                std::int64_t apart, std::int64_t step) {
  using Kind = Summed<Element>;
  std::array<typename Kind::Sum, static_cast<std::size_t>(kMost)> sums;
  sums.fill(static_cast<typename Kind::Sum>(neutral<J>()));
  for (std::int64_t n = 0; n < plan.axis; ++n) {
    const std::int64_t at = (plan.reverse ? plan.axis - 1 - n : n) * step;
    const auto one = [&](std::int64_t lane) {
      auto& sum = sums[static_cast<std::size_t>(lane)];
      const auto next = join<J>(sum, Kind::read(from[at + lane * apart]));
      to[at + lane * apart] = Kind::write(plan.exclusive ? sum : next);
      sum = next;
    };
    if (lanes == kMost)  // a number that the compiler knows
      for (std::int64_t lane = 0; lane < kMost; ++lane) one(lane);
    else
      for (std::int64_t lane = 0; lane < lanes; ++lane) one(lane);
  }
}

template <Joined J, class Element>
void scan_all(const ScanPlan& plan, const Element* from, Element* to) {
  if (plan.inner == 1) {
    std::int64_t o = 0;
    for (; o + kFewLanes <= plan.outer; o += kFewLanes)
      scan_along<J, Element, kFewLanes>(plan, from + o * plan.axis, to + o * plan.axis);
    for (; o < plan.outer; ++o) scan_along<J, Element, 1>(plan, from + o * plan.axis, to + o * plan.axis);
    return;
  }
  for (std::int64_t o = 0; o < plan.outer; ++o)
    for (std::int64_t i = 0; i < plan.inner; i += kLanes) {
      const std::int64_t first = o * plan.axis * plan.inner + i;
      scan_lines<J, Element, kLanes>(plan, from + first, to + first, std::min(kLanes, plan.inner - i), 1,
                                     plan.inner);
    }
}

template <class Element>
BoundBuiltin bind_of(const ScanPlan& plan) {
  return [plan](void* const* pointers) {
    const auto* from = static_cast<const Element*>(pointers[0]);
    auto* to = static_cast<Element*>(pointers[1]);
    switch (plan.joined) {
      case Joined::Sum:
        return scan_all<Joined::Sum>(plan, from, to);
      case Joined::Product:
        return scan_all<Joined::Product>(plan, from, to);
      case Joined::LogSumExp:
        if constexpr (!std::is_integral_v<Element>) scan_all<Joined::LogSumExp>(plan, from, to);
    }
  };
}

}  // namespace

Operand scan_result(const std::vector<Operand>& inputs, std::string_view attributes) {
  plan_of(inputs, attributes);
  return inputs[0];
}

BoundBuiltin scan_bind(const std::vector<Operand>& inputs, std::string_view attributes) {
  const ScanPlan plan = plan_of(inputs, attributes);
  switch (inputs[0].type) {
    case ElementType::F64:
      return bind_of<double>(plan);
    case ElementType::BF16:
      return bind_of<Brain>(plan);
    case ElementType::F16:
      return bind_of<Half>(plan);
    case ElementType::I64:
      return bind_of<std::int64_t>(plan);
    case ElementType::I32:
      return bind_of<std::int32_t>(plan);
    default:
      return bind_of<float>(plan);
  }
}

Values scan_interpret(const std::vector<Operand>& inputs, std::string_view attributes,
                      const std::vector<Values>& values) {
  const ScanPlan plan = plan_of(inputs, attributes);
  Values result{inputs[0].shape, values[0].data};
  for (std::int64_t line = 0; line < plan.outer * plan.inner; ++line) {
    const std::int64_t first = line / plan.inner * plan.axis * plan.inner + line % plan.inner;
    double sum = plan.joined == Joined::Sum       ? 0
                 : plan.joined == Joined::Product ? 1
                                                  : -std::numeric_limits<double>::infinity();
    for (std::int64_t n = 0; n < plan.axis; ++n) {
      const std::int64_t along = plan.reverse ? plan.axis - 1 - n : n;
      double& element = result.data[static_cast<std::size_t>(first + along * plan.inner)];
      const double next = plan.joined == Joined::Sum       ? sum + element
                          : plan.joined == Joined::Product ? sum * element
                                                           : log_of_sum(sum, element);
      element = plan.exclusive ? sum : next;
      sum = next;
    }
  }
  return result;
}

}  // namespace syno::graph
