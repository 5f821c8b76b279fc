// derive/bilinear.hpp — what bilinear identities have in common: a product of operands becomes the product of
// what constant matrices make of them, y = C((A x) ⊙ (B k)).
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "derive/moved.hpp"
#include "derive/toom_cook_matrices.hpp"

namespace syno::derive {

/// factors[0] * factors[1] * ...
ScalarId product_of(Program& program, const std::vector<ScalarId>& factors);

/// A 2x2 matrix of blocks times another, seven products of blocks in the place of eight.
struct Strassen {
  Matrix result;       ///< blocks 11, 12, 21, 22 x products
  Matrix left, right;  ///< products x blocks
};
Strassen strassen_matrices();

/// The rows of a matrix, one after the other.
std::vector<Rational> values_of(const Matrix& matrix);

/// A constant tensor of this shape, the one there is where there is one. Its name begins with `name`.
TensorId constant_tensor(Program& program, const std::string& name, const std::vector<std::int64_t>& shape,
                         std::vector<Rational> values);
TensorId constant_matrix(Program& program, const std::string& name, const Matrix& matrix);

/// What of a product becomes a scope of its own: t[p, ..., outer, ...] = sum[inner] matrix[p, inner] * f,
/// where f has `values` in the place of iterators that go.
struct Transformed {
  ScalarId factor{};  ///< a product of factors of the scope's body
  TensorId matrix{};  ///< products, then one dimension for each of `inner`
  Iterator product;   ///< that is summed over products, in the scope to come
  Iterators outer;    ///< that the scope to come has in the place of those that go
  Iterators inner;    ///< new
  std::vector<std::pair<std::uint32_t, ExprId>> values;  ///< of iterators that go, over outer and inner
};

/// Makes the scope, before the one at `at`, which moves on by one, and gives the read of it there. An operand
/// that is a single read keeps its dimensions where only iterators that stay move them: two indices h + r and
/// w + s are taken one after the other.
ScalarId transform(Program& program, std::size_t& at, const std::string& name, const Transformed& wanted);

}  // namespace syno::derive
