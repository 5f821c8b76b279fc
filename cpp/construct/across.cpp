// Element-wise work on tensors that lie across each other: one is contiguous along the rows of the result,
// another along its columns. What lies across is transposed block by block, in the first cache, beside its
// use.
#include <algorithm>
#include <cmath>

#include "construct/caches.hpp"
#include "construct/construct.hpp"

namespace syno::construct {

namespace {

constexpr std::int64_t kLeastSide = 4;                ///< of a side: less is not worth a transposition
constexpr std::int64_t kTurnedRows = 16, kWide = 64;  ///< of a block: lines of a cache both ways

struct AcrossPlan {
  std::size_t row = 0;                         ///< the loop that what lies across is contiguous along
  std::vector<std::optional<RowCopy>> copies;  ///< by read: of what lies across
  bool whole = true;                           ///< nothing is contiguous along the last loop
};

std::optional<AcrossPlan> plan_across(const ScopeFacts& facts) {
  if (facts.traversal < 2 || facts.reads.size() < 2) return std::nullopt;
  const std::size_t last = facts.traversal - 1;
  if (facts.extents[last] < kLeastSide) return std::nullopt;
  AcrossPlan plan;
  plan.copies.resize(facts.reads.size());
  bool any = false;
  for (std::size_t r = 0; r < facts.reads.size(); ++r) {
    const ReadFacts& read = facts.reads[r];
    if (!read.linear || !read.depends[last] || std::abs(read.address[last]) <= 1) continue;
    for (std::size_t i = 0; i < last; ++i) {
      if (!read.depends[i] || read.address[i] != 1 || facts.extents[i] < kLeastSide) continue;
      if (any && plan.row != i) continue;
      if (auto copy = plan_row_copy(facts, read, 1)) {
        plan.row = i;
        plan.copies[r] = std::move(copy);
        any = true;
      }
    }
  }
  if (!any) return std::nullopt;
  for (std::size_t r = 0; r < facts.reads.size(); ++r) {
    const ReadFacts& read = facts.reads[r];
    if (plan.copies[r]) continue;
    const bool along = !read.depends[plan.row] || (read.linear && read.address[plan.row] == 1);
    plan.whole = plan.whole && along && !read.depends[last];
  }
  return plan;
}

}  // namespace

OrRefusal<bool> write_across(Construction& c, const std::string& name) {
  const std::size_t s = c.index(name);
  if (c.plan.scopes[s].frozen || !c.plan.program.scopes[s].target.empty()) return false;
  const ScopeFacts facts = analyse(c.plan, s, false);
  const auto plan = facts.reduces ? std::nullopt : plan_across(facts);
  if (!plan) return false;
  const std::vector<std::string> loops = c.leaves(name);
  const std::size_t last = facts.traversal - 1;
  if (plan->whole) {
    SYNO_ACCEPT(c.vectorize_across(name, loops[plan->row]));
    return true;
  }
  std::vector<std::string> copies(facts.reads.size());
  for (std::size_t r = 0; r < copies.size(); ++r) {
    if (!plan->copies[r]) continue;
    SYNO_TAKE(copy, c.stage_read(name, facts.reads[r], "_across"));
    copies[r] = copy;
  }
  std::vector<std::string> order, block;
  for (std::size_t i = 0; i < last; ++i)
    if (i != plan->row) order.push_back(loops[i]);
  const std::int64_t wide = facts.extents[last], blocks = up(wide, kWide) / kWide;
  std::vector<std::pair<std::string, bool>> peeled;
  for (const auto& [loop, size] : {std::pair{loops[plan->row], kTurnedRows},
                                   std::pair{loops[last], up(up(wide, blocks) / blocks, c.lanes)}}) {
    const std::int64_t extent = c.extent(name, loop);
    if (extent <= size) {
      block.push_back(loop);
      continue;
    }
    SYNO_TAKE(parts, c.split(name, loop, size));
    order.push_back(parts.first);
    block.push_back(parts.second);
    peeled.emplace_back(parts.first, extent % size != 0);
  }
  const std::string place = order.empty() ? "" : order.back();
  order.insert(order.end(), block.begin(), block.end());
  SYNO_ACCEPT(c.add({"reorder", name, order, {}, "", {}}));
  SYNO_ACCEPT(c.vectorize_innermost(name));
  for (const auto& [loop, incomplete] : peeled) SYNO_ACCEPT(c.peel(name, loop, {}, incomplete));
  c.parallel_outermost(name);
  for (std::size_t r = 0; r < copies.size(); ++r) {
    if (copies[r].empty()) continue;
    SYNO_ACCEPT(place.empty() ? place_beside(c, copies[r], name)
                              : c.add({"compute_at", copies[r], {place}, {}, name, {}}));
    SYNO_ACCEPT(write_row_copy(c, copies[r], *plan->copies[r], {wide}));
  }
  return true;
}

}  // namespace syno::construct
