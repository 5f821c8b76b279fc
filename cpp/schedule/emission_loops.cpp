// The loops around the points of a scope: conditions of incomplete tiles, peeled rests, producers inside.
#include <algorithm>
#include <functional>
#include <utility>

#include "schedule/emission.hpp"
#include "support/error.hpp"

namespace syno::schedule {

using program::Reduction;
using program::Scalar;
using program::TensorId;

std::vector<Condition> Emission::rests(std::size_t s, bool reductions) {
  std::vector<Condition> conditions;
  for (const auto& rest : facts_[s].rests) {
    if (rest.reduction != reductions || within(rest.value, 0, rest.live)) continue;
    // An end known at run time is none behind the one that is known now.
    const auto ends_before = [&](const LiveRest& live) { return live.value == rest.value; };
    if (std::any_of(facts_[s].live_rests.begin(), facts_[s].live_rests.end(), ends_before)) continue;
    conditions.push_back({tidy(rest.value), 0, rest.live});
  }
  for (const auto& rest : facts_[s].live_rests) {
    if (rest.reduction != reductions) continue;
    if (const auto condition = below(rest.difference)) conditions.push_back(*condition);
  }
  return conditions;
}

std::vector<Condition> Emission::shared_rests(std::size_t s) {
  std::vector<Condition> conditions;
  for (const auto& rest : facts_[s].rests)
    if (!rest.reduction && !rest.outside && !within(rest.value, 0, rest.live))
      conditions.push_back({tidy(rest.value), 0, rest.live});
  return conditions;
}

StatementId Emission::where(std::vector<Condition> conditions, const std::function<StatementId()>& make) {
  for (const auto& condition : conditions)
    if (never(condition.expr, condition.begin, condition.end)) return nest_.sequence({});
  const std::size_t known = forms_.fact_count();
  for (const auto& condition : conditions)
    forms_.push_fact(forms_.form(nest_.arena, condition.expr), {condition.begin, condition.end - 1});
  const StatementId made = make();
  forms_.pop_facts(known);
  return nest_.guard(std::move(conditions), made);
}

void Emission::restrict_trips(std::size_t s, int index, std::int64_t count) {
  const PlannedLoop& loop = plan_.scopes[s].loops[static_cast<std::size_t>(index)];
  if (loop.fused >= 0 || count >= loop.extent) return;
  if (loop.outer >= 0) {
    restrict_trips(s, loop.outer, (count + loop.factor - 1) / loop.factor);
    if (count < loop.factor) restrict_trips(s, loop.inner, count);
    return;
  }
  if (loop.kind == LoopKind::Vector && (count & (count - 1)) != 0) return;
  std::int64_t& trips = facts_[s].trips[static_cast<std::size_t>(index)];
  trips = std::min(trips, count);  // a loop around it may have left fewer
}

std::optional<std::int64_t> Emission::constant_value(std::size_t s, int index) {
  const PlannedLoop& loop = plan_.scopes[s].loops[static_cast<std::size_t>(index)];
  if (loop.outer < 0) {
    if (!forms_.bound(loop.slot)) return std::nullopt;
    const Interval range = forms_.bounds_without_facts(forms_.slot_form(loop.slot));
    return range.least == range.greatest ? std::optional(range.least) : std::nullopt;
  }
  const auto outer = constant_value(s, loop.outer), inner = constant_value(s, loop.inner);
  return outer && inner ? std::optional(*outer * loop.factor + *inner) : std::nullopt;
}

std::int64_t Emission::left_of(std::size_t s, int index, bool complete) {
  const PlannedLoop& loop = plan_.scopes[s].loops[static_cast<std::size_t>(index)];
  if (loop.parent < 0) return loop.extent;
  const PlannedLoop& parent = plan_.scopes[s].loops[static_cast<std::size_t>(loop.parent)];
  const std::int64_t left = left_of(s, loop.parent, complete);
  if (parent.outer == index)
    return complete ? left / parent.factor : (left + parent.factor - 1) / parent.factor;
  const auto outer = constant_value(s, parent.outer);
  return outer ? std::clamp<std::int64_t>(left - *outer * parent.factor, 0, parent.factor) : parent.factor;
}

bool Emission::in_last_block(std::size_t s, int index) {
  const auto& loops = plan_.scopes[s].loops;
  int at = loops[static_cast<std::size_t>(index)].parent;
  if (at < 0 || loops[static_cast<std::size_t>(at)].parent < 0) return false;
  for (; at >= 0; at = loops[static_cast<std::size_t>(at)].parent) {
    const int outer = loops[static_cast<std::size_t>(at)].outer;
    if (outer != index && !loops[static_cast<std::size_t>(outer)].cuts.empty() && constant_value(s, outer))
      return true;
  }
  return false;
}

StatementId Emission::emit_loop(std::size_t s, int index, const std::function<StatementId()>& body,
                                std::int64_t begin) {
  const PlannedLoop& loop = plan_.scopes[s].loops[static_cast<std::size_t>(index)];
  if (const auto live = facts_[s].live_loops.find(index);
      begin == 0 && live != facts_[s].live_loops.end() &&
      facts_[s].trips[static_cast<std::size_t>(index)] == loop.extent) {
    const LoopKind kind = kind_of(s, index);
    if (kind == LoopKind::Serial || kind == LoopKind::Parallel)
      return emit_live_loop(s, index, live->second, body);
  }
  std::vector<std::int64_t> ends;
  for (const auto cut : loop.cuts)
    if (begin < cut && cut < facts_[s].trips[static_cast<std::size_t>(index)]) ends.push_back(cut);
  ends.push_back(facts_[s].trips[static_cast<std::size_t>(index)]);
  if (const auto whole = facts_[s].whole.find(index); whole != facts_[s].whole.end() && ends.size() == 1 &&
                                                      begin < whole->second && whole->second < ends.front())
    ends.insert(ends.begin(), whole->second);
  const LoopKind kind = kind_of(s, index);
  if (kind == LoopKind::Serial && ends.size() == 1 && in_last_block(s, index)) {
    const std::int64_t whole = left_of(s, index, true);
    if (begin < whole && whole < ends.front()) ends.insert(ends.begin(), whole);
  }
  auto read = facts_[s].read_loops.find(index);
  if (kind != LoopKind::Serial && kind != LoopKind::Parallel) read = facts_[s].read_loops.end();
  std::vector<StatementId> nests;
  // Where all iterations are pieces of their own, the first one does what is done for all.
  const std::int64_t first = begin;
  const bool apart = static_cast<std::int64_t>(ends.size()) == ends.back() - first;
  for (const std::int64_t end : ends) {
    const auto saved = facts_[s].trips;
    if (end == begin + 1) {
      forms_.bind_constant(loop.slot, begin);
      const bool rest = ends.size() > 1 && !(apart && begin == first);
      rest_ += rest;
      if (ends.size() > 1 && apart) slices_.push_back({loop.slot, begin - first, ends.back() - first});
      if (loop.parent >= 0) {
        const PlannedLoop& parent = plan_.scopes[s].loops[static_cast<std::size_t>(loop.parent)];
        const std::int64_t left = parent.extent - begin * parent.factor;
        if (parent.outer == index && left < parent.factor) restrict_trips(s, parent.inner, left);
        // The last tile of the last block: what it holds is incomplete, too.
        for (int at = index; in_last_block(s, index) && constant_value(s, at);) {
          const int up = plan_.scopes[s].loops[static_cast<std::size_t>(at)].parent;
          if (up < 0) break;
          const PlannedLoop& whole = plan_.scopes[s].loops[static_cast<std::size_t>(up)];
          if (whole.outer == at) {
            restrict_trips(s, whole.inner, left_of(s, whole.inner, false));
            break;
          }
          at = up;
        }
      }
      nests.push_back(
          read == facts_[s].read_loops.end() ? body() : emit_read(s, index, read->second, begin, end, body));
      rest_ -= rest;
      if (ends.size() > 1 && apart) slices_.pop_back();
    } else if (read != facts_[s].read_loops.end()) {
      nests.push_back(emit_read(s, index, read->second, begin, end, body));
    } else {
      forms_.bind(loop.slot, {begin, end - 1});
      around_.push_back({loop.slot, begin, end - begin});
      const StatementId inside = where(some_live(s, index), body);
      around_.pop_back();
      nests.push_back(nest_.loop(facts_[s].names[static_cast<std::size_t>(index)], loop.slot,
                                 nest_.arena.constant(begin), nest_.arena.constant(end), kind, inside));
    }
    forms_.unbind(loop.slot);
    facts_[s].trips = saved;
    begin = end;
  }
  return nest_.sequence(std::move(nests));
}

LoopKind Emission::kind_of(std::size_t s, int index) const {
  if (const auto set = kinds_.find({s, index}); set != kinds_.end()) return set->second;
  const auto& tile = plan_.scopes[s].tile;
  const LoopKind kind = leaf(s, index).kind;
  const bool tiled = std::find(tile.begin(), tile.end(), index) != tile.end();
  return tiled && kind == LoopKind::Serial ? LoopKind::Unroll : kind;
}

StatementId Emission::with_memory(std::size_t s, StatementId body) {
  const TensorId tensor = plan_.program.scopes[s].output;
  const bool temporary = owned(tensor) && nest_.buffer(buffer_of_[raw(tensor)]).kind == BufferKind::Temporary;
  return temporary ? nest_.allocate(buffer_of_[raw(tensor)], body) : body;
}

StatementId Emission::emit_loop_with_producers(std::size_t s, int index,
                                               const std::function<StatementId()>& body, std::int64_t begin) {
  const auto with_producers = [&] {
    std::vector<std::size_t> producers;
    for (std::size_t p = 0; p < plan_.scopes.size(); ++p)
      if (plan_.scopes[p].attach_scope == static_cast<int>(s) && plan_.scopes[p].attach_loop == index)
        producers.push_back(p);
    std::vector<StatementId> made;
    for (const std::size_t p : producers) made.push_back(emit_scope(p));
    StatementId inside = body();
    for (std::size_t i = producers.size(); i-- > 0;)
      inside = with_memory(producers[i], nest_.sequence({made[i], inside}));
    return inside;
  };
  return emit_loop(s, index, with_producers, begin);
}

bool Emission::reduces(std::size_t s) const {
  const program::Scope& scope = plan_.program.scopes[s];
  return scope.reduction != Reduction::None && !scope.sums.empty();
}

const PlannedLoop& Emission::leaf(std::size_t s, int index) const {
  return plan_.scopes[s].loops[static_cast<std::size_t>(index)];
}

StatementId Emission::emit_scope(std::size_t s) {
  if (auto reason = check_order(s)) return refused(*std::move(reason));
  const StatementId made = emit_loops(s, 0);
  if (plan_.program.scopes[s].target.empty()) return made;
  return nest_.sequence({zero(plan_.program.scopes[s].output), made});
}

Refused Emission::check_order(std::size_t s) const {
  const auto& order = plan_.scopes[s].order;
  for (std::size_t p = 0; p + 1 < order.size(); ++p)
    if (leaf(s, order[p]).kind == LoopKind::Vector)
      return refuse(kWhere, "the vectorised loop '{}' of '{}' has loop '{}' inside", leaf(s, order[p]).name,
                    plan_.program.tensor(plan_.program.scopes[s].output).name, leaf(s, order[p + 1]).name);
  return {};
}

StatementId Emission::emit_loops(std::size_t s, std::size_t k) {
  if (k == plan_.core(s)) return emit_counts(s, k, [&, k] { return emit_core(s, k); });
  return emit_loop_with_producers(s, plan_.scopes[s].order[k], [&, k] { return emit_loops(s, k + 1); });
}

StatementId Emission::emit_over(std::size_t s, const std::vector<int>& loops, std::size_t k,
                                const std::function<StatementId()>& body) {
  if (k == loops.size()) return body();
  return emit_loop(s, loops[k], [&, k] { return emit_over(s, loops, k + 1, body); });
}

StatementId Emission::emit_steps(std::size_t s, std::size_t k, const std::function<StatementId()>& update) {
  const std::size_t outer = std::exchange(outside_core_, around_.size());
  const StatementId made = emit_reduction(s, k, update);
  outside_core_ = outer;
  return made;
}

StatementId Emission::emit_reduction(std::size_t s, std::size_t k,
                                     const std::function<StatementId()>& update) {
  const auto& order = plan_.scopes[s].order;
  if (k == order.size()) return where(rests(s, true), update);
  const auto& tile = plan_.scopes[s].tile;
  const auto tiled = [&](int loop) { return std::find(tile.begin(), tile.end(), loop) != tile.end(); };
  // As far out as there are still steps enough: each costs instructions beside the multiply-adds.
  const std::size_t asked = asked_.size();
  std::vector<StatementId> parts;
  if (around_.size() > outside_core_ && (k == 0 || !tiled(order[k - 1]))) parts = prefetches(s, k);
  const auto [begin, end] = counted_iterations(s, k);
  if (begin == end) {
    asked_.resize(asked);
    return nest_.sequence({});
  }
  auto& trips = facts_[s].trips[static_cast<std::size_t>(order[k])];
  const std::int64_t all = std::exchange(trips, end);
  const auto step = [&, k] {
    return where(counting(s, k), [&] { return emit_reduction(s, k + 1, update); });
  };
  parts.push_back(emit_loop_with_producers(s, order[k], step, begin));
  trips = all;
  asked_.resize(asked);
  return nest_.sequence(std::move(parts));
}

std::vector<Trips> Emission::loops_inside(std::size_t s, std::size_t k) const {
  const auto& order = plan_.scopes[s].order;
  std::vector<Trips> inner;
  for (std::size_t p = k + 1; p < order.size(); ++p)
    inner.push_back({leaf(s, order[p]).slot, 0, facts_[s].trips[static_cast<std::size_t>(order[p])]});
  return inner;
}

std::pair<std::int64_t, std::int64_t> Emission::counted_iterations(std::size_t s, std::size_t k) {
  constexpr std::int64_t kMostTried = 64;
  const int index = plan_.scopes[s].order[k];
  const PlannedLoop& loop = leaf(s, index);
  const std::int64_t trips = facts_[s].trips[static_cast<std::size_t>(index)];
  if (facts_[s].inside.empty() || !loop.reduction || kind_of(s, index) == LoopKind::Vector ||
      trips > kMostTried)
    return {0, trips};
  std::int64_t begin = 0, end = trips;
  const std::vector<Trips> inner = loops_inside(s, k);
  for (const Condition& condition : facts_[s].inside) {
    const Condition over{over_loops(s, condition.expr), condition.begin, condition.end};
    const auto slots = nest_.arena.iterators(over.expr);
    if (std::find(slots.begin(), slots.end(), loop.slot) == slots.end()) continue;
    const auto counts = [&](std::int64_t iteration) {
      forms_.bind_constant(loop.slot, iteration);
      const Condition any = for_any(nest_.arena, forms_, over, inner);
      const bool none = never(any.expr, any.begin, any.end);
      forms_.unbind(loop.slot);
      return !none;
    };
    while (begin < end && !counts(begin)) ++begin;
    while (begin < end && !counts(end - 1)) --end;
  }
  return {begin, end};
}

std::vector<Condition> Emission::counting(std::size_t s, std::size_t k) {
  std::vector<Condition> conditions;
  const auto& order = plan_.scopes[s].order;
  const LoopKind kind = kind_of(s, order[k]);
  if (facts_[s].inside.empty() || kind == LoopKind::Vector) return conditions;
  const std::vector<Trips> inner = loops_inside(s, k);
  const auto steps = [&](std::uint32_t slot) {
    return std::any_of(order.begin(), order.end(), [&](int index) {
      return leaf(s, index).slot == slot && kind_of(s, index) != LoopKind::Unroll &&
             std::any_of(around_.begin() + static_cast<std::ptrdiff_t>(outside_core_), around_.end(),
                         [&](const Trips& trips) { return trips.slot == slot; });
    });
  };
  for (const Condition& condition : facts_[s].inside) {
    const Condition any =
        for_any(nest_.arena, forms_, {over_loops(s, condition.expr), condition.begin, condition.end}, inner);
    if (within(any.expr, any.begin, any.end)) continue;
    const auto slots = nest_.arena.iterators(any.expr);
    const bool moves = std::find(slots.begin(), slots.end(), leaf(s, order[k]).slot) != slots.end();
    if (kind == LoopKind::Unroll && (!moves || std::any_of(slots.begin(), slots.end(), steps))) continue;
    conditions.push_back(any);
  }
  return conditions;
}

std::vector<ExprId> Emission::first_read(std::size_t s, TensorId tensor) {
  for (const program::ScalarId id : plan_.all_reads(s)) {
    const Scalar scalar = plan_.program.scalar(id);
    if (scalar.tensor != tensor) continue;
    std::vector<Condition> ignored;
    std::vector<ExprId> indices;
    for (const ExprId index : scalar.indices)
      indices.push_back(over_loops(s, symbolic::without_inside(nest_.arena, index, ignored)));
    return place(tensor, std::move(indices));
  }
  return {};  // it reads a copy by now
}

std::vector<StatementId> Emission::prefetches(std::size_t s, std::size_t k) {
  std::vector<StatementId> made;
  const auto later =
      std::count_if(slices_.begin(), slices_.end(), [](const Slice& slice) { return slice.which > 0; });
  if (plan_.scopes[s].prefetched.empty() || rest_ > later) return made;
  Walk walk;
  walk.slices = slices_;
  walk.outside.assign(around_.begin(), around_.begin() + static_cast<std::ptrdiff_t>(outside_core_));
  walk.steps.assign(around_.begin() + static_cast<std::ptrdiff_t>(outside_core_), around_.end());
  const auto& order = plan_.scopes[s].order;
  if (!slices_.empty())
    for (Trips& trips : walk.steps)
      for (const int loop : order)
        if (leaf(s, loop).slot == trips.slot) trips.whole = leaf(s, loop).extent;
  for (std::size_t p = k; p < order.size(); ++p) {
    const Trips trips{leaf(s, order[p]).slot, 0, facts_[s].trips[static_cast<std::size_t>(order[p])]};
    walk.tile.push_back(trips);
    forms_.bind(trips.slot, {0, trips.count - 1});
  }
  const std::size_t core = plan_.core(s);
  const auto [part, last] = part_of_sum(s, core);
  for (const auto& [tensor, near_bytes, ahead_bytes] : plan_.scopes[s].prefetched) {
    if (std::find(asked_.begin(), asked_.end(), tensor) != asked_.end()) continue;
    walk.near_bytes = near_bytes;
    walk.ahead_bytes = ahead_bytes;
    const BufferId buffer = buffer_of_[raw(tensor)];
    const bool written = tensor == plan_.program.scopes[s].output;
    const auto places = written ? place(tensor, facts_[s].outputs) : first_read(s, tensor);
    const bool term = !written && !plan_.reads_of(s, tensor).empty();
    if (!term && last > 0 && bytes_between_parts(s, core) <= near_bytes) continue;
    const auto asks = term ? prefetch_ahead(nest_, forms_, buffer, places, walk)
                           : prefetch_results(nest_, forms_, buffer, places, walk);
    if (asks.empty()) continue;
    if (!term && !written && last > 0)  // the last part reads it
      made.push_back(nest_.guard({{part, last, last + 1}}, nest_.sequence(asks)));
    else
      made.insert(made.end(), asks.begin(), asks.end());
    asked_.push_back(tensor);
  }
  for (const Trips& trips : walk.tile) forms_.unbind(trips.slot);
  return made;
}

}  // namespace syno::schedule
