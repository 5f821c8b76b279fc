// Rounding, sines, cosines, arc tangents and remainders: what elementary functions need of integers and
// branches.
#include <llvm/IR/Intrinsics.h>

#include <array>
#include <cmath>
#include <limits>

#include "jit/emitter.hpp"
#include "support/error.hpp"

namespace syno::jit {

using program::Function;

namespace {

constexpr double kEndless = std::numeric_limits<double>::infinity();

// (sin(r) / r - 1) / r^2, (cos(r) - 1 + r^2 / 2) / r^4 for |r| <= pi / 4 and (atan(u) / u - 1) / u^2 for
// |u| <= tan(pi / 8), in the square: Chebyshev interpolation at 60 digits; largest relative errors 2e-11 (for
// results of float), 2e-17; 3e-9, 2e-19.
constexpr std::array kSineFloat{-0.166666666638327644781, 0.00833333186595941404252,
                                -0.000198400820127655365475, 0.00000272493140546988047483};
constexpr std::array kSineDouble{-0.166666666666666645989,   0.0083333333333309245621,
                                 -0.00019841269836722417756, 0.00000275573160838163586103,
                                 -2.50511279440141875751e-8, 1.5917848524808261007e-10};
constexpr std::array kCosineFloat{0.0416666666643024058899, -0.00138888876647136196603,
                                  0.0000248005964356219968025, -2.73004486194883548845e-7};
constexpr std::array kCosineDouble{0.0416666666666666653733,    -0.0013888888888887382271,
                                   0.0000248015872987430692863, -2.75573172600088381636e-7,
                                   2.08761438279931324956e-9,   -1.13824567780613058495e-11};
constexpr std::array kAtanFloat{-0.333333317597002540674, 0.199995401462064032153, -0.142639439077179439364,
                                0.107436051489174431557, -0.0645150951864487884276};
constexpr std::array kAtanDouble{
    -0.333333333333333332167,  0.199999999999998041291,  -0.142857142856597278617,  0.111111111051457253033,
    -0.0909090875301717832454, 0.0769229636104821777908, -0.0666642463459933669964, 0.0587892611052810075357,
    -0.052304330074828921207,  0.045514962374949303171,  -0.0345680680149688764603, 0.0162829932389244867773};

/// pi / 2 in parts: of 33 bits, so that products with numbers of 20 bits are exact, and the rest.
constexpr double kQuarterFirst = 0x1.921fb54400000p+0, kQuarterSecond = 0x1.0b4611a600000p-34,
                 kQuarterThird = 0x1.3198a2e037073p-69;
/// From here on the products with the parts are not exact, nor are the parts enough.
constexpr double kLarge = 1e6;
constexpr double kRounding = 6755399441055744.0;  ///< x + magic - magic rounds x to an integer
/// The bits of 2 / pi after the point, behind 64 zeros.
constexpr std::array<std::uint64_t, 20> kTwoOverPi{0,
                                                   0xa2f9836e4e441529,
                                                   0xfc2757d1f534ddc0,
                                                   0xdb6295993c439041,
                                                   0xfe5163abdebbc561,
                                                   0xb7246e3a424dd2e0,
                                                   0x06492eea09d1921c,
                                                   0xfe1deb1cb129a73e,
                                                   0xe88235f52ebb4484,
                                                   0xe99c7026b45f7e41,
                                                   0x3991d639835339f4,
                                                   0x9c845f8bbdf9283b,
                                                   0x1ff897ffde05980f,
                                                   0xef2f118b5a0a6d1f,
                                                   0x6d367ecf27cb09b7,
                                                   0x4f463f669e5fea2d,
                                                   0x7527bac7ebe5f17b,
                                                   0x3d0739f78a5292ea,
                                                   0x6bfb5fb11f8d5d08,
                                                   0x56033046fc7b6bab};
constexpr std::uint64_t kHalfPi = 0xc90fdaa22168c234;  ///< pi / 2 * 2^63

unsigned lanes_of(const llvm::Value* value) {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  return vector ? vector->getNumElements() : 1;
}
llvm::Type* type_like(const llvm::Value* like, llvm::Type* element) {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(like->getType());
  return vector ? llvm::FixedVectorType::get(element, vector->getNumElements()) : element;
}

}  // namespace

llvm::Value* MathEmitter::outlined(const std::string& name, llvm::ArrayRef<llvm::Value*> arguments,
                                   llvm::function_ref<llvm::Value*(llvm::ArrayRef<llvm::Value*>)> body) {
  llvm::Type* type = arguments[0]->getType();
  const unsigned lanes = lanes_of(arguments[0]);
  const unsigned widest = static_cast<unsigned>(target_.vector_bits) / type->getScalarSizeInBits();
  if (lanes > widest && lanes % 2 == 0) {
    std::vector<llvm::Value*> halves;
    for (const unsigned first : {0U, lanes / 2}) {
      std::vector<int> mask;
      for (unsigned l = 0; l < lanes / 2; ++l) mask.push_back(static_cast<int>(first + l));
      std::vector<llvm::Value*> parts;
      for (llvm::Value* argument : arguments) parts.push_back(b_.CreateShuffleVector(argument, mask));
      halves.push_back(outlined(name, parts, body));
    }
    std::vector<int> all;
    for (unsigned l = 0; l < lanes; ++l) all.push_back(static_cast<int>(l));
    return b_.CreateShuffleVector(halves[0], halves[1], all);
  }
  llvm::Function* here = b_.GetInsertBlock()->getParent();
  llvm::Module& module = *here->getParent();
  const std::string full = name + (is_double(arguments[0]) ? ".f64." : ".f32.") + std::to_string(lanes);
  llvm::Function* made = module.getFunction(full);
  if (made == nullptr) {
    const std::vector<llvm::Type*> types(arguments.size(), type);
    made = llvm::Function::Create(llvm::FunctionType::get(type, types, false),
                                  llvm::GlobalValue::InternalLinkage, full, module);
    made->addFnAttrs(llvm::AttrBuilder(module.getContext(), here->getAttributes().getFnAttrs()));
    // It reads its arguments and constants alone: of equal calls one is made.
    made->setDoesNotAccessMemory();
    made->setDoesNotThrow();
    made->setWillReturn();
    const llvm::IRBuilder<>::InsertPointGuard back(b_);
    b_.SetInsertPoint(llvm::BasicBlock::Create(module.getContext(), "entry", made));
    std::vector<llvm::Value*> given;
    for (llvm::Argument& argument : made->args()) given.push_back(&argument);
    b_.CreateRet(body(given));
  }
  return b_.CreateCall(made, arguments);
}

llvm::Value* MathEmitter::rounded(Function function, llvm::Value* x) {
  if (target_.rounds()) {
    const auto id = function == Function::Floor   ? llvm::Intrinsic::floor
                    : function == Function::Ceil  ? llvm::Intrinsic::ceil
                    : function == Function::Trunc ? llvm::Intrinsic::trunc
                                                  : llvm::Intrinsic::roundeven;
    return b_.CreateUnaryIntrinsic(id, x);
  }
  // Adding a number whose last digit is worth 1 rounds to it; larger ones are whole.
  llvm::Value* whole = number(x, is_double(x) ? 0x1p52 : 0x1p23);
  llvm::Value* size = absolute(x);
  llvm::Value* made = b_.CreateFSub(b_.CreateFAdd(size, whole), whole);
  const auto one_less = [&](llvm::Value* where) {
    return b_.CreateSelect(where, b_.CreateFSub(made, number(x, 1)), made);
  };
  if (function == Function::Trunc) made = one_less(b_.CreateFCmpOGT(made, size));
  made = with_sign_of(made, x);
  if (function == Function::Floor) made = one_less(b_.CreateFCmpOGT(made, x));
  if (function == Function::Ceil)
    made = b_.CreateSelect(b_.CreateFCmpOLT(made, x), b_.CreateFAdd(made, number(x, 1)), made);
  return b_.CreateSelect(b_.CreateFCmpOLT(size, whole), with_sign_of(made, x), x);
}

llvm::Value* MathEmitter::wave(Function function, llvm::Value* x) {
  const std::string name = function == Function::Sin ? "syno.sin" : "syno.cos";
  return outlined(name, {x}, [&](llvm::ArrayRef<llvm::Value*> given) { return wave_of(function, given[0]); });
}

/// Where the argument is reduced in double, float is exact to its last digit for nothing.
llvm::Value* MathEmitter::wave_of(Function function, llvm::Value* x) {
  const bool doubles = is_double(x), sine = function == Function::Sin;
  llvm::Value* wide = doubles ? x : b_.CreateFPExt(x, type_like(x, b_.getDoubleTy()));
  llvm::Value* size = absolute(wide);
  const Quarter at = reduce_quarter(size, doubles);
  llvm::Value *r = at.high, *low = at.low;
  llvm::Value* z = b_.CreateFMul(r, r);
  llvm::Value* sin = b_.CreateFMul(z, doubles ? polynomial(z, kSineDouble) : polynomial(z, kSineFloat));
  sin = b_.CreateFMul(sin, r);
  llvm::Value* half = b_.CreateFMul(z, number(z, 0.5));
  if (low) sin = b_.CreateFAdd(sin, b_.CreateFSub(low, b_.CreateFMul(low, half)));
  sin = b_.CreateFAdd(r, sin);
  llvm::Value* whole = b_.CreateFSub(number(z, 1), half);
  llvm::Value* rest = b_.CreateFSub(b_.CreateFSub(number(z, 1), whole), half);
  llvm::Value* cos = b_.CreateFMul(b_.CreateFMul(z, z),
                                   doubles ? polynomial(z, kCosineDouble) : polynomial(z, kCosineFloat));
  if (low) cos = b_.CreateFSub(cos, b_.CreateFMul(r, low));
  cos = b_.CreateFAdd(whole, b_.CreateFAdd(rest, cos));
  llvm::Value* quarter = sine ? at.quarter : b_.CreateAdd(at.quarter, integer(wide, 1));
  llvm::Value* odd = b_.CreateICmpNE(b_.CreateAnd(quarter, integer(wide, 1)), integer(wide, 0));
  llvm::Value* made = b_.CreateSelect(odd, cos, sin);
  llvm::Type* integers = integer_type(wide);
  llvm::Value* sign = b_.CreateShl(b_.CreateAnd(quarter, integer(wide, 2)), integer(wide, 62));
  if (sine)
    sign = b_.CreateXor(sign, b_.CreateAnd(b_.CreateBitCast(wide, integers),
                                           integer(wide, std::numeric_limits<std::int64_t>::min())));
  made = b_.CreateBitCast(b_.CreateXor(b_.CreateBitCast(made, integers), sign), wide->getType());
  made = b_.CreateSelect(b_.CreateFCmpOLT(size, number(wide, kEndless)), made, b_.CreateFSub(wide, wide));
  return doubles ? made : b_.CreateFPTrunc(made, x->getType());
}

/// Cody and Waite's below `kLarge`; where any lane is larger, those lanes are reduced by themselves.
MathEmitter::Quarter MathEmitter::reduce_quarter(llvm::Value* size, bool twice) {
  llvm::Type* integers = integer_type(size);
  llvm::Value* magic = number(size, kRounding);
  llvm::Value* shifted = multiply_add(size, number(size, 0.63661977236758134308), magic);
  Quarter made{nullptr, nullptr, b_.CreateBitCast(shifted, integers)};
  llvm::Value* n = b_.CreateFSub(shifted, magic);
  const auto part = [&](double of) { return b_.CreateFMul(n, number(size, of)); };
  llvm::Value* a = b_.CreateFSub(size, part(kQuarterFirst));  // exact
  if (twice) {
    llvm::Value* second = part(kQuarterSecond);
    llvm::Value* sum = b_.CreateFSub(a, second);
    // What rounding took, whichever of the two is larger.
    llvm::Value* back = b_.CreateFSub(sum, a);
    llvm::Value* lost =
        b_.CreateFSub(b_.CreateFSub(a, b_.CreateFSub(sum, back)), b_.CreateFAdd(second, back));
    llvm::Value* rest = b_.CreateFSub(lost, part(kQuarterThird));
    made.high = b_.CreateFAdd(sum, rest);
    made.low = b_.CreateFAdd(b_.CreateFSub(sum, made.high), rest);
  } else {
    made.high = b_.CreateFSub(a, part(kQuarterSecond + kQuarterThird));
  }

  llvm::Value* large = b_.CreateAnd(b_.CreateFCmpOGE(size, number(size, kLarge)),
                                    b_.CreateFCmpOLT(size, number(size, kEndless)));
  const unsigned lanes = lanes_of(size);
  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::Function* function = before->getParent();
  llvm::BasicBlock* one = llvm::BasicBlock::Create(b_.getContext(), "large", function);
  llvm::BasicBlock* join = llvm::BasicBlock::Create(b_.getContext(), "reduced", function);
  b_.CreateCondBr(lanes > 1 ? b_.CreateOrReduce(large) : large, one, join);
  b_.SetInsertPoint(one);
  std::array<llvm::Value*, 3> usual{made.high, twice ? made.low : nullptr, made.quarter}, next{};
  if (lanes == 1) {
    const Quarter exact = reduce_large(size);
    next = {exact.high, twice ? exact.low : nullptr, exact.quarter};
    b_.CreateBr(join);
  } else {
    llvm::PHINode* lane = b_.CreatePHI(b_.getInt64Ty(), 2);
    lane->addIncoming(b_.getInt64(0), before);
    std::array<llvm::PHINode*, 3> held{};
    for (std::size_t i = 0; i < held.size(); ++i) {
      if (usual[i] == nullptr) continue;
      held[i] = b_.CreatePHI(usual[i]->getType(), 2);
      held[i]->addIncoming(usual[i], before);
    }
    llvm::Value* is_large = b_.CreateExtractElement(large, lane);
    llvm::Value* this_size = b_.CreateExtractElement(size, lane);
    const Quarter exact =
        reduce_large(b_.CreateSelect(is_large, this_size, llvm::ConstantFP::get(b_.getDoubleTy(), kLarge)));
    const std::array<llvm::Value*, 3> found{exact.high, exact.low, exact.quarter};
    for (std::size_t i = 0; i < held.size(); ++i)
      if (held[i] != nullptr) {
        llvm::Value* old = b_.CreateExtractElement(held[i], lane);
        next[i] = b_.CreateInsertElement(held[i], b_.CreateSelect(is_large, found[i], old), lane);
        held[i]->addIncoming(next[i], one);
      }
    llvm::Value* after = b_.CreateAdd(lane, b_.getInt64(1));
    lane->addIncoming(after, one);
    b_.CreateCondBr(b_.CreateICmpEQ(after, b_.getInt64(lanes)), join, one);
  }
  b_.SetInsertPoint(join);
  const auto joined = [&](std::size_t i) -> llvm::Value* {
    if (usual[i] == nullptr) return nullptr;
    llvm::PHINode* phi = b_.CreatePHI(usual[i]->getType(), 2);
    phi->addIncoming(usual[i], before);
    phi->addIncoming(next[i], one);
    return phi;
  };
  return {joined(0), joined(1), joined(2)};
}

/// Payne and Hanek's: the mantissa times those bits of 2 / pi that neither count whole turns nor are too
/// small. No double is closer than 2^-62 quarters to a multiple of pi / 2, so 75 bits of the result are
/// known.
MathEmitter::Quarter MathEmitter::reduce_large(llvm::Value* size) {
  llvm::Type* word = b_.getInt64Ty();
  llvm::Type* pair = b_.getInt128Ty();
  llvm::Module& module = *b_.GetInsertBlock()->getModule();
  llvm::GlobalVariable* table = module.getNamedGlobal("syno.two_over_pi");
  if (table == nullptr) {
    llvm::Constant* values = llvm::ConstantDataArray::get(module.getContext(), kTwoOverPi);
    table = new llvm::GlobalVariable(module, values->getType(), true, llvm::GlobalValue::PrivateLinkage,
                                     values, "syno.two_over_pi");
  }
  // size = m * 2^e; bits from 2^(1 - e) of 2 / pi downwards
  llvm::Value* bits = b_.CreateBitCast(size, word);
  llvm::Value* m = b_.CreateOr(b_.CreateAnd(bits, b_.getInt64((std::uint64_t{1} << 52) - 1)),
                               b_.getInt64(std::uint64_t{1} << 52));
  llvm::Value* e = b_.CreateSub(b_.CreateLShr(bits, std::uint64_t{52}), b_.getInt64(1023 + 52));
  llvm::Value* first = b_.CreateAdd(e, b_.getInt64(62));
  llvm::Value* index = b_.CreateLShr(first, std::uint64_t{6});
  llvm::Value* shift = b_.CreateAnd(first, b_.getInt64(63));
  const auto entry = [&](std::uint64_t i) {
    return b_.CreateLoad(word, b_.CreateGEP(word, table, b_.CreateAdd(index, b_.getInt64(i))));
  };
  std::array<llvm::Value*, 4> entries{entry(0), entry(1), entry(2), entry(3)};
  const auto times = [&](std::size_t i) {  // with 64 of the bits
    llvm::Value* window =
        b_.CreateIntrinsic(llvm::Intrinsic::fshl, {word}, {entries[i], entries[i + 1], shift});
    return b_.CreateMul(b_.CreateZExt(m, pair), b_.CreateZExt(window, pair));
  };
  const auto amount = [&](std::uint64_t by) { return llvm::ConstantInt::get(pair, by); };
  llvm::Value* product = b_.CreateAdd(b_.CreateShl(times(0), amount(64)),
                                      b_.CreateAdd(times(1), b_.CreateLShr(times(2), amount(64))));
  // The highest two bits are whole quarters; the rest is rounded to the nearest of them.
  llvm::Value* quarter =
      b_.CreateTrunc(b_.CreateAdd(b_.CreateLShr(product, amount(126)),
                                  b_.CreateAnd(b_.CreateLShr(product, amount(125)), amount(1))),
                     word);
  llvm::Value* fraction = b_.CreateShl(product, amount(2));
  llvm::Value* negative = b_.CreateICmpSLT(fraction, amount(0));
  fraction = b_.CreateSelect(negative, b_.CreateNeg(fraction), fraction);
  llvm::Value* zeros = b_.CreateIntrinsic(llvm::Intrinsic::ctlz, {pair}, {fraction, b_.getFalse()});
  llvm::Value* normal = b_.CreateLShr(b_.CreateShl(fraction, zeros), amount(64));
  llvm::Value* radians = b_.CreateTrunc(
      b_.CreateLShr(b_.CreateMul(normal, llvm::ConstantInt::get(pair, kHalfPi)), amount(64)), word);
  constexpr std::uint64_t kLowBits = 0x7ff;
  llvm::Value* scale = b_.CreateSub(b_.getInt64(1023 - 63), b_.CreateTrunc(zeros, word));
  scale = b_.CreateBitCast(b_.CreateShl(scale, b_.getInt64(52)), b_.getDoubleTy());
  scale = b_.CreateSelect(negative, b_.CreateFNeg(scale), scale);
  const auto scaled = [&](std::uint64_t which) {
    llvm::Value* masked = b_.CreateAnd(radians, b_.getInt64(which));
    return b_.CreateFMul(b_.CreateUIToFP(masked, b_.getDoubleTy()), scale);
  };
  return {scaled(~kLowBits), scaled(kLowBits), quarter};
}

llvm::Value* MathEmitter::atan(llvm::Value* x) {
  // atan t = pi/4 + atan((t - 1) / (t + 1)) = pi/2 - atan(1 / t)
  llvm::Value* size = absolute(x);
  llvm::Value* mid = b_.CreateFCmpOGT(size, number(x, 0.41421356237309503));
  llvm::Value* far = b_.CreateFCmpOGT(size, number(x, 2.4142135623730949));
  const auto choose = [&](llvm::Value* near_one, llvm::Value* mid_one, llvm::Value* far_one) {
    return b_.CreateSelect(far, far_one, b_.CreateSelect(mid, mid_one, near_one));
  };
  llvm::Value *zero = number(x, 0), *one = number(x, 1);
  llvm::Value* above = choose(size, b_.CreateFSub(size, one), number(x, -1));
  llvm::Value* u = b_.CreateFDiv(above, choose(one, b_.CreateFAdd(size, one), size));
  const bool doubles = is_double(x);
  // What the constants lack in this format.
  const double lacks = doubles ? 6.12323399573676588613e-17 : -4.37113900018624283e-8;
  llvm::Value* z = b_.CreateFMul(u, u);
  llvm::Value* tail = doubles ? polynomial(z, kAtanDouble) : polynomial(z, kAtanFloat);
  tail = multiply_add(b_.CreateFMul(u, z), tail, choose(zero, number(x, lacks / 2), number(x, lacks)));
  llvm::Value* base = choose(zero, number(x, 0.78539816339744830962), number(x, 1.57079632679489661923));
  return with_sign_of(b_.CreateFAdd(base, b_.CreateFAdd(u, tail)), x);
}

llvm::Value* MathEmitter::fmod(llvm::Value* x, llvm::Value* y) {
  return outlined("syno.fmod", {x, y}, [&](llvm::ArrayRef<llvm::Value*> given) {
    llvm::Value *a = given[0], *b = given[1];
    if (is_double(a)) return remainder(a, b);
    llvm::Type* wide = type_like(a, b_.getDoubleTy());
    return b_.CreateFPTrunc(remainder(b_.CreateFPExt(a, wide), b_.CreateFPExt(b, wide)), a->getType());
  });
}

/// Long division by 25 bits a turn: every multiple of the divisor that is taken off is known exactly, and so
/// is what is left, which is a number of the divisor's last digits.
llvm::Value* MathEmitter::remainder(llvm::Value* x, llvm::Value* y) {
  llvm::Type* integers = integer_type(x);
  llvm::Value *dividend = absolute(x), *divisor = absolute(y);
  llvm::Value* finite = b_.CreateFCmpOLT(dividend, number(x, kEndless));
  llvm::Value* valid = b_.CreateAnd(finite, b_.CreateAnd(b_.CreateFCmpOGT(divisor, number(x, 0)),
                                                         b_.CreateFCmpOLT(divisor, number(x, kEndless))));
  dividend = b_.CreateSelect(valid, dividend, number(x, 0));
  divisor = b_.CreateSelect(valid, divisor, number(x, 1));
  const auto exponent = [&](llvm::Value* of) {
    llvm::Value* tiny = b_.CreateFCmpOLT(of, number(x, 0x1p-1022));
    llvm::Value* normal = b_.CreateSelect(tiny, b_.CreateFMul(of, number(x, 0x1p54)), of);
    llvm::Value* bits = b_.CreateLShr(b_.CreateBitCast(normal, integers), integer(x, 52));
    return b_.CreateSub(bits, b_.CreateSelect(tiny, integer(x, 54), integer(x, 0)));
  };
  const auto power = [&](llvm::Value* of) {
    return b_.CreateBitCast(b_.CreateShl(b_.CreateAdd(of, integer(x, 1023)), integer(x, 52)), x->getType());
  };
  llvm::Value* divisor_exponent = exponent(divisor);
  const bool vector = lanes_of(x) > 1;
  llvm::BasicBlock* before = b_.GetInsertBlock();
  llvm::BasicBlock* again = llvm::BasicBlock::Create(b_.getContext(), "divide", before->getParent());
  llvm::BasicBlock* done = llvm::BasicBlock::Create(b_.getContext(), "divided", before->getParent());
  const auto unfinished = [&](llvm::Value* left) {
    llvm::Value* each = b_.CreateFCmpOGE(left, divisor);
    return vector ? b_.CreateOrReduce(each) : each;
  };
  b_.CreateCondBr(unfinished(dividend), again, done);
  b_.SetInsertPoint(again);
  llvm::PHINode* left = b_.CreatePHI(x->getType(), 2);
  left->addIncoming(dividend, before);
  constexpr std::int64_t kBits = 25;
  llvm::Value* apart = b_.CreateSub(b_.CreateSub(exponent(left), divisor_exponent), integer(x, kBits));
  apart = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, apart, integer(x, 0));
  llvm::Value* half = b_.CreateLShr(apart, integer(x, 1));
  llvm::Value* step = b_.CreateFMul(b_.CreateFMul(divisor, power(half)), power(b_.CreateSub(apart, half)));
  llvm::Value* times = rounded(Function::Trunc, b_.CreateFDiv(left, step));
  llvm::Value* high = b_.CreateBitCast(
      b_.CreateAnd(b_.CreateBitCast(step, integers), integer(x, ~std::int64_t{0x7ffffff})), x->getType());
  llvm::Value* next = b_.CreateFSub(left, b_.CreateFMul(times, high));
  next = b_.CreateFSub(next, b_.CreateFMul(times, b_.CreateFSub(step, high)));
  // A quotient just below a whole number is rounded to it.
  next = b_.CreateSelect(b_.CreateFCmpOLT(next, number(x, 0)), b_.CreateFAdd(next, step), next);
  left->addIncoming(next, again);
  b_.CreateCondBr(unfinished(next), again, done);
  b_.SetInsertPoint(done);
  llvm::PHINode* rest = b_.CreatePHI(x->getType(), 2);
  rest->addIncoming(dividend, before);
  rest->addIncoming(next, again);
  llvm::Value* made = with_sign_of(rest, x);
  llvm::Value* endless = b_.CreateAnd(finite, b_.CreateFCmpOEQ(absolute(y), number(x, kEndless)));
  made = b_.CreateSelect(valid, made, number(x, std::numeric_limits<double>::quiet_NaN()));
  return b_.CreateSelect(endless, x, made);
}

}  // namespace syno::jit
