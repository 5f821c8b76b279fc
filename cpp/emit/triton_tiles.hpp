// emit/triton_tiles.hpp — tiles of GPU kernels, chosen without measuring: every candidate's time is predicted
// from the model of the GPU, and the least is taken, as the policies of construct/ do for CPUs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "machine/gpu.hpp"

namespace syno::emit {

/// How a kernel goes over its scope.
enum class TileKind : std::uint8_t {
  Points,   ///< a block has `rows` results and adds up one term of each after the other
  Reduced,  ///< a block has `rows` results and `depth` terms of each at a time
  Product,  ///< a block has `rows` times `columns` results, sums of products of two operands: tl.dot
};

/// What a scope asks of a kernel. Points and Reduced have no columns and one operand, all that is read.
struct TileWork {
  TileKind kind = TileKind::Points;
  double batch = 1;  ///< independent parts, each a block of its own
  double rows = 1, columns = 1, depth = 1;
  int row_bytes = 4, column_bytes = 4;         ///< of an element of the left and right operand, as loaded
  double row_fetched = 4, column_fetched = 4;  ///< bytes from L2 for one, by how neighbouring lanes read
  double row_ops = 0, column_ops = 0;          ///< integer operations for an element of each
  double multiply_adds = 1;                    ///< for each result and term
  double memory_bytes = 0;                     ///< of all tensors, once
  double result_bytes = 4;                     ///< of one result
  bool tensor_cores = false, wide = false;     ///< operands of 16 bits; float64
  bool split_tf32 = false;                     ///< a float32 product is three of TF32
  bool splits = true;                          ///< the terms may be divided among blocks
};

/// What a kernel is predicted to take where only one thing held it up, seconds.
struct TileTimes {
  double arithmetic = 0;  ///< multiply-adds
  double indices = 0;     ///< integer operations for addresses and masks
  double shared = 0;      ///< shared memory and the first cache
  double cached = 0;      ///< L2
  double memory = 0;      ///< device memory
  double waiting = 0;     ///< latency of loads that wait for one another
};

struct Tile {
  TileKind kind = TileKind::Points;
  std::int64_t rows = 1, columns = 1, depth = 1;  ///< powers of two
  int warps = 4, stages = 1;
  bool split_tf32 = false;  ///< a float32 product is three of TF32, on tensor cores
  std::int64_t parts = 1;   ///< blocks that share the terms of a result
  std::int64_t steps = 1;   ///< of `depth` terms that each part takes
  std::int64_t blocks = 1;  ///< of the kernel
  double seconds = 0;       ///< predicted
  TileTimes times;
};

/// The candidates that fit the GPU, in a fixed order, larger tiles first, with predicted times. There is
/// always one.
std::vector<Tile> tile_candidates(const machine::Gpu& gpu, const TileWork& work);

/// A candidate of one of several ways to go over a scope, by their places.
struct TileChoice {
  std::size_t way = 0, tile = 0;
};
/// All candidates in the order in which they are worth measuring: first the best of each shape by predicted
/// times, then what differs from one of these in warps and stages only.
std::vector<TileChoice> by_promise(const std::vector<std::vector<Tile>>& ways);

}  // namespace syno::emit
