// Vectors along positions that all operands have: weights that differ from place to place, their gradients,
// and batches that lie innermost. Each operand is loaded as vectors where it lies, and a register tile shares
// them: its rows move one part of the operands, its columns the other one. Where there are fewer positions
// than lanes, a second loop fills the vector, over whose iterations the operands it does not move are
// repeated.
#include <algorithm>
#include <cmath>

#include "construct/caches.hpp"
#include "construct/tiling_cost.hpp"

namespace syno::construct {

namespace {

enum class Copying : std::uint8_t { Broadcast, Direct, Staged };

/// How one operand comes as vectors.
struct PlacedOperand {
  Copying way = Copying::Broadcast;
  std::size_t dim = 0;             ///< Staged: of the copy, moved by the positions
  std::optional<std::size_t> far;  ///< and by the loop that fills the vector
};

struct PlacesPlan {
  std::size_t places = 0;           ///< traversal loops
  std::optional<std::size_t> fill;  ///< with the positions in one vector
  std::int64_t filled = 1;          ///< iterations of it in a vector
  std::optional<std::size_t> rows, columns;
  std::int64_t most_rows = kMostRows, most_columns = kMostRows;
  bool turned = false;   ///< the result's dimensions are not in the order of the lanes
  bool staged = false;   ///< the result is copied out: the caller's memory has an order of its own
  bool relaxed = false;  ///< the last vector is filled with dead iterations
  std::vector<PlacedOperand> operands;  ///< by read
  std::int64_t part = 0;                ///< steps of a part of the reduction; 0: all of them
  std::int64_t lanes = 1;
};

/// Steps that each read from a page of their own, of which all loops inside read on: prefetchers follow about
/// as many.
constexpr std::int64_t kFollowed = 32;

bool moves(const ReadFacts& read, const ScopeFacts& facts, std::size_t loop) {
  return read.depends[loop] && facts.extents[loop] > 1;
}

/// The one dimension of the copy that a loop moves step by step.
std::optional<std::size_t> moved_by(const BoxFacts& box, std::size_t loop) {
  std::optional<std::size_t> found;
  for (std::size_t d = 0; d < box.extents.size(); ++d) {
    if (!box.linear[d]) return std::nullopt;
    if (box.coefficients[d][loop] == 0) continue;
    if (found || box.coefficients[d][loop] < 0) return std::nullopt;
    found = d;
  }
  return found;
}

std::optional<PlacedOperand> plan_operand(const Construction& c, const ScopeFacts& facts,
                                          const ReadFacts& read, const PlacesPlan& plan) {
  PlacedOperand operand;
  const bool fills = plan.fill && moves(read, facts, *plan.fill);
  if (!moves(read, facts, plan.places)) {
    if (fills) return std::nullopt;
    return operand;
  }
  const auto made_by = c.plan.producer(read.tensor);
  // An intermediate may get wider rows than its shape says: what fills vectors would lie apart then.
  const bool dense_rows = !made_by || c.plan.is_output(read.tensor);
  const std::int64_t width = facts.extents[plan.places];
  if ((dense_rows || !fills) && !read.guarded && read.linear && read.address[plan.places] == 1 &&
      (!fills || (read.address[*plan.fill] == width && !plan.relaxed))) {
    operand.way = Copying::Direct;
    return operand;
  }
  operand.way = Copying::Staged;
  const auto dim = moved_by(read.copy, plan.places);
  if (!dim || read.copy.coefficients[*dim][plan.places] != 1) return std::nullopt;
  operand.dim = *dim;
  if (fills) {
    operand.far = moved_by(read.copy, *plan.fill);
    if (!operand.far) return std::nullopt;
    if (operand.far == operand.dim && read.copy.coefficients[*operand.far][*plan.fill] != width)
      return std::nullopt;
  }
  return operand;
}

/// Only reads that do not move with `other` move with the loop.
bool apart(const ScopeFacts& facts, std::size_t loop, std::size_t other) {
  return std::none_of(facts.reads.begin(), facts.reads.end(),
                      [&](const ReadFacts& read) { return read.depends[loop] && read.depends[other]; });
}

std::int64_t count_of(const ScopeFacts& facts, const PlacesPlan& plan, std::size_t loop) {
  return loop == plan.fill ? (facts.extents[loop] + plan.filled - 1) / plan.filled : facts.extents[loop];
}

std::int64_t most_of(const Construction& c, const ScopeFacts& facts, const PlacesPlan& plan,
                     std::size_t loop) {
  const std::int64_t bytes = c.target.vector_bits / 8 / c.lanes;
  std::int64_t most = std::min(count_of(facts, plan, loop), kMostRows);
  for (std::size_t r = 0; r < facts.reads.size(); ++r)
    if (plan.operands[r].way == Copying::Direct && facts.reads[r].address[loop] != 0 &&
        facts.reads[r].address[loop] * bytes % kPage == 0)
      most = std::min(most, kWays);  // all of them on the same lines of the first cache
  return most;
}

/// Whether an operand from beyond the second cache is read a little of every page at a time.
bool leafs_through(const Construction& c, const ScopeFacts& facts, const PlacesPlan& plan) {
  if (c.schedule.dtype == Dtype::BF16 || c.target.threads > 1)
    return false;  // sums of parts; one thread has them
  const std::int64_t bytes = c.target.vector_bits / 8 / c.lanes;
  for (std::size_t r = 0; r < facts.reads.size(); ++r)
    if (plan.operands[r].way == Copying::Direct && facts.reads[r].box.elements * bytes > c.target.l2_bytes &&
        steps_far_apart(c, facts, facts.reads[r]))
      return true;
  return false;
}

/// `output`: the result is the caller's.
std::optional<PlacesPlan> plan_places(const Construction& c, const ScopeFacts& facts, bool output,
                                      std::size_t places, std::optional<std::size_t> fill) {
  PlacesPlan plan;
  plan.places = places;
  plan.lanes = c.lanes;
  plan.fill = fill;
  const std::int64_t width = facts.extents[places];
  if (fill) {
    const std::int64_t most = c.lanes / width, extent = facts.extents[*fill];
    if (most < 2) return std::nullopt;
    const std::int64_t times = (extent + most - 1) / most;
    plan.filled = (extent + times - 1) / times;
    plan.relaxed = extent % plan.filled != 0;
    if (plan.relaxed && facts.split(*fill)) return std::nullopt;
  }
  std::size_t along = 0, direct = 0;
  for (const ReadFacts& read : facts.reads) {
    const auto operand = plan_operand(c, facts, read, plan);
    if (!operand) return std::nullopt;
    plan.operands.push_back(*operand);
    along += operand->way != Copying::Broadcast;
    direct += operand->way == Copying::Direct;
  }
  if (along < 2) return std::nullopt;

  // The two loops that share the most: each moves operands that the other one does not.
  double best = 0;
  for (std::size_t i = 0; i < facts.traversal; ++i) {
    if (i == places || count_of(facts, plan, i) == 1) continue;
    for (std::size_t j = 0; j < i; ++j) {
      if (j == places || count_of(facts, plan, j) == 1 || !apart(facts, i, j)) continue;
      const double shared = std::min(8.0, static_cast<double>(count_of(facts, plan, i))) *
                            std::min(8.0, static_cast<double>(count_of(facts, plan, j)));
      if (shared <= best) continue;
      best = shared;
      plan.rows = i;
      plan.columns = j;
    }
  }
  if (!plan.rows) return std::nullopt;
  const bool together = !fill || *fill + 1 == places;
  plan.turned = places + 1 != facts.traversal || !together;
  plan.staged = (plan.turned || plan.relaxed) && output;
  if (plan.turned && direct == 0) return std::nullopt;
  double reduction = 1;
  for (std::size_t i = facts.traversal; i < facts.extents.size(); ++i)
    reduction *= static_cast<double>(facts.extents[i]);
  if (reduction >= 2 * kFollowed && leafs_through(c, facts, plan)) plan.part = kFollowed;
  plan.most_rows = most_of(c, facts, plan, *plan.rows);
  plan.most_columns = most_of(c, facts, plan, *plan.columns);
  return plan;
}

/// The dimensions of a copy: the positions innermost, then what fills a vector with them, the rest in the
/// order in which the loops move it.
std::vector<std::int64_t> order_of(const ScopeFacts& facts, const ReadFacts& read,
                                   const PlacedOperand& operand) {
  std::vector<std::size_t> position(read.copy.extents.size(), 0);  // of the innermost loop that moves it
  for (std::size_t i = 0; i < facts.extents.size(); ++i)
    for (std::size_t d = 0; d < position.size(); ++d)
      if (read.copy.coefficients[d][i] != 0) position[d] = i;
  std::vector<std::int64_t> permutation;
  for (std::size_t d = 0; d < position.size(); ++d)
    if (d != operand.dim && d != operand.far) permutation.push_back(static_cast<std::int64_t>(d));
  std::stable_sort(permutation.begin(), permutation.end(), [&](std::int64_t a, std::int64_t b) {
    return position[static_cast<std::size_t>(a)] < position[static_cast<std::size_t>(b)];
  });
  if (operand.far && operand.far != operand.dim)
    permutation.push_back(static_cast<std::int64_t>(*operand.far));
  permutation.push_back(static_cast<std::int64_t>(operand.dim));
  return permutation;
}

Tiling tiling_of(const ScopeFacts& facts, const PlacesPlan& plan, const Numbers& numbers) {
  Tiling tiling;
  tiling.lanes = {plan.places};
  tiling.width = plan.lanes;
  tiling.filling = plan.fill;
  tiling.filled = plan.filled;
  tiling.rows = {*plan.rows};
  tiling.columns = {*plan.columns};
  tiling.row_size = numbers.rows;
  tiling.column_size = numbers.columns;
  tiling.columns_first = numbers.rows < numbers.columns;  // fewer operands stay in registers
  for (std::size_t i = 0; i < facts.traversal; ++i) {
    if (i == plan.places) continue;
    tiling.around.push_back(i == plan.rows      ? Around{Around::Of::Rows}
                            : i == plan.columns ? Around{Around::Of::Columns}
                                                : Around{Around::Of::Loop, i});
  }
  tiling.around.push_back({Around::Of::Lanes});
  tiling.around.push_back({Around::Of::Sums});
  tiling.steps = numbers.steps > 0 ? numbers.steps : plan.part;
  tiling.blocks = numbers.blocks;
  if (plan.staged) tiling.result = Result::Whole;
  tiling.turned = plan.turned;
  for (std::size_t r = 0; r < facts.reads.size(); ++r) {
    OperandTiling operand;
    if (plan.operands[r].way == Copying::Staged) {
      operand.way = Way::Ordered;
      operand.suffix = "_pad";
      operand.permutation = order_of(facts, facts.reads[r], plan.operands[r]);
    }
    tiling.operands.push_back(std::move(operand));
  }
  return tiling;
}

}  // namespace

void along_places(Construction& c, const std::string& scope, const Facts& shared, Sketches& sketches) {
  const ScopeFacts& facts = *shared;
  if (!facts.reduces || c.plan.scopes[c.index(scope)].frozen) return;
  // A result that an epilogue finishes is written as the epilogue says.
  const bool output = c.plan.is_output(c.plan.program.scopes[c.index(scope)].output) ||
                      c.plan.scopes[c.index(scope)].epilogue.has_value();
  for (std::size_t i = 0; i < facts.traversal; ++i) {
    if (facts.extents[i] < 2) continue;
    for (std::size_t j = 0; j <= facts.traversal; ++j) {
      const bool alone = j == facts.traversal;
      if (!alone && (j == i || facts.extents[j] == 1)) continue;
      const auto plan = plan_places(c, facts, output, i, alone ? std::nullopt : std::optional(j));
      if (!plan) continue;
      Sketch sketch;
      sketch.name = alone ? fmt::format("along_places/{}", i) : fmt::format("along_places/{}/{}", i, j);
      sketch.choices = {{"rows", &Numbers::rows, counting_to(plan->most_rows), {*plan->rows}},
                        {"columns", &Numbers::columns, counting_to(plan->most_columns), {*plan->columns}}};
      if (!plan->staged && plan->part == 0) add_blocks(c, facts, facts.traversal, sketch);
      sketch.fits = [registers = c.target.vector_registers](const Numbers& n) {
        return n.rows * n.columns + std::min(n.rows, n.columns) + 2 <= registers;
      };
      sketch.scope = scope;
      sketch.facts = shared;
      sketch.tiling = [shared, plan = *plan](const Numbers& n) { return tiling_of(*shared, plan, n); };
      count(c, sketch);
      if (std::isfinite(sketch.cycles)) sketches.push_back(std::move(sketch));
    }
  }
}

}  // namespace syno::construct
