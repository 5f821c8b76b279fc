// Windows: pooling, depthwise convolution, stencils. Taps are repeated at compile time (all, those along
// which rows overlap, or blocks of these), and rows of results share the vectors they read. Row by row, each
// with its taps, as y[h] += k[r] * x[h + r], a window of vectors slides through registers, and there may be
// many rows; tap by tap all of a block's vectors are held. Small windows are read where they lie, and the
// iterations whose windows cross a border are split from the ones that need no guard; of large ones, most do,
// and a padded copy of the image costs little beside them.
#include <algorithm>
#include <cmath>

#include "construct/caches.hpp"
#include "construct/tiling_cost.hpp"

namespace syno::construct {

namespace {

enum class Form { Taps, Rows, Padded };  ///< all taps unrolled; those of rows; blocks of those, on copies

struct WindowPlan {
  Form form = Form::Taps;
  std::optional<std::size_t> rows;  ///< traversal iterator whose neighbours share what they read
  std::int64_t row_count = 1, vectors = 1, taps = 1;
  std::int64_t body = 1;                       ///< taps that are unrolled, beside blocks
  std::vector<std::size_t> unrolled;           ///< sums
  std::vector<std::size_t> sliding;            ///< of these: inside the rows, whose vectors they share
  std::int64_t window = 1;                     ///< taps of those
  std::optional<std::size_t> blocked;          ///< sum of which blocks are unrolled
  std::vector<std::optional<RowCopy>> copies;  ///< by read: padded
  std::int64_t lanes = 1;
};

/// Cycles by count, over those of the other forms, with which copies are worth it: guards at the borders and
/// shuffled lanes take longer than is counted, the first ones little.
constexpr double kWorthGuards = 0.8, kWorthShuffles = 1.1;
/// The same over those of other strategies: blocks of taps are long code.
constexpr double kWorthBlocks = 0.98;
/// Registers that sums and the vectors that slide leave to others.
constexpr std::int64_t kSpared = 4;
constexpr std::int64_t kMostTaps = 128, kLargeWindow = 12, kLargestBody = 64, kMostAccumulators = 16,
                       kFurthestLane = 8, kMostSlidingRows = 20, kMostWindowVectors = 4;
/// Instructions in a block: more spill, and take long to compile. Without guards they are fewer than counted.
constexpr double kLargestStep = 80, kLargestPlainStep = 110, kLargestSlidingStep = 120,
                 kLargestSlidingRows = 200;

/// Vectors that are read at different places by `rows` iterations of the rows' loop and the unrolled taps:
/// each dimension has as many as its index has values.
double distinct_reads(const ScopeFacts& facts, const ReadFacts& read, const WindowPlan& plan,
                      std::int64_t rows, std::int64_t block) {
  double distinct = 1;
  for (const auto& coefficients : read.box.coefficients) {
    std::int64_t span = 1, count = 1;
    const auto moves = [&](std::size_t loop, std::int64_t extent) {
      if (coefficients[loop] == 0) return;
      span += std::abs(coefficients[loop]) * (extent - 1);
      count *= extent;
    };
    if (plan.rows) moves(*plan.rows, rows);
    if (plan.blocked) moves(*plan.blocked, block);
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

/// The same, and several of their iterations meet at one place.
bool overlap(const ScopeFacts& facts, std::size_t a, std::size_t b) {
  for (const auto& read : facts.reads)
    for (const auto& coefficients : read.box.coefficients) {
      const std::int64_t step_a = std::abs(coefficients[a]), step_b = std::abs(coefficients[b]);
      const std::int64_t span = 1 + step_a * (facts.extents[a] - 1) + step_b * (facts.extents[b] - 1);
      if (step_a != 0 && step_b != 0 && span < facts.extents[a] * facts.extents[b]) return true;
    }
  return false;
}

/// Some vectors are shuffled from elements that lie apart where nothing is copied.
bool shuffles(const ScopeFacts& facts) {
  return std::any_of(facts.reads.begin(), facts.reads.end(), [&](const ReadFacts& read) {
    return read.depends[facts.traversal - 1] && std::abs(read.address[facts.traversal - 1]) != 1;
  });
}

/// Which reads are copied; false where none is and the other forms do as well.
bool plan_copies(const ScopeFacts& facts, WindowPlan& plan) {
  const std::size_t last = facts.traversal - 1;
  plan.copies.resize(facts.reads.size());
  bool any = false;
  for (std::size_t r = 0; r < facts.reads.size(); ++r) {
    const ReadFacts& read = facts.reads[r];
    if (!read.depends[last] || (!read.guarded && read.address[last] == 1)) continue;
    plan.copies[r] = plan_row_copy(facts, read, 1);
    if (!plan.copies[r]) return false;
    any = true;
  }
  return any || plan.taps > kMostTaps;
}

/// Registers for so many numbers of a window: none where a multiply-add takes a number for all lanes from
/// memory, which then costs no more than a load; a lane each where it takes one of a vector, as NEON's.
std::int64_t registers_for(const Target& target, std::int64_t numbers) {
  constexpr double kAbout = 1.2;
  if (target.broadcast_cycles * target.loads_per_cycle < kAbout) return 0;
  const bool by_lane = target.vector_registers >= 32 && target.vector_bits == 128;
  return by_lane ? (numbers + 3) / 4 : numbers;
}

std::optional<WindowPlan> plan_window(const Construction& c, const ScopeFacts& facts, Form form,
                                      bool slides = false) {
  WindowPlan plan;
  plan.form = form;
  plan.lanes = c.lanes;
  const std::size_t last = facts.traversal - 1;
  for (std::size_t i = facts.traversal; i < facts.extents.size(); ++i) plan.taps *= facts.extents[i];
  if (facts.extents[last] < 2 || (form != Form::Padded && plan.taps > kMostTaps)) return std::nullopt;
  bool along = false;
  for (const auto& read : facts.reads) {
    if (!read.linear) return std::nullopt;
    if (!read.depends[last]) continue;
    along = true;
    if (form == Form::Padded) continue;
    if (read.address[last] == 0 || std::abs(read.address[last]) > kFurthestLane) return std::nullopt;
  }
  if (!along) return std::nullopt;
  if (form == Form::Padded && !plan_copies(facts, plan)) return std::nullopt;
  plan.vectors = (facts.extents[last] + c.lanes - 1) / c.lanes;
  for (std::size_t i = last; i-- > 0;) {
    if (plan.rows || facts.extents[i] == 1) continue;
    plan.rows = i;
    plan.row_count = facts.extents[i];
  }
  if (form == Form::Padded) {
    // Without rows that share what they read, each multiply-add has a load of its own anyway.
    for (std::size_t i = facts.traversal; plan.rows && i < facts.extents.size(); ++i)
      if (facts.extents[i] > 1 && overlap(facts, *plan.rows, i)) plan.blocked = i;
    return plan.blocked ? std::optional(plan) : std::nullopt;
  }
  bool all = true;
  for (std::size_t i = facts.extents.size(); i-- > facts.traversal;) {
    const bool wanted = form == Form::Taps || (plan.rows && move_together(facts, *plan.rows, i));
    all = all && wanted;
    if (!wanted) continue;
    if (plan.body * facts.extents[i] > kLargestBody) break;
    plan.body *= facts.extents[i];
    plan.unrolled.push_back(i);
  }
  // All taps of a small window fit a block with several rows.
  const bool poor = all || plan.body == 1 || (plan.taps < kLargeWindow && !slides);
  // Lanes that lie apart are shuffled from what neighbouring taps load.
  if ((form == Form::Rows && poor) || ((form == Form::Rows || slides) && shuffles(facts)))
    return std::nullopt;
  if (!slides) return plan;
  // All numbers are held at once; SVE's products take those of eight registers alone.
  constexpr std::int64_t kMostNumbers = 8;
  if (form == Form::Taps && registers_for(c.target, plan.body) > kMostNumbers) return std::nullopt;
  for (const std::size_t tap : plan.unrolled) {
    if (!plan.rows || !move_together(facts, *plan.rows, tap)) continue;
    plan.sliding.push_back(tap);
    plan.window *= facts.extents[tap];
  }
  if (plan.window == 1) return std::nullopt;
  return plan;
}

/// Cycles of the loads of m rows of v vectors, for the unrolled taps.
double loads_of(const ScopeFacts& facts, const WindowPlan& plan, std::int64_t m, std::int64_t v,
                std::int64_t block) {
  double loads = 0;
  for (std::size_t r = 0; r < facts.reads.size(); ++r) {
    const ReadFacts& read = facts.reads[r];
    const double distinct = distinct_reads(facts, read, plan, m, block);
    if (!read.depends[facts.traversal - 1]) {
      loads += distinct;
      continue;
    }
    const bool copied = plan.form == Form::Padded && plan.copies[r];
    const auto apart = static_cast<double>(std::abs(read.address[facts.traversal - 1]));
    loads += distinct * static_cast<double>(v) * (copied || apart == 1 ? 1.7 : 1 + apart);
  }
  return loads;
}

bool fits(const Target& target, const ScopeFacts& facts, const WindowPlan& plan, std::int64_t m,
          std::int64_t v, std::int64_t block) {
  if (m < 1 || v < 1 || m > plan.row_count || v > plan.vectors) return false;
  // Vectors that slide stay until the last tap that reads them, and so do the numbers of the taps.
  const std::int64_t numbers = registers_for(target, plan.form == Form::Taps ? plan.body : plan.window);
  const std::int64_t most_sums = plan.sliding.empty()
                                     ? std::min<std::int64_t>(kMostAccumulators, target.vector_registers / 2)
                                     : target.vector_registers - plan.window * v - numbers - kSpared;
  if (m * v > most_sums) return false;
  const double most = plan.form == Form::Padded ? kLargestPlainStep
                      : plan.sliding.empty()    ? kLargestStep
                      : plan.form == Form::Rows ? kLargestSlidingRows
                                                : kLargestSlidingStep;
  return m * v * block == 1 ||
         static_cast<double>(m * v * plan.body * block) + loads_of(facts, plan, m, v, block) <= most;
}

/// The size of blocks of taps: as few as fit, all about as large; 1 where there are none.
std::int64_t block_of(const Target& target, const ScopeFacts& facts, const WindowPlan& plan, std::int64_t m,
                      std::int64_t v) {
  if (!plan.blocked) return 1;
  const std::int64_t taps = facts.extents[*plan.blocked];
  for (std::int64_t blocks = 1; blocks < taps; ++blocks) {
    const std::int64_t block = (taps + blocks - 1) / blocks;
    if (fits(target, facts, plan, m, v, block)) return block;
  }
  return 1;
}

Tiling tiling_of(const Target& target, const ScopeFacts& facts, const WindowPlan& plan,
                 const Numbers& numbers) {
  const std::size_t last = facts.traversal - 1;
  Tiling tiling;
  tiling.lanes = {last};
  tiling.pitch = {facts.extents[last]};
  tiling.width = numbers.vectors * plan.lanes;
  if (plan.rows) tiling.rows = {*plan.rows};
  tiling.row_size = numbers.rows;
  for (std::size_t i = 0; i < last; ++i)
    if (i != plan.rows) tiling.around.push_back({Around::Of::Loop, i});
  tiling.behind = tiling.around.size();
  for (const auto of : {Around::Of::Rows, Around::Of::Lanes, Around::Of::Sums}) tiling.around.push_back({of});
  for (const std::size_t i : plan.unrolled)
    if (std::find(plan.sliding.begin(), plan.sliding.end(), i) == plan.sliding.end())
      tiling.unrolled.push_back(i);
  tiling.sliding = plan.sliding;
  std::sort(tiling.sliding.begin(), tiling.sliding.end());
  const std::int64_t block = block_of(target, facts, plan, numbers.rows, numbers.vectors);
  if (plan.blocked && block > 1) tiling.blocked = {*plan.blocked, block};
  tiling.cut_borders = true;
  for (std::size_t r = 0; r < plan.copies.size(); ++r) {
    OperandTiling operand;
    if (plan.copies[r]) {
      operand.way = Way::Rows;
      operand.suffix = "_pad";
      operand.rows = *plan.copies[r];
      // A copy for each image, as long as no two of them hold the same elements.
      if (!facts.reads[r].constant)
        operand.depth = own_depth(facts, facts.reads[r], plan.rows.value_or(last));
    }
    tiling.operands.push_back(std::move(operand));
  }
  return tiling;
}

void add_sketch(const Construction& c, const std::string& scope, const Facts& shared, const WindowPlan& plan,
                Sketches& sketches) {
  const ScopeFacts& facts = *shared;
  Sketch sketch;
  sketch.name = plan.form == Form::Taps   ? "along_window"
                : plan.form == Form::Rows ? "along_window/rows"
                                          : "along_window/padded";
  if (!plan.sliding.empty()) sketch.name += "/sliding";
  std::vector<std::size_t> rows;
  if (plan.rows) rows.push_back(*plan.rows);
  const std::int64_t most_rows =
                         std::min<std::int64_t>(plan.row_count, plan.sliding.empty() ? 8 : kMostSlidingRows),
                     most_vectors = std::min<std::int64_t>(plan.vectors, kMostWindowVectors);
  sketch.choices = {{"rows", &Numbers::rows, counting_to(most_rows), rows},
                    {"vectors", &Numbers::vectors, counting_to(most_vectors), {facts.traversal - 1}}};
  sketch.fits = [plan, shared, target = c.target](const Numbers& n) {
    const std::int64_t block = block_of(target, *shared, plan, n.rows, n.vectors);
    return fits(target, *shared, plan, n.rows, n.vectors, block);
  };
  sketch.restructured = plan.blocked.has_value();
  sketch.scope = scope;
  sketch.facts = shared;
  sketch.tiling = [target = c.target, shared, plan](const Numbers& numbers) {
    return tiling_of(target, *shared, plan, numbers);
  };
  count(c, sketch);
  sketches.push_back(std::move(sketch));
}

}  // namespace

void along_window(Construction& c, const std::string& scope, const Facts& shared, Sketches& sketches) {
  const ScopeFacts& facts = *shared;
  if (!facts.reduces || facts.traversal == 0 || c.plan.scopes[c.index(scope)].frozen) return;
  const std::size_t before = sketches.size();
  for (const Form form : {Form::Taps, Form::Rows})
    for (const bool slides : {false, true})
      if (const auto plan = plan_window(c, facts, form, slides))
        add_sketch(c, scope, shared, *plan, sketches);
  const auto plan = plan_window(c, facts, Form::Padded);
  if (!plan) return;
  add_sketch(c, scope, shared, *plan, sketches);
  const double worth = shuffles(facts) ? kWorthShuffles : kWorthGuards;
  for (std::size_t i = 0; i + 1 < sketches.size(); ++i)
    if (sketches.back().cycles > (i < before ? kWorthBlocks : worth) * sketches[i].cycles)
      return sketches.pop_back();
}

}  // namespace syno::construct
