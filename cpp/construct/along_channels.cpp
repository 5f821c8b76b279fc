// Vectors along a dimension of the output that only one operand has (output channels): that operand is packed
// with the lanes innermost, in the order it is read in, the other one is broadcast, and the result, written
// with the lanes innermost, is transposed while it is copied out. What small images, gradients of weights and
// weights that differ from place to place need.
#include <algorithm>
#include <cmath>

#include "construct/caches.hpp"
#include "construct/tiling_cost.hpp"

namespace syno::construct {

namespace {

/// Another operand: broadcast from where it lies, or from a copy.
struct BroadcastPlan {
  bool copied = false;
  bool spared = false;                   ///< copied for its guards alone, which a tile may do without
  std::optional<std::size_t> innermost;  ///< dimension of the copy that the rows lie along
};

struct ChannelPlan {
  std::size_t along = 0, rows = 0, operand = 0, dim = 0;  ///< iterators; the packed read and its dimension
  std::vector<std::size_t> over;    ///< loops that are one with the rows, which are few, outermost first
  std::vector<std::int64_t> tiles;  ///< numbers of rows that a tile may have
  std::int64_t part =
      0;  ///< of that dimension: what the lanes run over, where other loops pick one of several
  bool packed = true, turned = true;
  std::vector<std::size_t> behind;  ///< loops around the rows that a panel may serve all of, or one at a time
  std::vector<BroadcastPlan> others;  ///< by read
  std::int64_t row_count = 1, vector_count = 1;
  std::vector<std::int64_t> parts;  ///< steps that a part of the reduction may have
  double panel_bytes = 0;           ///< of the packed operand, for a vector of channels
  std::int64_t lanes = 1;

  bool joins(std::size_t loop) const { return std::find(over.begin(), over.end(), loop) != over.end(); }
};

/// Rows that are broadcast from lines of their own cost about a line's transfer each; a copy pays once that
/// many multiply-adds use an element of it.
constexpr double kUsesWorthACopy = 24;
constexpr std::int64_t kFewRows = 12;  ///< that are worth joining with the loop around them

/// What is broadcast of a row lies together: its lines come once for all of them.
bool rows_in_order(const ScopeFacts& facts, const ReadFacts& read) {
  for (std::size_t i = facts.extents.size(); read.linear && i-- > facts.traversal;)
    if (read.depends[i] && facts.extents[i] > 1) return std::abs(read.address[i]) == 1;
  return false;
}

BroadcastPlan plan_broadcast(const Construction& c, const ScopeFacts& facts, const ReadFacts& read,
                             std::size_t rows) {
  BroadcastPlan plan;
  plan.copied = read.guarded || !read.linear;
  if (!read.depends[rows]) return plan;
  const auto spare = [&] { plan.spared = read.guarded && read.linear && !c.constant(read.tensor); };
  const double uses = static_cast<double>(facts.points()) /
                      static_cast<double>(c.lanes * std::max<std::int64_t>(read.copy.elements, 1));
  const bool apart = !read.linear || read.address[rows] != 1;
  const bool few = uses < kUsesWorthACopy || rows_in_order(facts, read);
  if (!apart || few) spare();
  if (!apart || (!plan.copied && few)) return plan;
  plan.innermost = dimension_along(facts, read.copy, rows);
  if (plan.innermost && *plan.innermost + 1 == read.copy.extents.size() && !plan.copied)
    plan.innermost.reset();  // it lies so already, under a stride
  plan.copied = plan.copied || plan.innermost.has_value();
  return plan;
}

/// The loop whose iterations share what is loaded of the packed operand: the fewest cycles, among them those
/// of rows that the other operands do not have beside each other, and of a result that is copied out far from
/// where it was made.
std::optional<std::size_t> rows_of(const Construction& c, const ScopeFacts& facts, const ChannelPlan& plan) {
  constexpr double kApart = 0.1, kCopiedLater = 0.3;
  std::optional<std::size_t> rows;
  double least = 0, outputs = 1;
  for (std::size_t i = 0; i < facts.traversal; ++i) outputs *= static_cast<double>(facts.extents[i]);
  const std::int64_t vectors = (facts.extents[plan.along] + c.lanes - 1) / c.lanes;
  for (std::size_t i = 0; i < facts.traversal; ++i) {
    if (i == plan.along || facts.reads[plan.operand].depends[i] || facts.extents[i] == 1) continue;
    double steps = 1, apart = 0;
    for (std::size_t j = 0; j < facts.extents.size(); ++j)
      if (j != plan.along && j != i) steps *= static_cast<double>(facts.extents[j]);
    for (std::size_t r = 0; r < facts.reads.size(); ++r) {
      const ReadFacts& read = facts.reads[r];
      if (r == plan.operand || !read.depends[i]) continue;
      const auto dim = dimension_along(facts, read.copy, i);
      const bool beside = dim && *dim + 1 == read.copy.extents.size();
      if (!beside && (!read.linear || read.address[i] != 1)) apart += kApart;
    }
    const bool innermost = i + 1 == facts.traversal && !facts.split(i);
    const double cycles = best_tile(c.target, facts.extents[i], vectors, steps).cycles * (1 + apart) +
                          (plan.turned && !innermost ? outputs * kCopiedLater : 0);
    if (rows && cycles > least) continue;  // of equals the inner one, which may be joined with the other
    rows = i;
    least = cycles;
  }
  return rows;
}

/// Joins the next loop around the rows with them that can be one loop with them, if they are few; whether
/// there is one. A batch is such a loop, so that panels serve several small images at a time.
bool join_next(const ScopeFacts& facts, ChannelPlan& plan) {
  std::int64_t rows = facts.extents[plan.rows];
  for (const std::size_t i : plan.over) rows *= facts.extents[i];
  if (rows > kFewRows) return false;
  for (std::size_t i = plan.over.empty() ? plan.rows : plan.over.front(); i-- > 0;) {
    if (i == plan.along || facts.reads[plan.operand].depends[i] || facts.extents[i] == 1 || facts.split(i))
      continue;
    plan.over.insert(plan.over.begin(), i);
    return true;
  }
  return false;
}

/// Rows that a tile may have.
std::vector<std::int64_t> tiles_of(const Construction& c, const ScopeFacts& facts, const ChannelPlan& plan) {
  const std::int64_t bytes = c.target.vector_bits / 8 / c.lanes;
  std::int64_t most = std::min(plan.row_count, kMostRows);
  bool together = true;
  for (std::size_t r = 0; r < facts.reads.size(); ++r) {
    const ReadFacts& read = facts.reads[r];
    if (r == plan.operand || !read.depends[plan.rows]) continue;
    const bool direct = !plan.others[r].copied && read.linear;
    if (direct && read.address[plan.rows] != 0 && read.address[plan.rows] * bytes % kPage == 0)
      most = std::min(most, kWays);  // all rows on the same lines of the first cache
    std::int64_t next = plan.over.empty() ? 0 : facts.extents[plan.rows] * read.address[plan.rows];
    for (std::size_t i = plan.over.size(); i-- > 0; next *= facts.extents[plan.over[i]])
      together = together && direct && read.address[plan.over[i]] == next;
  }
  std::vector<std::int64_t> tiles = counting_to(most);
  // Of whole rows of rows, or of parts of one, so that where they lie is known.
  std::int64_t few = facts.extents[plan.rows];
  for (std::size_t i = plan.over.size(); i-- > 0 && !together; few *= facts.extents[plan.over[i]])
    std::erase_if(tiles, [few](std::int64_t rows) { return rows % few != 0 && few % rows != 0; });
  return tiles;
}

std::optional<ChannelPlan> plan_channels(const Construction& c, const ScopeFacts& facts, std::size_t along,
                                         std::size_t joined) {
  ChannelPlan plan;
  plan.along = along;
  plan.operand = facts.reads.size();
  for (std::size_t r = 0; r < facts.reads.size(); ++r) {
    if (!facts.reads[r].depends[along]) continue;
    if (plan.operand != facts.reads.size()) return std::nullopt;
    plan.operand = r;
  }
  if (plan.operand == facts.reads.size()) return std::nullopt;
  const ReadFacts& operand = facts.reads[plan.operand];
  auto dim = dimension_along(facts, operand.copy, along);
  if (!dim) {  // channels of a group: c + 16 * g
    dim = dimension_in_parts(facts, operand.copy, along);
    if (!dim) return std::nullopt;
    plan.part = facts.extents[along];
  }
  plan.dim = *dim;
  const auto made_by = c.plan.producer(operand.tensor);
  const bool plain = !made_by || c.plan.is_output(operand.tensor);
  const bool constant = c.constant(operand.tensor);
  plan.packed = operand.guarded || !operand.linear || operand.address[along] != 1 || !plain || constant;
  plan.turned = along + 1 != facts.traversal;
  if (!plan.packed && !plan.turned) return std::nullopt;  // along_output() says it better

  const auto rows = rows_of(c, facts, plan);
  if (!rows) return std::nullopt;
  plan.rows = *rows;
  while (plan.over.size() < joined)
    if (!join_next(facts, plan)) return std::nullopt;
  double panel = 1;
  for (std::size_t i = facts.traversal; i < facts.extents.size(); ++i)
    if (operand.depends[i]) panel *= static_cast<double>(facts.extents[i]);
  plan.row_count = facts.extents[plan.rows];
  for (const std::size_t i : plan.over) plan.row_count *= facts.extents[i];
  plan.vector_count = (facts.extents[along] + c.lanes - 1) / c.lanes;
  const double bytes = static_cast<double>(c.target.vector_bits) / 8 / static_cast<double>(c.lanes);
  for (std::size_t r = 0; r < facts.reads.size(); ++r) {
    plan.others.emplace_back();
    if (r == plan.operand) continue;
    plan.others.back() = plan_broadcast(c, facts, facts.reads[r], plan.rows);
  }
  plan.panel_bytes = panel * static_cast<double>(c.lanes) * bytes;
  plan.lanes = c.lanes;
  // Channels of groups are copied out for all groups together: a piece of all rows would be all of the
  // result.
  if (plan.turned && plan.rows + 1 == facts.traversal && !facts.split(plan.rows) && !facts.split(along))
    for (std::size_t i = along + 1; i < plan.rows; ++i)
      if (!plan.joins(i) && !facts.split(i) && facts.extents[i] > 1) plan.behind.push_back(i);
  plan.parts = steps_of_parts(c, facts);
  plan.tiles = tiles_of(c, facts, plan);
  return plan;
}

/// The dimensions of a copy of another operand: the one that rows move innermost, or as they are.
std::vector<std::int64_t> order_of(const ReadFacts& read, const BroadcastPlan& plan) {
  std::vector<std::int64_t> permutation;
  for (std::size_t d = 0; d < read.copy.extents.size(); ++d)
    if (d != plan.innermost) permutation.push_back(static_cast<std::int64_t>(d));
  if (plan.innermost) permutation.push_back(static_cast<std::int64_t>(*plan.innermost));
  return permutation;
}

Tiling tiling_of(const Target& target, const ScopeFacts& facts, const ChannelPlan& plan,
                 const Numbers& numbers) {
  constexpr double kShare = 0.8;  // of the second cache that panels of a group may take
  Tiling tiling;
  tiling.lanes = {plan.along};
  tiling.width = std::min(numbers.vectors * plan.lanes, up(facts.extents[plan.along], plan.lanes));
  tiling.rows = plan.over;
  tiling.rows.push_back(plan.rows);
  tiling.row_size = numbers.rows;
  tiling.steps = numbers.steps;
  tiling.blocks = numbers.blocks;
  tiling.ahead = true;
  tiling.turned = plan.turned;
  if (plan.turned) tiling.result = Result::Turned;
  tiling.all_rows = !plan.behind.empty() && numbers.vectors_outer != 0;
  tiling.far_groups = plan.panel_bytes * static_cast<double>(plan.vector_count) >
                      kShare * static_cast<double>(target.l2_bytes);

  // Outside what picks a panel of the packed operand, so that the panel stays in a near cache.
  const ReadFacts& packed = facts.reads[plan.operand];
  std::vector<std::size_t> sequence;
  for (const bool picks : {true, false})
    for (std::size_t i = 0; i < facts.traversal; ++i)
      if (i != plan.along && i != plan.rows && !plan.joins(i) && packed.depends[i] == picks)
        sequence.push_back(i);
  // A panel is read for every row while it is near; panels that are near together go round for each row.
  const std::int64_t bytes = target.vector_bits / 8 / plan.lanes;
  const bool near = 2 * packed.copy.elements * bytes <= target.l2_bytes;
  const bool panels_outside = !near && !plan.turned && facts.extents[plan.along] > tiling.width;
  for (const std::size_t i : sequence) {
    if ((panels_outside || tiling.all_rows) && !packed.depends[i]) break;
    tiling.around.push_back({Around::Of::Loop, i});
  }
  tiling.behind = tiling.around.size();
  tiling.around.push_back({Around::Of::Lanes});
  for (std::size_t i = tiling.behind; i < sequence.size(); ++i)
    tiling.around.push_back({Around::Of::Loop, sequence[i]});
  tiling.around.push_back({Around::Of::Rows});
  tiling.around.push_back({Around::Of::Sums});
  for (std::size_t i = facts.traversal; i < facts.extents.size(); ++i) sequence.push_back(i);

  for (std::size_t r = 0; r < facts.reads.size(); ++r) {
    OperandTiling operand;
    if (r == plan.operand && plan.packed) {
      operand.way = Way::Blocks;
      operand.suffix = "_pack";
      operand.blocks = {.dim = plan.dim,
                        .part = plan.part,
                        .width = tiling.width,
                        .outside = numbers.blocks.empty() ? tiling.behind : 0};
      operand.sequence = sequence;
      // A panel, read while it is near.
      operand.at_lane_tiles = !packed.constant && panels_outside && tiling.behind == 0;
    } else if (r != plan.operand && plan.others[r].copied) {
      operand.way = Way::Ordered;
      operand.suffix = "_pad";
      operand.permutation = order_of(facts.reads[r], plan.others[r]);
      operand.spared = plan.others[r].spared && plan.over.empty();
    }
    tiling.operands.push_back(std::move(operand));
  }
  return tiling;
}

}  // namespace

void along_channels(Construction& c, const std::string& scope, const Facts& shared, Sketches& sketches) {
  const ScopeFacts& facts = *shared;
  if (!facts.reduces) return;
  const bool output = c.plan.is_output(c.plan.program.scopes[c.index(scope)].output);
  for (std::size_t i = 0; i < facts.traversal; ++i) {
    if (facts.extents[i] < c.lanes / 2) continue;
    for (std::size_t joined = 0; joined < facts.traversal; ++joined) {
      const auto plan = plan_channels(c, facts, i, joined);
      if (!plan) break;
      if (plan->turned && !output) continue;
      Sketch sketch;
      sketch.name = fmt::format("along_channels/{}{}", i,
                                joined == 0   ? ""
                                : joined == 1 ? "/joined"
                                              : fmt::format("/joined/{}", joined));
      std::vector<std::size_t> rows = plan->over;
      rows.push_back(plan->rows);
      sketch.choices = {{"rows", &Numbers::rows, plan->tiles, rows},
                        {"vectors",
                         &Numbers::vectors,
                         counting_to(std::min(plan->vector_count, kMostVectors)),
                         {plan->along}}};
      if (!plan->behind.empty())
        sketch.choices.push_back({"vectors_outer", &Numbers::vectors_outer, {0, 1}, {}});
      add_parts(facts, plan->parts, sketch);
      if (!plan->turned) {  // else it is computed a piece at a time already
        if (!plan->over.empty()) sketch.blocks.push_back(rows);
        add_blocks(c, facts, facts.traversal, sketch);
      }
      sketch.fits = [target = c.target](const Numbers& n) { return tile_fits(target, n.rows, n.vectors); };
      sketch.scope = scope;
      sketch.facts = shared;
      sketch.tiling = [target = c.target, shared, plan = *plan](const Numbers& n) {
        return tiling_of(target, *shared, plan, n);
      };
      count(c, sketch);
      sketches.push_back(std::move(sketch));
    }
  }
}

}  // namespace syno::construct
