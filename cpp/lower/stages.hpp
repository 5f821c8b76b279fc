// lower/stages.hpp — writes the stages of a lowered pGraph as scopes of a program.
#pragma once

#include <string>
#include <vector>

#include "lower/coordinates.hpp"
#include "program/program.hpp"

namespace syno::lower {

/// One tensor expression: out[dims] = sum[sums] source[...] * factors... The data comes from the stage before
/// (or is the input); `groups` are products of weights and further inputs alone, materialised first.
struct StagePlan {
  std::vector<std::size_t> dims;     ///< coordinates of the result, in dimension order
  std::vector<std::size_t> sums;     ///< coordinates of the Reduces that this stage sums over
  std::vector<std::size_t> factors;  ///< that multiply the data here and are in no group
  struct Group {
    std::vector<std::size_t> factors, dims, sums;
  };
  std::vector<Group> groups;
};

/// Tensors: x (the input), x2, ... (further inputs), w1, w2, ... (weights in the pGraph's order), t1, t2, ...
/// (intermediates), v1, ... (products of factors), y (the output, the last stage's result).
program::Program write_stages(const Coordinates& coordinates, const std::vector<StagePlan>& stages);

}  // namespace syno::lower
