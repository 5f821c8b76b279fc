// program/program.hpp — tensor programs: DAGs of tensor expressions, which EINNET calls scopes (§3).
// What pGraphs lower to, models are imported as, derivation rewrites, schedules apply to and the interpreter
// runs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "program/functions.hpp"
#include "support/rational.hpp"
#include "symbolic/expr.hpp"

namespace syno::program {

using symbolic::Arena;
using symbolic::ExprId;
using symbolic::Range;
using symbolic::Size;
using symbolic::Sizes;

enum class TensorId : std::uint32_t {};
enum class ScalarId : std::uint32_t {};

/// Input: data the caller passes. Weight: a parameter the caller passes; operator equality permutes its
/// elements. Constant: literal values in the program. Computed: written by scopes.
enum class Role : std::uint8_t { Input, Weight, Constant, Computed };

struct Tensor {
  std::string name;
  Role role = Role::Input;
  std::vector<Range> dims;        ///< legal indices; an Input, Weight or Constant starts at 0
  std::vector<Rational> literal;  ///< Constant only: row-major values
};

struct Iterator {
  std::string name;
  std::uint32_t slot = 0;  ///< unique in the whole program
  Range range;
};

enum class Reduction : std::uint8_t { None, Sum, Max, Min, Product, Mean };

enum class ScalarKind : std::uint8_t { Literal, Read, Index, Unary, Binary, Select };

/// One node of a body; children precede parents in Program::scalars.
struct Scalar {
  ScalarKind kind = ScalarKind::Literal;
  Function function = Function::Add;  ///< Unary, Binary
  ScalarId a{}, b{}, c{};             ///< operands; Select: a ? b : c
  Rational literal;                   ///< Literal
  ExprId index{};                     ///< Index: the integer as a number
  TensorId tensor{};                  ///< Read
  std::vector<ExprId> indices;        ///< Read: one per dimension of the tensor
  Rational fill = 0;                  ///< Read: its worth where an index is outside or a guard in it fails
};

/// output[traversal] = reduction over sums of body          (target empty)
/// output[target] += reduction over sums of body, for every traversal point whose target is inside the
/// output (accumulating scopes; the output starts at 0)
struct Scope {
  TensorId output{};
  std::vector<Iterator> traversal;
  std::vector<Iterator> sums;  ///< order is irrelevant to the meaning
  Reduction reduction = Reduction::None;
  ScalarId body{};
  std::vector<ExprId> target;
};

/// A DAG of scopes in topological order. A value: copying copies everything.
struct Program {
  Sizes sizes;  ///< no variables: a concrete program
  Arena arena;
  std::vector<Tensor> tensors;  ///< inputs in the caller's order first
  std::vector<Scalar> scalars;
  std::vector<Scope> scopes;
  std::vector<TensorId> outputs;
  std::uint32_t next_slot = 0;

  const Tensor& tensor(TensorId id) const { return tensors[static_cast<std::uint32_t>(id)]; }
  const Scalar& scalar(ScalarId id) const { return scalars[static_cast<std::uint32_t>(id)]; }
  std::vector<TensorId> inputs() const;  ///< Input and Weight tensors, in order
  std::optional<TensorId> find_tensor(std::string_view name) const;
  bool concrete() const { return sizes.variables().empty(); }

  TensorId add_tensor(Tensor tensor);
  ScalarId add_scalar(Scalar scalar);
  Iterator new_iterator(std::string name, Range range);
  Range range_of(const Size& extent);  ///< [0, extent)

  ScalarId literal(Rational value);
  ScalarId read(TensorId tensor, std::vector<ExprId> indices, Rational fill = 0);
  ScalarId index_value(ExprId index);
  ScalarId unary(Function function, ScalarId a);
  ScalarId binary(Function function, ScalarId a, ScalarId b);
  ScalarId select(ScalarId condition, ScalarId yes, ScalarId no);
};

/// The scalars a body is made of, operands before their users; each once however often it is used.
std::vector<ScalarId> scalars_of(const Program& program, ScalarId root);

/// `wanted`, or with the least number from 2 on behind it that makes it a name no tensor has.
std::string fresh_tensor_name(const Program& program, std::string_view wanted);

/// The ranges of all iterators of a program, as the simplifier wants them. Keeps a pointer to `program`.
symbolic::Context context_of(const Program& program);

/// The concrete program at one valuation: every size replaced by its integer, every expression simplified.
Program at(const Program& symbolic, std::size_t valuation);

/// Extents of a tensor of a concrete program, or of any program at a valuation.
std::vector<std::int64_t> shape_of(const Program& concrete, TensorId tensor);
std::vector<std::int64_t> shape_of(const Program& program, TensorId tensor, std::size_t valuation);

/// The integers of a range at a valuation, half open.
struct Extent {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
Extent extent_of(const Program& program, const Range& range, std::size_t valuation);

/// Product of sizes; ShapeError(where, ...) when it leaves 64 bits.
std::int64_t checked_product(std::string_view where, const std::vector<std::int64_t>& factors);

}  // namespace syno::program
