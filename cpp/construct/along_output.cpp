// Vectors along the output's innermost dimensions. A read that is not contiguous along them, or meets a
// border, is staged into a padded copy; where a row does not fill vectors, rows are flattened: the loops run
// over the pitch of the padded copy, and what they compute between two rows is dead.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "construct/caches.hpp"
#include "construct/construct.hpp"
#include "construct/near.hpp"
#include "construct/tiling.hpp"

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

/// What there is of an operand, for one iteration of the loops around rows and vectors.
struct Operand {
  bool by_vectors = false;  ///< else broadcast
  double bytes = 0;
  bool far_apart = false;  ///< each step of the reduction begins on another page
  bool panels = false;     ///< they can be packed
  bool in_order = false;   ///< of a copy in the order of the tiles
  BoxFacts box;
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
  double steps = 1;                   ///< multiply-adds a result
  double copy_cycles = 0;             ///< of staged operands, of the result and of operands that lie badly
  double pack_cycles = 0;             ///< of panels, where they are packed
  double outputs = 1, reduction = 1;  ///< vectors of results, and multiply-adds of one
  double around = 1;                  ///< iterations of the loops around rows and vectors
  std::vector<std::int64_t> extents;  ///< by loop
  std::size_t traversal = 0;
  std::vector<Operand> operands;
  std::vector<std::int64_t> parts;  ///< steps that a part of the reduction may have
  std::vector<bool> panels;  ///< by read: contiguous, with rows so far apart that packing panels may pay
  Numbers counted;
  double cycles = 0;
};

constexpr std::int64_t kFarApart = 2048;
/// Cycles that a vector from beyond the second cache costs where each row begins on another page: no
/// prefetcher follows.
constexpr double kFarRow = 8;
/// How much slower main memory is; the part of the cache that operands may take.
constexpr double kFarthest = 5, kCacheShare = 0.7;
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

/// Whether a broadcast operand is worth a copy in blocks of rows, and the cycles it takes then.
double plan_blocks(const Construction& c, const ScopeFacts& facts, const ReadFacts& read, std::size_t row,
                   double blocks, ReadPlan& plan) {
  const double lines = line_cycles(c, facts, read, row, blocks);
  const auto made_by = c.plan.producer(read.tensor);
  const auto dim = dimension_in_parts(facts, read.copy, row);
  if (lines == 0 || facts.extents[row] == 1 || !dim || (made_by && !c.plan.is_argument(read.tensor)))
    return lines;
  const auto elements = static_cast<double>(read.copy.elements);
  const double bytes = static_cast<double>(c.target.vector_bits) / 8 / static_cast<double>(c.lanes);
  const double copied = c.constant(read.tensor)                                         ? 0
                        : elements * bytes * 2 > static_cast<double>(c.target.l2_bytes) ? elements * kMovedFar
                                                                                        : elements * kMoved;
  if (copied >= lines) return lines;
  plan.way = Kind::Blocked;
  plan.row_dim = *dim;
  return copied;
}

/// Cycles to bring operands into the second cache: once, and again and again if they do not stay there while
/// the inner of the two loops over tiles goes round.
double far_cycles(const Target& target, const OutputPlan& plan, const Numbers& numbers) {
  const auto cache = static_cast<double>(target.l2_bytes);
  const double room = kCacheShare * cache;
  const bool packed = numbers.packed != 0, vectors_outer = packed || numbers.vectors_outer != 0;
  const double part = numbers.steps > 0 ? static_cast<double>(numbers.steps) / plan.reduction : 1;
  const double row_tiles = static_cast<double>((plan.row_count + numbers.rows - 1) / numbers.rows);
  const double panels = static_cast<double>((plan.vector_count + numbers.vectors - 1) / numbers.vectors);
  double outer = 0, inner = 0;  // bytes of one iteration of the outer loop, and of all of the inner one
  for (const Operand& operand : plan.operands) {
    const bool stays = operand.by_vectors == vectors_outer;
    (stays ? outer : inner) += operand.bytes * part / (stays ? (vectors_outer ? panels : row_tiles) : 1);
  }
  const double everything = outer * (vectors_outer ? panels : row_tiles) + inner;
  const double slower = everything > static_cast<double>(target.l3_bytes) ? kFarthest : 1;
  double cycles = 0;
  for (const Operand& operand : plan.operands) {
    const bool far = operand.far_apart && !(packed && operand.panels);
    const double line = far ? (operand.by_vectors ? kFarRow : kApartLine) : kFarLine;
    const double lines = operand.bytes / kLine * plan.around;
    if (far && operand.bytes > cache) cycles += line * lines;
    if (operand.far_apart && packed && operand.panels)
      cycles += lines / static_cast<double>(numbers.vectors) * kApartLine * slower;
    double again = 0;
    if (operand.by_vectors == vectors_outer)
      again = outer > room ? (vectors_outer ? row_tiles : panels) - 1 : 0;
    else
      again = outer + inner > room ? (vectors_outer ? panels : row_tiles) - 1 : 0;
    cycles += again * lines * line * slower;
  }
  return cycles;
}

/// Cycles to bring operands from there into the first cache.
double near_cycles(const Target& target, const OutputPlan& plan, const Numbers& numbers) {
  const std::size_t first = plan.traversal - plan.flattened;
  double everything = 0;
  for (const Operand& operand : plan.operands) everything += operand.bytes;
  if (everything <= kNearShare * static_cast<double>(target.l1_bytes)) return 0;
  const bool packed = numbers.packed != 0, vectors_outer = packed || numbers.vectors_outer != 0;
  auto [tile, steps] = part_of_sum(plan.extents, plan.traversal, numbers.steps);
  std::vector<std::int64_t> range = tile;
  if (plan.row) tile[*plan.row] = std::min(numbers.rows, plan.row_count);
  std::int64_t width = numbers.vectors * plan.lanes;
  for (std::size_t i = plan.traversal; i-- > first; width = up(width, plan.extents[i]) / plan.extents[i])
    tile[i] = std::min(width, plan.extents[i]);
  for (std::size_t i = first; i < plan.traversal; ++i) range[i] = vectors_outer ? tile[i] : plan.extents[i];
  if (plan.row) range[*plan.row] = vectors_outer ? plan.row_count : tile[*plan.row];
  const double bytes = static_cast<double>(target.vector_bits) / 8 / static_cast<double>(plan.lanes);

  std::vector<NearOperand> operands;
  for (const Operand& operand : plan.operands) {
    const bool in_order = operand.in_order || (operand.panels && packed);
    const auto moved = [&](const std::vector<std::int64_t>& iterations) {
      const Touched found = touched(operand.box, iterations, bytes);
      return in_order ? run_of(found.lines * kLine) : found;
    };
    operands.push_back({moved(tile), moved(range), operand.by_vectors == vectors_outer});
  }
  const double row_tiles = static_cast<double>((plan.row_count + numbers.rows - 1) / numbers.rows);
  const double panels = static_cast<double>((plan.vector_count + numbers.vectors - 1) / numbers.vectors);
  return construct::near_cycles(target, operands, vectors_outer ? row_tiles : panels,
                                (vectors_outer ? panels : row_tiles) * plan.around * plan.reduction / steps);
}

double cycles_of(const Target& target, const OutputPlan& plan, const Numbers& numbers) {
  if (!tile_fits(target, numbers.rows, numbers.vectors)) return std::numeric_limits<double>::infinity();
  const double parts = numbers.steps > 0 ? plan.reduction / static_cast<double>(numbers.steps) : 1;
  return tile_cycles(target, plan.row_count, plan.vector_count, plan.steps, numbers.rows, numbers.vectors) +
         plan.copy_cycles + (numbers.packed ? plan.pack_cycles : 0) + far_cycles(target, plan, numbers) +
         near_cycles(target, plan, numbers) +
         kept_cycles(target, plan.outputs, plan.outputs / plan.around, parts);
}

/// The order of the loops over tiles, parts, and a tile for them: the fewest cycles by count.
void count_numbers(const Construction& c, OutputPlan& plan) {
  Numbers best = plan.counted;
  double least = cycles_of(c.target, plan, best);
  if (far_cycles(c.target, plan, best) + near_cycles(c.target, plan, best) == 0) return;
  for (std::int64_t vectors = 1; vectors <= std::min(plan.vector_count, kMostVectors); ++vectors) {
    Numbers numbers = plan.counted;
    if (vectors != plan.counted.vectors) {
      Tile tile;
      for (std::int64_t rows = 1; rows <= std::min(plan.row_count, plan.most_rows); ++rows) {
        if (!tile_fits(c.target, rows, vectors)) break;
        const double cycles =
            tile_cycles(c.target, plan.row_count, plan.vector_count, plan.steps, rows, vectors);
        if (tile.cycles == 0 || cycles < tile.cycles * 0.999) tile = {rows, vectors, cycles};
      }
      if (tile.cycles == 0) break;
      numbers.rows = tile.rows;
      numbers.vectors = vectors;
    }
    for (const std::int64_t outer : {plan.counted.vectors_outer, 1 - plan.counted.vectors_outer})
      for (const std::int64_t steps : plan.parts) {
        numbers.vectors_outer = outer;
        numbers.steps = steps;
        const double cycles = cycles_of(c.target, plan, numbers);
        if (!(cycles < least * kWorthCutting)) continue;
        best = numbers;
        least = cycles;
      }
  }
  plan.counted = best;
}

std::optional<OutputPlan> plan_output(const Construction& c, const ScopeFacts& facts, std::size_t flattened) {
  OutputPlan plan;
  plan.flattened = flattened;
  plan.extents = facts.extents;
  plan.traversal = facts.traversal;
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
  plan.steps = facts.counted;
  for (std::size_t i = 0; i < facts.extents.size(); ++i)
    if ((i < first && i != plan.row) || i >= facts.traversal)
      plan.steps *= static_cast<double>(facts.extents[i]);
  plan.vector_count = up(plan.vector_extent, c.lanes) / c.lanes;
  plan.row_count = plan.row ? facts.extents[*plan.row] : 1;
  for (std::size_t r = 0; r < facts.reads.size(); ++r)
    if (plan.reads[r].way == Kind::Broadcast && plan.row && facts.reads[r].depends[*plan.row])
      plan.copy_cycles += plan_blocks(c, facts, facts.reads[r], *plan.row,
                                      static_cast<double>(plan.vector_count) / kUsualVectors, plan.reads[r]);
  // Rows a multiple of a page apart fall on the same lines of the first cache: no more than its ways at a
  // time.
  const std::int64_t bytes = c.target.vector_bits / 8 / c.lanes;
  for (std::size_t r = 0; plan.row && r < facts.reads.size(); ++r)
    if (plan.reads[r].way == Kind::Broadcast && facts.reads[r].linear &&
        facts.reads[r].address[*plan.row] != 0 && facts.reads[r].address[*plan.row] * bytes % kPage == 0)
      plan.most_rows = kWays;
  const Tile tile = best_tile(c.target, plan.row_count, plan.vector_count, plan.steps, plan.most_rows);
  plan.counted.rows = tile.rows;
  plan.counted.vectors = tile.vectors;
  plan.panels.assign(facts.reads.size(), false);
  std::vector<bool> far_apart(facts.reads.size(), false);
  for (std::size_t r = 0; r < facts.reads.size(); ++r) {
    if (plan.reads[r].way != Kind::Direct) continue;
    std::int64_t deep = 1, apart = 0;
    for (std::size_t i = facts.traversal; i < facts.extents.size(); ++i)
      if (facts.reads[r].depends[i]) {
        deep *= facts.extents[i];
        apart = std::max(apart, std::abs(facts.reads[r].address[i]));
      }
    if (deep < 128 || apart * bytes < kFarApart || plan.vector_extent <= tile.vectors * c.lanes) continue;
    far_apart[r] = apart * bytes >= kPage;
    if (flattened > 1 || plan.row_count < 48) continue;
    plan.panels[r] = true;
    plan.counted.packed = 1;
    plan.pack_cycles += static_cast<double>(facts.reads[r].box.elements) * 3 / static_cast<double>(c.lanes);
  }
  // The operand that stays is the one outside: rows outermost re-read the vectors, and the other way round.
  double row_bytes = 0, vector_bytes = 0;
  for (std::size_t r = 0; r < facts.reads.size(); ++r)
    (broadcast(plan.reads[r].way) ? row_bytes : vector_bytes) +=
        static_cast<double>(facts.reads[r].box.elements);
  plan.counted.vectors_outer = row_bytes < vector_bytes ? 1 : 0;
  double outputs = 1;
  for (std::size_t i = 0; i < facts.traversal; ++i) outputs *= static_cast<double>(facts.extents[i]);
  const auto vector = static_cast<double>(c.lanes);
  if (plan.relaxed) plan.copy_cycles += outputs / vector * 4;
  for (std::size_t r = 0; r < facts.reads.size(); ++r)
    if (plan.reads[r].way == Kind::Staged && !c.constant(facts.reads[r].tensor))
      plan.copy_cycles += static_cast<double>(facts.reads[r].copy.elements) *
                          (facts.reads[r].address[facts.traversal - 1] == 1 ? 4 / vector : 8 / vector);
  plan.outputs = outputs / vector;
  for (std::size_t i = facts.traversal; i < facts.extents.size(); ++i)
    plan.reduction *= static_cast<double>(facts.extents[i]);
  for (std::size_t i = 0; i < first; ++i)
    if (i != plan.row) plan.around *= static_cast<double>(facts.extents[i]);
  for (std::size_t r = 0; r < facts.reads.size(); ++r) {
    const ReadFacts& read = facts.reads[r];
    double pieces = 1;  // that loops around pick one of
    for (std::size_t i = 0; i < first; ++i)
      if (i != plan.row && read.depends[i]) pieces *= static_cast<double>(facts.extents[i]);
    Operand operand;
    operand.by_vectors = !broadcast(plan.reads[r].way);
    operand.bytes = static_cast<double>(read.box.elements * bytes) / pieces;
    operand.far_apart = plan.reads[r].way == Kind::Broadcast ? steps_far_apart(c, facts, read) : far_apart[r];
    operand.panels = plan.panels[r];
    operand.in_order = plan.reads[r].way == Kind::Blocked;
    operand.box = plan.reads[r].way == Kind::Staged ? read.copy : read.box;
    plan.operands.push_back(operand);
  }
  plan.parts = steps_of_parts(c, facts);
  count_numbers(c, plan);
  plan.cycles = cycles_of(c.target, plan, plan.counted);
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
    sketch.counted = plan->counted;
    // More dimensions in one are more work to index: they have to be worth it.
    sketch.cycles =
        least > 0 && plan->cycles >= least * 0.98 ? std::max(plan->cycles, least * 1.0001) : plan->cycles;
    least = least > 0 ? std::min(least, sketch.cycles) : sketch.cycles;
    sketch.estimate = [target = c.target, plan = *plan](const Numbers& numbers) {
      return cycles_of(target, plan, numbers);
    };
    sketch.scope = scope;
    sketch.facts = shared;
    sketch.tiling = [target = c.target, shared, plan = *plan](const Numbers& numbers) {
      return tiling_of(target, *shared, plan, numbers);
    };
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
