#include "emit/index_text.hpp"

#include <fmt/format.h>

#include "symbolic/affine.hpp"

namespace syno::emit {

using symbolic::Expr;
using symbolic::ExprId;
using symbolic::Op;

std::string index_text(const symbolic::Arena& arena, ExprId root, const IndexLanguage& language) {
  const Expr& node = arena[root];
  const auto text = [&](ExprId operand) { return index_text(arena, operand, language); };
  const auto size = [&] { return symbolic::integer_of(arena, node.size); };
  switch (node.op) {
    case Op::Iterator:
      return language.iterator(static_cast<std::uint32_t>(node.a));
    case Op::Constant:
      return node.value < 0 ? fmt::format("({})", node.value) : std::to_string(node.value);
    case Op::SizeValue:
      return std::to_string(size());
    case Op::Add:
      return fmt::format("({} + {})", text(node.a), text(node.b));
    case Op::Multiply:
      return fmt::format("({} * {})", text(node.a), node.value * size());
    case Op::Divide:
      return fmt::format(fmt::runtime(language.divide), text(node.a), size());
    case Op::Modulo:
      return fmt::format(fmt::runtime(language.modulo), text(node.a), size());
    case Op::Inside:
      return text(node.a);
  }
  return {};
}

void guard_texts(const symbolic::Arena& arena, ExprId root, const IndexLanguage& language,
                 std::vector<std::string>& conditions) {
  const Expr& node = arena[root];
  if (!arena.has_inside(root)) return;
  guard_texts(arena, node.a, language, conditions);
  if (node.op == Op::Add) guard_texts(arena, node.b, language, conditions);
  if (node.op != Op::Inside) return;
  const std::string text = index_text(arena, node.a, language);
  conditions.push_back(fmt::format(fmt::runtime(language.from_zero), text));
  conditions.push_back(
      fmt::format(fmt::runtime(language.below), text, symbolic::integer_of(arena, node.size)));
}

}  // namespace syno::emit
