// What takes long and is the same in every iteration of a loop is computed before it: the logarithm of a sum,
// the reciprocal of a norm. Nothing else moves: a product costs no more than the register that holds it.
#include <algorithm>
#include <bit>

#include "jit/emitter.hpp"

namespace syno::jit {

using nest::BufferKind;
using nest::Value;
using nest::ValueId;
using nest::ValueKind;
using program::Function;

bool takes_long(const Value& node) {
  if (node.kind == ValueKind::Binary)
    return node.function == Function::Divide || node.function == Function::Power;
  return node.kind == ValueKind::Unary && node.function != Function::Negate &&
         node.function != Function::Relu && node.function != Function::Abs;
}

/// Whether a value is one scalar that can be computed wherever its loop variables are known, and what it is
/// made of. Nothing in it may need a condition around it to be allowed.
bool Emitter::describe(ValueId id, Invariant& made) {
  const Value& node = nest_.value(id);
  made.key.push_back(static_cast<std::int64_t>(node.kind));
  const auto add = [&](const Form& form) {
    if (uses_lanes(form)) return false;
    made.depth = std::max(made.depth, depth_of(form));
    const Key key = key_of(form.constant, form);
    made.key.insert(made.key.end(), key.begin(), key.end());
    return true;
  };
  switch (node.kind) {
    case ValueKind::Literal:
      made.key.push_back(std::bit_cast<std::int64_t>(node.literal));
      return true;
    case ValueKind::Index:
      return add(form(node.index));
    case ValueKind::Load: {
      if (nest_.buffer(node.buffer).kind == BufferKind::Register || !node.guards.empty()) return false;
      const Form elements = element_form(node.buffer, node.indices);
      made.key.insert(made.key.end(), {raw(node.buffer), versions_[raw(node.buffer)]});
      made.loaded.push_back(raw(node.buffer));
      return readable(Apart{.buffer = node.buffer, .first = elements}, 0, 0) && add(elements);
    }
    case ValueKind::Unary:
      made.key.push_back(static_cast<std::int64_t>(node.function));
      return describe(node.a, made);
    case ValueKind::Binary:
      made.key.push_back(static_cast<std::int64_t>(node.function));
      return describe(node.a, made) && describe(node.b, made);
    case ValueKind::Select:
      return describe(node.a, made) && describe(node.b, made) && describe(node.c, made);
  }
  return false;
}

llvm::Value* Emitter::part_of(llvm::Value* divisor, Part part) {
  if (part == Part::Value) return divisor;
  constexpr double kFar = 0x1p100, kScale = 0x1p64;
  llvm::Value* size = b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, divisor);
  llvm::Value* scale =
      b_.CreateSelect(b_.CreateFCmpOLT(size, number(1 / kFar)), number(kScale),
                      b_.CreateSelect(b_.CreateFCmpOGT(size, number(kFar)), number(1 / kScale), number(1)));
  return part == Part::Scale ? scale : b_.CreateFDiv(number(1), b_.CreateFMul(divisor, scale));
}

/// A vector over what is the same in all lanes: one division takes as long as many products.
Lanes Emitter::quotient(Lanes x, ValueId divisor) {
  // A count is divided by: the mean of three equal terms is the term.
  if (nest_.value(divisor).kind == ValueKind::Index) return binary(Function::Divide, x, value(divisor));
  llvm::Value *scale = nullptr, *inverse = nullptr;
  if (x.vector && compute_->isFloatTy()) {
    scale = before_loops(divisor, Part::Scale);
    inverse = before_loops(divisor, Part::Inverse);
  }
  if (!inverse) {
    const Lanes d = value(divisor);
    if (!x.vector || d.vector || !compute_->isFloatTy()) return binary(Function::Divide, x, d);
    scale = part_of(d.value, Part::Scale);
    inverse = part_of(d.value, Part::Inverse);
  }
  const auto* known = llvm::dyn_cast<llvm::ConstantFP>(scale);
  llvm::Value* scaled =
      known && known->isExactlyValue(1.0) ? x.value : b_.CreateFMul(x.value, spread({scale, false}));
  return {b_.CreateFMul(scaled, spread({inverse, false})), true};
}

/// The value, or a part of a quotient by it, computed before the outermost loop that does not change it; null
/// where the innermost loop does.
llvm::Value* Emitter::before_loops(ValueId id, Part part) {
  Invariant made;
  if (f_.loops.size() < 2 || !describe(id, made)) return nullptr;
  const auto unchanged = [&](const Loop& loop) {
    return loop.before != nullptr && std::none_of(made.loaded.begin(), made.loaded.end(),
                                                  [&](auto buffer) { return loop.stored[buffer]; });
  };
  std::size_t loop = f_.loops.size();
  while (loop - 1 > made.depth && unchanged(f_.loops[loop - 1])) --loop;
  if (loop == f_.loops.size()) return nullptr;
  made.key.push_back(static_cast<std::int64_t>(part));
  const auto [known, fresh] = f_.loops[loop].ahead.try_emplace(std::move(made.key), nullptr);
  if (!fresh) return known->second;
  llvm::IRBuilder<>::InsertPointGuard keep(b_);
  b_.SetInsertPoint(f_.loops[loop].before);
  // What was loaded on the way to here is not there yet.
  std::map<Key, llvm::Value*> local;
  std::vector<Key> log;
  std::map<std::uint32_t, Lanes> memo;
  std::optional<Simd> simd;
  const auto exchange = [&] {
    std::swap(local, f_.local);
    std::swap(log, f_.local_log);
    std::swap(memo, memo_);
    std::swap(simd, simd_);
  };
  exchange();
  llvm::Value* value = part_of(value_here(id).value, part);
  exchange();
  return known->second = value;
}

}  // namespace syno::jit
