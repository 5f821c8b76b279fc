// Elementary functions as polynomials, on scalars or vectors of float or double.
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "jit/emitter.hpp"

namespace syno::jit {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// What differs between float and double.
struct Format {
  int mantissa_bits;
  std::int64_t exponent_bias;
  double magic;                ///< x + magic - magic rounds x to an integer
  double log2_high, log2_low;  ///< log 2 in two parts; the high one times any exponent is exact
  double exp_low, exp_high;    ///< where exp underflows to zero and overflows
  double smallest_normal;
};
constexpr Format kFloat{
    23, 127, 12582912.0, 0.693359375, -2.12194440e-4, -104.0, 89.0, 1.17549435082228751e-38};
constexpr Format kDouble{
    52,     1023,  6755399441055744.0,     6.93147180369123816490e-01, 1.90821492927058770002e-10,
    -746.0, 710.0, 2.2250738585072014e-308};

// erf(x) / x in x^2 on [0, 1], and log(erfc(x)) in t on [-1, 1] with x = middle + half * t: Chebyshev
// interpolation at 50 digits; largest errors 1e-9 and 2e-8 (float), 2e-19 and 2e-14 (double).
constexpr std::array kErfFloat{1.128379165848350946,     -0.3761262666672033102,  0.1128359471516021773,
                               -0.02685421201062641244,  0.005189087423433973986, -0.0008016864287165869529,
                               0.00007875875062685488341};
constexpr std::array kErfDouble{
    1.128379167095512574,    -0.3761263890318374806,    0.1128379167095487867,    -0.02686617064507679325,
    0.005223977624818014467, -0.0008548326980833789905, 0.0001205533111164271092, -0.00001492559526683118157,
    1.646100048412136803e-6, -1.635031270105469501e-7,  1.465977527404743581e-8,  -1.137284885679167367e-9,
    5.957176147748911404e-11};
constexpr std::array kLogErfcFloat{
    -7.806815272727264359,    -8.029021011336730763,     -2.123760833123964123,
    -0.03664757804477678401,  0.01096184921763525595,    -0.003190305413141666808,
    0.0008803970815024042964, -0.0002274995038041568569, 0.00004195840012167537277};
constexpr std::array kLogErfcDouble{
    -14.1124374021481657,      -18.16524897091298057,     -6.042206592140885861,
    -0.08165090971699497978,   0.0341284111574034706,     -0.01438454836279313352,
    0.005953703271591176571,   -0.00237399677525699262,   0.0008935861371440613292,
    -0.0003078235913487473924, 0.00009085691725962407197, -0.00001845577266554955045,
    -1.352067647854446727e-6,  4.511680549644600919e-6,   -3.649522120691149196e-6,
    2.01858346642319024e-6,    -6.533886751827046801e-7,  2.648825956352049467e-7,
    -3.111333527361225246e-7,  1.134583023834798135e-7,   6.133912230606398691e-8,
    -3.511794070438111047e-8};

// (exp(r) - 1 - r) / r^2 for |r| <= log(2) / 2, the same way; largest error of exp 2e-9.
constexpr std::array kExpFloat{0.5, 0.166665769897, 0.0416665546172, 0.00836317905272, 0.00139261835877};
// erf(interval * step + t) in t: row k has the factors of t^k by interval; largest error 5e-9.
constexpr std::size_t kErfIntervals = 16;
constexpr double kErfStep = 0.265, kErfEnd = 4.1;  ///< past the end erf is 1
constexpr std::array<std::array<double, kErfIntervals>, 6> kErfByInterval{{
    {0.0, 0.2921659394, 0.5464640969, 0.7391141292, 0.8661435866, 0.9390465494, 0.9754620158, 0.9912934354,
     0.9972836068, 0.9992561886, 0.9998215122, 0.9999625108, 0.9999931146, 0.9999988951, 0.9999998452,
     0.9999999811},
    {1.128379163, 1.051857067, 0.8520434444, 0.599749769, 0.3668443034, 0.1949830276, 0.09005652391,
     0.03614405627, 0.01260555408, 0.003820237206, 0.001006055779, 0.0002302274643, 4.578208217e-5,
     7.911107587e-6, 1.187906834e-6, 1.549996834e-7},
    {0.0, -0.2787380824, -0.4515783586, -0.4767990486, -0.3888559578, -0.2583546532, -0.1431914028,
     -0.06704769063, -0.02672360855, -0.009110967974, -0.002665842925, -0.0006710166175, -0.0001455522559,
     -2.724372841e-5, -4.404759069e-6, -6.156565651e-7},
    {-0.376121754, -0.3013731427, -0.1244558859, 0.05278615566, 0.1525081891, 0.1632169991, 0.1217629948,
     0.070867544, 0.03356793613, 0.01321348449, 0.004374600234, 0.001227407232, 0.0002933625105,
     5.994851444e-5, 1.050238157e-5, 1.580630639e-6},
    {0.0, 0.1319246305, 0.1824440723, 0.1374906644, 0.04901584408, -0.02152534618, -0.04872253256,
     -0.04327401489, -0.02671186754, -0.01278790685, -0.00495443193, -0.001587269381, -0.0004258626796,
     -9.647201049e-5, -1.855638655e-5, -3.043098655e-6},
    {0.1121331221, 0.07600280494, -0.001398327754, -0.05928964271, -0.06616191995, -0.03728802391,
     -0.005449645536, 0.01081504458, 0.01250678384, 0.008174433828, 0.003904784595, 0.001467545566,
     0.0004484648185, 0.0001134595119, 2.40314775e-5, 4.293416106e-6},
}};

}  // namespace

llvm::Value* MathEmitter::number(llvm::Value* like, double value) {
  return llvm::ConstantFP::get(like->getType(), value);
}

llvm::Type* MathEmitter::integer_type(llvm::Value* like) {
  llvm::Type* scalar = is_double(like) ? static_cast<llvm::Type*>(b_.getInt64Ty()) : b_.getInt32Ty();
  if (auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(like->getType()))
    return llvm::FixedVectorType::get(scalar, vector->getNumElements());
  return scalar;
}

llvm::Value* MathEmitter::integer(llvm::Value* like, std::int64_t value) {
  return llvm::ConstantInt::get(integer_type(like), static_cast<std::uint64_t>(value), true);
}

bool MathEmitter::is_double(llvm::Value* like) { return like->getType()->getScalarType()->isDoubleTy(); }

llvm::Value* MathEmitter::multiply_add(llvm::Value* a, llvm::Value* b, llvm::Value* c) {
  // Fused where the CPU can; two operations elsewhere, never a call.
  return b_.CreateIntrinsic(llvm::Intrinsic::fmuladd, {a->getType()}, {a, b, c});
}

llvm::Value* MathEmitter::polynomial(llvm::Value* x, llvm::ArrayRef<double> coefficients) {
  llvm::Value* sum = number(x, coefficients.back());
  for (std::size_t i = coefficients.size() - 1; i-- > 0;)
    sum = multiply_add(sum, x, number(x, coefficients[i]));
  return sum;
}

llvm::Value* MathEmitter::absolute(llvm::Value* x) {
  return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
}

llvm::Value* MathEmitter::with_sign_of(llvm::Value* magnitude, llvm::Value* sign) {
  return b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, magnitude, sign);
}

llvm::Value* MathEmitter::maximum(llvm::Value* a, llvm::Value* b) {
  if (llvm::isa<llvm::Constant>(a)) std::swap(a, b);
  llvm::Value* larger = b_.CreateSelect(b_.CreateFCmpOGT(b, a), b, a);  // a when either is not a number
  if (llvm::isa<llvm::Constant>(b)) return larger;
  return b_.CreateSelect(b_.CreateFCmpUNO(b, b), b, larger);
}

llvm::Value* MathEmitter::minimum(llvm::Value* a, llvm::Value* b) {
  if (llvm::isa<llvm::Constant>(a)) std::swap(a, b);
  llvm::Value* smaller = b_.CreateSelect(b_.CreateFCmpOLT(b, a), b, a);
  if (llvm::isa<llvm::Constant>(b)) return smaller;
  return b_.CreateSelect(b_.CreateFCmpUNO(b, b), b, smaller);
}

MathEmitter::Reduced MathEmitter::reduce_exp(llvm::Value* x) {
  const Format& format = is_double(x) ? kDouble : kFloat;
  llvm::Type* integers = integer_type(x);
  llvm::Value* magic = number(x, format.magic);
  llvm::Value* shifted = multiply_add(x, number(x, 1.44269504088896340736), magic);
  llvm::Value* n = b_.CreateSub(b_.CreateBitCast(shifted, integers), b_.CreateBitCast(magic, integers));
  llvm::Value* whole = b_.CreateFSub(shifted, magic);
  llvm::Value* r = multiply_add(whole, number(x, -format.log2_high), x);
  r = multiply_add(whole, number(x, -format.log2_low), r);
  // exp(r) - 1 = r + r^2 (1/2! + r/3! + ...), |r| <= log(2) / 2
  std::vector<double> series;
  double factorial = 1;
  for (int k = 2; k <= (is_double(x) ? 13 : 7); ++k) series.push_back(1 / (factorial *= k));
  Reduced made{};
  made.minus_one = multiply_add(b_.CreateFMul(r, r), polynomial(r, series), r);
  // 2^n in two factors: one alone would leave the exponent's range before the product does.
  llvm::Value* half = b_.CreateAShr(n, integer(x, 1));
  const auto power = [&](llvm::Value* exponent) {
    llvm::Value* biased = b_.CreateAdd(exponent, integer(x, format.exponent_bias));
    return b_.CreateBitCast(b_.CreateShl(biased, integer(x, format.mantissa_bits)), x->getType());
  };
  made.scale_a = power(half);
  made.scale_b = power(b_.CreateSub(n, half));
  return made;
}

llvm::Value* MathEmitter::exp(llvm::Value* x) {
  const Format& format = is_double(x) ? kDouble : kFloat;
  // Written so that what is not a number stays.
  llvm::Value* low = number(x, format.exp_low);
  llvm::Value* high = number(x, format.exp_high);
  x = b_.CreateSelect(b_.CreateFCmpOLT(x, low), low, x);
  x = b_.CreateSelect(b_.CreateFCmpOGT(x, high), high, x);
  if (llvm::Value* made = exp_scaled(x)) return made;
  const Reduced parts = reduce_exp(x);
  llvm::Value* scaled = multiply_add(parts.minus_one, parts.scale_a, parts.scale_a);
  return b_.CreateFMul(scaled, parts.scale_b);
}

llvm::Value* MathEmitter::exp_scaled(llvm::Value* x) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  if (!wide_ || !vector) return nullptr;
  const bool doubles = is_double(x);
  llvm::Intrinsic::ID scale = llvm::Intrinsic::not_intrinsic;
  const unsigned bits = vector->getNumElements() * (doubles ? 64 : 32);
  if (bits == 512)
    scale = doubles ? llvm::Intrinsic::x86_avx512_mask_scalef_pd_512
                    : llvm::Intrinsic::x86_avx512_mask_scalef_ps_512;
  else if (bits == 256)
    scale = doubles ? llvm::Intrinsic::x86_avx512_mask_scalef_pd_256
                    : llvm::Intrinsic::x86_avx512_mask_scalef_ps_256;
  else if (bits == 128)
    scale = doubles ? llvm::Intrinsic::x86_avx512_mask_scalef_pd_128
                    : llvm::Intrinsic::x86_avx512_mask_scalef_ps_128;
  else
    return nullptr;
  const Format& format = doubles ? kDouble : kFloat;
  llvm::Value* magic = number(x, format.magic);
  llvm::Value* whole = b_.CreateFSub(multiply_add(x, number(x, 1.44269504088896340736), magic), magic);
  llvm::Value* r = multiply_add(whole, number(x, -format.log2_high), x);
  r = multiply_add(whole, number(x, -format.log2_low), r);
  std::vector<double> series{1, 1};
  double factorial = 1;
  if (doubles)
    for (int k = 2; k <= 13; ++k) series.push_back(1 / (factorial *= k));
  else
    series.insert(series.end(), kExpFloat.begin(), kExpFloat.end());
  llvm::Value* power = polynomial(r, series);
  const unsigned mask_bits = std::max(8U, vector->getNumElements());
  std::vector<llvm::Value*> arguments{power, whole, power,
                                      llvm::Constant::getAllOnesValue(b_.getIntNTy(mask_bits))};
  constexpr std::uint32_t kRoundAsSet = 4;
  if (bits == 512) arguments.push_back(b_.getInt32(kRoundAsSet));
  return b_.CreateIntrinsic(scale, {}, arguments);
}

/// erf(middle + t) in t, one polynomial for each of sixteen intervals: an instruction looks a coefficient up
/// for all lanes.
llvm::Value* MathEmitter::erf_by_table(llvm::Value* x) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  if (!wide_ || !vector || is_double(x) || vector->getNumElements() != kErfIntervals) return nullptr;
  llvm::Value* size = absolute(x);
  llvm::Value* last = number(x, kErfEnd);
  size = b_.CreateSelect(b_.CreateFCmpOGT(size, last), last, size);
  llvm::Value* magic = number(x, kFloat.magic);
  llvm::Value* shifted = multiply_add(size, number(x, 1 / kErfStep), magic);
  llvm::Value* middle = b_.CreateFSub(shifted, magic);
  llvm::Value* t = multiply_add(middle, number(x, -kErfStep), size);
  llvm::Value* interval = b_.CreateBitCast(shifted, integer_type(x));  // its last bits choose
  llvm::Value* sum = nullptr;
  for (std::size_t power = kErfByInterval.size(); power-- > 0;) {
    std::vector<llvm::Constant*> row;
    for (const double value : kErfByInterval[power])
      row.push_back(llvm::ConstantFP::get(vector->getElementType(), value));
    llvm::Value* coefficient = b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_permvar_sf_512, {},
                                                  {llvm::ConstantVector::get(row), interval});
    sum = sum ? multiply_add(sum, t, coefficient) : coefficient;
  }
  return with_sign_of(sum, x);
}

/// Accurate near zero; |x| < 80 in float.
llvm::Value* MathEmitter::expm1(llvm::Value* x) {
  const Reduced parts = reduce_exp(x);
  llvm::Value* scale = b_.CreateFMul(parts.scale_a, parts.scale_b);
  return multiply_add(parts.minus_one, scale, b_.CreateFSub(scale, number(x, 1)));
}

llvm::Value* MathEmitter::log(llvm::Value* x) {
  const Format& format = is_double(x) ? kDouble : kFloat;
  llvm::Type* integers = integer_type(x);
  llvm::Value* tiny = b_.CreateFCmpOLT(x, number(x, format.smallest_normal));
  const double scale = std::ldexp(1.0, format.mantissa_bits + 1);
  llvm::Value* normal = b_.CreateSelect(tiny, b_.CreateFMul(x, number(x, scale)), x);
  // normal = 2^e m with sqrt(1/2) <= m < sqrt(2)
  llvm::Value* bits = b_.CreateBitCast(normal, integers);
  llvm::Value* root = b_.CreateBitCast(number(x, std::sqrt(0.5)), integers);
  llvm::Value* e = b_.CreateAShr(b_.CreateSub(bits, root), integer(x, format.mantissa_bits));
  llvm::Value* m =
      b_.CreateBitCast(b_.CreateSub(bits, b_.CreateShl(e, integer(x, format.mantissa_bits))), x->getType());
  e = b_.CreateSub(e, b_.CreateSelect(tiny, integer(x, format.mantissa_bits + 1), integer(x, 0)));
  llvm::Value* exponent = b_.CreateSIToFP(e, x->getType());
  // log m = 2 atanh(s) = 2 s (1 + s^2/3 + s^4/5 + ...), s = (m - 1) / (m + 1), |s| < 0.172
  llvm::Value* f = b_.CreateFSub(m, number(x, 1));
  llvm::Value* s = b_.CreateFDiv(f, b_.CreateFAdd(f, number(x, 2)));
  llvm::Value* z = b_.CreateFMul(s, s);
  std::vector<double> series;
  for (int k = 1; k <= (is_double(x) ? 11 : 5); ++k) series.push_back(2.0 / (2 * k + 1));
  llvm::Value* tail = b_.CreateFMul(b_.CreateFMul(s, z), polynomial(z, series));
  tail = multiply_add(exponent, number(x, format.log2_low), tail);
  llvm::Value* made = b_.CreateFAdd(multiply_add(s, number(x, 2), tail),
                                    b_.CreateFMul(exponent, number(x, format.log2_high)));
  made = b_.CreateSelect(b_.CreateFCmpOEQ(x, number(x, kInfinity)), x, made);
  made = b_.CreateSelect(b_.CreateFCmpOEQ(x, number(x, 0)), number(x, -kInfinity), made);
  return b_.CreateSelect(b_.CreateFCmpULT(x, number(x, 0)), number(x, kNan), made);
}

llvm::Value* MathEmitter::tanh(llvm::Value* x) {
  // tanh |x| = e / (e + 2) with e = exp(2 |x|) - 1; past `flat` the result is 1.
  llvm::Value* size = absolute(x);
  llvm::Value* flat = number(x, is_double(x) ? 20.0 : 10.0);
  size = b_.CreateSelect(b_.CreateFCmpOGT(size, flat), flat, size);
  llvm::Value* e = expm1(b_.CreateFAdd(size, size));
  return with_sign_of(b_.CreateFDiv(e, b_.CreateFAdd(e, number(x, 2))), x);
}

llvm::Value* MathEmitter::erf(llvm::Value* x) {
  if (llvm::Value* made = erf_by_table(x)) return made;
  const bool wide = is_double(x);
  const double end = wide ? 6 : 4;  // past it erf is 1
  llvm::Value* size = absolute(x);
  llvm::Value* near =
      wide ? polynomial(b_.CreateFMul(x, x), kErfDouble) : polynomial(b_.CreateFMul(x, x), kErfFloat);
  near = b_.CreateFMul(size, near);
  llvm::Value* last = number(x, end);
  llvm::Value* far = b_.CreateSelect(b_.CreateFCmpOGT(size, last), last, size);
  llvm::Value* t = multiply_add(far, number(x, 2 / (end - 1)), number(x, -(end + 1) / (end - 1)));
  llvm::Value* logarithm = wide ? polynomial(t, kLogErfcDouble) : polynomial(t, kLogErfcFloat);
  far = b_.CreateFSub(number(x, 1), exp(logarithm));
  // The near polynomial may overflow to something that is not a number far out: it is not chosen there.
  return with_sign_of(b_.CreateSelect(b_.CreateFCmpOLT(size, number(x, 1)), near, far), x);
}

llvm::Value* MathEmitter::sigmoid(llvm::Value* x) {
  return b_.CreateFDiv(number(x, 1), b_.CreateFAdd(number(x, 1), exp(b_.CreateFNeg(x))));
}

llvm::Value* MathEmitter::gelu(llvm::Value* x) {
  llvm::Value* half = b_.CreateFMul(x, number(x, 0.5));
  return multiply_add(half, erf(b_.CreateFMul(x, number(x, std::sqrt(0.5)))), half);
}

llvm::Value* MathEmitter::power(llvm::Value* x, llvm::Value* y) {
  auto* constant = llvm::dyn_cast<llvm::Constant>(y);
  if (constant && constant->getType()->isVectorTy()) constant = constant->getSplatValue();
  if (auto* literal = llvm::dyn_cast_or_null<llvm::ConstantFP>(constant)) {
    const double exponent = is_double(x) ? literal->getValueAPF().convertToDouble()
                                         : static_cast<double>(literal->getValueAPF().convertToFloat());
    if (exponent == 0.5)
      return b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, b_.CreateFAdd(x, number(x, 0)));
    if (exponent == std::floor(exponent) && std::abs(exponent) <= 16) {
      llvm::Value* made = number(x, 1);
      llvm::Value* square = x;
      for (auto n = static_cast<unsigned>(std::abs(exponent)); n != 0; n >>= 1) {
        if (n & 1) made = b_.CreateFMul(made, square);
        if (n > 1) square = b_.CreateFMul(square, square);
      }
      return exponent < 0 ? b_.CreateFDiv(number(x, 1), made) : made;
    }
  }
  if (!is_double(x)) {
    // The exponent magnifies the logarithm's error: twice the precision hides it.
    llvm::Type* wide = b_.getDoubleTy();
    if (auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType()))
      wide = llvm::FixedVectorType::get(wide, vector->getNumElements());
    return b_.CreateFPTrunc(power(b_.CreateFPExt(x, wide), b_.CreateFPExt(y, wide)), x->getType());
  }
  llvm::Value* made = exp(b_.CreateFMul(y, log(absolute(x))));
  // Negative bases: only whole exponents, odd ones keep the sign. Past 2^53 every double is even.
  llvm::Value* large = number(y, 9007199254740992.0);
  llvm::Value* size = absolute(y);
  llvm::Value* fits = b_.CreateFCmpOLT(size, large);
  llvm::Value* safe = b_.CreateSelect(fits, y, number(y, 0));
  llvm::Value* whole = b_.CreateFPToSI(safe, integer_type(x));
  llvm::Value* is_whole = b_.CreateFCmpOEQ(b_.CreateSIToFP(whole, x->getType()), safe);
  llvm::Value* odd = b_.CreateICmpNE(b_.CreateAnd(whole, integer(x, 1)), integer(x, 0));
  llvm::Value* negative = b_.CreateFCmpOLT(x, number(x, 0));
  llvm::Value* signed_value = b_.CreateSelect(b_.CreateAnd(negative, odd), b_.CreateFNeg(made), made);
  made = b_.CreateSelect(b_.CreateAnd(negative, b_.CreateNot(is_whole)), number(x, kNan), signed_value);
  llvm::Value* one = b_.CreateOr(b_.CreateFCmpOEQ(y, number(y, 0)), b_.CreateFCmpOEQ(x, number(x, 1)));
  return b_.CreateSelect(one, number(x, 1), made);
}

}  // namespace syno::jit
