// schedule/construct.hpp — the parts the default schedule is constructed from. Each strategy writes decisions
// for one scope; which one is taken is decided by a count of cycles.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "schedule/analysis.hpp"
#include "schedule/decisions.hpp"
#include "schedule/schedule.hpp"

namespace syno::schedule {

/// A plan together with the trace that led to it.
struct Construction {
  Construction(const program::Program& concrete, Dtype dtype, const Target& machine);

  Plan plan;
  Schedule schedule;
  Target target;
  std::int64_t lanes = 1;  ///< of a vector of the dtype computed in

  void add(Decision decision);
  std::pair<std::string, std::string> split(const std::string& scope, const std::string& loop,
                                            std::int64_t factor);
  std::string fuse(const std::string& scope, const std::string& a, const std::string& b);
  /// The splits an analysis found useful, on a scope with these loops (or the traversal of such a scope).
  void apply(const std::string& scope, const Splits& splits);
  std::vector<std::string> leaves(const std::string& scope) const;  ///< names, outermost first
  std::int64_t extent(const std::string& scope, const std::string& loop) const;
  std::size_t index(const std::string& scope) const { return plan.scope_named(scope); }
  /// Splits the innermost loop into vectors, its rest peeled.
  void vectorize_innermost(const std::string& scope);
  /// Makes the outermost loop that has work for several threads parallel, where all of it is worth a thread.
  void parallel_outermost(const std::string& scope);
};

/// Registers: `rows` broadcast operands times `vectors` vector operands.
struct Tile {
  std::int64_t rows = 1, vectors = 1;
  double cycles = 0;  ///< of the whole scope, by multiply-adds, loads and latency
};
/// The tile for `rows` x `vectors` results, `steps` multiply-adds each; `loads` vectors are loaded a step and
/// row of vectors.
Tile best_tile(const Target& target, std::int64_t rows, std::int64_t vectors, double steps,
               std::int64_t most_rows = 28);

/// A way to schedule one reduction, with the cycles it should take.
struct Strategy {
  double cycles = 0;
  std::function<void(Construction&)> write;
};
/// Vectors along the innermost dimensions of the output (pixels), which are flattened where that fills
/// vectors.
std::optional<Strategy> along_output(Construction& c, const std::string& scope);
/// Vectors along another dimension of the output (channels), its operand packed and its result transposed.
std::optional<Strategy> along_channels(Construction& c, const std::string& scope);
/// Vectors along a reduction, as in dot products.
std::optional<Strategy> along_reduction(Construction& c, const std::string& scope);

}  // namespace syno::schedule
