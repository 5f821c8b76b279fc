#include "schedule/inlining.hpp"

#include <algorithm>

#include "support/error.hpp"

namespace syno::schedule {

namespace {

using program::Scalar;
using program::ScalarId;
using program::ScalarKind;
using program::TensorId;
using symbolic::Op;

class Counter {
 public:
  Counter(const program::Program& program, std::int64_t most) : program_(program), left_(most + 1) {}

  void add(ScalarId id) {
    if (left_ == 0) return;
    --left_;
    const Scalar& scalar = program_.scalar(id);
    if (scalar.kind == ScalarKind::Index) add(scalar.index);
    for (const ExprId index : scalar.indices) add(index);
    const bool two = scalar.kind == ScalarKind::Binary || scalar.kind == ScalarKind::Select;
    if (two || scalar.kind == ScalarKind::Unary) add(scalar.a);
    if (two) add(scalar.b);
    if (scalar.kind == ScalarKind::Select) add(scalar.c);
  }
  std::int64_t left() const { return left_; }

 private:
  void add(ExprId e) {  // what an index is made of; iterators and numbers are free
    const symbolic::Expr& node = program_.arena[e];
    if (left_ == 0 || node.op == Op::Iterator || node.op == Op::Constant || node.op == Op::SizeValue) return;
    --left_;
    add(node.a);
    if (node.op == Op::Add) add(node.b);
  }

  const program::Program& program_;
  std::int64_t left_;
};

}  // namespace

std::int64_t nodes_of(const program::Program& program, ScalarId body, std::int64_t most) {
  Counter counter(program, most);
  counter.add(body);
  return most + 1 - counter.left();
}

std::int64_t reads_written(const program::Program& program, ScalarId id, TensorId tensor) {
  const Scalar& scalar = program.scalar(id);
  switch (scalar.kind) {
    case ScalarKind::Read:
      return scalar.tensor == tensor;
    case ScalarKind::Unary:
      return reads_written(program, scalar.a, tensor);
    case ScalarKind::Binary:
      return reads_written(program, scalar.a, tensor) + reads_written(program, scalar.b, tensor);
    case ScalarKind::Select:
      return reads_written(program, scalar.a, tensor) + reads_written(program, scalar.b, tensor) +
             reads_written(program, scalar.c, tensor);
    default:
      return 0;
  }
}

}  // namespace syno::schedule
