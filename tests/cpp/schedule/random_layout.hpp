// Random layouts for property tests, and all indices of a shape.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "schedule/layout.hpp"
#include "support/random.hpp"

namespace syno::schedule::testing {

inline std::int64_t draw(Random& random, std::int64_t least, std::int64_t most) {
  return least + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(most - least + 1)));
}

inline Shape random_shape(Random& random) {
  Shape shape;
  for (std::int64_t d = draw(random, 1, 4); d > 0; --d) shape.push_back(draw(random, 1, 6));
  return shape;
}

inline LayoutStep random_step(Random& random, LayoutKind kind, const Shape& shape) {
  LayoutStep step{
      kind, static_cast<std::size_t>(draw(random, 0, static_cast<std::int64_t>(shape.size()) - 1)), {}};
  const std::int64_t extent = shape[step.dim];
  switch (kind) {
    case LayoutKind::Split: {
      std::int64_t left = extent;
      for (std::int64_t f = 2; f <= left; ++f)
        while (left % f == 0 && step.numbers.size() < 3) step.numbers.push_back(f), left /= f;
      step.numbers.push_back(left);
      break;
    }
    case LayoutKind::Reorder:
      step.dim = 0;
      for (std::size_t d = 0; d < shape.size(); ++d) step.numbers.push_back(static_cast<std::int64_t>(d));
      for (std::size_t d = shape.size(); d-- > 1;)
        std::swap(step.numbers[d], step.numbers[random.below(d + 1)]);
      break;
    case LayoutKind::Fuse:
      step.numbers = {draw(random, 1, static_cast<std::int64_t>(shape.size() - step.dim))};
      break;
    case LayoutKind::Unfold: {
      const std::int64_t tile = draw(random, 1, extent + 1);
      step.numbers = {tile, draw(random, 1, tile)};
      break;
    }
    case LayoutKind::Pad:
      step.numbers = {draw(random, 0, 3), draw(random, 0, 3)};
      break;
    case LayoutKind::StoreAt:
      step.numbers = {draw(random, 1, 3)};
      break;
  }
  return step;
}

inline void for_each_index(const Shape& shape,
                           const std::function<void(const std::vector<std::int64_t>&)>& body) {
  std::vector<std::int64_t> index(shape.size(), 0);
  for (;;) {
    body(index);
    std::size_t d = shape.size();
    while (d-- > 0) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
    if (d == static_cast<std::size_t>(-1)) return;
  }
}

/// Up to `most` steps; with the paper's advanced primitives among them, or without. Not of more than 4000
/// places.
inline Layout random_layout(Random& random, const Shape& shape, bool advanced, std::int64_t most = 4) {
  Layout layout;
  Shape current = shape;
  for (std::int64_t steps = draw(random, 1, most); steps > 0; --steps) {
    const auto kind = static_cast<LayoutKind>(draw(random, 0, advanced ? 5 : 2));
    LayoutStep step = random_step(random, kind, current);
    const Shape after = layout_primitive(kind).shape(step, current);
    std::int64_t places = 1;
    for (const std::int64_t extent : after) places *= extent;
    if (places > 4000 || after.size() > 8) continue;
    layout.push_back(std::move(step));
    current = after;
  }
  return layout;
}

/// The values of a tensor of `shape`, row-major, as they lie: 0 where there is no element.
inline std::vector<double> laid(const Layout& layout, const Shape& shape, const std::vector<double>& values) {
  symbolic::Arena arena;
  std::vector<ExprId> places;
  const Shape after = shape_after(layout, shape);
  for (std::uint32_t d = 0; d < after.size(); ++d) places.push_back(arena.iterator(d));
  std::vector<Condition> conditions;
  const auto elements = inverse(arena, layout, shape, places, conditions);
  std::vector<double> made;
  for_each_index(after, [&](const std::vector<std::int64_t>& at) {
    const auto value = [&](ExprId e) { return *symbolic::evaluate(arena, e, {}, 0, at); };
    bool holds = true;
    for (const Condition& c : conditions) holds = holds && value(c.expr) >= c.begin && value(c.expr) < c.end;
    std::int64_t offset = 0;
    for (std::size_t d = 0; holds && d < shape.size(); ++d) offset = offset * shape[d] + value(elements[d]);
    made.push_back(holds ? values[static_cast<std::size_t>(offset)] : 0);
  });
  return made;
}

}  // namespace syno::schedule::testing
