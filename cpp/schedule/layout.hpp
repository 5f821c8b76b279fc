// schedule/layout.hpp — layouts: how one tensor lies in memory, as a sequence of ALT's primitives (§4.1).
// A packed or padded copy is a tensor with a recorded layout; one rewriting applies every sequence.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/names.hpp"
#include "support/refusal.hpp"

namespace syno::schedule {

enum class LayoutKind : std::uint8_t { Split, Reorder, Fuse, Unfold, Pad, StoreAt };

/// One primitive on dimension `dim` (zero-based) of a tensor.
struct LayoutStep {
  LayoutKind kind = LayoutKind::Split;
  std::size_t dim = 0;
  /// Split: the new extents, whose product is the old one. Reorder: the permutation, new dimension d being
  /// old numbers[d]. Fuse: {count of consecutive dimensions}. Unfold: {tile, stride}. Pad: {before, after}.
  /// StoreAt: {slots appended to the dimension for another tensor's elements}.
  std::vector<std::int64_t> numbers;
  bool operator==(const LayoutStep&) const = default;
};
using Layout = std::vector<LayoutStep>;
using Shape = std::vector<std::int64_t>;

/// One row a primitive: its shape, its access, and the inverse of its access.
struct LayoutRow {
  std::string_view name;
  std::string_view meaning;
  LayoutKind kind;
  /// Why the step does not fit a shape.
  Refused (*misfit)(const LayoutStep& step, const Shape& shape);
  /// The shape after a step that fits.
  Shape (*fitting)(const LayoutStep& step, const Shape& shape);
  /// Where the element at `indices` (of a tensor of shape `shape`) lies after the step. An unfolded element
  /// lies in several places: this is its canonical one, in the earliest tile that holds it.
  std::vector<ExprId> (*access)(symbolic::Arena& arena, const LayoutStep& step, const Shape& shape,
                                std::vector<ExprId> indices);
  /// Which element a place holds; `conditions` gains what must hold for the place to hold one.
  std::vector<ExprId> (*inverse)(symbolic::Arena& arena, const LayoutStep& step, const Shape& shape,
                                 std::vector<ExprId> places, std::vector<Condition>& conditions);
  /// The shape after any step: ScheduleError where it does not fit.
  Shape shape(const LayoutStep& step, const Shape& before) const;
};
std::span<const LayoutRow> layout_primitives();
const LayoutRow& layout_primitive(std::string_view name);  ///< UnknownName lists the valid ones
OrRefusal<const LayoutRow*> find_layout_primitive(std::string_view name);
const LayoutRow& layout_primitive(LayoutKind kind);

/// S(shape), S(indices) and S⁻¹(places) of a whole sequence: rewriting an access of X in the nest of Y is
/// S_X(S_Y⁻¹(L')) (ALT §4.1.2).
Shape shape_after(const Layout& layout, Shape shape);  ///< ScheduleError where a step does not fit
OrRefusal<Shape> try_shape_after(const Layout& layout, Shape shape);
std::vector<ExprId> access(symbolic::Arena& arena, const Layout& layout, const Shape& shape,
                           std::vector<ExprId> indices);
std::vector<ExprId> inverse(symbolic::Arena& arena, const Layout& layout, const Shape& shape,
                            std::vector<ExprId> places, std::vector<Condition>& conditions);

std::string to_text(const LayoutStep& step);  ///< `split(1, 4, 16)`
/// `split(1, 4, 16) reorder(0, 1, 3, 4, 2)`; empty for a row-major tensor.
std::string to_text(const Layout& layout);
/// Reads it back. ParseError shows what is no step, UnknownName lists the primitives; whether a step fits a
/// shape is shape_after()'s affair.
Layout parse_layout(std::string_view text);

}  // namespace syno::schedule
