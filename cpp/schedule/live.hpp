// schedule/live.hpp — programs of which extents are known at run time, made from what they are at some sizes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/program.hpp"

namespace syno::schedule {

/// A concrete program at these values of the sizes.
struct Instance {
  std::vector<std::int64_t> sizes;
  program::Program program;
};

/// The first program, which is the one of the largest sizes, with live ends on the ranges that the sizes
/// change: each is (times * size + plus) / by of one size, as the others say. ShapeError where programs
/// differ in more than ends of ranges, such as an index that holds a size, or an end is no such function.
program::Program with_live_ends(const std::vector<Instance>& instances,
                                const std::vector<std::string>& names);

/// The live ends of a program's ranges, as text: what tells it from the program of the largest sizes, whose
/// text is the same. Empty: it has none.
std::string live_ends(const program::Program& program);

}  // namespace syno::schedule
