#include "derive/bilinear.hpp"

#include <algorithm>
#include <numeric>

#include "derive/tools.hpp"
#include "support/checked.hpp"
#include "support/error.hpp"
#include "symbolic/affine.hpp"

namespace syno::derive {

ScalarId product_of(Program& program, const std::vector<ScalarId>& factors) {
  ScalarId product = factors[0];
  for (std::size_t k = 1; k < factors.size(); ++k)
    product = program.binary(program::Function::Multiply, product, factors[k]);
  return product;
}

TensorId constant_tensor(Program& program, const std::string& name, const std::vector<std::int64_t>& shape,
                         std::vector<Rational> values) {
  for (std::uint32_t t = 0; t < program.tensors.size(); ++t) {
    const Tensor& tensor = program.tensors[t];
    if (tensor.role == program::Role::Constant && tensor.literal == values &&
        program::shape_of(program, TensorId{t}) == shape)
      return TensorId{t};
  }
  Tensor tensor;
  tensor.name = program::fresh_tensor_name(program, name);
  tensor.role = program::Role::Constant;
  for (const std::int64_t extent : shape) tensor.dims.push_back(make_range(program, 0, extent));
  tensor.literal = std::move(values);
  return program.add_tensor(std::move(tensor));
}

std::vector<Rational> values_of(const Matrix& matrix) {
  std::vector<Rational> values;
  for (const auto& row : matrix) values.insert(values.end(), row.begin(), row.end());
  return values;
}

TensorId constant_matrix(Program& program, const std::string& name, const Matrix& matrix) {
  return constant_tensor(
      program, name, {static_cast<std::int64_t>(matrix.size()), static_cast<std::int64_t>(matrix[0].size())},
      values_of(matrix));
}

namespace {

/// Builds a transformed operand: its iterators, each with its place in the scope that reads it.
class Operand {
 public:
  Operand(Program& program, const Scope& scope, const Transformed& wanted)
      : program_(program), scope_(scope), wanted_(wanted), context_(program::context_of(program)) {
    for (const auto& [slot, value] : wanted.values) gone_.push_back(slot);
  }

  ScalarId make(std::size_t& at, const std::string& name) {
    auto& arena = program_.arena;
    const ExprId product = arena.iterator(wanted_.product.slot);
    const ExprId own_product = add_point(wanted_.product.name, wanted_.product.range, product);
    const Scalar factor = program_.scalar(wanted_.factor);
    const ScalarId body = by_dimension(factor) ? along_dimensions(factor) : over_iterators();

    std::vector<ExprId> entry{own_product};
    std::vector<ExprId> reads;
    for (const Iterator& inner : wanted_.inner) entry.push_back(arena.iterator(inner.slot));
    Scope made;
    made.traversal = points_;
    made.sums = wanted_.inner;
    made.reduction = program::Reduction::Sum;
    made.output = add_computed(program_, program::fresh_tensor_name(program_, name), points_);
    made.body = program_.binary(Function::Multiply, program_.read(wanted_.matrix, std::move(entry)), body);
    program_.scopes.insert(program_.scopes.begin() + static_cast<std::ptrdiff_t>(at), std::move(made));
    simplify_scope(program_, at);
    ++at;
    return program_.read(program_.scopes[at - 1].output, places_);
  }

 private:
  bool goes(const Iterator& iterator) const {
    return std::find(gone_.begin(), gone_.end(), iterator.slot) != gone_.end();
  }
  bool moves(ExprId e) const {
    return std::any_of(gone_.begin(), gone_.end(),
                       [&](std::uint32_t slot) { return depends_on(program_, e, slot); });
  }

  /// Whether what the operand reads past its ends is 0, transformed or not.
  bool by_dimension(const Scalar& factor) const {
    if (factor.kind != ScalarKind::Read || !(factor.fill == Rational(0))) return false;
    for (std::size_t d = 0; d < factor.indices.size(); ++d)
      if (!moves(factor.indices[d]) && coordinate(factor, d).begin >= coordinate(factor, d).end) return false;
    return true;
  }

  /// Index d of a read is step * v + offset with v in [begin, end), or outside of the tensor.
  struct Coordinate {
    std::int64_t step = 1, offset = 0, begin = 0, end = 0;
    ExprId value{};  ///< v in the scope that reads
  };
  Coordinate coordinate(const Scalar& factor, std::size_t d) const {
    auto& arena = program_.arena;
    const ExprId index = factor.indices[d];
    Coordinate made;
    made.value = index;
    if (symbolic::is_affine(arena, index)) {
      auto form = symbolic::affine_form(arena, index);
      std::int64_t step = 0;
      for (const auto& [atom, coefficient] : form.terms) step = std::gcd(step, coefficient);
      if (step > 1) {
        made.step = step;
        made.offset = floor_modulo(form.constant, step);
        form.constant = (form.constant - made.offset) / step;
        for (auto& [atom, coefficient] : form.terms) coefficient /= step;
        made.value = symbolic::expression_of(arena, form);
      }
    }
    const symbolic::Interval reach = symbolic::bounds(arena, made.value, context_, 0);
    const auto [begin, end] = range_of(program_, program_.tensor(factor.tensor).dims[d]);
    made.begin = std::max(reach.least, -floor_divide(made.offset - begin, made.step));
    made.end = std::min(reach.greatest, floor_divide(end - 1 - made.offset, made.step)) + 1;
    return made;
  }

  ExprId add_point(const std::string& name, program::Range range, ExprId place) {
    std::string unique = name;
    const auto taken = [&] {
      const auto same = [&](const Iterator& i) { return i.name == unique; };
      return std::any_of(points_.begin(), points_.end(), same) ||
             std::any_of(wanted_.inner.begin(), wanted_.inner.end(), same);
    };
    for (int n = 2; taken(); ++n) unique = name + std::to_string(n);
    points_.push_back(program_.new_iterator(unique, range));
    places_.push_back(place);
    return program_.arena.iterator(points_.back().slot);
  }

  /// The iterator of the transformed operand for one of the scope's, or for one that comes.
  void keep(const Iterator& iterator) {
    for (const auto& [slot, own] : own_)
      if (slot == iterator.slot) return;
    own_.emplace_back(iterator.slot,
                      add_point(iterator.name, iterator.range, program_.arena.iterator(iterator.slot)));
  }

  /// An index with those iterators' own in their place.
  ExprId over_own(ExprId e) {
    auto& arena = program_.arena;
    const auto value_of = [&](std::uint32_t slot, const auto& from) {
      for (const auto& [known, value] : from)
        if (known == slot) return value;
      return arena.iterator(slot);
    };
    const ExprId moved = arena.substitute(e, [&](std::uint32_t s) { return value_of(s, wanted_.values); });
    return arena.substitute(moved, [&](std::uint32_t s) { return value_of(s, own_); });
  }

  /// Iterators to come that stand for those that go, as far as `depends(slot)` says.
  template <class Depends>
  void keep_outer(Depends&& depends) {
    for (const Iterator& outer : wanted_.outer)
      for (const auto& [slot, value] : wanted_.values)
        if (depends(slot) && depends_on(program_, value, outer.slot)) keep(outer);
  }

  /// What an index that moves depends on: iterators that stay, then those in the place of those that go.
  void keep_all_in(ExprId e) {
    for (const Iterators* list : {&scope_.traversal, &scope_.sums})
      for (const Iterator& iterator : *list)
        if (depends_on(program_, e, iterator.slot) && !goes(iterator)) keep(iterator);
    keep_outer([&](std::uint32_t slot) { return depends_on(program_, e, slot); });
  }

  ScalarId along_dimensions(const Scalar& factor) {
    auto& arena = program_.arena;
    std::vector<ExprId> indices;
    for (std::size_t d = 0; d < factor.indices.size(); ++d) {
      const ExprId index = factor.indices[d];
      if (moves(index)) {
        keep_all_in(index);
        indices.push_back(over_own(index));
      } else if (arena.iterators(index).empty()) {
        indices.push_back(index);
      } else {
        const Coordinate c = coordinate(factor, d);
        const ExprId v = add_point(name_for_dimension(index), make_range(program_, c.begin, c.end), c.value);
        indices.push_back(arena.add(arena.multiply(v, c.step), arena.constant(c.offset)));
      }
    }
    return program_.read(factor.tensor, std::move(indices));
  }

  std::string name_for_dimension(ExprId index) const {
    for (const Iterators* list : {&scope_.traversal, &scope_.sums})
      for (const Iterator& iterator : *list)
        if (depends_on(program_, index, iterator.slot)) return iterator.name;
    return "v";
  }

  ScalarId over_iterators() {
    for (const Iterators* list : {&scope_.traversal, &scope_.sums})
      for (const Iterator& iterator : *list) {
        if (!depends_on(program_, wanted_.factor, iterator.slot)) continue;
        if (goes(iterator))
          keep_outer([&](std::uint32_t slot) { return slot == iterator.slot; });
        else
          keep(iterator);
      }
    return program::rebuild(
        program_, wanted_.factor, [](ScalarId) { return std::optional<ScalarId>(); },
        [&](ExprId e) { return over_own(e); });
  }

  Program& program_;
  const Scope scope_;
  const Transformed& wanted_;
  symbolic::Context context_;
  std::vector<std::uint32_t> gone_;
  Iterators points_;
  std::vector<ExprId> places_;
  std::vector<std::pair<std::uint32_t, ExprId>> own_;
};

}  // namespace

ScalarId transform(Program& program, std::size_t& at, const std::string& name, const Transformed& wanted) {
  return Operand(program, program.scopes[at], wanted).make(at, name);
}

}  // namespace syno::derive
