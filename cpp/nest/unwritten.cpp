#include "nest/unwritten.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "nest/affine.hpp"

namespace syno::nest {

namespace {

/// Places of a buffer, inclusive, by dimension: none before the first is added.
struct Box {
  std::vector<Interval> sides;
  double places() const {
    double product = 1;
    for (const Interval& side : sides) product *= static_cast<double>(side.greatest - side.least + 1);
    return product;
  }
  void add(const std::vector<Interval>& other) {
    if (sides.empty()) {
      sides = other;
      return;
    }
    for (std::size_t d = 0; d < sides.size(); ++d) {
      sides[d].least = std::min(sides[d].least, other[d].least);
      sides[d].greatest = std::max(sides[d].greatest, other[d].greatest);
    }
  }
};

/// Boxes of what is read and written of each temporary, over all of a nest.
class Boxes {
 public:
  explicit Boxes(const LoopNest& nest)
      : read(nest.buffers.size()),
        written(nest.buffers.size()),
        left_out(nest.buffers.size()),
        stores(nest.buffers.size(), 0),
        nest_(nest),
        outside_(nest.buffers.size(), 0) {
    for (const Parameter& parameter : nest.parameters)
      forms_.bind_parameter(parameter.slot, {parameter.least, parameter.greatest});
    statement(nest.root);
  }

  std::vector<Box> read, written, left_out;  ///< by buffer
  std::vector<double> stores;                ///< how many places of an allocation stores may write

 private:
  const LoopNest& nest_;
  AffineForms forms_;

  void statement(StatementId id) {
    const Statement& s = nest_.statement(id);
    const std::size_t facts = forms_.fact_count();
    switch (s.kind) {
      case StatementKind::For: {
        const AffineForm begin = forms_.form(nest_.arena, s.begin), end = forms_.form(nest_.arena, s.end);
        const Interval range{forms_.bounds(begin).least, forms_.bounds(end).greatest - 1};
        if (range.greatest < range.least) return;
        forms_.bind(s.slot, range);
        if (!nest_.parameters.empty()) forms_.push_loop_facts(s.slot, begin, end);
        loops_.emplace_back(s.slot, static_cast<double>(range.greatest - range.least + 1));
        break;
      }
      case StatementKind::Allocate:
        outside_[raw(s.buffer)] = loops_.size();
        break;
      case StatementKind::If:
        assume(s.conditions);
        conditions_.insert(conditions_.end(), s.conditions.begin(), s.conditions.end());
        for (const StatementId child : s.children) statement(child);
        conditions_.resize(conditions_.size() - s.conditions.size());
        forms_.pop_facts(facts);
        return;
      case StatementKind::Store:
        touch(written, s.buffer, s.indices);
        leave_out(s);
        count(s);
        if (s.mode != StoreMode::Assign) touch(read, s.buffer, s.indices);
        value(s.value);
        return;
      default:
        break;
    }
    for (const StatementId child : s.children) statement(child);
    forms_.pop_facts(facts);
    if (s.kind != StatementKind::For) return;
    forms_.unbind(s.slot);
    loops_.pop_back();
  }

  void assume(const std::vector<Condition>& conditions) {
    for (const Condition& condition : conditions)
      forms_.push_fact(forms_.form(nest_.arena, condition.expr), {condition.begin, condition.end - 1});
  }

  void value(ValueId id) {
    const Value& v = nest_.value(id);
    switch (v.kind) {
      case ValueKind::Load: {
        const std::size_t facts = forms_.fact_count();
        assume(v.guards);
        touch(read, v.buffer, v.indices);
        forms_.pop_facts(facts);
        return;
      }
      case ValueKind::Select:
        value(v.c);
        [[fallthrough]];
      case ValueKind::Binary:
        value(v.b);
        [[fallthrough]];
      case ValueKind::Unary:
        value(v.a);
        return;
      default:
        return;
    }
  }

  /// Places that a condition keeps a store from, where it is about the place: the end of a dimension. A
  /// condition about something else, as the first part of a sum, has another store beside it.
  void leave_out(const Statement& store) {
    if (nest_.buffer(store.buffer).kind != BufferKind::Temporary || !nest_.parameters.empty()) return;
    std::set<std::uint32_t> moved;
    for (const ExprId index : store.indices)
      for (const std::uint32_t slot : nest_.arena.iterators(index)) moved.insert(slot);
    for (const Condition& condition : conditions_) {
      const auto slots = nest_.arena.iterators(condition.expr);
      if (!std::all_of(slots.begin(), slots.end(), [&](std::uint32_t slot) { return moved.contains(slot); }))
        continue;
      forms_.pop_facts(0);  // where it does not hold
      const AffineForm form = forms_.form(nest_.arena, condition.expr);
      const Interval whole = forms_.bounds(form);
      for (const Interval& side :
           {Interval{whole.least, condition.begin - 1}, Interval{condition.end, whole.greatest}})
        if (side.least <= side.greatest) touch_where(form, side, store);
      assume(conditions_);
    }
  }

  /// How many places of an allocation a store may write.
  void count(const Statement& store) {
    double places = 1;
    for (std::size_t l = outside_[raw(store.buffer)]; l < loops_.size(); ++l)
      if (std::any_of(store.indices.begin(), store.indices.end(), [&](ExprId index) {
            const auto slots = nest_.arena.iterators(index);
            return std::find(slots.begin(), slots.end(), loops_[l].first) != slots.end();
          }))
        places *= loops_[l].second;
    stores[raw(store.buffer)] += places;
  }

  /// Places of a store where `form` lies in `side`, as far as that bounds single loops.
  void touch_where(const AffineForm& form, Interval side, const Statement& store) {
    std::vector<std::pair<std::uint32_t, Interval>> ranges;
    bool never = false;
    for (const auto& [atom, coefficient] : form.terms) {
      if (forms_.atom(atom).kind != Atom::Kind::Slot) continue;
      const std::uint32_t slot = forms_.atom(atom).slot;
      const AffineForm rest = forms_.substitute(form, slot, 0);
      const Interval others = forms_.bounds(rest), own = forms_.bounds(forms_.slot_form(slot));
      Interval narrowed = own;
      const auto least = static_cast<double>(side.least - others.greatest) / static_cast<double>(coefficient);
      const auto greatest =
          static_cast<double>(side.greatest - others.least) / static_cast<double>(coefficient);
      narrowed.least = std::max(own.least, static_cast<std::int64_t>(std::ceil(std::min(least, greatest))));
      narrowed.greatest =
          std::min(own.greatest, static_cast<std::int64_t>(std::floor(std::max(least, greatest))));
      never = never || narrowed.greatest < narrowed.least;
      if (never) break;
      ranges.emplace_back(slot, own);
      forms_.bind(slot, narrowed);
    }
    if (!never) touch(left_out, store.buffer, store.indices);
    for (const auto& [slot, range] : ranges) forms_.bind(slot, range);
  }

  void touch(std::vector<Box>& boxes, BufferId id, const std::vector<ExprId>& indices) {
    const Buffer& buffer = nest_.buffer(id);
    if (buffer.kind != BufferKind::Temporary || forms_.contradictory()) return;
    std::vector<Interval> sides;
    for (std::size_t d = 0; d < indices.size(); ++d) {
      const Interval side = forms_.bounds(forms_.form(nest_.arena, indices[d]));
      sides.push_back(
          {std::max<std::int64_t>(side.least, 0), std::min(side.greatest, buffer.extents[d] - 1)});
      if (sides.back().greatest < sides.back().least) return;
    }
    boxes[raw(id)].add(sides);
  }

  std::vector<Condition> conditions_;                    ///< that hold here
  std::vector<std::pair<std::uint32_t, double>> loops_;  ///< around here, and their trips
  std::vector<std::size_t> outside_;                     ///< by buffer: how many are around its allocation
};

/// Assigns 0 to a box of a buffer.
StatementId zeros(LoopNest& nest, BufferId id, const std::vector<Interval>& sides) {
  std::vector<ExprId> places;
  std::vector<std::uint32_t> slots;
  for (std::size_t d = 0; d < sides.size(); ++d) {
    slots.push_back(nest.new_slot());
    places.push_back(nest.arena.iterator(slots.back()));
  }
  StatementId made = nest.store(id, places, nest.literal(0));
  for (std::size_t d = sides.size(); d-- > 0;)
    made = nest.loop(fmt::format("zero_{}_{}", nest.buffer(id).name, d), slots[d],
                     nest.arena.constant(sides[d].least), nest.arena.constant(sides[d].greatest + 1),
                     d + 1 == sides.size() ? LoopKind::Vector : LoopKind::Serial, made);
  return made;
}

}  // namespace

LoopNest with_unwritten_zero(LoopNest nest) {
  const Boxes boxes(nest);
  for (std::size_t s = 0, count = nest.statements.size(); s < count; ++s) {
    if (nest.statements[s].kind != StatementKind::Allocate) continue;
    const BufferId id = nest.statements[s].buffer;
    const Box& written = boxes.written[raw(id)];
    Box rest = boxes.read[raw(id)];
    if (written.sides.empty() || rest.sides.empty()) continue;
    std::vector<StatementId> parts;
    for (std::size_t d = 0; d < rest.sides.size(); ++d) {
      const Interval whole = rest.sides[d], held = written.sides[d];
      const auto fill = [&](Interval side) {
        if (side.greatest < side.least) return;
        rest.sides[d] = side;
        parts.push_back(zeros(nest, id, rest.sides));
      };
      fill({whole.least, std::min(whole.greatest, held.least - 1)});
      fill({std::max(whole.least, held.greatest + 1), whole.greatest});
      // Of the dimensions after this one, what is filled already.
      rest.sides[d] = {std::max(whole.least, held.least), std::min(whole.greatest, held.greatest)};
      if (rest.sides[d].greatest < rest.sides[d].least) break;
    }
    // Fewer stores than places leave holes, as between rows of an image that lie at a larger pitch.
    Box some = boxes.stores[raw(id)] < written.places() ? written : boxes.left_out[raw(id)];
    if (!some.sides.empty()) {
      bool any = true;
      for (std::size_t d = 0; d < some.sides.size(); ++d) {
        // Beyond what is written at all, it is 0 already.
        Interval& side = some.sides[d];
        const Interval whole = boxes.read[raw(id)].sides[d];
        side.least = std::max({side.least, whole.least, written.sides[d].least});
        side.greatest = std::min({side.greatest, whole.greatest, written.sides[d].greatest});
        any = any && side.least <= side.greatest;
      }
      if (any) parts.push_back(zeros(nest, id, some.sides));
    }
    if (parts.empty()) continue;
    Statement& allocation = nest.statements[s];
    parts.insert(parts.end(), allocation.children.begin(), allocation.children.end());
    const StatementId body = nest.sequence(std::move(parts));
    nest.statements[s].children = {body};
  }
  return nest;
}

}  // namespace syno::nest
