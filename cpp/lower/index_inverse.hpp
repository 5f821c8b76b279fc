// lower/index_inverse.hpp — inverts index maps: which points of an iteration space read a given element.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "program/program.hpp"
#include "symbolic/affine.hpp"

namespace syno::lower {

using symbolic::ExprId;
using symbolic::kNoSlot;
using symbolic::Range;
using Slot = std::uint32_t;

/// Iterators with ranges over a program's arena, while scopes are being derived.
class Iterators {
 public:
  explicit Iterators(program::Program& program);

  program::Program& program() { return program_; }
  symbolic::Arena& arena() { return program_.arena; }
  bool concrete() const { return program_.concrete(); }
  /// A new iterator; `like` names it for people.
  Slot add(std::string name, Range range);
  Slot add(std::string name, std::int64_t begin, std::int64_t end);
  const program::Iterator& operator[](Slot slot) const { return iterators_[slot]; }
  ExprId simplified(ExprId root);
  symbolic::Interval bounds(ExprId root);  ///< concrete programs only
  /// begin <= root < end at every point and valuation.
  bool within(ExprId root, Range range);
  std::int64_t begin(Slot slot);  ///< concrete programs only
  std::int64_t extent(Slot slot);

 private:
  symbolic::Context context();
  program::Program& program_;
  std::vector<program::Iterator> iterators_;  ///< by slot
};

/// begin <= value < end.
struct RangeCondition {
  ExprId value{};
  Range range;
};

/// All points of a space with index(point) = element, as a loop nest: `free` iterators run over their ranges,
/// every iterator of the space is an expression over them and the element, and a point counts where the
/// conditions hold. Each point appears exactly once.
struct Inverse {
  std::vector<Slot> free;
  std::map<Slot, ExprId> points;  ///< by iterator of the space
  std::vector<RangeCondition> conditions;
};

/// Solves indices[d] = element[d] for the iterators in `space`. Sums invert by blocks (B*i + j), by leaving
/// the shorter iterators free (h + r), and by residues (s*h + r: r = s*r' + p % s, so that a strided map
/// visits no point in vain); quotients, remainders and guards from the outside in. Nothing where a map is of
/// none of these kinds.
std::optional<Inverse> invert(Iterators& iterators, const std::vector<Slot>& space,
                              const std::vector<ExprId>& indices, const std::vector<ExprId>& element);

}  // namespace syno::lower
