#include "machine/footprint.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>

namespace syno::machine {

std::pair<double, double>* Steps::find(double step) {
  const auto end = each.begin() + static_cast<std::ptrdiff_t>(count);
  const auto found = std::find_if(each.begin(), end, [&](const auto& one) { return one.first == step; });
  return found == end ? nullptr : &*found;
}

bool Steps::add(double step, double width) {
  if (width <= 1 || step == 0) return true;
  if (auto* same = find(step)) {
    same->second += width - 1;
    return true;
  }
  if (count == each.size()) return false;
  each[count++] = {step, width};
  return true;
}

double lines_of(Steps steps, double line, double* pieces) {
  std::sort(steps.each.begin(), steps.each.begin() + static_cast<std::ptrdiff_t>(steps.count));
  double run = 1, runs = 1;
  for (std::size_t i = 0; i < steps.count; ++i) {
    const auto [step, width] = steps.each[i];
    if (step <= std::max(run, line))
      run += step * (width - 1);
    else
      runs *= width;
  }
  if (pieces != nullptr) *pieces = runs;
  return runs * std::max(1.0, run / line + (run > line ? 0.5 : 0));
}

bool join(Steps& before, const Steps& access, double ahead) {
  Steps own = access;
  double away = std::abs(ahead);
  for (std::size_t i = 0; i < own.count; ++i) {
    const auto [step, width] = own.each[i];
    if (auto* same = before.find(step))
      same->second = std::max(same->second, width);
    else if (!before.add(step, width))
      return false;
  }
  std::sort(before.each.begin(), before.each.begin() + static_cast<std::ptrdiff_t>(before.count),
            std::greater<>());
  for (std::size_t i = 0; i < before.count && ahead > 0; ++i) {
    const auto [step, width] = before.each[i];
    const auto* mine = own.find(step);
    away -= step * std::clamp(std::floor(away / step), 0.0, width - (mine != nullptr ? mine->second : 1));
  }
  return before.add(away, 2);
}

bool apart(const Access& a, const Access& b) {
  struct Step {
    std::int64_t by = 0;
    double up = 0, down = 0;  ///< the steps that an address of `a` may be ahead, and those of `b`
  };
  std::array<Step, 16> steps;
  std::size_t count = 0;
  double up = 0, down = 0;  // of all steps that are left, in elements
  for (const Access* access : {&a, &b})
    for (const AddressTerm& term : access->terms) {
      const std::int64_t by = std::abs(term.coefficient);
      if (by == 0 || term.width <= 1) continue;
      Step* const end = steps.data() + count;
      Step* const same = std::find_if(steps.data(), end, [&](const Step& step) { return step.by == by; });
      if (same == end && count == steps.size()) return false;
      if (same == end) steps[count++] = {by, 0, 0};
      (access == &a ? same->up : same->down) += term.width - 1;
      (access == &a ? up : down) += static_cast<double>(by) * (term.width - 1);
    }
  std::sort(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(count),
            [](const Step& one, const Step& other) { return one.by > other.by; });
  double away = b.least - a.least;  // a sum of multiples of the steps, where they meet
  for (std::size_t s = 0; s < count; ++s) {
    const auto by = static_cast<double>(steps[s].by);
    up -= by * steps[s].up;
    down -= by * steps[s].down;
    const double least = std::max(std::ceil((away - up) / by), -steps[s].down);
    const double greatest = std::min(std::floor((away + down) / by), steps[s].up);
    if (least > greatest) return true;
    if (least < greatest) return false;
    away -= by * least;
  }
  return away != 0;
}

bool move_alike(const Access& a, const Access& b) {
  const auto within = [](const Access& one, const Access& other) {
    return std::all_of(one.terms.begin(), one.terms.end(), [&](const AddressTerm& term) {
      return term.coefficient == 0 || term.width <= 1 ||
             std::any_of(other.terms.begin(), other.terms.end(), [&](const AddressTerm& same) {
               return same.width > 1 && std::abs(same.coefficient) == std::abs(term.coefficient);
             });
    });
  };
  return within(a, b) || within(b, a);
}

}  // namespace syno::machine
