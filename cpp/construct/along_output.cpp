// Vectors along the output's innermost dimensions. A read that is not contiguous along them, or meets a
// border, is staged into a padded copy; where a row does not fill vectors, rows are flattened: the loops run
// over the pitch of the padded copy, and what they compute between two rows is dead.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "construct/caches.hpp"
#include "construct/tiling_cost.hpp"

namespace syno::construct {

namespace {

/// Blocked: broadcast from a copy in blocks of rows.
enum class Kind { Broadcast, Blocked, Direct, Staged };

/// How one read is made contiguous along the flattened iterators.
struct ReadPlan {
  Kind way = Kind::Broadcast;
  RowCopy copy;             ///< Staged
  std::size_t row_dim = 0;  ///< Blocked: the dimension that the rows move
};

struct OutputPlan {
  std::size_t flattened = 1;  ///< trailing traversal iterators
  std::vector<ReadPlan> reads;
  std::vector<std::int64_t> pitch;  ///< extent each flattened iterator runs over
  std::int64_t vector_extent = 1;
  bool relaxed = false;
  bool seen = false;               ///< others see how the result lies: the caller, or an epilogue
  bool matrix = false;             ///< entries of some operand are known when code is made
  std::optional<std::size_t> row;  ///< iterator whose iterations share the vector operands
  std::int64_t row_count = 1, vector_count = 1, most_rows = kMostRows, lanes = 1;
  std::vector<std::int64_t> parts;  ///< steps that a part of the reduction may have
  std::vector<bool> panels;  ///< by read: contiguous, with rows so far apart that packing panels may pay
};

constexpr std::int64_t kFarApart = 2048;
constexpr std::int64_t kMostUnrolled = 160;  ///< multiply-adds with entries of a constant matrix
constexpr double kUsualVectors = 2;          ///< of a tile, before it is chosen

bool broadcast(Kind way) { return way == Kind::Broadcast || way == Kind::Blocked; }

std::optional<ReadPlan> plan_read(const Construction& c, const ScopeFacts& facts, const ReadFacts& read,
                                  std::size_t flattened) {
  const std::size_t first = facts.traversal - flattened;
  ReadPlan plan;
  bool any = false, all = true;
  for (std::size_t i = first; i < facts.traversal; ++i) {
    if (facts.extents[i] == 1) continue;  // one iteration moves nothing
    any = any || read.depends[i];
    all = all && read.depends[i];
  }
  if (!any) return plan;
  const auto made_by = c.plan.producer(read.tensor);
  const bool plain = !made_by || c.plan.is_output(read.tensor);
  bool direct = !read.guarded && read.linear && (plain || flattened == 1);
  std::int64_t run = 1;
  for (std::size_t i = facts.traversal; direct && i-- > first;) {
    direct = facts.extents[i] == 1 || read.address[i] == run;
    run *= facts.extents[i];
  }
  if (direct) {
    plan.way = Kind::Direct;
    return plan;
  }
  if (!all) return std::nullopt;
  auto copy = plan_row_copy(facts, read, flattened);
  if (!copy) return std::nullopt;
  plan.way = Kind::Staged;
  plan.copy = std::move(*copy);
  return plan;
}

constexpr double kOften = 16;  ///< of the steps that share a line, so that it comes once

/// Bytes from one broadcast element to the next one, of the same row or of the next; none where it stays.
double step_bytes(const Construction& c, const ScopeFacts& facts, const ReadFacts& read, std::size_t row) {
  const double bytes = static_cast<double>(c.target.vector_bits) / 8 / static_cast<double>(c.lanes);
  const auto step = [&](std::size_t i) {
    return std::min(kLine, static_cast<double>(std::abs(read.address[i])) * bytes);
  };
  for (std::size_t i = facts.extents.size(); i-- > facts.traversal;)
    if (read.depends[i] && facts.extents[i] > 1) return std::min(step(i), step(row));
  return 0;
}

/// Cycles to bring in an operand that is broadcast, does not stay in the first cache and is not read in the
/// order it lies in: a line comes again for every few of its elements, as often as there are blocks of
/// vectors.
double line_cycles(const Construction& c, const ScopeFacts& facts, const ReadFacts& read, std::size_t row,
                   double blocks) {
  constexpr double kNear = 1, kFar = 8;
  const double bytes = static_cast<double>(c.target.vector_bits) / 8 / static_cast<double>(c.lanes);
  const double size = static_cast<double>(read.box.elements) * bytes, step = step_bytes(c, facts, read, row);
  if (step < kOften || 2 * size <= static_cast<double>(c.target.l1_bytes)) return 0;
  double reads = blocks;
  for (std::size_t i = 0; i < facts.extents.size(); ++i)
    if (read.depends[i]) reads *= static_cast<double>(facts.extents[i]);
  return reads * step / kLine * (size <= static_cast<double>(c.target.l2_bytes) ? kNear : kFar);
}

/// Has a broadcast operand copied in blocks of rows where that is worth it.
void plan_blocks(const Construction& c, const ScopeFacts& facts, const ReadFacts& read, std::size_t row,
                 double blocks, ReadPlan& plan) {
  const double lines = line_cycles(c, facts, read, row, blocks);
  const auto made_by = c.plan.producer(read.tensor);
  const auto dim = dimension_in_parts(facts, read.copy, row);
  if (lines == 0 || facts.extents[row] == 1 || !dim || (made_by && !c.plan.is_argument(read.tensor))) return;
  const auto elements = static_cast<double>(read.copy.elements);
  const double bytes = static_cast<double>(c.target.vector_bits) / 8 / static_cast<double>(c.lanes);
  const double copied = c.constant(read.tensor)                                         ? 0
                        : elements * bytes * 2 > static_cast<double>(c.target.l2_bytes) ? elements * kMovedFar
                                                                                        : elements * kMoved;
  if (copied >= lines) return;
  plan.way = Kind::Blocked;
  plan.row_dim = *dim;
}

std::optional<OutputPlan> plan_output(const Construction& c, const ScopeFacts& facts, std::size_t flattened) {
  OutputPlan plan;
  plan.flattened = flattened;
  plan.lanes = c.lanes;
  const std::size_t first = facts.traversal - flattened;
  for (std::size_t i = first; i < facts.traversal; ++i) plan.pitch.push_back(facts.extents[i]);
  bool staged = false, direct = false;
  for (const auto& read : facts.reads) {
    const auto found = plan_read(c, facts, read, flattened);
    if (!found) return std::nullopt;
    if (!facts.blocks && !read.linear && found->way != Kind::Staged) return std::nullopt;
    staged = staged || found->way == Kind::Staged;
    direct = direct || found->way == Kind::Direct;
    if (found->way == Kind::Staged)
      for (std::size_t i = 1; i < flattened; ++i)
        plan.pitch[i] =
            std::max(plan.pitch[i], (read.copy.whole[found->copy.dims[i]] + found->copy.strides[i] - 1) /
                                        found->copy.strides[i]);
    plan.reads.push_back(*found);
  }
  for (std::size_t i = 1; i < flattened; ++i)
    plan.relaxed = plan.relaxed || plan.pitch[i] != facts.extents[first + i];
  if (plan.relaxed && direct) return std::nullopt;
  for (const auto extent : plan.pitch) plan.vector_extent *= extent;

  for (std::size_t i = 0; i < first; ++i) {
    bool shared = facts.extents[i] > 1;
    for (std::size_t r = 0; r < facts.reads.size(); ++r)
      if (!broadcast(plan.reads[r].way) && facts.reads[r].depends[i]) shared = false;
    if (shared && (!plan.row || facts.extents[i] > facts.extents[*plan.row])) plan.row = i;
  }
  plan.vector_count = up(plan.vector_extent, c.lanes) / c.lanes;
  plan.row_count = plan.row ? facts.extents[*plan.row] : 1;
  for (std::size_t r = 0; r < facts.reads.size(); ++r)
    if (plan.reads[r].way == Kind::Broadcast && plan.row && facts.reads[r].depends[*plan.row])
      plan_blocks(c, facts, facts.reads[r], *plan.row, static_cast<double>(plan.vector_count) / kUsualVectors,
                  plan.reads[r]);
  // Rows a multiple of a page apart fall on the same lines of the first cache: no more than its ways at a
  // time.
  const std::int64_t bytes = c.target.vector_bits / 8 / c.lanes;
  for (std::size_t r = 0; plan.row && r < facts.reads.size(); ++r)
    if (plan.reads[r].way == Kind::Broadcast && facts.reads[r].linear &&
        facts.reads[r].address[*plan.row] != 0 && facts.reads[r].address[*plan.row] * bytes % kPage == 0)
      plan.most_rows = kWays;
  const Tile tile = best_tile(c.target, plan.row_count, plan.vector_count, 1, plan.most_rows);
  plan.panels.assign(facts.reads.size(), false);
  for (std::size_t r = 0; r < facts.reads.size(); ++r) {
    if (plan.reads[r].way != Kind::Direct) continue;
    std::int64_t deep = 1, apart = 0;
    for (std::size_t i = facts.traversal; i < facts.extents.size(); ++i)
      if (facts.reads[r].depends[i]) {
        deep *= facts.extents[i];
        apart = std::max(apart, std::abs(facts.reads[r].address[i]));
      }
    if (deep < 128 || apart * bytes < kFarApart || plan.vector_extent <= tile.vectors * c.lanes) continue;
    if (flattened > 1 || plan.row_count < 48) continue;
    plan.panels[r] = true;
  }
  plan.parts = steps_of_parts(c, facts);
  return plan;
}

std::vector<std::size_t> all_loops(const ScopeFacts& facts) {
  std::vector<std::size_t> all(facts.extents.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

/// Whether a staged copy is better cut into panels as wide as the tile: the vectors move its rows alone, and
/// these would lie far apart, beyond what a prefetcher follows.
bool in_panels(const Target& target, const ScopeFacts& facts, const ReadFacts& read, const ReadPlan& staged,
               const OutputPlan& plan, std::int64_t width) {
  constexpr std::int64_t kBlock = 8;  // what is transposed at once stays in a panel
  const std::int64_t bytes = target.vector_bits / 8 / plan.lanes;
  const std::size_t first = facts.traversal - plan.flattened;
  if (plan.vector_extent <= width || plan.vector_extent * bytes < kFarApart) return false;
  if (plan.flattened > 1 && (!read.constant || plan.pitch.back() % kBlock != 0)) return false;
  if (!read.constant && read.copy.elements * bytes <= target.l2_bytes) return false;
  for (std::size_t i = 0; i < staged.copy.dims.size(); ++i) {
    if (staged.copy.strides[i] != 1) return false;
    for (std::size_t j = 0; j < facts.extents.size(); ++j)
      if (j != first + i && facts.extents[j] > 1 && read.copy.coefficients[staged.copy.dims[i]][j] != 0)
        return false;
  }
  return true;
}

std::vector<std::size_t> flattened_loops(const ScopeFacts& facts, const OutputPlan& plan) {
  std::vector<std::size_t> loops;
  for (std::size_t i = facts.traversal - plan.flattened; i < facts.traversal; ++i) loops.push_back(i);
  return loops;
}

/// How one read comes.
OperandTiling operand_of(const Target& target, const ScopeFacts& facts, const OutputPlan& plan,
                         const Numbers& numbers, std::size_t r) {
  const ReadFacts& read = facts.reads[r];
  const ReadPlan& planned = plan.reads[r];
  const std::size_t first = facts.traversal - plan.flattened;
  const std::size_t before =
      plan.row ? std::min(*plan.row, first) : first;  // leading iterators of every operand
  const std::int64_t width = numbers.vectors * plan.lanes;
  OperandTiling operand;
  if (planned.way == Kind::Direct && numbers.packed && plan.panels[r] && plan.vector_extent > width) {
    operand.way = Way::Panels;
    operand.suffix = "_pack";
    operand.at_lane_tiles = true;
  } else if (planned.way == Kind::Blocked) {
    const std::int64_t rows = facts.extents[*plan.row];
    operand.way = Way::Blocks;
    operand.suffix = "_pack";
    operand.blocks = {.dim = planned.row_dim,
                      .part = rows,
                      .width = std::min(numbers.rows, rows),
                      .outside = numbers.blocks.empty() ? first : 0};
    operand.sequence = all_loops(facts);
  } else if (planned.way == Kind::Staged) {
    operand.way = Way::Rows;
    operand.suffix = "_pad";
    operand.rows = planned.copy;
    operand.panel = in_panels(target, facts, read, planned, plan, width) ? width : 0;
    // A copy for each batch element, as long as no two of them hold the same elements.
    if (!read.constant) operand.depth = own_depth(facts, read, before);
  }
  return operand;
}

Tiling tiling_of(const Target& target, const ScopeFacts& facts, const OutputPlan& plan,
                 const Numbers& numbers) {
  Tiling tiling;
  const std::size_t first = facts.traversal - plan.flattened;
  tiling.lanes = flattened_loops(facts, plan);
  tiling.pitch = plan.pitch;
  tiling.width = numbers.vectors * plan.lanes;
  if (plan.row) tiling.rows = {*plan.row};
  tiling.row_size = numbers.rows;
  bool lanes_outside = numbers.vectors_outer != 0;
  for (std::size_t r = 0; r < facts.reads.size(); ++r) {
    tiling.operands.push_back(operand_of(target, facts, plan, numbers, r));
    lanes_outside = lanes_outside || tiling.operands.back().way == Way::Panels;
  }
  for (std::size_t i = 0; i < first; ++i)
    if (i != plan.row) tiling.around.push_back({Around::Of::Loop, i});
  tiling.behind = tiling.around.size();
  tiling.around.push_back({lanes_outside ? Around::Of::Lanes : Around::Of::Rows});
  tiling.around.push_back({lanes_outside ? Around::Of::Rows : Around::Of::Lanes});
  tiling.around.push_back({Around::Of::Sums});
  tiling.steps = numbers.steps;
  tiling.blocks = numbers.blocks;
  if (plan.relaxed && plan.seen) tiling.result = Result::Rows;
  tiling.ahead = true;
  if ((plan.row && !plan.matrix) || numbers.steps != 0) return tiling;
  // Little happens in one step of a short reduction (a depthwise or pooling window): take several at once.
  // The entries of a constant matrix are known then: each is loaded once, or is part of an instruction.
  std::int64_t body = numbers.vectors * (plan.row ? numbers.rows : 1);
  for (std::size_t i = facts.extents.size(); i-- > facts.traversal;) {
    body *= facts.extents[i];
    if (body > (plan.matrix ? kMostUnrolled : 64)) break;
    tiling.unrolled.push_back(i);
  }
  return tiling;
}

void add_sketches(Construction& c, const std::string& scope, const Facts& shared, const char* name,
                  Sketches& sketches) {
  const ScopeFacts& facts = *shared;
  if (facts.traversal == 0) return;
  double least = 0;
  for (std::size_t flattened = 1; flattened <= std::min<std::size_t>(3, facts.traversal); ++flattened) {
    auto plan = plan_output(c, facts, flattened);
    if (!plan) continue;
    const std::size_t s = c.index(scope);
    plan->seen = c.plan.is_output(c.plan.program.scopes[s].output) || c.plan.scopes[s].epilogue.has_value();
    plan->matrix = std::any_of(facts.reads.begin(), facts.reads.end(), [&](const ReadFacts& read) {
      return c.plan.program.tensor(read.tensor).role == program::Role::Constant;
    });
    Sketch sketch;
    sketch.name = fmt::format("{}/{}", name, flattened);
    const bool any_panel = std::find(plan->panels.begin(), plan->panels.end(), true) != plan->panels.end();
    std::vector<std::size_t> rows;
    if (plan->row) rows.push_back(*plan->row);
    const std::vector<std::size_t> columns = flattened_loops(facts, *plan);
    sketch.choices = {
        {"rows", &Numbers::rows, counting_to(std::min(plan->row_count, plan->most_rows)), rows},
        {"vectors", &Numbers::vectors, counting_to(std::min(plan->vector_count, kMostVectors)), columns},
        {"vectors_outer", &Numbers::vectors_outer, {0, 1}, {}}};
    if (any_panel) sketch.choices.push_back({"packed", &Numbers::packed, {0, 1}, {}});
    add_parts(facts, plan->parts, sketch);
    if (!plan->relaxed) {  // else what is computed is a piece that its copy asks for
      sketch.blocks.push_back(columns);
      add_blocks(c, facts, facts.traversal - flattened, sketch);
    }
    sketch.fits = [target = c.target](const Numbers& n) { return tile_fits(target, n.rows, n.vectors); };
    sketch.scope = scope;
    sketch.facts = shared;
    sketch.tiling = [target = c.target, shared, plan = *plan](const Numbers& numbers) {
      return tiling_of(target, *shared, plan, numbers);
    };
    count(c, sketch);
    // More dimensions in one are more work to index: they have to be worth it.
    if (least > 0 && sketch.cycles >= least * 0.98) sketch.cycles = std::max(sketch.cycles, least * 1.0001);
    least = least > 0 ? std::min(least, sketch.cycles) : sketch.cycles;
    sketches.push_back(std::move(sketch));
  }
}

}  // namespace

void along_output(Construction& c, const std::string& scope, const Facts& facts, Sketches& sketches) {
  add_sketches(c, scope, facts, "along_output", sketches);
  if (facts->splits.empty()) return;
  // Blocks need no loops of their own where only copies are read by them.
  add_sketches(c, scope, facts_of(c, scope, false), "along_output_whole", sketches);
}

}  // namespace syno::construct
