// Extents that calls bring along: loops that end where the call's sizes say, and conditions where they do
// not.
#include <algorithm>
#include <limits>
#include <numeric>

#include "schedule/emission.hpp"

namespace syno::schedule {

using program::TensorId;

namespace {

constexpr std::int64_t kFar = std::int64_t{1} << 50;  // more than any index
constexpr std::int64_t kMostPieces = 16;              // of code for one incomplete tile

}  // namespace

std::optional<Condition> Emission::below(ExprId difference) {
  const AffineForm form = forms_.form(nest_.arena, difference);
  if (forms_.bounds(form).greatest < 0) return std::nullopt;
  return Condition{to_expr(nest_.arena, forms_, form), forms_.bounds_without_facts(form).least, 0};
}

std::optional<ExprId> Emission::live_extent(TensorId tensor, std::size_t d) {
  const program::Range& range = plan_.program.tensor(tensor).dims[d];
  const auto end = plan_.live_end(nest_.arena, range);
  if (!end) return std::nullopt;
  return nest_.arena.subtract(*end, nest_.arena.constant(plan_.range(range).first));
}

std::vector<Condition> Emission::outside_live(TensorId tensor, const std::vector<ExprId>& places) {
  std::vector<Condition> conditions;
  if (plan_.sizes.empty()) return conditions;
  for (std::size_t d = 0; d < places.size(); ++d)
    if (const auto extent = live_extent(tensor, d))
      if (const auto condition = below(nest_.arena.subtract(places[d], *extent)))
        conditions.push_back(*condition);
  return conditions;
}

void Emission::find_live(std::size_t s) {
  ScopeFrame& facts = facts_[s];
  const ScopePlan& plan = plan_.scopes[s];
  symbolic::Arena& arena = plan_.program.arena;
  const std::size_t core = plan_.core(s);
  for (std::size_t i = 0; i < plan_.iterator_count(s); ++i) {
    const program::Iterator& iterator = plan_.iterator(s, i);
    const auto end = plan_.live_end(arena, iterator.range);
    if (!end) continue;
    const bool reduction = i >= plan_.program.scopes[s].traversal.size();
    const ExprId value = facts.values.at(iterator.slot);
    facts.live_rests.push_back({value, arena.subtract(value, *end), reduction});
    if (i < plan.bases.size() && arena[plan.bases[i]].op != symbolic::Op::Constant) continue;
    const std::int64_t begin =
        i < plan.bases.size() ? arena[plan.bases[i]].value : plan_.range(iterator.range).first;
    LiveLoop live;
    live.extent = arena.subtract(*end, arena.constant(begin));
    auto leading = static_cast<int>(i);
    const auto loop = [&]() -> const PlannedLoop& { return plan.loops[static_cast<std::size_t>(leading)]; };
    while (loop().outer >= 0) {
      live.step *= loop().factor;
      leading = loop().outer;
    }
    if (loop().fused >= 0) {
      const PlannedLoop& joint = plan.loops[static_cast<std::size_t>(loop().fused)];
      if (joint.first != leading) continue;
      live.times = plan.loops[static_cast<std::size_t>(joint.second)].extent;
      leading = loop().fused;
      while (loop().outer >= 0) {
        live.joined *= loop().factor;
        leading = loop().outer;
      }
      const std::int64_t common = std::gcd(live.times, live.joined);
      live.times /= common;
      live.joined /= common;
      if (loop().fused >= 0 || (live.joined > 1 && live.step > 1)) continue;
    }
    // Where parts of a sum are put together in memory, the last of them completes it: it has to run.
    if (reduction && plan_.position(s, leading) < static_cast<int>(core)) continue;
    facts.live_loops.emplace(leading, live);
  }
}

std::vector<std::int64_t> Emission::pieces_of(std::size_t s, int index) const {
  const auto& loops = plan_.scopes[s].loops;
  const int parent = leaf(s, index).parent;
  if (parent < 0 || loops[static_cast<std::size_t>(parent)].outer != index) return {};
  const PlannedLoop& inner = loops[static_cast<std::size_t>(loops[static_cast<std::size_t>(parent)].inner)];
  // All of what is left out has to run inside.
  std::vector<const PlannedLoop*> parts{&inner};
  while (!parts.empty()) {
    const PlannedLoop& part = *parts.back();
    parts.pop_back();
    if (part.fused >= 0 || (part.is_leaf() && forms_.bound(part.slot))) return {};
    if (part.outer < 0) continue;
    parts.push_back(&loops[static_cast<std::size_t>(part.outer)]);
    parts.push_back(&loops[static_cast<std::size_t>(part.inner)]);
  }
  if (inner.is_leaf() && inner.kind == LoopKind::Vector) return {};
  const std::int64_t factor = loops[static_cast<std::size_t>(parent)].factor;
  std::int64_t step = inner.outer >= 0 ? inner.factor : 1;
  while ((factor + step - 1) / step > kMostPieces) step *= 2;
  std::vector<std::int64_t> pieces;
  for (std::int64_t piece = step; piece < factor; piece += step) pieces.push_back(piece);
  if (!pieces.empty()) pieces.push_back(factor);
  return pieces;
}

std::pair<std::int64_t, std::int64_t> Emission::border_steps(std::size_t s, int index, const LiveLoop& live,
                                                             ExprId whole) {
  const PlannedLoop& loop = leaf(s, index);
  // What reads beyond one end of a tensor reads beyond the other; cuts behind the middle alone are those of a
  // last, incomplete step, which is apart here in any case.
  if (loop.cuts.empty() || loop.cuts.size() > 2 || 2 * loop.cuts.front() > loop.extent) return {0, 0};
  const std::int64_t first = loop.cuts.front();
  std::int64_t last = first;
  if (loop.cuts.size() == 2) last = std::max(last, loop.extent - 1 - loop.cuts.back());
  // At all sizes there are as many, so that no step is made twice.
  const AffineForm form = forms_.form(nest_.arena, whole);
  if (live.times != 1 || live.joined != 1 || forms_.bounds(form).least < first + last) return {0, 0};
  return {first, last};
}

StatementId Emission::emit_live_loop(std::size_t s, int index, const LiveLoop& live,
                                     const std::function<StatementId()>& body) {
  const PlannedLoop& loop = leaf(s, index);
  symbolic::Arena& arena = nest_.arena;
  const auto times = [&](ExprId e) { return live.times == 1 ? e : arena.multiply(e, live.times); };
  const auto divided = [&](ExprId e, std::int64_t more, std::int64_t by) {
    if (by == 1) return e;
    return arena.divide(more == 0 ? e : arena.add(e, arena.constant(more)), symbolic::Size(by));
  };
  // Whole steps, or those that are begun, too.
  const auto steps = [&](bool begun) {
    const ExprId outer = times(divided(live.extent, begun ? live.step - 1 : 0, live.step));
    return tidy(divided(outer, begun ? live.joined - 1 : 0, live.joined));
  };
  std::vector<StatementId> nests;
  const auto nest = [&](ExprId begin, ExprId end, LoopKind kind, const std::function<StatementId()>& inside) {
    const AffineForm first = forms_.form(arena, begin), last = forms_.form(arena, end);
    const Interval range{forms_.bounds(first).least, forms_.bounds(last).greatest - 1};
    if (range.greatest < range.least) return;
    const std::size_t known = forms_.fact_count();
    forms_.bind(loop.slot, range);
    forms_.push_loop_facts(loop.slot, first, last);
    around_.push_back({loop.slot, 0, loop.extent});
    const auto saved = facts_[s].trips;
    const StatementId made = inside();
    facts_[s].trips = saved;
    around_.pop_back();
    forms_.pop_facts(known);
    forms_.unbind(loop.slot);
    const std::string& name = facts_[s].names[static_cast<std::size_t>(index)];
    nests.push_back(nest_.loop(name, loop.slot, begin, end, kind, made));
  };
  const ExprId whole = steps(false);
  const auto [first, last] = border_steps(s, index, live, whole);
  const ExprId untouched = last == 0 ? whole : tidy(arena.subtract(whole, arena.constant(last)));
  const auto border = [&](ExprId begin, ExprId end) {
    ++rest_;
    nest(begin, end, kind_of(s, index), body);
    --rest_;
  };
  if (first > 0) border(arena.constant(0), arena.constant(first));
  nest(arena.constant(first), untouched, kind_of(s, index), body);
  if (last > 0) border(untouched, whole);
  if (live.step == 1 && live.joined == 1) return nest_.sequence(std::move(nests));
  const std::vector<std::int64_t> pieces =
      rest_ == 0 && live.times == 1 && live.joined == 1 ? pieces_of(s, index) : std::vector<std::int64_t>();
  ++rest_;
  const bool one = live.times == 1 || live.joined > 1;  // a single step is left at most
  nest(whole, steps(true), one ? LoopKind::Serial : kind_of(s, index), [&] {
    if (pieces.empty()) return body();
    // How many of the loops inside the last step needs is known when a call is made: code for each.
    const PlannedLoop& parent = plan_.scopes[s].loops[static_cast<std::size_t>(loop.parent)];
    const std::int64_t unit = live.step / parent.factor;
    const ExprId left =
        tidy(arena.subtract(live.extent, arena.multiply(arena.iterator(loop.slot), live.step)));
    std::vector<StatementId> made;
    std::int64_t before = 0;
    for (const std::int64_t piece : pieces) {
      const auto saved = facts_[s].trips;
      restrict_trips(s, parent.inner, piece);
      const PlannedLoop& inner = plan_.scopes[s].loops[static_cast<std::size_t>(parent.inner)];
      // All but the last of the loop inside are whole: they need no conditions.
      if (inner.outer >= 0) facts_[s].whole[inner.outer] = before / inner.factor;
      made.push_back(where({{left, before * unit + 1, piece * unit + 1}}, body));
      facts_[s].whole.clear();
      facts_[s].trips = saved;
      before = piece;
    }
    return nest_.sequence(std::move(made));
  });
  --rest_;
  return nest_.sequence(std::move(nests));
}

std::vector<Condition> Emission::some_live(std::size_t s, int index) {
  std::vector<Condition> conditions;
  const LoopKind kind = kind_of(s, index);
  if (facts_[s].live_rests.empty() || (kind != LoopKind::Serial && kind != LoopKind::Parallel))
    return conditions;
  std::vector<Trips> inner;
  const auto& order = plan_.scopes[s].order;
  for (auto p = static_cast<std::size_t>(plan_.position(s, index)) + 1; p < order.size(); ++p)
    if (!forms_.bound(leaf(s, order[p]).slot))
      inner.push_back({leaf(s, order[p]).slot, 0, facts_[s].trips[static_cast<std::size_t>(order[p])]});
  for (const LiveRest& rest : facts_[s].live_rests) {
    const auto slots = nest_.arena.iterators(rest.difference);
    if (std::find(slots.begin(), slots.end(), leaf(s, index).slot) == slots.end()) continue;
    const bool known = std::all_of(slots.begin(), slots.end(), [&](std::uint32_t slot) {
      return forms_.bound(slot) ||
             std::any_of(inner.begin(), inner.end(), [&](const Trips& trips) { return trips.slot == slot; });
    });
    if (!known) continue;
    const Condition any = for_any(nest_.arena, forms_, {rest.difference, -kFar, 0}, inner);
    const AffineForm form = forms_.form(nest_.arena, any.expr);
    if (forms_.bounds(form).greatest < any.end) continue;
    conditions.push_back({any.expr, forms_.bounds_without_facts(form).least, any.end});
  }
  return conditions;
}

}  // namespace syno::schedule
