#include "program/scope_code.hpp"

#include <algorithm>
#include <map>

#include "support/checked.hpp"
#include "support/error.hpp"

namespace syno::program::detail {
namespace {

using symbolic::Expr;
using symbolic::Op;

class Compiler {
 public:
  Compiler(const Program& program, const Scope& scope, ScopeCode& code)
      : program_(program), scope_(scope), code_(code) {}

  void run() {
    code_.traversal_count = scope_.traversal.size();
    code_.reduction = scope_.reduction;
    for (const auto* iterators : {&scope_.traversal, &scope_.sums})
      for (const Iterator& iterator : *iterators) {
        positions_[iterator.slot] = static_cast<std::uint32_t>(code_.begin.size());
        const Extent extent = extent_of(program_, iterator.range, 0);
        code_.begin.push_back(extent.begin);
        code_.extent.push_back(extent.end - extent.begin);
      }
    code_.sum_points = checked_product(
        "interpret",
        {code_.extent.begin() + static_cast<std::ptrdiff_t>(code_.traversal_count), code_.extent.end()});
    compile_body();
    code_.accumulates = !scope_.target.empty();
    if (code_.accumulates) code_.target = access(scope_.output, scope_.target);

    code_.lanes_of.resize(code_.begin.size());
    for (std::uint32_t lane = 0; lane < code_.lanes.size(); ++lane)
      for (const auto& [position, coefficient] : code_.lanes[lane].terms)
        code_.lanes_of[position].emplace_back(lane, coefficient);
  }

 private:
  void compile_body() {
    std::map<ScalarId, std::uint32_t> registers;
    for (const ScalarId id : scalars_of(program_, scope_.body)) {
      const Scalar& scalar = program_.scalar(id);
      Instruction instruction;
      instruction.kind = scalar.kind;
      instruction.function = scalar.function;
      switch (scalar.kind) {
        case ScalarKind::Literal:
          instruction.value = scalar.literal;
          break;
        case ScalarKind::Index:
          instruction.a = static_cast<std::uint32_t>(code_.indices.size());
          code_.indices.push_back(steps_of(scalar.index));
          break;
        case ScalarKind::Read:
          instruction.a = static_cast<std::uint32_t>(code_.accesses.size());
          instruction.value = scalar.fill;
          code_.accesses.push_back(access(scalar.tensor, scalar.indices));
          break;
        case ScalarKind::Select:
          instruction.c = registers.at(scalar.c);
          [[fallthrough]];
        case ScalarKind::Binary:
          instruction.b = registers.at(scalar.b);
          [[fallthrough]];
        case ScalarKind::Unary:
          instruction.a = registers.at(scalar.a);
          break;
      }
      registers[id] = static_cast<std::uint32_t>(code_.body.size());
      code_.body.push_back(instruction);
    }
  }

  Access access(TensorId tensor, const std::vector<ExprId>& indices) {
    Access result;
    result.tensor = static_cast<std::uint32_t>(tensor);
    const std::vector<std::int64_t> shape = shape_of(program_, tensor);
    const std::vector<std::int64_t> strides = strides_of(shape);
    Affine offset;
    for (std::size_t d = 0; d < indices.size(); ++d) {
      const std::int64_t begin = extent_of(program_, program_.tensor(tensor).dims[d], 0).begin;
      // A guard around an affine index is a bound more.
      ExprId index = indices[d];
      std::vector<std::int64_t> guards;
      for (; program_.arena[index].op == Op::Inside; index = program_.arena[index].a)
        guards.push_back(integer(program_.arena[index]));
      const std::optional<Affine> affine = affine_of(index);
      if (!affine) {
        result.steps.push_back({steps_of(indices[d]), begin, shape[d], strides[d]});
        continue;
      }
      offset = add(offset, multiply(with_constant(*affine, -begin), strides[d]));
      check(*affine, begin, shape[d], result);
      for (const std::int64_t extent : guards) check(*affine, 0, extent, result);
    }
    range_of(offset);  // the offset must fit 64 bits everywhere, also where a check will fail
    result.offset_lane = static_cast<std::uint32_t>(code_.lanes.size());
    code_.lanes.push_back(std::move(offset));
    return result;
  }

  /// An access is outside where the form leaves [begin, begin + extent); nothing where it never does.
  void check(const Affine& affine, std::int64_t begin, std::int64_t extent, Access& access) {
    const auto [least, greatest] = range_of(affine);
    if (least >= begin && greatest < begin + extent) return;
    access.lanes.push_back({static_cast<std::uint32_t>(code_.lanes.size()), begin, extent});
    code_.lanes.push_back(affine);
  }

  std::pair<std::int64_t, std::int64_t> range_of(const Affine& affine) const {
    std::int64_t least = affine.constant, greatest = affine.constant;
    for (const auto& [position, coefficient] : affine.terms) {
      const std::int64_t first = checked_multiply(coefficient, code_.begin[position]);
      const std::int64_t last =
          checked_multiply(coefficient, checked_add(code_.begin[position], code_.extent[position] - 1));
      least = checked_add(least, std::min(first, last));
      greatest = checked_add(greatest, std::max(first, last));
    }
    return {least, greatest};
  }

  std::int64_t integer(const Expr& node) const {
    if (node.op == Op::Constant) return node.value;
    return program_.sizes.integer_value(program_.arena[node.size], 0);
  }

  // A factor is a size or an integer, whichever is not one.
  std::int64_t factor(const Expr& node) const {
    const Size& size = program_.arena[node.size];
    return size.is_one() ? node.value : integer(node);
  }

  std::optional<Affine> affine_of(ExprId id) const {
    if (!symbolic::is_affine(program_.arena, id)) return std::nullopt;
    const auto form = symbolic::affine_form(program_.arena, id);
    Affine result{{}, form.constant};
    for (const auto& [iterator, coefficient] : form.terms)
      result.terms.emplace_back(positions_.at(symbolic::slot_of(program_.arena, iterator)), coefficient);
    std::sort(result.terms.begin(), result.terms.end());
    return result;
  }

  std::vector<Step> steps_of(ExprId id) const {
    std::vector<Step> steps;
    append_steps(id, steps);
    return steps;
  }

  void append_steps(ExprId id, std::vector<Step>& steps) const {
    const Expr& node = program_.arena[id];
    switch (node.op) {
      case Op::Iterator:
        steps.push_back({Op::Iterator, positions_.at(static_cast<std::uint32_t>(node.a))});
        return;
      case Op::Constant:
      case Op::SizeValue:
        steps.push_back({Op::Constant, integer(node)});
        return;
      case Op::Add:
        append_steps(node.a, steps);
        append_steps(node.b, steps);
        steps.push_back({Op::Add, 0});
        return;
      case Op::Multiply:
        append_steps(node.a, steps);
        steps.push_back({Op::Multiply, factor(node)});
        return;
      case Op::Divide:
      case Op::Modulo:
      case Op::Inside:
        append_steps(node.a, steps);
        steps.push_back({node.op, integer(node)});
        return;
    }
  }

  const Program& program_;
  const Scope& scope_;
  ScopeCode& code_;
  std::map<std::uint32_t, std::uint32_t> positions_;  // by slot
};

}  // namespace

ScopeCode::ScopeCode(const Program& concrete, const Scope& scope) { Compiler(concrete, scope, *this).run(); }

bool run(const std::vector<Step>& steps, const std::int64_t* iterators, std::int64_t& value) {
  constexpr std::size_t kStack = 64;
  std::int64_t small[kStack];
  std::vector<std::int64_t> large;
  std::int64_t* stack = small;
  if (steps.size() > kStack) {
    large.resize(steps.size());
    stack = large.data();
  }
  std::size_t top = 0;
  for (const Step& step : steps) {
    switch (step.op) {
      case Op::Iterator:
        stack[top++] = iterators[step.value];
        break;
      case Op::Add:
        --top;
        stack[top - 1] = checked_add(stack[top - 1], stack[top]);
        break;
      case Op::Multiply:
        stack[top - 1] = checked_multiply(stack[top - 1], step.value);
        break;
      case Op::Divide:
      case Op::Modulo: {
        const std::int64_t a = stack[top - 1], b = step.value;
        const std::int64_t quotient = a / b - (a % b < 0 ? 1 : 0);
        stack[top - 1] = step.op == Op::Divide ? quotient : a - quotient * b;
        break;
      }
      case Op::Inside:
        if (stack[top - 1] < 0 || stack[top - 1] >= step.value) return false;
        break;
      default:
        stack[top++] = step.value;
        break;
    }
  }
  value = stack[0];
  return true;
}

std::vector<std::int64_t> strides_of(const std::vector<std::int64_t>& shape) {
  checked_product("interpret", shape);
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

}  // namespace syno::program::detail
