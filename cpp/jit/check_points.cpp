#include "jit/check_points.hpp"

#include <algorithm>
#include <set>

namespace syno::jit {

using nest::LoopNest;

namespace {

constexpr std::size_t kLargestBreakpoints = 64;  // a dimension

/// Where code changes along a dimension: its ends, the tails of loops split by any extent of the nest, and
/// the bounds of conditions.
std::vector<std::int64_t> breakpoints(const LoopNest& nest, std::int64_t extent) {
  std::set<std::int64_t> found;
  const auto around = [&](std::int64_t at) {
    for (const std::int64_t index : {at - 1, at})
      if (index >= 0 && index < extent) found.insert(index);
  };
  for (const std::int64_t near : {0, 1, 2, 3, 4}) {
    around(near);
    around(extent - near);
  }
  std::set<std::int64_t> tiles, bounds;
  for (const nest::Statement& statement : nest.statements) {
    if (statement.kind == nest::StatementKind::For) {
      const symbolic::Expr& begin = nest.arena[statement.begin];
      const symbolic::Expr& end = nest.arena[statement.end];
      if (begin.op == symbolic::Op::Constant && end.op == symbolic::Op::Constant)
        tiles.insert(end.value - begin.value);
    }
    for (const nest::Condition& condition : statement.conditions)
      bounds.insert({condition.begin, condition.end});
  }
  for (const nest::Value& value : nest.values)
    for (const nest::Condition& condition : value.guards) bounds.insert({condition.begin, condition.end});
  // Products of tile sizes are tile sizes too: splits nest.
  const std::set<std::int64_t> single = tiles;
  for (const std::int64_t a : single)
    for (const std::int64_t b : single)
      if (a > 1 && b > 1 && a < extent && b <= extent / a) tiles.insert(a * b);
  for (const std::int64_t tile : tiles) {
    if (tile < 2 || tile >= extent) continue;
    around(tile);
    around(extent / tile * tile);
  }
  for (const std::int64_t bound : bounds) {
    around(bound);
    around(extent - bound);
  }
  std::vector<std::int64_t> all(found.begin(), found.end());
  if (all.size() > kLargestBreakpoints) {
    std::vector<std::int64_t> fewer;
    for (std::size_t i = 0; i < kLargestBreakpoints; ++i)
      fewer.push_back(all[i * (all.size() - 1) / (kLargestBreakpoints - 1)]);
    all = fewer;
  }
  return all;
}

}  // namespace

std::vector<Point> points_of(const LoopNest& nest, Breakpoints& known, const std::vector<std::int64_t>& shape,
                             std::size_t random_points, Random& random) {
  std::set<Point> points;
  const std::size_t rank = shape.size();
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return {};
  const auto any = [&](std::size_t d) {
    return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(shape[d])));
  };
  const std::size_t corners = std::size_t{1} << std::min<std::size_t>(rank, 10);
  for (std::size_t corner = 0; corner < corners; ++corner) {
    Point at(rank);
    for (std::size_t d = 0; d < rank; ++d)
      at[d] = (corner >> std::min<std::size_t>(d, 63)) & 1 ? shape[d] - 1 : 0;
    points.insert(at);
  }
  for (std::size_t d = 0; d < rank; ++d) {
    if (!known.count(shape[d])) known[shape[d]] = breakpoints(nest, shape[d]);
    for (const std::int64_t index : known[shape[d]]) {
      // Once among random others, once among others that are breakpoints themselves.
      for (const bool others_break : {false, true}) {
        Point at(rank);
        for (std::size_t e = 0; e < rank; ++e) {
          at[e] = any(e);
          if (!others_break) continue;
          if (!known.count(shape[e])) known[shape[e]] = breakpoints(nest, shape[e]);
          const auto& choices = known[shape[e]];
          at[e] = choices[random.below(choices.size())];
        }
        at[d] = index;
        points.insert(at);
      }
    }
  }
  std::int64_t total = 1;
  for (const std::int64_t extent : shape) total = std::min<std::int64_t>(total * extent, 1 << 20);
  if (total <= static_cast<std::int64_t>(2 * random_points)) {
    for_each_point(shape, [&](const Point& at) { points.insert(at); });
  } else {
    for (std::size_t i = 0; i < random_points; ++i) {
      Point at(rank);
      for (std::size_t d = 0; d < rank; ++d) at[d] = any(d);
      points.insert(at);
    }
  }
  return {points.begin(), points.end()};
}

}  // namespace syno::jit
