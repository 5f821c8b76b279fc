#include "schedule/layout.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>

#include "support/checked.hpp"
#include "support/error.hpp"
#include "support/shown.hpp"

namespace syno::schedule {

namespace {

using symbolic::Arena;
using symbolic::Size;

constexpr const char* kLayout = "layout";
constexpr std::int64_t kMostPassed = 1024;  // starts of tiles that an index is compared with

std::int64_t product(std::span<const std::int64_t> extents) {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, checked_multiply);
}

std::string list(std::span<const std::int64_t> numbers) {
  return fmt::format("{}", fmt::join(numbers, ", "));
}

Refused need_dim(const LayoutStep& step, const Shape& shape) {
  if (step.dim >= shape.size())
    return refuse(kLayout, "{} names dimension {} of a tensor with {} dimensions", to_text(step), step.dim,
                  shape.size());
  return {};
}

Refused need_numbers(const LayoutStep& step, std::size_t least, std::size_t most) {
  if (step.numbers.size() < least || step.numbers.size() > most)
    return refuse(kLayout, "{} takes {} to {} numbers, not {}", layout_primitive(step.kind).name, least, most,
                  step.numbers.size());
  return {};
}

Refused split_misfit(const LayoutStep& step, const Shape& shape) {
  SYNO_ACCEPT(need_dim(step, shape));
  SYNO_ACCEPT(need_numbers(step, 1, 16));
  for (const auto extent : step.numbers)
    if (extent < 1) return refuse(kLayout, "{} holds an extent below 1", to_text(step));
  if (product(step.numbers) != shape[step.dim])
    return refuse(kLayout, "{}: the product of {} is not the extent {} of dimension {}; pad it first",
                  to_text(step), list(step.numbers), shape[step.dim], step.dim);
  return {};
}

Shape split_shape(const LayoutStep& step, const Shape& shape) {
  Shape after(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(step.dim));
  after.insert(after.end(), step.numbers.begin(), step.numbers.end());
  after.insert(after.end(), shape.begin() + static_cast<std::ptrdiff_t>(step.dim) + 1, shape.end());
  return after;
}

std::vector<ExprId> split_access(Arena& arena, const LayoutStep& step, const Shape&,
                                 std::vector<ExprId> indices) {
  const ExprId index = indices[step.dim];
  std::vector<ExprId> parts(step.numbers.size());
  std::int64_t inside = 1;
  for (std::size_t i = step.numbers.size(); i-- > 0;) {
    // The first part keeps no modulo: an index beyond the extent shows there instead of wrapping round.
    ExprId part = arena.divide(index, Size(inside));
    if (i > 0) part = arena.modulo(part, Size(step.numbers[i]));
    parts[i] = part;
    inside *= step.numbers[i];
  }
  indices.erase(indices.begin() + static_cast<std::ptrdiff_t>(step.dim));
  indices.insert(indices.begin() + static_cast<std::ptrdiff_t>(step.dim), parts.begin(), parts.end());
  return indices;
}

/// `count` places from `dim` on, as one index.
ExprId joined(Arena& arena, std::span<const ExprId> places, std::span<const std::int64_t> extents) {
  ExprId sum = arena.constant(0);
  std::int64_t inside = 1;
  for (std::size_t i = places.size(); i-- > 0;) {
    sum = arena.add(arena.multiply(places[i], inside), sum);
    inside *= extents[i];
  }
  return sum;
}

std::vector<ExprId> split_inverse(Arena& arena, const LayoutStep& step, const Shape&,
                                  std::vector<ExprId> places, std::vector<Condition>&) {
  const auto first = places.begin() + static_cast<std::ptrdiff_t>(step.dim);
  const ExprId index = joined(arena, {&*first, step.numbers.size()}, step.numbers);
  *first = index;
  places.erase(first + 1, first + static_cast<std::ptrdiff_t>(step.numbers.size()));
  return places;
}

Refused reorder_misfit(const LayoutStep& step, const Shape& shape) {
  std::vector<std::int64_t> sorted = step.numbers;
  std::sort(sorted.begin(), sorted.end());
  bool permutation = sorted.size() == shape.size();
  for (std::size_t d = 0; permutation && d < sorted.size(); ++d)
    permutation = sorted[d] == static_cast<std::int64_t>(d);
  if (!permutation)
    return refuse(kLayout, "{} is no permutation of the {} dimensions", to_text(step), shape.size());
  return {};
}

Shape reorder_shape(const LayoutStep& step, const Shape& shape) {
  Shape after;
  for (const auto d : step.numbers) after.push_back(shape[static_cast<std::size_t>(d)]);
  return after;
}

std::vector<ExprId> reorder_access(Arena&, const LayoutStep& step, const Shape&,
                                   std::vector<ExprId> indices) {
  std::vector<ExprId> after;
  for (const auto d : step.numbers) after.push_back(indices[static_cast<std::size_t>(d)]);
  return after;
}

std::vector<ExprId> reorder_inverse(Arena&, const LayoutStep& step, const Shape&, std::vector<ExprId> places,
                                    std::vector<Condition>&) {
  std::vector<ExprId> before(places.size());
  for (std::size_t d = 0; d < places.size(); ++d)
    before[static_cast<std::size_t>(step.numbers[d])] = places[d];
  return before;
}

Refused fuse_misfit(const LayoutStep& step, const Shape& shape) {
  SYNO_ACCEPT(need_dim(step, shape));
  SYNO_ACCEPT(need_numbers(step, 1, 1));
  const std::int64_t count = step.numbers[0];
  if (count < 1 || step.dim + static_cast<std::size_t>(count) > shape.size())
    return refuse(kLayout, "{}: there are no {} dimensions from {} on, the tensor has {}", to_text(step),
                  count, step.dim, shape.size());
  return {};
}

std::span<const std::int64_t> fused_extents(const LayoutStep& step, const Shape& shape) {
  return std::span(shape).subspan(step.dim, static_cast<std::size_t>(step.numbers[0]));
}

Shape fuse_shape(const LayoutStep& step, const Shape& shape) {
  Shape after = shape;
  after[step.dim] = product(fused_extents(step, shape));
  const auto first = after.begin() + static_cast<std::ptrdiff_t>(step.dim) + 1;
  after.erase(first, first + static_cast<std::ptrdiff_t>(step.numbers[0]) - 1);
  return after;
}

std::vector<ExprId> fuse_access(Arena& arena, const LayoutStep& step, const Shape& shape,
                                std::vector<ExprId> indices) {
  const auto extents = fused_extents(step, shape);
  const auto first = indices.begin() + static_cast<std::ptrdiff_t>(step.dim);
  *first = joined(arena, {&*first, extents.size()}, extents);
  indices.erase(first + 1, first + static_cast<std::ptrdiff_t>(extents.size()));
  return indices;
}

std::vector<ExprId> fuse_inverse(Arena& arena, const LayoutStep& step, const Shape& shape,
                                 std::vector<ExprId> places, std::vector<Condition>&) {
  const auto extents = fused_extents(step, shape);
  const LayoutStep split{LayoutKind::Split, step.dim, {extents.begin(), extents.end()}};
  return split_access(arena, split, shape, std::move(places));
}

std::int64_t tiles_of(const LayoutStep& step, std::int64_t extent) {
  const std::int64_t tile = step.numbers[0], stride = step.numbers[1];
  return extent <= tile ? 1 : (extent - tile + stride - 1) / stride + 1;
}

/// Whether the last tile holds starts of further ones: an index there is found by counting starts.
bool passes_starts(const LayoutStep& step, std::int64_t extent) {
  return (extent - 1) / step.numbers[1] > tiles_of(step, extent) - 1;
}

Refused unfold_misfit(const LayoutStep& step, const Shape& shape) {
  SYNO_ACCEPT(need_dim(step, shape));
  SYNO_ACCEPT(need_numbers(step, 2, 2));
  const std::int64_t tile = step.numbers[0], stride = step.numbers[1];
  if (stride < 1 || tile < stride)
    return refuse(kLayout, "{}: tile {} and stride {} leave elements out; need 1 <= stride <= tile",
                  to_text(step), tile, stride);
  const std::int64_t tiles = tiles_of(step, shape[step.dim]);
  const std::int64_t starts = (shape[step.dim] - 1) / stride + 1;
  if (std::min(tiles, starts - tiles) > kMostPassed)
    return refuse(kLayout, "{}: {} tiles of {} elements reach over {} starts; at most {} may", to_text(step),
                  tiles, tile, starts, kMostPassed);
  return {};
}

Shape unfold_shape(const LayoutStep& step, const Shape& shape) {
  Shape after = shape;
  after[step.dim] = tiles_of(step, shape[step.dim]);
  after.insert(after.begin() + static_cast<std::ptrdiff_t>(step.dim) + 1, step.numbers[0]);
  return after;
}

std::vector<ExprId> unfold_access(Arena& arena, const LayoutStep& step, const Shape& shape,
                                  std::vector<ExprId> indices) {
  // The canonical owner is the tile the index starts in; only the last tile reaches further than its stride.
  const std::int64_t stride = step.numbers[1];
  const ExprId index = indices[step.dim];
  const std::int64_t tiles = tiles_of(step, shape[step.dim]);
  // min(index / stride, tiles - 1) without a minimum: what lies behind the last tile's start belongs to it.
  ExprId tile = arena.divide(index, Size(stride));
  if (passes_starts(step, shape[step.dim])) {
    const std::int64_t extent = shape[step.dim], starts = (extent - 1) / stride + 1;
    // 1 once index >= start: floor((index + shift) / extent) with both below one extent.
    const auto passed = [&](std::int64_t start) {
      return arena.divide(arena.add(index, arena.constant(extent - start * stride)), Size(extent));
    };
    // Either the starts of tiles are counted, or those that are too many are taken back.
    if (tiles - 1 <= starts - tiles) {
      tile = arena.constant(0);
      for (std::int64_t t = 1; t < tiles; ++t) tile = arena.add(tile, passed(t));
    } else {
      for (std::int64_t t = tiles; t < starts; ++t) tile = arena.subtract(tile, passed(t));
    }
  }
  indices[step.dim] = tile;
  indices.insert(indices.begin() + static_cast<std::ptrdiff_t>(step.dim) + 1,
                 arena.subtract(index, arena.multiply(tile, stride)));
  return indices;
}

std::vector<ExprId> unfold_inverse(Arena& arena, const LayoutStep& step, const Shape& shape,
                                   std::vector<ExprId> places, std::vector<Condition>& conditions) {
  const auto at = places.begin() + static_cast<std::ptrdiff_t>(step.dim);
  const ExprId index = arena.add(arena.multiply(at[0], step.numbers[1]), at[1]);
  conditions.push_back({index, 0, shape[step.dim]});
  at[0] = index;
  places.erase(at + 1);
  return places;
}

Refused pad_misfit(const LayoutStep& step, const Shape& shape) {
  SYNO_ACCEPT(need_dim(step, shape));
  SYNO_ACCEPT(need_numbers(step, 2, 2));
  if (step.numbers[0] < 0 || step.numbers[1] < 0)
    return refuse(kLayout, "{} pads by a negative amount", to_text(step));
  return {};
}

Shape pad_shape(const LayoutStep& step, const Shape& shape) {
  Shape after = shape;
  after[step.dim] = checked_add(after[step.dim], checked_add(step.numbers[0], step.numbers[1]));
  return after;
}

std::vector<ExprId> pad_access(Arena& arena, const LayoutStep& step, const Shape&,
                               std::vector<ExprId> indices) {
  indices[step.dim] = arena.add(indices[step.dim], arena.constant(step.numbers[0]));
  return indices;
}

std::vector<ExprId> pad_inverse(Arena& arena, const LayoutStep& step, const Shape& shape,
                                std::vector<ExprId> places, std::vector<Condition>& conditions) {
  places[step.dim] = arena.add(places[step.dim], arena.constant(-step.numbers[0]));
  if (step.numbers[0] + step.numbers[1] > 0) conditions.push_back({places[step.dim], 0, shape[step.dim]});
  return places;
}

Refused store_at_misfit(const LayoutStep& step, const Shape& shape) {
  SYNO_ACCEPT(need_dim(step, shape));
  SYNO_ACCEPT(need_numbers(step, 1, 1));
  if (step.numbers[0] < 1) return refuse(kLayout, "{} appends no slot", to_text(step));
  return {};
}

Shape store_at_shape(const LayoutStep& step, const Shape& shape) {
  Shape after = shape;
  after[step.dim] = checked_add(after[step.dim], step.numbers[0]);
  return after;
}

std::vector<ExprId> store_at_access(Arena&, const LayoutStep&, const Shape&, std::vector<ExprId> indices) {
  return indices;
}

std::vector<ExprId> store_at_inverse(Arena&, const LayoutStep& step, const Shape& shape,
                                     std::vector<ExprId> places, std::vector<Condition>& conditions) {
  conditions.push_back({places[step.dim], 0, shape[step.dim]});
  return places;
}

constexpr std::array kPrimitives = {
    LayoutRow{"split", "dimension k of extent F1*..*Fm becomes m dimensions", LayoutKind::Split, split_misfit,
              split_shape, split_access, split_inverse},
    LayoutRow{"reorder", "the dimensions in another order", LayoutKind::Reorder, reorder_misfit,
              reorder_shape, reorder_access, reorder_inverse},
    LayoutRow{"fuse", "consecutive dimensions become one", LayoutKind::Fuse, fuse_misfit, fuse_shape,
              fuse_access, fuse_inverse},
    LayoutRow{"unfold", "overlapping tiles of B elements every S elements", LayoutKind::Unfold, unfold_misfit,
              unfold_shape, unfold_access, unfold_inverse},
    LayoutRow{"pad", "room before and after the elements of a dimension", LayoutKind::Pad, pad_misfit,
              pad_shape, pad_access, pad_inverse},
    LayoutRow{"store_at", "slots behind a dimension for the elements of another tensor", LayoutKind::StoreAt,
              store_at_misfit, store_at_shape, store_at_access, store_at_inverse},
};

}  // namespace

std::span<const LayoutRow> layout_primitives() { return kPrimitives; }

OrRefusal<const LayoutRow*> find_layout_primitive(std::string_view name) {
  std::vector<std::string> valid;
  for (const auto& row : kPrimitives) {
    if (row.name == name) return &row;
    valid.emplace_back(row.name);
  }
  return refuse_unknown(kLayout, unknown_name("layout primitive", name, valid), Refusal::Kind::Unknown);
}

const LayoutRow& layout_primitive(std::string_view name) { return *find_layout_primitive(name).or_raise(); }

const LayoutRow& layout_primitive(LayoutKind kind) {
  for (const auto& row : kPrimitives)
    if (row.kind == kind) return row;
  SYNO_ASSERT(false, "a layout primitive without a row");
  return kPrimitives[0];
}

Shape LayoutRow::shape(const LayoutStep& step, const Shape& before) const {
  raise_if(misfit(step, before));
  return fitting(step, before);
}

OrRefusal<Shape> try_shape_after(const Layout& layout, Shape shape) {
  for (const auto& step : layout) {
    const LayoutRow& row = layout_primitive(step.kind);
    SYNO_ACCEPT(row.misfit(step, shape));
    shape = row.fitting(step, shape);
  }
  return shape;
}

Shape shape_after(const Layout& layout, Shape shape) {
  return try_shape_after(layout, std::move(shape)).or_raise();
}

std::vector<ExprId> access(Arena& arena, const Layout& layout, const Shape& shape,
                           std::vector<ExprId> indices) {
  Shape current = shape;
  for (const auto& step : layout) {
    const LayoutRow& row = layout_primitive(step.kind);
    indices = row.access(arena, step, current, std::move(indices));
    current = row.shape(step, current);
  }
  return indices;
}

std::vector<ExprId> inverse(Arena& arena, const Layout& layout, const Shape& shape,
                            std::vector<ExprId> places, std::vector<Condition>& conditions) {
  std::vector<Shape> before{shape};
  for (const auto& step : layout) before.push_back(layout_primitive(step.kind).shape(step, before.back()));
  for (std::size_t i = layout.size(); i-- > 0;)
    places =
        layout_primitive(layout[i].kind).inverse(arena, layout[i], before[i], std::move(places), conditions);
  return places;
}

std::string to_text(const LayoutStep& step) {
  const auto& row = layout_primitive(step.kind);
  if (step.kind == LayoutKind::Reorder) return fmt::format("{}({})", row.name, list(step.numbers));
  return fmt::format("{}({}{}{})", row.name, step.dim, step.numbers.empty() ? "" : ", ", list(step.numbers));
}

std::string to_text(const Layout& layout) {
  std::vector<std::string> steps;
  for (const LayoutStep& step : layout) steps.push_back(to_text(step));
  return fmt::format("{}", fmt::join(steps, " "));
}

Layout parse_layout(std::string_view text) {
  Layout layout;
  std::size_t at = 0;
  const auto wrong = [&](std::string_view message) {
    fail<ParseError>(kLayout,
                     "{} at column {} of '{}'; a layout is written as split(1, 4, 8) reorder(0, 1, 3, 2)",
                     message, at + 1, shown(text));
  };
  const auto skip = [&] {
    while (at < text.size() && text[at] == ' ') ++at;
  };
  const auto take = [&](char symbol) {
    skip();
    const bool is = at < text.size() && text[at] == symbol;
    at += is;
    return is;
  };
  for (skip(); at < text.size(); skip()) {
    const std::size_t begin = at;
    while (at < text.size() && ((text[at] >= 'a' && text[at] <= 'z') || text[at] == '_')) ++at;
    if (at == begin) wrong("expected a primitive");
    LayoutStep step;
    step.kind = layout_primitive(text.substr(begin, at - begin)).kind;
    if (!take('(')) wrong("expected `(`");
    do {
      skip();
      std::int64_t number = 0;
      const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), number);
      if (error != std::errc()) wrong("expected an integer of 64 bits");
      at = static_cast<std::size_t>(end - text.data());
      step.numbers.push_back(number);
    } while (take(','));
    if (!take(')')) wrong("expected `,` or `)`");
    if (step.kind != LayoutKind::Reorder) {
      if (step.numbers[0] < 0) wrong("a dimension is at least 0");
      step.dim = static_cast<std::size_t>(step.numbers[0]);
      step.numbers.erase(step.numbers.begin());
    }
    layout.push_back(std::move(step));
  }
  return layout;
}

}  // namespace syno::schedule
