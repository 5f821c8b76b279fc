#include "schedule/prefetch.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

#include "schedule/plan.hpp"

namespace syno::schedule {

namespace {

constexpr std::int64_t kLine = 64;   ///< bytes
constexpr std::int64_t kSparse = 2;  ///< elements of a box for each that is read

/// What some loops read together: a box whose last dimensions lie in one run of memory.
struct Box {
  std::vector<std::int64_t> least, extents;  ///< by dimension, seen from the first iterations
  std::size_t rows = 0;                      ///< leading dimensions outside the run
  std::int64_t run = 1;                      ///< elements
};

std::optional<Box> box_of(const LoopNest& nest, AffineForms& forms, BufferId id,
                          const std::vector<ExprId>& places, const std::vector<Trips>& inner) {
  Box box;
  for (const ExprId place : places) {
    const AffineForm now = forms.form(nest.arena, place);
    std::int64_t least = 0, extent = 1, read = 1;
    for (const Trips& trips : inner) {
      bool linear = false;
      const std::int64_t step = forms.coefficient(now, trips.slot, &linear);
      if (!linear) return std::nullopt;
      if (step == 0) continue;
      least += std::min<std::int64_t>(0, step * (trips.count - 1));
      extent += std::abs(step) * (trips.count - 1);
      read *= trips.count;
    }
    if (extent > kSparse * read) return std::nullopt;
    box.least.push_back(least);
    box.extents.push_back(extent);
  }
  const Buffer& buffer = nest.buffer(id);
  box.rows = places.size();
  while (box.rows > 0) {
    const std::size_t d = box.rows - 1;
    if (buffer.strides[d] != box.run) break;
    const bool whole = box.extents[d] == buffer.extents[d];
    box.run *= box.extents[d];
    --box.rows;
    if (!whole) break;
  }
  if (box.rows == places.size()) return std::nullopt;  // neighbours do not lie together
  return box;
}

/// Whether an iteration of a loop reads none of what the one before read: windows, for one, overlap.
bool moves_past(const LoopNest& nest, AffineForms& forms, const std::vector<ExprId>& places, const Box& box,
                const Trips& trips) {
  for (std::size_t d = 0; d < places.size(); ++d) {
    bool linear = false;
    const std::int64_t step = forms.coefficient(forms.form(nest.arena, places[d]), trips.slot, &linear);
    if (!linear || std::abs(step) >= box.extents[d]) return true;
  }
  return false;
}

/// Whether the place of a line follows from its number by shifts: other divisions, in every step, take longer
/// than they save.
bool shifts_tell(const Box& box, std::int64_t lines_of_run) {
  const auto shift = [](std::int64_t by) { return std::has_single_bit(static_cast<std::uint64_t>(by)); };
  std::int64_t outer = 1;  // rows that have not been told apart
  for (std::size_t d = 0; d < box.rows; ++d) outer *= box.extents[d];
  if (outer > 1 && !shift(lines_of_run)) return false;
  for (std::size_t d = box.rows; d-- > 0;) {
    outer /= box.extents[d];
    if (outer > 1 && !shift(box.extents[d])) return false;
  }
  return true;
}

}  // namespace

std::optional<StatementId> prefetch_next(LoopNest& nest, AffineForms& forms, BufferId buffer,
                                         const std::vector<ExprId>& places, const Walk& walk) {
  if (places.empty()) return std::nullopt;
  const auto bytes = static_cast<std::int64_t>(byte_size(nest.buffer(buffer).dtype));
  // Loops from the innermost outwards: what those inside one have read is read again where it does not move
  // past that, from near if there is little of it. New is what comes with the next loop that moves past.
  std::vector<Trips> until, inner = walk.steps;
  inner.insert(inner.end(), walk.tile.begin(), walk.tile.end());
  std::optional<Box> box;
  Trips moving;
  for (std::size_t i = walk.outside.size(); i-- > 0;) {
    const Trips& trips = walk.outside[i];
    const auto inside = box_of(nest, forms, buffer, places, inner);
    if (!inside) break;
    std::int64_t size = bytes;
    for (const std::int64_t extent : inside->extents) size *= extent;
    const bool past = moves_past(nest, forms, places, *inside, trips);
    if (past && !box) {
      box = inside;
      moving = trips;
      until.assign(walk.outside.begin() + static_cast<std::ptrdiff_t>(i) + 1, walk.outside.end());
      until.insert(until.end(), walk.steps.begin(), walk.steps.end());
    } else if (!past && size <= walk.near_bytes) {
      box.reset();
    }
    inner.insert(inner.begin(), trips);
  }
  if (!box) return std::nullopt;
  std::vector<Trips> fixed = until;
  fixed.insert(fixed.end(), walk.tile.begin(), walk.tile.end());
  std::vector<AffineForm> at;  // the box of the next iteration begins here
  for (std::size_t d = 0; d < places.size(); ++d) {
    const ExprId next = nest.arena.substitute(places[d], [&](std::uint32_t slot) {
      const ExprId itself = nest.arena.iterator(slot);
      if (slot == moving.slot) return nest.arena.add(itself, nest.arena.constant(1));
      for (const Trips& trips : fixed)
        if (trips.slot == slot) return nest.arena.constant(trips.begin);
      return itself;
    });
    at.push_back(with_constant(forms.form(nest.arena, next), box->least[d]));
  }

  // The steps until the next iteration, numbered; each of them asks for the line of its number.
  AffineForm step;
  std::int64_t steps = 1, fewest = 1;
  for (const Trips& trips : until) {
    step = add(multiply(step, trips.count), with_constant(forms.slot_form(trips.slot), -trips.begin));
    steps *= trips.count;
    fewest *= trips.fewest > 0 ? std::min(trips.fewest, trips.count) : trips.count;
  }
  const std::int64_t line = kLine / bytes, lines_of_run = (box->run + line - 1) / line;
  std::int64_t lines = lines_of_run;
  for (std::size_t d = 0; d < box->rows; ++d) lines *= box->extents[d];
  if (lines > steps) return std::nullopt;  // several at a step would take the place of multiply-adds
  if (!shifts_tell(*box, lines_of_run)) return std::nullopt;
  // A call of fewer rows has fewer steps to ask in; one of more asks for the same lines again.
  const bool again = fewest < steps && std::has_single_bit(static_cast<std::uint64_t>(lines));
  const std::int64_t enough = again ? std::max(fewest, lines) : steps;
  const auto slower = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(enough / lines)));
  AffineForm number = forms.quotient(step, slower);
  if (again) number = forms.remainder(number, lines);
  // The outermost part takes what is left, so that the last steps ask beyond the box.
  std::int64_t outer = lines / lines_of_run;
  const AffineForm of_run = outer > 1 ? forms.remainder(number, lines_of_run) : number;
  if (outer > 1) number = forms.quotient(number, lines_of_run);
  at.back() = add(at.back(), multiply(of_run, line));
  for (std::size_t d = box->rows; d-- > 0 && outer > 1;) {
    outer /= box->extents[d];
    at[d] = add(at[d], outer > 1 ? forms.remainder(number, box->extents[d]) : number);
    if (outer > 1) number = forms.quotient(number, box->extents[d]);
  }
  std::vector<ExprId> indices;
  for (const AffineForm& index : at) indices.push_back(to_expr(nest.arena, forms, index));
  return nest.prefetch(buffer, std::move(indices));
}

}  // namespace syno::schedule
