#include "graph/along_axis.hpp"

#include "support/error.hpp"

namespace syno::graph {

std::size_t axis_of(std::string_view where, const nlohmann::json& given, std::size_t rank) {
  if (!given.is_number_integer())
    fail<FormatError>(where, "axis is an integer, not {}", syno::described(given));
  const auto dimensions = static_cast<std::int64_t>(rank);
  const bool far = given.is_number_unsigned() && given.get<std::uint64_t>() > (std::uint64_t{1} << 62);
  const std::int64_t axis = far ? dimensions : given.get<std::int64_t>();
  if (axis < -dimensions || axis >= dimensions)
    fail<ShapeError>(where, "axis {} of a tensor of {} dimensions", syno::described(given), rank);
  return static_cast<std::size_t>(axis < 0 ? axis + dimensions : axis);
}

std::optional<AlongAxis> along_axis(std::string_view where, const nlohmann::json& attributes,
                                    const Shape& table, const Shape& indices) {
  const auto given = attributes.find("axis");
  if (given == attributes.end()) return std::nullopt;
  const std::size_t along = axis_of(where, *given, table.size());
  if (indices.size() != table.size())
    fail<ShapeError>(where, "along an axis, indices have as many dimensions as the table: {}, not {}",
                     table.size(), indices.size());
  AlongAxis made;
  std::vector<std::int64_t> strides(table.size(), 1);
  for (std::size_t d = table.size(); d-- > 1;) {
    if (__builtin_mul_overflow(strides[d], std::max<std::int64_t>(table[d], 1), &strides[d - 1]))
      fail<ShapeError>(where, "the table has more elements than 64 bits count");
  }
  for (std::size_t d = 0; d < table.size(); ++d) {
    if (d != along && indices[d] > table[d])
      fail<ShapeError>(where, "dimension {} of the indices is {}, that of the table {}", d, indices[d],
                       table[d]);
    if (d + 1 < table.size()) made.outer.push_back({indices[d], d == along ? 0 : strides[d]});
  }
  made.extent = table[along];
  made.stride = strides[along];
  made.row = indices.back();
  made.step = along + 1 == table.size() ? 0 : 1;
  made.rows = program::checked_product(where, Shape(indices.begin(), indices.end() - 1));
  return made;
}

}  // namespace syno::graph
