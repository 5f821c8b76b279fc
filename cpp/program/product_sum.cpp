#include "program/product_sum.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <tuple>

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

}  // namespace

std::optional<ProductSum> ProductSum::of(const ScopeCode& code) {
  const auto reads = factors_of(code);
  std::vector<std::size_t> loops = sums_of(code);
  if (!reads || loops.empty()) return std::nullopt;
  // The row is the loop whose terms lie nearest to each other, of those long enough to pay for a row.
  const auto preferred = [&](std::size_t loop) {
    std::int64_t apart = 0;
    for (const std::uint32_t read : *reads)
      apart = std::max(apart,
                       std::abs(step_along(code.lanes[code.accesses[code.body[read].a].offset_lane], loop)));
    const std::int64_t extent = code.extent[loop];
    const bool affine = ProductWalk::affine_along(code, *reads, loop);
    return std::make_tuple(!affine, std::max<std::int64_t>(0, kLeastRow - extent),
                           extent < kLeastRow ? 0 : apart);
  };
  const auto row = std::min_element(
      loops.begin(), loops.end(), [&](std::size_t a, std::size_t b) { return preferred(a) < preferred(b); });
  std::rotate(row, row + 1, loops.end());
  auto walk = ProductWalk::of(code, *reads, loops);
  if (!walk) return std::nullopt;
  ProductSum made(std::move(*walk));
  made.terms_ = code.sum_points;
  return made;
}

void ProductSum::add_row(const Elements* elements) {
  const auto [from, to] = walk_.inside_of_row();
  const std::int64_t first = from, last = to;
  const double* a = elements[0].data;
  const std::int64_t at_a = walk_.factors()[0].offset, step_a = walk_.step(0);
  if (factor_count() == 1)
    return add_terms(first, last, value_, absolute_, [&](std::int64_t k) { return a[at_a + k * step_a]; });
  const double* b = elements[1].data;
  const std::int64_t at_b = walk_.factors()[1].offset, step_b = walk_.step(1);
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
  walk_.for_each_row(point, [&] { add_row(elements); });
  // Far from the largest number no term, product or partial sum leaves the range; NaN and infinity fail, too.
  if (!(absolute_ < precision.largest / 4)) return std::nullopt;
  Tracked made = TrackedNumbers::start(Reduction::Sum);
  const double error = factor_count() == 1 ? 0
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
