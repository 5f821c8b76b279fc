// Loops: counted, unrolled, as vectors, on several threads.
#include <algorithm>
#include <bit>
#include <functional>

#include "jit/emitter.hpp"
#include "machine/tile_cost.hpp"
#include "support/error.hpp"

namespace syno::jit {

using machine::kFewSums;
using machine::kShortLoop;
using nest::Buffer;
using nest::BufferId;
using nest::BufferKind;
using nest::LoopKind;
using nest::Statement;
using nest::StatementId;
using nest::StatementKind;
using symbolic::Interval;

namespace {

constexpr std::int64_t kLargestUnrolledChunks = 8;
/// Of an iteration that is little work: sums of those written behind one another, and how many those are.
constexpr std::int64_t kEnoughSums = 48, kMostAtOnce = 4;
/// Bytes between a load and its next execution from which on prefetchers do not follow it: Intel's
/// optimization manual says so of strides; on a Zen 5 lines of the second cache then come half as fast.
constexpr std::int64_t kFollowedBytes = 2048;
/// Operands are in want of registers where sums take more than this part of them, or leave fewer.
constexpr double kCrowded = 0.75;
constexpr double kFewLeft = 6;

/// How often `expr` holds the variable, and whether only as a plain summand.
struct Occurrence {
  int count = 0;
  bool plain = true;
};
void count_variable(const symbolic::Arena& arena, symbolic::ExprId id, std::uint32_t slot, bool plain,
                    Occurrence& found) {
  const symbolic::Expr& node = arena[id];
  if (node.op == symbolic::Op::Iterator && static_cast<std::uint32_t>(node.a) == slot) {
    ++found.count;
    found.plain = found.plain && plain;
  }
  if (node.op == symbolic::Op::Iterator || node.op == symbolic::Op::Constant ||
      node.op == symbolic::Op::SizeValue)
    return;
  count_variable(arena, node.a, slot, plain && node.op == symbolic::Op::Add, found);
  if (node.op == symbolic::Op::Add) count_variable(arena, node.b, slot, plain, found);
}

/// Calls `visit` for a value and those it is made of.
template <class Visit>
void visit_values(const nest::LoopNest& nest, nest::ValueId id, const Visit& visit) {
  const nest::Value& node = nest.value(id);
  visit(node);
  if (node.kind == nest::ValueKind::Select) visit_values(nest, node.c, visit);
  if (node.kind == nest::ValueKind::Select || node.kind == nest::ValueKind::Binary)
    visit_values(nest, node.b, visit);
  if (node.kind == nest::ValueKind::Select || node.kind == nest::ValueKind::Binary ||
      node.kind == nest::ValueKind::Unary)
    visit_values(nest, node.a, visit);
}

/// Calls `visit(buffer, indices)` for every access in a statement and below.
template <class Visit>
void visit_accesses(const nest::LoopNest& nest, StatementId id, const Visit& visit) {
  const Statement& statement = nest.statement(id);
  if (statement.kind == StatementKind::Store) {
    visit_values(nest, statement.value, [&](const nest::Value& value) {
      if (value.kind == nest::ValueKind::Load) visit(value.buffer, value.indices);
    });
    visit(statement.buffer, statement.indices);
  }
  for (const StatementId child : statement.children) visit_accesses(nest, child, visit);
}

template <class Visit>
void visit_stores(const nest::LoopNest& nest, StatementId id, const Visit& visit) {
  const Statement& statement = nest.statement(id);
  if (statement.kind == StatementKind::Store) visit(statement.buffer, statement.indices);
  for (const StatementId child : statement.children) visit_stores(nest, child, visit);
}

int lanes_for(std::int64_t extent, int native) {
  return extent >= native
             ? native
             : static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(extent, 1))));
}

}  // namespace

/// Whether a value is made of something the buffer holds.
bool Emitter::reads(nest::ValueId id, BufferId buffer) const {
  bool found = false;
  visit_values(nest_, id, [&](const nest::Value& value) {
    found = found || (value.kind == nest::ValueKind::Load && value.buffer == buffer);
  });
  return found;
}

void Emitter::emit_for(const Statement& loop) {
  if (!folds_lanes(loop)) return emit_loop(loop);
  folds_.emplace();
  emit_loop(loop);
  fold_together();
}

void Emitter::emit_loop(const Statement& loop) {
  const Form begin = form(loop.begin), end = form(loop.end);
  if (begin.is_constant() && end.is_constant()) {
    const std::int64_t count = end.constant - begin.constant;
    if (count <= 0) return;
    if (count == 1 || loop.loop == LoopKind::Unroll) return emit_unrolled(loop, begin.constant, end.constant);
    if (loop.loop == LoopKind::Vector) return emit_vector(loop, begin.constant, end.constant);
  }
  if (loop.loop == LoopKind::Parallel && !f_.parallel && !simd_) return emit_parallel(loop, begin, end);
  if (begin.is_constant() && end.is_constant()) {
    const std::int64_t count = end.constant - begin.constant, several = several_at_once(loop, count);
    if (several == count) return emit_unrolled(loop, begin.constant, end.constant);
    if (several > 1) return emit_several(loop, begin.constant, end.constant, several);
  } else if (begin.is_constant()) {
    const std::int64_t most = forms_.bounds(end).greatest - begin.constant;
    const std::int64_t several =
        steps_at_once(loop, {begin.constant, begin.constant + most}, sums_in(loop.children[0], 1));
    if (several > 1) return emit_several_live(loop, begin.constant, end, several);
  }
  emit_serial(loop, begin, end);
}

/// Whether iterations of an unrolled loop that add to the same sums load again what others have loaded: where
/// the sums take most registers, there are none to keep it in.
bool Emitter::loads_again(const Statement& loop) {
  if (simd_ || indexes_registers(loop.children[0], loop.slot)) return false;
  const auto sums = static_cast<double>(carried_slots(loop.children[0]).size());
  const auto registers = static_cast<double>(cpu_.info.vector_registers);
  if (sums == 0) return false;
  if (reload_ == Reload::Always || sums > kCrowded * registers || registers - sums < kFewLeft) return true;
  shares_ = true;
  return false;
}

/// The body of so many iterations, one behind the other; `begin` is a form of variables that are bound.
void Emitter::emit_copies(const Statement& loop, const Form& begin, std::int64_t count) {
  const bool apart = count > 1 && loads_again(loop);
  for (std::int64_t i = 0; i < count; ++i) {
    forms_.bind_form(loop.slot, nest::with_constant(begin, i));
    const std::size_t locals = f_.local_log.size();
    emit(loop.children[0]);
    if (!apart || i + 1 == count) continue;
    forget_locals(locals);
    b_.CreateFence(llvm::AtomicOrdering::AcquireRelease, llvm::SyncScope::SingleThread);  // no instruction
  }
  forms_.unbind(loop.slot);
}

void Emitter::emit_unrolled(const Statement& loop, std::int64_t begin, std::int64_t end) {
  unrolled_[loop.slot] = end - begin;
  emit_copies(loop, {{}, begin}, end - begin);
  unrolled_.erase(loop.slot);
}

/// Iterations of a serial loop that are written one after the other: a core that starts two multiply-adds of
/// such vectors a cycle has few places left for counting and addresses, which several iterations share then.
std::int64_t Emitter::several_at_once(const Statement& loop, std::int64_t count) {
  if (simd_) return 1;
  const std::optional<std::int64_t> sums = sums_in(loop.children[0], 1);
  if (sums && *sums > 0 && *sums <= kFewSums && count * *sums <= kShortLoop) return count;
  return steps_at_once(loop, {form(loop.begin).constant, form(loop.end).constant}, sums);
}

std::int64_t Emitter::steps_at_once(const Statement& loop, Interval range, std::optional<std::int64_t> sums) {
  if (simd_ || !sums || *sums == 0 || *sums > kFewSums) return 1;
  const std::int64_t count = range.greatest - range.least;
  forms_.bind(loop.slot, range);
  const std::int64_t step = followed_step(loop, loop.children[0]);
  forms_.unbind(loop.slot);
  std::int64_t several = 1;
  while (several < kMostAtOnce && 2 * several * *sums <= kEnoughSums && 4 * several <= count &&
         2 * several * step < kFollowedBytes)
    several *= 2;
  return several;
}

/// The most bytes by which an iteration of a loop moves a load below a statement that prefetchers follow.
std::int64_t Emitter::followed_step(const Statement& loop, StatementId below) {
  const Statement& statement = nest_.statement(below);
  const auto most = [&](std::span<const StatementId> children) {
    std::int64_t step = 0;
    for (const StatementId child : children) step = std::max(step, followed_step(loop, child));
    return step;
  };
  if (statement.kind == StatementKind::For) {
    forms_.bind(statement.slot, {form(statement.begin).constant, form(statement.end).constant});
    const std::int64_t step = most(statement.children);
    forms_.unbind(statement.slot);
    return step;
  }
  if (statement.kind != StatementKind::Store) return most(statement.children);
  std::int64_t step = 0;
  visit_values(nest_, statement.value, [&](const nest::Value& value) {
    if (value.kind != nest::ValueKind::Load || nest_.buffer(value.buffer).kind == BufferKind::Register)
      return;
    bool linear = true;
    const std::int64_t bytes =
        nest::byte_size(nest_.buffer(value.buffer).dtype) *
        forms_.coefficient(element_form(value.buffer, value.indices), loop.slot, &linear);
    if (linear && std::abs(bytes) < kFollowedBytes) step = std::max(step, std::abs(bytes));
  });
  return step;
}

/// Vectors that are added to registers in one execution of a statement that has no branch and no loop in it;
/// nothing for another one.
std::optional<std::int64_t> Emitter::sums_in(StatementId id, std::int64_t times) {
  const Statement& statement = nest_.statement(id);
  switch (statement.kind) {
    case StatementKind::Sequence: {
      std::int64_t all = 0;
      for (const StatementId child : statement.children) {
        const auto one = sums_in(child, times);
        if (!one) return std::nullopt;
        all += *one;
      }
      return all;
    }
    case StatementKind::For: {
      const Form begin = form(statement.begin), end = form(statement.end);
      if (!begin.is_constant() || !end.is_constant()) return std::nullopt;
      std::int64_t count = std::max<std::int64_t>(0, end.constant - begin.constant);
      if (statement.loop == LoopKind::Vector) count = (count + native_lanes_ - 1) / native_lanes_;
      if (count != 1 && statement.loop != LoopKind::Unroll && statement.loop != LoopKind::Vector)
        return std::nullopt;
      return sums_in(statement.children[0], times * count);
    }
    case StatementKind::Store: {
      if (nest_.buffer(statement.buffer).kind != BufferKind::Register) return std::nullopt;
      bool branches = false;
      visit_values(nest_, statement.value, [&](const nest::Value& value) {
        branches = branches || value.kind == nest::ValueKind::Select || !value.guards.empty();
      });
      if (branches) return std::nullopt;
      return statement.mode == nest::StoreMode::Add ? times : 0;
    }
    case StatementKind::Prefetch:
      return 0;
    case StatementKind::If:
    case StatementKind::Allocate:
      return std::nullopt;
  }
  return std::nullopt;
}

void Emitter::emit_several(const Statement& loop, std::int64_t begin, std::int64_t end,
                           std::int64_t several) {
  const std::uint32_t chunk = next_slot_++;
  const std::int64_t chunks = (end - begin) / several, rest = begin + chunks * several;
  emit_counted(chunk, loop.children[0], b_.getInt64(0), b_.getInt64(static_cast<std::uint64_t>(chunks)),
               false, {0, chunks - 1}, loop.name, [&] {
                 const Form first = nest::multiply(forms_.slot_form(chunk), several);
                 emit_copies(loop, nest::with_constant(first, begin), several);
               });
  if (rest < end) emit_unrolled(loop, rest, end);
}

/// The same of a loop that ends where a call says: what is left of it is a loop of its own.
void Emitter::emit_several_live(const Statement& loop, std::int64_t begin, const Form& end,
                                std::int64_t several) {
  const std::uint32_t chunk = next_slot_++;
  const Form chunks = forms_.quotient(nest::with_constant(end, -begin), several);
  const Interval count = forms_.bounds(chunks);
  emit_counted(chunk, loop.children[0], b_.getInt64(0), value_of(chunks), count.least < 1,
               {0, std::max<std::int64_t>(count.greatest, 1) - 1}, loop.name, [&] {
                 const Form first =
                     nest::with_constant(nest::multiply(forms_.slot_form(chunk), several), begin);
                 const std::size_t known = forms_.fact_count();
                 // The last of them is before the end.
                 forms_.push_fact(nest::add(nest::with_constant(first, several - 1), nest::multiply(end, -1)),
                                  {-nest::SmallCoefficients::kLargest, -1});
                 emit_copies(loop, first, several);
                 forms_.pop_facts(known);
               });
  emit_serial(loop, nest::with_constant(nest::multiply(chunks, several), begin), end);
}

/// The loop of a runtime variable: one phi for it and one for every register slot its body writes.
template <class Body>
void Emitter::emit_counted(std::uint32_t slot, StatementId stored_in, llvm::Value* begin, llvm::Value* end,
                           bool may_be_empty, Interval range, const std::string& name, const Body& body) {
  const auto carried = carried_slots(stored_in);
  std::vector<llvm::Value*> entering;
  for (const auto& [tile, s] : carried) entering.push_back(tile->slots[s]);
  invalidate_stored(stored_in);
  llvm::BasicBlock* preheader = b_.GetInsertBlock();
  llvm::BasicBlock* header = llvm::BasicBlock::Create(context_, name, f_.function);
  llvm::BasicBlock* inner = llvm::BasicBlock::Create(context_, name + ".body", f_.function);
  llvm::BasicBlock* exit = llvm::BasicBlock::Create(context_, name + ".end", f_.function);
  llvm::Instruction* before =
      may_be_empty ? b_.CreateCondBr(b_.CreateICmpSLT(begin, end), header, exit) : b_.CreateBr(header);

  b_.SetInsertPoint(header);
  llvm::PHINode* variable = b_.CreatePHI(b_.getInt64Ty(), 2, name);
  variable->addIncoming(begin, preheader);
  std::vector<llvm::PHINode*> phis;
  for (std::size_t i = 0; i < carried.size(); ++i) {
    phis.push_back(b_.CreatePHI(entering[i]->getType(), 2));
    phis.back()->addIncoming(entering[i], preheader);
    carried[i].first->slots[carried[i].second] = phis.back();
  }
  forms_.bind(slot, range);
  const std::size_t locals = f_.local_log.size();
  enter_loop(before, stored_in, header, inner);
  f_.variables[slot] = {variable, f_.loops.size() - 1};
  body();
  f_.variables.erase(slot);
  leave_loop();
  forget_locals(locals);
  forms_.unbind(slot);

  llvm::BasicBlock* latch = b_.GetInsertBlock();
  llvm::Value* next = b_.CreateAdd(variable, b_.getInt64(1), "", true, true);
  b_.CreateCondBr(b_.CreateICmpSLT(next, end), header, exit);
  variable->addIncoming(next, latch);
  for (std::size_t i = 0; i < carried.size(); ++i)
    phis[i]->addIncoming(carried[i].first->slots[carried[i].second], latch);

  b_.SetInsertPoint(exit);
  if (may_be_empty) {
    for (std::size_t i = 0; i < carried.size(); ++i) {
      llvm::Value*& held = carried[i].first->slots[carried[i].second];
      llvm::PHINode* merged = b_.CreatePHI(held->getType(), 2);
      merged->addIncoming(entering[i], preheader);
      merged->addIncoming(held, latch);
      held = merged;
    }
  }
  invalidate_stored(stored_in);
}

void Emitter::emit_serial(const Statement& loop, const Form& begin, const Form& end) {
  const Interval first = forms_.bounds_without_facts(begin), last = forms_.bounds_without_facts(end);
  const Form count = nest::add(end, nest::multiply(begin, -1));
  const bool may_be_empty = forms_.bounds(count).least < 1;
  emit_counted(loop.slot, loop.children[0], value_of(begin), value_of(end), may_be_empty,
               {first.least, last.greatest - 1}, loop.name, [&] { emit_between(loop, begin, end); });
}

/// What a call's sizes say of the iterations is known inside.
void Emitter::emit_between(const Statement& loop, const Form& begin, const Form& end) {
  const std::size_t known = forms_.fact_count();
  forms_.push_loop_facts(loop.slot, begin, end);
  emit(loop.children[0]);
  forms_.pop_facts(known);
}

bool Emitter::indexes_registers(StatementId id, std::uint32_t slot) const {
  bool found = false;
  visit_accesses(nest_, id, [&](BufferId buffer, const std::vector<symbolic::ExprId>& indices) {
    if (nest_.buffer(buffer).kind != BufferKind::Register) return;
    for (const symbolic::ExprId index : indices) {
      Occurrence seen;
      count_variable(nest_.arena, index, slot, true, seen);
      found = found || seen.count > 0;
    }
  });
  return found;
}

/// Whether lanes can do the iterations of a vector loop together: loops inside run equally often in each, and
/// no memory or register tile of an iteration's own is indexed by the lane.
bool Emitter::vectorises(const Statement& loop) const {
  if (simd_ || native_lanes_ == 1) return false;
  std::vector<bool> own(nest_.buffers.size());
  const std::function<bool(StatementId)> fits = [&](StatementId id) {
    const Statement& inner = nest_.statement(id);
    if (inner.kind == StatementKind::Allocate) {
      if (nest_.buffer(inner.buffer).kind == BufferKind::Temporary) return false;
      own[raw(inner.buffer)] = true;
    }
    if (inner.kind == StatementKind::For) {
      Occurrence seen;
      count_variable(nest_.arena, inner.begin, loop.slot, true, seen);
      count_variable(nest_.arena, inner.end, loop.slot, true, seen);
      if (seen.count > 0) return false;
    }
    return std::all_of(inner.children.begin(), inner.children.end(), fits);
  };
  if (!fits(loop.children[0])) return false;
  bool lane_indexed = false;
  visit_accesses(nest_, loop.children[0], [&](BufferId buffer, const std::vector<symbolic::ExprId>& indices) {
    if (!own[raw(buffer)]) return;
    for (const symbolic::ExprId index : indices) {
      Occurrence seen;
      count_variable(nest_.arena, index, loop.slot, true, seen);
      lane_indexed = lane_indexed || seen.count > 0;
    }
  });
  return !lane_indexed;
}

void Emitter::emit_vector(const Statement& loop, std::int64_t begin, std::int64_t end) {
  const StatementId body = loop.children[0];
  const bool registers = indexes_registers(body, loop.slot);
  if (!vectorises(loop)) {
    if (registers) return emit_unrolled(loop, begin, end);
    return emit_serial(loop, {{}, begin}, {{}, end});
  }
  const std::int64_t native = native_lanes_, count = end - begin, chunks = count / native,
                     rest = count % native;
  const std::uint32_t lane_slot = next_slot_++;
  const auto run = [&](const Form& first, int lanes, int active) {
    Simd simd;
    simd.slot = loop.slot;
    simd.lane_slot = lane_slot;
    simd.lanes = lanes;
    simd.active = active;
    if (active < lanes) {
      std::vector<llvm::Constant*> on;
      for (int l = 0; l < lanes; ++l) on.push_back(b_.getInt1(l < active));
      simd.mask = llvm::ConstantVector::get(on);
    }
    forms_.bind(lane_slot, {0, active - 1});
    forms_.bind_form(loop.slot, nest::add(first, forms_.slot_form(lane_slot)));
    simd_ = simd;
    emit(body);
    simd_.reset();
    forms_.unbind(loop.slot);
    forms_.unbind(lane_slot);
  };
  if (chunks > kLargestUnrolledChunks && !registers) {
    const std::uint32_t chunk = next_slot_++;
    emit_counted(chunk, body, b_.getInt64(0), b_.getInt64(static_cast<std::uint64_t>(chunks)), false,
                 {0, chunks - 1}, loop.name, [&] {
                   const Form first = nest::multiply(forms_.slot_form(chunk), native);
                   run(nest::with_constant(first, begin), native_lanes_, native_lanes_);
                 });
  } else {
    for (std::int64_t c = 0; c < chunks; ++c) run({{}, begin + c * native}, native_lanes_, native_lanes_);
  }
  if (rest == 0) return;
  // Lanes of a tile are all of one width; elsewhere the narrowest vector does.
  const int lanes = registers && chunks > 0 ? native_lanes_ : lanes_for(rest, native_lanes_);
  if (lanes == 1) {
    forms_.bind_constant(loop.slot, begin + chunks * native);
    emit(body);
    forms_.unbind(loop.slot);
    return;
  }
  run({{}, begin + chunks * native}, lanes, static_cast<int>(rest));
}

/// The body becomes a function of its own, body(context, begin, end, private memory); the context holds the
/// kernel's arguments, the shared workspace and the variables of the loops around.
void Emitter::emit_parallel(const Statement& loop, const Form& begin, const Form& end) {
  const Form count_form = nest::add(end, nest::multiply(begin, -1));
  const Interval first_range = forms_.bounds_without_facts(begin),
                 last_range = forms_.bounds_without_facts(end);
  llvm::Type* pointer_type = b_.getPtrTy();
  llvm::Type* word = b_.getInt64Ty();

  std::vector<std::uint32_t> slots;
  for (const auto& [slot, value] : f_.variables) slots.push_back(slot);

  // The caller's side: fill the context.
  llvm::Value* first = value_of(begin);
  llvm::Value* count = value_of(count_form);
  const std::uint64_t words = slots.size() + 3;
  llvm::Value* context = nullptr;
  {
    llvm::IRBuilder<>::InsertPointGuard keep(b_);
    b_.SetInsertPoint(f_.loops[0].hoist_point);
    context = b_.CreateAlloca(llvm::ArrayType::get(word, words), nullptr, "context");
  }
  const auto place = [&](llvm::Value* base, std::uint64_t index) {
    return b_.CreateConstGEP1_64(word, base, index);
  };
  std::uint64_t at = 0;
  b_.CreateStore(f_.arguments, place(context, at++));
  for (const std::uint32_t slot : slots) b_.CreateStore(f_.variables.at(slot).first, place(context, at++));
  b_.CreateStore(f_.shared, place(context, at++));
  b_.CreateStore(first, place(context, at++));

  auto* body_type = llvm::FunctionType::get(b_.getVoidTy(), {pointer_type, word, word, pointer_type}, false);
  llvm::Function* body =
      make_function(*module_, body_type,
                    symbol_ + "." + loop.name + (outlined_ ? std::to_string(outlined_) : ""), cpu_, false);
  ++outlined_;
  // Sizes of private memory are known after the body: the pool gives the address, the serial path computes
  // it.
  llvm::BasicBlock* caller = b_.GetInsertBlock();

  // The callee.
  FunctionState outer = std::move(f_);
  f_ = {};
  f_.function = body;
  f_.parallel = true;
  llvm::BasicBlock* entry = llvm::BasicBlock::Create(context_, "entry", body);
  llvm::BasicBlock* start = llvm::BasicBlock::Create(context_, "start", body);
  b_.SetInsertPoint(entry);
  at = 0;
  f_.arguments = b_.CreateLoad(pointer_type, place(body->getArg(0), at++));
  for (const std::uint32_t slot : slots)
    f_.variables[slot] = {b_.CreateLoad(word, place(body->getArg(0), at++)), 0};
  f_.shared = b_.CreateLoad(pointer_type, place(body->getArg(0), at++));
  llvm::Value* offset = b_.CreateLoad(word, place(body->getArg(0), at++));
  f_.private_memory = body->getArg(3);
  llvm::Value* from = b_.CreateAdd(offset, body->getArg(1));
  llvm::Value* to = b_.CreateAdd(offset, body->getArg(2));
  llvm::Instruction* branch = b_.CreateBr(start);
  f_.loops.push_back({branch, 0, nullptr, {}, {}});
  b_.SetInsertPoint(start);
  emit_counted(loop.slot, loop.children[0], from, to, true, {first_range.least, last_range.greatest - 1},
               loop.name, [&] { emit_between(loop, begin, end); });
  b_.CreateRetVoid();
  mark_aliases();
  f_ = std::move(outer);
  b_.SetInsertPoint(caller);

  llvm::BasicBlock* alone = llvm::BasicBlock::Create(context_, "alone", f_.function);
  llvm::BasicBlock* together = llvm::BasicBlock::Create(context_, "together", f_.function);
  llvm::BasicBlock* done = llvm::BasicBlock::Create(context_, "done", f_.function);
  llvm::Value* parallel = f_.function->getArg(2);
  b_.CreateCondBr(b_.CreateIsNull(parallel), alone, together);
  b_.SetInsertPoint(alone);
  llvm::Value* memory =
      b_.CreateGEP(b_.getInt8Ty(), f_.shared,
                   b_.CreateLoad(word, module_->getOrInsertGlobal(symbol_ + ".shared_bytes", word)));
  b_.CreateCall(body_type, body, {context, b_.getInt64(0), count, memory});
  b_.CreateBr(done);
  b_.SetInsertPoint(together);
  auto* run_type =
      llvm::FunctionType::get(b_.getVoidTy(), {pointer_type, pointer_type, pointer_type, word}, false);
  b_.CreateCall(run_type, parallel, {f_.function->getArg(3), body, context, count});
  b_.CreateBr(done);
  b_.SetInsertPoint(done);
  invalidate_stored(loop.children[0]);
}

Emitter::Tile Emitter::make_tile(BufferId id, StatementId body) const {
  const Buffer& buffer = nest_.buffer(id);
  Tile tile;
  tile.slot_extents = buffer.extents;
  if (simd_) {
    tile.per_iteration = true;
    return tile;
  }
  // The vector loops that write it say along which dimension lanes lie, and how many.
  std::vector<const Statement*> vectors;
  const std::function<void(StatementId)> visit = [&](StatementId at) {
    const Statement& statement = nest_.statement(at);
    const bool vector = statement.kind == StatementKind::For && statement.loop == LoopKind::Vector;
    if (vector) {
      visit_stores(nest_, at, [&](BufferId accessed, const std::vector<symbolic::ExprId>& indices) {
        if (accessed != id) return;
        const auto& arena = nest_.arena;
        if (arena[statement.begin].op != symbolic::Op::Constant ||
            arena[statement.end].op != symbolic::Op::Constant)
          return;
        const std::int64_t extent = arena[statement.end].value - arena[statement.begin].value;
        const int lanes = lanes_for(extent, native_lanes_);
        std::size_t holding = 0, dim = 0;
        bool plain = true;
        for (std::size_t d = 0; d < indices.size(); ++d) {
          Occurrence seen;
          count_variable(arena, indices[d], statement.slot, true, seen);
          if (seen.count == 0) continue;
          ++holding;
          dim = d;
          plain = plain && seen.plain && seen.count == 1;
        }
        if (holding != 1 || !plain || lanes <= tile.lanes) return;
        tile.lanes = lanes;
        tile.lane_dim = dim;
      });
    }
    for (const StatementId child : statement.children) visit(child);
  };
  visit(body);
  if (!tile.slot_extents.empty()) {
    std::int64_t& extent = tile.slot_extents[tile.lane_dim];
    extent = (extent + tile.lanes - 1) / tile.lanes;
  }
  return tile;
}

}  // namespace syno::jit
