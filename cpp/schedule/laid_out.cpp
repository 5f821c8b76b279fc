#include "schedule/laid_out.hpp"

#include <algorithm>
#include <optional>

#include "derive/moved.hpp"
#include "program/scalars.hpp"
#include "support/error.hpp"
#include "symbolic/affine.hpp"
#include "symbolic/simplify.hpp"

namespace syno::schedule {

namespace {

using derive::Iterators;
using program::Program;
using program::Scalar;
using program::ScalarId;
using program::ScalarKind;
using program::Scope;
using program::TensorId;
using symbolic::Arena;
using symbolic::Simplifier;
using symbolic::Size;

constexpr const char* kLaidOut = "layout";
constexpr std::int64_t kMostNodes = 80;  ///< of an index, so that texts can be read back

std::vector<Shape> shapes_of(const Layout& layout, const Shape& shape) {
  std::vector<Shape> shapes{shape};
  for (const LayoutStep& step : layout)
    shapes.push_back(layout_primitive(step.kind).shape(step, shapes.back()));
  static_cast<void>(program::checked_product(kLaidOut, shapes.back()));
  return shapes;
}

/// Names for the places' iterators: what a dimension is made of says what it is called.
std::vector<std::string> named_places(const Layout& layout, const std::vector<Shape>& shapes,
                                      std::vector<std::string> names) {
  for (std::size_t s = 0; s < layout.size(); ++s) {
    const LayoutStep& step = layout[s];
    const auto at = names.begin() + static_cast<std::ptrdiff_t>(step.dim);
    switch (step.kind) {
      case LayoutKind::Split:
        for (std::size_t part = 1; part < step.numbers.size(); ++part)
          names.insert(names.begin() + static_cast<std::ptrdiff_t>(step.dim + part), names[step.dim] + "m");
        break;
      case LayoutKind::Unfold:
        names.insert(at + 1, names[step.dim] + "m");
        break;
      case LayoutKind::Fuse:
        names.erase(at + 1, at + static_cast<std::ptrdiff_t>(step.numbers[0]));
        break;
      case LayoutKind::Reorder: {
        std::vector<std::string> before = names;
        for (std::size_t d = 0; d < before.size(); ++d)
          names[d] = before[static_cast<std::size_t>(step.numbers[d])];
        break;
      }
      case LayoutKind::Pad:
      case LayoutKind::StoreAt:
        break;
    }
    SYNO_ASSERT(names.size() == shapes[s + 1].size(), "a name for each dimension");
  }
  return names;
}

/// Places of elements, with guards only where an index that is no element's would lead to an element's place.
class Places {
 public:
  explicit Places(Program& program)
      : arena_(program.arena), context_(program::context_of(program)), simplify_(arena_, context_) {}

  ExprId simple(ExprId index) { return simplify_(index); }

  /// S(indices), of a read that is worth `fill` elsewhere.
  std::vector<ExprId> of(const Layout& layout, const std::vector<Shape>& shapes, std::vector<ExprId> indices,
                         const Rational& fill) {
    for (ExprId& index : indices) index = simplify_(index);
    for (std::size_t s = 0; s < layout.size(); ++s) step(layout[s], shapes[s], indices, fill == Rational(0));
    for (std::size_t d = 0; d < indices.size(); ++d) {
      indices[d] = simplify_(indices[d]);
      // A read checks its indices itself.
      const symbolic::Expr& node = arena_[indices[d]];
      if (node.op == symbolic::Op::Inside && symbolic::integer_of(arena_, node.size) == shapes.back()[d])
        indices[d] = node.a;
    }
    return indices;
  }

  /// The index where it lies within the extent.
  ExprId guarded(ExprId index, std::int64_t extent) {
    return within(index, extent) ? index : arena_.inside(index, Size(extent));
  }

  bool within(ExprId index, std::int64_t begin, std::int64_t end) const {
    const symbolic::Interval reach = symbolic::bounds(arena_, index, context_, 0);
    return reach.least >= begin && reach.greatest < end;
  }

 private:
  bool within(ExprId index, std::int64_t extent) const { return within(index, 0, extent); }

  void step(const LayoutStep& step, const Shape& shape, std::vector<ExprId>& indices, bool zero) {
    const auto guard = [&](std::size_t d) { indices[d] = guarded(indices[d], shape[d]); };
    switch (step.kind) {
      case LayoutKind::Reorder:
      case LayoutKind::Split:  // its first part shows what is outside
        break;
      case LayoutKind::Fuse:  // and so does the first that is fused
        for (std::size_t d = step.dim + 1; d < step.dim + static_cast<std::size_t>(step.numbers[0]); ++d)
          guard(d);
        break;
      case LayoutKind::Pad:
        if (!zero) guard(step.dim);  // what is padded with is 0
        break;
      case LayoutKind::StoreAt:
        guard(step.dim);
        break;
      case LayoutKind::Unfold:
        if (zero && windows(step, shape, indices)) return;
        guard(step.dim);
        if (windows(step, shape, indices)) return;
        break;
    }
    indices = layout_primitive(step.kind).access(arena_, step, shape, std::move(indices));
    for (ExprId& index : indices) index = simplify_(index);
  }

  /// V*i + r as r' of the tile that holds all the window of i (ALT §4.1.1).
  bool windows(const LayoutStep& step, const Shape& shape, std::vector<ExprId>& indices) {
    const std::int64_t tile = step.numbers[0], stride = step.numbers[1];
    const std::int64_t tiles = layout_primitive(step.kind).shape(step, shape)[step.dim];
    const ExprId index = indices[step.dim];
    const auto form = symbolic::affine_form(arena_, index);
    for (const auto& [atom, coefficient] : form.terms) {
      if (coefficient <= 0 || stride % coefficient != 0) continue;
      const Size windows_of_tile(stride / coefficient);
      const ExprId rest = arena_.subtract(index, arena_.multiply(atom, coefficient));
      const ExprId which = simplify_(arena_.divide(atom, windows_of_tile));
      const ExprId inner =
          simplify_(arena_.add(arena_.multiply(arena_.modulo(atom, windows_of_tile), coefficient), rest));
      if (!within(which, tiles) || !within(inner, tile)) continue;
      indices[step.dim] = which;
      indices.insert(indices.begin() + static_cast<std::ptrdiff_t>(step.dim) + 1, inner);
      return true;
    }
    return false;
  }

  Arena& arena_;
  symbolic::Context context_;
  Simplifier simplify_;
};

/// What the two directions have in common.
class Laying {
 public:
  Laying(Program& program, TensorId tensor, const Layout& layout, const Shape& shape)
      : program_(program), tensor_(tensor), layout_(layout), shapes_(shapes_of(layout, shape)) {}

  Program forth() {
    const auto writer = writer_of_tensor(is_bijective(layout_, shapes_[0]));
    const auto ranges = program_.tensor(tensor_).dims;
    std::vector<ExprId> begins;
    for (const auto& range : ranges) begins.push_back(range.begin);
    if (program_.tensor(tensor_).role == program::Role::Constant) literal_forth();
    resize(shapes_.back());
    if (writer && program_.scopes[*writer].target.empty()) {
      write(*writer, shapes_.back(), named_places(layout_, shapes_, names_of(program_.scopes[*writer])),
            [&](std::vector<ExprId> places, std::vector<Condition>& conditions) {
              auto elements = inverse(program_.arena, layout_, shapes_[0], std::move(places), conditions);
              for (std::size_t d = 0; d < elements.size(); ++d)
                elements[d] = program_.arena.add(elements[d], begins[d]);
              return elements;
            });
    }
    const auto from_begin = [&](std::vector<ExprId> indices) {
      for (std::size_t d = 0; d < indices.size(); ++d)
        indices[d] = program_.arena.subtract(indices[d], begins[d]);
      return indices;
    };
    for (std::size_t s = 0; s < program_.scopes.size(); ++s) {
      const bool target = writer == s && !program_.scopes[s].target.empty();
      if (!target && !program::reads_tensor(program_, program_.scopes[s].body, tensor_)) continue;
      Places places(program_);
      if (target)  // outside, nothing is added
        program_.scopes[s].target =
            places.of(layout_, shapes_, from_begin(program_.scopes[s].target), Rational(1));
      read_instead(s, [&](const Scalar& read) {
        return program_.read(tensor_, places.of(layout_, shapes_, from_begin(read.indices), read.fill),
                             read.fill);
      });
      finish(s);
    }
    return std::move(program_);
  }

  Program back() {
    const auto writer = writer_of_tensor(is_bijective(layout_, shapes_[0]));
    if (program_.tensor(tensor_).role == program::Role::Constant) literal_back();
    const Shape places_shape = shapes_.back();
    resize(shapes_[0]);
    if (writer && program_.scopes[*writer].target.empty()) {
      std::vector<std::string> names;
      for (std::size_t d = 0; d < shapes_[0].size(); ++d) names.push_back(fmt::format("i{}", d));
      write(*writer, shapes_[0], std::move(names), [&](std::vector<ExprId> elements, auto&) {
        return access(program_.arena, layout_, shapes_[0], std::move(elements));
      });
    }
    for (std::size_t s = 0; s < program_.scopes.size(); ++s) {
      const bool target = writer == s && !program_.scopes[s].target.empty();
      if (!target && !program::reads_tensor(program_, program_.scopes[s].body, tensor_)) continue;
      Places places(program_);
      if (target) {
        const Elements at = elements(program_.scopes[s].target, places_shape, places);
        program_.scopes[s].target = guarded(at.indices, at.within, places);
        program_.scopes[s].target = guarded(program_.scopes[s].target, at.holds, places);
      }
      read_instead(s, [&](const Scalar& read) {
        return element_read(read, elements(read.indices, places_shape, places), places);
      });
      finish(s);
    }
    return std::move(program_);
  }

 private:
  std::vector<std::string> names_of(const Scope& scope) const {
    std::vector<std::string> names;
    for (const auto& iterator : scope.traversal) names.push_back(iterator.name);
    return names;
  }

  /// The scope that writes the tensor. One that adds to it may go on doing so where each place holds one
  /// element; else it adds to a tensor of its own, of which this one is a copy.
  std::optional<std::size_t> writer_of_tensor(bool bijective) {
    for (std::size_t s = 0; s < program_.scopes.size(); ++s) {
      if (program_.scopes[s].output != tensor_) continue;
      if (program_.scopes[s].target.empty() || bijective) return s;
      program::Tensor sum = program_.tensor(tensor_);
      sum.role = program::Role::Computed;
      sum.name = program::fresh_tensor_name(program_, sum.name + "_sum");
      Scope copy;
      copy.output = tensor_;
      std::vector<ExprId> at;
      for (std::size_t d = 0; d < sum.dims.size(); ++d) {
        copy.traversal.push_back(program_.new_iterator(fmt::format("i{}", d), sum.dims[d]));
        at.push_back(program_.arena.iterator(copy.traversal.back().slot));
      }
      const TensorId made = program_.add_tensor(std::move(sum));
      copy.body = program_.read(made, std::move(at));
      program_.scopes[s].output = made;
      program_.scopes.insert(program_.scopes.begin() + static_cast<std::ptrdiff_t>(s) + 1, std::move(copy));
      return s + 1;
    }
    return std::nullopt;
  }

  void resize(const Shape& shape) {
    auto& dims = program_.tensors[static_cast<std::size_t>(tensor_)].dims;
    dims.clear();
    for (const std::int64_t extent : shape) dims.push_back(derive::make_range(program_, 0, extent));
  }

  /// The writer runs over `shape`; `old_values` gives its old iterators over the new ones.
  template <class OldValues>
  void write(std::size_t s, const Shape& shape, std::vector<std::string> names, OldValues&& old_values) {
    Scope scope = program_.scopes[s];
    const Iterators before = scope.traversal;
    scope.traversal.clear();
    std::vector<ExprId> here;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      scope.traversal.push_back(program_.new_iterator(derive::fresh_iterator_name(scope, names[d]),
                                                      derive::make_range(program_, 0, shape[d])));
      here.push_back(program_.arena.iterator(scope.traversal.back().slot));
    }
    program_.scopes[s].traversal = scope.traversal;
    Simplifier simplify(program_.arena, program::context_of(program_));
    std::vector<Condition> conditions;
    const auto elements = old_values(std::move(here), conditions);
    std::vector<std::pair<std::uint32_t, ExprId>> values;
    for (std::size_t d = 0; d < before.size(); ++d)
      values.emplace_back(before[d].slot, simplify(elements[d]));
    for (Condition& condition : conditions) condition.expr = simplify(condition.expr);
    program_.scopes[s].body =
        derive::where(program_, program::with_iterators(program_, scope.body, values), conditions);
    finish(s);
  }

  template <class Instead>
  void read_instead(std::size_t s, Instead&& instead) {
    program_.scopes[s].body =
        program::rebuild(program_, program_.scopes[s].body, [&](ScalarId id) -> std::optional<ScalarId> {
          const Scalar read = program_.scalar(id);
          if (read.kind != ScalarKind::Read || read.tensor != tensor_) return std::nullopt;
          return instead(read);
        });
  }

  /// S⁻¹ of places: where the places are some, and where they hold an element.
  struct Elements {
    std::vector<ExprId> indices;
    std::vector<Condition> within, holds;
  };
  Elements elements(std::vector<ExprId> at, const Shape& places_shape, Places& places) {
    Elements found;
    for (std::size_t d = 0; d < at.size(); ++d) {
      at[d] = places.simple(symbolic::without_inside(program_.arena, at[d], found.within));
      found.within.push_back({at[d], 0, places_shape[d]});
    }
    found.indices = inverse(program_.arena, layout_, shapes_[0], std::move(at), found.holds);
    for (ExprId& index : found.indices) index = places.simple(index);
    for (auto* conditions : {&found.within, &found.holds})
      for (Condition& c : *conditions) c.expr = places.simple(c.expr);
    return found;
  }

  /// The indices with a guard for each condition that may fail.
  std::vector<ExprId> guarded(std::vector<ExprId> indices, const std::vector<Condition>& conditions,
                              const Places& places) {
    auto& arena = program_.arena;
    for (const Condition& c : conditions)
      if (!places.within(c.expr, c.begin, c.end))
        indices[0] = arena.add(
            indices[0],
            arena.multiply(
                arena.inside(arena.subtract(c.expr, arena.constant(c.begin)), Size(c.end - c.begin)), 0));
    return indices;
  }

  /// x[place] as x[S⁻¹(place)], 0 at places without an element.
  ScalarId element_read(const Scalar& read, const Elements& at, const Places& places) {
    std::vector<ExprId> indices = guarded(at.indices, at.within, places);
    if (read.fill == Rational(0)) indices = guarded(std::move(indices), at.holds, places);
    const ScalarId made = program_.read(tensor_, std::move(indices), read.fill);
    if (read.fill == Rational(0)) return made;
    std::optional<ScalarId> is_place, holds;
    const auto both = [&](std::optional<ScalarId>& all, const Condition& c) {
      if (places.within(c.expr, c.begin, c.end)) return;
      const auto inside = [&](program::Function compared, ScalarId a, ScalarId b) {
        const ScalarId test = program_.binary(compared, a, b);
        all = all ? program_.binary(program::Function::And, *all, test) : test;
      };
      inside(program::Function::LessEqual, program_.literal(c.begin), program_.index_value(c.expr));
      inside(program::Function::Less, program_.index_value(c.expr), program_.literal(c.end));
    };
    for (const Condition& c : at.within) both(is_place, c);
    for (const Condition& c : at.holds) both(holds, c);
    if (!holds) return made;
    const ScalarId empty = program_.select(*holds, made, program_.literal(0));
    return is_place ? program_.select(*is_place, empty, program_.literal(read.fill)) : empty;
  }

  void literal_forth() {
    auto& tensor = program_.tensors[static_cast<std::size_t>(tensor_)];
    Arena arena;
    std::vector<Condition> conditions;
    std::vector<ExprId> places;
    for (std::uint32_t d = 0; d < shapes_.back().size(); ++d) places.push_back(arena.iterator(d));
    const auto elements = inverse(arena, layout_, shapes_[0], std::move(places), conditions);
    std::vector<Rational> literal;
    over_points(shapes_.back(), [&](const std::vector<std::int64_t>& at) {
      const bool holds = std::all_of(conditions.begin(), conditions.end(), [&](const Condition& c) {
        const auto value = symbolic::evaluate(arena, c.expr, program_.sizes, 0, at);
        return value && *value >= c.begin && *value < c.end;
      });
      literal.push_back(holds ? tensor.literal[offset(arena, elements, shapes_[0], at)] : Rational(0));
    });
    tensor.literal = std::move(literal);
  }

  void literal_back() {
    auto& tensor = program_.tensors[static_cast<std::size_t>(tensor_)];
    Arena arena;
    std::vector<ExprId> elements;
    for (std::uint32_t d = 0; d < shapes_[0].size(); ++d) elements.push_back(arena.iterator(d));
    const auto places = access(arena, layout_, shapes_[0], std::move(elements));
    std::vector<Rational> literal;
    over_points(shapes_[0], [&](const std::vector<std::int64_t>& at) {
      literal.push_back(tensor.literal[offset(arena, places, shapes_.back(), at)]);
    });
    tensor.literal = std::move(literal);
  }

  std::size_t offset(const Arena& arena, const std::vector<ExprId>& indices, const Shape& shape,
                     const std::vector<std::int64_t>& at) const {
    std::int64_t place = 0;
    for (std::size_t d = 0; d < shape.size(); ++d)
      place = place * shape[d] + *symbolic::evaluate(arena, indices[d], program_.sizes, 0, at);
    return static_cast<std::size_t>(place);
  }

  template <class Use>
  static void over_points(const Shape& shape, Use&& use) {
    std::vector<std::int64_t> at(shape.size(), 0);
    for (;;) {
      use(at);
      std::size_t d = shape.size();
      while (d-- > 0 && ++at[d] == shape[d]) at[d] = 0;
      if (d == static_cast<std::size_t>(-1)) return;
    }
  }

  /// The sums of a scope split by what they are divided by, and its indices simplified.
  void finish(std::size_t s) {
    for (const ScalarId id : program::scalars_of(program_, program_.scopes[s].body))
      program::over_indices(program_.scalar(id), [&](ExprId index) {
        std::int64_t left = kMostNodes;
        if (exceeds(index, left))
          fail<ScheduleError>(
              kLaidOut,
              "by {} an index of '{}' has more than {} parts; take fewer steps, above all of unfold",
              to_text(layout_), program_.tensor(program_.scopes[s].output).name, kMostNodes);
      });
    derive::simplify_scope(program_, s);
    while (const auto found = divided_sum(program_.scopes[s])) {
      const auto [at, factor] = *found;
      Scope scope = program_.scopes[s];
      const program::Iterator sum = scope.sums[at];
      const std::int64_t extent = extent_of(sum);
      const auto outer = program_.new_iterator(sum.name, derive::make_range(program_, 0, extent / factor));
      const auto inner = program_.new_iterator(derive::fresh_iterator_name(scope, sum.name + "m"),
                                               derive::make_range(program_, 0, factor));
      auto& arena = program_.arena;
      const ExprId value =
          arena.add(arena.multiply(arena.iterator(outer.slot), factor), arena.iterator(inner.slot));
      scope.sums[at] = outer;
      scope.sums.insert(scope.sums.begin() + static_cast<std::ptrdiff_t>(at) + 1, inner);
      scope.body = program::with_iterators(program_, scope.body, {{sum.slot, value}});
      for (ExprId& target : scope.target)
        target = arena.substitute(
            target, [&](std::uint32_t slot) { return slot == sum.slot ? value : arena.iterator(slot); });
      program_.scopes[s] = std::move(scope);
      derive::simplify_scope(program_, s);
    }
  }

  /// Whether an index is written with more than `left` operations.
  bool exceeds(ExprId index, std::int64_t& left) const {
    const symbolic::Expr& node = program_.arena[index];
    using symbolic::Op;
    if (node.op == Op::Iterator || node.op == Op::Constant || node.op == Op::SizeValue) return false;
    return --left < 0 || exceeds(node.a, left) || (node.op == Op::Add && exceeds(node.b, left));
  }

  std::int64_t extent_of(const program::Iterator& iterator) const {
    const auto [begin, end] = program::extent_of(program_, iterator.range, 0);
    return begin == 0 ? end : 0;
  }

  /// (place among the sums, factor): the least that one of them is divided by, or its remainder taken.
  std::optional<std::pair<std::size_t, std::int64_t>> divided_sum(const Scope& scope) const {
    std::optional<std::pair<std::size_t, std::int64_t>> least;
    const auto look = [&](const symbolic::Expr& node) {
      const std::uint32_t slot = symbolic::slot_of(program_.arena, node.a);
      for (std::size_t k = 0; k < scope.sums.size(); ++k) {
        const std::int64_t extent = extent_of(scope.sums[k]),
                           factor = symbolic::integer_of(program_.arena, node.size);
        if (scope.sums[k].slot == slot && factor > 1 && factor < extent && extent % factor == 0 &&
            (!least || factor < least->second))
          least = {k, factor};
      }
    };
    for (const ScalarId id : program::scalars_of(program_, scope.body))
      program::over_indices(program_.scalar(id), [&](ExprId index) { over_quotients(index, look); });
    return least;
  }

  template <class Look>
  void over_quotients(ExprId root, Look&& look) const {
    const symbolic::Expr node = program_.arena[root];
    switch (node.op) {
      case symbolic::Op::Divide:
      case symbolic::Op::Modulo:
        look(node);
        return over_quotients(node.a, look);
      case symbolic::Op::Add:
        over_quotients(node.a, look);
        return over_quotients(node.b, look);
      case symbolic::Op::Multiply:
      case symbolic::Op::Inside:
        return over_quotients(node.a, look);
      case symbolic::Op::Iterator:
      case symbolic::Op::Constant:
      case symbolic::Op::SizeValue:
        return;
    }
  }

  Program& program_;
  TensorId tensor_;
  const Layout& layout_;
  std::vector<Shape> shapes_;  ///< before each step, and after all
};

void check(const Program& program, TensorId tensor) {
  if (!program.concrete())
    fail<ShapeError>(kLaidOut, "the program has size variables; choose a valuation with at()");
  if (static_cast<std::size_t>(tensor) >= program.tensors.size())
    fail<ShapeError>(kLaidOut, "tensor {} asked for, but the program has {}",
                     static_cast<std::size_t>(tensor), program.tensors.size());
}

}  // namespace

Program laid_out(Program concrete, TensorId tensor, const Layout& layout) {
  check(concrete, tensor);
  const Shape shape = program::shape_of(concrete, tensor);
  return Laying(concrete, tensor, layout, shape).forth();
}

Program without_layout(Program concrete, TensorId tensor, const Layout& layout, const Shape& shape) {
  check(concrete, tensor);
  const Shape places = shape_after(layout, shape), has = program::shape_of(concrete, tensor);
  for (const auto& dim : concrete.tensor(tensor).dims)
    if (program::extent_of(concrete, dim, 0).begin != 0)
      fail<ShapeError>(kLaidOut, "'{}' has indices that do not start at 0", concrete.tensor(tensor).name);
  if (places != has)
    fail<ShapeError>(kLaidOut, "'{}' has shape [{}], but the layout of [{}] has [{}]",
                     concrete.tensor(tensor).name, fmt::join(has, ", "), fmt::join(shape, ", "),
                     fmt::join(places, ", "));
  return Laying(concrete, tensor, layout, shape).back();
}

bool is_bijective(const Layout& layout, const Shape& shape) {
  Shape current = shape;
  for (const LayoutStep& step : layout) {
    const Shape after = layout_primitive(step.kind).shape(step, current);
    const bool grows =
        step.kind == LayoutKind::Unfold || step.kind == LayoutKind::Pad || step.kind == LayoutKind::StoreAt;
    if (grows && program::checked_product(kLaidOut, after) != program::checked_product(kLaidOut, current))
      return false;
    current = after;
  }
  return true;
}

}  // namespace syno::schedule
