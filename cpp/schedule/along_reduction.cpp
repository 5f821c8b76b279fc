// Vectors along a reduction, as in dot products: partial sums stay in lanes over the whole reduction and are
// summed up once. What GEMV, `x * w^T` with few rows, row sums and softmax need.
#include <algorithm>

#include "schedule/construct.hpp"
#include "support/error.hpp"

namespace syno::schedule {

namespace {

struct ReductionPlan {
  std::size_t along = 0;  ///< the iterator the lanes run over
  std::optional<std::size_t> rows, columns;
  std::int64_t tile_rows = 1, tile_columns = 1, chains = 1;
  double cycles = 0;
};

bool only_one_depends(const ScopeFacts& facts, std::size_t iterator, std::size_t read) {
  for (std::size_t r = 0; r < facts.reads.size(); ++r)
    if (facts.reads[r].depends[iterator] != (r == read)) return false;
  return true;
}

std::optional<ReductionPlan> plan_along(const Construction& c, const ScopeFacts& facts, std::size_t along) {
  ReductionPlan plan;
  plan.along = along;
  bool any = false;
  for (const auto& read : facts.reads) {
    if (!read.depends[along]) continue;
    if (!read.linear || read.address[along] != 1) return std::nullopt;
    any = true;
  }
  if (!any) return std::nullopt;
  // Rows are the results that share what the second operand loads, columns the other way round.
  for (std::size_t i = 0; i < facts.traversal; ++i) {
    if (facts.extents[i] == 1) continue;
    if (only_one_depends(facts, i, 0) && (!plan.rows || facts.extents[i] > facts.extents[*plan.rows]))
      plan.rows = i;
    if (facts.reads.size() > 1 && only_one_depends(facts, i, 1) &&
        (!plan.columns || facts.extents[i] > facts.extents[*plan.columns]))
      plan.columns = i;
  }
  const std::int64_t rows = plan.rows ? facts.extents[*plan.rows] : 1;
  const std::int64_t columns = plan.columns ? facts.extents[*plan.columns] : 1;
  double others = 1;
  for (std::size_t i = 0; i < facts.extents.size(); ++i)
    if (i != along && i != plan.rows && i != plan.columns) others *= static_cast<double>(facts.extents[i]);
  const std::int64_t vectors = (facts.extents[along] + c.lanes - 1) / c.lanes;
  for (std::int64_t m = 1; m <= std::min<std::int64_t>(rows, 8); ++m) {
    for (std::int64_t n = 1; n <= std::min<std::int64_t>(columns, 8); ++n) {
      if (m * n + std::min(m, n) + 1 > c.target.vector_registers - 2) break;
      const std::int64_t chains = std::clamp<std::int64_t>(8 / (m * n), 1, vectors);
      const auto step = [&](std::int64_t a, std::int64_t b) {
        const double loads = facts.reads.size() > 1 ? static_cast<double>(a + b) : static_cast<double>(a * b);
        return std::max(
                   {static_cast<double>(a * b * chains), 1.2 * loads * static_cast<double>(chains), 4.0}) +
               0.7;
      };
      const auto line = [&](std::int64_t a) {
        return static_cast<double>(columns / n) * step(a, n) + (columns % n ? step(a, columns % n) : 0);
      };
      const double tiles = static_cast<double>(rows / m) * line(m) + (rows % m ? line(rows % m) : 0);
      const double steps = std::max(1.0, static_cast<double>(vectors) / static_cast<double>(chains));
      // Once a result: the lanes are added up.
      const double ends = static_cast<double>(rows * columns) * 8;
      double outer = others;
      for (std::size_t i = facts.traversal; i < facts.extents.size(); ++i)
        if (i != along) outer /= static_cast<double>(facts.extents[i]);
      const double cycles = others * steps * tiles + outer * ends;
      if (plan.cycles == 0 || cycles < plan.cycles * 0.999) {
        plan.tile_rows = m;
        plan.tile_columns = n;
        plan.chains = chains;
        plan.cycles = cycles;
      }
    }
  }
  return plan;
}

void write_along(Construction& c, const std::string& name, const ScopeFacts& facts,
                 const ReductionPlan& plan) {
  c.apply(name, facts.splits);
  const std::vector<std::string> names = c.leaves(name);
  std::vector<std::string> order, tile, peeled;
  for (std::size_t i = 0; i < facts.traversal; ++i)
    if (i != plan.rows && i != plan.columns) order.push_back(names[i]);
  const auto tiled = [&](const std::optional<std::size_t>& iterator, std::int64_t size) {
    if (!iterator) return;
    const std::int64_t extent = facts.extents[*iterator];
    if (size == 1) {
      order.push_back(names[*iterator]);
    } else if (extent > size) {
      const auto [outer, inner] = c.split(name, names[*iterator], size);
      order.push_back(outer);
      tile.push_back(inner);
      if (extent % size != 0) peeled.push_back(outer);
    } else {
      tile.push_back(names[*iterator]);
    }
  };
  tiled(plan.rows, plan.tile_rows);
  tiled(plan.columns, plan.tile_columns);
  for (std::size_t i = facts.traversal; i < facts.extents.size(); ++i)
    if (i != plan.along) order.push_back(names[i]);
  const std::int64_t extent = facts.extents[plan.along];
  std::string lane = names[plan.along];
  const std::int64_t width = c.lanes * plan.chains;
  if (extent > width) {
    const auto [outer, inner] = c.split(name, lane, width);
    order.push_back(outer);
    lane = inner;
    if (extent % width != 0) peeled.push_back(outer);
  }
  if (plan.chains > 1 && extent > c.lanes) {
    const auto [outer, inner] = c.split(name, lane, c.lanes);
    tile.push_back(outer);
    lane = inner;
  }
  tile.push_back(lane);
  order.insert(order.end(), tile.begin(), tile.end());
  c.add({"reorder", name, order, {}, "", {}});
  if (c.extent(name, lane) > 1) c.add({"vectorize", name, {lane}, {}, "", {}});
  c.add({"register_tile", name, tile, {}, "", {}});
  for (const auto& loop : peeled) c.add({"peel", name, {loop}, {}, "", {}});
  c.parallel_outermost(name);
}

}  // namespace

std::optional<Strategy> along_reduction(Construction& c, const std::string& scope) {
  const ScopeFacts facts = analyse(c.plan, c.index(scope));
  if (!facts.reduces || c.plan.scopes[c.index(scope)].frozen) return std::nullopt;
  std::optional<ReductionPlan> best;
  for (std::size_t i = facts.traversal; i < facts.extents.size(); ++i) {
    if (facts.extents[i] < 2) continue;
    const auto plan = plan_along(c, facts, i);
    if (plan && (!best || plan->cycles < best->cycles)) best = plan;
  }
  if (!best) return std::nullopt;
  return Strategy{best->cycles,
                  [scope, facts, plan = *best](Construction& to) { write_along(to, scope, facts, plan); }};
}

}  // namespace syno::schedule
