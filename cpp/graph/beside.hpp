// graph/beside.hpp — one program in the place of several that are alike: what they compute lies side by side.
//
// Of y[n, o] = sum[k] x[n, k] * w[o, k] with o < 64 and the same with o < 32, one with o < 96 computes both,
// given the two weights one behind the other. Of several with equal extents, y[j, n, o] = sum[k] x[n, k] *
// w[j, o, k] does.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "program/program.hpp"

namespace syno::graph {

using program::Program;

/// A dimension of a program that only says which element: of the tensors that have it, what it is of each.
/// Everything at one index of it is computed from what lies at the same index, and all else that is read is
/// the same for all of them.
struct Lane {
  std::vector<std::optional<std::size_t>> dims;  ///< by tensor of the program
  std::vector<bool> slots;                       ///< the iterators over it
  std::int64_t extent = 0;
};

/// The one that a dimension of a tensor is of; none where programs do more with it, as sums over it do, or
/// where one of its tensors is not a whole one from 0 on. Then the tensors that it makes the outputs of have
/// it, too.
std::optional<Lane> lane_of(const Program& program, program::TensorId tensor, std::size_t dim);

/// The program with another extent of a lane.
Program widened(const Program& program, const Lane& lane, std::int64_t extent);

/// `count` programs that differ by the values of these inputs (by tensor of the program) as one: they, and
/// all that is computed from them, get a first dimension, which says of which program.
Program stacked(const Program& program, std::vector<bool> differ, std::int64_t count);

/// y = the inputs, of these shapes, one behind the other along a dimension.
Program concatenated(const std::vector<std::vector<std::int64_t>>& shapes, std::size_t dim);
/// y = the inputs, all of this shape, along a new first dimension.
Program piled(const std::vector<std::int64_t>& shape, std::int64_t count);
/// The elements [begin, end) of one dimension of a tensor, all of the others; with `drop`, without the
/// dimension, which is one element wide then.
Program sliced(const std::vector<std::int64_t>& shape, std::size_t dim, std::int64_t begin, std::int64_t end,
               bool drop = false);

}  // namespace syno::graph
