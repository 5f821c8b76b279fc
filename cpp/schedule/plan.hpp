// schedule/plan.hpp — what a trace of decisions builds up before it becomes a loop nest: the program with its
// copies, and for each scope its loops, register tile and the place it is computed at.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "derive/rewrite.hpp"
#include "schedule/attempt.hpp"
#include "schedule/layout.hpp"
#include "schedule/names.hpp"
#include "schedule/schedule.hpp"
#include "support/refusal.hpp"

namespace syno::schedule {

/// A loop over [0, extent). It is a leaf until it is split in two or fused with another; `value` in terms of
/// the leaves is kept by Plan::value_of.
struct PlannedLoop {
  std::string name;
  std::uint32_t slot = 0;
  std::int64_t extent = 1;
  std::int64_t live = 1;  ///< iterations from here to `extent` are dead: computed or skipped, never seen
  LoopKind kind = LoopKind::Serial;
  bool reduction = false;
  int outer = -1, inner = -1;  ///< when split: value = outer * factor + inner
  std::int64_t factor = 0;
  int fused = -1;                  ///< when fused: the loop it went into
  int first = -1, second = -1;     ///< of a fused loop: what it was made of
  int parent = -1;                 ///< of a part of a split
  std::vector<std::int64_t> cuts;  ///< where peel() cuts the range into nests of their own
  bool is_leaf() const { return outer < 0 && fused < 0; }
};

/// What is made of each result of a scope, once it is complete, before it is written: `body` over the scope's
/// traversal, in which `value`, a scalar of its own, stands for the result.
struct Epilogue {
  program::ScalarId body{}, value{};
};

/// A tensor that a scope reads or writes and asks for ahead, how many bytes of it stay near until they are
/// read again, and how many lie between what is asked for and what is read of a stream; 0: streams are left
/// to the hardware.
struct Prefetched {
  program::TensorId tensor{};
  std::int64_t near_bytes = 0, ahead_bytes = 0;
};

/// The schedule of one scope. Loops come first the traversal iterators, then the sums, then what decisions
/// made.
struct ScopePlan {
  std::vector<PlannedLoop> loops;
  std::vector<int> order;   ///< leaves, outermost first
  std::vector<int> tile;    ///< register tile: leaves kept in registers over the reduction
  bool total = false;       ///< a staged copy: defined at every index, fill outside its source
  bool has_domain = false;  ///< ranges and loops are known
  bool prepacked = false;   ///< computed once, before calls
  bool skips = false;       ///< terms that read outside are left out (schedule/outside.hpp)
  bool frozen = false;      ///< a producer's domain was derived from these loops
  int attach_scope = -1, attach_loop = -1;
  std::vector<ExprId> bases;  ///< of the output's dimensions, when computed at a loop of another scope
  std::optional<Epilogue> epilogue;
  std::vector<Prefetched> prefetched;
};

struct TensorPlan {
  Layout layout;
  Shape shape;                        ///< logical extents the layout starts from
  std::vector<std::int64_t> strides;  ///< of the caller's memory; empty: row-major
};

class Plan {
 public:
  /// `sizes`: what the live ends of the program's ranges are over, with their slots to be given.
  Plan(const program::Program& concrete, Dtype dtype, std::vector<nest::Parameter> sizes = {});

  program::Program program;
  std::vector<nest::Parameter> sizes;
  std::vector<ScopePlan> scopes;    ///< as program.scopes
  std::vector<TensorPlan> tensors;  ///< as program.tensors
  Dtype dtype = Dtype::F32;

  // What is to change is changed through these: an attempt can take it back.
  ScopePlan& change(std::size_t scope);
  TensorPlan& change(program::TensorId tensor);
  program::Scope& change_program(std::size_t scope);
  std::vector<program::Range>& change_dims(program::TensorId tensor);
  void replace(Plan plan);  ///< all of it

  // By name; refusals, or errors, list the scopes, tensors and leaves there are.
  OrRefusal<std::size_t> find_scope(std::string_view tensor) const;
  OrRefusal<program::TensorId> find_tensor(std::string_view name) const;
  OrRefusal<int> find_leaf(std::size_t scope, std::string_view loop) const;
  std::size_t scope_named(std::string_view tensor) const { return find_scope(tensor).or_raise(); }
  program::TensorId tensor_named(std::string_view name) const { return find_tensor(name).or_raise(); }
  int leaf_named(std::size_t scope, std::string_view loop) const { return find_leaf(scope, loop).or_raise(); }
  int position(std::size_t scope, int loop) const;  ///< in the order; -1 if no leaf
  /// The position where the loops begin that registers hold results over. Loops of the reduction before it
  /// are around parts of it.
  std::size_t core(std::size_t scope) const;
  std::optional<std::size_t> producer(program::TensorId tensor) const;
  /// It makes an argument, or adds to its tensor: all of it is computed, whatever its readers read.
  bool makes_all(std::size_t scope) const;
  std::vector<std::size_t> consumers(program::TensorId tensor) const;
  bool is_output(program::TensorId tensor) const;
  /// Memory that belongs to the caller: never padded, laid out or written where nothing is to be seen.
  bool is_argument(program::TensorId tensor) const;

  /// Derives where a scope is computed and over what, from the loops of its consumers, which it freezes.
  Refused try_domain(std::size_t scope);
  void need_domain(std::size_t scope) { raise_if(try_domain(scope)); }
  int add_loop(std::size_t scope, PlannedLoop loop);
  /// Drops scalars that no scope uses any more, where they have become most of them; ids of others change.
  void drop_unused_scalars();
  std::string fresh_loop_name(std::size_t scope, std::string wanted) const;
  /// Applies a row of rewrites to the program. Scopes that come into being, or whose iterators change, begin
  /// anew; what was decided about the others stays.
  void rewrite(const derive::Rewrite& row, const derive::Site& site);
  /// The same of any change of the program that adds scalars but changes none.
  void rewrite(const std::function<void(program::Program&)>& change);
  /// Inserts a scope before position `at`; attachments keep pointing at the scopes they meant.
  void insert_scope(std::size_t at, program::Scope scope, ScopePlan plan);
  void erase_scope(std::size_t at);

  /// The value of a loop over the leaves' slots, from 0; the value of an iterator adds where its range
  /// begins.
  ExprId value_of(std::size_t scope, int loop);
  ExprId iterator_value(std::size_t scope, std::size_t iterator);
  std::size_t iterator_count(std::size_t scope) const;
  const program::Iterator& iterator(std::size_t scope, std::size_t index) const;
  /// `e` with the scope's iterators replaced by their values over loops.
  ExprId over_loops(std::size_t scope, ExprId e);
  /// The greatest value of a loop over the ranges of its leaves.
  std::int64_t greatest(std::size_t scope, int loop) const;
  /// What is past a loop's end is past that of the iterator it belongs to. Not so of `i` in 3*o + i: i = 3 is
  /// where the next o begins.
  bool ends_iterator(std::size_t scope, int loop) const;

  std::pair<std::int64_t, std::int64_t> range(const program::Range& range) const;  ///< [begin, end)
  /// The end of a range in a call, over the sizes; nothing where it is always the same.
  std::optional<ExprId> live_end(symbolic::Arena& arena, const program::Range& range) const;
  /// Whether how often a loop runs follows a size that calls bring along: it is an iterator with a live end,
  /// or made of one.
  bool grows(std::size_t scope, int loop) const;
  /// Extents of a tensor's memory before its layout: what its scope's loops can reach, dead iterations
  /// included. A staged copy is as large as what is read of it, so that its pitch can be relied on.
  Shape storage(program::TensorId tensor) const;
  /// Elements between neighbours along each dimension, before the tensor's layout.
  std::vector<std::int64_t> strides(program::TensorId tensor) const;
  /// Binds every iterator (to its range) and every loop (to its trips).
  AffineForms bound_forms() const;

  /// Every read in the body of a scope (of `tensor`), each distinct one once. Strategies and stages are about
  /// these.
  std::vector<program::ScalarId> reads_of(std::size_t scope, program::TensorId tensor) const;
  std::vector<program::ScalarId> reads(std::size_t scope) const;
  /// The same in the body and the epilogue: what has to be there before the scope is computed.
  std::vector<program::ScalarId> all_reads(std::size_t scope) const;

 private:
  void accumulate_in_f32();
  /// Scopes, scalars and tensors as they are can be brought back.
  void remember_program();
  std::size_t most_scalars_ = 4096;  ///< until unused ones are looked for
  Journal journal_;
  void start_loops(std::size_t scope, const std::vector<std::pair<std::int64_t, std::int64_t>>& ranges);
  friend struct Regions;
  friend class Attempt;
};

/// Makes the loop nest of a plan (schedule/apply.cpp).
OrRefusal<LoopNest> try_emit(Plan plan);
LoopNest emit(Plan plan);  ///< the same; its refusal is an error
/// Of a call alone: what the plan prepacks is an argument (apply_prepacked()).
OrRefusal<LoopNest> try_emit_call(const Plan& plan);
LoopNest emit_call(const Plan& plan);

/// The expression of an affine form.
ExprId to_expr(symbolic::Arena& arena, const AffineForms& forms, const AffineForm& form);

}  // namespace syno::schedule
