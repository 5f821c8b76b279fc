#include "construct/in_place.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "construct/caches.hpp"
#include "schedule/outside.hpp"
#include "support/error.hpp"

namespace syno::construct {

namespace {

constexpr double kWorthABranch = 0.01, kWorthUnrolling = 0.03;  ///< parts of all terms that are left out
constexpr std::int64_t kMostUnrolledTaps = 256;                 ///< multiply-adds of unrolled taps
constexpr std::int64_t kMostCut = 320;                    ///< the same in all nests of a loop that is cut
constexpr std::int64_t kSecondWays = 16, kFewerWays = 8;  ///< of the second cache, and as many may be used
constexpr std::int64_t kMostCombinations = 1 << 12;

/// A condition over the loops of a scope, by how much of the reduction it leaves out.
struct Gain {
  double whole = 0;                                 ///< part of the terms, in whole register tiles
  double all = 0;                                   ///< part of the terms, one by one
  std::vector<std::pair<std::size_t, int>> around;  ///< loops outside the register tile that it depends on
};

/// Scope and index of the leaf with this variable.
std::optional<std::pair<std::size_t, int>> loop_of(const Plan& plan, std::uint32_t slot) {
  for (std::size_t s = 0; s < plan.scopes.size(); ++s)
    for (const int index : plan.scopes[s].order)
      if (plan.scopes[s].loops[static_cast<std::size_t>(index)].slot == slot) return std::pair{s, index};
  return std::nullopt;
}

Gain gain_of(Plan& plan, std::size_t s, const Condition& condition) {
  const ScopePlan& scope = plan.scopes[s];
  Gain gain;
  AffineForms forms = plan.bound_forms();
  const ExprId e = schedule::to_expr(plan.program.arena, forms,
                                     forms.form(plan.program.arena, plan.over_loops(s, condition.expr)));
  std::vector<std::uint32_t> outer, inner;
  std::vector<std::int64_t> outer_trips, inner_trips, values(plan.program.next_slot);
  std::int64_t outer_count = 1, inner_count = 1;
  for (const std::uint32_t slot : plan.program.arena.iterators(e)) {
    const auto loop = loop_of(plan, slot);
    if (!loop) return {};
    const bool tiled =
        loop->first == s && std::find(scope.tile.begin(), scope.tile.end(), loop->second) != scope.tile.end();
    const PlannedLoop& planned = plan.scopes[loop->first].loops[static_cast<std::size_t>(loop->second)];
    if (tiled && planned.kind == LoopKind::Vector) return {};
    (tiled ? inner : outer).push_back(slot);
    (tiled ? inner_trips : outer_trips).push_back(planned.extent);
    (tiled ? inner_count : outer_count) *= planned.extent;
    if (!tiled) gain.around.push_back(*loop);
    if (outer_count * inner_count > kMostCombinations) return {};
  }
  const symbolic::Sizes sizes;
  const auto number = [&](std::int64_t n, const std::vector<std::uint32_t>& slots,
                          const std::vector<std::int64_t>& trips) {
    for (std::size_t i = 0; i < slots.size(); n /= trips[i++]) values[slots[i]] = n % trips[i];
  };
  std::int64_t whole = 0, all = 0;
  for (std::int64_t o = 0; o < outer_count; ++o) {
    number(o, outer, outer_trips);
    std::int64_t out = 0;
    for (std::int64_t i = 0; i < inner_count; ++i) {
      number(i, inner, inner_trips);
      const std::int64_t at = *symbolic::evaluate(plan.program.arena, e, sizes, 0, values);
      out += at < condition.begin || at >= condition.end;
    }
    all += out;
    whole += out == inner_count;
  }
  gain.whole = static_cast<double>(whole) / static_cast<double>(outer_count);
  gain.all = static_cast<double>(all) / static_cast<double>(outer_count * inner_count);
  return gain;
}

}  // namespace

std::optional<InPlace> in_place(Construction& c, const std::string& scope, const ScopeFacts& facts,
                                const ReadFacts& read, std::size_t along, std::int64_t rows,
                                std::int64_t vectors) {
  const std::size_t s = c.index(scope), last = facts.extents.size() - 1;
  const std::vector<Condition> conditions = terms_inside(c.plan, s, read.id);
  if (conditions.empty() || !read.linear || last < facts.traversal) return std::nullopt;
  const std::int64_t bytes = c.target.vector_bits / 8 / c.lanes;
  if (read.address[along] * bytes % kPage == 0 && rows > kWays) return std::nullopt;
  for (std::size_t i = facts.traversal; i < facts.extents.size(); ++i) {
    const std::int64_t way = c.target.l2_bytes / kSecondWays;
    const std::int64_t places =
        way / std::gcd(std::max<std::int64_t>(std::abs(read.address[i]) * bytes, 1), way);
    if (read.address[i] != 0 && facts.extents[i] > places * kFewerWays) return std::nullopt;
  }
  std::vector<std::uint32_t> slots;
  for (const int index : c.plan.scopes[s].order)
    slots.push_back(c.plan.scopes[s].loops[static_cast<std::size_t>(index)].slot);
  SYNO_ASSERT(slots.size() == facts.extents.size(), "the scope has the loops that its facts are about");
  const std::int64_t extent = facts.extents[along], taps = facts.extents[last],
                     tiles = (extent + rows - 1) / rows;
  if (std::min(rows, extent) * vectors * taps > kMostUnrolledTaps) return std::nullopt;
  InPlace made;
  const symbolic::Sizes sizes;
  std::vector<std::int64_t> values(c.plan.program.next_slot);
  for (const Condition& condition : conditions) {
    const ExprId e = c.plan.over_loops(s, condition.expr);
    const auto uses = c.plan.program.arena.iterators(e);
    if (std::find(uses.begin(), uses.end(), slots[along]) == uses.end()) continue;
    // Between the rows and the taps alone, which are unrolled: then it is known when code is made, but for
    // which of the tiles it is.
    for (const std::uint32_t slot : uses)
      if (slot != slots[along] && slot != slots[last]) return std::nullopt;
    std::int64_t most = 0;  // elements of a tile that are outside, but not all of them
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        std::int64_t out = 0;
        const std::int64_t end = std::min(extent, (tile + 1) * rows);
        values[slots[last]] = tap;
        for (values[slots[along]] = tile * rows; values[slots[along]] < end; ++values[slots[along]]) {
          const std::int64_t at = *symbolic::evaluate(c.plan.program.arena, e, sizes, 0, values);
          out += at < condition.begin || at >= condition.end;
        }
        if (out < end - tile * rows) most = std::max(most, out);
      }
    }
    if (tiles == 1 || most == 0) continue;
    made.cuts = {1};
    if (tiles > 2) made.cuts.push_back(tiles - 1);
  }
  if (static_cast<std::int64_t>(made.cuts.size() + 1) * rows * vectors * taps > kMostCut &&
      !made.cuts.empty())
    return std::nullopt;
  return made;
}

Refused skip_outside(Construction& c, const std::string& scope, bool guarded) {
  const std::size_t s = c.index(scope);
  bool worth = false;
  for (const Condition& condition : terms_inside(c.plan, s)) {
    const Gain gain = gain_of(c.plan, s, condition);
    worth = worth || gain.whole >= kWorthABranch;
    // The taps of the innermost loop around the tile are repeated, each with the elements it adds to.
    const ScopePlan& plan = c.plan.scopes[s];
    std::int64_t repeated = 1;
    int last = -1;
    for (const int index : plan.order) {
      const PlannedLoop& loop = plan.loops[static_cast<std::size_t>(index)];
      const bool tiled = std::find(plan.tile.begin(), plan.tile.end(), index) != plan.tile.end();
      if (!tiled) last = index;
      if (tiled && loop.kind != LoopKind::Vector) repeated *= loop.extent;
    }
    const auto taps_of = std::pair{s, last};
    const bool alone = gain.around.size() == 1 && gain.around[0] == taps_of;
    const bool among = std::find(gain.around.begin(), gain.around.end(), taps_of) != gain.around.end();
    if (!(guarded && among) && (gain.all - gain.whole < kWorthUnrolling || !alone)) continue;
    const PlannedLoop& taps = plan.loops[static_cast<std::size_t>(last)];
    if (!taps.reduction || repeated * taps.extent > kMostUnrolledTaps) continue;
    worth = true;
    if (taps.kind == LoopKind::Serial) SYNO_ACCEPT(c.add({"unroll", scope, {taps.name}, {}, "", {}}));
  }
  return worth ? c.add({"skip", scope, {}, {}, "", {}}) : Refused{};
}

}  // namespace syno::construct
