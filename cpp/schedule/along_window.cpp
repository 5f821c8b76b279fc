// Windows read where they lie: pooling, depthwise convolution, stencils. Nothing is copied; taps are repeated
// at compile time (all, or those along which rows overlap, so that more rows fit into a block), a few rows of
// results share the vectors they read, and the iterations whose windows cross a border are split from the
// ones that need no guard.
#include <algorithm>
#include <limits>

#include "schedule/construct.hpp"

namespace syno::schedule {

namespace {

struct WindowPlan {
  std::optional<std::size_t> rows;  ///< traversal iterator whose neighbours share what they read
  std::int64_t row_count = 1, vectors = 1, taps = 1;
  std::int64_t body = 1;              ///< taps that are unrolled
  double outer = 1;                   ///< iterations of the other traversal loops
  std::vector<std::size_t> unrolled;  ///< sums
  bool by_rows = false;               ///< only taps along which rows share what they read are unrolled
};

constexpr std::int64_t kMostTaps = 128, kLargeWindow = 12, kLargestBody = 64, kMostAccumulators = 16,
                       kFurthestLane = 8;
constexpr double kLargestStep = 80;  ///< instructions in a block: more spill, and take long to compile

/// Vectors that are read at different places by `rows` iterations of the rows' loop and the unrolled taps:
/// each dimension has as many as its index has values.
double distinct_reads(const ScopeFacts& facts, const ReadFacts& read, const WindowPlan& plan,
                      std::int64_t rows) {
  double distinct = 1;
  for (const auto& coefficients : read.box.coefficients) {
    std::int64_t span = 1, count = 1;
    const auto moves = [&](std::size_t loop, std::int64_t extent) {
      if (coefficients[loop] == 0) return;
      span += std::abs(coefficients[loop]) * (extent - 1);
      count *= extent;
    };
    if (plan.rows) moves(*plan.rows, rows);
    for (const std::size_t tap : plan.unrolled) moves(tap, facts.extents[tap]);
    distinct *= static_cast<double>(std::min(span, count));
  }
  return distinct;
}

/// Some read moves along one of its dimensions with both loops.
bool move_together(const ScopeFacts& facts, std::size_t a, std::size_t b) {
  for (const auto& read : facts.reads)
    for (const auto& coefficients : read.box.coefficients)
      if (coefficients[a] != 0 && coefficients[b] != 0) return true;
  return false;
}

std::optional<WindowPlan> plan_window(const Construction& c, const ScopeFacts& facts, bool by_rows) {
  WindowPlan plan;
  plan.by_rows = by_rows;
  const std::size_t last = facts.traversal - 1;
  for (std::size_t i = facts.traversal; i < facts.extents.size(); ++i) plan.taps *= facts.extents[i];
  if (plan.taps > kMostTaps || facts.extents[last] < 2) return std::nullopt;
  bool along = false, far = false;
  for (const auto& read : facts.reads) {
    if (!read.linear) return std::nullopt;
    if (!read.depends[last]) continue;
    along = true;
    if (read.address[last] == 0 || std::abs(read.address[last]) > kFurthestLane) return std::nullopt;
    far = far || std::abs(read.address[last]) != 1;  // lanes are shuffled from what neighbouring taps load
  }
  if (!along) return std::nullopt;
  plan.vectors = (facts.extents[last] + c.lanes - 1) / c.lanes;
  for (std::size_t i = last; i-- > 0;) {
    if (!plan.rows && facts.extents[i] > 1) {
      plan.rows = i;
      plan.row_count = facts.extents[i];
    } else {
      plan.outer *= static_cast<double>(facts.extents[i]);
    }
  }
  bool all = true;
  for (std::size_t i = facts.extents.size(); i-- > facts.traversal;) {
    const bool wanted = !by_rows || (plan.rows && move_together(facts, *plan.rows, i));
    all = all && wanted;
    if (!wanted) continue;
    if (plan.body * facts.extents[i] > kLargestBody) break;
    plan.body *= facts.extents[i];
    plan.unrolled.push_back(i);
  }
  // All taps of a small window fit a block with several rows.
  if (by_rows && (all || plan.body == 1 || plan.taps < kLargeWindow || far)) return std::nullopt;
  return plan;
}

/// Cycles of the loads of m rows of v vectors, for the unrolled taps.
double loads_of(const ScopeFacts& facts, const WindowPlan& plan, std::int64_t m, std::int64_t v) {
  double loads = 0;
  for (const auto& read : facts.reads) {
    const double distinct = distinct_reads(facts, read, plan, m);
    if (!read.depends[facts.traversal - 1]) {
      loads += distinct;
      continue;
    }
    const auto apart = static_cast<double>(std::abs(read.address[facts.traversal - 1]));
    loads += distinct * static_cast<double>(v) * (apart == 1 ? 1.7 : 1 + apart);
  }
  return loads;
}

bool fits(const Target& target, const ScopeFacts& facts, const WindowPlan& plan, std::int64_t m,
          std::int64_t v) {
  if (m < 1 || v < 1 || m > plan.row_count || v > plan.vectors) return false;
  if (m * v > std::min<std::int64_t>(kMostAccumulators, target.vector_registers / 2)) return false;
  return m * v == 1 || static_cast<double>(m * v * plan.body) + loads_of(facts, plan, m, v) <= kLargestStep;
}

double cycles_of(const ScopeFacts& facts, const WindowPlan& plan, std::int64_t m, std::int64_t v) {
  const auto step = [&](std::int64_t rows, std::int64_t vectors) {
    const auto results = static_cast<double>(rows * vectors),
               times = static_cast<double>(plan.taps / plan.body);
    const double body =
        std::max({results * static_cast<double>(plan.body), loads_of(facts, plan, rows, vectors), 4.0});
    return times * (body + (times > 1 ? 1 : 0)) + 3 + 2 * results;
  };
  const auto line = [&](std::int64_t rows) {
    const std::int64_t rest = plan.vectors % v;
    return static_cast<double>(plan.vectors / v) * step(rows, v) + (rest ? step(rows, rest) : 0);
  };
  const std::int64_t rest = plan.row_count % m;
  return plan.outer * (static_cast<double>(plan.row_count / m) * line(m) + (rest ? line(rest) : 0));
}

void write_window(Construction& c, const std::string& name, const ScopeFacts& facts, const WindowPlan& plan,
                  const Numbers& numbers) {
  c.apply(name, facts.splits);
  const std::vector<std::string> loops = c.leaves(name);
  const std::size_t last = facts.traversal - 1;
  std::vector<std::string> order, tile;
  struct Peel {
    std::string loop;
    bool incomplete;
  };
  std::vector<Peel> peeled;
  for (std::size_t i = 0; i < last; ++i)
    if (i != plan.rows) {
      order.push_back(loops[i]);
      if (facts.extents[i] > 1) peeled.push_back({loops[i], false});
    }
  const auto tiled = [&](const std::string& loop, std::int64_t size) {
    const std::int64_t extent = c.extent(name, loop);
    if (extent <= size) return loop;
    const auto [outer, inner] = c.split(name, loop, size);
    order.push_back(outer);
    peeled.push_back({outer, extent % size != 0});
    return inner;
  };
  if (plan.rows) tile.push_back(tiled(loops[*plan.rows], numbers.rows));
  std::string lane = tiled(loops[last], numbers.vectors * c.lanes);
  if (c.extent(name, lane) > c.lanes) {
    const auto [outer, inner] = c.split(name, lane, c.lanes);
    tile.push_back(outer);
    lane = inner;
  }
  tile.push_back(lane);
  for (const bool unrolled : {false, true})  // what is unrolled runs inside what is not
    for (std::size_t i = facts.traversal; i < facts.extents.size(); ++i)
      if ((std::find(plan.unrolled.begin(), plan.unrolled.end(), i) != plan.unrolled.end()) == unrolled)
        order.push_back(loops[i]);
  order.insert(order.end(), tile.begin(), tile.end());
  c.add({"reorder", name, order, {}, "", {}});
  c.add({"vectorize", name, {lane}, {}, "", {}});
  c.add({"register_tile", name, tile, {}, "", {}});
  for (const auto& loop : peeled)  // iterations that need guards, from those that need none
    c.peel(name, loop.loop, border_cuts(c.plan, c.index(name), loop.loop), loop.incomplete);
  for (const std::size_t i : plan.unrolled)
    if (facts.extents[i] > 1) c.add({"unroll", name, {loops[i]}, {}, "", {}});
  c.parallel_outermost(name);
}

void add_sketch(const Construction& c, const std::string& scope, const ScopeFacts& facts,
                const WindowPlan& plan, Sketches& sketches) {
  Sketch sketch;
  sketch.name = plan.by_rows ? "along_window/rows" : "along_window";
  std::vector<std::size_t> rows;
  if (plan.rows) rows.push_back(*plan.rows);
  const std::int64_t most_rows = std::min<std::int64_t>(plan.row_count, 8),
                     most_vectors = std::min<std::int64_t>(plan.vectors, 4);
  sketch.choices = {{"rows", &Numbers::rows, counting_to(most_rows), rows},
                    {"vectors", &Numbers::vectors, counting_to(most_vectors), {facts.traversal - 1}}};
  sketch.estimate = [plan, facts, target = c.target](const Numbers& n) {
    if (!fits(target, facts, plan, n.rows, n.vectors)) return std::numeric_limits<double>::infinity();
    return cycles_of(facts, plan, n.rows, n.vectors);
  };
  sketch.cycles = std::numeric_limits<double>::infinity();
  for (std::int64_t v = 1; v <= most_vectors; ++v) {
    for (std::int64_t m = 1; m <= most_rows; ++m) {
      Numbers numbers;
      numbers.rows = m;
      numbers.vectors = v;
      const double cycles = sketch.estimate(numbers);
      if (!(cycles < sketch.cycles * 0.99)) continue;
      sketch.counted = numbers;
      sketch.cycles = cycles;
    }
  }
  sketch.write = [scope, facts, plan](Construction& to, const Numbers& numbers) {
    write_window(to, scope, facts, plan, numbers);
  };
  sketches.push_back(std::move(sketch));
}

}  // namespace

void along_window(Construction& c, const std::string& scope, const ScopeFacts& facts, Sketches& sketches) {
  if (!facts.reduces || facts.traversal == 0 || c.plan.scopes[c.index(scope)].frozen) return;
  for (const bool by_rows : {false, true})
    if (const auto plan = plan_window(c, facts, by_rows)) add_sketch(c, scope, facts, *plan, sketches);
}

}  // namespace syno::schedule
