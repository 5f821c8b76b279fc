// schedule/emission.hpp — a plan becomes a loop nest, scope by scope.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "schedule/decisions.hpp"
#include "schedule/outside.hpp"
#include "schedule/plan.hpp"
#include "schedule/prefetch.hpp"

namespace syno::schedule {

/// Emits one nest; used once. Throws ScheduleError where decisions do not fit each other.
class Emission {
 public:
  /// What is emitted: everything, only what is computed before calls, or only what is computed in them.
  enum class Part : std::uint8_t { Whole, Prepack, Call };

  explicit Emission(Plan plan, Part part = Part::Whole, std::map<std::string, Shape> known = {})
      : plan_(std::move(plan)), part_(part), known_(std::move(known)) {}
  OrRefusal<LoopNest> run();

 private:
  static constexpr const char* kWhere = "apply";
  using Scalar = program::Scalar;
  using ScalarId = program::ScalarId;
  using TensorId = program::TensorId;

  /// A range check that the loops alone do not promise: value in [0, live).
  struct Rest {
    ExprId value{};
    std::int64_t live = 0;
    bool reduction = false;
    bool outside = true;  ///< what is past it is past the end of a dimension, and no other iteration's place
  };
  /// The same of an end known at run time: value - end < 0.
  struct LiveRest {
    ExprId value{}, difference{};
    bool reduction = false;
  };
  /// A loop that runs through an iterator with such an end, in steps of `step` (its other loops are inside):
  /// `times` iterations for each step, `joined` of which are one of a loop that both were fused to.
  struct LiveLoop {
    ExprId extent{};
    std::int64_t step = 1, times = 1, joined = 1;
    symbolic::Live end;  ///< what `extent` is counted to, from `begin` on
    std::int64_t begin = 0;
  };
  /// Iterations of such a loop that read nothing outside the tensors, whatever the loops inside it do: from
  /// `first` to before `end`, which is at most the number of its whole steps.
  struct Interior {
    std::int64_t first = 0;
    ExprId end{}, over{};  ///< `end` is `over` / `by`
    std::int64_t by = 1;
    std::int64_t reach = 0;  ///< elements that the last whole step before `end` reads ahead, at most
  };
  /// A loop of a staged copy, in steps of `step`: elements before `end` are read, counted from its first one.
  struct ReadLoop {
    ExprId end{};
    std::int64_t step = 1;
  };
  /// What does not change while a scope is emitted, except for its trips.
  struct ScopeFrame {
    std::map<std::uint32_t, ExprId> values;  ///< of the iterators, over loops
    std::vector<ExprId> outputs;             ///< where a point is written, by dimension
    std::vector<Rest> rests;
    std::vector<LiveRest> live_rests;
    std::map<int, LiveLoop> live_loops;
    std::map<int, ReadLoop> read_loops;
    std::map<int, std::int64_t>
        whole;                      ///< of a loop in a piece of a last step, the iterations that are whole
    std::vector<Condition> inside;  ///< of terms that count, over the iterators
    std::vector<std::string> names;
    std::vector<std::int64_t> trips;  ///< of each loop, now
  };
  bool owned(TensorId tensor) const { return !plan_.is_argument(tensor); }
  static std::size_t raw(TensorId id) { return static_cast<std::size_t>(id); }
  Dtype register_dtype() const { return plan_.dtype == Dtype::F64 ? Dtype::F64 : Dtype::F32; }
  ExprId tidy(ExprId e) { return to_expr(nest_.arena, forms_, forms_.form(nest_.arena, e)); }

  // --- schedule/emission.cpp ---
  /// The scope at whose loops, at last, a scope is computed.
  std::size_t outermost(std::size_t s) const;
  /// What is computed before calls reads nothing that is computed in them.
  Refused check_prepacked() const;
  void prepare_scopes();
  /// Whether this part computes a scope.
  bool here(std::size_t s) const;
  /// Whether this part reads a tensor.
  bool used_here(TensorId tensor) const;
  void make_buffers();
  /// Memory grew where dead iterations reach past it.
  void finish_buffers();

  // --- schedule/emission_values.cpp ---
  /// An index expression of a scope over its loops.
  ExprId over_loops(std::size_t s, ExprId e);
  /// Whether `e` is always (never: at no iteration) in [begin, end) as loops and facts are now.
  bool within(ExprId e, std::int64_t begin, std::int64_t end);
  bool never(ExprId e, std::int64_t begin, std::int64_t end);

  // --- schedule/emission_live.cpp: extents known at run time ---
  /// What a scope's iterators with such ends ask of its loops, and which loops they shorten.
  void find_live(std::size_t s);
  /// The end of what is read of a staged copy's dimension where its readers' ends are known at run time.
  std::optional<ExprId> read_end(std::size_t s, std::size_t d);
  /// Of a loop that runs through an iterator: the outermost of those it was split into, and how far a step of
  /// that goes.
  std::pair<int, std::int64_t> leading_loop(std::size_t s, std::size_t iterator) const;
  /// `difference` < 0 as a condition; nothing where that is always so.
  std::optional<Condition> below(ExprId difference);
  /// The extent of a tensor's dimension in a call, if it is not always the same.
  std::optional<ExprId> live_extent(TensorId tensor, std::size_t d);
  /// Of indices counted from where a tensor begins: those that a call's extents do not promise.
  std::vector<Condition> outside_live(TensorId tensor, const std::vector<ExprId>& places);
  StatementId emit_live_loop(std::size_t s, int index, const LiveLoop& live,
                             const std::function<StatementId()>& body);
  /// Of a loop whose schedule peels its borders; nothing where no read says more than its end does.
  std::optional<Interior> interior(std::size_t s, int index, const LiveLoop& live);
  /// How many elements are left at an iteration of such a loop, times what its end is divided by: a form that
  /// says more than a quotient does.
  ExprId left_at(const LiveLoop& live, ExprId iteration);
  /// The last, incomplete step of such a loop, or one that reads beyond the end: code for each number of
  /// elements that may be left there.
  StatementId emit_left(std::size_t s, int index, const LiveLoop& live, std::int64_t most,
                        const std::function<StatementId()>& body);
  /// After how many iterations of the loops inside, each time, the last step of such a loop may end; nothing
  /// where one piece of code does for all.
  std::vector<std::int64_t> pieces_of(std::size_t s, int index) const;
  /// A tile that holds all of an axis whose extent a call brings along: code for each number of iterations
  /// of the unrolled loops from the k-th on, so that none of them asks whether it is live.
  StatementId emit_counts(std::size_t s, std::size_t k, const std::function<StatementId()>& body);
  /// Of the iterations of a loop, those in which some iteration inside is live.
  std::vector<Condition> some_live(std::size_t s, int index);
  /// Where the element at `indices` of a tensor lies in its buffer.
  std::vector<ExprId> place(TensorId tensor, std::vector<ExprId> indices);
  /// Makes owned memory as large as the places that are touched; a place that may lie before it is guarded.
  void make_room(TensorId tensor, const std::vector<ExprId>& places, std::vector<Condition>& guards);
  ValueId read(std::size_t s, const Scalar& scalar);
  /// What one body was made into: equal parts of it, such as the remainder that a condition and its result
  /// both read, are one value, which is computed once.
  struct Body {
    std::map<ScalarId, ValueId> done;
    std::map<std::tuple<program::ScalarKind, program::Function, std::array<ValueId, 3>>, ValueId> equal;
    std::map<std::tuple<TensorId, std::vector<ExprId>, std::int64_t, std::int64_t>, ValueId> reads;
    std::map<std::pair<std::int64_t, std::int64_t>, ValueId> literals;
    std::map<ExprId, ValueId> indices;
  };
  ValueId value(std::size_t s, ScalarId id, Body& body);
  /// Whether a condition holds at every iteration, or at none, as loops and facts are now.
  std::optional<bool> known_here(std::size_t s, ScalarId condition);
  /// A product without its literals, which `factor` gains. Zero and what is not finite stay where they are.
  ScalarId without_factor(ScalarId id, double& factor);
  ValueId body_value(std::size_t s);
  /// What is written for a complete result.
  ValueId finished(std::size_t s, ValueId result);
  /// Writes a point of the scope's output.
  StatementId write(std::size_t s, StoreMode mode, const std::function<ValueId()>& make);
  StatementId rewrite(std::size_t s, const std::function<ValueId(ValueId)>& make);  ///< of what was written
  StatementId write_at(std::size_t s, StoreMode mode,
                       const std::function<ValueId(const std::vector<ExprId>&)>& make);
  /// An accumulating scope starts from zero.
  StatementId zero(TensorId tensor);

  // --- schedule/emission_loops.cpp ---
  /// The conditions of a scope that are not promised here; `reductions` or those of the traversal.
  std::vector<Condition> rests(std::size_t s, bool reductions);
  std::vector<Condition> shared_rests(std::size_t s);  ///< of results: those past which others lie
  /// If (conditions) `make()`, which may rely on them.
  StatementId where(std::vector<Condition> conditions, const std::function<StatementId()>& make);
  /// Fewer iterations of a loop, in the rest of a split. Vectors keep their lanes unless half as many do.
  void restrict_trips(std::size_t s, int index, std::int64_t count);
  /// The value of a loop where all that it was split into is bound to constants.
  std::optional<std::int64_t> constant_value(std::size_t s, int index);
  /// Iterations of a loop, or part of a split, that there are, and those that are complete, as far as the
  /// loops around it are bound to constants.
  std::int64_t left_of(std::size_t s, int index, bool complete);
  /// It is within a block of tiles whose last one is a nest of its own: so is what is incomplete in that.
  bool in_last_block(std::size_t s, int index);
  /// `begin`: the first iteration that is emitted.
  StatementId emit_loop(std::size_t s, int index, const std::function<StatementId()>& body,
                        std::int64_t begin = 0);
  /// Iterations [begin, end) of a loop of a staged copy, as far as they are read.
  StatementId emit_read(std::size_t s, int index, const ReadLoop& read, std::int64_t begin, std::int64_t end,
                        const std::function<StatementId()>& body);
  /// The loops of a register tile have constant indices: they are unrolled unless they are lanes.
  LoopKind kind_of(std::size_t s, int index) const;
  /// `body` with the memory of the scope's output around it.
  StatementId with_memory(std::size_t s, StatementId body);
  /// A loop with what is computed at it before its body.
  StatementId emit_loop_with_producers(std::size_t s, int index, const std::function<StatementId()>& body,
                                       std::int64_t begin = 0);
  bool reduces(std::size_t s) const;
  const PlannedLoop& leaf(std::size_t s, int index) const;
  StatementId emit_scope(std::size_t s);
  Refused check_order(std::size_t s) const;
  StatementId emit_loops(std::size_t s, std::size_t k);
  StatementId emit_over(std::size_t s, const std::vector<int>& loops, std::size_t k,
                        const std::function<StatementId()>& body);
  /// The loops of a reduction, `k`: where they begin.
  StatementId emit_steps(std::size_t s, std::size_t k, const std::function<StatementId()>& update);
  StatementId emit_reduction(std::size_t s, std::size_t k, const std::function<StatementId()>& update);
  std::vector<Trips> loops_inside(std::size_t s, std::size_t k) const;  ///< the k-th in the order
  /// The iterations [begin, end) of a loop of a reduction beyond which no term counts, whatever the loops
  /// around do that are not bound to constants.
  std::pair<std::int64_t, std::int64_t> counted_iterations(std::size_t s, std::size_t k);
  /// What this iteration of a loop inside a reduction decides for all terms inside: else none of them counts.
  /// Of an unrolled loop only what is known when code is made, or stays the same over the reduction.
  std::vector<Condition> counting(std::size_t s, std::size_t k);
  /// Asks for what is read after this tile, and for what its results meet, a line of each tensor at an
  /// iteration of the reduction's loops around, where they have iterations enough. `k`: the loops inside
  /// them.
  std::vector<StatementId> prefetches(std::size_t s, std::size_t k);
  /// Where a scope's first read of a tensor lies, over loops.
  std::vector<ExprId> first_read(std::size_t s, TensorId tensor);

  // --- schedule/emission_core.cpp ---
  /// The loops from the k-th on, with the scope's reduction.
  StatementId emit_core(std::size_t s, std::size_t k);
  /// Where loops of the reduction run around the core: the number of the part that is summed up, and the last
  /// part's.
  std::pair<ExprId, std::int64_t> part_of_sum(std::size_t s, std::size_t core);
  /// How many bytes of results are touched between two parts of one of them.
  std::int64_t bytes_between_parts(std::size_t s, std::size_t core) const;
  /// Writes results that registers hold. Where loops of the reduction run around the core, they are those of
  /// a part of it: the output keeps them until the last part completes them.
  StatementId write_sums(std::size_t s, std::size_t core, const std::vector<int>& traversal,
                         const std::function<ValueId()>& sums);
  /// Whether a loop of the reduction may run around the core.
  Refused check_part(std::size_t s, int loop) const;
  /// What a scope would be whose loops no nest has: nothing; the first reason is that of the whole.
  StatementId refused(Refusal refusal);
  /// Lanes run along one loop while values are read and along the other while they are written.
  StatementId emit_transposed(std::size_t s, std::size_t k);
  /// A loop of results that are written one behind the other, so that sums of lanes meet in one vector; or
  /// none.
  std::optional<int> neighbours(std::size_t s, const std::vector<int>& traversal,
                                const std::vector<int>& lanes);
  /// Adds up the partial sums of the tile's reductions, half of them to the other half, until one is left in
  /// each lane.
  void fold_lanes(std::size_t s, BufferId sums, const std::vector<int>& all, const std::vector<int>& lanes,
                  StoreMode mode, std::vector<StatementId>& parts);
  /// Registers for a value per iteration of `loops`.
  BufferId accumulator(std::size_t s, const std::vector<int>& loops, const char* word);
  /// Traversal loops run inside the reduction and no register holds their results: the output itself does.
  StatementId accumulate_in_memory(std::size_t s, std::size_t k, const std::vector<int>& traversal,
                                   double start, StoreMode mode,
                                   const std::function<ValueId(ValueId)>& scaled);

  Plan plan_;
  Part part_;
  std::map<std::string, Shape> known_;  ///< extents of prepacked buffers, which both parts agree on
  LoopNest nest_;
  Refused refused_;
  AffineForms forms_;
  std::vector<ScopeFrame> facts_;
  std::vector<BufferId> buffer_of_;
  std::map<std::pair<std::size_t, int>, LoopKind> kinds_;  ///< of loops that run twice, as lanes and not
  std::vector<Shape> shapes_;                              ///< logical, of every tensor's memory
  std::vector<Trips> around_;     ///< the loops around what is emitted, outermost first
  std::size_t outside_core_ = 0;  ///< of these, how many are around a reduction
  std::vector<TensorId> asked_;   ///< tensors that a loop around asks for ahead
  int rest_ = 0;                  ///< peeled iterations around what is emitted
  std::vector<Slice> slices_;     ///< loops around of which every iteration is peeled
};

}  // namespace syno::schedule
