#include "program/product_sum.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "support/interrupt.hpp"

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

}  // namespace

std::optional<ProductSum> ProductSum::of(const ScopeCode& code) {
  if (code.reduction != Reduction::Sum && code.reduction != Reduction::Mean) return std::nullopt;
  std::vector<std::uint32_t> reads;
  const auto is_read = [&](std::uint32_t at) {
    return code.body[at].kind == ScalarKind::Read && code.body[at].value == Rational(0) &&
           code.accesses[code.body[at].a].steps.empty();
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
      factor.checks.push_back({lane.lane, lane.begin, lane.extent, 0, steps_of(lane.lane)});
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

void ProductSum::add_row(const Elements* elements) {
  const std::size_t row = extents_.size() - 1;
  std::int64_t first = 0, last = extents_[row];
  for (const Factor& factor : factors_)
    for (const Check& check : factor.checks)
      keep_inside(check.value, check.steps[row], check.extent, first, last);
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

std::optional<Tracked> ProductSum::at(const std::vector<std::int64_t>& lanes, const Elements* elements,
                                      const Precision& precision) {
  value_ = absolute_ = 0;
  for (Factor& factor : factors_) {
    factor.offset = lanes[factor.lane];
    for (Check& check : factor.checks) check.value = lanes[check.lane] - check.begin;
  }
  std::fill(counters_.begin(), counters_.end(), 0);
  for (bool more = true; more;) {
    interruption_point();
    add_row(elements);
    more = false;
    for (std::size_t loop = extents_.size() - 1; loop-- > 0;) {
      move(loop, 1);
      if (++counters_[loop] < extents_[loop]) {
        more = true;
        break;
      }
      move(loop, -extents_[loop]);
      counters_[loop] = 0;
    }
  }
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
