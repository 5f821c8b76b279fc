#include <array>

#include "graph/graph.hpp"
#include "support/error.hpp"

namespace syno::graph {

namespace {

struct Row {
  std::string_view name;
  std::int64_t bytes;
};
// In the order of the enumeration.
constexpr std::array<Row, 10> kTypes = {{{"float32", 4},
                                         {"float64", 8},
                                         {"bfloat16", 2},
                                         {"float16", 2},
                                         {"int64", 8},
                                         {"int32", 4},
                                         {"int16", 2},
                                         {"int8", 1},
                                         {"uint8", 1},
                                         {"bool", 1}}};

}  // namespace

std::string_view name_of(ElementType type) { return kTypes.at(static_cast<std::size_t>(type)).name; }
std::int64_t byte_size(ElementType type) { return kTypes.at(static_cast<std::size_t>(type)).bytes; }
bool is_float(ElementType type) { return type <= ElementType::F16; }
bool computes(ElementType type) { return type <= ElementType::BF16; }

ElementType element_type_named(std::string_view name) {
  std::vector<std::string> valid;
  for (std::size_t i = 0; i < kTypes.size(); ++i) {
    if (name == kTypes[i].name) return static_cast<ElementType>(i);
    valid.emplace_back(kTypes[i].name);
  }
  throw UnknownName("graph", unknown_name("element type", std::string(name), valid));
}

std::int64_t element_count(const Tensor& tensor) { return program::checked_product("graph", tensor.shape); }

std::int64_t byte_size(const Tensor& tensor) { return element_count(tensor) * byte_size(tensor.type); }

std::string described(const Shape& shape, ElementType type) {
  return fmt::format("{}[{}]", name_of(type), fmt::join(shape, ","));
}

std::string described(const Tensor& tensor) {
  std::string text = described(tensor.shape, tensor.type);
  if (!tensor.layout.empty())
    text += fmt::format(" of [{}] by {}", fmt::join(tensor.elements, ","), schedule::to_text(tensor.layout));
  return text;
}

}  // namespace syno::graph
