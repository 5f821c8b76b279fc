// The text form of loop nests: printing.
#include <fmt/format.h>

#include <cmath>
#include <map>

#include "nest/loop_nest.hpp"
#include "nest/words.hpp"
#include "support/error.hpp"

namespace syno::nest {
namespace {

using program::Function;

std::string number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  return fmt::format("{}", value);  // the shortest text that reads back as the same double
}

class Printer {
 public:
  explicit Printer(const LoopNest& nest) : nest_(nest) {
    for (const Statement& statement : nest.statements)
      if (statement.kind == StatementKind::For) names_[statement.slot] = statement.name;
    for (const Parameter& parameter : nest.parameters) names_[parameter.slot] = parameter.name;
  }

  std::string run() {
    text_ = fmt::format("nest {}\n", nest_.name);
    for (const Parameter& parameter : nest_.parameters)
      text_ +=
          fmt::format("parameter {} in {}..{}\n", parameter.name, parameter.least, parameter.greatest + 1);
    for (const Buffer& buffer : nest_.buffers) declare(buffer);
    print(nest_.root, 0);
    return std::move(text_);
  }

 private:
  std::string expr(ExprId id) const {
    return symbolic::to_text(nest_.arena, id, sizes_, [this](std::uint32_t slot) {
      const auto found = names_.find(slot);
      return found == names_.end() ? fmt::format("_{}", slot) : found->second;
    });
  }

  void declare(const Buffer& buffer) {
    std::vector<std::string> extents;
    for (std::size_t d = 0; d < buffer.extents.size(); ++d)
      extents.push_back(buffer.live.empty() ? fmt::format("{}", buffer.extents[d]) : expr(buffer.live[d]));
    text_ += fmt::format("{} {}: {}[{}]", word_of(kBufferWords, buffer.kind), buffer.name,
                         word_of(kDtypeWords, buffer.dtype), fmt::join(extents, ", "));
    if (buffer.strides != row_major_strides(buffer.extents))
      text_ += fmt::format(" strides[{}]", fmt::join(buffer.strides, ", "));
    if (buffer.kind == BufferKind::Constant) {
      text_ += " = {";
      for (std::size_t i = 0; i < buffer.literal.size(); ++i)
        text_ += (i ? ", " : "") + number(buffer.literal[i]);
      text_ += "}";
    }
    text_ += '\n';
  }

  std::string conditions(const std::vector<Condition>& all) const {
    std::string text;
    for (const Condition& condition : all)
      text += fmt::format("{}{} in {}..{}", text.empty() ? "" : ", ", expr(condition.expr), condition.begin,
                          condition.end);
    return text;
  }

  std::string access(BufferId buffer, const std::vector<ExprId>& indices) const {
    std::string text = nest_.buffer(buffer).name + "[";
    for (std::size_t i = 0; i < indices.size(); ++i) text += (i ? ", " : "") + expr(indices[i]);
    return text + "]";
  }

  /// Binding strength: 0 sum, 1 product, 2 operand.
  std::string value(ValueId id, int outer) const {
    const Value& node = nest_.value(id);
    switch (node.kind) {
      case ValueKind::Literal:
        return number(node.literal);
      case ValueKind::Index:
        return fmt::format("index({})", expr(node.index));
      case ValueKind::Load: {
        std::string text = access(node.buffer, node.indices);
        if (!node.guards.empty())
          text += fmt::format(" {{{} else {}}}", conditions(node.guards), number(node.literal));
        return text;
      }
      case ValueKind::Select:
        return fmt::format("select({}, {}, {})", value(node.a, 0), value(node.b, 0), value(node.c, 0));
      case ValueKind::Unary:
        return fmt::format("{}({})", word_of(kFunctionWords, node.function), value(node.a, 0));
      case ValueKind::Binary:
        break;
    }
    const auto infix = [&](std::string_view sign, int strength) {
      // Left-associative: the right operand is written one stronger so that the tree reads back the same.
      const std::string text =
          fmt::format("{} {} {}", value(node.a, strength), sign, value(node.b, strength + 1));
      return strength < outer ? "(" + text + ")" : text;
    };
    switch (node.function) {
      case Function::Add:
        return infix("+", 0);
      case Function::Subtract:
        return infix("-", 0);
      case Function::Multiply:
        return infix("*", 1);
      case Function::Divide:
        return infix("/", 1);
      default:
        return fmt::format("{}({}, {})", word_of(kFunctionWords, node.function), value(node.a, 0),
                           value(node.b, 0));
    }
  }

  void line(int depth, std::string_view text) {
    text_.append(static_cast<std::size_t>(depth) * 2, ' ');
    text_ += text;
    text_ += '\n';
  }

  void print(StatementId id, int depth) {
    const Statement& statement = nest_.statement(id);
    switch (statement.kind) {
      case StatementKind::Sequence:
        for (const StatementId child : statement.children) print(child, depth);
        return;
      case StatementKind::For: {
        std::string head =
            fmt::format("for {} in {}..{}", statement.name, expr(statement.begin), expr(statement.end));
        if (statement.loop != LoopKind::Serial)
          head += fmt::format(" {}", word_of(kLoopWords, statement.loop));
        line(depth, head);
        break;
      }
      case StatementKind::If:
        line(depth, "if " + conditions(statement.conditions));
        break;
      case StatementKind::Allocate:
        line(depth, "allocate " + nest_.buffer(statement.buffer).name);
        break;
      case StatementKind::Prefetch:
        line(depth, "prefetch " + access(statement.buffer, statement.indices));
        return;
      case StatementKind::Store:
        line(depth, fmt::format("{} {} {}", access(statement.buffer, statement.indices),
                                word_of(kStoreWords, statement.mode), value(statement.value, 0)));
        return;
    }
    for (const StatementId child : statement.children) print(child, depth + 1);
  }

  const LoopNest& nest_;
  const symbolic::Sizes sizes_;
  std::map<std::uint32_t, std::string> names_;
  std::string text_;
};

}  // namespace

std::string to_text(const LoopNest& nest) { return Printer(nest).run(); }

}  // namespace syno::nest
