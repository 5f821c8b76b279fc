#include "program/product_walk.hpp"

#include <algorithm>

#include "support/error.hpp"

namespace syno::program::detail {
namespace {

/// The smallest k with value + k * step >= bound, for a positive step.
std::int64_t first_at_least(std::int64_t value, std::int64_t step, std::int64_t bound) {
  const std::int64_t distance = bound - value;
  return distance <= 0 ? 0 : step == 1 ? distance : (distance + step - 1) / step;
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

/// By how much an index grows with each of the loops, the last of which moves by `stride`: (a + 4 k) / 2 by 2
/// with k, (a + 4 k) % 2 by nothing. None where it guards what moves, or divides it otherwise.
std::optional<std::vector<std::int64_t>> steps_of_index(const std::vector<Step>& index,
                                                        const std::vector<std::size_t>& loops,
                                                        std::int64_t stride) {
  using symbolic::Op;
  std::vector<std::vector<std::int64_t>> stack;
  for (const Step& step : index) {
    if (step.op == Op::Add) {
      for (std::size_t l = 0; l < loops.size(); ++l) stack[stack.size() - 2][l] += stack.back()[l];
      stack.pop_back();
    } else if (step.op == Op::Multiply) {
      for (std::int64_t& each : stack.back()) each *= step.value;
    } else if (step.op == Op::Divide || step.op == Op::Modulo || step.op == Op::Inside) {
      for (std::int64_t& each : stack.back()) {
        if (each != 0 && (step.op == Op::Inside || each % step.value != 0)) return std::nullopt;
        each = step.op == Op::Divide ? each / step.value : 0;
      }
    } else {
      stack.emplace_back(loops.size(), 0);
      if (step.op == Op::Iterator)
        for (std::size_t l = 0; l < loops.size(); ++l)
          if (static_cast<std::int64_t>(loops[l]) == step.value)
            stack.back()[l] = l + 1 == loops.size() ? stride : 1;
    }
  }
  return stack.back();
}

}  // namespace

std::int64_t step_along(const Affine& affine, std::size_t iterator) {
  std::int64_t step = 0;
  for (const auto& [position, coefficient] : affine.terms)
    if (position == iterator) step += coefficient;
  return step;
}

std::optional<std::vector<std::uint32_t>> factors_of(const ScopeCode& code) {
  if (code.reduction != Reduction::Sum && code.reduction != Reduction::Mean) return std::nullopt;
  const auto is_read = [&](std::uint32_t at) {
    return code.body[at].kind == ScalarKind::Read && code.body[at].value == Rational(0);
  };
  const auto last = static_cast<std::uint32_t>(code.body.size() - 1);
  const Instruction& result = code.body[last];
  if (is_read(last)) return std::vector<std::uint32_t>{last};
  if (result.kind == ScalarKind::Binary && result.function == Function::Multiply && is_read(result.a) &&
      is_read(result.b))
    return std::vector<std::uint32_t>{result.a, result.b};
  return std::nullopt;
}

std::vector<std::size_t> sums_of(const ScopeCode& code) {
  std::vector<std::size_t> loops;
  for (std::size_t i = code.traversal_count; i < code.extent.size(); ++i) loops.push_back(i);
  return loops;
}

bool ProductWalk::affine_along(const ScopeCode& code, const std::vector<std::uint32_t>& reads,
                               std::size_t iterator, std::int64_t stride) {
  return std::all_of(reads.begin(), reads.end(), [&](std::uint32_t read) {
    const std::vector<CheckedSteps>& indices = code.accesses[code.body[read].a].steps;
    return std::all_of(indices.begin(), indices.end(), [&](const CheckedSteps& index) {
      return steps_of_index(index.steps, {iterator}, stride).has_value();
    });
  });
}

std::optional<ProductWalk> ProductWalk::of(const ScopeCode& code, const std::vector<std::uint32_t>& reads,
                                           const std::vector<std::size_t>& given, std::int64_t stride) {
  if (!affine_along(code, reads, given.back(), stride)) return std::nullopt;
  ProductWalk made;
  std::vector<std::size_t> loops;
  for (const std::size_t i : given) {
    if (i == given.back() || affine_along(code, reads, i))
      loops.push_back(i);
    else
      made.outside_.push_back({i, code.begin[i], code.extent[i], code.lanes_of[i]});
  }
  for (const std::size_t i : loops) made.extents_.push_back(code.extent[i]);
  made.counters_.resize(loops.size());
  const auto steps_of = [&](std::uint32_t lane) {
    std::vector<std::int64_t> steps;
    for (const std::size_t loop : loops) steps.push_back(step_along(code.lanes[lane], loop));
    steps.back() *= stride;
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
      const auto steps = steps_of_index(index.steps, loops, stride);
      SYNO_ASSERT(steps.has_value(), "what is affine along each of some loops is so along all");
      for (std::size_t l = 0; l < loops.size(); ++l) factor.steps[l] += (*steps)[l] * index.stride;
      factor.checks.push_back({0, index.begin, index.extent, 0, *steps, index.steps, index.stride});
    }
    made.factors_.push_back(std::move(factor));
  }
  return made;
}

bool ProductWalk::may_be_outside() const {
  return std::any_of(factors_.begin(), factors_.end(),
                     [](const Factor& factor) { return !factor.checks.empty(); });
}

void ProductWalk::move(std::size_t loop, std::int64_t times) {
  for (Factor& factor : factors_) {
    factor.offset += factor.steps[loop] * times;
    for (Check& check : factor.checks) check.value += check.steps[loop] * times;
  }
}

void ProductWalk::begin() {
  for (Factor& factor : factors_) {
    factor.offset = lanes_[factor.lane];
    factor.outside = false;
    for (Check& check : factor.checks) {
      if (check.index.empty()) {
        check.value = lanes_[check.lane] - check.begin;
        continue;
      }
      if (!run(check.index, iterators_.data(), check.value)) {
        factor.outside = true;
        continue;
      }
      check.value -= check.begin;
      factor.offset += check.value * check.stride;
    }
  }
  std::fill(counters_.begin(), counters_.end(), 0);
}

ProductWalk::Range ProductWalk::inside_of_row(const Factor& factor) const {
  const std::size_t row = extents_.size() - 1;
  Range inside{0, factor.outside ? 0 : extents_[row]};
  for (const Check& check : factor.checks)
    keep_inside(check.value, check.steps[row], check.extent, inside.first, inside.second);
  return {inside.first, std::max(inside.first, inside.second)};
}

ProductWalk::Range ProductWalk::inside_of_row() const {
  Range inside = inside_of_row(factors_[0]);
  for (std::size_t f = 1; f < factors_.size(); ++f) {
    const Range other = inside_of_row(factors_[f]);
    inside = {std::max(inside.first, other.first), std::min(inside.second, other.second)};
  }
  return {inside.first, std::max(inside.first, inside.second)};
}

bool ProductWalk::next_outside() {
  for (std::size_t o = outside_.size(); o-- > 0;) {
    const Outside& loop = outside_[o];
    std::int64_t& at = iterators_[loop.iterator];
    const std::int64_t moved = at + 1 < loop.begin + loop.extent ? 1 : 1 - loop.extent;
    at += moved;
    for (const auto& [lane, coefficient] : loop.lanes) lanes_[lane] += coefficient * moved;
    if (moved == 1) return true;
  }
  return false;
}

bool ProductWalk::next_row() {
  for (std::size_t loop = extents_.size() - 1; loop-- > 0;) {
    move(loop, 1);
    if (++counters_[loop] < extents_[loop]) return true;
    move(loop, -extents_[loop]);
    counters_[loop] = 0;
  }
  return false;
}

}  // namespace syno::program::detail
