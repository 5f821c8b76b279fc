#include "program/builders.hpp"

#include <algorithm>
#include <string>

#include "program/builder_tools.hpp"
#include "program/syntax.hpp"

namespace syno::program {
namespace {

using detail::Composer;
using detail::concat;
using detail::numbered;
using detail::require_positive;
using detail::Shape;

std::vector<Iterator> without(std::vector<Iterator> iterators, std::size_t position) {
  iterators.erase(iterators.begin() + static_cast<std::ptrdiff_t>(position));
  return iterators;
}

}  // namespace

Function function_named(std::string_view name) {
  std::vector<std::string> names;
  for (const FunctionRow& row : kFunctions) {
    if (row.word == name) return row.function;
    names.emplace_back(row.word);
  }
  throw UnknownName("elementwise", unknown_name("function", name, names));
}

Program matmul(std::int64_t m, std::int64_t n, std::int64_t k, const std::vector<std::int64_t>& batch,
               bool transpose_a, bool transpose_b) {
  require_positive("matmul", "m", m);
  require_positive("matmul", "n", n);
  require_positive("matmul", "k", k);
  require_positive("matmul", "batch", batch);
  Composer composer;
  Program& program = composer.program;
  const auto operand = [&](std::string name, Role role, std::int64_t rows, std::int64_t columns,
                           bool transpose) {
    Shape shape = batch;
    shape.push_back(transpose ? columns : rows);
    shape.push_back(transpose ? rows : columns);
    return composer.tensor(std::move(name), role, shape);
  };
  const TensorId a = operand("a", Role::Input, m, k, transpose_a);
  const TensorId b = operand("b", Role::Weight, k, n, transpose_b);
  const std::vector<Iterator> outer = composer.iterators(numbered("b", batch.size()), batch);
  const Iterator row = composer.iterators({"m"}, {m})[0], column = composer.iterators({"n"}, {n})[0];
  const Iterator inner = composer.iterators({"k"}, {k})[0];
  const auto read = [&](TensorId tensor, const Iterator& first, const Iterator& second, bool transpose) {
    const std::vector<Iterator> pair = transpose ? std::vector{second, first} : std::vector{first, second};
    return program.read(tensor, composer.indices(concat(outer, pair)));
  };
  const ScalarId body = program.binary(Function::Multiply, read(a, row, inner, transpose_a),
                                       read(b, inner, column, transpose_b));
  return composer.finish(composer.scope("y", concat(outer, {row, column}), Reduction::Sum, {inner}, body));
}

Program g2bmm(std::int64_t batch, std::int64_t length, std::int64_t features, std::int64_t width,
              std::int64_t dilation) {
  require_positive("g2bmm", "batch", batch);
  require_positive("g2bmm", "length", length);
  require_positive("g2bmm", "features", features);
  require_positive("g2bmm", "dilation", dilation);
  if (width < 0) fail<ShapeError>("g2bmm", "width is {}, but must be at least 0", width);
  Composer composer;
  Program& program = composer.program;
  const TensorId a = composer.tensor("a", Role::Input, {batch, length, features});
  const TensorId c = composer.tensor("c", Role::Input, {batch, length, features});
  const std::vector<Iterator> outer = composer.iterators({"b", "m", "w"}, {batch, length, 2 * width + 1});
  const std::vector<Iterator> sums = composer.iterators({"k"}, {features});
  Arena& arena = program.arena;
  const ExprId band = arena.add(composer.index(outer[2]), arena.constant(-width));
  const ExprId row = arena.add(composer.index(outer[1]), arena.multiply(band, dilation));
  const ScalarId body =
      program.binary(Function::Multiply, program.read(a, composer.indices({outer[0], outer[1], sums[0]})),
                     program.read(c, {composer.index(outer[0]), row, composer.index(sums[0])}));
  return composer.finish(composer.scope("y", outer, Reduction::Sum, sums, body));
}

Program softmax(const std::vector<std::int64_t>& shape, std::size_t dim) {
  require_positive("softmax", "shape", shape);
  if (dim >= shape.size())
    fail<ShapeError>("softmax", "dim {} is not one of the {} dimensions of [{}]", dim, shape.size(),
                     fmt::join(shape, ", "));
  Composer composer;
  Program& program = composer.program;
  const TensorId x = composer.tensor("x", Role::Input, shape);
  const std::vector<std::string> names = numbered("i", shape.size());
  const auto reduce = [&](std::string name, TensorId of, Reduction reduction) {
    const std::vector<Iterator> all = composer.iterators(names, shape);
    return composer.scope(std::move(name), without(all, dim), reduction, {all[dim]},
                          program.read(of, composer.indices(all)));
  };
  // f(of[i...], per_row[i... without dim])
  const auto combine = [&](Function function, TensorId of, TensorId per_row,
                           const std::vector<Iterator>& all) {
    return program.binary(function, program.read(of, composer.indices(all)),
                          program.read(per_row, composer.indices(without(all, dim))));
  };
  const TensorId greatest = reduce("greatest", x, Reduction::Max);
  std::vector<Iterator> all = composer.iterators(names, shape);
  const ScalarId shifted = program.unary(Function::Exp, combine(Function::Subtract, x, greatest, all));
  const TensorId powers = composer.scope("powers", all, Reduction::None, {}, shifted);
  const TensorId total = reduce("total", powers, Reduction::Sum);
  all = composer.iterators(names, shape);
  const ScalarId share = combine(Function::Divide, powers, total, all);
  return composer.finish(composer.scope("y", all, Reduction::None, {}, share));
}

Program layer_norm(const std::vector<std::int64_t>& shape, std::size_t normalized_dims, double epsilon,
                   bool affine) {
  constexpr std::string_view kWhere = "layer_norm";
  require_positive(kWhere, "shape", shape);
  if (normalized_dims < 1 || normalized_dims > shape.size())
    fail<ShapeError>(kWhere, "normalized_dims is {}, but must be between 1 and the {} dimensions",
                     normalized_dims, shape.size());
  const std::optional<Rational> exact =
      epsilon >= 0 ? syntax::parse_decimal(fmt::format("{}", epsilon)) : std::nullopt;
  if (!exact)
    fail<ShapeError>(kWhere, "epsilon is {}, but must be a non-negative decimal such as 1e-5", epsilon);

  Composer composer;
  Program& program = composer.program;
  const auto split = static_cast<std::ptrdiff_t>(shape.size() - normalized_dims);
  const TensorId x = composer.tensor("x", Role::Input, shape);
  std::optional<TensorId> gamma, beta;
  if (affine) gamma = composer.tensor("gamma", Role::Weight, Shape(shape.begin() + split, shape.end()));
  if (affine) beta = composer.tensor("beta", Role::Weight, Shape(shape.begin() + split, shape.end()));

  const std::vector<std::string> names = numbered("i", shape.size());
  const auto outer = [&](const std::vector<Iterator>& all) {
    return std::vector<Iterator>(all.begin(), all.begin() + split);
  };
  const auto inner = [&](const std::vector<Iterator>& all) {
    return std::vector<Iterator>(all.begin() + split, all.end());
  };

  std::vector<Iterator> all = composer.iterators(names, shape);
  const TensorId mean = composer.scope("mean_x", outer(all), Reduction::Mean, inner(all),
                                       program.read(x, composer.indices(all)));
  all = composer.iterators(names, shape);
  const TensorId centred =
      composer.scope("centred", all, Reduction::None, {},
                     program.binary(Function::Subtract, program.read(x, composer.indices(all)),
                                    program.read(mean, composer.indices(outer(all)))));
  all = composer.iterators(names, shape);
  const ScalarId value = program.read(centred, composer.indices(all));
  const TensorId variance = composer.scope("variance", outer(all), Reduction::Mean, inner(all),
                                           program.binary(Function::Multiply, value, value));
  all = composer.iterators(names, shape);
  const ScalarId spread = program.unary(
      Function::Rsqrt, program.binary(Function::Add, program.read(variance, composer.indices(outer(all))),
                                      program.literal(*exact)));
  ScalarId result = program.binary(Function::Multiply, program.read(centred, composer.indices(all)), spread);
  if (affine) {
    result = program.binary(Function::Multiply, result, program.read(*gamma, composer.indices(inner(all))));
    result = program.binary(Function::Add, result, program.read(*beta, composer.indices(inner(all))));
  }
  return composer.finish(composer.scope("y", all, Reduction::None, {}, result));
}

Program elementwise(Function function, const std::vector<std::int64_t>& a,
                    const std::vector<std::int64_t>& b) {
  constexpr std::string_view kWhere = "elementwise";
  require_positive(kWhere, "shape a", a);
  require_positive(kWhere, "shape b", b);
  if (is_unary(function) && !b.empty())
    fail<ShapeError>(kWhere, "'{}' takes one operand, but two shapes are given", name_of(function));
  Shape shape(std::max(a.size(), b.size()), 1);
  // Dimensions align at the end; a dimension of size one repeats.
  for (const Shape* operand : {&a, &b})
    for (std::size_t i = 0; i < operand->size(); ++i) {
      std::int64_t& extent = shape[shape.size() - operand->size() + i];
      if (extent != 1 && (*operand)[i] != 1 && extent != (*operand)[i])
        fail<ShapeError>(kWhere, "shapes [{}] and [{}] do not broadcast", fmt::join(a, ", "),
                         fmt::join(b, ", "));
      extent = std::max(extent, (*operand)[i]);
    }
  Composer composer;
  Program& program = composer.program;
  const TensorId first = composer.tensor("a", Role::Input, a);
  std::optional<TensorId> second;
  if (!is_unary(function)) second = composer.tensor("b", Role::Input, b);
  const std::vector<Iterator> all = composer.iterators(numbered("i", shape.size()), shape);
  const auto read = [&](TensorId tensor, const Shape& own) {
    std::vector<ExprId> indices;
    for (std::size_t i = 0; i < own.size(); ++i)
      indices.push_back(own[i] == 1 ? program.arena.constant(0)
                                    : composer.index(all[shape.size() - own.size() + i]));
    return program.read(tensor, indices);
  };
  const ScalarId body = second ? program.binary(function, read(first, a), read(*second, b))
                               : program.unary(function, read(first, a));
  return composer.finish(composer.scope("y", all, Reduction::None, {}, body));
}

}  // namespace syno::program
