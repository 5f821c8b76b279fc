// Extents that calls bring along: loops that end where the call's sizes say, and conditions where they do
// not.
#include <algorithm>
#include <limits>
#include <numeric>

#include "schedule/emission.hpp"

namespace syno::schedule {

using program::Scalar;
using program::ScalarId;
using program::TensorId;

namespace {

constexpr std::int64_t kFar = std::int64_t{1} << 50;  // more than any index
constexpr std::int64_t kMostPieces = 16;              // of code for one incomplete tile
constexpr std::int64_t kMostFirst = 2;                // iterations before an interior
constexpr std::int64_t kMostReach = 16;               // elements that windows read behind a tile

/// floor((times * size + plus) / by) of one size.
struct GrowingSteps {
  std::int64_t times = 1, plus = 0, by = 1;
  /// Whether it is at most `other` whatever the size is; nothing where they grow differently.
  std::optional<bool> at_most(const GrowingSteps& other) const {
    if (times * other.by != other.times * by) return std::nullopt;
    return plus * other.by <= other.plus * by;
  }
};

}  // namespace

std::optional<Condition> Emission::below(ExprId difference) {
  const AffineForm form = forms_.settled(forms_.form(nest_.arena, difference));
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
    if (plan.total) {
      const auto read = read_end(s, i);
      const auto [leading, step] = leading_loop(s, i);
      const bool moves = i < plan.bases.size() && arena[plan.bases[i]].op != symbolic::Op::Constant;
      if (!read || moves || plan.loops[static_cast<std::size_t>(leading)].fused >= 0) continue;
      const std::int64_t first =
          i < plan.bases.size() ? arena[plan.bases[i]].value : plan_.range(iterator.range).first;
      facts.read_loops.emplace(leading, ReadLoop{arena.subtract(*read, arena.constant(first)), step});
      continue;
    }
    if (!end) continue;
    const bool reduction = i >= plan_.program.scopes[s].traversal.size();
    const ExprId value = facts.values.at(iterator.slot);
    facts.live_rests.push_back({value, arena.subtract(value, *end), reduction});
    if (i < plan.bases.size() && arena[plan.bases[i]].op != symbolic::Op::Constant) continue;
    const std::int64_t begin =
        i < plan.bases.size() ? arena[plan.bases[i]].value : plan_.range(iterator.range).first;
    LiveLoop live;
    live.extent = arena.subtract(*end, arena.constant(begin));
    live.end = iterator.range.live;
    live.begin = begin;
    auto leading = static_cast<int>(i);
    const auto loop = [&]() -> const PlannedLoop& { return plan.loops[static_cast<std::size_t>(leading)]; };
    while (loop().outer >= 0) {
      live.step *= loop().factor;
      leading = loop().outer;
    }
    bool follows = true;  // the joint loop's iterations are so many of its own, in their order
    while (loop().fused >= 0 && follows) {
      const PlannedLoop& joint = plan.loops[static_cast<std::size_t>(loop().fused)];
      const std::int64_t first = plan.loops[static_cast<std::size_t>(joint.first)].extent,
                         second = plan.loops[static_cast<std::size_t>(joint.second)].extent;
      if (joint.first == leading)
        live.times *= second;
      else
        follows = first == 1;
      follows = follows && live.joined == 1;
      leading = loop().fused;
      while (loop().outer >= 0) {
        live.joined *= loop().factor;
        leading = loop().outer;
      }
    }
    if (!follows) continue;
    const std::int64_t common = std::gcd(live.times, live.joined);
    live.times /= common;
    live.joined /= common;
    if (live.joined > 1 && live.step > 1) continue;
    // Where parts of a sum are put together in memory, the last of them completes it: it has to run.
    if (reduction && plan_.position(s, leading) < static_cast<int>(core)) continue;
    facts.live_loops.emplace(leading, live);
  }
}

std::pair<int, std::int64_t> Emission::leading_loop(std::size_t s, std::size_t iterator) const {
  auto leading = static_cast<int>(iterator);
  std::int64_t step = 1;
  for (const PlannedLoop* loop = nullptr; loop = &leaf(s, leading), loop->outer >= 0; leading = loop->outer)
    step *= loop->factor;
  return {leading, step};
}

std::optional<ExprId> Emission::read_end(std::size_t s, std::size_t d) {
  const TensorId copy = plan_.program.scopes[s].output;
  if (!plan_.program.scopes[s].target.empty()) return std::nullopt;
  symbolic::Arena& arena = plan_.program.arena;
  /// Behind times * (end - 1) + rest.
  struct End {
    symbolic::Live end;
    std::int64_t times = 0, rest = 0;
  };
  std::optional<End> found;
  for (const std::size_t reader : plan_.consumers(copy)) {
    if (plan_.scopes[reader].total) return std::nullopt;
    AffineForms forms;
    for (std::size_t i = 0; i < plan_.iterator_count(reader); ++i) {
      const auto [begin, end] = plan_.range(plan_.iterator(reader, i).range);
      forms.bind(plan_.iterator(reader, i).slot, {begin, end - 1});
    }
    for (const ScalarId id : plan_.all_reads(reader)) {
      const Scalar scalar = plan_.program.scalar(id);
      if (scalar.tensor != copy) continue;
      std::vector<Condition> ignored;
      const AffineForm read = forms.form(arena, symbolic::without_inside(arena, scalar.indices[d], ignored));
      // It ends where the only one of its iterators ends that has such an end.
      std::optional<End> here;
      for (std::size_t i = 0; i < plan_.iterator_count(reader); ++i) {
        const program::Iterator& iterator = plan_.iterator(reader, i);
        if (iterator.range.live.parameter == 0 || !forms.depends_on(read, iterator.slot)) continue;
        bool linear = false;
        const std::int64_t times = forms.coefficient(read, iterator.slot, &linear);
        if (here || !linear || times <= 0) return std::nullopt;
        const AffineForm others = nest::add(read, multiply(forms.slot_form(iterator.slot), -times));
        here = End{iterator.range.live, times, forms.bounds(others).greatest};
      }
      if (!here || (found && (!(found->end == here->end) || found->times != here->times)))
        return std::nullopt;
      if (!found || found->rest < here->rest) found = here;
    }
  }
  if (!found) return std::nullopt;
  const ExprId end = *plan_.live_end(arena, {arena.constant(0), arena.constant(0), found->end});
  return arena.add(arena.multiply(end, found->times), arena.constant(found->rest - found->times + 1));
}

StatementId Emission::emit_read(std::size_t s, int index, const ReadLoop& read, std::int64_t begin,
                                std::int64_t end, const std::function<StatementId()>& body) {
  const PlannedLoop& loop = leaf(s, index);
  symbolic::Arena& arena = nest_.arena;
  // Where more than so many elements are read, or not.
  const auto when = [&](std::int64_t elements, bool more, const std::function<StatementId()>& make) {
    const Interval range = forms_.bounds(forms_.form(arena, read.end));
    if (more ? range.greatest <= elements : range.least > elements) return nest_.sequence({});
    if (more ? range.least > elements : range.greatest <= elements) return make();
    const Condition asked = more ? Condition{read.end, elements + 1, range.greatest + 1}
                                 : Condition{read.end, range.least, elements + 1};
    return where({asked}, make);
  };
  if (end == begin + 1) return when(begin * read.step, true, body);
  const LoopKind kind = kind_of(s, index);
  const auto loop_to = [&](ExprId last) {
    const AffineForm first{{}, begin}, stop = forms_.form(arena, last);
    const std::int64_t greatest = std::min(forms_.bounds(stop).greatest, end);
    if (greatest <= begin) return nest_.sequence({});
    const std::size_t known = forms_.fact_count();
    const auto saved = facts_[s].trips;
    forms_.bind(loop.slot, {begin, greatest - 1});
    forms_.push_loop_facts(loop.slot, first, stop);
    around_.push_back(
        {loop.slot, begin, end - begin, std::max<std::int64_t>(forms_.bounds(stop).least - begin, 1)});
    const StatementId inside = body();
    around_.pop_back();
    forms_.pop_facts(known);
    forms_.unbind(loop.slot);
    facts_[s].trips = saved;
    return nest_.loop(facts_[s].names[static_cast<std::size_t>(index)], loop.slot, arena.constant(begin),
                      last, kind, inside);
  };
  ExprId last = read.end;
  if (read.step > 1)
    last = arena.divide(arena.add(last, arena.constant(read.step - 1)), symbolic::Size(read.step));
  last = tidy(last);
  if (forms_.bounds(forms_.form(arena, last)).greatest <= end) return loop_to(last);
  const std::int64_t all = (end - 1) * read.step;
  return nest_.sequence({when(all, true, [&] { return loop_to(arena.constant(end)); }),
                         when(all, false, [&] { return loop_to(last); })});
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

std::optional<Emission::Interior> Emission::interior(std::size_t s, int index, const LiveLoop& live) {
  const PlannedLoop& loop = leaf(s, index);
  if (loop.cuts.empty() || rest_ > 0 || live.times != 1 || live.joined != 1) return std::nullopt;
  symbolic::Arena& arena = nest_.arena;
  const GrowingSteps own{live.end.times, live.end.plus - live.end.by * live.begin, live.end.by * live.step};
  GrowingSteps least = own;
  Interior found;
  std::vector<std::uint32_t> inside{loop.slot};
  for (const int other : plan_.scopes[s].order)
    if (const auto& l = leaf(s, other); l.slot != loop.slot && !forms_.bound(l.slot)) {
      forms_.bind(l.slot, {0, facts_[s].trips[static_cast<std::size_t>(other)] - 1});
      inside.push_back(l.slot);
    }
  forms_.bind(loop.slot, {0, loop.extent - 1});
  for (const ScalarId id : plan_.all_reads(s)) {
    const Scalar scalar = plan_.program.scalar(id);
    const auto made_by = plan_.producer(scalar.tensor);
    if (made_by && plan_.scopes[*made_by].total) continue;
    const auto& dims = plan_.program.tensor(scalar.tensor).dims;
    for (std::size_t d = 0; d < dims.size(); ++d) {
      std::vector<Condition> ignored;
      const ExprId read = over_loops(s, symbolic::without_inside(arena, scalar.indices[d], ignored));
      const AffineForm form = forms_.form(arena, read);
      bool linear = false;
      const std::int64_t times = forms_.coefficient(form, loop.slot, &linear);
      if (!linear || times <= 0) continue;
      const Interval rest = forms_.bounds(nest::add(form, multiply(forms_.slot_form(loop.slot), -times)));
      // times * i + rest >= begin from the first iteration on, and below its end before the last.
      const std::int64_t begin = plan_.range(dims[d]).first;
      found.first =
          std::max(found.first, (std::max<std::int64_t>(begin - rest.least, 0) + times - 1) / times);
      const symbolic::Live& end = dims[d].live;
      if (end.parameter != live.end.parameter) continue;
      const GrowingSteps steps{end.times, end.plus + end.by * (times - 1 - rest.greatest), end.by * times};
      if (steps.at_most(least).value_or(false)) least = steps;
    }
  }
  for (const std::uint32_t slot : inside) forms_.unbind(slot);
  if (found.first > kMostFirst) return std::nullopt;
  // How much sooner it ends, in elements of the loop's iterator.
  const auto sooner = static_cast<Int128>(own.plus) * least.by - static_cast<Int128>(least.plus) * own.by;
  const auto element = static_cast<Int128>(live.end.by) * least.by;
  found.reach = static_cast<std::int64_t>((sooner + element - 1) / element);
  if ((found.first == 0 && found.reach == 0) || found.reach > kMostReach) return std::nullopt;
  const ExprId size = arena.iterator(plan_.sizes[live.end.parameter - 1].slot);
  const ExprId sum = arena.add(arena.multiply(size, least.times), arena.constant(least.plus));
  found.over = tidy(sum);
  found.by = least.by;
  found.end = tidy(least.by == 1 ? sum : arena.divide(sum, symbolic::Size(least.by)));
  return found;
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
    const std::int64_t fewest = forms_.bounds(nest::add(last, multiply(first, -1))).least;
    around_.push_back({loop.slot, 0, loop.extent, std::max<std::int64_t>(fewest, 1)});
    const auto saved = facts_[s].trips;
    const StatementId made = inside();
    facts_[s].trips = saved;
    around_.pop_back();
    forms_.pop_facts(known);
    forms_.unbind(loop.slot);
    const std::string& name = facts_[s].names[static_cast<std::size_t>(index)];
    nests.push_back(nest_.loop(name, loop.slot, begin, end, kind, made));
  };
  const LoopKind kind = kind_of(s, index);
  if (const auto inner = interior(s, index, live)) {
    const Interval ends = forms_.bounds(forms_.form(arena, inner->end));
    const ExprId begun = steps(true);
    const auto left = [&] { return emit_left(s, index, live, live.step + inner->reach - 1, body); };
    ++rest_;
    // The first iterations one by one: what they read before a tensor is known then.
    for (std::int64_t i = 0; i < inner->first; ++i) {
      forms_.bind_constant(loop.slot, i);
      const auto saved = facts_[s].trips;
      // Where the call's size says that `over` is at least `enough`, or less.
      const auto when = [&](ExprId over, std::int64_t enough, bool more,
                            const std::function<StatementId()>& make) {
        const Interval range = forms_.bounds(forms_.form(arena, over));
        if (more ? range.greatest < enough : range.least >= enough) return nest_.sequence({});
        const Condition asked =
            more ? Condition{over, enough, range.greatest + 1} : Condition{over, range.least, enough};
        const bool always = more ? range.least >= enough : range.greatest < enough;
        const StatementId made = where(always ? std::vector<Condition>() : std::vector{asked}, make);
        facts_[s].trips = saved;
        return made;
      };
      nests.push_back(when(inner->over, inner->by * (i + 1), true, body));
      nests.push_back(when(inner->over, inner->by * (i + 1), false,
                           [&] { return when(left_at(live, arena.constant(i)), live.end.by, true, left); }));
      forms_.unbind(loop.slot);
    }
    --rest_;
    nest(arena.constant(inner->first), inner->end, kind, body);
    ++rest_;
    nest(inner->end, begun, LoopKind::Serial, [&] {
      std::vector<Condition> after;
      if (ends.least < inner->first)
        after.push_back({arena.iterator(loop.slot), inner->first, std::max(loop.extent, inner->first + 1)});
      return where(std::move(after), left);
    });
    --rest_;
    return nest_.sequence(std::move(nests));
  }
  const ExprId whole = steps(false);
  nest(arena.constant(0), whole, kind, body);
  if (live.step == 1 && live.joined == 1) return nest_.sequence(std::move(nests));
  const bool last = rest_ == 0 && live.times == 1 && live.joined == 1;
  ++rest_;
  const bool one = live.times == 1 || live.joined > 1;  // a single step is left at most
  nest(whole, steps(true), one ? LoopKind::Serial : kind,
       [&] { return last ? emit_left(s, index, live, live.step, body) : body(); });
  --rest_;
  return nest_.sequence(std::move(nests));
}

ExprId Emission::left_at(const LiveLoop& live, ExprId iteration) {
  symbolic::Arena& arena = nest_.arena;
  const ExprId size = arena.iterator(plan_.sizes[live.end.parameter - 1].slot);
  const ExprId stops = arena.add(arena.multiply(size, live.end.times), arena.constant(live.end.plus));
  const ExprId here = arena.add(arena.multiply(iteration, live.step), arena.constant(live.begin));
  return tidy(arena.subtract(stops, arena.multiply(here, live.end.by)));
}

StatementId Emission::emit_left(std::size_t s, int index, const LiveLoop& live, std::int64_t most,
                                const std::function<StatementId()>& body) {
  const PlannedLoop& loop = leaf(s, index);
  symbolic::Arena& arena = nest_.arena;
  const std::vector<std::int64_t> pieces = pieces_of(s, index);
  if (pieces.empty()) return body();
  const PlannedLoop& parent = plan_.scopes[s].loops[static_cast<std::size_t>(loop.parent)];
  const std::int64_t unit = live.step / parent.factor;
  const ExprId left = left_at(live, arena.iterator(loop.slot));
  std::vector<StatementId> made;
  // Of elements that are left from `begin` to before `end`.
  const auto of = [&](std::int64_t begin, std::int64_t end) {
    made.push_back(where({{left, begin * live.end.by, end * live.end.by}}, body));
  };
  // How many of the loops inside the step needs is known when a call is made: code for each.
  std::int64_t before = 0;
  for (const std::int64_t piece : pieces) {
    const auto saved = facts_[s].trips;
    restrict_trips(s, parent.inner, piece);
    const PlannedLoop& inner = plan_.scopes[s].loops[static_cast<std::size_t>(parent.inner)];
    // All but the last of the loop inside are whole: they need no conditions.
    if (inner.outer >= 0) facts_[s].whole[inner.outer] = before / inner.factor;
    of(before * unit + 1, piece * unit + 1);
    facts_[s].whole.clear();
    facts_[s].trips = saved;
    before = piece;
  }
  for (std::int64_t more = live.step + 1; more <= most; ++more) of(more, more + 1);
  return nest_.sequence(std::move(made));
}

StatementId Emission::emit_counts(std::size_t s, std::size_t k, const std::function<StatementId()>& body) {
  const auto& order = plan_.scopes[s].order;
  for (; k < order.size(); ++k) {
    const int index = order[k];
    const auto found = facts_[s].live_loops.find(index);
    if (found == facts_[s].live_loops.end() || kind_of(s, index) != LoopKind::Unroll) continue;
    const LiveLoop live = found->second;
    const std::int64_t most = facts_[s].trips[static_cast<std::size_t>(index)];
    if (live.times != 1 || live.joined != 1 || most < 2) continue;
    const ExprId left = left_at(live, nest_.arena.constant(0));
    const std::int64_t unit = live.step * live.end.by;
    const auto begun = [&](std::int64_t elements) {
      return (elements / live.end.by + live.step - 1) / live.step;
    };
    const Interval range = forms_.bounds(forms_.form(nest_.arena, left));
    const std::int64_t fewest = std::clamp<std::int64_t>(begun(range.least), 1, most);
    if (std::min(begun(range.greatest), most) - fewest >= kMostPieces) continue;
    std::vector<StatementId> made;
    for (std::int64_t count = fewest; count <= most; ++count) {
      // Readers may need fewer than the size would give: a window with a stride leaves the last rows.
      const std::int64_t end = count * unit + live.end.by;
      const Condition asked{left, (count - 1) * unit + live.end.by,
                            count < most ? end : std::max(end, range.greatest + 1)};
      const auto saved = facts_[s].trips;
      restrict_trips(s, index, count);
      std::vector<Condition> conditions;
      if (!within(asked.expr, asked.begin, asked.end)) conditions.push_back(asked);
      made.push_back(where(std::move(conditions), [&] { return emit_counts(s, k + 1, body); }));
      facts_[s].trips = saved;
    }
    return nest_.sequence(std::move(made));
  }
  return body();
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
