// Vectors along a reduction, as in dot products: partial sums stay in lanes over the whole reduction and are
// summed up once. What GEMV, `x * w^T` with few rows, row sums and softmax need.
#include <algorithm>

#include "construct/tiling_cost.hpp"

namespace syno::construct {

namespace {

struct ReductionPlan {
  std::vector<std::size_t>
      along;  ///< the loops that lanes run over, in which all operands lie one after the other
  std::optional<std::size_t> rows, columns;
  std::int64_t row_count = 1, column_count = 1, vectors = 1;
  bool finished = false;  ///< by what takes long
  std::int64_t lanes = 1;
};

bool only_one_depends(const ScopeFacts& facts, std::size_t iterator, std::size_t read) {
  for (std::size_t r = 0; r < facts.reads.size(); ++r)
    if (facts.reads[r].depends[iterator] != (r == read)) return false;
  return true;
}

/// Whether all that moves with loop `along` of a sum lies on from it in memory where the loop before it goes
/// on.
bool goes_on(const Construction& c, const ScopeFacts& facts, std::size_t loop, std::size_t along,
             std::int64_t run) {
  return std::all_of(facts.reads.begin(), facts.reads.end(), [&](const ReadFacts& read) {
    if (!read.depends[along]) return !read.depends[loop];
    const auto made_by =
        c.plan.producer(read.tensor);  // an intermediate may get wider rows than it has elements
    const bool plain = !made_by || c.plan.is_output(read.tensor);
    return plain && !read.guarded && (facts.extents[loop] == 1 || read.address[loop] == run);
  });
}

/// `flat`: as many loops of the sum as follow each other in memory are one. A mean over 7 x 7 places is a sum
/// over 49 elements: four vectors where seven rows are seven.
std::optional<ReductionPlan> plan_along(const Construction& c, const ScopeFacts& facts, std::size_t along,
                                        bool flat) {
  ReductionPlan plan;
  plan.lanes = c.lanes;
  bool any = false;
  for (const auto& read : facts.reads) {
    if (!read.depends[along]) continue;
    if (!read.linear || read.address[along] != 1) return std::nullopt;
    any = true;
  }
  if (!any) return std::nullopt;
  std::size_t first = along;
  std::int64_t run = facts.extents[along];
  for (; flat && first > facts.traversal && goes_on(c, facts, first - 1, along, run); --first)
    run *= facts.extents[first - 1];
  if (flat && run == facts.extents[along]) return std::nullopt;
  for (std::size_t i = first; i <= along; ++i) plan.along.push_back(i);
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
  plan.vectors = (run + c.lanes - 1) / c.lanes;
  plan.row_count = rows;
  plan.column_count = columns;
  return plan;
}

bool fits(std::int64_t registers, const Numbers& numbers) {
  const std::int64_t m = numbers.rows, n = numbers.columns;
  if (m * n + std::min(m, n) + 1 > registers - 2) return false;
  return numbers.chains == 1 || m * n * numbers.chains <= registers - 4;
}

Tiling tiling_of(const ScopeFacts& facts, const ReductionPlan& plan, const Numbers& numbers) {
  Tiling tiling;
  if (plan.finished) tiling.result = Result::Finished;
  tiling.lanes = plan.along;
  tiling.width = plan.lanes * numbers.chains;
  for (std::size_t i = 0; i < facts.traversal; ++i)
    if (i != plan.rows && i != plan.columns) tiling.around.push_back({Around::Of::Loop, i});
  tiling.behind = tiling.around.size();
  if (plan.rows && numbers.rows == 1) {
    tiling.around.push_back({Around::Of::Loop, *plan.rows});
  } else if (plan.rows) {
    tiling.rows = {*plan.rows};
    tiling.row_size = numbers.rows;
    tiling.around.push_back({Around::Of::Rows});
  }
  if (plan.columns && numbers.columns == 1) {
    tiling.around.push_back({Around::Of::Loop, *plan.columns});
  } else if (plan.columns) {
    tiling.columns = {*plan.columns};
    tiling.column_size = numbers.columns;
    tiling.around.push_back({Around::Of::Columns});
  }
  tiling.around.push_back({Around::Of::Sums});
  tiling.around.push_back({Around::Of::Lanes});
  tiling.blocks = numbers.blocks;
  return tiling;
}

}  // namespace

void along_reduction(Construction& c, const std::string& scope, const Facts& shared, Sketches& sketches) {
  const ScopeFacts& facts = *shared;
  if (!facts.reduces || c.plan.scopes[c.index(scope)].frozen) return;
  const auto add = [&](std::size_t i, bool flat) {
    auto plan = plan_along(c, facts, i, flat);
    if (!plan) return;
    const ScopePlan& planned = c.plan.scopes[c.index(scope)];
    // What is computed a piece at a time has its place already, and few results in each.
    plan->finished =
        planned.attach_scope < 0 && planned.epilogue && expensive(c.plan.program, planned.epilogue->body);
    Sketch sketch;
    sketch.name = fmt::format("along_reduction/{}{}", i, flat ? "/flat" : "");
    const std::int64_t most_rows = std::min<std::int64_t>(plan->row_count, 8),
                       most_columns = std::min<std::int64_t>(plan->column_count, 8);
    std::vector<std::size_t> rows, columns;
    if (plan->rows) rows.push_back(*plan->rows);
    if (plan->columns) columns.push_back(*plan->columns);
    sketch.choices = {
        {"rows", &Numbers::rows, counting_to(most_rows), rows},
        {"columns", &Numbers::columns, counting_to(most_columns), columns},
        {"chains", &Numbers::chains, counting_to(std::min<std::int64_t>(8, plan->vectors)), plan->along}};
    for (std::size_t t = 0; t < facts.traversal; ++t) sketch.blocks.push_back({t});
    sketch.fits = [registers = c.target.vector_registers](const Numbers& n) { return fits(registers, n); };
    sketch.scope = scope;
    sketch.facts = shared;
    sketch.tiling = [shared, plan = *plan](const Numbers& numbers) {
      return tiling_of(*shared, plan, numbers);
    };
    count(c, sketch);
    sketches.push_back(std::move(sketch));
  };
  for (std::size_t i = facts.traversal; i < facts.extents.size(); ++i)
    for (const bool flat : {false, true})
      if (facts.extents[i] > 1) add(i, flat);
}

}  // namespace syno::construct
