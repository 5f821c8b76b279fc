// Vectors along a dimension of the output that only one operand has (output channels): that operand is packed
// with the lanes innermost, the other one is broadcast, and the result, written with the lanes innermost, is
// transposed while it is copied out. What small images and gradients of weights need.
#include <algorithm>
#include <limits>

#include "schedule/construct.hpp"
#include "support/error.hpp"

namespace syno::schedule {

namespace {

struct ChannelPlan {
  std::size_t along = 0, rows = 0, operand = 0, dim = 0;  ///< iterators; the packed read and its dimension
  bool packed = true, turned = true;
  std::int64_t row_count = 1, vector_count = 1;
  double steps = 1;        ///< multiply-adds a result
  double copy_cycles = 0;  ///< of the packed and padded operands and of the result
};

/// Cycles to move an element by blocks that are transposed in registers; of an operand no second cache holds.
constexpr double kMoved = 0.6, kMovedFar = 2.5;

std::optional<ChannelPlan> plan_channels(const Construction& c, const ScopeFacts& facts, std::size_t along) {
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
  std::size_t dims = 0;
  for (std::size_t d = 0; d < operand.copy.extents.size(); ++d) {
    if (operand.copy.coefficients[d][along] == 0) continue;
    if (operand.copy.coefficients[d][along] != 1) return std::nullopt;
    plan.dim = d;
    ++dims;
  }
  if (dims != 1 || !operand.linear) return std::nullopt;
  const auto made_by = c.plan.producer(operand.tensor);
  const bool plain = !made_by || c.plan.is_output(operand.tensor);
  const bool constant = c.constant(operand.tensor);
  plan.packed = operand.guarded || operand.address[along] != 1 || !plain || constant;
  plan.turned = along + 1 != facts.traversal;
  if (!plan.packed && !plan.turned) return std::nullopt;  // along_output() says it better

  std::optional<std::size_t> rows;
  for (std::size_t i = 0; i < facts.traversal; ++i) {
    if (i == along || operand.depends[i] || facts.extents[i] == 1) continue;
    if (!rows || facts.extents[i] > facts.extents[*rows]) rows = i;
    // The innermost rows are the ones whose elements lie together, if they are enough for a tile.
    if (i + 1 == facts.traversal && facts.extents[i] >= 6) rows = i;
  }
  if (!rows || (plan.turned && !facts.splits.empty())) return std::nullopt;
  plan.rows = *rows;
  double outputs = 1;
  for (std::size_t i = 0; i < facts.extents.size(); ++i) {
    if (i != along && i != plan.rows) plan.steps *= static_cast<double>(facts.extents[i]);
    if (i < facts.traversal) outputs *= static_cast<double>(facts.extents[i]);
  }
  plan.row_count = facts.extents[plan.rows];
  plan.vector_count = (facts.extents[along] + c.lanes - 1) / c.lanes;
  if (plan.packed && !constant)
    plan.copy_cycles +=
        static_cast<double>(operand.copy.elements) *
        (2 * operand.copy.elements * c.target.vector_bits / 8 / c.lanes > c.target.l2_bytes ? kMovedFar
                                                                                            : kMoved);
  if (plan.turned) plan.copy_cycles += outputs * kMoved;
  for (std::size_t r = 0; r < facts.reads.size(); ++r)
    if (r != plan.operand && facts.reads[r].guarded)
      plan.copy_cycles += static_cast<double>(facts.reads[r].copy.elements) / 4;
  return plan;
}

void write_channels(Construction& c, const std::string& name, const ScopeFacts& facts,
                    const ChannelPlan& plan, const Numbers& numbers) {
  const std::int64_t width =
      std::min(numbers.vectors * c.lanes, (facts.extents[plan.along] + c.lanes - 1) / c.lanes * c.lanes);
  std::string heavy = name;
  if (plan.turned) {
    heavy = c.plan.fresh_tensor_name(name + "_tile");
    c.add({"stage", name, {}, {}, name, {heavy}});
    c.apply(name, facts.splits);
    const std::vector<std::string> names = c.leaves(name);
    std::vector<std::string> order;
    std::string inner = names[plan.along], place;
    std::vector<std::string> outside;
    if (facts.extents[plan.along] > width) {
      const auto [outer, rest] = c.split(name, names[plan.along], width);
      outside.push_back(outer);
      inner = rest;
    }
    // Rows that lie innermost are copied out a tile at a time. Where other dimensions lie further in, all
    // that follows the channels is copied out together, so that it is written in the order it lies.
    const bool rows_innermost = plan.rows + 1 == facts.traversal;
    std::vector<std::string> inside, behind;  // of the copied piece: up to the channels, and behind them
    for (std::size_t i = 0; i < facts.traversal; ++i) {
      if (i == plan.along)
        inside.push_back(inner);
      else if (i == plan.rows)
        (i < plan.along ? inside : behind).push_back(names[i]);
      else if (i < plan.along)
        order.push_back(names[i]);
      else
        (rows_innermost ? outside : behind).push_back(names[i]);
    }
    order.insert(order.end(), outside.begin(), outside.end());
    if (!order.empty()) place = order.back();
    order.insert(order.end(), inside.begin(), inside.end());
    order.insert(order.end(), behind.begin(), behind.end());
    c.add({"reorder", name, order, {}, "", {}});
    std::string last = behind.empty() ? inside.back() : behind.back();
    for (std::size_t i = behind.size(); i-- > 1;) last = c.fuse(name, behind[i - 1], last);
    c.vectorize_copy(name, inner);
    if (!place.empty()) c.add({"compute_at", heavy, {place}, {}, name, {}});
    c.parallel_outermost(name);
  }
  c.plan.need_domain(c.index(heavy));
  c.apply(heavy, facts.splits);
  std::string packed;
  std::vector<std::string> padded;
  const auto stage = [&](std::size_t r, const char* word) {
    const program::TensorId tensor = facts.reads[r].tensor;
    const std::string& source = c.plan.program.tensor(tensor).name;
    const auto reads = c.plan.reads_of(c.index(heavy), tensor);
    const auto which = std::find(reads.begin(), reads.end(), facts.reads[r].id) - reads.begin();
    const std::string copy = c.plan.fresh_tensor_name(source + word);
    c.add({"stage", heavy, {}, {which}, source, {copy}});
    return copy;
  };
  if (plan.packed) packed = stage(plan.operand, "_pack");
  for (std::size_t r = 0; r < facts.reads.size(); ++r)
    if (r != plan.operand && facts.reads[r].guarded) padded.push_back(stage(r, "_pad"));

  const std::vector<std::string> loops = c.leaves(heavy);
  std::vector<std::string> order, tile;
  std::string row_outer, lane = loops[plan.along], lane_outer;
  const std::int64_t rows = c.extent(heavy, loops[plan.rows]);
  std::string row_inner = loops[plan.rows];
  if (rows > numbers.rows) {
    const auto [outer, inner] = c.split(heavy, row_inner, numbers.rows);
    row_outer = outer;
    row_inner = inner;
  }
  tile.push_back(row_inner);
  if (c.extent(heavy, lane) > width) {
    const auto [outer, inner] = c.split(heavy, lane, width);
    lane_outer = outer;
    lane = inner;
  }
  if (c.extent(heavy, lane) > c.lanes) {
    const auto [outer, inner] = c.split(heavy, lane, c.lanes);
    tile.push_back(outer);
    lane = inner;
  }
  tile.push_back(lane);
  for (std::size_t i = 0; i < facts.traversal; ++i)
    if (i != plan.along && i != plan.rows) order.push_back(loops[i]);
  if (!lane_outer.empty()) order.push_back(lane_outer);
  if (!row_outer.empty()) order.push_back(row_outer);
  for (std::size_t i = facts.traversal; i < facts.extents.size(); ++i) order.push_back(loops[i]);
  order.insert(order.end(), tile.begin(), tile.end());
  c.add({"reorder", heavy, order, {}, "", {}});
  if (c.extent(heavy, lane) > 1) c.add({"vectorize", heavy, {lane}, {}, "", {}});
  c.add({"register_tile", heavy, tile, {}, "", {}});
  if (!row_outer.empty() && rows % numbers.rows != 0) c.add({"peel", heavy, {row_outer}, {}, "", {}});
  if (!lane_outer.empty()) c.add({"peel", heavy, {lane_outer}, {}, "", {}});
  c.parallel_outermost(heavy);
  if (plan.turned) {
    std::vector<std::int64_t> permutation;
    for (std::size_t d = 0; d < facts.traversal; ++d)
      if (d != plan.along) permutation.push_back(static_cast<std::int64_t>(d));
    permutation.push_back(static_cast<std::int64_t>(plan.along));
    c.add({"layout", heavy, {}, permutation, heavy, {"reorder"}});
  }

  if (plan.packed) {
    // [blocks of channels][the other dimensions][one block]
    place_beside(c, packed, heavy);
    const std::size_t p = c.index(packed);
    c.plan.need_domain(p);
    const auto tensor = c.plan.program.scopes[p].output;
    const std::size_t rank = facts.reads[plan.operand].copy.extents.size();
    std::vector<std::string> copy_loops, copy_order;
    for (std::size_t d = 0; d < rank; ++d) copy_loops.push_back(c.plan.scopes[p].loops[d].name);
    const std::int64_t extent = c.plan.storage(tensor)[plan.dim];
    const std::int64_t blocks = (extent + width - 1) / width;
    const auto dim = static_cast<std::int64_t>(plan.dim);
    if (blocks * width > extent)
      c.add({"layout", packed, {}, {dim, 0, blocks * width - extent}, packed, {"pad"}});
    c.add({"layout", packed, {}, {dim, blocks, width}, packed, {"split"}});
    // What follows the channels in memory stays one run: blocks of it are transposed.
    std::string run;
    for (std::size_t d = rank; d-- > plan.dim + 1;)
      run = run.empty() ? copy_loops[d] : c.fuse(packed, copy_loops[d], run);
    std::vector<std::int64_t> permutation{dim};
    for (std::int64_t d = 0; d < static_cast<std::int64_t>(rank) + 1; ++d)
      if (d != dim && d != dim + 1) permutation.push_back(d);
    permutation.push_back(dim + 1);
    c.add({"layout", packed, {}, permutation, packed, {"reorder"}});
    std::string block, within = copy_loops[plan.dim];
    if (extent > width) {
      const auto [outer, inner] = c.split(packed, within, width);
      copy_order.push_back(outer);
      within = inner;
      block = outer;
    }
    for (std::size_t d = 0; d < plan.dim; ++d) copy_order.push_back(copy_loops[d]);
    if (!run.empty()) copy_order.push_back(run);
    copy_order.push_back(within);
    c.add({"reorder", packed, copy_order, {}, "", {}});
    c.vectorize_copy(packed);
    c.parallel_outermost(packed);
    c.prepack(packed, facts.reads[plan.operand].tensor);
  }
  for (const auto& copy : padded) {
    place_beside(c, copy, heavy);
    c.plan.need_domain(c.index(copy));
    c.vectorize_innermost(copy);
    c.parallel_outermost(copy);
  }
}

}  // namespace

void along_channels(Construction& c, const std::string& scope, Sketches& sketches) {
  const ScopeFacts facts = analyse(c.plan, c.index(scope));
  if (!facts.reduces) return;
  const bool output = c.plan.is_output(c.plan.program.scopes[c.index(scope)].output);
  for (std::size_t i = 0; i < facts.traversal; ++i) {
    if (facts.extents[i] < c.lanes / 2) continue;
    const auto plan = plan_channels(c, facts, i);
    if (!plan || (plan->turned && !output)) continue;
    Sketch sketch;
    sketch.name = fmt::format("along_channels/{}", i);
    sketch.choices = {
        {"rows", &Numbers::rows, counting_to(std::min(plan->row_count, kMostRows)), {plan->rows}},
        {"vectors",
         &Numbers::vectors,
         counting_to(std::min(plan->vector_count, kMostVectors)),
         {plan->along}}};
    const Tile tile = best_tile(c.target, plan->row_count, plan->vector_count, plan->steps);
    sketch.counted.rows = tile.rows;
    sketch.counted.vectors = tile.vectors;
    sketch.estimate = [target = c.target, plan = *plan](const Numbers& n) {
      if (!tile_fits(target, n.rows, n.vectors)) return std::numeric_limits<double>::infinity();
      return tile_cycles(plan.row_count, plan.vector_count, plan.steps, n.rows, n.vectors) + plan.copy_cycles;
    };
    sketch.cycles = sketch.estimate(sketch.counted);
    sketch.write = [scope, facts, plan = *plan](Construction& to, const Numbers& n) {
      write_channels(to, scope, facts, plan, n);
    };
    sketches.push_back(std::move(sketch));
  }
}

}  // namespace syno::schedule
