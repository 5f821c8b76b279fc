// machine/footprint.hpp — which lines of memory accesses touch, counted from the steps by which they move;
// and what two accesses to a buffer touch together.
#pragma once

#include <array>
#include <cstddef>
#include <utility>

#include "machine/nest_facts.hpp"

namespace syno::machine {

/// By how many elements addresses move, and how many values that has: rows of 28 in images are {1, 28},
/// {28, 28}, {784, 16}. Few enough to be copied.
struct Steps {
  std::array<std::pair<double, double>, 16> each;
  std::size_t count = 0;

  std::pair<double, double>* find(double step);
  /// Another step; twice the same one goes as far as both. False where there is no room.
  bool add(double step, double width);
};

/// Distinct lines, of so many elements each: a step no further than what nearer ones cover lengthens the run,
/// another repeats it elsewhere. `pieces`: how many runs that are.
double lines_of(Steps steps, double line, double* pieces = nullptr);

/// The steps of two accesses that move alike together, as of one access: the second begins `ahead` elements
/// behind the first one's beginning, or before it. Rows 0 to 7 and 8 to 13 of images of 14 are all of them;
/// halves of a line are the line; what lies within all that the first one walks over adds nothing. False
/// where there is no room.
bool join(Steps& before, const Steps& access, double ahead);

/// Whether two accesses to a buffer never meet: parts of a loop that was cut in two, which walk over panels
/// of their own. False where that is not certain.
bool apart(const Access& a, const Access& b);

/// Whether all that moves one of two accesses moves the other one as far, each as often as it may.
bool move_alike(const Access& a, const Access& b);

}  // namespace syno::machine
