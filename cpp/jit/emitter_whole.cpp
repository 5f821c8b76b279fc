// Whole numbers: indices as values, and what is made of them where a value would round it.
#include <algorithm>
#include <cmath>

#include "jit/emitter.hpp"

namespace syno::jit {

using nest::Value;
using nest::ValueId;
using nest::ValueKind;
using program::Function;

/// A whole number over the lanes, in 32 or 64 bits; its type has nothing to do with that of values.
Lanes Emitter::integers(const Form& index) {
  if (!uses_lanes(index)) return {value_of(index), false};
  const LaneForm lanes = over_lanes(index);
  const auto count = static_cast<unsigned>(simd_->lanes);
  if (!lanes.same_terms) {
    llvm::Value* made = llvm::Constant::getNullValue(llvm::FixedVectorType::get(b_.getInt64Ty(), count));
    for (int l = 0; l < simd_->active; ++l) {
      llvm::Value* one = value_of(lanes.each[static_cast<std::size_t>(l)]);
      made = b_.CreateInsertElement(made, one, static_cast<std::uint64_t>(l));
    }
    return {made, true};
  }
  const symbolic::Interval range = forms_.bounds(index);
  constexpr std::int64_t kFits = std::int64_t{1} << 30;
  const bool narrow = range.least > -kFits && range.greatest < kFits;
  llvm::Type* integer = narrow ? b_.getInt32Ty() : b_.getInt64Ty();
  llvm::Value* first = value_of(lanes.first);
  if (narrow) first = b_.CreateTrunc(first, integer);
  return {b_.CreateAdd(b_.CreateVectorSplat(count, first), lane_offsets(lanes.offsets, integer)), true};
}

Lanes Emitter::index_value(const Form& index) {
  const Lanes whole = integers(index);
  llvm::Type* type = compute_;
  if (whole.vector) type = llvm::FixedVectorType::get(compute_, static_cast<unsigned>(simd_->lanes));
  return {b_.CreateSIToFP(whole.value, type), whole.vector};
}

/// What a value is, made of indices and whole literals by sums, differences and multiples; `seen.rounds`
/// becomes true where a part of it does not fit the mantissa that values have.
std::optional<Emitter::Form> Emitter::whole_form(ValueId id, Whole& seen) {
  if (seen.nodes++ > 64) return std::nullopt;
  const double fits = compute_->isDoubleTy() ? 0x1p53 : 0x1p24;
  const auto made = [&](Form form) -> std::optional<Form> {
    const symbolic::Interval range = forms_.bounds(form);
    const double most =
        std::max(std::abs(static_cast<double>(range.least)), std::abs(static_cast<double>(range.greatest)));
    if (most > 0x1p62) return std::nullopt;
    seen.rounds = seen.rounds || most > fits;
    return form;
  };
  const Value& node = nest_.value(id);
  switch (node.kind) {
    case ValueKind::Literal:
      if (node.literal != std::floor(node.literal) || std::abs(node.literal) > 0x1p53) return std::nullopt;
      return made(Form{{}, static_cast<std::int64_t>(node.literal)});
    case ValueKind::Index:
      return made(form(node.index));
    case ValueKind::Unary: {
      if (node.function != Function::Negate) return std::nullopt;
      const auto a = whole_form(node.a, seen);
      return a ? made(nest::multiply(*a, -1)) : std::nullopt;
    }
    case ValueKind::Binary: {
      const bool sum = node.function == Function::Add || node.function == Function::Subtract;
      if (!sum && node.function != Function::Multiply) return std::nullopt;
      const auto a = whole_form(node.a, seen);
      if (!a) return std::nullopt;
      const auto b = whole_form(node.b, seen);
      if (!b) return std::nullopt;
      if (sum) return made(nest::add(*a, node.function == Function::Add ? *b : nest::multiply(*b, -1)));
      const Form* factor = a->is_constant() ? &*a : b->is_constant() ? &*b : nullptr;
      // Zero times a negative number has a sign that no integer has.
      if (factor == nullptr || factor->constant <= 0 || factor->constant > (std::int64_t{1} << 31))
        return std::nullopt;
      return made(nest::multiply(factor == &*a ? *b : *a, factor->constant));
    }
    default:
      return std::nullopt;
  }
}

/// Whole numbers that would be rounded if they were values: in integers, then one rounding. Nothing where
/// values are exact.
std::optional<Lanes> Emitter::whole_numbers(const Value& node) {
  const bool compares = node.function == Function::Less || node.function == Function::LessEqual ||
                        node.function == Function::Equal || node.function == Function::NotEqual;
  const bool adds = node.function == Function::Add || node.function == Function::Subtract ||
                    node.function == Function::Multiply;
  if (!compares && !adds) return std::nullopt;
  Whole seen;
  const auto a = whole_form(node.a, seen);
  if (!a) return std::nullopt;
  const auto b = whole_form(node.b, seen);
  if (!b || (a->is_constant() && b->is_constant())) return std::nullopt;
  if (adds) {
    const Form* factor = a->is_constant() ? &*a : b->is_constant() ? &*b : nullptr;
    if (!seen.rounds) return std::nullopt;
    if (node.function != Function::Multiply)
      return index_value(nest::add(*a, node.function == Function::Add ? *b : nest::multiply(*b, -1)));
    if (factor == nullptr || factor->constant <= 0 || factor->constant > (std::int64_t{1} << 31))
      return std::nullopt;
    const Form whole = nest::multiply(factor == &*a ? *b : *a, factor->constant);
    const symbolic::Interval range = forms_.bounds(whole);
    constexpr std::int64_t kMost = std::int64_t{1} << 62;
    if (range.least < -kMost || range.greatest > kMost) return std::nullopt;
    return index_value(whole);
  }
  if (!seen.rounds) return std::nullopt;
  const Lanes apart = integers(nest::add(*a, nest::multiply(*b, -1)));
  llvm::Value* zero = llvm::Constant::getNullValue(apart.value->getType());
  llvm::Value* test = node.function == Function::Less        ? b_.CreateICmpSLT(apart.value, zero)
                      : node.function == Function::LessEqual ? b_.CreateICmpSLE(apart.value, zero)
                      : node.function == Function::Equal     ? b_.CreateICmpEQ(apart.value, zero)
                                                             : b_.CreateICmpNE(apart.value, zero);
  llvm::Type* type = compute_;
  if (apart.vector) type = llvm::FixedVectorType::get(compute_, static_cast<unsigned>(simd_->lanes));
  return Lanes{b_.CreateSelect(test, llvm::ConstantFP::get(type, 1), llvm::ConstantFP::get(type, 0)),
               apart.vector};
}

}  // namespace syno::jit
