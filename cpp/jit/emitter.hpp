// jit/emitter.hpp — loop nest -> LLVM IR. Unrolled loops are repeated here, vector loops become SIMD values,
// Register buffers become SSA values carried by phis, index arithmetic is placed in the outermost loop it
// depends on; the IR needs no optimisation passes.
#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "jit/kernel.hpp"
#include "nest/affine.hpp"

namespace syno::jit {

/// void symbol(void* const* arguments, char* workspace, Parallel* parallel, void* pool): the plain C
/// interface of every kernel. After its arguments' addresses come the values of its parameters, each in the
/// place of an address. `parallel` may be null; then everything runs in the caller. void Parallel(void*
/// pool, Body* body, void* context, int64 count) runs body(context, begin, end, private) on disjoint ranges
/// that cover [0, count), each with private memory of its own.
struct EmittedModule {
  std::unique_ptr<llvm::Module> module;
  std::int64_t shared_bytes = 0;   ///< workspace: the first bytes
  std::int64_t private_bytes = 0;  ///< then this many a thread
  bool shares = false;             ///< registers keep what one step of a sum has read for the next one
};

/// When an unrolled step of a sum loads again what the step before it has read, rather than keep it: where
/// sums leave few registers, or always.
enum class Reload { WhereCrowded, Always };

EmittedModule emit(const nest::LoopNest& nest, const Cpu& cpu, const std::string& symbol,
                   llvm::LLVMContext& context, Reload reload = Reload::WhereCrowded);

/// Whether a node of a value, without its operands, takes as long as a dozen additions.
bool takes_long(const nest::Value& node);

/// A function for the CPU; an external one is a kernel's, others are parts of it.
llvm::Function* make_function(llvm::Module& module, llvm::FunctionType* type, const std::string& name,
                              const Cpu& cpu, bool external);

/// One scalar, or one value a lane.
struct Lanes {
  llvm::Value* value = nullptr;
  bool vector = false;
};

/// Elementary functions on scalars or vectors of float or double, from polynomials, without branches or
/// calls, as C99 defines them at zeros, infinities and what is not a number. Errors in ulp, of f32 and f64:
/// exp, log, rsqrt, sigmoid, tanh 3; erf 3; gelu 7, and 8 without fused operations; power 2 (a literal whole
/// exponent n: n, or -2n where it is negative).
/// tests/cpp/jit/math_test.cpp measures them.
class MathEmitter {
 public:
  /// `target`: instructions that IR has no operation for save half the operations of some functions.
  MathEmitter(llvm::IRBuilder<>& builder, const TargetInfo& target) : b_(builder), target_(target) {}
  llvm::Value* exp(llvm::Value* x);
  llvm::Value* log(llvm::Value* x);
  llvm::Value* tanh(llvm::Value* x);
  llvm::Value* erf(llvm::Value* x);
  llvm::Value* sigmoid(llvm::Value* x);
  llvm::Value* rsqrt(llvm::Value* x);
  llvm::Value* gelu(llvm::Value* x);
  llvm::Value* power(llvm::Value* x, llvm::Value* y);
  llvm::Value* rounded(program::Function function, llvm::Value* x);
  llvm::Value* wave(program::Function function, llvm::Value* x);  ///< sine or cosine
  llvm::Value* atan(llvm::Value* x);
  llvm::Value* fmod(llvm::Value* x, llvm::Value* y);
  llvm::Value* multiply_add(llvm::Value* a, llvm::Value* b, llvm::Value* c);
  llvm::Value* maximum(llvm::Value* a, llvm::Value* b);  ///< not a number when either is
  llvm::Value* minimum(llvm::Value* a, llvm::Value* b);

 private:
  llvm::Value* number(llvm::Value* like, double value);
  llvm::Value* integer(llvm::Value* like, std::int64_t value);
  llvm::Type* integer_type(llvm::Value* like);
  bool is_double(llvm::Value* like);
  llvm::Value* polynomial(llvm::Value* x, llvm::ArrayRef<double> coefficients);  ///< ascending powers
  /// x = n * log 2 + r: gives exp(r) - 1 and 2^n in two factors.
  struct Reduced {
    llvm::Value* minus_one;
    llvm::Value* scale_a;
    llvm::Value* scale_b;
  };
  Reduced reduce_exp(llvm::Value* x, llvm::Value* low);
  /// exp(x + low) * factor, of an x within the exponent's range; `low` and `factor` may be null.
  llvm::Value* exp_times(llvm::Value* x, llvm::Value* low, llvm::Value* factor);
  llvm::Value* exp_scaled(llvm::Value* x, llvm::Value* low,
                          llvm::Value* factor);  ///< the same; null without the instruction
  llvm::Value* at_least(llvm::Value* x, double least);
  llvm::Value* is_negative(llvm::Value* x);  ///< its sign, also of zeros
  llvm::Value* tail_ratio(llvm::Value* a);
  llvm::Value* power_of_size(llvm::Value* x, llvm::Value* y);
  llvm::Value* with_signs(llvm::Value* x, llvm::Value* y, llvm::Value* made);
  /// What `body` makes of arguments of one type, in a function of its own, a register at a time: for code
  /// with branches, which values of loops have no place for.
  llvm::Value* outlined(const std::string& name, llvm::ArrayRef<llvm::Value*> arguments,
                        llvm::function_ref<llvm::Value*(llvm::ArrayRef<llvm::Value*>)> body);
  /// x = quarter * pi / 2 + high + low, of doubles x >= 0; low may be null.
  struct Quarter {
    llvm::Value* high;
    llvm::Value* low;
    llvm::Value* quarter;
  };
  Quarter reduce_quarter(llvm::Value* size, bool twice);
  Quarter reduce_large(llvm::Value* size);
  llvm::Value* wave_of(program::Function function, llvm::Value* x);
  llvm::Value* remainder(llvm::Value* x, llvm::Value* y);
  llvm::Value* erf_by_table(llvm::Value* x);  ///< null where looks_up() says no
  bool looks_up(llvm::Value* like);
  llvm::Value* polynomial_by_lane(llvm::Value* x, llvm::Value* which,
                                  llvm::ArrayRef<std::array<double, 16>> rows);
  llvm::Value* expm1(llvm::Value* x);
  llvm::Value* absolute(llvm::Value* x);
  int exp_terms() const { return brief_ ? 8 : 13; }  ///< of doubles, past the first two
  llvm::Value* with_sign_of(llvm::Value* magnitude, llvm::Value* sign);
  llvm::IRBuilder<>& b_;
  const TargetInfo& target_;
  bool brief_ = false;  ///< doubles become floats: what is beyond 2^-32 of them is not asked for
};

class Emitter {
 public:
  Emitter(const nest::LoopNest& nest, const Cpu& cpu, std::string symbol, llvm::LLVMContext& context,
          Reload reload);
  EmittedModule run();

 private:
  using Form = nest::AffineForm;
  using Key = std::vector<std::int64_t>;
  enum Tag : std::int64_t { kLoad = 100, kLoadHere, kSplat, kAny, kTransposed };
  static std::int64_t bits(llvm::Value* value) {
    return static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(value));
  }

  /// The vector loop being emitted: lane l stands for iteration base + l of it, l < active.
  struct LaneCondition {
    Form about;
    nest::Condition condition;
  };
  struct Simd {
    std::uint32_t slot = 0;       ///< the nest's loop variable
    std::uint32_t lane_slot = 0;  ///< a variable of our own for the lane
    int lanes = 1;
    int active = 1;
    llvm::Value* mask = nullptr;            ///< null: all lanes; includes lanes >= active being off
    bool conditional = false;               ///< an If, not only the loop's end, switches lanes off
    std::vector<LaneCondition> conditions;  ///< of those Ifs
  };
  /// An index or address over the lanes.
  struct LaneForm {
    Form first;                          ///< at lane 0
    bool same_terms = true;              ///< lanes differ by constants only
    std::vector<std::int64_t> offsets;   ///< of lane l to lane 0, when same_terms
    std::vector<Form> each;              ///< otherwise
    std::optional<std::int64_t> stride;  ///< offsets are stride * lane
  };
  /// A Register buffer in SSA values.
  struct Tile {
    std::size_t lane_dim = 0;  ///< the dimension laid along lanes
    int lanes = 1;
    bool per_iteration = false;  ///< allocated inside the vector loop: each slot holds all its lanes
    std::vector<std::int64_t> slot_extents;
    std::vector<llvm::Value*> slots;
  };
  struct Loop {
    llvm::Instruction* hoist_point;       ///< code that depends on nothing deeper goes before it
    std::size_t cache_mark;               ///< of placed_log_
    llvm::Instruction* before = nullptr;  ///< runs once, before the loop; null where a function begins
    std::vector<bool> stored;             ///< buffers that the loop writes
    std::map<Key, llvm::Value*> ahead;    ///< values computed before the loop
  };
  /// What belongs to one LLVM function; outlining a parallel loop starts another one, and so does a kernel
  /// too long for one.
  struct FunctionState {
    llvm::Function* function = nullptr;
    llvm::Value* arguments = nullptr;                                    ///< of the kernel
    std::map<std::uint32_t, llvm::Value*> bases;                         ///< of buffers, as they are needed
    std::vector<std::pair<llvm::Instruction*, std::uint32_t>> accesses;  ///< and the buffer of each
    llvm::Value* shared = nullptr;
    llvm::Value* private_memory = nullptr;
    std::vector<Loop> loops;
    std::map<std::uint32_t, std::pair<llvm::Value*, std::size_t>> variables;  ///< slot -> value, depth
    std::map<Key, llvm::Value*> placed;  ///< hoisted values: atoms, partial sums, pointers, conditions
    std::vector<Key> placed_log;
    std::map<Key, llvm::Value*> local;  ///< loads and splats valid on the current path
    std::vector<Key> local_log;
    bool parallel = false;
    int branches = 0;  ///< that the code being emitted is in
  };
  /// Where a buffer is, in every function.
  struct Place {
    std::int64_t number = 0;  ///< of the argument; of a temporary: its first byte's in the workspace
    bool own = false;         ///< a temporary of each thread
    llvm::Constant* constant = nullptr;  ///< a Constant's
  };

  // emitter.cpp: functions
  void load_parameters();
  void begin_part();
  void end_part();
  void call_parts();
  void part_if_long();
  void mark_aliases();
  llvm::Value* base(nest::BufferId buffer);

  // emitter.cpp: statements
  void emit(nest::StatementId id);
  void emit_if(const nest::Statement& statement);
  void emit_branch(llvm::Value* condition, nest::StatementId body);
  /// Two ways, of which the second may be null: register tiles are merged behind them.
  void emit_either(llvm::Value* condition, const std::vector<std::pair<Tile*, std::size_t>>& carried,
                   llvm::function_ref<void()> then, llvm::function_ref<void()> otherwise);
  /// How many statements from one on are conditions on ascending ranges of one index, of which one holds at
  /// most; 1 for any other statement.
  std::size_t alternatives(const std::vector<nest::StatementId>& statements, std::size_t begin);
  /// Those, found by halves: what is left of a row, in vectors, is one of many.
  void emit_alternatives(const nest::StatementId* statements, std::size_t count);
  void emit_prefetch(const nest::Statement& statement);
  void emit_allocate(const nest::Statement& statement);
  void stored_buffers(nest::StatementId id, std::vector<bool>& stored) const;
  void enter_loop(llvm::Instruction* before, nest::StatementId stored_in, llvm::BasicBlock* header,
                  llvm::BasicBlock* body);
  void leave_loop();
  void forget_locals(std::size_t mark);
  void invalidate_stored(nest::StatementId body);
  std::vector<std::pair<Tile*, std::size_t>> carried_slots(nest::StatementId body);

  // emitter_loops.cpp: loops, and the lanes they give register tiles
  void emit_for(const nest::Statement& loop);
  void emit_loop(const nest::Statement& loop);
  bool loads_again(const nest::Statement& loop);
  void emit_unrolled(const nest::Statement& loop, std::int64_t begin, std::int64_t end);
  void emit_copies(const nest::Statement& loop, const Form& begin, std::int64_t count);
  std::optional<std::int64_t> sums_in(nest::StatementId id, std::int64_t times);
  void emit_serial(const nest::Statement& loop, const Form& begin, const Form& end);
  std::int64_t steps_at_once(const nest::Statement& loop, symbolic::Interval range,
                             std::optional<std::int64_t> sums);
  void emit_several_live(const nest::Statement& loop, std::int64_t begin, const Form& end,
                         std::int64_t several);
  std::int64_t several_at_once(const nest::Statement& loop, std::int64_t count);
  std::int64_t followed_step(const nest::Statement& loop, nest::StatementId below);
  void emit_several(const nest::Statement& loop, std::int64_t begin, std::int64_t end, std::int64_t several);
  void emit_between(const nest::Statement& loop, const Form& begin, const Form& end);
  template <class Body>
  void emit_counted(std::uint32_t slot, nest::StatementId body_statement, llvm::Value* begin,
                    llvm::Value* end, bool may_be_empty, symbolic::Interval range, const std::string& name,
                    const Body& body);
  void emit_vector(const nest::Statement& loop, std::int64_t begin, std::int64_t end);
  void emit_parallel(const nest::Statement& loop, const Form& begin, const Form& end);
  bool vectorises(const nest::Statement& loop) const;
  bool indexes_registers(nest::StatementId id, std::uint32_t slot) const;
  Tile make_tile(nest::BufferId buffer, nest::StatementId body) const;

  // emitter_index.cpp: index arithmetic, addresses, conditions
  Form form(symbolic::ExprId id) { return forms_.form(nest_.arena, id); }
  std::size_t depth_of(std::uint32_t atom) const;
  std::size_t depth_of(const Form& form) const;
  llvm::Value* atom_value(std::uint32_t atom);
  llvm::Value* value_of(const Form& form);  ///< i64
  llvm::Value* terms_value(const Form& form);
  llvm::Value* pointer(nest::BufferId buffer, const Form& elements);
  LaneForm over_lanes(const Form& form);
  bool uses_lanes(const Form& form) const { return simd_ && forms_.depends_on(form, simd_->lane_slot); }
  enum class Truth { Never, Sometimes, Always };
  Truth truth(const Form& form, const nest::Condition& condition) const;
  llvm::Value* condition_value(const Form& form, const nest::Condition& condition);  ///< i1, no lanes
  llvm::Value* condition_mask(const Form& form, const nest::Condition& condition);   ///< <lanes x i1>
  llvm::Value* offsets_mask(const Form& first, const std::vector<std::int64_t>& offsets,
                            const nest::Condition& condition, symbolic::Interval range);
  llvm::Value* both(llvm::Value* a, llvm::Value* b);  ///< either may be null (true); i1 or masks alike
  llvm::Value* placed_at(std::size_t depth, const Key& key, llvm::function_ref<llvm::Value*()> make);
  llvm::Value* where_needed(std::size_t depth, const Key& key, llvm::function_ref<llvm::Value*()> make);
  llvm::Value* locally(const Key& key, llvm::function_ref<llvm::Value*()> make);
  llvm::Value* lane_offsets(const std::vector<std::int64_t>& offsets, llvm::Type* type);
  Key key_of(std::int64_t tag, const Form& form) const;
  Form element_form(nest::BufferId buffer, const std::vector<symbolic::ExprId>& indices);
  void plan_live_strides();

  // emitter_invariant.cpp: what is computed before loops
  struct Invariant {
    Key key;
    std::size_t depth = 0;              ///< of the innermost loop that moves it
    std::vector<std::uint32_t> loaded;  ///< buffers
  };
  /// x / d = (x * scale) * inverse, with d * scale in the middle of the exponents: neither overflows first.
  enum class Part { Value, Scale, Inverse };
  bool describe(nest::ValueId id, Invariant& made);
  llvm::Value* before_loops(nest::ValueId id, Part part);
  llvm::Value* part_of(llvm::Value* divisor, Part part);
  Lanes quotient(Lanes x, nest::ValueId divisor);

  // emitter_shuffle.cpp: loads of lanes that lie apart
  /// Where lanes lie in a row of a buffer whose extents a call brings along: they move along its last
  /// dimension alone.
  struct Row {
    Form first, extent;  ///< lane 0's index, and how many there are
    bool apart = true;   ///< no variable says both which row it is and where in it
  };
  /// Elements that lie at constant distances, and which of them are wanted.
  struct Apart {
    nest::BufferId buffer{};
    Form first = {};  ///< lane 0's element
    const std::vector<std::int64_t>* offsets = nullptr;
    std::vector<bool> on = {};  ///< lanes that may be wanted
    std::optional<Row> row = {};
    bool use_facts = false;  ///< what is known here holds of all lanes
    bool masked = false;     ///< lanes are wanted where `conditions` hold
    std::vector<LaneCondition> conditions = {};
    llvm::Value* condition = nullptr;  ///< of all; where it fails they come from `otherwise`
    llvm::Value* otherwise = nullptr;
  };
  bool loads_masked(nest::Dtype dtype) const;
  std::optional<Row> row_of(nest::BufferId id, const std::vector<symbolic::ExprId>& indices);
  bool readable(const Apart& load, std::int64_t from, std::int64_t to) const;
  void take_off(Apart& load);
  llvm::Value* wanted_mask(const Apart& load, std::int64_t start, int width);
  llvm::Value* row_mask(const Apart& load, std::int64_t start, int width);
  llvm::Value* block_load(const Apart& load, std::int64_t start, int width, llvm::Value* mask);
  llvm::Value* shuffled(llvm::Value* a, llvm::Value* b, const std::vector<int>& mask);
  llvm::Value* shuffled_load(const Apart& load, std::int64_t stride);

  // emitter_whole.cpp: indices as values
  Lanes integers(const Form& index);
  Lanes index_value(const Form& index);
  struct Whole {
    bool rounds = false;
    int nodes = 0;
  };
  std::optional<Form> whole_form(nest::ValueId id, Whole& seen);
  std::optional<Lanes> whole_numbers(const nest::Value& node);

  // emitter_registers.cpp: register tiles
  std::optional<std::size_t> tile_slot(const Tile& tile, const nest::Buffer& buffer,
                                       const std::vector<Form>& at, int* lane) const;
  Lanes load_register(nest::BufferId id, const std::vector<symbolic::ExprId>& indices);
  llvm::Value* load_transposed(nest::BufferId id, const Tile& tile, const std::vector<Form>& at);
  std::vector<llvm::Value*> transposed(std::vector<llvm::Value*> rows, int lanes);
  std::vector<llvm::Value*> exchanged(std::vector<llvm::Value*> rows);
  std::vector<llvm::Value*> interleaved(std::vector<llvm::Value*> rows);
  void store_register(const nest::Statement& statement, Lanes stored);

  // emitter_fold.cpp: lanes that meet in one element, of several vectors at once
  struct Fold {
    Tile* tile = nullptr;
    std::size_t slot = 0;
    int lane = 0;
    llvm::Value* vector = nullptr;
    nest::StoreMode mode = nest::StoreMode::Add;
  };
  bool folds_lanes(const nest::Statement& loop);
  void fold_together();
  void fold(llvm::ArrayRef<Fold> folds);
  void put_folded(llvm::ArrayRef<Fold> folds, llvm::Value* vector, const std::vector<int>& owners);
  llvm::Value* joined(nest::StoreMode mode, llvm::Value* a, llvm::Value* b);
  bool reads(nest::ValueId id, nest::BufferId buffer) const;

  // emitter_value.cpp: values, loads and stores
  Lanes value(nest::ValueId id);
  Lanes value_here(nest::ValueId id);
  Lanes load(const nest::Value& node);
  Lanes load_memory(nest::BufferId id, const std::vector<symbolic::ExprId>& indices, llvm::Value* condition,
                    llvm::Value* guard_mask, const std::vector<LaneCondition>& guards, double fill);
  Lanes unary(program::Function function, Lanes a);
  Lanes binary(program::Function function, Lanes a, Lanes b);
  void store(const nest::Statement& statement);
  void store_memory(const nest::Statement& statement, Lanes stored);
  Lanes combine(nest::StoreMode mode, Lanes old, Lanes stored);
  llvm::Value* reduce_lanes(nest::StoreMode mode, llvm::Value* vector);
  llvm::Value* lanes_on(nest::StoreMode mode, llvm::Value* vector);  ///< those that are off change nothing
  llvm::Value* spread(Lanes lanes);                                  ///< as a vector
  llvm::Value* from_storage(nest::Dtype dtype, llvm::Value* loaded);
  llvm::Value* to_storage(nest::Dtype dtype, llvm::Value* computed);
  llvm::Type* storage_type(nest::Dtype dtype);
  llvm::Constant* number(double value);
  llvm::Value* load_plain(nest::BufferId id, llvm::Type* type, llvm::Value* from);
  void store_plain(nest::BufferId id, llvm::Value* stored, llvm::Value* to);
  void mark_alias(llvm::Instruction* access, nest::BufferId id);
  llvm::Value* masked_call(llvm::Instruction* call, nest::BufferId id);
  llvm::Value* lane_pointers(nest::BufferId id, const LaneForm& where);
  llvm::Value* identity(nest::StoreMode mode);

  const nest::LoopNest& nest_;
  const Cpu& cpu_;
  std::string symbol_;
  Reload reload_;
  bool shares_ = false;
  llvm::LLVMContext& context_;
  std::unique_ptr<llvm::Module> module_;
  llvm::IRBuilder<> b_;
  MathEmitter math_;
  nest::AffineForms forms_;
  llvm::Type* compute_ = nullptr;  ///< float, or double when any buffer is f64
  int native_lanes_ = 1;
  std::uint32_t next_slot_ = 0;
  FunctionState f_;
  std::optional<Simd> simd_;
  std::map<std::uint32_t, Tile> tiles_;     ///< live Register buffers
  std::optional<std::vector<Fold>> folds_;  ///< while loops that fold lanes are written: those not done yet
  std::vector<std::int64_t> versions_;      ///< of buffers: loads before a store are not reused after it
  std::vector<Place> places_;               ///< of buffers
  /// A stride known at run time: `times` elements times what `slot` holds, where that is any.
  struct LiveStride {
    std::int64_t times = 1;
    std::optional<std::uint32_t> slot;
  };
  /// A multiple of such a stride, bytes of one: `stride` is its atom.
  struct LiveRows {
    std::uint32_t stride = 0;
    std::int64_t count = 0, bytes = 0;
  };
  /// Where that many rows behind a pointer lie.
  llvm::Value* rows_on(llvm::Value* at, const LiveRows& rows);
  std::map<std::uint32_t, std::int64_t> unrolled_;  ///< iterations of the unrolled loops around
  std::vector<std::int64_t>
      live_rows_;  ///< of buffers: rows of such strides that the last access reaches in them
  std::vector<std::vector<LiveStride>> live_strides_;        ///< of buffers with extents known at run time
  std::map<std::vector<Form>, std::uint32_t> stride_slots_;  ///< of products of extents
  std::int64_t argument_count_ = 0;
  std::vector<llvm::ReturnInst*> parts_;  ///< where each part ends
  std::int64_t shared_top_ = 0, private_top_ = 0, shared_bytes_ = 0, private_bytes_ = 0;
  std::map<std::uint32_t, Lanes> memo_;  ///< values of the statement being emitted
  std::vector<llvm::Metadata*> scopes_;  ///< of aliases, of buffers
  int outlined_ = 0;
};

}  // namespace syno::jit
