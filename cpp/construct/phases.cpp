#include "construct/phases.hpp"

#include <algorithm>

#include "schedule/outside.hpp"

namespace syno::construct {

namespace {

constexpr std::int64_t kMostIterations = 4;       ///< of a loop of phases
constexpr std::int64_t kMostNests = 16;           ///< that loops of phases become
constexpr std::int64_t kMostMultiplyAdds = 1024;  ///< vectors of them in all these nests, taps repeated
constexpr std::int64_t kMostPhases = 1 << 12;

/// Conditions between phases and taps, and the loops that they depend on, as indices of the scope's.
struct PhaseLoops {
  std::vector<std::pair<ExprId, Condition>> conditions;  ///< over the slots of loops
  std::vector<int> phases, taps;
};

void add_once(std::vector<int>& loops, int loop) {
  if (std::find(loops.begin(), loops.end(), loop) == loops.end()) loops.push_back(loop);
}

PhaseLoops phase_loops(Plan& plan, std::size_t scope) {
  PhaseLoops found;
  const ScopePlan& planned = plan.scopes[scope];
  AffineForms forms = plan.bound_forms();
  for (const Condition& condition : schedule::terms_inside(plan, scope)) {
    const ExprId e = schedule::to_expr(
        plan.program.arena, forms, forms.form(plan.program.arena, plan.over_loops(scope, condition.expr)));
    std::vector<int> phases, taps;
    bool few = true;
    for (const std::uint32_t slot : plan.program.arena.iterators(e)) {
      const auto leaf = std::find_if(planned.order.begin(), planned.order.end(), [&](int index) {
        return planned.loops[static_cast<std::size_t>(index)].slot == slot;
      });
      few = few && leaf != planned.order.end();
      if (!few) break;
      const PlannedLoop& loop = planned.loops[static_cast<std::size_t>(*leaf)];
      const bool tiled = std::find(planned.tile.begin(), planned.tile.end(), *leaf) != planned.tile.end();
      few = !tiled && loop.kind == LoopKind::Serial && (loop.reduction || loop.extent <= kMostIterations);
      (loop.reduction ? taps : phases).push_back(*leaf);
    }
    if (!few || phases.empty() || taps.empty()) continue;
    found.conditions.emplace_back(e, condition);
    for (const int loop : phases) add_once(found.phases, loop);
    for (const int loop : taps) add_once(found.taps, loop);
  }
  return found;
}

std::int64_t iterations_of(const Plan& plan, std::size_t scope, const std::vector<int>& loops) {
  std::int64_t product = 1;
  for (const int loop : loops) {
    product *= plan.scopes[scope].loops[static_cast<std::size_t>(loop)].extent;
    if (product > kMostPhases) break;
  }
  return product;
}

double counted_among(const Plan& plan, std::size_t scope, const PhaseLoops& found) {
  std::vector<int> loops = found.phases;
  loops.insert(loops.end(), found.taps.begin(), found.taps.end());
  const std::int64_t all = iterations_of(plan, scope, loops);
  if (found.conditions.empty() || all > kMostPhases) return 1;
  std::vector<std::int64_t> values(plan.program.next_slot);
  const symbolic::Sizes sizes;
  std::int64_t counted = 0;
  for (std::int64_t n = 0; n < all; ++n) {
    std::int64_t rest = n;
    for (const int index : loops) {
      const PlannedLoop& loop = plan.scopes[scope].loops[static_cast<std::size_t>(index)];
      values[loop.slot] = rest % loop.extent;
      rest /= loop.extent;
    }
    counted += std::all_of(found.conditions.begin(), found.conditions.end(), [&](const auto& condition) {
      const std::int64_t at = *symbolic::evaluate(plan.program.arena, condition.first, sizes, 0, values);
      return condition.second.begin <= at && at < condition.second.end;
    });
  }
  return static_cast<double>(counted) / static_cast<double>(all);
}

}  // namespace

double counted_terms(Plan& plan, std::size_t scope) {
  return counted_among(plan, scope, phase_loops(plan, scope));
}

Refused peel_phases(Construction& c, const std::string& scope) {
  const std::size_t s = c.index(scope);
  const PhaseLoops found = phase_loops(c.plan, s);
  if (counted_among(c.plan, s, found) == 1) return {};
  const ScopePlan& plan = c.plan.scopes[s];
  std::int64_t repeated = iterations_of(c.plan, s, found.taps);
  for (const int index : plan.tile) {
    const PlannedLoop& loop = plan.loops[static_cast<std::size_t>(index)];
    if (loop.kind != LoopKind::Vector) repeated *= loop.extent;
  }
  const std::int64_t nests = iterations_of(c.plan, s, found.phases);
  if (nests > kMostNests || nests * repeated > kMostMultiplyAdds) return {};
  std::vector<std::string> names;
  for (const int index : found.phases) names.push_back(plan.loops[static_cast<std::size_t>(index)].name);
  for (const std::string& name : names) {
    const std::int64_t extent = c.extent(scope, name);
    if (extent < 2) continue;
    Decision peel{"peel", scope, {name}, {}, "", {}};
    for (std::int64_t cut = 1; cut < extent; ++cut) peel.numbers.push_back(cut);
    SYNO_ACCEPT(c.add(std::move(peel)));
  }
  return {};
}

}  // namespace syno::construct
