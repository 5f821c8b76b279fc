// Statements: conditions, allocations, and the functions they are emitted into.
#include "jit/emitter.hpp"

#include <llvm/IR/Constants.h>
#include <llvm/Transforms/Utils/BasicBlockUtils.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "nest/unwritten.hpp"
#include "support/bfloat16.hpp"
#include "support/error.hpp"

namespace syno::jit {

using nest::Buffer;
using nest::BufferId;
using nest::BufferKind;
using nest::Statement;
using nest::StatementId;
using nest::StatementKind;
using symbolic::Interval;

namespace {

constexpr std::int64_t kAlignment = 64;
/// Instructions of a function, from which another one is begun: passes over one take longer than in
/// proportion to it, from there on noticeably.
constexpr std::size_t kLongFunction = 4096;
std::int64_t bytes_of(const Buffer& buffer) {
  std::int64_t count = static_cast<std::int64_t>(nest::byte_size(buffer.dtype));
  for (const std::int64_t extent : buffer.extents) count *= extent;
  return (count + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Emitter::Emitter(const nest::LoopNest& nest, const Cpu& cpu, std::string symbol, llvm::LLVMContext& context,
                 Reload reload)
    : nest_(nest),
      cpu_(cpu),
      symbol_(std::move(symbol)),
      reload_(reload),
      context_(context),
      b_(context),
      math_(b_, cpu.info) {
  module_ = std::make_unique<llvm::Module>(symbol_, context);
  module_->setTargetTriple(cpu.triple);
  const bool has_double = std::any_of(nest.buffers.begin(), nest.buffers.end(),
                                      [](const Buffer& buffer) { return buffer.dtype == nest::Dtype::F64; });
  compute_ = has_double ? b_.getDoubleTy() : b_.getFloatTy();
  native_lanes_ = cpu.info.lanes(has_double ? nest::Dtype::F64 : nest::Dtype::F32);
  next_slot_ = nest.next_slot;
  versions_.assign(nest.buffers.size(), 0);
  llvm::MDBuilder metadata(context);
  llvm::MDNode* domain = metadata.createAnonymousAliasScopeDomain(nest.name);
  for (const Buffer& buffer : nest.buffers)
    scopes_.push_back(metadata.createAnonymousAliasScope(domain, buffer.name));
}

llvm::Function* make_function(llvm::Module& module, llvm::FunctionType* type, const std::string& name,
                              const Cpu& cpu, bool external) {
  auto* made = llvm::Function::Create(
      type, external ? llvm::GlobalValue::ExternalLinkage : llvm::GlobalValue::InternalLinkage, name, module);
  made->addFnAttr(llvm::Attribute::NoUnwind);
  made->addFnAttr("target-cpu", cpu.name);
  made->addFnAttr("target-features", cpu.features);
  if (const int bits = cpu.info.scalable_bits; bits > 0) {
    const auto granules = static_cast<unsigned>(bits / 128);
    made->addFnAttr(llvm::Attribute::getWithVScaleRangeArgs(module.getContext(), granules, granules));
  }
  return made;
}

namespace {

/// Code is placed before loops by way of blocks of their own; what follows one another without a branch
/// becomes one block, of which instructions are selected together.
void join_blocks(llvm::Module& module) {
  for (llvm::Function& function : module)
    for (llvm::BasicBlock& block : llvm::make_early_inc_range(function))
      llvm::MergeBlockIntoPredecessor(&block);
}

}  // namespace

EmittedModule Emitter::run() {
  std::int64_t argument = 0;
  for (std::size_t i = 0; i < nest_.buffers.size(); ++i) {
    const Buffer& buffer = nest_.buffers[i];
    Place& place = places_.emplace_back();
    if (buffer.kind == BufferKind::Input || buffer.kind == BufferKind::Output) place.number = argument++;
    if (buffer.kind != BufferKind::Constant) continue;
    llvm::Type* element = storage_type(buffer.dtype);
    std::vector<llvm::Constant*> values;
    for (const double value : buffer.literal) {
      if (buffer.dtype == nest::Dtype::BF16)
        values.push_back(llvm::ConstantInt::get(element, to_bfloat16(static_cast<float>(value))));
      else
        values.push_back(llvm::ConstantFP::get(element, value));
    }
    auto* array = llvm::ArrayType::get(element, values.size());
    auto* global =
        new llvm::GlobalVariable(*module_, array, true, llvm::GlobalValue::PrivateLinkage,
                                 llvm::ConstantArray::get(array, values), "constant." + buffer.name);
    global->setAlignment(llvm::Align(kAlignment));
    place.constant = global;
  }
  argument_count_ = argument;
  for (const nest::Parameter& parameter : nest_.parameters)
    forms_.bind_parameter(parameter.slot, {parameter.least, parameter.greatest});
  plan_live_strides();
  begin_part();
  emit(nest_.root);
  end_part();
  call_parts();
  if (llvm::GlobalVariable* size = module_->getNamedGlobal(symbol_ + ".shared_bytes")) {
    size->setInitializer(b_.getInt64(static_cast<std::uint64_t>(shared_bytes_)));
    size->setConstant(true);
    size->setLinkage(llvm::GlobalValue::PrivateLinkage);
  }
  join_blocks(*module_);
  return {std::move(module_), shared_bytes_, private_bytes_, shares_};
}

// ---- functions

/// The first part is the kernel's own function, which calls the others, in order.
void Emitter::begin_part() {
  llvm::Type* pointer = b_.getPtrTy();
  auto* type = llvm::FunctionType::get(b_.getVoidTy(), {pointer, pointer, pointer, pointer}, false);
  f_ = {};
  f_.function = make_function(*module_, type,
                              parts_.empty() ? symbol_ : fmt::format("{}.part{}", symbol_, parts_.size()),
                              cpu_, parts_.empty());
  llvm::BasicBlock* entry = llvm::BasicBlock::Create(context_, "entry", f_.function);
  llvm::BasicBlock* body = llvm::BasicBlock::Create(context_, "body", f_.function);
  b_.SetInsertPoint(entry);
  f_.arguments = f_.function->getArg(0);
  f_.shared = f_.function->getArg(1);
  llvm::Instruction* branch = b_.CreateBr(body);
  f_.loops.push_back({branch, 0, nullptr, {}, {}});
  load_parameters();
  b_.SetInsertPoint(body);
}

/// Parameters, and the strides that they make.
void Emitter::load_parameters() {
  b_.SetInsertPoint(f_.loops[0].hoist_point);
  auto number = static_cast<std::uint64_t>(argument_count_);
  for (const nest::Parameter& parameter : nest_.parameters) {
    llvm::Value* place = b_.CreateConstGEP1_64(b_.getPtrTy(), f_.arguments, number++);
    f_.variables[parameter.slot] = {b_.CreateLoad(b_.getInt64Ty(), place, parameter.name), 0};
  }
  for (const auto& [factors, slot] : stride_slots_) {
    llvm::Value* product = nullptr;
    for (const Form& factor : factors) {
      llvm::Value* value = value_of(factor);
      product = product ? b_.CreateMul(product, value) : value;
    }
    f_.variables[slot] = {product, 0};
  }
}

void Emitter::end_part() {
  parts_.push_back(b_.CreateRetVoid());
  mark_aliases();
}

void Emitter::call_parts() {
  b_.SetInsertPoint(parts_[0]);
  llvm::Function* first = parts_[0]->getFunction();
  for (std::size_t i = 1; i < parts_.size(); ++i)
    b_.CreateCall(parts_[i]->getFunction(),
                  {first->getArg(0), first->getArg(1), first->getArg(2), first->getArg(3)});
}

/// Between two statements of which the second needs no value of the first.
void Emitter::part_if_long() {
  if (f_.parallel || f_.loops.size() > 1 || f_.branches > 0 || simd_ || !tiles_.empty()) return;
  if (f_.function->getInstructionCount() < kLongFunction) return;
  end_part();
  begin_part();
}

/// What a function accesses in one buffer is in no other buffer that it accesses.
void Emitter::mark_aliases() {
  std::map<std::uint32_t, std::pair<llvm::MDNode*, llvm::MDNode*>> lists;
  for (const auto& [access, buffer] : f_.accesses) lists.try_emplace(buffer);
  for (auto& [buffer, made] : lists) {
    std::vector<llvm::Metadata*> others;
    for (const auto& [other, unused] : lists)
      if (other != buffer) others.push_back(scopes_[other]);
    made = {llvm::MDNode::get(context_, {scopes_[buffer]}), llvm::MDNode::get(context_, others)};
  }
  for (const auto& [access, buffer] : f_.accesses) {
    access->setMetadata(llvm::LLVMContext::MD_alias_scope, lists[buffer].first);
    access->setMetadata(llvm::LLVMContext::MD_noalias, lists[buffer].second);
  }
}

llvm::Value* Emitter::base(BufferId id) {
  llvm::Value*& made = f_.bases[raw(id)];
  if (made) return made;
  const Buffer& buffer = nest_.buffer(id);
  const Place& place = places_[raw(id)];
  if (buffer.kind == BufferKind::Constant) return made = place.constant;
  const llvm::IRBuilder<>::InsertPointGuard keep(b_);
  b_.SetInsertPoint(f_.loops[0].hoist_point);
  const auto number = static_cast<std::uint64_t>(place.number);
  if (buffer.kind == BufferKind::Temporary)
    return made = b_.CreateGEP(b_.getInt8Ty(), place.own ? f_.private_memory : f_.shared, b_.getInt64(number),
                               buffer.name);
  return made = b_.CreateLoad(b_.getPtrTy(), b_.CreateConstGEP1_64(b_.getPtrTy(), f_.arguments, number),
                              buffer.name);
}

void Emitter::emit(StatementId id) {
  const Statement& statement = nest_.statement(id);
  switch (statement.kind) {
    case StatementKind::Sequence:
      for (std::size_t i = 0; i < statement.children.size();) {
        part_if_long();
        const std::size_t count = alternatives(statement.children, i);
        emit_alternatives(statement.children.data() + i, count);
        i += count;
      }
      return;
    case StatementKind::For:
      return emit_for(statement);
    case StatementKind::If:
      return emit_if(statement);
    case StatementKind::Store:
      return store(statement);
    case StatementKind::Prefetch:
      return emit_prefetch(statement);
    case StatementKind::Allocate:
      return emit_allocate(statement);
  }
}

// ---- caches of values

void Emitter::enter_loop(llvm::Instruction* before, StatementId stored_in, llvm::BasicBlock* header,
                         llvm::BasicBlock* body) {
  b_.SetInsertPoint(header);
  llvm::Instruction* branch = b_.CreateBr(body);
  f_.loops.push_back({branch, f_.placed_log.size(), before, std::vector<bool>(nest_.buffers.size()), {}});
  stored_buffers(stored_in, f_.loops.back().stored);
  b_.SetInsertPoint(body);
}

void Emitter::leave_loop() {
  const std::size_t mark = f_.loops.back().cache_mark;
  while (f_.placed_log.size() > mark) {
    f_.placed.erase(f_.placed_log.back());
    f_.placed_log.pop_back();
  }
  f_.loops.pop_back();
}

void Emitter::forget_locals(std::size_t mark) {
  while (f_.local_log.size() > mark) {
    f_.local.erase(f_.local_log.back());
    f_.local_log.pop_back();
  }
}

void Emitter::stored_buffers(StatementId id, std::vector<bool>& stored) const {
  const Statement& statement = nest_.statement(id);
  if (statement.kind == StatementKind::Store) stored[raw(statement.buffer)] = true;
  for (const StatementId child : statement.children) stored_buffers(child, stored);
}

void Emitter::invalidate_stored(StatementId body) {
  std::vector<bool> stored(nest_.buffers.size());
  stored_buffers(body, stored);
  for (std::size_t i = 0; i < stored.size(); ++i)
    if (stored[i]) ++versions_[i];
}

std::vector<std::pair<Emitter::Tile*, std::size_t>> Emitter::carried_slots(StatementId body) {
  std::vector<bool> stored(nest_.buffers.size());
  stored_buffers(body, stored);
  std::vector<std::pair<Tile*, std::size_t>> carried;
  for (auto& [buffer, tile] : tiles_) {
    if (!stored[buffer]) continue;
    for (std::size_t s = 0; s < tile.slots.size(); ++s) carried.emplace_back(&tile, s);
  }
  return carried;
}

// ---- conditions and buffers

void Emitter::emit_branch(llvm::Value* condition, StatementId body) {
  if (!condition) return emit(body);
  emit_either(condition, carried_slots(body), [&] { emit(body); }, nullptr);
}

void Emitter::emit_either(llvm::Value* condition, const std::vector<std::pair<Tile*, std::size_t>>& carried,
                          llvm::function_ref<void()> then, llvm::function_ref<void()> otherwise) {
  std::vector<llvm::Value*> before;
  for (const auto& [tile, s] : carried) before.push_back(tile->slots[s]);
  llvm::BasicBlock* from = b_.GetInsertBlock();
  llvm::BasicBlock* yes = llvm::BasicBlock::Create(context_, "if", f_.function);
  llvm::BasicBlock* no = otherwise ? llvm::BasicBlock::Create(context_, "else", f_.function) : nullptr;
  llvm::BasicBlock* end = llvm::BasicBlock::Create(context_, "endif", f_.function);
  b_.CreateCondBr(condition, yes, otherwise ? no : end);
  const auto side = [&](llvm::BasicBlock* begin, llvm::function_ref<void()> emit_side) {
    b_.SetInsertPoint(begin);
    const std::size_t locals = f_.local_log.size();
    ++f_.branches;
    emit_side();
    --f_.branches;
    forget_locals(locals);
    std::vector<llvm::Value*> after;
    for (std::size_t i = 0; i < carried.size(); ++i) {
      llvm::Value*& held = carried[i].first->slots[carried[i].second];
      after.push_back(std::exchange(held, before[i]));
    }
    llvm::BasicBlock* last = b_.GetInsertBlock();
    b_.CreateBr(end);
    return std::pair{last, after};
  };
  const auto [yes_last, yes_after] = side(yes, then);
  const auto [no_last, no_after] = otherwise ? side(no, otherwise) : std::pair{from, before};
  b_.SetInsertPoint(end);
  for (std::size_t i = 0; i < carried.size(); ++i) {
    llvm::Value*& held = carried[i].first->slots[carried[i].second];
    if (yes_after[i] == no_after[i]) {
      held = yes_after[i];
      continue;
    }
    llvm::PHINode* merged = b_.CreatePHI(held->getType(), 2);
    merged->addIncoming(no_after[i], no_last);
    merged->addIncoming(yes_after[i], yes_last);
    held = merged;
  }
}

std::size_t Emitter::alternatives(const std::vector<StatementId>& statements, std::size_t begin) {
  const auto condition_of = [&](std::size_t i) -> const nest::Condition* {
    const Statement& statement = nest_.statement(statements[i]);
    const bool one = statement.kind == StatementKind::If && statement.conditions.size() == 1;
    return one ? statement.conditions.data() : nullptr;
  };
  const nest::Condition* last = condition_of(begin);
  if (!last) return 1;
  const Form about = form(last->expr);
  if (uses_lanes(about)) return 1;
  std::size_t end = begin + 1;
  for (; end < statements.size(); ++end) {
    const nest::Condition* next = condition_of(end);
    if (!next || next->begin < last->end || form(next->expr) != about) break;
    last = next;
  }
  return end - begin;
}

void Emitter::emit_alternatives(const StatementId* statements, std::size_t count) {
  if (count == 1) return emit(*statements);
  const std::size_t half = count / 2;
  const nest::Condition& upper = nest_.statement(statements[half]).conditions.front();
  const Form about = form(upper.expr);
  const symbolic::Interval range = forms_.bounds(about);
  const std::size_t facts = forms_.fact_count();
  const auto some = [&](std::size_t from, std::size_t to, symbolic::Interval known) {
    forms_.push_fact(about, known);
    emit_alternatives(statements + from, to - from);
    forms_.pop_facts(facts);
  };
  const symbolic::Interval below{range.least, std::min(range.greatest, upper.begin - 1)};
  const symbolic::Interval above{std::max(range.least, upper.begin), range.greatest};
  if (below.least > below.greatest) return some(half, count, range);
  if (above.least > above.greatest) return some(0, half, range);
  auto carried = carried_slots(statements[0]);
  for (std::size_t i = 1; i < count; ++i)
    for (const auto& slot : carried_slots(statements[i]))
      if (std::find(carried.begin(), carried.end(), slot) == carried.end()) carried.push_back(slot);
  llvm::Value* is_below =
      b_.CreateICmpSLT(value_of(about), b_.getInt64(static_cast<std::uint64_t>(upper.begin)));
  emit_either(is_below, carried, [&] { some(0, half, below); }, [&] { some(half, count, above); });
}

void Emitter::emit_if(const Statement& statement) {
  const std::size_t facts = forms_.fact_count();
  llvm::Value* condition = nullptr;
  llvm::Value* mask = nullptr;
  std::vector<LaneCondition> of_lanes;
  bool some_lane = simd_ && !simd_->conditional;  // the first lane is on for certain
  for (const nest::Condition& clause : statement.conditions) {
    const Form about = form(clause.expr);
    const Truth known = truth(about, clause);
    if (known == Truth::Never) {
      forms_.pop_facts(facts);
      return;
    }
    if (known == Truth::Always) continue;
    if (uses_lanes(about)) {
      some_lane = some_lane && truth(forms_.substitute(about, simd_->lane_slot, 0), clause) == Truth::Always;
      mask = both(mask, condition_mask(about, clause));
      of_lanes.push_back({about, clause});
    } else {
      condition = both(condition, condition_value(about, clause));
    }
    forms_.push_fact(about, {clause.begin, clause.end - 1});
  }
  if (!mask) {
    emit_branch(condition, statement.children[0]);
  } else {
    const Simd outer = *simd_;
    simd_->mask = both(outer.mask, mask);
    simd_->conditional = true;
    simd_->conditions.insert(simd_->conditions.end(), of_lanes.begin(), of_lanes.end());
    if (!some_lane) condition = both(condition, b_.CreateOrReduce(simd_->mask));
    emit_branch(condition, statement.children[0]);
    simd_ = outer;
  }
  forms_.pop_facts(facts);
}

void Emitter::emit_allocate(const Statement& statement) {
  const std::uint32_t index = raw(statement.buffer);
  const Buffer& buffer = nest_.buffers[index];
  if (buffer.kind == BufferKind::Register) {
    Tile tile = make_tile(statement.buffer, statement.children[0]);
    std::size_t count = 1;
    for (const std::int64_t extent : tile.slot_extents) count *= static_cast<std::size_t>(extent);
    const int lanes = tile.per_iteration ? simd_->lanes : tile.lanes;
    llvm::Type* type = compute_;
    if (lanes > 1) type = llvm::FixedVectorType::get(compute_, static_cast<unsigned>(lanes));
    tile.slots.assign(count, llvm::Constant::getNullValue(type));
    tiles_[index] = std::move(tile);
    emit(statement.children[0]);
    tiles_.erase(index);
    return;
  }
  // Temporaries live on a stack of their own in the workspace: siblings reuse the same bytes.
  std::int64_t& top = f_.parallel ? private_top_ : shared_top_;
  std::int64_t& most = f_.parallel ? private_bytes_ : shared_bytes_;
  const std::int64_t offset = top;
  places_[index] = {offset, f_.parallel, nullptr};
  f_.bases.erase(index);  // of an earlier allocation
  top += bytes_of(buffer);
  most = std::max(most, top);
  ++versions_[index];
  emit(statement.children[0]);
  top = offset;
  f_.bases.erase(index);
}

void Emitter::emit_prefetch(const Statement& statement) {
  if (simd_) return;
  llvm::Value* at = pointer(statement.buffer, element_form(statement.buffer, statement.indices));
  llvm::Value* to_read = b_.getInt32(0);
  llvm::Value* nearest = b_.getInt32(3);
  llvm::Value* data = b_.getInt32(1);
  b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()}, {at, to_read, nearest, data});
}

EmittedModule emit(const nest::LoopNest& nest, const Cpu& cpu, const std::string& symbol,
                   llvm::LLVMContext& context, Reload reload) {
  const nest::LoopNest filled = nest::with_unwritten_zero(nest);
  return Emitter(filled, cpu, symbol, context, reload).run();
}

}  // namespace syno::jit
