#include "graph/scatter.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "graph/along_axis.hpp"
#include "graph/elements.hpp"
#include "support/json.hpp"

namespace syno::graph {

namespace {

using Json = nlohmann::json;

constexpr std::string_view kScatter = "scatter";

enum class Combine : std::uint8_t { Set, Add, Multiply, Max, Min };
constexpr std::array<std::pair<std::string_view, Combine>, 5> kCombines{{{"set", Combine::Set},
                                                                         {"add", Combine::Add},
                                                                         {"mul", Combine::Multiply},
                                                                         {"max", Combine::Max},
                                                                         {"min", Combine::Min}}};

struct Options {
  Combine combine = Combine::Set;
  bool negative = false;
  std::optional<AlongAxis> along;  ///< single elements; none: rows
};

Options options_of(const std::vector<Operand>& inputs, std::string_view attributes) {
  const Json json = parse_json(kScatter, attributes);
  if (!json.is_object())
    fail<FormatError>(kScatter, "the attributes are a JSON object, not {}", syno::described(json));
  if (inputs.size() != 3) fail<ShapeError>(kScatter, "it takes 3 tensors; {} are given", inputs.size());
  Options made;
  made.along = along_axis(kScatter, json, inputs[0].shape, inputs[1].shape);
  for (const auto& [key, value] : json.items()) {
    if (key == "axis") continue;
    if (key == "negative" && value.is_boolean()) {
      made.negative = value.get<bool>();
    } else if (key == "reduce" && value.is_string()) {
      std::vector<std::string> words;
      const Combine* found = nullptr;
      for (const auto& [word, combine] : kCombines) {
        words.emplace_back(word);
        if (word == value.get<std::string>()) found = &combine;
      }
      if (found == nullptr)
        throw UnknownName(kScatter, unknown_name("reduction", value.get<std::string>(), words));
      made.combine = *found;
    } else if (key == "negative" || key == "reduce") {
      fail<FormatError>(kScatter, "{} is {}, not {}", key, key == "reduce" ? "a word" : "true or false",
                        syno::described(value));
    } else {
      throw UnknownName(kScatter, unknown_name("attribute", key, {"axis", "negative", "reduce"}));
    }
  }
  return made;
}

}  // namespace

Operand scatter_result(const std::vector<Operand>& inputs, std::string_view attributes) {
  const Options options = options_of(inputs, attributes);
  const auto& [table, indices, rows] = std::tie(inputs[0], inputs[1], inputs[2]);
  if (table.shape.empty()) fail<ShapeError>(kScatter, "the table has no dimensions, hence no rows");
  if (indices.type != ElementType::I64 && indices.type != ElementType::I32)
    fail<ShapeError>(kScatter, "indices are int64 or int32, not {}", name_of(indices.type));
  Shape wanted = indices.shape;
  if (!options.along) wanted.insert(wanted.end(), table.shape.begin() + 1, table.shape.end());
  if (rows.shape != wanted || rows.type != table.type)
    fail<ShapeError>(kScatter, "the rows are {}; indices {} of {} need {}", described(rows.shape, rows.type),
                     described(indices.shape, indices.type), described(table.shape, table.type),
                     described(wanted, table.type));
  if (table.type == ElementType::Bool && options.combine != Combine::Set)
    fail<ShapeError>(kScatter, "truth values are set, not combined");
  return table;
}

namespace {

/// Of numbers, what is none staying one.
template <class T>
T combined(Combine how, T old, T given) {
  switch (how) {
    case Combine::Set:
      return given;
    case Combine::Add:
    case Combine::Multiply:
      if constexpr (std::is_integral_v<T>) {  // modulo a power of two
        const auto a = static_cast<std::uint64_t>(old), b = static_cast<std::uint64_t>(given);
        return static_cast<T>(how == Combine::Add ? a + b : a * b);
      } else {
        return how == Combine::Add ? old + given : old * given;
      }
    case Combine::Max:
      return old > given || old != old ? old : given;
    case Combine::Min:
      return old < given || old != old ? old : given;
  }
  return old;
}

template <class Element>
Element both(Combine how, Element old, Element given) {
  if constexpr (std::is_arithmetic_v<Element>)
    return combined(how, old, given);
  else
    return Element::write(combined(how, Element::read(old), Element::read(given)));
}

/// All rows, or single elements, by one way of joining, which the compiler knows: rows are vectors then.
template <Combine kHow, class Element, class Index>
void join_all(const Options& options, const Index* indices, const Element* given, Element* result,
              std::int64_t rows, std::int64_t row, std::int64_t count) {
  if (options.along)
    return options.along->visit(kScatter, indices, options.negative, [&](std::int64_t i, std::int64_t place) {
      result[place] = both(kHow, result[place], given[i]);
    });
  for (std::int64_t i = 0; i < count; ++i) {
    Element* to = result + row_at(kScatter, indices[i], rows, options.negative) * row;
    const Element* from = given + i * row;
    for (std::int64_t j = 0; j < row; ++j) to[j] = both(kHow, to[j], from[j]);
  }
}

template <class Element, class Index>
BoundBuiltin bound(Options options, std::int64_t rows, std::int64_t row, std::int64_t count) {
  return [=, options = std::move(options)](void* const* pointers) {
    const auto* indices = static_cast<const Index*>(pointers[1]);
    const auto* given = static_cast<const Element*>(pointers[2]);
    auto* result = static_cast<Element*>(pointers[3]);
    if (rows * row != 0)
      std::memcpy(result, pointers[0], static_cast<std::size_t>(rows * row) * sizeof(Element));
    const auto join = [&]<Combine kHow>() {
      join_all<kHow>(options, indices, given, result, rows, row, count);
    };
    switch (options.combine) {
      case Combine::Set:
        return join.template operator()<Combine::Set>();
      case Combine::Add:
        return join.template operator()<Combine::Add>();
      case Combine::Multiply:
        return join.template operator()<Combine::Multiply>();
      case Combine::Max:
        return join.template operator()<Combine::Max>();
      case Combine::Min:
        return join.template operator()<Combine::Min>();
    }
  };
}

std::int64_t product(const Shape& shape, std::size_t first) {
  return program::checked_product(kScatter,
                                  Shape(shape.begin() + static_cast<std::ptrdiff_t>(first), shape.end()));
}

template <class Element>
BoundBuiltin bound(const std::vector<Operand>& inputs, Options options) {
  const Shape& shape = inputs[0].shape;
  const std::int64_t row = product(shape, 1), count = product(inputs[1].shape, 0);
  return inputs[1].type == ElementType::I64 ? bound<Element, std::int64_t>(options, shape[0], row, count)
                                            : bound<Element, std::int32_t>(options, shape[0], row, count);
}

}  // namespace

BoundBuiltin scatter_bind(const std::vector<Operand>& inputs, std::string_view attributes) {
  scatter_result(inputs, attributes);
  const Options options = options_of(inputs, attributes);
  switch (inputs[0].type) {
    case ElementType::F32:
      return bound<float>(inputs, options);
    case ElementType::F64:
      return bound<double>(inputs, options);
    case ElementType::BF16:
      return bound<Brain>(inputs, options);
    case ElementType::F16:
      return bound<Half>(inputs, options);
    case ElementType::I64:
      return bound<std::int64_t>(inputs, options);
    case ElementType::I32:
      return bound<std::int32_t>(inputs, options);
    case ElementType::I16:
      return bound<std::int16_t>(inputs, options);
    case ElementType::I8:
      return bound<std::int8_t>(inputs, options);
    case ElementType::U8:
    case ElementType::Bool:
      return bound<std::uint8_t>(inputs, options);
  }
  return {};
}

Values scatter_interpret(const std::vector<Operand>& inputs, std::string_view attributes,
                         const std::vector<Values>& values) {
  const Options options = options_of(inputs, attributes);
  const Operand result = scatter_result(inputs, attributes);
  const auto row = static_cast<std::size_t>(product(result.shape, 1));
  Values made{result.shape, values[0].data};
  const auto join = [&](std::size_t place, double given) {
    double& to = made.data[place];
    to = combined(options.combine, to, given);
    if (!is_float(result.type) && result.type != ElementType::Bool)
      to = cast_value(to, ElementType::I64, result.type);
  };
  if (options.along) {
    options.along->visit(kScatter, values[1].data.data(), options.negative,
                         [&](std::int64_t i, std::int64_t place) {
                           join(static_cast<std::size_t>(place), values[2].data[static_cast<std::size_t>(i)]);
                         });
    return made;
  }
  for (std::size_t i = 0; i < values[1].data.size(); ++i) {
    const std::int64_t at =
        row_at(kScatter, static_cast<std::int64_t>(values[1].data[i]), result.shape[0], options.negative);
    for (std::size_t j = 0; j < row; ++j)
      join(static_cast<std::size_t>(at) * row + j, values[2].data[i * row + j]);
  }
  return made;
}

}  // namespace syno::graph
