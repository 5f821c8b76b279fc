// program/offsets.hpp — programs that read other places of equal tensors in the same way are one.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.hpp"

namespace syno::program {

/// Elements of the last dimension by which a read may begin elsewhere without lying otherwise in its lines of
/// 64 bytes: one of float32, two of float64, half a line of bfloat16.
inline constexpr std::int64_t kElementsOfALine = 16;

struct LeastOffsets {
  Program program;
  /// By tensor and dimension: where what the program reads began, and begins no longer.
  std::vector<std::vector<std::int64_t>> taken;
};
/// The concrete program with all indices of an input's dimension less by the least of them, where each is
/// sure to be inside; in the last dimension by whole lines. x[7, j] + x[9, j + 20] is x[0, j] + x[2, j + 4]
/// of another x of the same shape, and takes as long. ShapeError for a symbolic program.
LeastOffsets with_least_offsets(const Program& program);

}  // namespace syno::program
