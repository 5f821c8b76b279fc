// Elementary functions as polynomials, on scalars or vectors of float or double.
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <tuple>
#include <utility>
#include <vector>

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
// interpolation at 50 digits; largest errors 1e-9 and 2e-8 (float), 2e-19 (double, near).
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

// exp(a^2/2) times the normal distribution's tail at a, in (a - middle) / (a + middle), for 0 <= a <= end:
// past it a times the tail is 0. Chebyshev interpolation at 60 digits; largest relative errors 4e-8 and
// 2e-18.
struct Tail {
  double middle, end;
  std::int64_t high_bits;  ///< of a, whose square is exact
};
constexpr Tail kTailFloat{3, 14.5, ~std::int64_t{0xfff}}, kTailDouble{5, 39, ~std::int64_t{0x7ffffff}};
constexpr std::array kTailByFloat{0.121513947846,    -0.206402621867,  0.123225016178,     -0.0462132540263,
                                  0.00613223628706,  0.00290447903652, -0.000984372194984, -0.000339674573536,
                                  0.000116249615941, 5.41519389571e-5};
constexpr std::array kTailByDouble{
    0.07691930497500629597,   -0.1434575552640119804,    0.1160688118860032866,      -0.0808838772641264327,
    0.04785535228416983821,   -0.02341390048772571635,   0.008991370550604691116,    -0.00237884435615923838,
    0.0002195507373680019753, 0.0001342768386408786344,  -0.00006042748077389118087, 9.61332550938566284e-7,
    6.644412747384835564e-6,  -1.27017349578498624e-6,   -6.750605736908356881e-7,   2.435886914521091698e-7,
    7.709830925025265923e-8,  -3.956654624164678095e-8,  -1.103895336287161915e-8,   6.109108401184736606e-9,
    1.931006360844654025e-9,  -8.261137110772854412e-10, -3.292701247159749427e-10,  6.911491827986551979e-11,
    3.428344300319675669e-11};

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

// exp(a^2/2) times the tail at a in a + 1 - s, s the quarter of a power of two below a + 1: row k has the
// factors of its k-th power by the last four bits of s's exponent and quarter; largest relative error 9e-8.
constexpr int kQuarterBits = 21;  ///< of the mantissa, below those that tell quarters apart
constexpr std::array<std::array<double, 16>, 6> kTailByQuarter{
    {{0.2615782869, 0.2057806651, 0.1681020005, 0.141331331, 0.1215139407, 0.09441063924, 0.07691930431,
      0.06477931408, 0.05589347782, 0.0437987878, 0.0359748893, 0.03050941438, 0.499999999, 0.4140321024,
      0.3496188344, 0.3002324622},
     {-0.1373632658, -0.09027100778, -0.06273816666, -0.04561390298, -0.03439988541, -0.02129956661,
      -0.01434570778, -0.01026637684, -0.007687736378, -0.00475314177, -0.00321848312, -0.002319887941,
      -0.3989420063, -0.2954341059, -0.2241327801, -0.1737678861},
     {0.06209010155, 0.03518045894, 0.02131010172, 0.01364707357, 0.009149804625, 0.004604133596,
      0.002594700174, 0.001590266223, 0.001038088118, 0.0005098522683, 0.0002856570687, 0.0001753857738,
      0.2499871226, 0.1700797852, 0.1187723059, 0.08495102483},
     {-0.0249367553, -0.01244110098, -0.006681482976, -0.003821124329, -0.00228177626, -0.0009510138371,
      -0.0004540167773, -0.0002402794868, -0.00013591997, -5.364289831e-5, -2.502640941e-5, -1.313783636e-5,
      -0.1327579487, -0.0841834173, -0.05484760066, -0.03664579554},
     {0.008655594325, 0.003886027683, 0.001884865385, 0.0009777028051, 0.0004973153837, 0.0001770934093,
      7.324673953e-5, 3.402709031e-5, 1.579473769e-5, 5.171947082e-6, 2.051916571e-6, 9.343763222e-7,
      0.06073549787, 0.0362974492, 0.02229783791, 0.01405590032},
     {-0.001996701119, -0.0008324952162, -0.000375378283, -0.0001813047171, -6.876402091e-5, -2.198255893e-5,
      -8.212914831e-6, -3.468837797e-6, -1.154012309e-6, -3.322677339e-7, -1.173907767e-7, -4.812581832e-8,
      -0.01996354811, -0.01141687362, -0.006710918695, -0.004048171355}}};

/// Whether a constant is surely a number, in every lane.
bool is_number(const llvm::Value* value) {
  const auto* constant = llvm::dyn_cast<llvm::Constant>(value);
  if (constant == nullptr) return false;
  if (constant->getType()->isVectorTy()) constant = constant->getSplatValue();
  const auto* literal = llvm::dyn_cast_or_null<llvm::ConstantFP>(constant);
  return literal != nullptr && !literal->getValueAPF().isNaN();
}

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
  if (target_.orders_with_nan) return b_.CreateBinaryIntrinsic(llvm::Intrinsic::maximum, a, b);
  if (llvm::isa<llvm::Constant>(a)) std::swap(a, b);
  llvm::Value* larger = b_.CreateSelect(b_.CreateFCmpOGT(b, a), b, a);  // a when either is not a number
  if (is_number(b)) return larger;
  return b_.CreateSelect(b_.CreateFCmpUNO(b, b), b, larger);
}

llvm::Value* MathEmitter::minimum(llvm::Value* a, llvm::Value* b) {
  if (target_.orders_with_nan) return b_.CreateBinaryIntrinsic(llvm::Intrinsic::minimum, a, b);
  if (llvm::isa<llvm::Constant>(a)) std::swap(a, b);
  llvm::Value* smaller = b_.CreateSelect(b_.CreateFCmpOLT(b, a), b, a);
  if (is_number(b)) return smaller;
  return b_.CreateSelect(b_.CreateFCmpUNO(b, b), b, smaller);
}

llvm::Value* MathEmitter::is_negative(llvm::Value* x) {
  return b_.CreateICmpSLT(b_.CreateBitCast(x, integer_type(x)), integer(x, 0));
}

MathEmitter::Reduced MathEmitter::reduce_exp(llvm::Value* x, llvm::Value* low) {
  const Format& format = is_double(x) ? kDouble : kFloat;
  llvm::Type* integers = integer_type(x);
  llvm::Value* magic = number(x, format.magic);
  llvm::Value* shifted = multiply_add(x, number(x, 1.44269504088896340736), magic);
  llvm::Value* n = b_.CreateSub(b_.CreateBitCast(shifted, integers), b_.CreateBitCast(magic, integers));
  llvm::Value* whole = b_.CreateFSub(shifted, magic);
  llvm::Value* r = multiply_add(whole, number(x, -format.log2_high), x);
  r = multiply_add(whole, number(x, -format.log2_low), r);
  if (low) r = b_.CreateFAdd(r, low);
  // exp(r) - 1 = r + r^2 (1/2! + r/3! + ...), |r| <= log(2) / 2
  std::vector<double> series;
  double factorial = 1;
  for (int k = 2; k <= (is_double(x) ? exp_terms() : 7); ++k) series.push_back(1 / (factorial *= k));
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
  llvm::Value* high = number(x, (is_double(x) ? kDouble : kFloat).exp_high);
  x = at_least(x, (is_double(x) ? kDouble : kFloat).exp_low);
  x = b_.CreateSelect(b_.CreateFCmpOGT(x, high), high, x);
  return exp_times(x, nullptr, nullptr);
}

/// What is not a number stays.
llvm::Value* MathEmitter::at_least(llvm::Value* x, double least) {
  llvm::Value* low = number(x, least);
  return b_.CreateSelect(b_.CreateFCmpOLT(x, low), low, x);
}

llvm::Value* MathEmitter::exp_times(llvm::Value* x, llvm::Value* low, llvm::Value* factor) {
  if (llvm::Value* made = exp_scaled(x, low, factor)) return made;
  const Reduced parts = reduce_exp(x, low);
  llvm::Value* scaled = multiply_add(parts.minus_one, parts.scale_a, parts.scale_a);
  if (factor) scaled = b_.CreateFMul(scaled, factor);
  return b_.CreateFMul(scaled, parts.scale_b);
}

llvm::Value* MathEmitter::exp_scaled(llvm::Value* x, llvm::Value* low, llvm::Value* factor) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
  if (!target_.scales_by_exponent || !vector) return nullptr;
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
  if (low) r = b_.CreateFAdd(r, low);
  std::vector<double> series{1, 1};
  double factorial = 1;
  if (doubles)
    for (int k = 2; k <= exp_terms(); ++k) series.push_back(1 / (factorial *= k));
  else
    series.insert(series.end(), kExpFloat.begin(), kExpFloat.end());
  llvm::Value* power = polynomial(r, series);
  if (factor) power = b_.CreateFMul(power, factor);
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
  if (!looks_up(x)) return nullptr;
  llvm::Value* size = absolute(x);
  llvm::Value* last = number(x, kErfEnd);
  size = b_.CreateSelect(b_.CreateFCmpOGT(size, last), last, size);
  llvm::Value* magic = number(x, kFloat.magic);
  llvm::Value* shifted = multiply_add(size, number(x, 1 / kErfStep), magic);
  llvm::Value* middle = b_.CreateFSub(shifted, magic);
  llvm::Value* t = multiply_add(middle, number(x, -kErfStep), size);
  llvm::Value* interval = b_.CreateBitCast(shifted, integer_type(x));  // its last bits choose
  return with_sign_of(polynomial_by_lane(t, interval, kErfByInterval), x);
}

/// Of the row of each power, the last four bits of `which` choose a factor.
llvm::Value* MathEmitter::polynomial_by_lane(llvm::Value* x, llvm::Value* which,
                                             llvm::ArrayRef<std::array<double, 16>> rows) {
  llvm::Value* sum = nullptr;
  for (std::size_t power = rows.size(); power-- > 0;) {
    std::vector<llvm::Constant*> row;
    for (const double value : rows[power])
      row.push_back(llvm::ConstantFP::get(x->getType()->getScalarType(), value));
    llvm::Value* factor = b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_permvar_sf_512, {},
                                             {llvm::ConstantVector::get(row), which});
    sum = sum ? multiply_add(sum, x, factor) : factor;
  }
  return sum;
}

/// Whether a table of 16 numbers has one for each lane: an instruction looks them all up.
bool MathEmitter::looks_up(llvm::Value* like) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(like->getType());
  return target_.looks_up_lanes && vector && !is_double(like) && vector->getNumElements() == 16;
}

/// Accurate near zero; |x| < 80 in float.
llvm::Value* MathEmitter::expm1(llvm::Value* x) {
  const Reduced parts = reduce_exp(x, nullptr);
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
  for (int k = 1; k <= (is_double(x) ? (brief_ ? 6 : 11) : 5); ++k) series.push_back(2.0 / (2 * k + 1));
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
  llvm::Value* beyond = nullptr;
  if (wide) {
    llvm::Value* a = b_.CreateFMul(far, number(x, std::numbers::sqrt2));
    llvm::Value* square = b_.CreateFMul(far, b_.CreateFNeg(far));
    beyond = exp_times(square, nullptr, b_.CreateFMul(number(x, 2), tail_ratio(a)));
  } else {
    llvm::Value* t = multiply_add(far, number(x, 2 / (end - 1)), number(x, -(end + 1) / (end - 1)));
    beyond = exp(polynomial(t, kLogErfcFloat));
  }
  far = b_.CreateFSub(number(x, 1), beyond);
  // The near polynomial may overflow to something that is not a number far out: it is not chosen there.
  return with_sign_of(b_.CreateSelect(b_.CreateFCmpOLT(size, number(x, 1)), near, far), x);
}

/// The normal distribution's tail at a, times exp(a^2/2).
llvm::Value* MathEmitter::tail_ratio(llvm::Value* a) {
  llvm::Value* middle = number(a, (is_double(a) ? kTailDouble : kTailFloat).middle);
  llvm::Value* t = b_.CreateFDiv(b_.CreateFSub(a, middle), b_.CreateFAdd(a, middle));
  return is_double(a) ? polynomial(t, kTailByDouble) : polynomial(t, kTailByFloat);
}

/// Where there are tables for all lanes (AVX-512) there is an estimate of fourteen bits, too, which one step
/// of Newton's makes as good as a root and a division, at a quarter of their time.
llvm::Value* MathEmitter::rsqrt(llvm::Value* x) {
  if (!looks_up(x)) return b_.CreateFDiv(number(x, 1), b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x));
  llvm::Value* estimate =
      b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_rsqrt14_ps_512, {},
                         {x, llvm::Constant::getNullValue(x->getType()), b_.getInt16(0xffff)});
  llvm::Value* missing = multiply_add(b_.CreateFMul(b_.CreateFNeg(x), estimate), estimate, number(x, 1));
  llvm::Value* better = multiply_add(b_.CreateFMul(estimate, number(x, 0.5)), missing, estimate);
  // 0 times infinity: of zeros and of infinity the estimate is exact.
  return b_.CreateSelect(b_.CreateFCmpUNO(missing, missing), estimate, better);
}

llvm::Value* MathEmitter::sigmoid(llvm::Value* x) {
  // Of -|x|, whose exponential cannot overflow where the result is a small number yet.
  llvm::Value* size = b_.CreateFNeg(absolute(x));
  llvm::Value* e = exp_times(at_least(size, (is_double(x) ? kDouble : kFloat).exp_low), nullptr, nullptr);
  llvm::Value* numerator = b_.CreateSelect(is_negative(x), e, number(x, 1));
  return b_.CreateFDiv(numerator, b_.CreateFAdd(number(x, 1), e));
}

llvm::Value* MathEmitter::gelu(llvm::Value* x) {
  // x - |x| T(|x|) for x > 0, - |x| T(|x|) else, T the normal distribution's tail: nothing cancels.
  const Tail& tail = is_double(x) ? kTailDouble : kTailFloat;
  llvm::Value* size = absolute(x);
  llvm::Value* last = number(x, tail.end);
  size = b_.CreateSelect(b_.CreateFCmpOGT(size, last), last, size);
  // -size^2 / 2 in two parts: a rounding error of it would be magnified by as much as it is large.
  llvm::Type* integers = integer_type(x);
  llvm::Value *high = nullptr, *low = nullptr, *ratio = nullptr;
  if (looks_up(x)) {  // where products are fused with sums, too: one tells what another rounded
    llvm::Value* half = b_.CreateFMul(size, number(x, -0.5));
    high = b_.CreateFMul(half, size);
    low = multiply_add(half, size, b_.CreateFNeg(high));
    llvm::Value* from_one = b_.CreateFAdd(size, number(x, 1));
    llvm::Value* bits = b_.CreateBitCast(from_one, integers);
    llvm::Value* quarter = b_.CreateBitCast(
        b_.CreateAnd(bits, integer(x, ~((std::int64_t{1} << kQuarterBits) - 1))), x->getType());
    ratio = polynomial_by_lane(b_.CreateFSub(from_one, quarter),
                               b_.CreateLShr(bits, integer(x, kQuarterBits)), kTailByQuarter);
  } else {
    llvm::Value* first = b_.CreateBitCast(
        b_.CreateAnd(b_.CreateBitCast(size, integers), integer(x, tail.high_bits)), x->getType());
    high = b_.CreateFMul(first, b_.CreateFMul(first, number(x, -0.5)));
    low =
        b_.CreateFMul(b_.CreateFMul(b_.CreateFSub(size, first), number(x, -0.5)), b_.CreateFAdd(size, first));
    ratio = tail_ratio(size);
  }
  llvm::Value* part = exp_times(high, low, b_.CreateFMul(size, ratio));
  // x * 0: zero with its sign, and what is not a number of minus infinity, as torch has it.
  llvm::Value* whole = b_.CreateSelect(is_negative(x), b_.CreateFMul(x, number(x, 0)), x);
  return b_.CreateFSub(whole, part);
}

llvm::Value* MathEmitter::power(llvm::Value* x, llvm::Value* y) {
  auto* constant = llvm::dyn_cast<llvm::Constant>(y);
  if (constant && constant->getType()->isVectorTy()) constant = constant->getSplatValue();
  if (auto* literal = llvm::dyn_cast_or_null<llvm::ConstantFP>(constant)) {
    const double exponent = is_double(x) ? literal->getValueAPF().convertToDouble()
                                         : static_cast<double>(literal->getValueAPF().convertToFloat());
    if (exponent == 0.5) {
      llvm::Value* root = b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, b_.CreateFAdd(x, number(x, 0)));
      return b_.CreateSelect(b_.CreateFCmpOEQ(x, number(x, -kInfinity)), number(x, kInfinity), root);
    }
    if (exponent == std::floor(exponent) && std::abs(exponent) <= 16) {
      // The reciprocal first: the power of x may over- or underflow where that of 1 / x has a value.
      llvm::Value* made = number(x, 1);
      llvm::Value* square = exponent < 0 ? b_.CreateFDiv(made, x) : x;
      for (auto n = static_cast<unsigned>(std::abs(exponent)); n != 0; n >>= 1) {
        if (n & 1) made = b_.CreateFMul(made, square);
        if (n > 1) square = b_.CreateFMul(square, square);
      }
      return made;
    }
  }
  if (!is_double(x)) {
    // The exponent magnifies the logarithm's error: twice the precision hides it.
    llvm::Type* narrow = x->getType();
    llvm::Type* wide = b_.getDoubleTy();
    if (auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType()))
      wide = llvm::FixedVectorType::get(wide, vector->getNumElements());
    brief_ = true;
    llvm::Value* product = b_.CreateFMul(b_.CreateFPExt(y, wide), log(b_.CreateFPExt(absolute(x), wide)));
    llvm::Value* made = b_.CreateFPTrunc(exp(product), narrow);
    brief_ = false;
    return with_signs(x, y, made);
  }
  return with_signs(x, y, power_of_size(absolute(x), y));
}

/// x^y for x >= 0 in double, but for 1^y and x^0: exp(y log x), both in twice the precision, without fused
/// operations, which not every CPU has.
llvm::Value* MathEmitter::power_of_size(llvm::Value* x, llvm::Value* y) {
  using Pair = std::pair<llvm::Value*, llvm::Value*>;  // a sum, not rounded
  const auto times = [&](llvm::Value* a, llvm::Value* b) { return b_.CreateFMul(a, b); };
  const auto plus = [&](llvm::Value* a, llvm::Value* b) { return b_.CreateFAdd(a, b); };
  const auto minus = [&](llvm::Value* a, llvm::Value* b) { return b_.CreateFSub(a, b); };
  const auto sum = [&](llvm::Value* a, llvm::Value* b) -> Pair {  // |a| >= |b|, or a = 0
    llvm::Value* total = plus(a, b);
    return {total, plus(minus(a, total), b)};
  };
  const auto halves = [&](llvm::Value* a) -> Pair {  // Veltkamp
    llvm::Value* wide = times(a, number(a, 134217729.0));
    llvm::Value* high = minus(wide, minus(wide, a));
    return {high, minus(a, high)};
  };
  const auto product = [&](llvm::Value* a, llvm::Value* b) -> Pair {  // Dekker
    llvm::Value* whole = times(a, b);
    const auto [ah, al] = halves(a);
    const auto [bh, bl] = halves(b);
    llvm::Value* rest = minus(times(ah, bh), whole);
    rest = plus(plus(plus(rest, times(ah, bl)), times(al, bh)), times(al, bl));
    return {whole, rest};
  };
  const Format& format = kDouble;
  llvm::Type* integers = integer_type(x);
  llvm::Value* tiny = b_.CreateFCmpOLT(x, number(x, format.smallest_normal));
  llvm::Value* normal =
      b_.CreateSelect(tiny, times(x, number(x, std::ldexp(1.0, format.mantissa_bits + 1))), x);
  llvm::Value* bits = b_.CreateBitCast(normal, integers);
  llvm::Value* root = b_.CreateBitCast(number(x, std::sqrt(0.5)), integers);
  llvm::Value* e = b_.CreateAShr(b_.CreateSub(bits, root), integer(x, format.mantissa_bits));
  llvm::Value* m =
      b_.CreateBitCast(b_.CreateSub(bits, b_.CreateShl(e, integer(x, format.mantissa_bits))), x->getType());
  e = b_.CreateSub(e, b_.CreateSelect(tiny, integer(x, format.mantissa_bits + 1), integer(x, 0)));
  llvm::Value* exponent = b_.CreateSIToFP(e, x->getType());
  // log m = s (2 + 2/3 z + 2/5 z^2 + ...), s = f / (2 + f), f = m - 1, z = s^2
  llvm::Value* f = minus(m, number(x, 1));
  const auto [d, d_rest] = sum(number(x, 2), f);
  llvm::Value* s = b_.CreateFDiv(f, d);
  const auto [sd, sd_rest] = product(s, d);
  llvm::Value* s_rest = b_.CreateFDiv(minus(minus(minus(f, sd), sd_rest), times(s, d_rest)), d);
  auto [z, z_rest] = product(s, s);
  z_rest = plus(z_rest, times(times(number(x, 2), s), s_rest));
  std::vector<double> series;
  for (int k = 2; k <= 11; ++k) series.push_back(2.0 / (2 * k + 1));
  llvm::Value* far = times(times(z, z), polynomial(z, series));
  constexpr double kTwoThirds = 2.0 / 3;  // and what is missing in it
  auto [third, third_rest] = product(z, number(x, kTwoThirds));
  third_rest = plus(
      third_rest, plus(times(z, number(x, 3.7007434154171882626e-17)), times(z_rest, number(x, kTwoThirds))));
  auto [w, w_rest] = sum(third, far);
  w_rest = plus(w_rest, third_rest);
  auto [v, v_rest] = sum(number(x, 2), w);
  v_rest = plus(v_rest, w_rest);
  auto [log_m, log_rest] = product(s, v);
  log_rest = plus(log_rest, plus(times(s, v_rest), times(s_rest, v)));
  auto [high, low] = sum(times(exponent, number(x, format.log2_high)), log_m);
  low = plus(low, plus(log_rest, times(exponent, number(x, format.log2_low))));
  std::tie(high, low) = sum(high, low);
  // Zero, infinity and what is not a number have their logarithm at once.
  llvm::Value* usual =
      b_.CreateAnd(b_.CreateFCmpOGT(x, number(x, 0)), b_.CreateFCmpOLT(x, number(x, kInfinity)));
  llvm::Value* unusual = b_.CreateSelect(b_.CreateFCmpOEQ(x, number(x, 0)), number(x, -kInfinity), x);
  high = b_.CreateSelect(usual, high, unusual);
  // Past the exponent's range both ways for every x but 1; products with infinity would be no numbers.
  constexpr double kHuge = 0x1p100;
  llvm::Value* size = absolute(y);
  llvm::Value* far_out = b_.CreateFCmpOGT(size, number(x, kHuge));
  llvm::Value* bounded = b_.CreateSelect(far_out, with_sign_of(number(x, kHuge), y), y);
  auto [p, p_rest] = product(bounded, high);
  p_rest = plus(p_rest, times(bounded, low));
  llvm::Value* within = b_.CreateFCmpOLT(absolute(p), number(x, 1024));
  p_rest = b_.CreateSelect(within, p_rest, number(x, 0));
  llvm::Value* last = number(x, format.exp_high);
  p = at_least(p, format.exp_low);
  p = b_.CreateSelect(b_.CreateFCmpOGT(p, last), last, p);
  return exp_times(p, p_rest, nullptr);
}

/// What C's pow() makes of |x|^y = `made`.
llvm::Value* MathEmitter::with_signs(llvm::Value* x, llvm::Value* y, llvm::Value* made) {
  // Negative bases: only whole exponents, odd ones keep the sign. Past 2^53 every double is even, past 2^24
  // every float.
  llvm::Value* large = number(y, is_double(y) ? 0x1p53 : 0x1p24);
  llvm::Value* size = absolute(y);
  llvm::Value* fits = b_.CreateFCmpOLT(size, large);
  llvm::Value* safe = b_.CreateSelect(fits, y, number(y, 0));
  llvm::Value* whole = b_.CreateFPToSI(safe, integer_type(x));
  llvm::Value* is_whole = b_.CreateFCmpOEQ(b_.CreateSIToFP(whole, x->getType()), safe);
  llvm::Value* odd = b_.CreateICmpNE(b_.CreateAnd(whole, integer(x, 1)), integer(x, 0));
  llvm::Value* swapped = b_.CreateAnd(is_negative(x), b_.CreateAnd(odd, is_whole));
  made = b_.CreateSelect(swapped, b_.CreateFNeg(made), made);
  llvm::Value* finite =
      b_.CreateAnd(b_.CreateFCmpOLT(x, number(x, 0)), b_.CreateFCmpONE(x, number(x, -kInfinity)));
  made = b_.CreateSelect(b_.CreateAnd(finite, b_.CreateNot(is_whole)), number(x, kNan), made);
  llvm::Value* one = b_.CreateOr(b_.CreateFCmpOEQ(y, number(y, 0)), b_.CreateFCmpOEQ(x, number(x, 1)));
  llvm::Value* endless = b_.CreateFCmpOEQ(size, number(y, kInfinity));
  one = b_.CreateOr(one, b_.CreateAnd(endless, b_.CreateFCmpOEQ(x, number(x, -1))));
  return b_.CreateSelect(one, number(x, 1), made);
}

}  // namespace syno::jit
