// program/builder_tools.hpp — what the builders of operators share: checked sizes, iterators, tensors,
// scopes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "program/program.hpp"
#include "support/error.hpp"

namespace syno::program::detail {

using Shape = std::vector<std::int64_t>;

inline void require_positive(std::string_view where, std::string_view what, std::int64_t value) {
  if (value < 1) fail<ShapeError>(where, "{} is {}, but must be at least 1", what, value);
}
inline void require_positive(std::string_view where, std::string_view what, const Shape& values) {
  for (const std::int64_t value : values)
    if (value < 1)
      fail<ShapeError>(where, "{} is [{}], but each must be at least 1", what, fmt::join(values, ", "));
}

/// `values`, or `rank` copies of `standard` when empty; ShapeError when there are another number or one is <
/// least.
inline Shape per_dimension(std::string_view where, std::string_view what, const Shape& values,
                           std::size_t rank, std::int64_t standard, std::int64_t least) {
  if (values.empty()) return Shape(rank, standard);
  if (values.size() != rank)
    fail<ShapeError>(where, "{} has {} values for {} spatial dimensions", what, values.size(), rank);
  for (const std::int64_t value : values)
    if (value < least)
      fail<ShapeError>(where, "{} is [{}], but each must be at least {}", what, fmt::join(values, ", "),
                       least);
  return values;
}

template <class T>
std::vector<T> concat(std::vector<T> a, const std::vector<T>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Adds tensors and scopes to a concrete program with less ceremony.
class Composer {
 public:
  Program program;

  TensorId tensor(std::string name, Role role, const Shape& shape) {
    Tensor result{std::move(name), role, {}, {}};
    for (const std::int64_t extent : shape) result.dims.push_back(program.range_of(Size(extent)));
    return program.add_tensor(std::move(result));
  }
  std::vector<Iterator> iterators(const std::vector<std::string>& names, const Shape& extents) {
    std::vector<Iterator> result;
    for (std::size_t i = 0; i < extents.size(); ++i)
      result.push_back(program.new_iterator(names[i], program.range_of(Size(extents[i]))));
    return result;
  }
  ExprId index(const Iterator& iterator) { return program.arena.iterator(iterator.slot); }
  std::vector<ExprId> indices(const std::vector<Iterator>& iterators) {
    std::vector<ExprId> result;
    for (const Iterator& iterator : iterators) result.push_back(index(iterator));
    return result;
  }

  /// A new scope whose tensor has the extents of `traversal`.
  TensorId scope(std::string name, std::vector<Iterator> traversal, Reduction reduction,
                 std::vector<Iterator> sums, ScalarId body) {
    Tensor tensor{std::move(name), Role::Computed, {}, {}};
    for (const Iterator& iterator : traversal) tensor.dims.push_back(iterator.range);
    Scope result;
    result.output = program.add_tensor(std::move(tensor));
    result.traversal = std::move(traversal);
    result.sums = std::move(sums);
    result.reduction = sums_or_none(reduction, result.sums);
    result.body = body;
    program.scopes.push_back(std::move(result));
    return program.scopes.back().output;
  }

  Program finish(TensorId output) {
    program.outputs = {output};
    return std::move(program);
  }

 private:
  static Reduction sums_or_none(Reduction reduction, const std::vector<Iterator>& sums) {
    return sums.empty() ? Reduction::None : reduction;
  }
};

/// `prefix` for one name, `prefix0`, `prefix1`, ... for several.
inline std::vector<std::string> numbered(std::string_view prefix, std::size_t count) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i)
    names.push_back(count == 1 ? std::string(prefix) : fmt::format("{}{}", prefix, i));
  return names;
}

}  // namespace syno::program::detail
