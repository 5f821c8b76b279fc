// Copies of what is read along rows of vectors: padded, so that no element needs a guard, and contiguous,
// elements that strided iterations read gathered phase by phase.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "construct/caches.hpp"
#include "construct/construct.hpp"
#include "support/error.hpp"

namespace syno::construct {

namespace {

/// Elements two or three apart go to as many places: one block of code takes them all from the vectors that
/// hold them, which each place would load again by itself. False where there are no such few places.
OrRefusal<bool> write_phases_together(Construction& c, const std::string& copy,
                                      std::vector<std::string> order, const std::vector<std::string>& phases,
                                      const std::vector<std::string>& inner) {
  constexpr std::int64_t kFew = 3, kMost = 9;
  if (phases.empty()) return false;
  std::int64_t places = 1;
  for (const auto& phase : phases) {
    places *= c.extent(copy, phase);
    if (c.extent(copy, phase) > kFew) return false;
  }
  if (places > kMost) return false;
  Draft draft(c);
  std::string lane = inner.back(), outer;
  const std::int64_t whole = c.extent(copy, lane);
  order.insert(order.end(), inner.begin(), inner.end() - 1);
  if (whole > c.lanes) {
    SYNO_TAKE(parts, c.split(copy, lane, c.lanes));
    std::tie(outer, lane) = parts;
    order.push_back(outer);
  }
  order.insert(order.end(), phases.begin(), phases.end());
  order.push_back(lane);
  SYNO_ACCEPT(c.add({"reorder", copy, order, {}, "", {}}));
  if (c.add({"vectorize", copy, {lane}, {}, "", {}})) return false;  // iterations that meet in one element
  for (const auto& phase : phases)
    if (c.add({"unroll", copy, {phase}, {}, "", {}})) return false;
  if (!outer.empty()) SYNO_ACCEPT(c.peel_lanes(copy, outer, lane, whole % c.lanes != 0));
  draft.keep();
  return true;
}

/// Loop `i` alone moves some dimension of the read, or has one iteration.
bool own_dimension(const ScopeFacts& facts, const ReadFacts& read, std::size_t i) {
  if (facts.extents[i] == 1) return true;
  for (const auto& coefficients : read.copy.coefficients) {
    if (coefficients[i] == 0) continue;
    // Blocks may share a dimension: one steps over all that the loops inside it reach.
    std::int64_t reach = 1;
    for (std::size_t j = 0; j < coefficients.size(); ++j)
      if (j != i && facts.extents[j] > 1 && coefficients[j] != 0) {
        if (j < i) return true;
        reach += std::abs(coefficients[j]) * (facts.extents[j] - 1);
      }
    return std::abs(coefficients[i]) >= reach;
  }
  return false;
}

}  // namespace

std::optional<RowCopy> plan_row_copy(const ScopeFacts& facts, const ReadFacts& read, std::size_t flattened) {
  RowCopy plan;
  for (std::size_t i = facts.traversal - flattened; i < facts.traversal; ++i) {
    const std::size_t none = read.copy.extents.size();
    std::size_t found = none;
    for (std::size_t d = 0; d < none; ++d) {
      if (!read.copy.linear[d]) return std::nullopt;
      if (read.copy.coefficients[d][i] == 0) continue;
      if (found != none || read.copy.coefficients[d][i] < 0) return std::nullopt;
      found = d;
    }
    if (found == none || std::find(plan.dims.begin(), plan.dims.end(), found) != plan.dims.end())
      return std::nullopt;
    plan.dims.push_back(found);
    plan.strides.push_back(read.copy.coefficients[found][i]);
  }
  return plan;
}

std::size_t own_depth(const ScopeFacts& facts, const ReadFacts& read, std::size_t before) {
  std::size_t depth = 0;
  std::int64_t times = 1;
  for (; depth < before && own_dimension(facts, read, depth); ++depth) times *= facts.extents[depth];
  return times > 1 ? depth : 0;
}

Refused write_row_copy(Construction& c, const std::string& copy, const RowCopy& read,
                       const std::vector<std::int64_t>& pitch, std::int64_t width) {
  const std::size_t s = c.index(copy);
  c.plan.need_domain(s);
  const auto tensor = c.plan.program.scopes[s].output;
  const std::size_t rank = c.plan.program.tensor(tensor).dims.size();
  std::vector<std::string> loops, phases, inner;
  for (std::size_t d = 0; d < rank; ++d) loops.push_back(c.plan.scopes[s].loops[d].name);
  const schedule::Shape shape = c.plan.storage(tensor);

  // Dimension d of the shape is dimension at[d] once others were split.
  std::vector<std::size_t> at(rank), phase_at;
  for (std::size_t d = 0; d < rank; ++d) at[d] = d;
  std::vector<std::string> order;
  std::vector<std::pair<std::string, std::string>> parts(rank);
  for (std::size_t i = 0; i < read.dims.size(); ++i) {
    const std::size_t d = read.dims[i];
    const std::int64_t stride = read.strides[i];
    if (stride > 1) {
      SYNO_TAKE(made, c.split(copy, loops[d], stride));
      parts[d] = made;
    }
    const std::int64_t rows = i == 0 ? up(shape[d], stride) : pitch[i] * stride;
    const std::int64_t now = stride > 1 ? up(shape[d], stride) : shape[d];
    if (rows > now || now > shape[d]) {
      const std::int64_t have = c.plan.storage(tensor)[d];
      if (rows > have)
        SYNO_ACCEPT(
            c.add({"layout", copy, {}, {static_cast<std::int64_t>(at[d]), 0, rows - have}, copy, {"pad"}}));
    }
    if (stride > 1) {
      SYNO_ACCEPT(c.add(
          {"layout", copy, {}, {static_cast<std::int64_t>(at[d]), rows / stride, stride}, copy, {"split"}}));
      for (auto& place : at)
        if (place > at[d]) ++place;
      for (auto& place : phase_at)
        if (place > at[d]) ++place;
      phase_at.push_back(at[d] + 1);
      phases.push_back(parts[d].second);
      inner.push_back(parts[d].first);
    } else {
      inner.push_back(loops[d]);
    }
  }
  std::vector<std::int64_t> permutation;
  for (std::size_t d = 0; d < rank; ++d) {
    if (std::find(read.dims.begin(), read.dims.end(), d) != read.dims.end()) continue;
    permutation.push_back(static_cast<std::int64_t>(at[d]));
    order.push_back(loops[d]);
  }
  const std::size_t rest = permutation.size() + phase_at.size();
  for (const auto place : phase_at) permutation.push_back(static_cast<std::int64_t>(place));
  for (const auto d : read.dims) permutation.push_back(static_cast<std::int64_t>(at[d]));
  if (!std::is_sorted(permutation.begin(), permutation.end()))
    SYNO_ACCEPT(c.add({"layout", copy, {}, permutation, copy, {"reorder"}}));
  if (read.dims.size() > 1)
    SYNO_ACCEPT(c.add({"layout",
                       copy,
                       {},
                       {static_cast<std::int64_t>(rest), static_cast<std::int64_t>(read.dims.size())},
                       copy,
                       {"fuse"}}));
  if (width > 0) {
    const auto last = static_cast<std::int64_t>(rest);
    std::int64_t extent = 1;
    for (std::size_t i = 0; i < read.dims.size(); ++i) extent *= i == 0 ? shape[read.dims[0]] : pitch[i];
    const std::int64_t panels = up(extent, width) / width, dead = panels * width - extent;
    if (dead > 0) SYNO_ACCEPT(c.add({"layout", copy, {}, {last, 0, dead}, copy, {"pad"}}));
    SYNO_ACCEPT(c.add({"layout", copy, {}, {last, panels, width}, copy, {"split"}}));
    std::vector<std::int64_t> outermost{last};
    for (std::int64_t d = 0; d < last; ++d) outermost.push_back(d);
    outermost.push_back(last + 1);
    if (last > 0) SYNO_ACCEPT(c.add({"layout", copy, {}, outermost, copy, {"reorder"}}));
  }
  SYNO_TAKE(together, write_phases_together(c, copy, order, phases, inner));
  if (!together) {
    order.insert(order.end(), phases.begin(), phases.end());
    order.insert(order.end(), inner.begin(), inner.end());
    SYNO_ACCEPT(c.add({"reorder", copy, order, {}, "", {}}));
    SYNO_ACCEPT(c.vectorize_copy(copy));
  }
  c.parallel_outermost(copy);
  return {};
}

}  // namespace syno::construct
