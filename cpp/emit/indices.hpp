// emit/indices.hpp — index arithmetic while a scope is rewritten for an emitter: integer ranges for every
// slot.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "program/program.hpp"
#include "symbolic/affine.hpp"
#include "symbolic/simplify.hpp"

namespace syno::emit {

using symbolic::ExprId;
using Slot = std::uint32_t;

inline bool contains(const std::vector<Slot>& slots, Slot slot) {
  return std::find(slots.begin(), slots.end(), slot) != slots.end();
}

/// Works on a copy of a concrete program's arena, so that new expressions can be made.
class Indices {
 public:
  explicit Indices(const program::Program& program);

  symbolic::Arena& arena() { return arena_; }
  Slot new_slot(std::int64_t extent);  ///< walks [0, extent)
  program::Extent range(Slot slot) const { return ranges_[slot]; }
  std::int64_t extent(Slot slot) const { return ranges_[slot].end - ranges_[slot].begin; }
  void start_at_zero(Slot slot) { ranges_[slot] = {0, extent(slot)}; }
  ExprId simplified(ExprId root);
  symbolic::Interval bounds(ExprId root);
  symbolic::AffineForm<ExprId> affine(ExprId root) const { return symbolic::affine_form(arena_, root); }

 private:
  symbolic::Context context();

  symbolic::Sizes sizes_;
  symbolic::Arena arena_;
  std::vector<program::Extent> ranges_;  ///< by slot
};

/// The program, concrete: itself, or at its only valuation. ShapeError where there are several.
program::Program concrete(std::string_view where, const program::Program& program);

}  // namespace syno::emit
