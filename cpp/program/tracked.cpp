#include "program/tracked.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace syno::program {
namespace detail {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool empty(const Tracked& x) { return x.low > x.high; }
bool point(const Tracked& x) { return x.low == x.high && !x.nan; }

void only_nan(Tracked& x) {
  x.low = kInfinity;
  x.high = -kInfinity;
  x.nan = true;
}

void anything(Tracked& x) {
  x.low = -kInfinity;
  x.high = kInfinity;
  x.nan = true;
}

/// The range becomes what a value that was computed exactly is.
void exactly(Tracked& x) {
  if (std::isnan(x.value))
    only_nan(x);
  else
    x.low = x.high = x.value;
}

/// Adds a corner to a range; what is not a number is possible then.
void include(Tracked& x, double corner) {
  if (std::isnan(corner)) {
    x.nan = true;
    return;
  }
  x.low = std::min(x.low, corner);
  x.high = std::max(x.high, corner);
}

bool contains(const Tracked& x, double value) { return x.low <= value && value <= x.high; }

/// How many units in the last place correct code may err by, of its own.
double units_of(Function f) {
  switch (f) {
    case Function::Add:
    case Function::Subtract:
    case Function::Multiply:
    case Function::Sqrt:
      return 2;
    case Function::Divide:
      return 4;
    case Function::Floor:
    case Function::Ceil:
    case Function::Round:
    case Function::Trunc:
    case Function::Fmod:
      return 0;
    case Function::Gelu:
      return 12;
    case Function::Power:
      return 34;
    default:
      return 8;
  }
}

bool increases(Function f) {
  return f == Function::Exp || f == Function::Log || f == Function::Sqrt || f == Function::Erf ||
         f == Function::Tanh || f == Function::Sigmoid || f == Function::Atan || rounds(f);
}

/// The extremes of a sine or cosine between two numbers.
void include_wave(Tracked& made, Function f, double low, double high) {
  if (std::isinf(low) || std::isinf(high)) made.nan = true;
  constexpr double kHalf = std::numbers::pi, kSlack = 1e-6;  // far more than multiples of pi are off
  const double first = f == Function::Sin ? kHalf / 2 : 0;   // an extreme; others are whole turns from it
  const double turns_low = (low - first) / kHalf, turns_high = (high - first) / kHalf;
  if (!(turns_high - turns_low < 2 && std::abs(turns_low) < 1e9 && std::abs(turns_high) < 1e9)) {
    include(made, -1);
    include(made, 1);
    return;
  }
  include(made, apply(f, low));
  include(made, apply(f, high));
  for (double turn = std::ceil(turns_low - kSlack); turn <= turns_high + kSlack; ++turn)
    include(made, std::fmod(turn, 2) == 0 ? 1 : -1);
}

/// fmod keeps within its divisor, below its dividend, and on that one's side of zero.
void include_remainder(Tracked& made, const Tracked& a, const Tracked& b) {
  if (contains(b, 0) || std::isinf(a.low) || std::isinf(a.high)) made.nan = true;
  if (point(b) && std::isfinite(b.value) && b.value != 0 && std::isfinite(a.low) && std::isfinite(a.high) &&
      (a.low >= 0 || a.high <= 0)) {
    // Between the same multiples it grows with its dividend.
    const double low = std::fmod(a.low, b.value), high = std::fmod(a.high, b.value);
    if (a.high - a.low < std::abs(b.value) && low <= high && (low < 0) == (high < 0)) {
      include(made, low);
      include(made, high);
      return;
    }
  }
  const double most = std::max(std::abs(b.low), std::abs(b.high));
  include(made, std::min(0.0, std::max(a.low, -most)));
  include(made, std::max(0.0, std::min(a.high, most)));
}

}  // namespace

}  // namespace detail

Precision single_precision() {
  Precision made;
  made.unit = 0x1p-24;
  made.least = 0x1p-148;
  made.normal = 0x1p-126;
  made.largest = 0x1.fffffep127;
  made.longest_sum = 168;
  return made;
}

namespace detail {

void TrackedNumbers::widen(Tracked& x, double units, double least) const {
  if (empty(x)) return;
  const auto error = [&](double of) { return units * p_.unit * std::abs(of) + least; };
  if (std::isfinite(x.low)) x.low -= error(x.low);
  if (std::isfinite(x.high)) x.high += error(x.high);
  if (x.high > p_.largest) x.high = kInfinity;
  if (x.low < -p_.largest) x.low = -kInfinity;
  x.low = std::min(x.low, p_.largest);
  x.high = std::max(x.high, -p_.largest);
}

Tracked TrackedNumbers::loaded(double value) {
  Tracked made{value, std::abs(value), value, value};
  exactly(made);
  return made;
}

Tracked TrackedNumbers::from(double literal) const {
  Tracked made = loaded(literal);
  if (p_.unit > 0x1p-53) include(made, static_cast<double>(static_cast<float>(literal)));
  return made;
}

Tracked TrackedNumbers::from_index(double integer) const { return from(integer); }

double TrackedNumbers::product_units() { return units_of(Function::Multiply); }

Tracked TrackedNumbers::stored(Tracked value) const {
  if (p_.stored > 0) widen(value, p_.stored / p_.unit, p_.least);
  return value;
}

Tracked TrackedNumbers::compared(Function f, const Tracked& a, const Tracked& b) const {
  Tracked made;
  made.value = apply(f, a.value, b.value);
  made.absolute = made.low = made.high = made.value;
  made.guessed = a.guessed || b.guessed;
  const auto doubtful = [](const Tracked& x) {
    return !point(x) && (!empty(x) && (x.nan || contains(x, 0)));
  };
  if (f == Function::And || f == Function::Or) {
    made.guessed = made.guessed || doubtful(a) || doubtful(b);
    return made;
  }
  if (empty(a) || empty(b) || (point(a) && point(b))) return made;
  const bool apart = !a.nan && !b.nan && (a.high < b.low || a.low > b.high);
  const bool ordered = f == Function::Less        ? !a.nan && !b.nan && (a.high < b.low || a.low >= b.high)
                       : f == Function::LessEqual ? !a.nan && !b.nan && (a.high <= b.low || a.low > b.high)
                                                  : apart;
  if (!ordered) made.guessed = true;
  return made;
}

Tracked TrackedNumbers::elementary(Function f, const Tracked& a) const {
  Tracked made;
  made.value = apply(f, a.value);
  made.guessed = a.guessed;
  made.absolute = f == Function::Negate || f == Function::Abs ? a.absolute
                  : f == Function::Relu                       ? (a.value > 0 ? a.absolute : 0)
                                                              : std::abs(made.value);
  made.nan = a.nan;
  if (empty(a) || point(a)) {
    exactly(made);
  } else if (f == Function::Negate) {
    made.low = -a.high;
    made.high = -a.low;
  } else if (f == Function::Relu) {
    made.low = std::max(a.low, 0.0);
    made.high = std::max(a.high, 0.0);
  } else if (f == Function::Abs) {
    made.low = contains(a, 0) ? 0 : std::min(std::abs(a.low), std::abs(a.high));
    made.high = std::max(std::abs(a.low), std::abs(a.high));
  } else {
    double low = a.low, high = a.high;
    if ((f == Function::Log || f == Function::Sqrt || f == Function::Rsqrt) && low < 0) {
      made.nan = true;
      if (high < 0) only_nan(made);
      low = 0;
    }
    if (high >= low) {
      made.low = kInfinity;
      made.high = -kInfinity;
      if (increases(f)) {
        include(made, apply(f, low));
        include(made, apply(f, high));
      } else if (f == Function::Sin || f == Function::Cos) {
        include_wave(made, f, low, high);
      } else if (f == Function::Rsqrt) {
        include(made, apply(f, high));
        include(made, apply(f, low));
        if (a.low < 0) include(made, -kInfinity);  // of a negative zero
      } else {                                     // gelu: falls, then rises
        constexpr double kLeastAt = -0.7517915246935645;
        include(made, apply(f, std::max(low, -1e300)));
        include(made, apply(f, high));
        if (low < kLeastAt && kLeastAt < high) include(made, apply(f, kLeastAt));
        made.nan = made.nan || low == -kInfinity;
      }
    }
  }
  if (f == Function::Negate || f == Function::Relu || f == Function::Abs || rounds(f)) return made;
  if (!(point(a) && std::isinf(a.value))) widen(made, units_of(f), p_.least);
  return made;
}

/// Of usual numbers, what `rational` says of all: nearly every term of a sum is made of such.
bool TrackedNumbers::usual(Function f, const Tracked& a, const Tracked& b, Tracked& made) const {
  if (f != Function::Add && f != Function::Subtract && f != Function::Multiply) return false;
  if (a.nan || b.nan || a.low > a.high || b.low > b.high) return false;
  const auto finite = [](const Tracked& x) { return std::isfinite(x.low) && std::isfinite(x.high); };
  if (!finite(a) || !finite(b)) return false;
  made.guessed = a.guessed || b.guessed;
  if (f == Function::Multiply) {
    made.value = a.value * b.value;
    made.absolute = a.absolute * b.absolute;
    const double ll = a.low * b.low, lh = a.low * b.high, hl = a.high * b.low, hh = a.high * b.high;
    made.low = std::min(std::min(ll, lh), std::min(hl, hh));
    made.high = std::max(std::max(ll, lh), std::max(hl, hh));
  } else {
    const bool add = f == Function::Add;
    made.value = add ? a.value + b.value : a.value - b.value;
    made.absolute = a.absolute + b.absolute;
    made.low = a.low + (add ? b.low : -b.high);
    made.high = a.high + (add ? b.high : -b.low);
  }
  widen(made, units_of(f), p_.least);
  return true;
}

Tracked TrackedNumbers::rational(Function f, const Tracked& a, const Tracked& b) const {
  Tracked made;
  if (usual(f, a, b, made)) return made;
  made.value = apply(f, a.value, b.value);
  made.guessed = a.guessed || b.guessed;
  made.nan = a.nan || b.nan;
  switch (f) {
    case Function::Add:
    case Function::Subtract:
      made.absolute = a.absolute + b.absolute;
      break;
    case Function::Multiply:
      made.absolute = a.absolute * b.absolute;
      break;
    case Function::Divide:
      made.absolute = a.absolute / std::abs(b.value);
      break;
    case Function::Maximum:
    case Function::Minimum:
      made.absolute = made.value == a.value ? a.absolute : b.absolute;
      break;
    default:
      made.absolute = std::abs(made.value);
  }
  const bool extreme = f == Function::Maximum || f == Function::Minimum;
  if (point(a) && point(b)) {
    exactly(made);
    const bool infinite = std::isinf(a.value) || std::isinf(b.value);
    if (!extreme && !infinite && f != Function::Fmod) widen(made, units_of(f), p_.least);
    return made;
  }
  if (empty(a) || empty(b)) {
    if (std::isnan(made.value))
      only_nan(made);
    else
      anything(made);
    return made;
  }
  if (extreme) {
    const bool max = f == Function::Maximum;
    made.low = max ? std::max(a.low, b.low) : std::min(a.low, b.low);
    made.high = max ? std::max(a.high, b.high) : std::min(a.high, b.high);
    return made;
  }
  made.low = kInfinity;
  made.high = -kInfinity;
  if (f == Function::Fmod) {
    include_remainder(made, a, b);
    return made;
  }
  bool known = true;
  if (f == Function::Divide) known = !contains(b, 0);
  if (f == Function::Power) {
    const bool whole = point(b) && b.value == std::floor(b.value);
    known = a.low > 0 || (whole && b.value >= 0);
    if (contains(a, 0) && known) include(made, apply(f, 0, b.value));
  }
  if (!known) {
    anything(made);
  } else {
    for (const double x : {a.low, a.high})
      for (const double y : {b.low, b.high}) include(made, apply(f, x, y));
    if (f == Function::Multiply && made.nan && (contains(a, 0) || contains(b, 0))) include(made, 0);
    // What overflows in one factor meets what is zero in the other.
    const auto ends = [](const Tracked& x) { return std::isinf(x.low) || std::isinf(x.high); };
    if (f == Function::Multiply && ((contains(a, 0) && ends(b)) || (contains(b, 0) && ends(a))))
      made.nan = true;
    if (f == Function::Divide && ends(a) && ends(b)) made.nan = true;
    if (empty(made)) anything(made);
  }
  widen(made, units_of(f), p_.least);
  return made;
}

Tracked TrackedNumbers::function(Function f, const Tracked& a, const Tracked& b) const {
  if (is_unary(f)) return elementary(f, a);
  return gives_truth(f) ? compared(f, a, b) : rational(f, a, b);
}

Tracked TrackedNumbers::select(const Tracked& condition, const Tracked& yes, const Tracked& no) const {
  const bool doubtful = !point(condition) && !empty(condition) && (condition.nan || contains(condition, 0));
  Tracked made = condition.value != 0 ? yes : no;
  made.guessed = made.guessed || condition.guessed || doubtful;
  return made;
}

Tracked TrackedNumbers::start(Reduction reduction) {
  if (reduction == Reduction::Max) return loaded(-kInfinity);
  if (reduction == Reduction::Min) return loaded(kInfinity);
  Tracked made = loaded(reduction == Reduction::Product ? 1 : 0);
  made.size = made.value;
  return made;
}

void TrackedNumbers::fold(Reduction reduction, Tracked& total, const Tracked& term) const {
  if (reduction == Reduction::Max || reduction == Reduction::Min) {
    const bool max = reduction == Reduction::Max;
    total = rational(max ? Function::Maximum : Function::Minimum, total, term);
    return;
  }
  const double most = std::max(std::abs(term.low), std::abs(term.high));
  if (reduction == Reduction::Product) {
    const double size = total.size * std::max(1.0, most);
    const double small = total.small * std::min(1.0, std::min(std::abs(term.low), std::abs(term.high)));
    total = rational(Function::Multiply, total, term);
    total.size = size;
    total.small = small;
    return;
  }
  // One rounding error for the whole sum: see finish().
  total.value += term.value;
  total.absolute += term.absolute;
  total.size += most;
  total.guessed = total.guessed || term.guessed;
  total.nan = total.nan || term.nan;
  if (empty(total)) return;
  if (empty(term)) return only_nan(total);
  if ((total.high == kInfinity && term.low == -kInfinity) ||
      (total.low == -kInfinity && term.high == kInfinity)) {
    if (point(total) && point(term)) return only_nan(total);
    return anything(total);
  }
  total.low += term.low;
  total.high += term.high;
}

Tracked TrackedNumbers::finish(Reduction reduction, Tracked total, std::int64_t terms) const {
  const auto count = static_cast<double>(terms);
  const bool mean = reduction == Reduction::Mean;
  if (reduction == Reduction::Product) {
    // In another order, parts of the product may leave the exponent's range.
    if (total.size > p_.largest)
      anything(total);
    else if (total.small < p_.normal && !empty(total) && total.value != 0)
      widen(total, 0, total.size * p_.normal);
  }
  if ((reduction == Reduction::Sum || mean) && !empty(total)) {
    // Half the terms in one partial sum: what rounding makes of it grows with the root of their number.
    const double drift = 4 * std::sqrt(count) * std::max(std::abs(total.low), std::abs(total.high));
    const double size = std::isfinite(total.size) ? total.size : 0;
    const double units = std::min(
        (count + 4) * size, std::min(count + 4, p_.longest_sum) * size + (std::isfinite(drift) ? drift : 0));
    const bool one_sign = total.low >= 0 || total.high <= 0;
    const double error = terms > 1 ? units * p_.unit : 0;
    if (total.size > p_.largest && std::isfinite(total.low) && std::isfinite(total.high) && !one_sign)
      anything(total);
    else
      widen(total, 0, error + (terms > 1 ? p_.least : 0));
  }
  if (!mean) return total;
  total.value /= count;
  total.absolute /= count;
  if (!empty(total)) {
    total.low /= count;
    total.high /= count;
    widen(total, units_of(Function::Divide), p_.least);
  }
  return total;
}

Tracked TrackedNumbers::estimated(Reduction reduction, Tracked total, std::int64_t terms, std::int64_t count,
                                  double squares) const {
  if (reduction == Reduction::Max) {
    total.high = kInfinity;
    return total;
  }
  if (reduction == Reduction::Min) {
    total.low = -kInfinity;
    return total;
  }
  if (reduction == Reduction::Product) {
    anything(total);
    return total;
  }
  const double all = static_cast<double>(terms), some = static_cast<double>(count);
  const double mean = total.value / some;
  const double deviation = std::sqrt(std::max(0.0, squares / some - mean * mean));
  constexpr double kSigmas = 7;
  const double error = kSigmas * all * deviation / std::sqrt(some);
  for (double* part : {&total.value, &total.absolute, &total.low, &total.high, &total.size})
    *part *= all / some;
  Tracked made = finish(Reduction::Sum, total, terms);
  if (!empty(made)) widen(made, 0, error);
  if (reduction == Reduction::Mean) divide_all(made, terms);
  return made;
}

Tracked TrackedNumbers::together(Reduction reduction, const Tracked& a, const Tracked& b,
                                 std::int64_t terms) const {
  Tracked total = start(Reduction::Sum);
  fold(Reduction::Sum, total, a);
  fold(Reduction::Sum, total, b);
  Tracked made = finish(Reduction::Sum, total, 2);
  if (reduction == Reduction::Mean) divide_all(made, terms);
  return made;
}

void TrackedNumbers::divide_all(Tracked& sum, std::int64_t terms) {
  if (empty(sum)) return;
  for (double* part : {&sum.value, &sum.absolute, &sum.low, &sum.high}) *part /= static_cast<double>(terms);
}

}  // namespace detail
}  // namespace syno::program
