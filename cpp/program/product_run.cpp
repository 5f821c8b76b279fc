#include "program/product_run.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace syno::program::detail {
namespace {

/// Elements of a factor that lie further apart than so many are no faster side by side than term after term,
/// and what they are made of would be asked for in an order in which it lies apart, too.
constexpr std::int64_t kFarthest = 4;

/// Indices that divide by more leave too little side by side.
constexpr std::int64_t kMostStride = 8;

/// Sums of a row's elements, from the first one that is added to.
struct Totals {
  double *value, *absolute, *low, *high, *size;
};

#if defined(__GNUC__)
#define SYNO_ALWAYS_INLINE inline __attribute__((always_inline))
#else
#define SYNO_ALWAYS_INLINE inline
#endif
// Sums are nobody's factors.
#if defined(__clang__)
#define SYNO_SIDE_BY_SIDE _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define SYNO_SIDE_BY_SIDE _Pragma("GCC ivdep")
#else
#define SYNO_SIDE_BY_SIDE
#endif

SYNO_ALWAYS_INLINE double least(double a, double b) { return a < b ? a : b; }
SYNO_ALWAYS_INLINE double most(double a, double b) { return a > b ? a : b; }

/// Products whose factors are given. Side by side: neighbours of `a`, one element of `b`.
template <bool kSideBySide>
SYNO_ALWAYS_INLINE void given_body(const FactorRow& a, const FactorRow& b, std::int64_t count, double,
                                   const Totals& to) {
  double *value = to.value, *absolute = to.absolute;
  const double *x = a.value, *y = b.value;
  const std::int64_t step_a = kSideBySide ? 1 : a.step, step_b = kSideBySide ? 0 : b.step;
  SYNO_SIDE_BY_SIDE
  for (std::int64_t k = 0; k < count; ++k) {
    const double term = x[k * step_a] * y[k * step_b];
    value[k] += term;
    absolute[k] += std::abs(term);
  }
}

/// Products one of whose factors at least has a range; given ones are exact.
template <bool kGivenA, bool kGivenB, bool kSideBySide>
SYNO_ALWAYS_INLINE void ranges_body(const FactorRow& a, const FactorRow& b, std::int64_t count, double unit,
                                    const Totals& to) {
  double *value = to.value, *absolute = to.absolute, *lows = to.low, *highs = to.high, *size = to.size;
  const double *x_value = a.value, *x_absolute = a.absolute, *x_low = a.low, *x_high = a.high;
  const double *y_value = b.value, *y_absolute = b.absolute, *y_low = b.low, *y_high = b.high;
  const std::int64_t step_a = kSideBySide ? 1 : a.step, step_b = kSideBySide ? 0 : b.step;
  SYNO_SIDE_BY_SIDE
  for (std::int64_t k = 0; k < count; ++k) {
    const std::int64_t i = k * step_a, j = k * step_b;
    const double x = x_value[i], y = y_value[j];
    const double xl = kGivenA ? x : x_low[i], xh = kGivenA ? x : x_high[i];
    const double yl = kGivenB ? y : y_low[j], yh = kGivenB ? y : y_high[j];
    const double ll = xl * yl, hh = xh * yh;
    double low = least(ll, hh), high = most(ll, hh);
    if constexpr (!kGivenA && !kGivenB) {
      const double lh = xl * yh, hl = xh * yl;
      low = least(low, least(lh, hl));
      high = most(high, most(lh, hl));
    }
    low -= unit * std::abs(low);
    high += unit * std::abs(high);
    value[k] += x * y;
    absolute[k] += (kGivenA ? std::abs(x) : x_absolute[i]) * (kGivenB ? std::abs(y) : y_absolute[j]);
    lows[k] += low;
    highs[k] += high;
    size[k] += most(std::abs(low), std::abs(high));
  }
}

using Body = void (*)(const FactorRow&, const FactorRow&, std::int64_t, double, const Totals&);

// The same code for wider vectors: elements are sums of their own, so results do not depend on the width.
#if defined(__x86_64__) && defined(__GNUC__)
#define SYNO_WIDE __attribute__((target("avx2")))
bool wide() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}
#else
#define SYNO_WIDE
bool wide() { return false; }
#endif

template <bool kSideBySide>
void given_plain(const FactorRow& a, const FactorRow& b, std::int64_t count, double unit, const Totals& to) {
  given_body<kSideBySide>(a, b, count, unit, to);
}
template <bool kSideBySide>
SYNO_WIDE void given_wide(const FactorRow& a, const FactorRow& b, std::int64_t count, double unit,
                          const Totals& to) {
  given_body<kSideBySide>(a, b, count, unit, to);
}
template <bool kGivenA, bool kGivenB, bool kSideBySide>
void ranges_plain(const FactorRow& a, const FactorRow& b, std::int64_t count, double unit, const Totals& to) {
  ranges_body<kGivenA, kGivenB, kSideBySide>(a, b, count, unit, to);
}
template <bool kGivenA, bool kGivenB, bool kSideBySide>
SYNO_WIDE void ranges_wide(const FactorRow& a, const FactorRow& b, std::int64_t count, double unit,
                           const Totals& to) {
  ranges_body<kGivenA, kGivenB, kSideBySide>(a, b, count, unit, to);
}

template <bool kSideBySide>
Body body_of(bool given_a, bool given_b) {
  const bool w = wide();
  if (given_a && given_b) return w ? given_wide<kSideBySide> : given_plain<kSideBySide>;
  if (given_a) return w ? ranges_wide<true, false, kSideBySide> : ranges_plain<true, false, kSideBySide>;
  if (given_b) return w ? ranges_wide<false, true, kSideBySide> : ranges_plain<false, true, kSideBySide>;
  return w ? ranges_wide<false, false, kSideBySide> : ranges_plain<false, false, kSideBySide>;
}

}  // namespace

Planes::Planes(std::size_t elements)
    : value(zeros<double>(elements)),
      absolute(zeros<double>(elements)),
      low(zeros<double>(elements)),
      high(zeros<double>(elements)),
      state(zeros<std::uint8_t>(elements)) {}

void Planes::put(std::int64_t offset, const Tracked& element, const Precision& precision) {
  const auto at = static_cast<std::size_t>(offset);
  value[at] = element.value;
  absolute[at] = element.absolute;
  low[at] = element.low;
  high[at] = element.high;
  const bool usual = !element.nan && element.low <= element.high && std::isfinite(element.value) &&
                     std::max(std::abs(element.low), std::abs(element.high)) < precision.largest / 4;
  state[at] = !usual ? Unusual : element.guessed ? Guessed : Usual;
  guesses = guesses || state[at] == Guessed;
}

bool Planes::all_usual(std::int64_t first, std::int64_t step, std::int64_t count) const {
  const std::uint8_t* at = state.get() + first;
  if (step != 1) {
    for (std::int64_t k = 0; k < count; ++k)
      if (at[k * step] != Usual) return false;
    return true;
  }
  std::uint64_t differs = 0;
  for (; count >= 8; count -= 8, at += 8) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, at, 8);
    differs |= eight ^ (0x0101010101010101 * Usual);
  }
  for (std::int64_t k = 0; k < count; ++k) differs |= at[k] ^ Usual;
  return differs == 0;
}

std::optional<ProductRun> ProductRun::of(const ScopeCode& code, std::size_t iterator) {
  const auto reads = factors_of(code);
  std::vector<std::size_t> loops = sums_of(code);
  if (!reads || reads->size() != 2 || loops.empty()) return std::nullopt;
  loops.push_back(iterator);
  for (std::int64_t stride = 1; stride <= kMostStride; ++stride) {
    auto walk = ProductWalk::of(code, *reads, loops, stride);
    if (!walk) continue;
    if (std::max(std::abs(walk->step(0)), std::abs(walk->step(1))) > kFarthest) return std::nullopt;
    ProductRun made(std::move(*walk), stride);
    made.terms_ = code.sum_points;
    return made;
  }
  return std::nullopt;
}

void ProductRun::begin(std::int64_t count, bool given, const Precision& precision) {
  given_ = given;
  precision_ = precision;
  walk_.set_row(count);
  unit_ = TrackedNumbers::product_units() * precision.unit;
  const auto elements = static_cast<std::size_t>(count);
  for (auto* sums : {&value_, &absolute_, &low_, &high_, &size_}) sums->assign(elements, 0.0);
  guessed_.assign(elements, 0);
}

void ProductRun::note_guesses(const Planes& planes, std::int64_t at, std::int64_t step, std::int64_t first,
                              std::int64_t last) {
  for (std::int64_t k = first; k < last; ++k)
    if (planes.state[static_cast<std::size_t>(at + (k - first) * step)] == Planes::Guessed)
      guessed_[static_cast<std::size_t>(k)] = 1;
}

void ProductRun::add_products(FactorRow a, FactorRow b, std::int64_t first, std::int64_t count) {
  if (b.step == 1 && a.step == 0) std::swap(a, b);
  const Totals to{value_.data() + first, absolute_.data() + first, low_.data() + first, high_.data() + first,
                  size_.data() + first};
  const bool given_a = a.low == nullptr, given_b = b.low == nullptr;
  const Body body =
      a.step == 1 && b.step == 0 ? body_of<true>(given_a, given_b) : body_of<false>(given_a, given_b);
  body(a, b, count, unit_, to);
}

bool ProductRun::finish(std::vector<Tracked>& made) const {
  made.clear();
  const double rest = static_cast<double>(terms_) * precision_.least;
  for (std::size_t k = 0; k < value_.size(); ++k) {
    Tracked total = TrackedNumbers::start(Reduction::Sum);
    total.value = value_[k];
    total.absolute = absolute_[k];
    total.guessed = guessed_[k] != 0;
    if (given_) {
      const double error = unit_ * absolute_[k] + rest;
      total.low = value_[k] - error;
      total.high = value_[k] + error;
      total.size = absolute_[k] + error;
    } else {
      total.low = low_[k] - rest;
      total.high = high_[k] + rest;
      total.size = size_[k] + rest;
    }
    // Far from the largest number no term, product or partial sum leaves the range; NaN and infinity fail,
    // too.
    if (!(total.size < precision_.largest / 4) || !std::isfinite(total.value)) return false;
    made.push_back(total);
  }
  return true;
}

}  // namespace syno::program::detail
