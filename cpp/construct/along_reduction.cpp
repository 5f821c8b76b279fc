// Vectors along a reduction, as in dot products: partial sums stay in lanes over the whole reduction and are
// summed up once. What GEMV, `x * w^T` with few rows, row sums and softmax need.
#include <algorithm>
#include <limits>

#include "construct/construct.hpp"
#include "support/error.hpp"

namespace syno::construct {

namespace {

struct ReductionPlan {
  std::size_t along = 0;  ///< the iterator the lanes run over
  std::optional<std::size_t> rows, columns;
  std::int64_t row_count = 1, column_count = 1, vectors = 1;
  double others = 1, outer = 1;
  bool two_operands = false;
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
  plan.vectors = (facts.extents[along] + c.lanes - 1) / c.lanes;
  plan.row_count = rows;
  plan.column_count = columns;
  plan.others = others;
  plan.outer = others;
  for (std::size_t i = facts.traversal; i < facts.extents.size(); ++i)
    if (i != along) plan.outer /= static_cast<double>(facts.extents[i]);
  plan.two_operands = facts.reads.size() > 1;
  return plan;
}

double cycles_of(const Target& target, const ReductionPlan& plan, const Numbers& numbers) {
  const std::int64_t m = numbers.rows, n = numbers.columns, chains = numbers.chains;
  const auto step = [&](std::int64_t a, std::int64_t b) {
    const double loads = plan.two_operands ? static_cast<double>(a + b) : static_cast<double>(a * b);
    return step_cycles(target, static_cast<double>(a * b * chains),
                       1.2 * loads * static_cast<double>(chains));
  };
  const auto line = [&](std::int64_t a) {
    return static_cast<double>(plan.column_count / n) * step(a, n) +
           (plan.column_count % n ? step(a, plan.column_count % n) : 0);
  };
  const double tiles =
      static_cast<double>(plan.row_count / m) * line(m) + (plan.row_count % m ? line(plan.row_count % m) : 0);
  const double steps = std::max(1.0, static_cast<double>(plan.vectors) / static_cast<double>(chains));
  // Once a result: the lanes are added up.
  const double ends = static_cast<double>(plan.row_count * plan.column_count) * 8;
  return plan.others * steps * tiles + plan.outer * ends;
}

/// Partial sums that hide the latency of an addition.
std::int64_t chains_of(const ReductionPlan& plan, std::int64_t m, std::int64_t n) {
  return std::clamp<std::int64_t>(8 / (m * n), 1, plan.vectors);
}

bool fits(std::int64_t registers, const Numbers& numbers) {
  const std::int64_t m = numbers.rows, n = numbers.columns;
  if (m * n + std::min(m, n) + 1 > registers - 2) return false;
  return numbers.chains == 1 || m * n * numbers.chains <= registers - 4;
}

void write_along(Construction& c, const std::string& scope, const ScopeFacts& facts,
                 const ReductionPlan& plan, const Numbers& numbers) {
  const auto& epilogue = c.plan.scopes[c.index(scope)].epilogue;
  std::string name = scope;
  if (epilogue && expensive(c.plan.program, epilogue->body)) {
    // Results are complete one by one here: what takes long is better done to vectors of them.
    name = program::fresh_tensor_name(c.plan.program, scope + "_sums");
    c.add({"stage", scope, {}, {}, scope, {name}});
    c.vectorize_innermost(scope);
    c.parallel_outermost(scope);
    c.plan.need_domain(c.index(name));
  }
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
  tiled(plan.rows, numbers.rows);
  tiled(plan.columns, numbers.columns);
  for (std::size_t i = facts.traversal; i < facts.extents.size(); ++i)
    if (i != plan.along) order.push_back(names[i]);
  const std::int64_t extent = facts.extents[plan.along];
  std::string lane = names[plan.along];
  const std::int64_t width = c.lanes * numbers.chains;
  if (extent > width) {
    const auto [outer, inner] = c.split(name, lane, width);
    order.push_back(outer);
    lane = inner;
    if (extent % width != 0) peeled.push_back(outer);
  }
  if (numbers.chains > 1 && extent > c.lanes) {
    const auto [outer, inner] = c.split(name, lane, c.lanes);
    tile.push_back(outer);
    lane = inner;
  }
  tile.push_back(lane);
  const std::size_t outside = order.size();
  order.insert(order.end(), tile.begin(), tile.end());
  std::vector<BaseLoop> bases;
  for (std::size_t i = 0; i < facts.extents.size(); ++i) bases.push_back({names[i], {i}});
  cut_into_blocks(c, name, bases, numbers, order, outside);
  c.add({"reorder", name, order, {}, "", {}});
  if (c.extent(name, lane) > 1) c.add({"vectorize", name, {lane}, {}, "", {}});
  c.add({"register_tile", name, tile, {}, "", {}});
  for (const auto& loop : peeled) c.peel_rest(name, loop);
  if (!numbers.blocks.empty()) c.peel_blocks(name, names);
  c.parallel_outermost(name);
}

}  // namespace

void along_reduction(Construction& c, const std::string& scope, const ScopeFacts& facts, Sketches& sketches) {
  if (!facts.reduces || c.plan.scopes[c.index(scope)].frozen) return;
  for (std::size_t i = facts.traversal; i < facts.extents.size(); ++i) {
    if (facts.extents[i] < 2) continue;
    const auto plan = plan_along(c, facts, i);
    if (!plan) continue;
    Sketch sketch;
    sketch.name = fmt::format("along_reduction/{}", i);
    const std::int64_t most_rows = std::min<std::int64_t>(plan->row_count, 8),
                       most_columns = std::min<std::int64_t>(plan->column_count, 8);
    std::vector<std::size_t> rows, columns;
    if (plan->rows) rows.push_back(*plan->rows);
    if (plan->columns) columns.push_back(*plan->columns);
    sketch.choices = {
        {"rows", &Numbers::rows, counting_to(most_rows), rows},
        {"columns", &Numbers::columns, counting_to(most_columns), columns},
        {"chains", &Numbers::chains, counting_to(std::min<std::int64_t>(8, plan->vectors)), {i}}};
    for (std::size_t t = 0; t < facts.traversal; ++t) sketch.blocks.push_back({t});
    sketch.estimate = [plan = *plan, target = c.target](const Numbers& n) {
      if (!fits(target.vector_registers, n)) return std::numeric_limits<double>::infinity();
      return cycles_of(target, plan, n);
    };
    for (std::int64_t m = 1; m <= most_rows; ++m) {
      for (std::int64_t n = 1; n <= most_columns; ++n) {
        Numbers numbers;
        numbers.rows = m;
        numbers.columns = n;
        numbers.chains = chains_of(*plan, m, n);
        if (!fits(c.target.vector_registers, numbers)) break;
        const double cycles = cycles_of(c.target, *plan, numbers);
        if (sketch.cycles != 0 && cycles >= sketch.cycles * 0.999) continue;
        sketch.counted = numbers;
        sketch.cycles = cycles;
      }
    }
    sketch.write = [scope, facts, plan = *plan](Construction& to, const Numbers& numbers) {
      write_along(to, scope, facts, plan, numbers);
    };
    sketches.push_back(std::move(sketch));
  }
}

}  // namespace syno::construct
