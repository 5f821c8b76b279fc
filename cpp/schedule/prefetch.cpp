#include "schedule/prefetch.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "schedule/construct.hpp"

namespace syno::schedule {

namespace {

constexpr std::int64_t kLine = 64;       ///< bytes
constexpr std::int64_t kMostAtOnce = 2;  ///< lines at a step: more would take the place of multiply-adds
constexpr std::int64_t kSparse = 2;      ///< elements of a box for each that is read

/// What some loops read together: a box whose last dimensions lie in one run of memory.
struct Box {
  std::vector<std::int64_t> least, extents;  ///< by dimension, seen from the first iterations
  std::size_t rows = 0;                      ///< leading dimensions outside the run
  std::int64_t run = 1;                      ///< elements
};

std::optional<Box> box_of(const LoopNest& nest, LinearForms& forms, BufferId id,
                          const std::vector<ExprId>& places, const std::vector<Trips>& inner) {
  Box box;
  for (const ExprId place : places) {
    const LinearForm now = forms.form(nest.arena, place);
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

}  // namespace

std::vector<StatementId> prefetch_next(LoopNest& nest, LinearForms& forms, BufferId buffer,
                                       const std::vector<ExprId>& places, const Walk& walk) {
  if (places.empty()) return {};
  const auto bytes = static_cast<std::int64_t>(byte_size(nest.buffer(buffer).dtype));
  // Loops from the innermost outwards: what those inside one that does not move the read have read is read
  // again, from near if there is little of it. New is what comes with the next loop that does.
  std::vector<Trips> until = walk.steps, inner = walk.steps;
  inner.insert(inner.end(), walk.tile.begin(), walk.tile.end());
  std::optional<Box> box;
  Trips moving;
  bool found = false;
  for (std::size_t i = walk.outside.size(); i-- > 0;) {
    const Trips& trips = walk.outside[i];
    const auto inside = box_of(nest, forms, buffer, places, inner);
    if (!inside) break;
    const bool moves = std::any_of(places.begin(), places.end(), [&](ExprId place) {
      return forms.depends_on(forms.form(nest.arena, place), trips.slot);
    });
    std::int64_t size = bytes;
    for (const std::int64_t extent : inside->extents) size *= extent;
    if (moves && !found) {
      found = true;
      box = inside;
      moving = trips;
      until = walk.steps;
      until.insert(until.begin(), walk.outside.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                   walk.outside.end());
    } else if (!moves && size <= walk.near_bytes) {
      found = false;
    }
    inner.insert(inner.begin(), trips);
  }
  if (!found) return {};
  std::vector<Trips> fixed = until;
  fixed.insert(fixed.end(), walk.tile.begin(), walk.tile.end());
  std::vector<LinearForm> corner;
  for (std::size_t d = 0; d < places.size(); ++d) {
    const ExprId next = nest.arena.substitute(places[d], [&](std::uint32_t slot) {
      const ExprId itself = nest.arena.iterator(slot);
      if (slot == moving.slot) return nest.arena.add(itself, nest.arena.constant(1));
      for (const Trips& trips : fixed)
        if (trips.slot == slot) return nest.arena.constant(trips.begin);
      return itself;
    });
    corner.push_back(with_constant(forms.form(nest.arena, next), box->least[d]));
  }

  // The steps until the next iteration, numbered; each of them asks for the line of its number.
  LinearForm step;
  std::int64_t steps = 1;
  for (const Trips& trips : until) {
    step = add(multiply(step, trips.count), with_constant(forms.slot_form(trips.slot), -trips.begin));
    steps *= trips.count;
  }
  const std::int64_t line = kLine / bytes, lines_of_run = (box->run + line - 1) / line;
  std::int64_t lines = lines_of_run;
  for (std::size_t d = 0; d < box->rows; ++d) lines *= box->extents[d];
  const std::int64_t at_once = (lines + steps - 1) / steps;
  if (at_once > kMostAtOnce) return {};
  const auto slower = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(steps / lines)));

  std::vector<StatementId> made;
  for (std::int64_t i = 0; i < at_once; ++i) {
    LinearForm number = with_constant(multiply(step, at_once), i);
    if (at_once == 1) number = forms.quotient(step, slower);
    std::vector<LinearForm> at = corner;
    // The outermost part takes what is left, so that the last steps ask beyond the box.
    std::int64_t outer = lines / lines_of_run;
    const LinearForm of_run = outer > 1 ? forms.remainder(number, lines_of_run) : number;
    if (outer > 1) number = forms.quotient(number, lines_of_run);
    at.back() = add(at.back(), multiply(of_run, line));
    for (std::size_t d = box->rows; d-- > 0 && outer > 1;) {
      outer /= box->extents[d];
      at[d] = add(at[d], outer > 1 ? forms.remainder(number, box->extents[d]) : number);
      if (outer > 1) number = forms.quotient(number, box->extents[d]);
    }
    std::vector<ExprId> indices;
    for (const LinearForm& index : at) indices.push_back(to_expr(nest.arena, forms, index));
    made.push_back(nest.prefetch(buffer, std::move(indices)));
  }
  return made;
}

void prefetch_far_reads(Construction& c, const std::string& scope) {
  const std::size_t s = c.index(scope);
  std::vector<program::TensorId> seen;
  for (const program::ScalarId read : c.plan.reads(s)) {
    const program::TensorId tensor = c.plan.program.scalar(read).tensor;
    if (std::find(seen.begin(), seen.end(), tensor) != seen.end()) continue;
    seen.push_back(tensor);
    const auto made_by = c.plan.producer(tensor);
    if (made_by && c.plan.scopes[*made_by].attach_scope >= 0) continue;  // made just before it is read
    auto bytes = static_cast<std::int64_t>(byte_size(c.schedule.dtype));
    for (const std::int64_t extent : c.plan.storage(tensor)) bytes *= extent;
    if (2 * bytes <= c.target.l2_bytes) continue;
    c.add({"prefetch", scope, {}, {c.target.l2_bytes / 2}, c.plan.program.tensor(tensor).name, {}});
  }
}

}  // namespace syno::schedule
