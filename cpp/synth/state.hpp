// synth/state.hpp — partial operators as the search holds them: plain data, no allocation, copied freely.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "synth/sizes.hpp"

namespace syno::synth {

inline constexpr std::size_t kMaxSteps = 18;
inline constexpr std::size_t kMaxFrontier = 16;
inline constexpr std::size_t kMaxWeights = 4;

using Coordinate = std::uint32_t;  ///< within one CoordinatePool; 0 is none

/// What makes a coordinate. A Merge yields two kinds.
enum class Kind : std::uint8_t { Output, Reduce, MergeMajor, MergeMinor, Split, Shift, Stride, Unfold };

/// A coordinate expression, structurally: equal expressions are one coordinate.
struct CoordinateNode {
  Kind kind = Kind::Output;
  bool unordered = false;  ///< part of an unordered output dimension
  std::int8_t amount = 0;  ///< Output: dimension. Reduce: which of several of one extent. Shift: places
  SizeNumber extent = 0;
  SizeNumber parameter = 0;  ///< Merge: block. Stride: factor
  Coordinate a = 0;
  Coordinate b = 0;
  std::uint64_t hash = 0;  ///< stable
};

class CoordinatePool {
 public:
  CoordinatePool() : nodes_(1) {}
  Coordinate make(CoordinateNode node, const SizePool& sizes);
  const CoordinateNode& operator[](Coordinate coordinate) const { return nodes_[coordinate]; }
  std::size_t size() const { return nodes_.size(); }
  std::size_t bytes() const {
    return nodes_.capacity() * sizeof(CoordinateNode) + ids_.bytes() + every_place_.bytes();
  }

 private:
  friend bool take_every_place(const CoordinatePool&, const SizePool&, std::span<const Coordinate>,
                               std::size_t);
  std::vector<CoordinateNode> nodes_;
  NumberMap ids_;                  ///< coordinates by hash
  mutable NumberMap every_place_;  ///< known answers of take_every_place()
};

/// A coordinate of the frontier and what happened to it.
struct FrontierDim {
  Coordinate coordinate = 0;
  SizeNumber extent = 0;
  std::uint8_t shared = 0;    ///< weights that share this very coordinate, as bits
  std::uint8_t history = 0;   ///< weights that share it or anything below it
  std::uint8_t height = 0;    ///< steps in a row below it
  std::uint8_t producer = 0;  ///< 1 + index of the step that made it; 0: an output dimension
  std::uint8_t touched = 0;   ///< 1 + index of the last step that made or shared it; 0: none
  bool discards = false;      ///< below a Stride whose gaps nothing is known to fill
  bool gaps = false;          ///< ... and nothing but a step to come can fill
};

/// One step as taken. Operands are coordinates; a contraction's are in State::weights.
struct Letter {
  pgraph::Primitive primitive = pgraph::Primitive::Reduce;
  std::uint8_t weight = 0;
  std::int8_t amount = 0;
  SizeNumber parameter = 0;
  Coordinate a = 0;
  Coordinate b = 0;
  Coordinate first = 0;  ///< what it yields
  Coordinate second = 0;
  std::uint64_t key = 0;  ///< order among commuting steps
};

struct WeightRecord {
  std::uint8_t inner_count = 0;
  std::uint8_t outer_count = 0;
  std::uint8_t source = 0;                       ///< 0: a weight; k: the k-th further input
  std::array<Coordinate, kMaxFrontier> inner{};  ///< shared with the data
  std::array<Coordinate, kMaxFrontier> outer{};  ///< matched: leave the data
};

/// Which step to take: frontier positions, not coordinates.
struct Move {
  pgraph::Primitive primitive = pgraph::Primitive::Reduce;
  std::uint8_t i = 0;
  std::uint8_t j = 0;
  std::int8_t amount = 0;
  SizeNumber parameter = 0;
  std::uint16_t inner = 0;  ///< contraction: frontier positions as bits
  std::uint16_t outer = 0;
  std::uint8_t source = 0;  ///< contraction: 0 brings in a weight, k the k-th further input
  bool operator==(const Move&) const = default;
};

struct State {
  std::uint8_t dim_count = 0;
  std::uint8_t step_count = 0;
  std::uint8_t weight_count = 0;                             ///< of `weights`, further inputs among them
  std::uint8_t data = 0;                                     ///< which of them are further inputs, as bits
  std::array<std::uint8_t, pgraph::kPrimitiveCount> used{};  ///< steps of each primitive
  SizeNumber reduces = kOne;                                 ///< product of the extents of all Reduces
  Usage left{};                                              ///< occurrences left of each variable
  std::array<FrontierDim, kMaxFrontier> dims{};
  std::array<Letter, kMaxSteps> path{};
  std::array<WeightRecord, kMaxWeights> weights{};
  std::array<Coordinate, kMaxSteps> expanded{};
  std::uint8_t expanded_count = 0;
};

/// The weights that share `coordinate`, as bits.
std::uint8_t weights_sharing(const State& state, Coordinate coordinate);

/// The first and last part of a coordinate seen as a chain of Splits: Split(a, Split(b, c)) is a … c.
Coordinate first_part(const CoordinatePool& pool, Coordinate coordinate);
Coordinate last_part(const CoordinatePool& pool, Coordinate coordinate);

/// `left * B + right` is one coordinate again: right follows left in some Merge.
bool adjacent(const CoordinatePool& pool, Coordinate left, Coordinate right);

/// Nothing but Reduces went into the coordinate.
bool only_reduces(const CoordinatePool& pool, Coordinate coordinate);

/// The extents of the Reduces that reach some coordinates without meeting a weight.
class Pooled {
 public:
  void add(const State& state, const CoordinatePool& pool, Coordinate coordinate);
  double product(const SizePool& sizes, std::size_t valuation) const;
  bool any() const { return count_ > 0; }

 private:
  std::array<SizeNumber, 4 * kMaxFrontier> extents_;  // written before they are read
  std::size_t count_ = 0;
};

}  // namespace syno::synth
