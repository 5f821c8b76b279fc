#include "program/product_sum.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

namespace syno::program::detail {
namespace {

/// Partial sums side by side: an addition waits for the one before it.
constexpr std::size_t kPartial = 8;
/// Terms for which a row takes no longer to begin than to add up.
constexpr std::int64_t kLeastRow = 4;

struct Sums {
  std::array<double, kPartial> value{}, absolute{};

  void add(std::size_t part, double term) {
    value[part] += term;
    absolute[part] += std::abs(term);
  }
};

template <class Term>
void add_terms(std::int64_t first, std::int64_t last, double& value, double& absolute, Term&& term) {
  Sums sums;
  std::int64_t k = first;
  for (; k + static_cast<std::int64_t>(kPartial) <= last; k += kPartial)
    for (std::size_t part = 0; part < kPartial; ++part)
      sums.add(part, term(k + static_cast<std::int64_t>(part)));
  for (; k < last; ++k) sums.add(0, term(k));
  for (std::size_t part = 0; part < kPartial; ++part) {
    value += sums.value[part];
    absolute += sums.absolute[part];
  }
}

/// The smallest k with value + k * step >= bound, for a positive step.
std::int64_t first_at_least(std::int64_t value, std::int64_t step, std::int64_t bound) {
  const std::int64_t distance = bound - value;
  return distance <= 0 ? 0 : (distance + step - 1) / step;
}

/// The part [first, last) of a row along which a value stays in [0, extent).
void keep_inside(std::int64_t value, std::int64_t step, std::int64_t extent, std::int64_t& first,
                 std::int64_t& last) {
  if (step < 0) {  // mirrored
    value = extent - 1 - value;
    step = -step;
  }
  if (step == 0) {
    if (value < 0 || value >= extent) last = first;
    return;
  }
  first = std::max(first, first_at_least(value, step, 0));
  last = std::min(last, first_at_least(value, step, extent));
}

/// By how much an index grows with each of the loops, where it divides nothing that moves along them and
/// guards nothing that does; nothing else.
std::optional<std::vector<std::int64_t>> steps_of_index(const std::vector<Step>& index,
                                                        const std::vector<std::size_t>& loops) {
  using symbolic::Op;
  std::vector<std::vector<std::int64_t>> stack;
  for (const Step& step : index) {
    if (step.op == Op::Add) {
      for (std::size_t l = 0; l < loops.size(); ++l) stack[stack.size() - 2][l] += stack.back()[l];
      stack.pop_back();
    } else if (step.op == Op::Multiply) {
      for (std::int64_t& each : stack.back()) each *= step.value;
    } else if (step.op == Op::Divide || step.op == Op::Modulo || step.op == Op::Inside) {
      for (const std::int64_t each : stack.back())
        if (each != 0) return std::nullopt;
    } else {
      stack.emplace_back(loops.size(), 0);
      if (step.op == Op::Iterator)
        for (std::size_t l = 0; l < loops.size(); ++l)
          stack.back()[l] = static_cast<std::int64_t>(loops[l]) == step.value ? 1 : 0;
    }
  }
  return stack.back();
}

}  // namespace

std::optional<ProductSum> ProductSum::of(const ScopeCode& code) {
  if (code.reduction != Reduction::Sum && code.reduction != Reduction::Mean) return std::nullopt;
  std::vector<std::uint32_t> reads;
  const auto is_read = [&](std::uint32_t at) {
    return code.body[at].kind == ScalarKind::Read && code.body[at].value == Rational(0);
  };
  const auto last = static_cast<std::uint32_t>(code.body.size() - 1);
  const Instruction& result = code.body[last];
  if (is_read(last)) {
    reads = {last};
  } else if (result.kind == ScalarKind::Binary && result.function == Function::Multiply &&
             is_read(result.a) && is_read(result.b)) {
    reads = {result.a, result.b};
  } else {
    return std::nullopt;
  }

  std::vector<std::size_t> loops;
  for (std::size_t i = code.traversal_count; i < code.extent.size(); ++i) loops.push_back(i);
  if (loops.empty()) return std::nullopt;
  const auto steps_along = [&](std::size_t loop, std::uint32_t lane) {
    std::int64_t step = 0;
    for (const auto& [position, coefficient] : code.lanes[lane].terms)
      if (position == loop) step += coefficient;
    return step;
  };
  // The row is the loop whose terms lie nearest to each other, of those long enough to pay for a row.
  const auto preferred = [&](std::size_t loop) {
    std::int64_t apart = 0;
    for (const std::uint32_t read : reads)
      apart = std::max(apart, std::abs(steps_along(loop, code.accesses[code.body[read].a].offset_lane)));
    const std::int64_t extent = code.extent[loop];
    return extent < kLeastRow ? std::make_pair(kLeastRow - extent, std::int64_t{0})
                              : std::make_pair(std::int64_t{0}, apart);
  };
  const auto row = std::min_element(
      loops.begin(), loops.end(), [&](std::size_t a, std::size_t b) { return preferred(a) < preferred(b); });
  std::rotate(row, row + 1, loops.end());

  ProductSum made;
  made.terms_ = code.sum_points;
  for (const std::size_t i : loops) made.extents_.push_back(code.extent[i]);
  made.counters_.resize(loops.size());
  const auto steps_of = [&](std::uint32_t lane) {
    std::vector<std::int64_t> steps;
    for (const std::size_t loop : loops) steps.push_back(steps_along(loop, lane));
    return steps;
  };
  for (const std::uint32_t read : reads) {
    const Access& access = code.accesses[code.body[read].a];
    Factor factor;
    factor.tensor = access.tensor;
    factor.lane = access.offset_lane;
    factor.steps = steps_of(access.offset_lane);
    for (const CheckedLane& lane : access.lanes)
      factor.checks.push_back({lane.lane, lane.begin, lane.extent, 0, steps_of(lane.lane), {}, 0});
    for (const CheckedSteps& index : access.steps) {
      const auto steps = steps_of_index(index.steps, loops);
      if (!steps) return std::nullopt;
      for (std::size_t l = 0; l < loops.size(); ++l) factor.steps[l] += (*steps)[l] * index.stride;
      factor.checks.push_back({0, index.begin, index.extent, 0, *steps, index.steps, index.stride});
    }
    made.factors_.push_back(std::move(factor));
  }
  return made;
}

bool ProductSum::may_be_outside() const {
  return std::any_of(factors_.begin(), factors_.end(),
                     [](const Factor& factor) { return !factor.checks.empty(); });
}

void ProductSum::move(std::size_t loop, std::int64_t times) {
  for (Factor& factor : factors_) {
    factor.offset += factor.steps[loop] * times;
    for (Check& check : factor.checks) check.value += check.steps[loop] * times;
  }
}

void ProductSum::begin(const Point& point) {
  for (Factor& factor : factors_) {
    factor.offset = point.lanes[factor.lane];
    factor.outside = false;
    for (Check& check : factor.checks) {
      if (check.index.empty()) {
        check.value = point.lanes[check.lane] - check.begin;
        continue;
      }
      if (!run(check.index, point.iterators.data(), check.value)) {
        factor.outside = true;
        continue;
      }
      check.value -= check.begin;
      factor.offset += check.value * check.stride;
    }
  }
  std::fill(counters_.begin(), counters_.end(), 0);
}

ProductSum::Range ProductSum::inside_of_row(const Factor& factor) const {
  const std::size_t row = extents_.size() - 1;
  Range inside{0, factor.outside ? 0 : extents_[row]};
  for (const Check& check : factor.checks)
    keep_inside(check.value, check.steps[row], check.extent, inside.first, inside.second);
  return {inside.first, std::max(inside.first, inside.second)};
}

ProductSum::Range ProductSum::inside_of_row() const {
  Range inside = inside_of_row(factors_[0]);
  for (std::size_t f = 1; f < factors_.size(); ++f) {
    const Range other = inside_of_row(factors_[f]);
    inside = {std::max(inside.first, other.first), std::min(inside.second, other.second)};
  }
  return {inside.first, std::max(inside.first, inside.second)};
}

bool ProductSum::next_row() {
  for (std::size_t loop = extents_.size() - 1; loop-- > 0;) {
    move(loop, 1);
    if (++counters_[loop] < extents_[loop]) return true;
    move(loop, -extents_[loop]);
    counters_[loop] = 0;
  }
  return false;
}

void ProductSum::add_row(const Elements* elements) {
  const std::size_t row = extents_.size() - 1;
  const auto [from, to] = inside_of_row();
  const std::int64_t first = from, last = to;
  const double* a = elements[0].data;
  const std::int64_t at_a = factors_[0].offset, step_a = factors_[0].steps[row];
  if (factors_.size() == 1)
    return add_terms(first, last, value_, absolute_, [&](std::int64_t k) { return a[at_a + k * step_a]; });
  const double* b = elements[1].data;
  const std::int64_t at_b = factors_[1].offset, step_b = factors_[1].steps[row];
  if (step_a == 1 && step_b == 1)
    return add_terms(first, last, value_, absolute_,
                     [&](std::int64_t k) { return a[at_a + k] * b[at_b + k]; });
  add_terms(first, last, value_, absolute_,
            [&](std::int64_t k) { return a[at_a + k * step_a] * b[at_b + k * step_b]; });
}

bool ProductSum::Products::fold(double low, double high) {
  const double most = std::max(std::abs(low), std::abs(high));
  // Neither infinite nor no number, and far from where a result may become that.
  if (!(most < precision_.largest / 4)) return false;
  total_.size += most;
  total_.low += low;
  total_.high += high;
  --left_;
  return true;
}

bool ProductSum::Products::add(const Tracked& a) {
  if (a.nan || a.low > a.high) return false;
  total_.value += a.value;
  total_.absolute += a.absolute;
  total_.guessed = total_.guessed || a.guessed;
  return fold(a.low, a.high);
}

bool ProductSum::Products::add(const Tracked& a, const Tracked& b) {
  if (a.nan || b.nan || a.low > a.high || b.low > b.high) return false;
  const double ll = a.low * b.low, lh = a.low * b.high, hl = a.high * b.low, hh = a.high * b.high;
  const double low = std::min(std::min(ll, lh), std::min(hl, hh));
  const double high = std::max(std::max(ll, lh), std::max(hl, hh));
  const double units = TrackedNumbers::product_units() * precision_.unit;
  total_.value += a.value * b.value;
  total_.absolute += a.absolute * b.absolute;
  total_.guessed = total_.guessed || a.guessed || b.guessed;
  // What is no number in one of the products leaves the others alone; it shows in the sum of all.
  if (!(std::abs(ll) + std::abs(lh) + std::abs(hl) + std::abs(hh) < precision_.largest)) return false;
  return fold(low - units * std::abs(low) - precision_.least,
              high + units * std::abs(high) + precision_.least);
}

bool ProductSum::Products::leave_out(const Tracked& a) {
  if (a.nan || a.low > a.high || !std::isfinite(a.value)) return false;
  total_.guessed = total_.guessed || a.guessed;
  return std::max(std::abs(a.low), std::abs(a.high)) < precision_.largest / 4;
}

std::optional<Tracked> ProductSum::Products::total() const {
  if (!(total_.size < precision_.largest / 4) || !std::isfinite(total_.value)) return std::nullopt;
  Tracked made = total_;
  // Terms that were left out are products of 0.
  const double error = products_ ? static_cast<double>(left_) * precision_.least : 0;
  made.low -= error;
  made.high += error;
  made.size += error;
  return made;
}

std::optional<Tracked> ProductSum::at(const Point& point, const Elements* elements,
                                      const Precision& precision) {
  value_ = absolute_ = 0;
  for_each_row(point, [&] { add_row(elements); });
  // Far from the largest number no term, product or partial sum leaves the range; NaN and infinity fail, too.
  if (!(absolute_ < precision.largest / 4)) return std::nullopt;
  Tracked made = TrackedNumbers::start(Reduction::Sum);
  const double error = factors_.size() == 1 ? 0
                                            : TrackedNumbers::product_units() * precision.unit * absolute_ +
                                                  static_cast<double>(terms_) * precision.least;
  made.value = value_;
  made.absolute = absolute_;
  made.low = value_ - error;
  made.high = value_ + error;
  made.size = absolute_ + error;
  return made;
}

}  // namespace syno::program::detail
