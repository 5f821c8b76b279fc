// jit/check_points.hpp — where the results of a kernel are looked at: where code changes, and random places.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "nest/loop_nest.hpp"
#include "support/random.hpp"

namespace syno::jit {

using Point = std::vector<std::int64_t>;
using Breakpoints = std::map<std::int64_t, std::vector<std::int64_t>>;  ///< by extent, as they are needed

/// Calls visit(point) for every point of a shape, last index fastest.
template <class Visit>
void for_each_point(const std::vector<std::int64_t>& shape, const Visit& visit) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return;
  Point at(shape.size(), 0);
  for (;;) {
    visit(at);
    std::size_t d = shape.size();
    for (; d-- > 0;) {
      if (++at[d] < shape[d]) break;
      at[d] = 0;
    }
    if (d == static_cast<std::size_t>(-1)) return;
  }
}

/// Points of an output, ascending, none twice: its corners, breakpoints of each dimension among random others
/// and among breakpoints of the others, and so many random ones; all where there are few. None of an output
/// without elements.
std::vector<Point> points_of(const nest::LoopNest& nest, Breakpoints& known,
                             const std::vector<std::int64_t>& shape, std::size_t random_points,
                             Random& random);

}  // namespace syno::jit
