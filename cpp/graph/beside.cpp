#include "graph/beside.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "program/scalars.hpp"
#include "support/error.hpp"
#include "symbolic/affine.hpp"

namespace syno::graph {

namespace {

using program::Scalar;
using program::ScalarId;
using program::ScalarKind;
using program::Scope;
using symbolic::ExprId;
using symbolic::Size;
using Shape = std::vector<std::int64_t>;

std::size_t place(program::TensorId id) { return static_cast<std::size_t>(id); }

/// Follows a lane through the scopes of a program.
class Following {
 public:
  explicit Following(const Program& program) : program_(program) {
    lane_.dims.resize(program.tensors.size());
    lane_.slots.resize(program.next_slot);
  }

  std::optional<Lane> from(program::TensorId tensor, std::size_t dim) {
    if (dim >= program_.tensor(tensor).dims.size()) return std::nullopt;
    lane_.extent = program::extent_of(program_, program_.tensor(tensor).dims[dim], 0).end;
    if (!take(tensor, dim)) return std::nullopt;
    while (!waiting_.empty()) {
      const auto next = waiting_.back();
      waiting_.pop_back();
      for (const Scope& scope : program_.scopes)
        if (!through(scope, next)) return std::nullopt;
    }
    return std::move(lane_);
  }

 private:
  bool take(program::TensorId tensor, std::size_t dim) {
    auto& known = lane_.dims[place(tensor)];
    if (known) return *known == dim;
    const program::Tensor& here = program_.tensor(tensor);
    if (here.role == program::Role::Constant || !is_whole(here.dims[dim])) return false;
    known = dim;
    waiting_.push_back(tensor);
    return true;
  }

  bool is_whole(const program::Range& range) const {
    const auto extent = program::extent_of(program_, range, 0);
    return extent.begin == 0 && extent.end == lane_.extent && range.live == symbolic::Live{};
  }

  /// The iterators of a scope that a tensor of the lane makes ones over it, and what they make in turn.
  bool through(const Scope& scope, program::TensorId tensor) {
    const std::size_t dim = *lane_.dims[place(tensor)];
    if (scope.output == tensor && (!scope.target.empty() || !iterate(scope, scope.traversal[dim].slot)))
      return false;
    for (const ScalarId id : program::reads_in(program_, scope.body)) {
      const Scalar& read = program_.scalar(id);
      if (read.tensor == tensor && !iterate(scope, symbolic::slot_of(program_.arena, read.indices[dim])))
        return false;
    }
    return true;
  }

  bool iterate(const Scope& scope, std::uint32_t slot) {
    if (slot == symbolic::kNoSlot) return false;
    if (lane_.slots[slot]) return true;
    const auto found = std::find_if(scope.traversal.begin(), scope.traversal.end(),
                                    [&](const program::Iterator& iterator) { return iterator.slot == slot; });
    if (found == scope.traversal.end() || !scope.target.empty() || !is_whole(found->range)) return false;
    lane_.slots[slot] = true;
    if (!take(scope.output, static_cast<std::size_t>(found - scope.traversal.begin()))) return false;
    bool alone = true;
    program::visit(program_, scope.body, [&](ScalarId, const Scalar& scalar) {
      if (scalar.kind == ScalarKind::Index) alone = alone && !has(scalar.index, slot);
      for (std::size_t d = 0; d < scalar.indices.size(); ++d)
        if (has(scalar.indices[d], slot))
          alone =
              alone && symbolic::slot_of(program_.arena, scalar.indices[d]) == slot && take(scalar.tensor, d);
      return alone;
    });
    return alone;
  }
  bool has(ExprId index, std::uint32_t slot) const {
    const auto slots = program_.arena.iterators(index);
    return std::binary_search(slots.begin(), slots.end(), slot);
  }

  const Program& program_;
  Lane lane_;
  std::vector<program::TensorId> waiting_;
};

/// A program of one scope over `shape`, to which inputs and the body are added.
struct Reading {
  Program made;
  Scope scope;
  std::vector<ExprId> at;  ///< the iterators

  explicit Reading(const Shape& shape) {
    for (std::size_t d = 0; d < shape.size(); ++d) {
      scope.traversal.push_back(made.new_iterator(fmt::format("i{}", d), made.range_of(Size(shape[d]))));
      at.push_back(made.arena.iterator(scope.traversal[d].slot));
    }
  }
  program::TensorId tensor(const std::string& name, const Shape& shape, program::Role role) {
    program::Tensor added{name, role, {}, {}};
    for (const std::int64_t extent : shape) added.dims.push_back(made.range_of(Size(extent)));
    return made.add_tensor(std::move(added));
  }
  Program finish(const Shape& shape, ScalarId body) {
    scope.body = body;
    scope.output = tensor("y", shape, program::Role::Computed);
    made.outputs = {scope.output};
    made.scopes.push_back(std::move(scope));
    return std::move(made);
  }
};

/// What `read(part)` says of the first part whose end is above the index of a dimension.
template <class Read>
ScalarId chosen(Reading& in, std::size_t dim, const Shape& ends, Read&& read) {
  ScalarId body = read(ends.size() - 1);
  for (std::size_t part = ends.size() - 1; part-- > 0;) {
    const ScalarId below = in.made.binary(program::Function::Less, in.made.index_value(in.at[dim]),
                                          in.made.literal(Rational(ends[part])));
    body = in.made.select(below, read(part), body);
  }
  return body;
}

}  // namespace

std::optional<Lane> lane_of(const Program& program, program::TensorId tensor, std::size_t dim) {
  return Following(program).from(tensor, dim);
}

Program widened(const Program& program, const Lane& lane, std::int64_t extent) {
  Program made = program;
  const program::Range range = made.range_of(Size(extent));
  for (std::size_t t = 0; t < made.tensors.size(); ++t)
    if (lane.dims[t]) made.tensors[t].dims[*lane.dims[t]] = range;
  for (Scope& scope : made.scopes)
    for (program::Iterator& iterator : scope.traversal)
      if (lane.slots[iterator.slot]) iterator.range = range;
  return made;
}

Program stacked(const Program& program, std::vector<bool> differ, std::int64_t count) {
  Program made = program;
  // Scopes stand behind what they read, but several may add to one tensor.
  for (bool more = true; more;) {
    more = false;
    for (const Scope& scope : made.scopes) {
      if (differ[place(scope.output)]) continue;
      for (const ScalarId id : program::reads_in(made, scope.body))
        if (differ[place(made.scalar(id).tensor)]) more = differ[place(scope.output)] = true;
    }
  }
  for (Scope& scope : made.scopes) {
    if (!differ[place(scope.output)]) continue;
    const program::Iterator which = made.new_iterator("j", made.range_of(Size(count)));
    const ExprId index = made.arena.iterator(which.slot);
    scope.traversal.insert(scope.traversal.begin(), which);
    if (!scope.target.empty()) scope.target.insert(scope.target.begin(), index);
    std::map<ScalarId, ScalarId> copies;
    scope.body = program::copy_body(made, scope.body, made, copies, [&](Scalar& scalar) {
      if (scalar.kind == ScalarKind::Read && differ[place(scalar.tensor)])
        scalar.indices.insert(scalar.indices.begin(), index);
    });
  }
  const program::Range range = made.range_of(Size(count));
  for (std::size_t t = 0; t < made.tensors.size(); ++t)
    if (differ[t]) made.tensors[t].dims.insert(made.tensors[t].dims.begin(), range);
  return made;
}

Program concatenated(const std::vector<Shape>& shapes, std::size_t dim) {
  Shape whole = shapes[0], ends;
  whole[dim] = 0;
  for (const Shape& shape : shapes) ends.push_back(whole[dim] += shape[dim]);
  Reading in(whole);
  std::vector<program::TensorId> parts;
  for (std::size_t part = 0; part < shapes.size(); ++part)
    parts.push_back(in.tensor(fmt::format("x{}", part), shapes[part], program::Role::Input));
  const ScalarId body = chosen(in, dim, ends, [&](std::size_t part) {
    std::vector<ExprId> at = in.at;
    if (part > 0) at[dim] = in.made.arena.add(at[dim], in.made.arena.constant(-ends[part - 1]));
    return in.made.read(parts[part], at);
  });
  return in.finish(whole, body);
}

Program piled(const Shape& shape, std::int64_t count) {
  Shape whole = shape, ends;
  whole.insert(whole.begin(), count);
  for (std::int64_t end = 1; end <= count; ++end) ends.push_back(end);
  Reading in(whole);
  std::vector<program::TensorId> parts;
  for (std::int64_t part = 0; part < count; ++part)
    parts.push_back(in.tensor(fmt::format("x{}", part), shape, program::Role::Input));
  const ScalarId body = chosen(in, 0, ends, [&](std::size_t part) {
    return in.made.read(parts[part], std::vector<ExprId>(in.at.begin() + 1, in.at.end()));
  });
  return in.finish(whole, body);
}

Program sliced(const Shape& shape, std::size_t dim, std::int64_t begin, std::int64_t end, bool drop) {
  SYNO_ASSERT(!drop || end == begin + 1, "a dimension of one element is dropped");
  Shape part = shape;
  part[dim] = end - begin;
  if (drop) part.erase(part.begin() + static_cast<std::ptrdiff_t>(dim));
  Reading in(part);
  const program::TensorId whole = in.tensor("x", shape, program::Role::Input);
  std::vector<ExprId> at = in.at;
  const ExprId first = in.made.arena.constant(begin);
  if (drop)
    at.insert(at.begin() + static_cast<std::ptrdiff_t>(dim), first);
  else
    at[dim] = in.made.arena.add(at[dim], first);
  return in.finish(part, in.made.read(whole, std::move(at)));
}

}  // namespace syno::graph
