// The share of points at which two steps in one order differ from what a similar rule keeps, counted point by
// point.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "pgraph/pgraph.hpp"

namespace syno::synth::testing {

/// One step above another as a similar rule sees it: what is above, of what is below, and their sizes.
struct Above {
  pgraph::Primitive upper, lower;
  std::int64_t first = 1;   ///< of the lower step's operands
  std::int64_t second = 1;  ///< ... and of a Split or window
  std::int64_t size = 1;    ///< the upper step's block or window
  std::int64_t places = 0;  ///< the Shift's
};

/// The share of points at which the two steps differ from what the rule keeps in their place, counted.
inline double counted_share(const Above& at) {
  using P = pgraph::Primitive;
  constexpr std::int64_t kZero = -1;
  const auto wrapped = [](std::int64_t i, std::int64_t n) { return ((i % n) + n) % n; };
  const auto slid = [](std::int64_t i, std::int64_t tap, std::int64_t window, std::int64_t n) {
    const std::int64_t at = i == kZero ? kZero : i + tap - window / 2;
    return i == kZero || at < 0 || at >= n ? kZero : at;
  };
  const std::int64_t taps = at.lower == P::Unfold ? at.second : 1;
  const std::int64_t minor = at.lower == P::Split ? at.second : 1;
  const std::int64_t above = at.upper == P::Unfold ? at.size : 1;
  const std::int64_t whole = at.first * minor;
  std::int64_t points = 0, different = 0;
  for (std::int64_t i = 0; i < at.first; ++i)
    for (std::int64_t j = 0; j < minor; ++j)
      for (std::int64_t k = 0; k < taps; ++k)
        for (std::int64_t l = 0; l < above; ++l) {
          const std::int64_t flat = i * minor + j;
          std::int64_t removed = 0, kept = 0;
          if (at.lower == P::Split && at.upper == P::Shift) {
            removed = wrapped(flat + at.places, whole);
            kept = i * minor + wrapped(j + at.places, minor);
          } else if (at.lower == P::Shift && at.upper == P::Merge) {
            removed = wrapped(i + at.places, whole);
            kept = i / at.size * at.size + wrapped(i % at.size + at.places, at.size);
          } else if (at.lower == P::Unfold && at.upper == P::Merge) {
            removed = slid(i, k, taps, whole);
            const std::int64_t inside = slid(i % at.size, k, taps, at.size);
            kept = inside == kZero ? kZero : i / at.size * at.size + inside;
          } else if (at.lower == P::Split) {
            removed = slid(flat, l, above, whole);
            const std::int64_t inside = slid(j, l, above, minor);
            kept = inside == kZero ? kZero : i * minor + inside;
          } else if (at.lower == P::Shift) {
            const std::int64_t first = slid(wrapped(i + at.places, whole), l, above, whole);
            const std::int64_t later = slid(i, l, above, whole);
            removed = first;
            kept = later == kZero ? kZero : wrapped(later + at.places, whole);
          } else {
            removed = slid(slid(i, k, taps, whole), l, above, whole);
            kept = slid(slid(i, l, above, whole), k, taps, whole);
          }
          ++points;
          different += removed != kept;
        }
  return static_cast<double>(different) / static_cast<double>(points);
}

/// The same where step `t` of an operator stands above another: the greatest over the valuations.
inline double share_at(const pgraph::PGraph& graph, std::size_t t) {
  using P = pgraph::Primitive;
  const symbolic::Sizes& sizes = graph.signature().sizes;
  const pgraph::Step& step = graph.steps()[t];
  const pgraph::Step& below = graph.steps()[*graph.coordinate(step.operands[0]).step];
  double greatest = 0;
  for (std::size_t v = 0; v < sizes.valuation_count(); ++v) {
    const auto value = [&](const symbolic::Size& size) { return sizes.value(size, v).num(); };
    const auto extent = [&](pgraph::CoordinateId id) { return value(graph.coordinate(id).extent); };
    Above at{step.primitive, below.primitive};
    at.first = extent(below.operands[0]);
    if (below.operands.size() > 1) at.second = extent(below.operands[1]);
    at.size = step.primitive == P::Merge    ? value(step.size)
              : step.primitive == P::Unfold ? extent(step.operands[1])
                                            : 1;
    at.places = step.primitive == P::Shift ? step.amount : below.primitive == P::Shift ? below.amount : 0;
    greatest = std::max(greatest, counted_share(at));
  }
  return greatest;
}

/// Everywhere in an operator where one such step stands above the other.
inline std::vector<double> shares_of(const pgraph::CompleteGraph& complete, pgraph::Primitive upper,
                                     pgraph::Primitive lower) {
  const pgraph::PGraph& graph = complete.graph;
  std::vector<double> shares;
  for (std::size_t t = 0; t < graph.steps().size(); ++t) {
    const pgraph::Step& step = graph.steps()[t];
    if (step.primitive != upper || !graph.coordinate(step.operands[0]).step) continue;
    if (graph.steps()[*graph.coordinate(step.operands[0]).step].primitive == lower)
      shares.push_back(share_at(graph, t));
  }
  return shares;
}

}  // namespace syno::synth::testing
