#include "program/program.hpp"

#include <algorithm>

#include "program/scalars.hpp"
#include "support/error.hpp"
#include "symbolic/simplify.hpp"

namespace syno::program {
bool is_unary(Function function) { return row_of(function).operands == 1; }

std::string_view name_of(Function function) { return row_of(function).symbol; }

std::vector<TensorId> Program::inputs() const {
  std::vector<TensorId> result;
  for (std::uint32_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].role == Role::Input || tensors[i].role == Role::Weight) result.push_back(TensorId{i});
  return result;
}

std::optional<TensorId> Program::find_tensor(std::string_view name) const {
  for (std::uint32_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].name == name) return TensorId{i};
  return std::nullopt;
}

TensorId Program::add_tensor(Tensor tensor) {
  tensors.push_back(std::move(tensor));
  return TensorId{static_cast<std::uint32_t>(tensors.size() - 1)};
}

ScalarId Program::add_scalar(Scalar scalar) {
  scalars.push_back(std::move(scalar));
  return ScalarId{static_cast<std::uint32_t>(scalars.size() - 1)};
}

Iterator Program::new_iterator(std::string name, Range range) {
  return Iterator{std::move(name), next_slot++, range};
}

Range Program::range_of(const Size& extent) { return {arena.constant(0), arena.size(extent)}; }

ScalarId Program::literal(Rational value) {
  Scalar scalar;
  scalar.kind = ScalarKind::Literal;
  scalar.literal = value;
  return add_scalar(std::move(scalar));
}

ScalarId Program::read(TensorId tensor, std::vector<ExprId> indices, Rational fill) {
  Scalar scalar;
  scalar.kind = ScalarKind::Read;
  scalar.tensor = tensor;
  scalar.indices = std::move(indices);
  scalar.fill = fill;
  return add_scalar(std::move(scalar));
}

ScalarId Program::index_value(ExprId index) {
  Scalar scalar;
  scalar.kind = ScalarKind::Index;
  scalar.index = index;
  return add_scalar(std::move(scalar));
}

ScalarId Program::unary(Function function, ScalarId a) {
  SYNO_ASSERT(is_unary(function), "a unary node has a unary function");
  Scalar scalar;
  scalar.kind = ScalarKind::Unary;
  scalar.function = function;
  scalar.a = a;
  return add_scalar(std::move(scalar));
}

ScalarId Program::binary(Function function, ScalarId a, ScalarId b) {
  SYNO_ASSERT(!is_unary(function), "a binary node has a binary function");
  Scalar scalar;
  scalar.kind = ScalarKind::Binary;
  scalar.function = function;
  scalar.a = a;
  scalar.b = b;
  return add_scalar(std::move(scalar));
}

ScalarId Program::select(ScalarId condition, ScalarId yes, ScalarId no) {
  Scalar scalar;
  scalar.kind = ScalarKind::Select;
  scalar.a = condition;
  scalar.b = yes;
  scalar.c = no;
  return add_scalar(std::move(scalar));
}

std::vector<ScalarId> scalars_of(const Program& program, ScalarId root) {
  // Largest first, from a heap: a body costs what is in it, however many scalars the program has.
  std::vector<ScalarId> result, waiting{root};
  while (!waiting.empty()) {
    std::pop_heap(waiting.begin(), waiting.end());
    const ScalarId id = waiting.back();
    waiting.pop_back();
    if (!result.empty() && result.back() == id) continue;
    result.push_back(id);
    over_operands(program.scalar(id), [&](ScalarId operand) {
      SYNO_ASSERT(operand < id, "operands precede the scalar that uses them");
      waiting.push_back(operand);
      std::push_heap(waiting.begin(), waiting.end());
    });
  }
  std::reverse(result.begin(), result.end());
  return result;
}

std::string fresh_tensor_name(const Program& program, std::string_view wanted) {
  std::string name(wanted);
  for (int i = 2; program.find_tensor(name); ++i) name = fmt::format("{}{}", wanted, i);
  return name;
}

symbolic::Context context_of(const Program& program) {
  std::vector<Range> ranges(program.next_slot);
  for (const Scope& scope : program.scopes) {
    for (const Iterator& iterator : scope.traversal) ranges.at(iterator.slot) = iterator.range;
    for (const Iterator& iterator : scope.sums) ranges.at(iterator.slot) = iterator.range;
  }
  symbolic::Context context;
  context.sizes = &program.sizes;
  context.range = [ranges = std::move(ranges)](std::uint32_t slot) {
    SYNO_ASSERT(slot < ranges.size(), "every iterator has a slot of its program");
    return ranges[slot];
  };
  return context;
}

Program at(const Program& symbolic, std::size_t valuation) {
  if (valuation >= symbolic.sizes.valuation_count())
    fail<ShapeError>("at", "valuation {} asked for, but the program has {}", valuation,
                     symbolic.sizes.valuation_count());
  Program result;
  result.next_slot = symbolic.next_slot;
  result.outputs = symbolic.outputs;

  const auto resize = [&](const Size& size) { return Size(symbolic.sizes.integer_value(size, valuation)); };
  const auto import = [&](ExprId root) { return result.arena.import(symbolic.arena, root, resize); };
  const auto number = [&](ExprId root) {
    const auto value = evaluate(symbolic.arena, root, symbolic.sizes, valuation, {});
    if (!value) fail<ShapeError>("at", "the bound of a range has a guard that fails");
    return result.arena.constant(*value);
  };
  const auto concrete_range = [&](Range range) { return Range{number(range.begin), number(range.end)}; };

  for (const Tensor& tensor : symbolic.tensors) {
    Tensor copy{tensor.name, tensor.role, {}, tensor.literal};
    for (const Range& dim : tensor.dims) copy.dims.push_back(concrete_range(dim));
    result.add_tensor(std::move(copy));
  }
  result.scopes = symbolic.scopes;
  for (Scope& scope : result.scopes) {
    for (Iterator& iterator : scope.traversal) iterator.range = concrete_range(iterator.range);
    for (Iterator& iterator : scope.sums) iterator.range = concrete_range(iterator.range);
  }
  // Ranges first: the simplifier reads them while it rewrites the indices.
  const symbolic::Context context = context_of(result);
  const auto concrete = [&](ExprId root) { return simplify(result.arena, import(root), context); };
  result.scalars = symbolic.scalars;
  for (Scalar& scalar : result.scalars) over_indices(scalar, [&](ExprId& index) { index = concrete(index); });
  for (Scope& scope : result.scopes)
    for (ExprId& index : scope.target) index = concrete(index);
  return result;
}

std::vector<std::int64_t> shape_of(const Program& program, TensorId tensor, std::size_t valuation) {
  std::vector<std::int64_t> shape;
  for (const Range& dim : program.tensor(tensor).dims) {
    const Extent extent = extent_of(program, dim, valuation);
    shape.push_back(extent.end - extent.begin);
  }
  return shape;
}

std::vector<std::int64_t> shape_of(const Program& concrete, TensorId tensor) {
  if (!concrete.concrete())
    fail<ShapeError>("shape_of", "the shape of '{}' depends on symbolic sizes: choose a valuation with at()",
                     concrete.tensor(tensor).name);
  return shape_of(concrete, tensor, 0);
}

Extent extent_of(const Program& program, const Range& range, std::size_t valuation) {
  const auto bound = [&](ExprId id) {
    const auto value = evaluate(program.arena, id, program.sizes, valuation, {});
    if (!value) fail<ShapeError>("extent_of", "the bound of a range has a guard that fails");
    return *value;
  };
  return {bound(range.begin), bound(range.end)};
}

std::int64_t checked_product(std::string_view where, const std::vector<std::int64_t>& factors) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors)
    if (__builtin_mul_overflow(product, factor, &product))
      fail<ShapeError>(where, "the product of the sizes {} does not fit 64 bits", fmt::join(factors, " x "));
  return product;
}

}  // namespace syno::program
