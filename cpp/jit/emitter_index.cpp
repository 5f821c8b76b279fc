// Index arithmetic: affine forms to integers, addresses and conditions, each placed in the outermost loop it
// can be.
#include <llvm/IR/InlineAsm.h>

#include <algorithm>
#include <bit>
#include <functional>

#include "jit/emitter.hpp"
#include "support/error.hpp"

namespace syno::jit {

using nest::Atom;
using nest::BufferId;
using nest::Condition;
using symbolic::ExprId;

namespace {

enum IndexTag : std::int64_t { kAtom, kSum, kPointer, kCondition, kMask, kBoth, kOpaque, kRows, kStep };

/// Rows that one pointer reaches, each by an offset that a register holds.
constexpr std::int64_t kRowsTogether = 4;
/// As many pointers may stay in registers all through a loop.
constexpr std::int64_t kRowsInRegisters = 6;

}  // namespace

Emitter::Key Emitter::key_of(std::int64_t tag, const Form& form) const {
  Key key{tag, static_cast<std::int64_t>(form.terms.size())};
  key.reserve(2 + 2 * form.terms.size());
  for (const auto& [atom, times] : form.terms) {
    key.push_back(static_cast<std::int64_t>(atom));
    key.push_back(times);
  }
  return key;
}

std::size_t Emitter::depth_of(std::uint32_t id) const {
  const Atom& atom = forms_.atom(id);
  if (atom.kind != Atom::Kind::Slot) return depth_of(atom.inner);
  const auto found = f_.variables.find(atom.slot);
  SYNO_ASSERT(found != f_.variables.end(), "an index uses a loop variable without a value");
  return found->second.second;
}

std::size_t Emitter::depth_of(const Form& form) const {
  std::size_t depth = 0;
  for (const auto& term : form.terms) depth = std::max(depth, depth_of(term.first));
  return depth;
}

llvm::Value* Emitter::placed_at(std::size_t depth, const Key& key, llvm::function_ref<llvm::Value*()> make) {
  if (const auto found = f_.placed.find(key); found != f_.placed.end()) return found->second;
  llvm::IRBuilder<>::InsertPointGuard keep(b_);
  b_.SetInsertPoint(f_.loops[depth].hoist_point);
  llvm::Value* made = make();
  f_.placed.emplace(key, made);
  f_.placed_log.push_back(key);
  // The entry must go when its loop is left; loops between keep their marks below it, so move them up.
  if (depth + 1 < f_.loops.size()) {
    const std::size_t mark = f_.loops[depth + 1].cache_mark;
    std::rotate(f_.placed_log.begin() + static_cast<std::ptrdiff_t>(mark), f_.placed_log.end() - 1,
                f_.placed_log.end());
    for (std::size_t d = depth + 1; d < f_.loops.size(); ++d) ++f_.loops[d].cache_mark;
  }
  return made;
}

llvm::Value* Emitter::locally(const Key& key, llvm::function_ref<llvm::Value*()> make) {
  if (const auto found = f_.local.find(key); found != f_.local.end()) return found->second;
  llvm::Value* made = make();
  f_.local.emplace(key, made);
  f_.local_log.push_back(key);
  return made;
}

/// Of a condition in a branch, which may be seldom taken: what no loop around spares is computed there.
llvm::Value* Emitter::where_needed(std::size_t depth, const Key& key,
                                   llvm::function_ref<llvm::Value*()> make) {
  const bool here = f_.branches > 0 && depth + 1 >= f_.loops.size();
  return here ? locally(key, make) : placed_at(depth, key, make);
}

llvm::Value* Emitter::atom_value(std::uint32_t id) {
  const Atom atom = forms_.atom(id);
  if (atom.kind == Atom::Kind::Slot) return f_.variables.at(atom.slot).first;
  const std::size_t depth = depth_of(id);
  return placed_at(depth, {kAtom, static_cast<std::int64_t>(id)}, [&]() -> llvm::Value* {
    // Placed above any If, so nothing an If says may be used.
    const bool negative = forms_.bounds_without_facts(atom.inner).least < 0;
    llvm::Value* inner = value_of(atom.inner);
    if (atom.kind == Atom::Kind::Product)
      return b_.CreateMul(inner, f_.variables.at(atom.slot).first, "", false, true);
    const auto divisor = static_cast<std::uint64_t>(atom.divisor);
    llvm::Value* by = b_.getInt64(divisor);
    const bool power_of_two = (divisor & (divisor - 1)) == 0;
    if (atom.kind == Atom::Kind::Remainder) {
      if (power_of_two) return b_.CreateAnd(inner, b_.getInt64(divisor - 1));
      if (!negative) return b_.CreateURem(inner, by);
      llvm::Value* rest = b_.CreateSRem(inner, by);
      return b_.CreateSelect(b_.CreateICmpSLT(rest, b_.getInt64(0)), b_.CreateAdd(rest, by), rest);
    }
    if (power_of_two)
      return b_.CreateAShr(inner, b_.getInt64(static_cast<std::uint64_t>(std::countr_zero(divisor))));
    if (!negative) return b_.CreateUDiv(inner, by);
    llvm::Value* quotient = b_.CreateSDiv(inner, by);
    llvm::Value* rest = b_.CreateSub(inner, b_.CreateMul(quotient, by));
    return b_.CreateAdd(quotient, b_.CreateSExt(b_.CreateICmpSLT(rest, b_.getInt64(0)), b_.getInt64Ty()));
  });
}

/// The sum without its constant: terms of outer loops first, so that what an inner loop adds is one
/// operation.
llvm::Value* Emitter::terms_value(const Form& form) {
  if (form.terms.empty()) return nullptr;
  const std::size_t depth = depth_of(form);
  return placed_at(depth, key_of(kSum, form), [&] {
    Form outer, here;
    for (const auto& term : form.terms) (depth_of(term.first) < depth ? outer : here).terms.push_back(term);
    llvm::Value* sum = terms_value(outer);
    for (const auto& [atom, times] : here.terms) {
      llvm::Value* value = atom_value(atom);
      if (times != 1)
        value = b_.CreateMul(value, b_.getInt64(static_cast<std::uint64_t>(times)), "", false, true);
      sum = sum ? b_.CreateAdd(sum, value, "", false, true) : value;
    }
    return sum;
  });
}

llvm::Value* Emitter::value_of(const Form& form) {
  llvm::Value* constant = b_.getInt64(static_cast<std::uint64_t>(form.constant));
  llvm::Value* terms = terms_value(form);
  if (!terms) return constant;
  return form.constant == 0 ? terms : b_.CreateAdd(terms, constant, "", false, true);
}

/// Row-major by the extents of a call: each product of them that is no constant gets a variable.
void Emitter::plan_live_strides() {
  live_strides_.resize(nest_.buffers.size());
  live_rows_.resize(nest_.buffers.size());
  for (std::size_t i = 0; i < nest_.buffers.size(); ++i) {
    const nest::Buffer& buffer = nest_.buffers[i];
    if (buffer.live.empty()) continue;
    auto& strides = live_strides_[i];
    strides.resize(buffer.live.size());
    std::int64_t times = 1, greatest = 1;
    std::vector<Form> factors;
    for (std::size_t d = buffer.live.size(); d-- > 0;) {
      strides[d].times = times;
      if (!factors.empty()) {
        std::vector<Form> sorted = factors;
        std::sort(sorted.begin(), sorted.end());
        const auto [found, added] = stride_slots_.try_emplace(sorted, next_slot_);
        if (added) forms_.bind(next_slot_++, {0, greatest});
        strides[d].slot = found->second;
      }
      const Form extent = form(buffer.live[d]);
      if (extent.is_constant()) {
        times *= std::max<std::int64_t>(extent.constant, 1);
      } else {
        greatest *= std::max<std::int64_t>(forms_.bounds(extent).greatest, 1);
        factors.push_back(extent);
      }
    }
  }
}

Emitter::Form Emitter::element_form(BufferId id, const std::vector<ExprId>& indices) {
  const nest::Buffer& buffer = nest_.buffer(id);
  const auto& live = live_strides_[static_cast<std::uint32_t>(id)];
  Form sum;
  std::int64_t& rows = live_rows_[static_cast<std::uint32_t>(id)] = 1;
  for (std::size_t d = 0; d < indices.size(); ++d) {
    Form part = form(indices[d]);
    if (!live.empty() && live[d].slot)
      for (const std::uint32_t slot : nest_.arena.iterators(indices[d]))
        if (const auto found = unrolled_.find(slot); found != unrolled_.end()) rows += found->second - 1;
    if (!live.empty() && live[d].slot) part = forms_.times_slot(part, *live[d].slot);
    sum = nest::add(sum, nest::multiply(part, live.empty() ? buffer.strides[d] : live[d].times));
  }
  return forms_.joined(std::move(sum));
}

llvm::Value* Emitter::rows_on(llvm::Value* at, const LiveRows& rows) {
  // Computed ahead of the loops, the pointers of a tile's rows are more than there are registers. So nothing
  // may be known of the one that moves with the loop, and the others follow from it.
  const auto opaque = [&] {
    return locally({kOpaque, bits(at)}, [&]() -> llvm::Value* {
      llvm::FunctionType* type = llvm::FunctionType::get(at->getType(), {at->getType()}, false);
      return b_.CreateCall(type, llvm::InlineAsm::get(type, "", "=r,0", false), {at});
    });
  };
  const auto step = [&](std::int64_t count) {
    const std::int64_t times = count * rows.bytes;
    return placed_at(depth_of(rows.stride), {kStep, static_cast<std::int64_t>(rows.stride), times}, [&] {
      return b_.CreateMul(atom_value(rows.stride), b_.getInt64(static_cast<std::uint64_t>(times)), "", false,
                          true);
    });
  };
  const auto moved = [&](llvm::Value* from, std::int64_t count) {
    return count == 0 ? from : b_.CreateGEP(b_.getInt8Ty(), from, step(count));
  };
  const auto key = [&](std::int64_t group) {
    return Key{kRows, bits(at), static_cast<std::int64_t>(rows.stride), rows.bytes, group};
  };
  const std::int64_t within = ((rows.count % kRowsTogether) + kRowsTogether) % kRowsTogether;
  const std::int64_t group = (rows.count - within) / kRowsTogether;
  llvm::Value* first = locally(key(group), [&]() -> llvm::Value* {
    if (const auto before = f_.local.find(key(group - 1)); before != f_.local.end())
      return moved(before->second, kRowsTogether);
    return moved(opaque(), group * kRowsTogether);
  });
  return moved(first, within);
}

llvm::Value* Emitter::pointer(BufferId id, const Form& elements) {
  const auto index = static_cast<std::uint32_t>(id);
  const auto bytes = static_cast<std::int64_t>(nest::byte_size(nest_.buffers[index].dtype));
  const std::function<llvm::Value*(const Form&)> terms_pointer = [&](const Form& form) -> llvm::Value* {
    if (form.terms.empty()) return base(id);
    const std::size_t depth = depth_of(form);
    Key key = key_of(kPointer, form);
    key.push_back(bits(base(id)));  // a temporary allocated twice has two places
    return placed_at(depth, key, [&] {
      Form outer, here;
      for (const auto& term : form.terms) (depth_of(term.first) < depth ? outer : here).terms.push_back(term);
      llvm::Value* at = terms_pointer(outer);
      for (const auto& [atom, times] : here.terms) {
        llvm::Value* offset = b_.CreateMul(
            atom_value(atom), b_.getInt64(static_cast<std::uint64_t>(times * bytes)), "", false, true);
        at = b_.CreateGEP(b_.getInt8Ty(), at, offset);
      }
      return at;
    });
  };
  Form rest;
  std::vector<LiveRows> rows;
  const auto& strides = live_strides_[index];
  for (const auto& [atom, times] : elements.terms) {
    // The innermost dimension that steps by it: an outer one may step by several of the same.
    const auto found =
        std::find_if(strides.rbegin(), strides.rend(), [&, id = atom](const LiveStride& stride) {
          return stride.slot && forms_.atom(id).kind == Atom::Kind::Slot &&
                 forms_.atom(id).slot == *stride.slot;
        });
    if (found == strides.rend() || times % found->times != 0 || live_rows_[index] <= kRowsInRegisters)
      rest.terms.emplace_back(atom, times);
    else
      rows.push_back({atom, times / found->times, found->times * bytes});
  }
  llvm::Value* at = terms_pointer(rest);
  for (const LiveRows& each : rows) at = rows_on(at, each);
  if (elements.constant == 0) return at;
  return b_.CreateGEP(b_.getInt8Ty(), at, b_.getInt64(static_cast<std::uint64_t>(elements.constant * bytes)));
}

Emitter::LaneForm Emitter::over_lanes(const Form& form) {
  LaneForm made;
  const int lanes = simd_->lanes, active = simd_->active;
  bool linear = false;
  const std::int64_t stride = forms_.coefficient(form, simd_->lane_slot, &linear);
  made.first = forms_.substitute(form, simd_->lane_slot, 0);
  made.offsets.assign(static_cast<std::size_t>(lanes), 0);
  if (linear) {
    for (int l = 0; l < active; ++l) made.offsets[static_cast<std::size_t>(l)] = stride * l;
    made.stride = stride;
    return made;
  }
  made.each.assign(static_cast<std::size_t>(lanes), made.first);
  bool regular = true;
  for (int l = 1; l < active; ++l) {
    const auto at = static_cast<std::size_t>(l);
    made.each[at] = forms_.substitute(form, simd_->lane_slot, l);
    made.same_terms = made.same_terms && made.each[at].terms == made.first.terms;
    made.offsets[at] = made.each[at].constant - made.first.constant;
    regular = regular && made.offsets[at] == made.offsets[1] * l;
  }
  if (made.same_terms) {
    made.each.clear();
    if (regular) made.stride = active > 1 ? made.offsets[1] : 0;
  }
  return made;
}

Emitter::Truth Emitter::truth(const Form& form, const Condition& condition) const {
  const symbolic::Interval range = forms_.bounds(form);
  if (range.least >= condition.begin && range.greatest < condition.end) return Truth::Always;
  if (range.greatest < condition.begin || range.least >= condition.end || condition.begin >= condition.end)
    return Truth::Never;
  return Truth::Sometimes;
}

llvm::Value* Emitter::condition_value(const Form& form, const Condition& condition) {
  Key key = key_of(kCondition, form);
  key.insert(key.end(), {form.constant, condition.begin, condition.end});
  return where_needed(depth_of(form), key, [&] {
    // One unsigned comparison: value - begin < end - begin.
    Form shifted = nest::with_constant(form, -condition.begin);
    return b_.CreateICmpULT(value_of(shifted),
                            b_.getInt64(static_cast<std::uint64_t>(condition.end - condition.begin)));
  });
}

llvm::Value* Emitter::lane_offsets(const std::vector<std::int64_t>& offsets, llvm::Type* type) {
  std::vector<llvm::Constant*> all;
  for (const std::int64_t offset : offsets)
    all.push_back(llvm::ConstantInt::get(type, static_cast<std::uint64_t>(offset), true));
  return llvm::ConstantVector::get(all);
}

llvm::Value* Emitter::condition_mask(const Form& form, const Condition& condition) {
  const LaneForm lanes = over_lanes(form);
  const auto count = static_cast<unsigned>(simd_->lanes);
  if (!lanes.same_terms) {
    llvm::Value* mask = llvm::ConstantInt::getFalse(llvm::FixedVectorType::get(b_.getInt1Ty(), count));
    for (int l = 0; l < simd_->active; ++l)
      mask = b_.CreateInsertElement(mask, condition_value(lanes.each[static_cast<std::size_t>(l)], condition),
                                    static_cast<std::uint64_t>(l));
    return mask;
  }
  return offsets_mask(lanes.first, lanes.offsets, condition, forms_.bounds_without_facts(form));
}

/// Whether first + offset, which lies in `range`, fulfils a condition, for each offset.
llvm::Value* Emitter::offsets_mask(const Form& first, const std::vector<std::int64_t>& all,
                                   const Condition& condition, symbolic::Interval range) {
  const auto count = static_cast<unsigned>(all.size());
  Key key = key_of(kMask, first);
  key.insert(key.end(), {first.constant, condition.begin, condition.end});
  key.insert(key.end(), all.begin(), all.end());
  return where_needed(depth_of(first), key, [&] {
    // begin - first <= offset < end - first, in 32 bits: offsets are small, the bounds are clamped.
    constexpr std::int64_t kFar = 1 << 30;
    const auto [low, high] = std::minmax_element(all.begin(), all.end());
    const bool narrow = *low > -kFar && *high < kFar;
    llvm::Type* type = narrow ? b_.getInt32Ty() : b_.getInt64Ty();
    llvm::Value* offsets = lane_offsets(all, type);
    const auto bound = [&](std::int64_t limit) -> llvm::Value* {
      const Form apart = nest::with_constant(nest::multiply(first, -1), limit);
      llvm::Value* value = value_of(apart);
      const symbolic::Interval reach = forms_.bounds_without_facts(apart);
      if (narrow && reach.least >= -kFar && reach.greatest <= kFar) {
        value = b_.CreateTrunc(value, type);
      } else if (narrow) {
        llvm::Value* least = b_.getInt64(static_cast<std::uint64_t>(-kFar));
        llvm::Value* most = b_.getInt64(static_cast<std::uint64_t>(kFar));
        value = b_.CreateSelect(b_.CreateICmpSLT(value, least), least, value);
        value = b_.CreateSelect(b_.CreateICmpSGT(value, most), most, value);
        value = b_.CreateTrunc(value, type);
      }
      return b_.CreateVectorSplat(count, value);
    };
    llvm::Value* mask = nullptr;
    if (range.least < condition.begin) mask = b_.CreateICmpSGE(offsets, bound(condition.begin));
    if (range.greatest >= condition.end) {
      llvm::Value* below = b_.CreateICmpSLT(offsets, bound(condition.end));
      mask = mask ? b_.CreateAnd(mask, below) : below;
    }
    return mask ? mask : llvm::ConstantInt::getTrue(llvm::FixedVectorType::get(b_.getInt1Ty(), count));
  });
}

llvm::Value* Emitter::both(llvm::Value* a, llvm::Value* b) {
  if (!a) return b;
  if (!b || a == b) return a;
  return locally({kBoth, bits(a), bits(b)}, [&] { return b_.CreateAnd(a, b); });
}

}  // namespace syno::jit
