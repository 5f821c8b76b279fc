// The reference meaning of loop nests: one iteration after the other, in double precision.
#include "program/interpret.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "nest/loop_nest.hpp"
#include "support/checked.hpp"
#include "support/error.hpp"
#include "support/memory.hpp"

namespace syno::nest {
namespace {

using program::apply;
using program::Function;

class Interpreter {
 public:
  Interpreter(const LoopNest& nest, const std::map<std::string, program::Values<double>>& inputs,
              const std::vector<std::int64_t>& parameters)
      : nest_(nest), memory_(nest.buffers.size()), variables_(nest.next_slot, 0) {
    if (parameters.size() != nest.parameters.size())
      fail<ShapeError>("interpret", "{} sizes for the {} parameters of `{}`", parameters.size(),
                       nest.parameters.size(), nest.name);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Parameter& parameter = nest.parameters[i];
      if (parameters[i] < parameter.least || parameters[i] > parameter.greatest)
        fail<ShapeError>("interpret", "`{}` is {}; `{}` was made for {} to {}", parameter.name, parameters[i],
                         nest.name, parameter.least, parameter.greatest);
      variables_[parameter.slot] = parameters[i];
    }
    for (const Buffer& buffer : nest.buffers) {
      extents_.push_back(buffer.extents);
      for (std::size_t d = 0; d < buffer.live.size(); ++d) extents_.back()[d] = integer(buffer.live[d]);
    }
    for (std::size_t i = 0; i < nest.buffers.size(); ++i) {
      const Buffer& buffer = nest.buffers[i];
      switch (buffer.kind) {
        case BufferKind::Input: {
          const auto found = inputs.find(buffer.name);
          if (found == inputs.end()) fail<ShapeError>("interpret", "input `{}` is missing", buffer.name);
          if (found->second.shape != extents_[i] || found->second.data.size() != elements(i))
            fail<ShapeError>("interpret",
                             "input `{}` has shape [{}] with {} values; the nest `{}` takes [{}]",
                             buffer.name, fmt::join(found->second.shape, ", "), found->second.data.size(),
                             nest.name, fmt::join(extents_[i], ", "));
          memory_[i] = found->second.data;
          break;
        }
        case BufferKind::Constant:
          memory_[i] = buffer.literal;
          break;
        case BufferKind::Output:
          clear(i);
          break;
        case BufferKind::Temporary:
        case BufferKind::Register:
          break;  // at its Allocate
      }
    }
  }

  std::map<std::string, program::Values<double>> run() {
    run(nest_.root);
    std::map<std::string, program::Values<double>> outputs;
    for (std::size_t i = 0; i < nest_.buffers.size(); ++i)
      if (nest_.buffers[i].kind == BufferKind::Output)
        outputs[nest_.buffers[i].name] = {extents_[i], std::move(memory_[i])};
    return outputs;
  }

 private:
  std::size_t elements(std::size_t buffer) const {
    std::int64_t count = 1;
    for (const std::int64_t extent : extents_[buffer]) count = checked_multiply(count, extent);
    require_memory(
        "interpret",
        fmt::format("`{}` of shape [{}]", nest_.buffers[buffer].name, fmt::join(extents_[buffer], ", ")),
        count, sizeof(double));
    return static_cast<std::size_t>(count);
  }
  /// What nothing has written is not a number, so that reading it shows.
  void clear(std::size_t buffer) {
    memory_[buffer].assign(elements(buffer), std::numeric_limits<double>::quiet_NaN());
  }

  std::int64_t integer(ExprId id) const { return evaluate(nest_, id, variables_); }

  bool hold(const std::vector<Condition>& conditions) const {
    return nest::hold(nest_, conditions, variables_);
  }

  std::size_t place(BufferId id, const std::vector<ExprId>& indices) const {
    const std::vector<std::int64_t>& extents = extents_[static_cast<std::uint32_t>(id)];
    std::int64_t at = 0;
    for (std::size_t d = 0; d < indices.size(); ++d) {
      const std::int64_t index = integer(indices[d]);
      if (index < 0 || index >= extents[d])
        fail<ScheduleError>("interpret", "index {} of `{}` in `{}` is {}, outside [0, {})", d,
                            nest_.buffer(id).name, nest_.name, index, extents[d]);
      at = at * extents[d] + index;
    }
    return static_cast<std::size_t>(at);
  }

  double value(ValueId id) const {
    const Value& node = nest_.value(id);
    switch (node.kind) {
      case ValueKind::Literal:
        return node.literal;
      case ValueKind::Index:
        return static_cast<double>(integer(node.index));
      case ValueKind::Load:
        if (!hold(node.guards)) return node.literal;
        return memory_[static_cast<std::uint32_t>(node.buffer)][place(node.buffer, node.indices)];
      case ValueKind::Unary:
        return apply(node.function, value(node.a));
      case ValueKind::Binary:
        return apply(node.function, value(node.a), value(node.b));
      case ValueKind::Select:
        return value(node.a) != 0 ? value(node.b) : value(node.c);
    }
    return 0;
  }

  void run(StatementId id) {
    const Statement& statement = nest_.statement(id);
    switch (statement.kind) {
      case StatementKind::Sequence:
        for (const StatementId child : statement.children) run(child);
        return;
      case StatementKind::For: {
        const std::int64_t end = integer(statement.end);
        for (std::int64_t i = integer(statement.begin); i < end; ++i) {
          variables_[statement.slot] = i;
          run(statement.children[0]);
        }
        return;
      }
      case StatementKind::If:
        if (hold(statement.conditions)) run(statement.children[0]);
        return;
      case StatementKind::Allocate:
        clear(static_cast<std::uint32_t>(statement.buffer));
        run(statement.children[0]);
        return;
      case StatementKind::Prefetch:
        return;
      case StatementKind::Store: {
        const double stored = value(statement.value);
        double& cell =
            memory_[static_cast<std::uint32_t>(statement.buffer)][place(statement.buffer, statement.indices)];
        switch (statement.mode) {
          case StoreMode::Assign:
            cell = stored;
            return;
          case StoreMode::Add:
            cell += stored;
            return;
          case StoreMode::Max:
            cell = apply(Function::Maximum, cell, stored);
            return;
          case StoreMode::Min:
            cell = apply(Function::Minimum, cell, stored);
            return;
          case StoreMode::Multiply:
            cell *= stored;
            return;
        }
      }
    }
  }

  const LoopNest& nest_;
  std::vector<std::vector<std::int64_t>> extents_;  ///< of buffers, in this call
  std::vector<std::vector<double>> memory_;
  std::vector<std::int64_t> variables_;
};

}  // namespace

std::int64_t evaluate(const LoopNest& nest, ExprId id, const std::vector<std::int64_t>& variables) {
  const symbolic::Expr& node = nest.arena[id];
  const auto size = [&] { return nest.arena[node.size].factor().num(); };
  switch (node.op) {
    case symbolic::Op::Iterator:
      return variables[static_cast<std::uint32_t>(node.a)];
    case symbolic::Op::Constant:
      return node.value;
    case symbolic::Op::SizeValue:
      return size();
    case symbolic::Op::Add:
      return evaluate(nest, node.a, variables) + evaluate(nest, node.b, variables);
    case symbolic::Op::Multiply:
      return evaluate(nest, node.a, variables) * node.value * size();
    case symbolic::Op::Divide:
      return floor_divide(evaluate(nest, node.a, variables), size());
    case symbolic::Op::Modulo:
      return floor_modulo(evaluate(nest, node.a, variables), size());
    case symbolic::Op::Inside:
      break;
  }
  fail<ScheduleError>("interpret", "`inside` occurs in an index of `{}`; write it as a guard", nest.name);
}

bool hold(const LoopNest& nest, const std::vector<Condition>& conditions,
          const std::vector<std::int64_t>& variables) {
  return std::all_of(conditions.begin(), conditions.end(), [&](const Condition& condition) {
    const std::int64_t value = evaluate(nest, condition.expr, variables);
    return condition.begin <= value && value < condition.end;
  });
}

std::map<std::string, program::Values<double>> interpret(
    const LoopNest& nest, const std::map<std::string, program::Values<double>>& inputs,
    const std::vector<std::int64_t>& parameters) {
  return Interpreter(nest, inputs, parameters).run();
}

}  // namespace syno::nest
