#include "graph/builtins.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <set>

#include "graph/along_axis.hpp"
#include "graph/elements.hpp"
#include "graph/sample.hpp"
#include "graph/scan.hpp"
#include "graph/scatter.hpp"
#include "support/json.hpp"

namespace syno::graph {

namespace {

using Json = nlohmann::json;

std::string described(const Operand& operand) { return graph::described(operand.shape, operand.type); }

Json read_attributes(std::string_view where, std::string_view attributes,
                     const std::vector<std::string>& valid) {
  Json json = parse_json(where, attributes);
  if (!json.is_object())
    fail<FormatError>(where, "the attributes are a JSON object, not {}", syno::described(json));
  for (const auto& [key, value] : json.items())
    if (std::find(valid.begin(), valid.end(), key) == valid.end())
      throw UnknownName(where, unknown_name("attribute", key, valid));
  return json;
}

bool flag(std::string_view where, const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end()) return false;
  if (!found->is_boolean())
    fail<FormatError>(where, "{} is true or false, not {}", key, syno::described(*found));
  return found->get<bool>();
}

void require_inputs(std::string_view where, const std::vector<Operand>& inputs, std::size_t count) {
  if (inputs.size() != count)
    fail<ShapeError>(where, "it takes {} tensors; {} are given", count, inputs.size());
}

std::int64_t product(std::string_view where, const Shape& shape, std::size_t first, std::size_t last) {
  return program::checked_product(where, Shape(shape.begin() + static_cast<std::ptrdiff_t>(first),
                                               shape.begin() + static_cast<std::ptrdiff_t>(last)));
}
std::int64_t elements(std::string_view where, const Operand& operand) {
  return product(where, operand.shape, 0, operand.shape.size());
}

// gather
// -------------------------------------------------------------------------------------------------------

constexpr std::string_view kGather = "gather";

struct GatherPlan {
  bool negative = false;           ///< indices below 0 count from the end
  std::optional<AlongAxis> along;  ///< single elements; none: rows
  std::size_t dim = 0;             ///< that the rows are of
};

GatherPlan gather_plan(const std::vector<Operand>& inputs, std::string_view attributes) {
  const Json json = read_attributes(kGather, attributes, {"axis", "dim", "negative"});
  require_inputs(kGather, inputs, 2);
  GatherPlan plan{flag(kGather, json, "negative"),
                  along_axis(kGather, json, inputs[0].shape, inputs[1].shape)};
  if (const auto dim = json.find("dim"); dim != json.end()) {
    if (plan.along)
      fail<FormatError>(kGather, "elements along an axis are no rows of a dimension: one of both");
    plan.dim = axis_of(kGather, *dim, inputs[0].shape.size());
  }
  return plan;
}

Operand gather_result(const std::vector<Operand>& inputs, std::string_view attributes) {
  const GatherPlan plan = gather_plan(inputs, attributes);
  const auto& [table, indices] = std::tie(inputs[0], inputs[1]);
  if (table.shape.empty()) fail<ShapeError>(kGather, "the table has no dimensions, hence no rows");
  if (indices.type != ElementType::I64 && indices.type != ElementType::I32)
    fail<ShapeError>(kGather, "indices are int64 or int32, not {}", name_of(indices.type));
  Operand result{table.type, indices.shape};
  if (plan.along) return result;
  const auto dim = table.shape.begin() + static_cast<std::ptrdiff_t>(plan.dim);
  result.shape.insert(result.shape.begin(), table.shape.begin(), dim);
  result.shape.insert(result.shape.end(), dim + 1, table.shape.end());
  return result;
}

/// Rows of a table of many, each of so many bytes.
struct Rows {
  std::int64_t tables = 1, rows = 0, bytes = 0;
  std::int64_t count = 0;  ///< of indices
};

/// Raises ShapeError for an index outside, before a row is read.
template <class Index>
void check_rows(const Rows& of, const Index* indices, bool negative) {
  for (std::int64_t i = 0; i < of.count; ++i)
    row_at(kGather, static_cast<std::int64_t>(indices[i]), of.rows, negative);
}

/// The row of an index that was checked.
template <class Index>
std::int64_t row_of(const Rows& of, Index index) {
  const auto row = static_cast<std::int64_t>(index);
  return row < 0 ? row + of.rows : row;
}

template <class Index>
BoundBuiltin bind_rows(const Rows& of, bool negative) {
  return [=](void* const* pointers) {
    const auto* indices = static_cast<const Index*>(pointers[1]);
    check_rows(of, indices, negative);
    const auto* table = static_cast<const char*>(pointers[0]);
    auto* result = static_cast<char*>(pointers[2]);
    if (of.bytes == 0) return;
    for (std::int64_t t = 0; t < of.tables; ++t, table += of.rows * of.bytes)
      for (std::int64_t i = 0; i < of.count; ++i, result += of.bytes)
        std::memcpy(result, table + row_of(of, indices[i]) * of.bytes, static_cast<std::size_t>(of.bytes));
  };
}

/// Of elements of as many bytes, or of rows that are no longer.
template <class Bits, class Index>
BoundBuiltin bind_elements(GatherPlan plan, const Rows& of) {
  return [=, plan = std::move(plan)](void* const* pointers) {
    const auto* table = static_cast<const Bits*>(pointers[0]);
    const auto* indices = static_cast<const Index*>(pointers[1]);
    auto* result = static_cast<Bits*>(pointers[2]);
    if (plan.along)
      return plan.along->visit(kGather, indices, plan.negative,
                               [&](std::int64_t i, std::int64_t place) { result[i] = table[place]; });
    check_rows(of, indices, plan.negative);
    for (std::int64_t t = 0; t < of.tables; ++t, table += of.rows, result += of.count)
      for (std::int64_t i = 0; i < of.count; ++i) result[i] = table[row_of(of, indices[i])];
  };
}

template <class Index>
BoundBuiltin bind_elements(GatherPlan plan, const Rows& of) {
  switch (of.bytes) {
    case 1:
      return bind_elements<std::uint8_t, Index>(std::move(plan), of);
    case 2:
      return bind_elements<std::uint16_t, Index>(std::move(plan), of);
    case 4:
      return bind_elements<std::uint32_t, Index>(std::move(plan), of);
    case 8:
      return bind_elements<std::uint64_t, Index>(std::move(plan), of);
    default:
      return bind_rows<Index>(of, plan.negative);
  }
}

BoundBuiltin gather_bind(const std::vector<Operand>& inputs, std::string_view attributes) {
  gather_result(inputs, attributes);
  GatherPlan plan = gather_plan(inputs, attributes);
  const Shape& shape = inputs[0].shape;
  const std::int64_t size = byte_size(inputs[0].type), count = elements(kGather, inputs[1]);
  const std::int64_t row = plan.along ? 1 : product(kGather, shape, plan.dim + 1, shape.size());
  const Rows of{product(kGather, shape, 0, plan.dim), shape[plan.dim], row * size, count};
  return inputs[1].type == ElementType::I64 ? bind_elements<std::int64_t>(std::move(plan), of)
                                            : bind_elements<std::int32_t>(std::move(plan), of);
}

Values gather_interpret(const std::vector<Operand>& inputs, std::string_view attributes,
                        const std::vector<Values>& values) {
  const Shape& shape = inputs[0].shape;
  Values result{gather_result(inputs, attributes).shape, {}};
  const GatherPlan plan = gather_plan(inputs, attributes);
  if (plan.along) {
    plan.along->visit(kGather, values[1].data.data(), plan.negative, [&](std::int64_t, std::int64_t place) {
      result.data.push_back(values[0].data[static_cast<std::size_t>(place)]);
    });
    return result;
  }
  const std::int64_t row = product(kGather, shape, plan.dim + 1, shape.size());
  const std::int64_t rows = shape[plan.dim], tables = product(kGather, shape, 0, plan.dim);
  for (std::int64_t t = 0; t < tables; ++t)
    for (const double index : values[1].data) {
      const std::int64_t place = row_at(kGather, static_cast<std::int64_t>(index), rows, plan.negative);
      const auto first = values[0].data.begin() + (t * rows + place) * row;
      result.data.insert(result.data.end(), first, first + row);
    }
  return result;
}

// cast
// ---------------------------------------------------------------------------------------------------------

constexpr std::string_view kCast = "cast";

Operand cast_result(const std::vector<Operand>& inputs, std::string_view attributes) {
  const Json json = read_attributes(kCast, attributes, {"to"});
  require_inputs(kCast, inputs, 1);
  const auto to = json.find("to");
  if (to == json.end() || !to->is_string()) fail<FormatError>(kCast, "`to` names the new type, as \"int64\"");
  return {element_type_named(to->get<std::string>()), inputs[0].shape};
}

BoundBuiltin cast_bind(const std::vector<Operand>& inputs, std::string_view attributes) {
  CastFunction* function = cast_function(inputs.at(0).type, cast_result(inputs, attributes).type);
  return [function, count = elements(kCast, inputs[0])](void* const* pointers) {
    function(pointers[0], pointers[1], count);
  };
}

Values cast_interpret(const std::vector<Operand>& inputs, std::string_view attributes,
                      const std::vector<Values>& values) {
  const ElementType to = cast_result(inputs, attributes).type;
  Values result = values[0];
  for (double& value : result.data) value = cast_value(value, inputs[0].type, to);
  return result;
}

// argmax
// -------------------------------------------------------------------------------------------------------

constexpr std::string_view kArgmax = "argmax";

/// The tensor as outer x axis x inner.
struct Along {
  std::int64_t outer = 1, axis = 1, inner = 1;
  Shape result;
};

Along along(const std::vector<Operand>& inputs, std::string_view attributes) {
  const Json json = read_attributes(kArgmax, attributes, {"axis", "keepdim"});
  require_inputs(kArgmax, inputs, 1);
  const Shape& shape = inputs[0].shape;
  const bool keep = flag(kArgmax, json, "keepdim");
  Along made;
  const auto given = json.find("axis");
  if (given == json.end() || given->is_null()) {
    made.axis = elements(kArgmax, inputs[0]);
    if (keep) made.result.assign(shape.size(), 1);
  } else {
    const std::size_t at = axis_of(kArgmax, *given, shape.size());
    made.outer = product(kArgmax, shape, 0, at);
    made.axis = shape[at];
    made.inner = product(kArgmax, shape, at + 1, shape.size());
    made.result = shape;
    if (keep)
      made.result[at] = 1;
    else
      made.result.erase(made.result.begin() + static_cast<std::ptrdiff_t>(at));
  }
  if (made.axis == 0 && made.outer * made.inner != 0)
    fail<ShapeError>(kArgmax, "there is no greatest of no elements: the tensor is {}", described(inputs[0]));
  return made;
}

Operand argmax_result(const std::vector<Operand>& inputs, std::string_view attributes) {
  return {ElementType::I64, along(inputs, attributes).result};
}

template <class T>
auto compared(T value) {
  return value;
}
float compared(Brain value) { return Brain::read(value); }
float compared(Half value) { return Half::read(value); }

template <class Element>
BoundBuiltin bind_argmax(Along at) {
  return [at = std::move(at)](void* const* pointers) {
    const auto* from = static_cast<const Element*>(pointers[0]);
    auto* result = static_cast<std::int64_t*>(pointers[1]);
    for (std::int64_t o = 0; o < at.outer; ++o)
      for (std::int64_t i = 0; i < at.inner; ++i) {
        const Element* first = from + o * at.axis * at.inner + i;
        auto best = compared(first[0]);
        std::int64_t place = 0;
        for (std::int64_t a = 1; a < at.axis && best == best; ++a) {
          const auto value = compared(first[a * at.inner]);
          if (value <= best) continue;  // a NaN is not
          best = value;
          place = a;
        }
        result[o * at.inner + i] = place;
      }
  };
}

BoundBuiltin argmax_bind(const std::vector<Operand>& inputs, std::string_view attributes) {
  Along at = along(inputs, attributes);
  switch (inputs[0].type) {
    case ElementType::F32:
      return bind_argmax<float>(std::move(at));
    case ElementType::F64:
      return bind_argmax<double>(std::move(at));
    case ElementType::BF16:
      return bind_argmax<Brain>(std::move(at));
    case ElementType::F16:
      return bind_argmax<Half>(std::move(at));
    case ElementType::I64:
      return bind_argmax<std::int64_t>(std::move(at));
    case ElementType::I32:
      return bind_argmax<std::int32_t>(std::move(at));
    case ElementType::I16:
      return bind_argmax<std::int16_t>(std::move(at));
    case ElementType::I8:
      return bind_argmax<std::int8_t>(std::move(at));
    case ElementType::U8:
    case ElementType::Bool:
      return bind_argmax<std::uint8_t>(std::move(at));
  }
  return {};
}

Values argmax_interpret(const std::vector<Operand>& inputs, std::string_view attributes,
                        const std::vector<Values>& values) {
  const Along at = along(inputs, attributes);
  Values result{at.result, {}};
  for (std::int64_t o = 0; o < at.outer; ++o)
    for (std::int64_t i = 0; i < at.inner; ++i) {
      const auto value = [&](std::int64_t a) {
        return values[0].data[static_cast<std::size_t>((o * at.axis + a) * at.inner + i)];
      };
      std::int64_t place = 0;
      for (std::int64_t a = at.axis; a-- > 0;)
        if (std::isnan(value(a)) || (!std::isnan(value(place)) && value(a) >= value(place))) place = a;
      result.data.push_back(static_cast<double>(place));
    }
  return result;
}

// copy
// ---------------------------------------------------------------------------------------------------------

constexpr std::string_view kCopy = "copy";

Operand copy_result(const std::vector<Operand>& inputs, std::string_view attributes) {
  const Json json = read_attributes(kCopy, attributes, {"shape"});
  require_inputs(kCopy, inputs, 1);
  const auto given = json.find("shape");
  if (given == json.end()) return inputs[0];
  Operand result{inputs[0].type, {}};
  if (!given->is_array())
    fail<FormatError>(kCopy, "shape is a list of extents, not {}", syno::described(*given));
  for (const Json& extent : *given) {
    if (!extent.is_number_unsigned() || extent.get<std::uint64_t>() > (std::uint64_t{1} << 62))
      fail<FormatError>(kCopy, "an extent is an integer from 0 on, not {}", syno::described(extent));
    result.shape.push_back(extent.get<std::int64_t>());
  }
  if (elements(kCopy, result) != elements(kCopy, inputs[0]))
    fail<ShapeError>(kCopy, "{} has other elements than {}", described(result), described(inputs[0]));
  return result;
}

BoundBuiltin copy_bind(const std::vector<Operand>& inputs, std::string_view attributes) {
  copy_result(inputs, attributes);
  const auto bytes = static_cast<std::size_t>(elements(kCopy, inputs[0]) * byte_size(inputs[0].type));
  return [bytes](void* const* pointers) {
    if (bytes != 0) std::memcpy(pointers[1], pointers[0], bytes);
  };
}

Values copy_interpret(const std::vector<Operand>& inputs, std::string_view attributes,
                      const std::vector<Values>& values) {
  return {copy_result(inputs, attributes).shape, values[0].data};
}

constexpr std::array<Builtin, 7> kBuiltins = {{
    {"argmax", "argmax(x)[i, j] = the first a with x[i, a, j] the greatest along the axis", argmax_result,
     argmax_bind, argmax_interpret},
    {"cast", "cast(x)[i] = x[i] in another type", cast_result, cast_bind, cast_interpret},
    {"copy", "copy(x) = the elements of x in their order", copy_result, copy_bind, copy_interpret},
    {"gather", "gather(table, indices)[i, j] = table[indices[i], j]", gather_result, gather_bind,
     gather_interpret},
    {"sample", "sample(x, grid)[n, c, i] = x[n, c] at the place grid[n, i], between its elements",
     sample_result, sample_bind, sample_interpret},
    {"scan", "scan(x)[i, a, j] = the sum of x[i, b, j] over all b up to a", scan_result, scan_bind,
     scan_interpret},
    {"scatter", "scatter(table, indices, rows) = the table, but table[indices[i], j] = rows[i, j], in order",
     scatter_result, scatter_bind, scatter_interpret},
}};

}  // namespace

std::span<const Builtin> builtins() { return kBuiltins; }

const Builtin* find_builtin(std::string_view name) {
  const auto found =
      std::find_if(kBuiltins.begin(), kBuiltins.end(), [&](const Builtin& row) { return row.name == name; });
  return found == kBuiltins.end() ? nullptr : &*found;
}

}  // namespace syno::graph
