#include "schedule/prefetch.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <functional>

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
/// Bytes between rows of results from which on each is a page's affair of its own. On a Zen 4, out of the
/// cache: 3 to 12 KiB apart 0.63 to 0.9 of the time with asking, 0.8 KiB 0.95 and 1.02, 0.5 KiB 1.1.
constexpr std::int64_t kRowsApart = 2048;
constexpr std::int64_t kMostInVain = 5;  ///< lines that are asked for, for three that are read

/// Whether a step's multiply-adds leave room to ask for so many lines.
bool has_room(const Walk& walk, std::int64_t lines, std::int64_t line) {
  std::int64_t work = 1;
  for (const Trips& trips : walk.tile) work *= trips.count;
  return lines <= kMostLines && work >= kWorkOfALine * lines * line;
}

/// Iterations in all slices together, and the first of them.
std::int64_t span(const Trips& trips) { return trips.whole > 0 ? trips.whole : trips.count; }
std::int64_t start(const Trips& trips) { return trips.whole > 0 ? 0 : trips.begin; }

/// Where memory is touched. Neighbouring dimensions that are found by dividing one index, and lie together,
/// are one here: x[p / 56, p % 56] is x[p].
struct Touched {
  BufferId buffer{};
  std::vector<ExprId> places;
  Shape extents;
  std::vector<std::int64_t> strides;  ///< elements
  std::vector<std::size_t> dims;      ///< of the buffer: the last one of each place
  std::int64_t bytes = 4;             ///< of an element
};

bool all_linear(const LoopNest& nest, AffineForms& forms, ExprId place) {
  const AffineForm form = forms.form(nest.arena, place);
  return std::all_of(form.terms.begin(), form.terms.end(),
                     [&](const auto& term) { return forms.atom(term.first).kind == nest::Atom::Kind::Slot; });
}

Touched touched(LoopNest& nest, AffineForms& forms, BufferId id, const std::vector<ExprId>& places) {
  const Buffer buffer = nest.buffer(id);
  Touched made{id, {}, {}, {}, {}, static_cast<std::int64_t>(byte_size(buffer.dtype))};
  for (std::size_t d = 0; d < places.size(); ++d) {
    const bool together =
        d > 0 && buffer.strides[d - 1] == buffer.strides[d] * buffer.extents[d] &&
        !(all_linear(nest, forms, made.places.back()) && all_linear(nest, forms, places[d]));
    if (together) {
      const AffineForm one =
          forms.joined(add(multiply(forms.form(nest.arena, made.places.back()), buffer.extents[d]),
                           forms.form(nest.arena, places[d])));
      const ExprId flat = to_expr(nest.arena, forms, one);
      if (all_linear(nest, forms, flat)) {
        made.places.back() = flat;
        made.extents.back() *= buffer.extents[d];
        made.strides.back() = buffer.strides[d];
        made.dims.back() = d;
        continue;
      }
    }
    made.places.push_back(places[d]);
    made.extents.push_back(buffer.extents[d]);
    made.strides.push_back(buffer.strides[d]);
    made.dims.push_back(d);
  }
  return made;
}

StatementId ask(LoopNest& nest, const AffineForms& forms, const Touched& at,
                const std::vector<AffineForm>& place) {
  std::vector<ExprId> indices(at.dims.back() + 1, nest.arena.constant(0));
  for (std::size_t i = 0; i < place.size(); ++i) indices[at.dims[i]] = to_expr(nest.arena, forms, place[i]);
  return nest.prefetch(at.buffer, std::move(indices));
}

/// Which of how many slices of a walk that read the same this one is.
Slice share_of(const LoopNest& nest, const Touched& read, const Walk& walk) {
  Slice share;
  for (const Slice& slice : walk.slices) {
    const bool moves = std::any_of(read.places.begin(), read.places.end(), [&](ExprId place) {
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
  std::int64_t lines_of_run(std::int64_t line) const { return (run + line - 1) / line; }
  std::int64_t lines(std::int64_t line) const {
    std::int64_t all = lines_of_run(line);
    for (std::size_t d = 0; d < rows; ++d) all *= extents[d];
    return all;
  }
};

/// Which of a box's dimensions lie in one run, if neighbours lie together at all.
bool lay(Box& box, const Touched& read) {
  box.rows = read.places.size();
  box.run = 1;
  while (box.rows > 0) {
    const std::size_t d = box.rows - 1;
    if (read.strides[d] != box.run) break;
    const bool whole = box.extents[d] == read.extents[d];
    box.run *= box.extents[d];
    --box.rows;
    if (!whole) break;
  }
  return box.rows < read.places.size();
}

std::optional<Box> box_of(const LoopNest& nest, AffineForms& forms, const Touched& read,
                          const std::vector<Trips>& inner) {
  Box box;
  for (const ExprId place : read.places) {
    const AffineForm now = forms.form(nest.arena, place);
    std::int64_t least = 0, extent = 1, elements = 1;
    for (const Trips& trips : inner) {
      bool linear = false;
      const std::int64_t step = forms.coefficient(now, trips.slot, &linear);
      if (!linear) return std::nullopt;
      if (step == 0) continue;
      least += std::min<std::int64_t>(0, step * (span(trips) - 1));
      extent += std::abs(step) * (span(trips) - 1);
      elements *= span(trips);
    }
    if (extent > kSparse * elements) return std::nullopt;
    box.least.push_back(least);
    box.extents.push_back(extent);
  }
  if (!lay(box, read)) return std::nullopt;
  return box;
}

/// How an iteration of a loop moves a box: past all of it, or by some elements along one dimension, so that
/// it overlaps with what the iteration before read, as windows do.
struct Move {
  bool past = false;
  std::optional<std::size_t> along;
  std::int64_t step = 0;
};

Move move_of(const LoopNest& nest, AffineForms& forms, const Touched& read, const Box& box,
             const Trips& trips) {
  Move move;
  std::size_t moving = 0;
  for (std::size_t d = 0; d < read.places.size(); ++d) {
    bool linear = false;
    const std::int64_t step = forms.coefficient(forms.form(nest.arena, read.places[d]), trips.slot, &linear);
    if (!linear || std::abs(step) >= box.extents[d]) return {true, std::nullopt, 0};
    if (step == 0) continue;
    ++moving;
    move.along = d;
    move.step = step;
  }
  if (moving != 1) move.along.reset();
  return move;
}

/// Of a box that moves along a dimension, what the box before did not hold.
std::optional<Box> new_part(Box box, const Touched& read, const Move& move) {
  const std::size_t d = *move.along;
  if (move.step > 0) box.least[d] += box.extents[d] - move.step;
  box.extents[d] = std::abs(move.step);
  if (!lay(box, read)) return std::nullopt;
  return box;
}

/// A box in which the place of a line follows from its number by shifts: other divisions, in every step, take
/// longer than they save. What lies inside is rounded up; nothing where that asks for too many lines in vain.
std::optional<Box> by_shifts(const Box& box, std::int64_t line) {
  const auto up = [](std::int64_t count) {
    return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(count)));
  };
  Box made = box;
  std::int64_t outer = 1;  // rows that have not been told apart
  for (std::size_t d = 0; d < box.rows; ++d) outer *= box.extents[d];
  if (outer > 1) made.run = up(box.lines_of_run(line)) * line;
  for (std::size_t d = box.rows; d-- > 0;) {
    outer /= box.extents[d];
    if (outer > 1) made.extents[d] = up(box.extents[d]);
  }
  if (3 * made.lines(line) > kMostInVain * box.lines(line)) return std::nullopt;
  return made;
}

/// Where a box begins, `changed` telling what loops' slots are there.
std::vector<AffineForm> beginning(LoopNest& nest, AffineForms& forms, const Touched& read, const Box& box,
                                  const std::function<std::optional<ExprId>(std::uint32_t)>& changed) {
  std::vector<AffineForm> at;
  for (std::size_t d = 0; d < read.places.size(); ++d) {
    const ExprId first = nest.arena.substitute(read.places[d], [&](std::uint32_t slot) {
      return changed(slot).value_or(nest.arena.iterator(slot));
    });
    at.push_back(with_constant(forms.form(nest.arena, first), box.least[d]));
  }
  return at;
}

/// The lines of a box that begins `at`, asked for in the iterations of `until`: each of them asks for the
/// line of its number, or for some of them. Nothing where that is more than one and not `several`.
std::vector<StatementId> ask_for_box(LoopNest& nest, AffineForms& forms, const Touched& read, const Box& asks,
                                     const std::vector<AffineForm>& at, const std::vector<Trips>& until,
                                     Slice share, const Walk& walk, bool several) {
  AffineForm step;
  std::int64_t steps = 1, fewest = 1;
  for (const Trips& trips : until) {
    step = add(multiply(step, trips.count), with_constant(forms.slot_form(trips.slot), -trips.begin));
    steps *= trips.count;
    fewest *= trips.fewest > 0 ? std::min(trips.fewest, trips.count) : trips.count;
  }
  const std::int64_t line = kLine / read.bytes;
  const auto shifted = by_shifts(asks, line);
  if (!shifted) return {};
  const Box& box = *shifted;
  const std::int64_t lines_of_run = box.lines_of_run(line), all_lines = box.lines(line);
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
  if (of_a_step > 1 && (!several || !has_room(walk, of_a_step, line))) return {};
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
    for (std::size_t d = box.rows; d-- > 0 && outer > 1;) {
      outer /= box.extents[d];
      place[d] = add(place[d], outer > 1 ? forms.remainder(number, box.extents[d]) : number);
      if (outer > 1) number = forms.quotient(number, box.extents[d]);
    }
    asked.push_back(ask(nest, forms, read, place));
  }
  if (!ends || enough == steps) return asked;
  const ExprId number = to_expr(nest.arena, forms, step);
  return {nest.guard({{number, 0, enough}}, nest.sequence(std::move(asked)))};
}

/// What loops' slots are where they begin.
std::optional<ExprId> begun(LoopNest& nest, const std::vector<Trips>& loops, std::uint32_t slot) {
  for (const Trips& trips : loops)
    if (trips.slot == slot) return nest.arena.constant(start(trips));
  return std::nullopt;
}

/// For what is read when the read moves on; of `several` lines a step where there are more of them than
/// steps.
std::vector<StatementId> prefetch_next(LoopNest& nest, AffineForms& forms, const Touched& read,
                                       const Walk& walk, bool several) {
  Slice share = share_of(nest, read, walk);
  std::vector<Trips> own_steps = walk.steps;
  if (share.of == 1)
    for (Trips& trips : own_steps) trips.whole = 0;
  // Loops from the innermost outwards: what those inside one have read is read again where it does not move
  // past that, from near if there is little of it. New is what comes with the next loop that moves past, or
  // the part of it that overlaps with nothing.
  std::vector<Trips> until, inner = own_steps;
  inner.insert(inner.end(), walk.tile.begin(), walk.tile.end());
  std::optional<Box> box;
  Trips moving;
  for (std::size_t i = walk.outside.size(); i-- > 0;) {
    const Trips& trips = walk.outside[i];
    const auto inside = box_of(nest, forms, read, inner);
    if (!inside) break;
    std::int64_t size = read.bytes;
    for (const std::int64_t extent : inside->extents) size *= extent;
    const Move move = move_of(nest, forms, read, *inside, trips);
    if (move.past ? !box.has_value() : size <= walk.near_bytes) {
      box = move.past ? inside : move.along ? new_part(*inside, read, move) : std::nullopt;
      moving = trips;
      until.assign(walk.outside.begin() + static_cast<std::ptrdiff_t>(i) + 1, walk.outside.end());
      until.insert(until.end(), own_steps.begin(), own_steps.end());
    }
    inner.insert(inner.begin(), trips);
  }
  if (!box) return {};
  const std::int64_t box_bytes = box->lines(kLine / read.bytes) * kLine;
  if (share.of > 1 && box_bytes > walk.near_bytes) {
    if (share.which > 0) return {};  // what the slices after it read again does not stay near
    share = {};
  }
  std::vector<Trips> fixed = until;
  fixed.insert(fixed.end(), walk.tile.begin(), walk.tile.end());
  const auto at = beginning(nest, forms, read, *box, [&](std::uint32_t slot) -> std::optional<ExprId> {
    if (slot == moving.slot) return nest.arena.add(nest.arena.iterator(slot), nest.arena.constant(1));
    return begun(nest, fixed, slot);
  });
  return ask_for_box(nest, forms, read, *box, at, until, share, walk,
                     several && box_bytes >= walk.ahead_bytes);
}

std::vector<StatementId> prefetch_stream(LoopNest& nest, AffineForms& forms, const Touched& read,
                                         const Walk& walk) {
  if (walk.ahead_bytes == 0) return {};
  const auto box = box_of(nest, forms, read, walk.tile);
  if (!box) return {};
  for (std::size_t d = 0; d < box->rows; ++d)
    if (box->extents[d] > 1) return {};  // several runs
  const std::int64_t line = kLine / read.bytes, lines = box->lines_of_run(line);
  if (!has_room(walk, lines, line)) return {};
  // Loops around, from the innermost outwards, go on where those inside end.
  std::vector<Trips> around = walk.outside;
  around.insert(around.end(), walk.steps.begin(), walk.steps.end());
  std::int64_t length = box->run;
  for (std::size_t i = around.size(); i-- > 0;) {
    if (around[i].count == 1) continue;
    std::int64_t moves = 0;
    bool linear = true;
    for (std::size_t d = 0; d < read.places.size() && linear; ++d)
      moves += read.strides[d] *
               forms.coefficient(forms.form(nest.arena, read.places[d]), around[i].slot, &linear);
    if (linear && moves == 0 && length * read.bytes <= walk.near_bytes) return {};  // read again from near
    if (!linear || moves != length) break;
    length *= around[i].count;
  }
  if (length * read.bytes < kWorthAStream * walk.ahead_bytes) return {};
  // Slices after the first read again what it has asked for, unless that is too much to stay near.
  if (share_of(nest, read, walk).which > 0 && length * read.bytes <= walk.near_bytes) return {};
  std::vector<Trips> tile = walk.tile;
  for (Trips& trips : tile) trips.whole = 0;
  const auto at =
      beginning(nest, forms, read, *box, [&](std::uint32_t slot) { return begun(nest, tile, slot); });
  std::vector<StatementId> asked;
  for (std::int64_t which = 0; which < lines; ++which) {
    std::vector<AffineForm> place = at;
    place.back() = with_constant(place.back(), walk.ahead_bytes / read.bytes + which * line);
    asked.push_back(ask(nest, forms, read, place));
  }
  return asked;
}

}  // namespace

std::vector<StatementId> prefetch_ahead(LoopNest& nest, AffineForms& forms, BufferId buffer,
                                        const std::vector<ExprId>& places, const Walk& walk) {
  if (places.empty()) return {};
  const Touched read = touched(nest, forms, buffer, places);
  auto asked = prefetch_next(nest, forms, read, walk, false);
  if (asked.empty()) asked = prefetch_stream(nest, forms, read, walk);
  if (asked.empty()) asked = prefetch_next(nest, forms, read, walk, true);
  return asked;
}

std::vector<StatementId> prefetch_results(LoopNest& nest, AffineForms& forms, BufferId buffer,
                                          const std::vector<ExprId>& places, const Walk& walk) {
  if (places.empty()) return {};
  const Touched at = touched(nest, forms, buffer, places);
  const auto box = box_of(nest, forms, at, walk.tile);
  if (!box) return {};
  for (std::size_t d = 0; d < box->rows; ++d)
    if (box->extents[d] > 1 && at.strides[d] * at.bytes < kRowsApart) return {};
  const auto first =
      beginning(nest, forms, at, *box, [&](std::uint32_t slot) { return begun(nest, walk.tile, slot); });
  return ask_for_box(nest, forms, at, *box, first, walk.steps, {}, walk, true);
}

}  // namespace syno::schedule
