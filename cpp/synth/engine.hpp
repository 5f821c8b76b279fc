// synth/engine.hpp — one thread's search: which steps may follow, which are pruned and why, what is finished.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pgraph/pgraph.hpp"
#include "synth/distance.hpp"
#include "synth/further_inputs.hpp"
#include "synth/rules.hpp"
#include "synth/work.hpp"

namespace syno::synth {

/// Why a step is not taken. Below rules().size(): the number of a rule.
using Reason = std::uint16_t;
inline constexpr Reason kAccepted = 0xffff;
enum class Limit : std::uint8_t {
  Order,
  Distance,
  Chain,
  ReductionRatio,
  WeightParams,
  Params,
  Flops,
  MinFlops,
  Bytes,
  Matched,
  MatchedReduce,
  Pooling,
  Occurrences
};
Reason reason_of(Limit limit);
std::string_view name_of(Reason reason);  ///< a rule's name, or `order`, `distance`, `max_flops`, ...

/// How often each reason pruned a step.
struct Counters {
  std::uint64_t children = 0;  ///< steps looked at
  std::uint64_t states = 0;    ///< partial operators kept
  std::uint64_t finished = 0;  ///< operators that met the input, before duplicates are removed
  std::array<std::uint64_t, 128> rejected{};
  void add(const Counters& other);
};

class Engine {
 public:
  explicit Engine(Spec spec);  ///< check(spec)

  const Spec& spec() const { return spec_; }
  State root();
  /// All steps that the budgets' counts and occurrence limits allow, in a fixed order. Given the number of
  /// steps left, kinds of steps that lead nowhere in so many may be missing.
  void moves(const State& state, std::vector<Move>& out, std::optional<int> steps_left = std::nullopt);
  /// Rules, order of commuting steps, budgets and distance with `steps_left` after this step; `next` is
  /// valid when the answer is kAccepted.
  Reason take(const State& state, const Move& move, int steps_left, State& next);
  /// The rules alone on a move: the first that removes it.
  Reason judge(const State& state, const Move& move);
  /// Counts, occurrence limits, rules and budgets on one move, whatever its order and its distance.
  Reason check_alone(const State& state, const Move& move);
  void apply(const State& state, const Move& move, State& next);
  /// The move that takes a pGraph's step here; `coordinate_of` maps the pGraph's coordinates to this search's
  /// and gains the results of the step once it is applied with record_results().
  Move move_for(const State& state, const pgraph::Step& step, const std::vector<Coordinate>& coordinate_of);
  static void record_results(const State& next, std::vector<Coordinate>& coordinate_of);
  std::vector<Coordinate> root_coordinates(const State& root) const;  ///< coordinate_of for the outputs
  /// Shape distance, or any number above `limit`; without `more_reduces`, to what needs no further Reduce.
  int distance(const State& state, int limit, bool more_reduces = true);
  /// Whether it is at most `limit`, which takes less than to find it.
  bool within_distance(const State& state, int limit, bool more_reduces = true);
  /// True when the frontier's sizes are the input's and every further input was brought in.
  bool finished(const State& state) const;
  /// Calls back for each assignment to the inputs that the rules and budgets keep; others are counted. For
  /// each open dimension of the first input `position` has a place in the frontier, then for those of each
  /// further input one in its WeightRecord, shared coordinates first.
  using OnOperator = std::function<void(const State&, std::span<const std::uint8_t> position, const Work&)>;
  void completions(const State& state, const OnOperator& on_operator);
  /// Replays the state's steps as a pGraph; `position` as completions() gives it.
  pgraph::CompleteGraph to_graph(const State& state, std::span<const std::uint8_t> position) const;
  pgraph::PGraph to_graph(const State& state) const;
  /// ... of a state whose steps `graph` has.
  pgraph::CompleteGraph to_graph(const State& state, std::span<const std::uint8_t> position,
                                 pgraph::PGraph graph) const;

  SizeNumber number_of(const symbolic::Size& size) { return sizes_.intern(size); }
  /// Of steps that commute the search takes the one of the least key first.
  std::uint64_t letter_key(const State& state, const Move& move) const;
  /// Names a state's t-th step whatever its order: equal for steps that do the same to the same coordinates.
  std::uint64_t arc_of(const State& state, std::size_t t) const;
  const SizePool& sizes() const { return sizes_; }
  const CoordinatePool& pool() const { return pool_; }
  std::size_t bytes() const;  ///< held by what the search remembers
  Counters counters;
  bool use_distance = true;  ///< false: an ablation; only exhaustion stops a hopeless state

 private:
  void contraction_moves(const State& state, std::vector<Move>& out);
  Remaining remaining_of(const State& state, bool more_reduces) const;
  using Pieces = std::array<Piece, kMaxFrontier>;
  Pieces pieces_of(const State& state) const;
  Traits traits_of(const State& state, const FrontierDim& dim) const;
  bool reduces_open(const State& state) const;
  bool within_reduction_ratio(const State& state, SizeNumber extent) const;
  bool must_contract(const State& state) const;
  int weights_left(const State& state) const;
  Reason check_budgets(const State& next, const Move& move);
  bool in_order(const State& state, const Move& move, std::uint64_t key) const;
  bool pools_too_much(const State& state) const;
  Reason check_contraction(const State& state, const Move& move);

  Spec spec_;
  SizePool sizes_;
  CoordinatePool pool_;
  std::array<std::vector<std::uint16_t>, pgraph::kPrimitiveCount> rules_of_;
  std::vector<std::uint16_t> finished_rules_;
  std::vector<std::size_t> open_inputs_;  ///< signature numbers of the input dimensions that are not fixed
  std::vector<SizeNumber> wanted_;        ///< their extents
  std::vector<SizeNumber> wanted_sorted_;
  std::vector<std::pair<SizeNumber, Usage>> reduce_choices_;
  std::vector<SizeNumber> stride_choices_;
  SizeNumber input_elements_ = kOne;
  SizeNumber open_input_elements_ = kOne;
  SizeNumber output_elements_ = kOne;
  bool weightless_ = false;
  Freedom freedom_;  ///< what disabled rules and extensions allow beyond traits
  double largest_stride_ = 1;
  std::optional<ShapeDistance> distance_;
  std::optional<FurtherInputs> further_;
  std::optional<WorkModel> work_;
};

}  // namespace syno::synth
