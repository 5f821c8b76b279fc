// Values, loads and stores: scalars or one value a lane; masks where lanes or guards are off; nothing outside
// a buffer is ever read.
#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "jit/emitter.hpp"
#include "support/bfloat16.hpp"
#include "support/error.hpp"

namespace syno::jit {

using nest::Buffer;
using nest::BufferId;
using nest::BufferKind;
using nest::Dtype;
using nest::StoreMode;
using nest::Value;
using nest::ValueId;
using nest::ValueKind;
using program::Function;
using symbolic::ExprId;

namespace {

/// Whether memory of this dtype keeps all digits that are computed with.
bool can_hold(Dtype dtype, double value) {
  if (dtype != Dtype::BF16 || std::isnan(value)) return true;
  const auto narrow = static_cast<float>(value);
  return from_bfloat16(to_bfloat16(narrow)) == narrow;
}

}  // namespace

llvm::Constant* Emitter::number(double value) { return llvm::ConstantFP::get(compute_, value); }

llvm::Type* Emitter::storage_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::F32:
      return b_.getFloatTy();
    case Dtype::F64:
      return b_.getDoubleTy();
    case Dtype::BF16:
      return b_.getInt16Ty();
  }
  return nullptr;
}

llvm::Value* Emitter::from_storage(Dtype dtype, llvm::Value* loaded) {
  llvm::Type* type = loaded->getType();
  const auto like = [&](llvm::Type* scalar) -> llvm::Type* {
    if (auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type))
      return llvm::FixedVectorType::get(scalar, vector->getNumElements());
    return scalar;
  };
  if (dtype == Dtype::BF16) {
    llvm::Type* wide = like(b_.getInt32Ty());
    llvm::Value* shifted = b_.CreateShl(b_.CreateZExt(loaded, wide), llvm::ConstantInt::get(wide, 16));
    loaded = b_.CreateBitCast(shifted, like(b_.getFloatTy()));
  }
  if (dtype != Dtype::F64 && compute_->isDoubleTy()) return b_.CreateFPExt(loaded, like(compute_));
  return loaded;
}

llvm::Value* Emitter::to_storage(Dtype dtype, llvm::Value* computed) {
  llvm::Type* type = computed->getType();
  const auto like = [&](llvm::Type* scalar) -> llvm::Type* {
    if (auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type))
      return llvm::FixedVectorType::get(scalar, vector->getNumElements());
    return scalar;
  };
  if (dtype == Dtype::F64) return computed;
  if (compute_->isDoubleTy()) computed = b_.CreateFPTrunc(computed, like(b_.getFloatTy()));
  if (dtype == Dtype::F32) return computed;
  // As to_bfloat16(); the instruction for it, vcvtneps2bf16, would take denormal numbers for zero.
  llvm::Type* wide = like(b_.getInt32Ty());
  const auto constant = [&](std::uint64_t value) { return llvm::ConstantInt::get(wide, value); };
  llvm::Value* word = b_.CreateBitCast(computed, wide);
  llvm::Value* upper = b_.CreateLShr(word, constant(16));
  llvm::Value* bias = b_.CreateAdd(b_.CreateAnd(upper, constant(1)), constant(0x7fff));
  llvm::Value* rounded = b_.CreateLShr(b_.CreateAdd(word, bias), constant(16));
  llvm::Value* quiet = b_.CreateOr(upper, constant(0x40));
  rounded = b_.CreateSelect(b_.CreateFCmpUNO(computed, computed), quiet, rounded);
  return b_.CreateTrunc(rounded, like(b_.getInt16Ty()));
}

llvm::Value* Emitter::spread(Lanes lanes) {
  if (lanes.vector) return lanes.value;
  const auto count = static_cast<unsigned>(simd_->lanes);
  if (auto* constant = llvm::dyn_cast<llvm::Constant>(lanes.value))
    return llvm::ConstantVector::getSplat(llvm::ElementCount::getFixed(count), constant);
  return locally({kSplat, bits(lanes.value), count},
                 [&] { return b_.CreateVectorSplat(count, lanes.value); });
}

void Emitter::mark_alias(llvm::Instruction* access, BufferId id) {
  f_.accesses.emplace_back(access, raw(id));
}

llvm::Value* Emitter::load_plain(BufferId id, llvm::Type* type, llvm::Value* from) {
  const auto align = llvm::Align(nest::byte_size(nest_.buffer(id).dtype));
  llvm::LoadInst* made = b_.CreateAlignedLoad(type, from, align);
  mark_alias(made, id);
  return made;
}

void Emitter::store_plain(BufferId id, llvm::Value* stored, llvm::Value* to) {
  const auto align = llvm::Align(nest::byte_size(nest_.buffer(id).dtype));
  mark_alias(b_.CreateAlignedStore(stored, to, align), id);
}

llvm::Value* Emitter::masked_call(llvm::Instruction* call, BufferId id) {
  mark_alias(call, id);
  return call;
}

// ---- values

Lanes Emitter::value(ValueId id) {
  const auto key = static_cast<std::uint32_t>(id);
  if (const auto found = memo_.find(key); found != memo_.end()) return found->second;
  llvm::Value* ahead = takes_long(nest_.value(id)) ? before_loops(id, Part::Value) : nullptr;
  return memo_[key] = ahead ? Lanes{ahead, false} : value_here(id);
}

Lanes Emitter::value_here(ValueId id) {
  const Value& node = nest_.value(id);
  Lanes made;
  switch (node.kind) {
    case ValueKind::Literal:
      made = {number(node.literal), false};
      break;
    case ValueKind::Load:
      made = load(node);
      break;
    case ValueKind::Index:
      made = index_value(form(node.index));
      break;
    case ValueKind::Unary:
      made = unary(node.function, value(node.a));
      break;
    case ValueKind::Binary: {
      // a * b + c in one rounding.
      const auto product = [&](ValueId part) {
        const Value& operand = nest_.value(part);
        return operand.kind == ValueKind::Binary && operand.function == Function::Multiply;
      };
      if (node.function == Function::Add && (product(node.a) || product(node.b))) {
        const bool first = product(node.a);
        const Value& factors = nest_.value(first ? node.a : node.b);
        const Lanes a = value(factors.a), b = value(factors.b), c = value(first ? node.b : node.a);
        if (a.vector || b.vector || c.vector)
          made = {math_.multiply_add(spread(a), spread(b), spread(c)), true};
        else
          made = {math_.multiply_add(a.value, b.value, c.value), false};
        break;
      }
      if (const auto whole = whole_numbers(node)) {
        made = *whole;
        break;
      }
      const Lanes a = value(node.a);
      made =
          node.function == Function::Divide ? quotient(a, node.b) : binary(node.function, a, value(node.b));
      break;
    }
    case ValueKind::Select: {
      const Lanes condition = value(node.a), yes = value(node.b), no = value(node.c);
      const bool vector = condition.vector || yes.vector || no.vector;
      llvm::Value* test = condition.vector ? condition.value : condition.value;
      if (vector) test = spread(condition);
      test = b_.CreateFCmpUNE(test, llvm::Constant::getNullValue(test->getType()));
      made = vector ? Lanes{b_.CreateSelect(test, spread(yes), spread(no)), true}
                    : Lanes{b_.CreateSelect(test, yes.value, no.value), false};
      break;
    }
  }
  return made;
}

Lanes Emitter::unary(Function function, Lanes a) {
  llvm::Value* x = a.value;
  llvm::Type* type = x->getType();
  const auto constant = [&](double value) { return llvm::ConstantFP::get(type, value); };
  const auto call = [&](llvm::Intrinsic::ID id) { return b_.CreateUnaryIntrinsic(id, x); };
  switch (function) {
    case Function::Negate:
      return {b_.CreateFNeg(x), a.vector};
    case Function::Exp:
      return {math_.exp(x), a.vector};
    case Function::Log:
      return {math_.log(x), a.vector};
    case Function::Sqrt:
      return {call(llvm::Intrinsic::sqrt), a.vector};
    case Function::Rsqrt:
      return {math_.rsqrt(x), a.vector};
    case Function::Erf:
      return {math_.erf(x), a.vector};
    case Function::Tanh:
      return {math_.tanh(x), a.vector};
    case Function::Sigmoid:
      return {math_.sigmoid(x), a.vector};
    case Function::Relu:
      return {b_.CreateSelect(b_.CreateFCmpOLT(x, constant(0)), constant(0), x), a.vector};
    case Function::Abs:
      return {call(llvm::Intrinsic::fabs), a.vector};
    case Function::Gelu:
      return {math_.gelu(x), a.vector};
    case Function::Floor:
    case Function::Ceil:
    case Function::Round:
    case Function::Trunc:
      return {math_.rounded(function, x), a.vector};
    case Function::Sin:
    case Function::Cos:
      return {math_.wave(function, x), a.vector};
    case Function::Atan:
      return {math_.atan(x), a.vector};
    default:
      break;
  }
  SYNO_ASSERT(false, "a unary function");
  return a;
}

Lanes Emitter::binary(Function function, Lanes a, Lanes b) {
  const bool vector = a.vector || b.vector;
  llvm::Value* x = vector ? spread(a) : a.value;
  llvm::Value* y = vector ? spread(b) : b.value;
  llvm::Type* type = x->getType();
  const auto truth_value = [&](llvm::Value* test) -> Lanes {
    return {b_.CreateSelect(test, llvm::ConstantFP::get(type, 1), llvm::ConstantFP::get(type, 0)), vector};
  };
  const auto is_true = [&](llvm::Value* v) {
    return b_.CreateFCmpUNE(v, llvm::Constant::getNullValue(type));
  };
  switch (function) {
    case Function::Add:
      return {b_.CreateFAdd(x, y), vector};
    case Function::Subtract:
      return {b_.CreateFSub(x, y), vector};
    case Function::Multiply:
      return {b_.CreateFMul(x, y), vector};
    case Function::Divide:
      return {b_.CreateFDiv(x, y), vector};
    case Function::Maximum:
      return {math_.maximum(x, y), vector};
    case Function::Minimum:
      return {math_.minimum(x, y), vector};
    case Function::Power:
      return {math_.power(x, y), vector};
    case Function::Fmod:
      return {math_.fmod(x, y), vector};
    case Function::Less:
      return truth_value(b_.CreateFCmpOLT(x, y));
    case Function::LessEqual:
      return truth_value(b_.CreateFCmpOLE(x, y));
    case Function::Equal:
      return truth_value(b_.CreateFCmpOEQ(x, y));
    case Function::NotEqual:
      return truth_value(b_.CreateFCmpUNE(x, y));
    case Function::And:
      return truth_value(b_.CreateAnd(is_true(x), is_true(y)));
    case Function::Or:
      return truth_value(b_.CreateOr(is_true(x), is_true(y)));
    default:
      break;
  }
  SYNO_ASSERT(false, "a binary function");
  return a;
}

// ---- loads

Lanes Emitter::load(const Value& node) {
  const std::size_t facts = forms_.fact_count();
  llvm::Value* condition = nullptr;
  llvm::Value* mask = nullptr;
  std::vector<LaneCondition> of_lanes;
  for (const nest::Condition& guard : node.guards) {
    const Form about = form(guard.expr);
    const Truth known = truth(about, guard);
    if (known == Truth::Never) {
      forms_.pop_facts(facts);
      return {number(node.literal), false};
    }
    if (known == Truth::Always) continue;
    if (uses_lanes(about)) {
      mask = both(mask, condition_mask(about, guard));
      of_lanes.push_back({about, guard});
    } else {
      condition = both(condition, condition_value(about, guard));
    }
    forms_.push_fact(about, {guard.begin, guard.end - 1});
  }
  const Buffer& buffer = nest_.buffer(node.buffer);
  const bool in_register = buffer.kind == BufferKind::Register;
  Lanes made = in_register ? load_register(node.buffer, node.indices)
                           : load_memory(node.buffer, node.indices, condition, mask, of_lanes, node.literal);
  if (in_register || !can_hold(buffer.dtype, node.literal)) {
    const Lanes fill{number(node.literal), false};
    if (mask) made = {b_.CreateSelect(mask, spread(made), spread(fill)), true};
    if (condition)
      made.value = b_.CreateSelect(condition, made.value, made.vector ? spread(fill) : fill.value);
  }
  forms_.pop_facts(facts);
  return made;
}

llvm::Value* Emitter::lane_pointers(BufferId id, const LaneForm& where) {
  const auto count = static_cast<unsigned>(simd_->lanes);
  if (where.same_terms) {
    std::vector<std::int64_t> offsets = where.offsets;
    const auto size = static_cast<std::int64_t>(nest::byte_size(nest_.buffer(id).dtype));
    for (std::int64_t& offset : offsets) offset *= size;
    return b_.CreateGEP(b_.getInt8Ty(), pointer(id, where.first), lane_offsets(offsets, b_.getInt64Ty()));
  }
  llvm::Value* all = llvm::PoisonValue::get(llvm::FixedVectorType::get(b_.getPtrTy(), count));
  for (unsigned l = 0; l < count; ++l) all = b_.CreateInsertElement(all, pointer(id, where.each[l]), l);
  return all;
}

Lanes Emitter::load_memory(BufferId id, const std::vector<ExprId>& indices, llvm::Value* condition,
                           llvm::Value* guard_mask, const std::vector<LaneCondition>& guards, double fill) {
  const Buffer& buffer = nest_.buffer(id);
  llvm::Type* element = storage_type(buffer.dtype);
  const Form elements = element_form(id, indices);
  // Where the condition fails the load goes to an array of fills instead: no branch, nothing outside is read.
  const auto fills = [&]() -> llvm::Value* {
    const std::string name = "fill." + std::to_string(std::bit_cast<std::uint64_t>(fill)) + "." +
                             std::string(nest::name_of(buffer.dtype));
    if (llvm::GlobalVariable* found = module_->getNamedGlobal(name)) return found;
    llvm::Constant* one = buffer.dtype == Dtype::BF16
                              ? llvm::ConstantInt::get(element, to_bfloat16(static_cast<float>(fill)))
                              : llvm::ConstantFP::get(element, fill);
    auto* type = llvm::ArrayType::get(element, static_cast<std::uint64_t>(native_lanes_) * 4);
    const std::vector<llvm::Constant*> all(static_cast<std::size_t>(native_lanes_) * 4, one);
    return new llvm::GlobalVariable(*module_, type, true, llvm::GlobalValue::PrivateLinkage,
                                    llvm::ConstantArray::get(type, all), name);
  };
  const auto guarded = [&](llvm::Value* at, llvm::Value* by) {
    return by ? b_.CreateSelect(by, at, fills()) : at;
  };
  const auto key_at = [&](Tag tag, const Form& at) {
    Key key = key_of(tag, at);
    key.insert(key.end(), {static_cast<std::int64_t>(raw(id)), versions_[raw(id)], at.constant,
                           bits(condition), bits(guard_mask), std::bit_cast<std::int64_t>(fill)});
    return key;
  };

  // Which lanes are on, where that is known here.
  const auto lanes_on = [&](llvm::Value* mask) -> std::optional<std::vector<bool>> {
    std::vector<bool> on(static_cast<std::size_t>(simd_->lanes), true);
    for (std::size_t l = static_cast<std::size_t>(simd_->active); l < on.size(); ++l) on[l] = false;
    if (!mask) return on;
    auto* constant = llvm::dyn_cast<llvm::Constant>(mask);
    if (!constant) return std::nullopt;
    for (unsigned l = 0; l < on.size(); ++l) {
      llvm::Constant* lane = constant->getAggregateElement(l);
      if (!lane) return std::nullopt;
      on[l] = on[l] && lane->isOneValue();
    }
    return on;
  };

  const Key key = key_at(kLoad, elements);
  std::optional<LaneForm> where;
  if (uses_lanes(elements)) where = over_lanes(elements);
  if (!where || (where->stride && *where->stride == 0)) {
    const Form at = where ? where->first : elements;
    if (guard_mask) {
      llvm::Value* on = both(guard_mask, simd_->mask);
      condition = both(condition, locally({kAny, bits(on)}, [&] { return b_.CreateOrReduce(on); }));
    }
    llvm::Value* one = locally(key, [&] {
      return from_storage(buffer.dtype, load_plain(id, element, guarded(pointer(id, at), condition)));
    });
    if (!guard_mask) return {one, false};
    const Lanes otherwise{number(fill), false};
    return {b_.CreateSelect(guard_mask, spread({one, false}), spread(otherwise)), true};
  }

  const auto fresh = [&]() -> llvm::Value* {
    const auto count = static_cast<unsigned>(simd_->lanes);
    llvm::Type* type = llvm::FixedVectorType::get(element, count);
    llvm::Type* masks = llvm::FixedVectorType::get(b_.getInt1Ty(), count);
    llvm::Value* mask = both(simd_->mask, guard_mask);
    if (!mask) {
      const std::int64_t stride = where->stride.value_or(0);
      if (stride == 1)
        return from_storage(buffer.dtype,
                            load_plain(id, type, guarded(pointer(id, where->first), condition)));
      if (stride == -1 && !condition) {
        llvm::Value* last = pointer(id, nest::with_constant(where->first, 1 - simd_->lanes));
        return from_storage(buffer.dtype, b_.CreateVectorReverse(load_plain(id, type, last)));
      }
    }
    llvm::Value* off = llvm::Constant::getNullValue(type);
    if (fill != 0) off = to_storage(buffer.dtype, spread({number(fill), false}));
    const auto on = lanes_on(mask);
    if (where->same_terms && where->stride != 1 && (on || loads_masked(buffer.dtype))) {
      Apart apart{
          id,  where->first, &where->offsets, on ? *on : *lanes_on(nullptr), row_of(id, indices), !mask,
          !on, {},           condition,       condition ? fills() : nullptr};
      if (!on) {
        apart.conditions = simd_->conditions;
        apart.conditions.insert(apart.conditions.end(), guards.begin(), guards.end());
        take_off(apart);
      }
      llvm::Value* found = shuffled_load(apart, where->stride.value_or(1));
      if (found && guard_mask) found = b_.CreateSelect(mask, found, off);
      if (found) return from_storage(buffer.dtype, found);
    }
    const auto align = llvm::Align(nest::byte_size(buffer.dtype));
    // Lanes that are off cost hundreds of cycles on a page that is not there: where all are off,
    // the address is another one too.
    if (mask && where->stride == 1) {
      llvm::Value* at = guarded(pointer(id, where->first), condition);
      return from_storage(buffer.dtype, masked_call(b_.CreateMaskedLoad(type, at, align, mask, off), id));
    }
    if (!mask) mask = llvm::ConstantInt::getTrue(masks);
    if (condition) mask = b_.CreateSelect(condition, mask, llvm::ConstantInt::getFalse(masks));
    return from_storage(
        buffer.dtype,
        masked_call(b_.CreateMaskedGather(type, lane_pointers(id, *where), align, mask, off), id));
  };
  // Another vector loop over the same elements has lanes of another name; what it loads in one block is the
  // same. From block to block it would only keep a register busy.
  const auto lanes = [&](Key loaded) {
    loaded.insert(loaded.end(), {bits(simd_->mask), simd_->lanes, simd_->active});
    return loaded;
  };
  const auto once = [&] {
    if (!where->same_terms) return fresh();
    Key here = lanes(key_at(kLoadHere, where->first));
    here.insert(here.end(), where->offsets.begin(), where->offsets.end());
    here.push_back(bits(b_.GetInsertBlock()));
    return locally(here, fresh);
  };
  return {locally(lanes(key), once), true};
}

// ---- stores

llvm::Value* Emitter::identity(StoreMode mode) {
  const double infinity = std::numeric_limits<double>::infinity();
  switch (mode) {
    case StoreMode::Assign:
    case StoreMode::Add:
      return number(-0.0);
    case StoreMode::Max:
      return number(-infinity);
    case StoreMode::Min:
      return number(infinity);
    case StoreMode::Multiply:
      return number(1);
  }
  return nullptr;
}

Lanes Emitter::combine(StoreMode mode, Lanes old, Lanes stored) {
  switch (mode) {
    case StoreMode::Assign:
      return stored;
    case StoreMode::Add: {
      // Accumulating a product is one fused operation.
      llvm::Value* x = stored.value;
      auto* product = llvm::dyn_cast<llvm::BinaryOperator>(x);
      if (product && product->getOpcode() == llvm::Instruction::FMul && stored.vector == old.vector) {
        llvm::Value *a = product->getOperand(0), *b = product->getOperand(1);
        // Just made for this, so that only this statement knows it.
        if (product->use_empty() && product == &b_.GetInsertBlock()->back()) product->eraseFromParent();
        return {math_.multiply_add(a, b, old.value), old.vector};
      }
      return binary(Function::Add, old, stored);
    }
    case StoreMode::Max:
      return binary(Function::Maximum, old, stored);
    case StoreMode::Min:
      return binary(Function::Minimum, old, stored);
    case StoreMode::Multiply:
      return binary(Function::Multiply, old, stored);
  }
  return stored;
}

llvm::Value* Emitter::lanes_on(StoreMode mode, llvm::Value* vector) {
  if (!simd_->mask) return vector;
  return b_.CreateSelect(simd_->mask, vector, spread({identity(mode), false}));
}

llvm::Value* Emitter::reduce_lanes(StoreMode mode, llvm::Value* vector) {
  vector = lanes_on(mode, vector);
  for (int width = simd_->lanes / 2; width >= 1; width /= 2) {
    std::vector<int> low, high;
    for (int l = 0; l < width; ++l) {
      low.push_back(l);
      high.push_back(l + width);
    }
    llvm::Value* a = b_.CreateShuffleVector(vector, low);
    llvm::Value* b = b_.CreateShuffleVector(vector, high);
    switch (mode) {
      case StoreMode::Assign:
      case StoreMode::Add:
        vector = b_.CreateFAdd(a, b);
        break;
      case StoreMode::Max:
        vector = math_.maximum(a, b);
        break;
      case StoreMode::Min:
        vector = math_.minimum(a, b);
        break;
      case StoreMode::Multiply:
        vector = b_.CreateFMul(a, b);
        break;
    }
  }
  return b_.CreateExtractElement(vector, std::uint64_t{0});
}

void Emitter::store(const nest::Statement& statement) {
  memo_.clear();
  const Lanes stored = value(statement.value);
  if (nest_.buffer(statement.buffer).kind == BufferKind::Register) {
    store_register(statement, stored);
  } else {
    store_memory(statement, stored);
    ++versions_[raw(statement.buffer)];
  }
  memo_.clear();
}

void Emitter::store_memory(const nest::Statement& statement, Lanes stored) {
  const BufferId id = statement.buffer;
  const Buffer& buffer = nest_.buffer(id);
  const StoreMode mode = statement.mode;
  llvm::Type* element = storage_type(buffer.dtype);
  const Form elements = element_form(id, statement.indices);
  const auto put = [&](llvm::Value* at, llvm::Value* value) {
    if (mode != StoreMode::Assign)
      value = combine(mode, {from_storage(buffer.dtype, load_plain(id, element, at)), false}, {value, false})
                  .value;
    store_plain(id, to_storage(buffer.dtype, value), at);
  };
  if (!simd_) return put(pointer(id, elements), stored.value);
  if (!uses_lanes(elements)) {
    if (mode == StoreMode::Assign) {
      SYNO_ASSERT(!stored.vector, "verify() refuses lanes that assign one element");
      return put(pointer(id, elements), stored.value);
    }
    return put(pointer(id, elements), reduce_lanes(mode, spread(stored)));
  }
  const LaneForm where = over_lanes(elements);
  const auto count = static_cast<unsigned>(simd_->lanes);
  llvm::Type* type = llvm::FixedVectorType::get(element, count);
  const auto align = llvm::Align(nest::byte_size(buffer.dtype));
  llvm::Value* mask = simd_->mask;
  if (where.stride == 1) {
    llvm::Value* at = pointer(id, where.first);
    Lanes made = stored;
    if (mode != StoreMode::Assign) {
      llvm::Value* old =
          mask ? masked_call(b_.CreateMaskedLoad(type, at, align, mask, llvm::Constant::getNullValue(type)),
                             id)
               : load_plain(id, type, at);
      made = combine(mode, {from_storage(buffer.dtype, old), true}, {spread(stored), true});
    }
    llvm::Value* written = to_storage(buffer.dtype, spread(made));
    if (mask)
      mark_alias(b_.CreateMaskedStore(written, at, align, mask), id);
    else
      store_plain(id, written, at);
    return;
  }
  const auto active = static_cast<std::size_t>(simd_->active);
  const std::set<std::int64_t> distinct(where.offsets.begin(),
                                        where.offsets.begin() + static_cast<std::ptrdiff_t>(active));
  if (mode == StoreMode::Assign || (where.same_terms && distinct.size() == active)) {
    llvm::Value* on =
        mask ? mask : llvm::ConstantInt::getTrue(llvm::FixedVectorType::get(b_.getInt1Ty(), count));
    llvm::Value* at = lane_pointers(id, where);
    Lanes made = stored;
    if (mode != StoreMode::Assign) {
      llvm::Value* old =
          masked_call(b_.CreateMaskedGather(type, at, align, on, llvm::Constant::getNullValue(type)), id);
      made = combine(mode, {from_storage(buffer.dtype, old), true}, {spread(stored), true});
    }
    mark_alias(b_.CreateMaskedScatter(to_storage(buffer.dtype, spread(made)), at, align, on), id);
    return;
  }
  // Lanes that may meet in one element: one after the other.
  llvm::Value* all = spread(stored);
  for (std::size_t l = 0; l < active; ++l) {
    llvm::Value* at = where.same_terms ? pointer(id, nest::with_constant(where.first, where.offsets[l]))
                                       : pointer(id, where.each[l]);
    llvm::Value* one = b_.CreateExtractElement(all, static_cast<std::uint64_t>(l));
    if (!simd_->conditional) {
      put(at, one);
      continue;
    }
    llvm::BasicBlock* yes = llvm::BasicBlock::Create(context_, "lane", f_.function);
    llvm::BasicBlock* next = llvm::BasicBlock::Create(context_, "next", f_.function);
    b_.CreateCondBr(b_.CreateExtractElement(mask, static_cast<std::uint64_t>(l)), yes, next);
    b_.SetInsertPoint(yes);
    put(at, one);
    b_.CreateBr(next);
    b_.SetInsertPoint(next);
  }
}

}  // namespace syno::jit
