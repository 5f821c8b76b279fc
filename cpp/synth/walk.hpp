// synth/walk.hpp — one random walk from a partial operator to a finished one.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <vector>

#include "support/random.hpp"
#include "synth/barren.hpp"
#include "synth/engine.hpp"
#include "synth/enumerate.hpp"

namespace syno::synth {

enum class Outcome : std::uint8_t {
  Found,
  Barren,  ///< no operator above that is accepted
  GaveUp   ///< the patience was used up
};

struct WalkOptions {
  int min_steps = 0;  ///< of the operator, not of the walk
  int max_steps = 0;
  std::size_t patience = 0;  ///< partial operators to look at before giving up
  /// Whether what is known to be barren uses patience as if it were searched: then a walk's result does not
  /// depend on what the table holds.
  bool charge_known = false;
};

/// Depth-first in random order, turning back at dead ends: unless patience runs out, the primitive is uniform
/// among those that lead to an accepted operator, then the step among those of that primitive. A finished
/// operator with further steps left is taken at once half of the time, otherwise when nothing is found above
/// it. The choices at a partial operator depend on the stream and on that partial operator alone, not on what
/// was searched before.
class Walker {
 public:
  explicit Walker(Engine& engine) : engine_(engine) {}

  /// Asked of every operator that a walk meets; the first that is accepted ends it.
  using Accept = std::function<bool(const Found&)>;

  Outcome walk(const State& from, const WalkOptions& options, const Random& stream, const BarrenTable& known,
               const Accept& accept);

  const Found& found() const { return *found_; }  ///< after Found
  const State& met() const { return met_; }       ///< its last state
  /// What the last walk learnt; none is above another.
  const std::vector<Barren>& learnt() const { return learnt_; }
  std::size_t looked() const { return looked_; }  ///< states of the last walk, charged ones included
  /// Names a partial operator: each is reached by one order of its steps only, so that their sum tells them
  /// apart. Zero for the root.
  static std::uint64_t state_key(const Engine& engine, const State& state);
  static std::uint64_t next_key(std::uint64_t state_key, std::uint64_t arc);  ///< one step on
  /// The name under which a partial operator is known to be barren of operators of these steps.
  static std::uint64_t barren_key(std::uint64_t state_key, int min_steps, int max_steps);

 private:
  struct Level {
    std::vector<Move> moves;
    std::array<std::vector<Move>, pgraph::kPrimitiveCount> open;  ///< not tried yet, by primitive
  };
  Outcome visit(const State& state, std::uint64_t key);
  bool take_finished(const State& state, Random& random);

  Engine& engine_;
  std::array<Level, kMaxSteps + 1> levels_;
  std::vector<Barren> learnt_;
  std::optional<Found> found_;
  State met_;
  std::size_t looked_ = 0;

  // Of the walk under way.
  WalkOptions options_;
  const Random* stream_ = nullptr;
  const BarrenTable* known_ = nullptr;
  const Accept* accept_ = nullptr;
};

}  // namespace syno::synth
