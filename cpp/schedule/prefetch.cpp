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
/// Multiply-adds of vectors for each line where a step asks for several. From products of 1 to 28 rows that
/// stream 19 MB on a Zen 5: out of memory 28 rows take 0.46 of the time, 14 rows 0.75, 4 rows 0.89; out of
/// the last cache 0.9, 0.97, and 1.3.
constexpr std::int64_t kWorkOfALine = 8;
constexpr std::int64_t kMostLines = 8;  ///< that a step asks for
constexpr std::int64_t kWorthAStream =
    4;  ///< times what lies between asking and reading: else it ends before

/// Whether a step's multiply-adds leave room to ask for so many lines.
bool has_room(const Walk& walk, std::int64_t lines, std::int64_t line) {
  std::int64_t work = 1;
  for (const Trips& trips : walk.tile) work *= trips.count;
  return lines <= kMostLines && work >= kWorkOfALine * lines * line;
}

/// Iterations in all slices together, and the first of them.
std::int64_t span(const Trips& trips) { return trips.whole > 0 ? trips.whole : trips.count; }
std::int64_t start(const Trips& trips) { return trips.whole > 0 ? 0 : trips.begin; }

/// Which of how many slices of a walk that read the same this one is.
Slice share_of(const LoopNest& nest, const std::vector<ExprId>& places, const Walk& walk) {
  Slice share;
  for (const Slice& slice : walk.slices) {
    const bool moves = std::any_of(places.begin(), places.end(), [&](ExprId place) {
      const auto slots = nest.arena.iterators(place);
      return std::find(slots.begin(), slots.end(), slice.slot) != slots.end();
    });
    if (!moves) share = {0, share.which * slice.of + slice.which, share.of * slice.of};
  }
  return share;
}

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
      least += std::min<std::int64_t>(0, step * (span(trips) - 1));
      extent += std::abs(step) * (span(trips) - 1);
      read *= span(trips);
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

/// For what is read when the read moves on; of `several` lines a step where there are more of them than
/// steps.
std::vector<StatementId> prefetch_next(LoopNest& nest, AffineForms& forms, BufferId buffer,
                                       const std::vector<ExprId>& places, const Walk& walk, bool several) {
  const auto bytes = static_cast<std::int64_t>(byte_size(nest.buffer(buffer).dtype));
  Slice share = share_of(nest, places, walk);
  std::vector<Trips> own_steps = walk.steps;
  if (share.of == 1)
    for (Trips& trips : own_steps) trips.whole = 0;
  // Loops from the innermost outwards: what those inside one have read is read again where it does not move
  // past that, from near if there is little of it. New is what comes with the next loop that moves past.
  std::vector<Trips> until, inner = own_steps;
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
      until.insert(until.end(), own_steps.begin(), own_steps.end());
    } else if (!past && size <= walk.near_bytes) {
      box.reset();
    }
    inner.insert(inner.begin(), trips);
  }
  if (!box) return {};
  std::vector<Trips> fixed = until;
  fixed.insert(fixed.end(), walk.tile.begin(), walk.tile.end());
  std::vector<AffineForm> at;  // the box of the next iteration begins here
  for (std::size_t d = 0; d < places.size(); ++d) {
    const ExprId next = nest.arena.substitute(places[d], [&](std::uint32_t slot) {
      const ExprId itself = nest.arena.iterator(slot);
      if (slot == moving.slot) return nest.arena.add(itself, nest.arena.constant(1));
      for (const Trips& trips : fixed)
        if (trips.slot == slot) return nest.arena.constant(start(trips));
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
  std::int64_t all_lines = lines_of_run;
  for (std::size_t d = 0; d < box->rows; ++d) all_lines *= box->extents[d];
  if (!shifts_tell(*box, lines_of_run)) return {};
  if (share.of > 1 && all_lines * kLine > walk.near_bytes) {
    if (share.which > 0) return {};  // what the slices after it read again does not stay near
    share = {};
  }
  const std::int64_t lines = (all_lines + share.of - 1) / share.of;
  // A call of fewer rows has fewer steps to ask in; one of more asks for the same lines again, or no more.
  const bool again = fewest < steps && std::has_single_bit(static_cast<std::uint64_t>(lines));
  std::int64_t enough = again && lines <= steps ? std::max(fewest, lines) : steps;
  std::int64_t of_a_step = (lines + enough - 1) / enough;
  const bool ends = fewest < steps && !again;
  if (ends) {
    of_a_step = (lines + fewest - 1) / fewest;
    while (of_a_step > 1 && !has_room(walk, of_a_step, line)) --of_a_step;
    enough = std::min(steps, (lines + of_a_step - 1) / of_a_step);
  }
  const bool soon = all_lines * kLine < walk.ahead_bytes;
  if (of_a_step > 1 && (!several || soon || !has_room(walk, of_a_step, line))) return {};
  const auto slower = static_cast<std::int64_t>(
      std::bit_floor(static_cast<std::uint64_t>(std::max(enough / lines, std::int64_t{1}))));
  std::vector<StatementId> asked;
  for (std::int64_t which = 0; which < of_a_step; ++which) {
    AffineForm number = with_constant(multiply(forms.quotient(step, slower), of_a_step), which);
    if (again) number = forms.remainder(number, lines);
    number = with_constant(number, share.which * lines);
    // The outermost part takes what is left, so that the last steps ask beyond the box.
    std::int64_t outer = all_lines / lines_of_run;
    const AffineForm of_run = outer > 1 ? forms.remainder(number, lines_of_run) : number;
    if (outer > 1) number = forms.quotient(number, lines_of_run);
    std::vector<AffineForm> place = at;
    place.back() = add(place.back(), multiply(of_run, line));
    for (std::size_t d = box->rows; d-- > 0 && outer > 1;) {
      outer /= box->extents[d];
      place[d] = add(place[d], outer > 1 ? forms.remainder(number, box->extents[d]) : number);
      if (outer > 1) number = forms.quotient(number, box->extents[d]);
    }
    std::vector<ExprId> indices;
    for (const AffineForm& index : place) indices.push_back(to_expr(nest.arena, forms, index));
    asked.push_back(nest.prefetch(buffer, std::move(indices)));
  }
  if (!ends || enough == steps) return asked;
  const ExprId number = to_expr(nest.arena, forms, step);
  return {nest.guard({{number, 0, enough}}, nest.sequence(std::move(asked)))};
}

std::vector<StatementId> prefetch_stream(LoopNest& nest, AffineForms& forms, BufferId buffer,
                                         const std::vector<ExprId>& places, const Walk& walk) {
  if (walk.ahead_bytes == 0) return {};
  const Buffer read = nest.buffer(buffer);
  const auto bytes = static_cast<std::int64_t>(byte_size(read.dtype));
  const auto box = box_of(nest, forms, buffer, places, walk.tile);
  if (!box) return {};
  for (std::size_t d = 0; d < box->rows; ++d)
    if (box->extents[d] > 1) return {};  // several runs
  const std::int64_t line = kLine / bytes, lines = (box->run + line - 1) / line;
  if (!has_room(walk, lines, line)) return {};
  // Loops around, from the innermost outwards, go on where those inside end.
  std::vector<Trips> around = walk.outside;
  around.insert(around.end(), walk.steps.begin(), walk.steps.end());
  std::int64_t length = box->run;
  for (std::size_t i = around.size(); i-- > 0;) {
    if (around[i].count == 1) continue;
    std::int64_t moves = 0;
    bool all_linear = true;
    for (std::size_t d = 0; d < places.size(); ++d) {
      bool linear = false;
      moves +=
          read.strides[d] * forms.coefficient(forms.form(nest.arena, places[d]), around[i].slot, &linear);
      all_linear = all_linear && linear;
    }
    if (all_linear && moves == 0 && length * bytes <= walk.near_bytes) return {};  // read again from near
    if (!all_linear || moves != length) break;
    length *= around[i].count;
  }
  if (length * bytes < kWorthAStream * walk.ahead_bytes) return {};
  // Slices after the first read again what it has asked for, unless that is too much to stay near.
  if (share_of(nest, places, walk).which > 0 && length * bytes <= walk.near_bytes) return {};
  std::vector<AffineForm> at;
  for (std::size_t d = 0; d < places.size(); ++d) {
    const ExprId first = nest.arena.substitute(places[d], [&](std::uint32_t slot) {
      for (const Trips& trips : walk.tile)
        if (trips.slot == slot) return nest.arena.constant(trips.begin);
      return nest.arena.iterator(slot);
    });
    at.push_back(with_constant(forms.form(nest.arena, first), box->least[d]));
  }
  std::vector<StatementId> asked;
  for (std::int64_t which = 0; which < lines; ++which) {
    std::vector<ExprId> indices;
    for (std::size_t d = 0; d < at.size(); ++d) {
      const bool last = d + 1 == at.size();
      indices.push_back(to_expr(
          nest.arena, forms, last ? with_constant(at[d], walk.ahead_bytes / bytes + which * line) : at[d]));
    }
    asked.push_back(nest.prefetch(buffer, std::move(indices)));
  }
  return asked;
}

}  // namespace

std::vector<StatementId> prefetch_ahead(LoopNest& nest, AffineForms& forms, BufferId buffer,
                                        const std::vector<ExprId>& places, const Walk& walk) {
  if (places.empty()) return {};
  auto asked = prefetch_next(nest, forms, buffer, places, walk, false);
  if (asked.empty()) asked = prefetch_stream(nest, forms, buffer, places, walk);
  if (asked.empty()) asked = prefetch_next(nest, forms, buffer, places, walk, true);
  return asked;
}

}  // namespace syno::schedule
