// lower/staging_space.hpp — the ways to cut a pGraph into stages: states between stages and what a stage
// costs.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lower/coordinates.hpp"
#include "lower/stages.hpp"
#include "support/checked.hpp"

namespace syno::lower {

/// The decisions taken so far: which factors have multiplied, which Reduces are summed, which Strides dropped
/// their elements; at last, that the output is reached. Views are taken only as far as these need them (Syno
/// §8: "only the primitives that can reach that Reduce are required to be lowered").
using State = std::uint64_t;

/// Summed over all valuations. Compared in this order.
struct StageCost {
  Int128 flops = 0;
  Int128 bytes = 0;  ///< of the intermediates a stage leaves
  auto operator<=>(const StageCost&) const = default;
  StageCost operator+(const StageCost& other) const { return {flops + other.flops, bytes + other.bytes}; }
};

class StagingSpace {
 public:
  explicit StagingSpace(const Coordinates& coordinates);

  std::size_t decision_count() const { return decisions_.size(); }
  State all() const { return all_; }

  /// The coordinates of the tensor that stands between stages in this state; nothing where a Reduce would be
  /// summed before everything that depends on it, or a factor or view lacks what it indexes.
  std::optional<std::vector<std::size_t>> dims(State state) const;

  /// The best single stage from one state to a later one: its weights multiplied with each other first where
  /// that saves. `from` and `to` are the states' dims().
  struct Priced {
    StageCost cost;
    StagePlan plan;
  };
  Priced stage(State before, const std::vector<std::size_t>& from, State after,
               const std::vector<std::size_t>& to) const;

 private:
  struct Decision {
    enum class Kind : std::uint8_t { Factor, Reduce, Stride, Output } kind;
    std::size_t index;  ///< of the factor or step; unused for Output, the last: what is left is views
  };
  class Closure;

  StageCost price(const StagePlan& plan, bool final) const;
  Int128 points(const std::vector<std::size_t>& a, const std::vector<std::size_t>& b,
                std::size_t valuation) const;
  void leaves(std::size_t coordinate, const Flags& stop, Flags& found) const;

  const Coordinates& coordinates_;
  std::vector<Decision> decisions_;
  State all_ = 0;
  std::vector<std::vector<std::int64_t>> extents_;  ///< by coordinate, valuation
};

}  // namespace syno::lower
