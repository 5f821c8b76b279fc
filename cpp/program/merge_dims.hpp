// program/merge_dims.hpp — neighbouring dimensions that are only walked together as one:
// y[c, h, w] = relu(x[c, h, w]) is y[c, p] = relu(x[c, p]). Where height and width come with a call, code
// then has one loop whose end is their product.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "program/program.hpp"

namespace syno::program {

/// A dimension and the one behind it.
struct DimPair {
  TensorId tensor{};
  std::size_t dim = 0;
  auto operator<=>(const DimPair&) const = default;
};

/// Of the wanted pairs, those that a concrete program only walks together: each access to them is by two
/// whole iterators, one behind the other, that stand nowhere else; iterators of a traversal are neighbours
/// there, too. Pairs do not overlap.
std::vector<DimPair> mergeable(const Program& program, std::vector<DimPair> wanted);

/// The program with such pairs merged. `extent` instead of the product of two extents: what the program would
/// be at other sizes. ShapeError where pairs are not mergeable, or the extent is below 1.
Program merge_dims(const Program& program, const std::vector<DimPair>& pairs,
                   std::optional<std::int64_t> extent = std::nullopt);

}  // namespace syno::program
