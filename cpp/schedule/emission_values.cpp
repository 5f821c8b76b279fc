// What a point of a scope computes: where its reads lie, which checks they need, and the write.
#include <algorithm>
#include <functional>

#include "program/scalars.hpp"
#include "schedule/emission.hpp"
#include "schedule/switches.hpp"
#include "support/error.hpp"

namespace syno::schedule {

using program::Scalar;
using program::ScalarId;
using program::ScalarKind;
using program::TensorId;

ExprId Emission::over_loops(std::size_t s, ExprId e) {
  const auto& values = facts_[s].values;
  return nest_.arena.substitute(e, [&](std::uint32_t slot) {
    const auto found = values.find(slot);
    return found == values.end() ? nest_.arena.iterator(slot) : found->second;
  });
}

bool Emission::within(ExprId e, std::int64_t begin, std::int64_t end) {
  const Interval range = forms_.bounds(forms_.form(nest_.arena, e));
  return begin <= range.least && range.greatest < end;
}

bool Emission::never(ExprId e, std::int64_t begin, std::int64_t end) {
  const Interval range = forms_.bounds(forms_.form(nest_.arena, e));
  return range.greatest < begin || end <= range.least;
}

std::vector<ExprId> Emission::place(TensorId tensor, std::vector<ExprId> indices) {
  const auto made_by = plan_.producer(tensor);
  const auto& dims = plan_.program.tensor(tensor).dims;
  for (std::size_t d = 0; d < indices.size(); ++d) {
    ExprId base{};
    if (made_by && plan_.scopes[*made_by].bases.size() > d) {
      base = plan_.scopes[*made_by].bases[d];
    } else {
      base = nest_.arena.constant(plan_.range(dims[d]).first);
    }
    indices[d] = nest_.arena.subtract(indices[d], base);
  }
  if (owned(tensor))
    indices =
        access(nest_.arena, plan_.tensors[raw(tensor)].layout, shapes_[raw(tensor)], std::move(indices));
  for (auto& index : indices) index = tidy(index);
  return indices;
}

void Emission::make_room(TensorId tensor, const std::vector<ExprId>& places, std::vector<Condition>& guards) {
  Buffer& buffer = nest_.buffers[static_cast<std::size_t>(buffer_of_[raw(tensor)])];
  for (std::size_t d = 0; d < places.size(); ++d) {
    const Interval range = forms_.bounds(forms_.form(nest_.arena, places[d]));
    if (range.least < 0)
      guards.push_back({places[d], 0, buffer.extents[d]});
    else
      buffer.extents[d] = std::max(buffer.extents[d], range.greatest + 1);
  }
}

ValueId Emission::read(std::size_t s, const Scalar& scalar) {
  const TensorId tensor = scalar.tensor;
  const auto made_by = plan_.producer(tensor);
  const bool total = made_by && plan_.scopes[*made_by].total;
  std::vector<Condition> wanted, guards;
  std::vector<ExprId> indices;
  for (const ExprId index : scalar.indices)
    indices.push_back(symbolic::without_inside(nest_.arena, index, wanted));
  const auto& dims = plan_.program.tensor(tensor).dims;
  for (std::size_t d = 0; !total && d < dims.size(); ++d) {
    const auto [begin, end] = plan_.range(dims[d]);
    wanted.push_back({indices[d], begin, end});
  }
  // What a call's extents ask: over the iterators first, of which live points alone count.
  for (std::size_t d = 0; !total && !plan_.sizes.empty() && d < dims.size(); ++d) {
    const auto end = plan_.live_end(nest_.arena, dims[d]);
    if (!end) continue;
    if (const auto condition = below(nest_.arena.subtract(indices[d], *end))) wanted.push_back(*condition);
  }
  // A check is left out where every live point passes it, or every iteration of the loops as they are here.
  for (const auto& condition : wanted) {
    if (within(condition.expr, condition.begin, condition.end)) continue;
    // In code for a number of rows that are left, say, it may be known whatever the call's sizes are.
    const ExprId e =
        to_expr(nest_.arena, forms_, forms_.settled(forms_.form(nest_.arena, over_loops(s, condition.expr))));
    if (within(e, condition.begin, condition.end)) continue;
    if (never(e, condition.begin, condition.end)) return nest_.literal(scalar.fill.to_double());
    const bool again = std::any_of(guards.begin(), guards.end(), [&](const Condition& other) {
      return other.expr == e && other.begin == condition.begin && other.end == condition.end;
    });
    if (!again) guards.push_back({e, condition.begin, condition.end});
  }
  for (auto& index : indices) index = over_loops(s, index);
  const std::size_t known = forms_.fact_count();
  for (const auto& guard : guards)
    forms_.push_fact(forms_.form(nest_.arena, guard.expr), {guard.begin, guard.end - 1});
  std::vector<Condition> safety;
  bool outside = false;
  std::vector<ExprId> places = place(tensor, indices);
  if (owned(tensor)) {
    make_room(tensor, places, safety);
  } else {
    for (std::size_t d = 0; d < places.size(); ++d) {
      const std::int64_t extent = shapes_[raw(tensor)][d];
      if (within(places[d], 0, extent)) continue;
      safety.push_back({places[d], 0, extent});
      outside = outside || never(places[d], 0, extent);
    }
    for (const Condition& condition : outside_live(tensor, places)) safety.push_back(condition);
  }
  forms_.pop_facts(known);
  if (outside) return nest_.literal(scalar.fill.to_double());
  guards.insert(guards.end(), safety.begin(), safety.end());
  return nest_.load(buffer_of_[raw(tensor)], std::move(places), std::move(guards), scalar.fill.to_double());
}

std::optional<bool> Emission::known_here(std::size_t s, ScalarId condition) {
  const auto& epilogue = plan_.scopes[s].epilogue;
  const auto known = [&](ExprId e) -> std::optional<bool> {
    const Interval range = forms_.bounds(forms_.form(nest_.arena, over_loops(s, e)));
    if (range.least >= 0) return true;
    return range.greatest < 0 ? std::optional(false) : std::nullopt;
  };
  return decided(plan_.program, nest_.arena, condition, known,
                 epilogue ? std::optional(epilogue->value) : std::nullopt);
}

ValueId Emission::value(std::size_t s, ScalarId id, Body& body) {
  if (const auto found = body.done.find(id); found != body.done.end()) return found->second;
  const Scalar scalar = plan_.program.scalar(id);
  ValueId made{};
  switch (scalar.kind) {
    case ScalarKind::Literal: {
      const auto [same, added] =
          body.literals.try_emplace({scalar.literal.num(), scalar.literal.den()}, ValueId{});
      if (added) same->second = nest_.literal(scalar.literal.to_double());
      made = same->second;
      break;
    }
    case ScalarKind::Index: {
      const auto [same, added] = body.indices.try_emplace(scalar.index, ValueId{});
      std::vector<Condition> ignored;
      if (added)
        same->second = nest_.index_value(
            tidy(over_loops(s, symbolic::without_inside(nest_.arena, scalar.index, ignored))));
      made = same->second;
      break;
    }
    case ScalarKind::Read: {
      const auto [same, added] = body.reads.try_emplace(
          {scalar.tensor, scalar.indices, scalar.fill.num(), scalar.fill.den()}, ValueId{});
      if (added) same->second = read(s, scalar);
      made = same->second;
      break;
    }
    case ScalarKind::Unary:
    case ScalarKind::Binary:
    case ScalarKind::Select: {
      if (scalar.kind == ScalarKind::Select)
        if (const auto holds = known_here(s, scalar.a)) {  // the other branch may lie outside of all it reads
          made = value(s, *holds ? scalar.b : scalar.c, body);
          break;
        }
      std::array<ValueId, 3> parts{};
      parts[0] = value(s, scalar.a, body);
      if (scalar.kind != ScalarKind::Unary) parts[1] = value(s, scalar.b, body);
      if (scalar.kind == ScalarKind::Select) parts[2] = value(s, scalar.c, body);
      const bool select = scalar.kind == ScalarKind::Select;
      const auto [same, added] = body.equal.try_emplace(
          {scalar.kind, select ? program::Function{} : scalar.function, parts}, ValueId{});
      if (added)
        same->second = select                             ? nest_.select(parts[0], parts[1], parts[2])
                       : scalar.kind == ScalarKind::Unary ? nest_.unary(scalar.function, parts[0])
                                                          : nest_.binary(scalar.function, parts[0], parts[1]);
      made = same->second;
      break;
    }
  }
  body.done.emplace(id, made);
  return made;
}

ScalarId Emission::without_factor(ScalarId id, double& factor) {
  const Scalar scalar = plan_.program.scalar(id);
  if (!program::is_call(scalar, program::Function::Multiply)) return id;
  for (const auto& [literal, other] : {std::pair{scalar.a, scalar.b}, std::pair{scalar.b, scalar.a}}) {
    const Scalar& l = plan_.program.scalar(literal);
    if (l.kind != ScalarKind::Literal || l.literal.num() == 0) continue;
    factor *= l.literal.to_double();
    return without_factor(other, factor);
  }
  const ScalarId a = without_factor(scalar.a, factor), b = without_factor(scalar.b, factor);
  if (a == scalar.a && b == scalar.b) return id;
  return plan_.program.binary(program::Function::Multiply, a, b);
}

ValueId Emission::body_value(std::size_t s) {
  Body body;
  return value(s, plan_.program.scopes[s].body, body);
}

ValueId Emission::finished(std::size_t s, ValueId result) {
  const auto& epilogue = plan_.scopes[s].epilogue;
  if (!epilogue) return result;
  Body body;
  body.done.emplace(epilogue->value, result);
  return value(s, epilogue->body, body);
}

StatementId Emission::write(std::size_t s, StoreMode mode, const std::function<ValueId()>& make) {
  return write_at(s, mode, [&](const std::vector<ExprId>&) { return make(); });
}

StatementId Emission::rewrite(std::size_t s, const std::function<ValueId(ValueId)>& make) {
  const BufferId buffer = buffer_of_[raw(plan_.program.scopes[s].output)];
  return write_at(s, StoreMode::Assign,
                  [&](const std::vector<ExprId>& places) { return make(nest_.load(buffer, places)); });
}

StatementId Emission::write_at(std::size_t s, StoreMode mode,
                               const std::function<ValueId(const std::vector<ExprId>&)>& make) {
  const program::Scope& scope = plan_.program.scopes[s];
  const TensorId tensor = scope.output;
  std::vector<Condition> conditions;
  // Dead iterations may write owned memory where nobody looks, which is past the end of a dimension; they
  // must not add to it. A staged copy has no room for them.
  const bool anywhere = owned(tensor) && !plan_.scopes[s].total && mode == StoreMode::Assign;
  conditions = anywhere ? shared_rests(s) : rests(s, false);
  std::vector<ExprId> indices = facts_[s].outputs;
  if (!scope.target.empty()) {
    std::vector<Condition> wanted;
    const auto& dims = plan_.program.tensor(tensor).dims;
    for (std::size_t d = 0; d < dims.size(); ++d) {
      const ExprId e = symbolic::without_inside(nest_.arena, scope.target[d], wanted);
      const auto [begin, end] = plan_.range(dims[d]);
      wanted.push_back({e, begin, end});
      indices.push_back(over_loops(s, e));
    }
    for (const auto& condition : wanted) {
      const ExprId e = tidy(over_loops(s, condition.expr));
      if (never(e, condition.begin, condition.end)) return nest_.sequence({});
      if (!within(e, condition.begin, condition.end))
        conditions.push_back({e, condition.begin, condition.end});
    }
  }
  return where(std::move(conditions), [&] {
    std::vector<ExprId> places = place(tensor, indices);
    std::vector<Condition> room;
    if (owned(tensor)) {
      make_room(tensor, places, room);
    } else {
      // What a fused loop's rest says of its parts is beyond interval arithmetic: say it of the index.
      for (std::size_t d = 0; d < places.size(); ++d)
        if (!within(places[d], 0, shapes_[raw(tensor)][d]))
          room.push_back({places[d], 0, shapes_[raw(tensor)][d]});
      for (const Condition& condition : outside_live(tensor, places)) room.push_back(condition);
    }
    const ValueId written = make(places);
    return nest_.guard(std::move(room),
                       nest_.store(buffer_of_[raw(tensor)], std::move(places), written, mode));
  });
}

StatementId Emission::zero(TensorId tensor) {
  constexpr std::int64_t kLanes = 16;
  const BufferId buffer = buffer_of_[raw(tensor)];
  const Shape extents = nest_.buffer(buffer).extents;
  std::vector<ExprId> indices;
  const std::function<StatementId(std::size_t)> over = [&](std::size_t d) -> StatementId {
    if (d == extents.size())
      return nest_.guard(outside_live(tensor, indices), nest_.store(buffer, indices, nest_.literal(0)));
    const std::uint32_t slot = nest_.new_slot();
    const ExprId variable = nest_.arena.iterator(slot);
    const std::string name = fmt::format("zero{}", slot);
    if (d + 1 < extents.size() || extents[d] <= kLanes) {
      indices.push_back(variable);
      const StatementId inside = over(d + 1);
      indices.pop_back();
      return nest_.loop(name, slot, extents[d], d + 1 < extents.size() ? LoopKind::Serial : LoopKind::Vector,
                        inside);
    }
    // The last dimension: whole vectors, then the rest.
    std::vector<StatementId> parts;
    const std::uint32_t lane = nest_.new_slot();
    indices.push_back(nest_.arena.add(nest_.arena.multiply(variable, kLanes), nest_.arena.iterator(lane)));
    StatementId inside = over(extents.size());
    indices.pop_back();
    inside = nest_.loop(fmt::format("zero{}", lane), lane, kLanes, LoopKind::Vector, inside);
    parts.push_back(nest_.loop(name, slot, extents[d] / kLanes, LoopKind::Serial, inside));
    if (const std::int64_t left = extents[d] % kLanes; left > 0) {
      const std::uint32_t rest = nest_.new_slot();
      indices.push_back(nest_.arena.add(nest_.arena.constant(extents[d] - left), nest_.arena.iterator(rest)));
      inside = over(extents.size());
      indices.pop_back();
      parts.push_back(nest_.loop(fmt::format("zero{}", rest), rest, left, LoopKind::Vector, inside));
    }
    return nest_.sequence(std::move(parts));
  };
  return over(0);
}

}  // namespace syno::schedule
