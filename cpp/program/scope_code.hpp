// program/scope_code.hpp — a scope of a concrete program, compiled for the interpreter: every index is a lane
// (an affine form updated by additions while iterators advance) or, where it divides or guards, a postfix
// program.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "program/program.hpp"
#include "symbolic/affine.hpp"

namespace syno::program::detail {

/// Over iterators by position: traversal first, then sums.
using Affine = symbolic::AffineForm<std::uint32_t>;

/// One step of a postfix program over a stack of integers.
struct Step {
  symbolic::Op op;
  std::int64_t value;  ///< position, constant, factor, divisor or extent
};

/// An index that must be checked against [begin, begin + extent) before it may be used.
struct CheckedLane {
  std::uint32_t lane;
  std::int64_t begin, extent;
};
struct CheckedSteps {
  std::vector<Step> steps;
  std::int64_t begin, extent, stride;
};

/// Where in the row-major data of `tensor` an access goes: the value of `offset_lane` plus, for each of
/// `steps`, (its value - begin) * stride. Indices that can never leave the tensor are not checked.
struct Access {
  std::uint32_t tensor = 0;
  std::uint32_t offset_lane = 0;
  std::vector<CheckedLane> lanes;
  std::vector<CheckedSteps> steps;
};

struct Instruction {
  ScalarKind kind = ScalarKind::Literal;
  Function function = Function::Add;
  std::uint32_t a = 0, b = 0,
                c = 0;  ///< registers; Read: `a` is the access; Index: `a` is the position in `indices`
  Rational value;       ///< literal or fill
};

struct ScopeCode {
  ScopeCode(const Program& concrete, const Scope& scope);

  std::size_t traversal_count = 0;
  std::vector<std::int64_t> begin, extent;  ///< of every iterator
  std::int64_t sum_points = 1;
  Reduction reduction = Reduction::None;
  std::vector<Affine> lanes;
  std::vector<std::vector<std::pair<std::uint32_t, std::int64_t>>>
      lanes_of;  ///< by iterator: (lane, coefficient)
  std::vector<Access> accesses;
  std::vector<std::vector<Step>> indices;
  std::vector<Instruction> body;  ///< the last one is the value; its register is its position
  bool accumulates = false;
  Access target;  ///< when it accumulates
};

/// Value of a postfix program, false where a guard fails.
bool run(const std::vector<Step>& steps, const std::int64_t* iterators, std::int64_t& value);

/// Row-major strides and element count of a shape; ShapeError when they leave 64 bits.
std::vector<std::int64_t> strides_of(const std::vector<std::int64_t>& shape);

}  // namespace syno::program::detail
