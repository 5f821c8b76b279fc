// program/infer.hpp — the ranges of iterators and the shapes of tensors that a text leaves out.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "program/program.hpp"

namespace syno::program::detail {

struct IteratorFacts {
  std::string name;
  std::optional<Range> range;
  bool fixed = false;     ///< the text itself states the range, so it may be any part of a dimension
  std::uint32_t same_as;  ///< slot of the iterator whose range this one has (itself when none)
};

struct TensorFacts {
  std::string name;
  std::vector<std::optional<Range>> dims;
  bool given = false;                    ///< dims were declared or passed by the caller
  std::vector<std::uint32_t> traversal;  ///< slots of the scope that writes it; empty for inputs
  bool accumulated = false;
  std::vector<std::vector<ExprId>> uses;  ///< per dimension: every index it is read (or accumulated) at
};

/// Least and greatest value of an index over its iterators' ranges, exact: by arithmetic where terms are
/// independent, by enumeration where they are not. Nothing when that would take too long.
std::optional<symbolic::Interval> exact_bounds(const Program& program, ExprId index,
                                               const std::function<Extent(std::uint32_t)>& range);

/// Fills in every range and dimension:
///  - an iterator that alone indexes a dimension runs over that dimension;
///  - otherwise the dimension has extent greatest index + 1 - p, where p = max(0, -least index), and given
///  the
///    extent, the one unknown iterator in its indices gets the greatest range that keeps to it.
/// With symbolic sizes only the first rule applies. ShapeError names what is missing or contradictory.
void infer(Program& program, std::vector<IteratorFacts>& iterators, std::vector<TensorFacts>& tensors);

}  // namespace syno::program::detail
