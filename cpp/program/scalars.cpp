#include "program/scalars.hpp"

#include <algorithm>

#include "support/interrupt.hpp"

namespace syno::program {

namespace {

using symbolic::Op;

class Counter {
 public:
  Counter(const Program& program, std::int64_t most) : program_(program), left_(most + 1) {}

  void add(ScalarId id) {
    if (left_ == 0) return;
    --left_;
    const Scalar& scalar = program_.scalar(id);
    over_indices(scalar, [&](ExprId index) { add(index); });
    over_operands(scalar, [&](ScalarId operand) { add(operand); });
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

  const Program& program_;
  std::int64_t left_;
};

}  // namespace

ScalarId rebuild(Program& program, ScalarId root,
                 const std::function<std::optional<ScalarId>(ScalarId)>& replacement,
                 const std::function<ExprId(ExprId)>& move) {
  interruption_point();
  if (const auto replaced = replacement(root)) return *replaced;
  Scalar scalar = program.scalar(root);
  const bool leaf = operand_count(scalar.kind) == 0;
  if (leaf && (!move || scalar.kind == ScalarKind::Literal)) return root;
  if (leaf) over_indices(scalar, [&](ExprId& index) { index = move(index); });
  over_operands(scalar, [&](ScalarId& operand) { operand = rebuild(program, operand, replacement, move); });
  return program.add_scalar(std::move(scalar));
}

ScalarId with_iterators(Program& program, ScalarId root,
                        const std::vector<std::pair<std::uint32_t, ExprId>>& iterators) {
  return rebuild(
      program, root, [](ScalarId) { return std::optional<ScalarId>(); },
      [&](ExprId e) {
        return program.arena.substitute(e, [&](std::uint32_t slot) {
          for (const auto& [from, to] : iterators)
            if (from == slot) return to;
          return program.arena.iterator(slot);
        });
      });
}

std::int64_t nodes_of(const Program& program, ScalarId body, std::int64_t most) {
  Counter counter(program, most);
  counter.add(body);
  return most + 1 - counter.left();
}

std::vector<ScalarId> factors_of(const Program& program, ScalarId root) {
  std::vector<ScalarId> factors;
  visit(program, root, [&](ScalarId id, const Scalar& scalar) {
    const bool product = is_call(scalar, Function::Multiply);
    if (!product) factors.push_back(id);
    return product;
  });
  return factors;
}

std::vector<ScalarId> reads_in(const Program& program, ScalarId body) {
  std::vector<ScalarId> reads;
  visit(program, body, [&](ScalarId id, const Scalar& scalar) {
    if (scalar.kind == ScalarKind::Read) reads.push_back(id);
    return true;
  });
  return reads;
}

std::int64_t count_reads(const Program& program, ScalarId body, TensorId tensor) {
  std::int64_t count = 0;
  visit(program, body, [&](ScalarId, const Scalar& scalar) {
    count += scalar.kind == ScalarKind::Read && scalar.tensor == tensor;
    return true;
  });
  return count;
}

bool reads_tensor(const Program& program, ScalarId body, TensorId tensor) {
  return any_scalar(program, body, [&](const Scalar& scalar) {
    return scalar.kind == ScalarKind::Read && scalar.tensor == tensor;
  });
}

}  // namespace syno::program
