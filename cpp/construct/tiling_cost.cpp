#include "construct/tiling_cost.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "construct/caches.hpp"
#include "machine/tile_cost.hpp"

namespace syno::construct {

namespace {

/// Cycles of a tile: its loop, and for each vector of results that it begins and is stored; for a result
/// whose lanes are added up. A sum longer than branch predictors remember ends unforeseen.
constexpr double kTileCycles = 3, kResultCycles = 2, kAddedUp = 8, kUnforeseen = 20, kRemembered = 24;
/// Instructions that a core looks ahead: the sums of shorter tiles wait for each other in no tile.
constexpr double kLookAhead = 200;
/// Cycles of a load whose lanes are masked, and of a vector that is put together of two.
constexpr double kMasked = 2, kPutTogether = 2;
/// Cycles of a copy, by vector of its elements: where it reads vectors, where they are picked, and of panels.
constexpr double kCopied = 4, kPicked = 8, kPanels = 3;
/// The same by element, transposed block by block: to and from main memory, and near, from beyond the second
/// cache one way.
constexpr double kMovedFarthest = 5, kMovedNear = 0.8;
constexpr double kGuarded = 0.5;  ///< more for a copy that has to look where the operand ends
/// Cycles of a line beyond the second cache where each row of vectors begins on a page of its own, which no
/// prefetcher follows; the part of that cache that operands may take.
constexpr double kFarRow = 8, kFarShare = 0.7;
constexpr double kHidden = 0.85;     ///< of what moves, while it computes
constexpr std::int64_t kDeep = 128;  ///< steps of a sum that begin far apart, so that it is worth a thought

bool contains(const std::vector<std::size_t>& loops, std::size_t loop) {
  return std::find(loops.begin(), loops.end(), loop) != loops.end();
}

std::int64_t parts_of(std::int64_t count, std::int64_t of) { return (count + of - 1) / of; }

bool moves(const BoxFacts& box, std::size_t loop) {
  return std::any_of(box.coefficients.begin(), box.coefficients.end(),
                     [&](const auto& coefficients) { return coefficients[loop] != 0; });
}

BoxFacts in_order(const BoxFacts& box, const std::vector<std::int64_t>& permutation) {
  BoxFacts made;
  made.elements = box.elements;
  for (const std::int64_t from : permutation) {
    const auto d = static_cast<std::size_t>(from);
    made.coefficients.push_back(box.coefficients[d]);
    made.linear.push_back(box.linear[d]);
    made.extents.push_back(box.extents[d]);
    made.whole.push_back(box.whole[d]);
  }
  return made;
}

/// `count` iterations in tiles: `tile` for a whole one, and for the rest.
template <class Tile>
double over_tiles(std::int64_t count, std::int64_t tile, Tile&& cycles) {
  double sum = count >= tile ? static_cast<double>(count / tile) * cycles(tile) : 0;
  if (count % tile != 0) sum += cycles(count % tile);
  return sum;
}

}  // namespace

TileSize size_of(const Tiling& tiling, std::int64_t lanes) {
  return {tiling.row_size, tiling.column_size, std::max<std::int64_t>(1, parts_of(tiling.width, lanes)),
          tiling.steps};
}

TilingCost::TilingCost(const Target& target, std::int64_t lanes, const ScopeFacts& facts,
                       const Tiling& tiling)
    : target_(target),
      facts_(facts),
      tiling_(tiling),
      lanes_(lanes),
      element_(static_cast<double>(target.vector_bits) / 8 / static_cast<double>(lanes)),
      sums_(tiling.lanes.front() >= facts.traversal),
      near_room_(kNearShare * static_cast<double>(target.l1_bytes)),
      far_room_(kFarShare * static_cast<double>(target.l2_bytes)) {
  const auto extent = [&](std::size_t i) { return facts.extents[i]; };
  std::int64_t along = 1;
  for (std::size_t k = 0; k < tiling.lanes.size(); ++k)
    along *= tiling.pitch.empty() ? extent(tiling.lanes[k]) : tiling.pitch[k];
  vectors_ = std::max<std::int64_t>(1, parts_of(along * tiling.filled, lanes));
  for (const std::size_t i : tiling.rows) rows_ *= extent(i);
  for (const std::size_t i : tiling.columns) columns_ *= extent(i);
  for (std::size_t i = 0; i < facts.extents.size(); ++i) {
    const auto iterations = static_cast<double>(extent(i));
    (i < facts.traversal ? results_ : reduction_) *= iterations;
    if (contains(tiling.lanes, i) || contains(tiling.rows, i) || contains(tiling.columns, i)) continue;
    if (i == tiling.filling) {
      outer_ *= static_cast<double>(parts_of(extent(i), tiling.filled));
    } else if (i < facts.traversal) {
      outer_ *= iterations;
    } else if (contains(tiling.unrolled, i) || contains(tiling.sliding, i)) {
      body_ *= extent(i);
    } else if (tiling.blocked && tiling.blocked->first == i) {
      body_ *= tiling.blocked->second;
      times_ *= static_cast<double>(parts_of(extent(i), tiling.blocked->second));
    } else {
      times_ *= iterations;
    }
  }
  ordered_.reserve(facts.reads.size());
  for (std::size_t r = 0; r < facts.reads.size(); ++r) {
    add_load(facts.reads[r], r);
    add_operand(facts.reads[r], r);
  }
  for (const Around& around : tiling.around) {
    if (around.of == Around::Of::Sums) break;
    const std::size_t at = static_cast<std::size_t>(&around - tiling.around.data());
    if (at < tiling.behind || (tiling.result == Result::Turned && at <= tiling.behind)) parts_ = at + 1;
    around_.push_back({around.of, around.loop});
  }
}

/// Whether vectors begin anywhere in a block: a sum moves along the dimension that is cut into them.
bool TilingCost::crosses_blocks(const ReadFacts& read, const Blocks& blocks) const {
  const std::int64_t apart = blocks.part > 0 ? blocks.part : blocks.width;
  for (std::size_t i = facts_.traversal; i < facts_.extents.size(); ++i)
    if (read.copy.coefficients[blocks.dim][i] % apart != 0 && facts_.extents[i] > 1) return true;
  return false;
}

/// Whether vectors of a copy of rows begin anywhere: a sum moves along the dimension that its rows lie along.
bool TilingCost::slides(const ReadFacts& read, Way way) const {
  if (way != Way::Rows) return false;
  for (std::size_t i = facts_.traversal; i < facts_.extents.size(); ++i)
    for (const auto& coefficients : read.copy.coefficients)
      if (coefficients[i] != 0 && coefficients[tiling_.lanes.back()] != 0 && facts_.extents[i] > 1)
        return true;
  return false;
}

/// Elements from what one lane reads to what the next one reads; 0 where that is not always the same.
std::int64_t TilingCost::lane_step(const ReadFacts& read) const {
  for (std::size_t k = tiling_.lanes.size(); read.linear && k-- > 0;)
    if (facts_.extents[tiling_.lanes[k]] > 1) return std::abs(read.address[tiling_.lanes[k]]);
  return 0;
}

void TilingCost::add_load(const ReadFacts& read, std::size_t r) {
  const auto moved_by = [&](const std::vector<std::size_t>& loops) {
    return std::any_of(loops.begin(), loops.end(),
                       [&](std::size_t i) { return read.depends[i] && facts_.extents[i] > 1; });
  };
  const Way way = r < tiling_.operands.size() ? tiling_.operands[r].way : Way::InPlace;
  const bool fills = tiling_.filling && read.depends[*tiling_.filling];
  const bool vector = moved_by(tiling_.lanes) || fills;
  bool by_sums = false, by_taps = false;
  std::int64_t taps = 1;
  for (std::size_t i = facts_.traversal; i < facts_.extents.size(); ++i) {
    if (!read.depends[i] || facts_.extents[i] == 1) continue;
    by_sums = true;
    const bool blocked = tiling_.blocked && tiling_.blocked->first == i;
    if (!blocked && !contains(tiling_.unrolled, i) && !contains(tiling_.sliding, i)) continue;
    by_taps = true;
    taps *= blocked ? tiling_.blocked->second : facts_.extents[i];
  }
  if (!by_sums && reduction_ > 1) return;  // it stays in a register
  double load = std::max(1.0, target_.broadcast_cycles * target_.loads_per_cycle);
  if (vector) {
    const std::int64_t step = lane_step(read);
    const bool direct = way == Way::InPlace || way == Way::Panels;
    load = 1;
    if (step == 1 && (direct || slides(read, way))) load += target_.unaligned_cycles;
    if (direct && step > 1) load += static_cast<double>(step);
    if (direct && step == 0) load = static_cast<double>(lanes_);
    if (direct && read.guarded && !tiling_.cut_borders) load = kMasked;
    if (tiling_.filling && !fills) load = kPutTogether;
    if (way == Way::Blocks && crosses_blocks(read, tiling_.operands[r].blocks))
      load = static_cast<double>(lanes_);
  }
  const bool rows = moved_by(tiling_.rows), columns = moved_by(tiling_.columns);
  if (by_taps && read.linear && body_ > 1)
    shared_.push_back({&read.box, load, vector});
  else
    loads_[(rows ? 1U : 0U) + (columns ? 2U : 0U) + (vector ? 4U : 0U)] += load * static_cast<double>(taps);
}

void TilingCost::add_operand(const ReadFacts& read, std::size_t r) {
  const Way way = r < tiling_.operands.size() ? tiling_.operands[r].way : Way::InPlace;
  Operand operand;
  operand.box = way == Way::InPlace || way == Way::Panels ? &read.box : &read.copy;
  if (way == Way::Ordered) {
    ordered_.push_back(in_order(read.copy, tiling_.operands[r].permutation));
    operand.box = &ordered_.back();
  }
  operand.bytes = static_cast<double>(operand.box->elements) * element_;
  operand.in_order = way == Way::Blocks || way == Way::Panels;
  operand.in_runs = way == Way::Rows;
  if (way == Way::InPlace && read.linear) operand.address = &read.address;
  const auto& linear = operand.box->linear;
  if (std::find(linear.begin(), linear.end(), false) != linear.end())
    for (std::size_t i = 0; i < facts_.extents.size(); ++i)
      if (read.depends[i]) operand.moved_by.push_back(i);
  const bool vector = std::any_of(tiling_.lanes.begin(), tiling_.lanes.end(),
                                  [&](std::size_t i) { return read.depends[i] && facts_.extents[i] > 1; });
  bool far_apart = false;  // steps of the sum begin on pages of their own
  if ((way == Way::InPlace || way == Way::Panels) && read.linear && !sums_) {
    std::int64_t deep = 1, apart = 0, innermost = 0;
    for (std::size_t i = facts_.traversal; i < facts_.extents.size(); ++i) {
      if (!read.depends[i] || facts_.extents[i] == 1) continue;
      deep *= facts_.extents[i];
      innermost = std::abs(read.address[i]);
      apart = std::max(apart, innermost);
    }
    const bool several = vectors_ * lanes_ > tiling_.width;
    const double step = element_ * static_cast<double>(vector ? apart : innermost);
    far_apart = step >= static_cast<double>(kPage) && (!vector || (deep >= kDeep && several));
  }
  if (way == Way::Panels)
    operand.packed = far_apart ? kApartLine : 0;
  else if (far_apart)
    operand.line_cycles = vector ? kFarRow : kApartLine;
  bytes_ += operand.bytes;
  operands_.push_back(operand);
}

// What a tile computes.

/// Elements that are read at different places by loops that take so many iterations: each dimension has as
/// many as its index has values.
double TilingCost::distinct(const BoxFacts& box, std::span<const Repeat> repeats) {
  double found = 1;
  for (const auto& coefficients : box.coefficients) {
    std::int64_t span = 1, count = 1;
    for (const Repeat& repeat : repeats) {
      if (coefficients[repeat.loop] == 0) continue;
      span += std::abs(coefficients[repeat.loop]) * (repeat.times - 1);
      count *= repeat.times;
    }
    found *= static_cast<double>(std::min(span, count));
  }
  return found;
}

/// Loads of what several rows and terms of a window read: once each where registers hold them from one use to
/// the next, beside `sums` vectors.
double TilingCost::shared(const Shared& read, std::int64_t rows, std::int64_t columns, double vectors,
                          double sums) const {
  Repeats repeats;  // from the outermost one on
  const auto add = [&](std::size_t loop, std::int64_t times) {
    if (times > 1) repeats.push_back({loop, times});
  };
  const auto add_tile = [&](const std::vector<std::size_t>& loops, std::int64_t tile) {
    const std::size_t before = repeats.size();
    for (std::size_t k = loops.size(); k-- > 0; tile = parts_of(tile, facts_.extents[loops[k]]))
      add(loops[k], std::min(tile, facts_.extents[loops[k]]));
    std::reverse(repeats.begin() + before, repeats.end());
  };
  for (std::size_t i = facts_.traversal; i < facts_.extents.size(); ++i) {
    if (contains(tiling_.unrolled, i)) add(i, facts_.extents[i]);
    if (tiling_.blocked && tiling_.blocked->first == i) add(i, tiling_.blocked->second);
  }
  add_tile(tiling_.columns, columns);
  add_tile(tiling_.rows, rows);
  for (const std::size_t i : tiling_.sliding) add(i, facts_.extents[i]);
  const std::span<const Repeat> all(repeats.begin(), repeats.size());
  const double once = distinct(*read.box, all);
  if (!read.by_vectors) return once;
  const auto each = [&](std::span<const Repeat> of) {
    double product = 1;
    for (const Repeat& repeat : of)
      if (moves(*read.box, repeat.loop)) product *= static_cast<double>(repeat.times);
    return product;
  };
  for (std::size_t first = all.size(); first-- > 0;) {
    if (distinct(*read.box, all.subspan(first)) >= each(all.subspan(first))) continue;
    const double held = vectors * distinct(*read.box, all.subspan(first + 1));
    return vectors * (sums + held + 1 <= target_.vector_registers ? once : each(all));
  }
  return once * vectors;
}

double TilingCost::step(std::int64_t rows, std::int64_t columns, std::int64_t vectors) const {
  const double m = static_cast<double>(rows), c = static_cast<double>(columns),
               v = static_cast<double>(vectors);
  double loads = loads_[0] + m * loads_[1] + c * (loads_[2] + m * loads_[3]) +
                 v * (loads_[4] + m * loads_[5] + c * (loads_[6] + m * loads_[7]));
  for (const Shared& read : shared_) loads += read.load * shared(read, rows, columns, v, m * c * v);
  const double body = static_cast<double>(body_), multiply_adds = m * c * v * body;
  const bool waits = times_ * (multiply_adds + loads) > kLookAhead;
  return machine::step_cycles(target_, multiply_adds, loads, waits ? body : 0) -
         (times_ > 1 || sums_ ? 0 : machine::kStepCycles);
}

/// Cycles of beginning and ending a tile's sum.
double TilingCost::begun() const {
  return kTileCycles + (times_ > kRemembered ? kUnforeseen * target_.fma_per_cycle : 0);
}

double TilingCost::of_tile(std::int64_t rows, std::int64_t columns, std::int64_t vectors) const {
  const double results = static_cast<double>(rows * columns);
  if (!sums_)
    return times_ * step(rows, columns, vectors) + begun() +
           kResultCycles * results * static_cast<double>(vectors);
  const double along = std::max(1.0, static_cast<double>(vectors_) / static_cast<double>(vectors));
  return times_ * along * step(rows, columns, vectors) + kAddedUp * results;
}

double TilingCost::computing(const TileSize& size) const {
  const std::int64_t whole =  // a piece that is copied out has all its lanes
      tiling_.result == Result::Turned ? parts_of(vectors_, size.vectors) * size.vectors : vectors_;
  return facts_.counted * outer_ * over_tiles(rows_, size.rows, [&](std::int64_t rows) {
           return over_tiles(columns_, size.columns, [&](std::int64_t columns) {
             if (sums_) return of_tile(rows, columns, size.vectors);
             return over_tiles(whole, size.vectors,
                               [&](std::int64_t vectors) { return of_tile(rows, columns, vectors); });
           });
         });
}

// What is copied.

double TilingCost::moved(double elements) const {
  const double bytes = 2 * elements * element_;
  return elements * (bytes > static_cast<double>(target_.l3_bytes)   ? kMovedFarthest
                     : bytes > static_cast<double>(target_.l2_bytes) ? kMovedFar
                                                                     : kMoved);
}

double TilingCost::copied(const OperandTiling& operand, const ReadFacts& read, const TileSize& size) const {
  const auto elements = static_cast<double>(read.copy.elements), lanes = static_cast<double>(lanes_);
  const bool several = vectors_ > size.vectors;
  switch (operand.way) {
    case Way::InPlace:
      return 0;
    case Way::Panels:
      return several ? static_cast<double>(read.box.elements) * kPanels / lanes : 0;
    case Way::Rows:
      return elements * (lane_step(read) == 1 ? kCopied : kPicked) / lanes;
    case Way::Ordered: {
      if (operand.spared) return 0;
      const bool kept =
          operand.permutation.back() + 1 == static_cast<std::int64_t>(operand.permutation.size());
      return kept ? elements * kCopied / lanes : moved(elements);
    }
    case Way::Blocks:
      break;
  }
  // Where results are made block by block of lanes, so is the packed operand.
  const auto l2_bytes = static_cast<double>(target_.l2_bytes),
             l3_bytes = static_cast<double>(target_.l3_bytes);
  const double bytes = elements * element_,
               block = bytes * static_cast<double>(size.vectors) / static_cast<double>(vectors_);
  bool picked = false;  // by other loops, too
  for (std::size_t i = 0; i < facts_.traversal; ++i)
    picked = picked || (!contains(tiling_.lanes, i) && read.depends[i] && facts_.extents[i] > 1);
  const bool in_blocks = (tiling_.result == Result::Turned || (!picked && 2 * bytes > l2_bytes)) &&
                         2 * block <= l2_bytes && 2 * bytes <= l3_bytes;
  const double cycles = in_blocks ? std::min(elements * kMovedNear, moved(elements)) : moved(elements);
  return cycles * (vectors_ % size.vectors != 0 ? 1 + kGuarded : 1);
}

double TilingCost::kept(const TileSize& size) const {
  if (size.steps == 0) return 0;
  const double vectors = results_ / static_cast<double>(lanes_);
  double inside = vectors;
  for (std::size_t i = 0; i < parts_; ++i)
    inside /= static_cast<double>(around_[i].of == Around::Of::Loop ? facts_.extents[around_[i].loop]
                                                                    : trips(around_[i].of, size));
  const double parts = reduction_ / static_cast<double>(size.steps);
  const double tiles =
      outer_ * static_cast<double>(trips(Around::Of::Rows, size) * trips(Around::Of::Columns, size) *
                                   trips(Around::Of::Lanes, size));
  return kept_cycles(target_, vectors, inside, parts) + (parts - 1) * tiles * begun();
}

double TilingCost::copying(const TileSize& size) const {
  double cycles = kept(size);
  for (std::size_t r = 0; r < tiling_.operands.size(); ++r)  // those of constants are made before calls
    if (!facts_.reads[r].constant || tiling_.operands[r].way == Way::Panels)
      cycles += copied(tiling_.operands[r], facts_.reads[r], size);
  switch (tiling_.result) {
    case Result::InPlace:
    case Result::Finished:
      return cycles + (tiling_.turned ? results_ * kMoved : 0);
    case Result::Rows:
      return cycles + results_ * kCopied / static_cast<double>(lanes_);
    case Result::Whole:
      return cycles + results_ * kMoved;
    case Result::Turned:
      break;
  }
  double piece =
      static_cast<double>(rows_ * size.vectors * lanes_) * element_;  // it is copied out from there
  for (std::size_t i = tiling_.behind + 1; tiling_.all_rows && i < around_.size(); ++i)
    if (around_[i].of == Around::Of::Loop) piece *= static_cast<double>(facts_.extents[around_[i].loop]);
  const bool far = 2 * piece > static_cast<double>(target_.l2_bytes);
  return cycles + results_ * (far ? kMovedFar : kMoved);
}

// What moves from cache to cache.

std::int64_t TilingCost::trips(Around::Of of, const TileSize& size) const {
  switch (of) {
    case Around::Of::Rows:
      return parts_of(rows_, size.rows);
    case Around::Of::Columns:
      return parts_of(columns_, size.columns);
    case Around::Of::Lanes:
      return parts_of(vectors_, size.vectors);
    default:
      return 1;
  }
}

void TilingCost::spread(const std::vector<std::size_t>& loops, std::int64_t tile,
                        Iterations& iterations) const {
  for (std::size_t k = loops.size(); k-- > 0;) {
    const std::int64_t extent = facts_.extents[loops[k]];
    iterations[loops[k]] = std::min(tile, extent);
    tile = parts_of(tile, extent);
  }
}

/// The iterations of each loop in a tile and a part of its sum, and how many parts there are.
TilingCost::Iterations TilingCost::of_a_tile(const TileSize& size, double& parts) const {
  Iterations tile(facts_.extents.size(), 1);
  std::vector<std::int64_t> sums;
  for (std::size_t i = facts_.traversal; i < facts_.extents.size(); ++i) sums.push_back(facts_.extents[i]);
  double steps = 1;
  const std::vector<std::int64_t> part = iterations_of_part(std::move(sums), size.steps);
  for (std::size_t i = 0; i < part.size(); ++i) {
    tile[facts_.traversal + i] = part[i];
    steps *= static_cast<double>(part[i]);
  }
  parts = std::max(1.0, reduction_ / steps);
  spread(tiling_.rows, size.rows, tile);
  spread(tiling_.columns, size.columns, tile);
  if (!sums_) spread(tiling_.lanes, size.vectors * lanes_, tile);
  if (tiling_.filling) tile[*tiling_.filling] = std::min(tiling_.filled, facts_.extents[*tiling_.filling]);
  return tile;
}

Touched TilingCost::touch(const Operand& operand, const Iterations& iterations) const {
  const std::span<const std::int64_t> each(iterations.begin(), iterations.end());
  // Where an index is no sum of loops, all of a dimension is taken for what it may reach: no more than each
  // iteration reads.
  double runs = 1, run = 1;
  for (const std::size_t i : operand.moved_by)
    (operand.in_runs && contains(tiling_.lanes, i) ? run : runs) *= static_cast<double>(iterations[i]);
  const bool bounded = !operand.moved_by.empty();
  if (operand.in_order) {
    double elements = 1;  // one after the other
    for (std::size_t d = 0; d < operand.box->extents.size(); ++d)
      elements *= static_cast<double>(span_of(*operand.box, d, each));
    if (bounded) elements = std::min(elements, runs * run);
    return {std::max(1.0, elements * element_ / kLine), 1, 0};
  }
  const Touched found = touched(*operand.box, each, element_);
  const double lines = run * element_ / kLine, most = runs * (lines > 1 ? lines + 0.5 : 1);
  return bounded && most < found.lines ? Touched{most, runs, found.apart} : found;
}

/// Whether what is read lies on so few sets of a cache, a way of which has `span` bytes, that they have no
/// room for it: of a first cache of eight ways of 4 KiB, 128 rows that begin 2 KiB apart lie on two.
bool TilingCost::conflicts(const Operand& operand, const Iterations& iterations, std::int64_t span,
                           std::int64_t ways) const {
  if (operand.address == nullptr) return false;
  for (std::size_t i = 0; i < iterations.size(); ++i) {
    const std::int64_t apart = std::abs((*operand.address)[i]) * static_cast<std::int64_t>(element_);
    if (apart < static_cast<std::int64_t>(kLine) || iterations[i] == 1) continue;
    if (iterations[i] > span / std::gcd(apart, span) * ways) return true;
  }
  return false;
}

std::pair<double, double> TilingCost::moving(const TileSize& size) const {
  if (near()) return {0, 0};
  double parts = 1;
  Iterations iterations = of_a_tile(size, parts);
  struct Traffic {
    Touched touched;
    double near = 0, waiting = 0, far = 0;  // lines from the second cache, those waited for, from beyond it
  };
  InlineVector<Traffic, 4> traffic;
  const auto waited_for = [](const Touched& of) {
    return machine::followed(of.lines / of.pieces, of.apart) ? 0 : of.lines;
  };
  // Bytes inside the loop, and whether the sets of the first and the second cache have room for them.
  double held = 0;
  bool near_sets = true, far_sets = true;
  const std::int64_t near_ways = std::max<std::int64_t>(1, target_.l1_bytes / kPage);
  const auto hold = [&](const Operand& operand, double lines) {
    held += lines * kLine;
    near_sets = near_sets && !conflicts(operand, iterations, target_.l1_bytes / near_ways, near_ways);
    far_sets = far_sets && !conflicts(operand, iterations, target_.l2_bytes / kWays, kWays);
  };
  for (const Operand& operand : operands_) {
    const Touched of = touch(operand, iterations);
    traffic.push_back({of, of.lines, waited_for(of), of.lines});
    hold(operand, of.lines);
  }
  const auto repeat = [&](double times) {
    const bool near = near_sets && held <= near_room_, far = far_sets && held <= far_room_;
    held = 0;
    for (std::size_t o = 0; o < operands_.size(); ++o) {
      Traffic& moved = traffic[o];
      moved.touched = touch(operands_[o], iterations);
      moved.near = near ? std::min(times * moved.near, moved.touched.lines) : times * moved.near;
      moved.waiting = near ? std::min(times * moved.waiting, moved.touched.lines) : times * moved.waiting;
      moved.far = far ? std::min(times * moved.far, moved.touched.lines) : times * moved.far;
      hold(operands_[o], moved.touched.lines);
    }
  };
  const auto whole = [&](const std::vector<std::size_t>& loops) {
    for (const std::size_t i : loops) iterations[i] = facts_.extents[i];
  };
  for (std::size_t i = around_.size();; --i) {
    if (i == parts_ && parts > 1) {
      for (std::size_t k = facts_.traversal; k < facts_.extents.size(); ++k)
        iterations[k] = facts_.extents[k];
      repeat(parts);
    }
    if (i == 0) break;
    const Loop& loop = around_[i - 1];
    double times = static_cast<double>(trips(loop.of, size));
    switch (loop.of) {
      case Around::Of::Loop:
        times = static_cast<double>(parts_of(facts_.extents[loop.loop], iterations[loop.loop]));
        iterations[loop.loop] = facts_.extents[loop.loop];
        break;
      case Around::Of::Rows:
        whole(tiling_.rows);
        break;
      case Around::Of::Columns:
        whole(tiling_.columns);
        break;
      default:
        whole(tiling_.lanes);
    }
    if (times > 1) repeat(times);
  }
  double cycles = 0, waiting = 0;
  const double far_line = target_.line_cycles[bytes_ > static_cast<double>(target_.l3_bytes) ? 2 : 1];
  for (std::size_t o = 0; o < operands_.size(); ++o) {
    const Operand& operand = operands_[o];
    cycles += traffic[o].near * target_.line_cycles[0] * target_.fma_per_cycle;
    waiting += traffic[o].waiting * target_.near_piece_cycles * target_.fma_per_cycle;
    if (bytes_ <= far_room_) continue;
    const bool beyond = operand.bytes > static_cast<double>(target_.l2_bytes);
    const double line = far_line * target_.fma_per_cycle;
    cycles += traffic[o].far * (beyond ? std::max(line, operand.line_cycles) : line);
    cycles += operand.packed * operand.bytes / kLine / static_cast<double>(size.vectors);
  }
  return {cycles, waiting};
}

CycleCount TilingCost::count(const TileSize& size) const {
  const auto [moved, waiting] = moving(size);
  CycleCount made{computing(size), copying(size), moved, waiting, 0};
  made.cycles = made.copying + made.computing + (1 - kHidden) * moved + waiting;
  return made;
}

}  // namespace syno::construct
