#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "emit/emit.hpp"
#include "program/names.hpp"
#include "program/verify.hpp"

namespace syno::emit {
namespace {

using program::Function;
using program::Iterator;
using program::Program;
using program::Reduction;
using program::Scalar;
using program::ScalarId;
using program::ScalarKind;
using program::Scope;
using symbolic::Expr;
using symbolic::ExprId;
using symbolic::Op;
using symbolic::Size;

using Texts = std::vector<std::string>;

std::string joined(const Texts& texts) { return fmt::format("{}", fmt::join(texts, ", ")); }
std::string in_parentheses(const std::string& text) { return "\\left(" + text + "\\right)"; }

/// `w_1` and `w1` as a letter with an index, `C_in` too; words upright.
class Names {
 public:
  const std::string& operator()(const std::string& name) {
    const auto known = texts_.find(name);
    if (known != texts_.end()) return known->second;
    std::string text = indexed(name);
    // Two names that would look alike are told apart by being written as they are.
    if (!taken_.emplace(text, name).second) text = "\\mathtt{" + escaped(name) + "}";
    return texts_.emplace(name, text).first->second;
  }

 private:
  static std::string escaped(std::string_view text) {
    std::string result;
    for (const char c : text) result += c == '_' ? std::string("\\_") : std::string(1, c);
    return result;
  }
  static std::string word(std::string_view text) {
    const bool number = text.find_first_not_of("0123456789") == std::string_view::npos;
    return text.size() == 1 || number ? std::string(text) : "\\mathrm{" + escaped(text) + "}";
  }
  static std::string indexed(std::string_view name) {
    std::size_t end = 0;
    while (end < name.size() && name[end] != '_' && (name[end] < '0' || name[end] > '9')) ++end;
    std::string_view index = name.substr(end);
    while (!index.empty() && index[0] == '_') index.remove_prefix(1);
    if (end == 0 || (end < name.size() && index.empty())) return "\\mathrm{" + escaped(name) + "}";
    std::string text = word(name.substr(0, end));
    if (!index.empty()) text += "_{" + word(index) + "}";
    return text;
  }
  std::map<std::string, std::string> texts_, taken_;
};

// Binding strength, loosest first; a product is what a reduction takes.
enum Level { kOr, kAnd, kSum, kProduct, kUnary, kAtom };

class LatexWriter {
 public:
  explicit LatexWriter(const Program& program)
      : p_(program), iterators_(program.next_slot), words_(program.next_slot) {}

  std::string write() {
    Texts lines = constants();
    const bool alone = p_.scopes.size() == 1 && lines.empty();
    for (const Scope& scope : p_.scopes) {
      name_iterators(scope);
      lines.push_back(fmt::format("{} {}{}", left(scope), alone ? "" : "&", right(scope)));
    }
    if (alone) return lines[0];
    return fmt::format("\\begin{{aligned}}\n{}\n\\end{{aligned}}", fmt::join(lines, " \\\\\n"));
  }

 private:
  /// Their values in row-major order, the first ones of many.
  Texts constants() {
    constexpr std::size_t kMost = 16;
    Texts lines;
    for (const program::Tensor& tensor : p_.tensors) {
      if (tensor.role != program::Role::Constant) continue;
      Texts values;
      for (const Rational& value : tensor.literal) {
        values.push_back(values.size() < kMost ? number(value) : "\\dots");
        if (values.size() > kMost) break;
      }
      lines.push_back(fmt::format("{} &= \\left({}\\right)", name_(tensor.name), joined(values)));
    }
    return lines;
  }

  void name_iterators(const Scope& scope) {
    program::name_iterators(p_, scope, words_);
    for (const auto* group : {&scope.traversal, &scope.sums})
      for (const Iterator& iterator : *group) iterators_[iterator.slot] = name_(words_[iterator.slot]);
  }

  std::string left(const Scope& scope) {
    Texts at;
    if (scope.target.empty())
      for (const Iterator& iterator : scope.traversal) at.push_back(ranged(iterator));
    for (const ExprId id : scope.target) at.push_back(index(id, kOr));
    return fmt::format("{}[{}]", name_(p_.tensor(scope.output).name), joined(at));
  }
  std::string right(const Scope& scope) {
    const bool reduces = scope.reduction != Reduction::None;
    return fmt::format("{}{}{}",
                       scope.target.empty() ? "= " : "\\mathrel{+}= ", reduces ? reduction(scope) : "",
                       body(scope.body, reduces ? kProduct : kOr));
  }

  std::string reduction(const Scope& scope) {
    Texts over;
    for (const Iterator& iterator : scope.sums) over.push_back(ranged(iterator));
    switch (scope.reduction) {
      case Reduction::Max:
        return fmt::format("\\max_{{{}}} ", joined(over));
      case Reduction::Min:
        return fmt::format("\\min_{{{}}} ", joined(over));
      case Reduction::Product:
        return fmt::format("\\prod_{{{}}} ", joined(over));
      case Reduction::Mean:
        return fmt::format("\\operatorname{{mean}}_{{{}}} ", joined(over));
      default:
        return fmt::format("\\sum_{{{}}} ", joined(over));
    }
  }

  std::string ranged(const Iterator& iterator) {
    const std::string& name = iterators_[iterator.slot];
    const Expr& begin = p_.arena[iterator.range.begin];
    if (begin.op == Op::Constant && begin.value == 0) return name;
    return fmt::format("{} \\le {} < {}", index(iterator.range.begin, kOr), name,
                       index(iterator.range.end, kOr));
  }

  // Indices

  std::string size(const Size& size) {
    Texts above, below;
    const Rational factor = size.factor();
    if (factor.num() != 1) above.push_back(std::to_string(factor.num()));
    if (factor.den() != 1) below.push_back(std::to_string(factor.den()));
    for (std::size_t v = 0; v < p_.sizes.variables().size(); ++v) {
      const int exponent = size.exponent(v);
      if (exponent == 0) continue;
      std::string power = name_(p_.sizes.variables()[v].name);
      if (const int times = exponent < 0 ? -exponent : exponent; times != 1)
        power = fmt::format("{{{}}}^{{{}}}", power, times);
      (exponent > 0 ? above : below).push_back(power);
    }
    const std::string top = above.empty() ? "1" : fmt::format("{}", fmt::join(above, " "));
    return below.empty() ? top : fmt::format("\\frac{{{}}}{{{}}}", top, fmt::join(below, " "));
  }

  std::string index(ExprId id, Level outer) {
    const Expr& node = p_.arena[id];
    const auto wrapped = [&](const std::string& text, Level inner) {
      return inner < outer ? in_parentheses(text) : text;
    };
    switch (node.op) {
      case Op::Iterator:
        return iterators_.at(static_cast<std::uint32_t>(node.a));
      case Op::Constant:
        return wrapped(std::to_string(node.value), node.value < 0 ? kSum : kAtom);
      case Op::SizeValue:
        return wrapped(size(p_.arena[node.size]), kProduct);
      case Op::Add: {
        const std::string a = index(node.a, kSum), b = index(node.b, kSum);
        return wrapped(b[0] == '-' ? fmt::format("{} - {}", a, b.substr(1)) : fmt::format("{} + {}", a, b),
                       kSum);
      }
      case Op::Multiply: {
        const Size& factor = p_.arena[node.size];
        std::string text = node.value == -1 ? "-" : node.value == 1 ? "" : fmt::format("{} ", node.value);
        if (!factor.is_one()) text += size(factor) + " ";
        return wrapped(text + index(node.a, kUnary), node.value < 0 ? kSum : kProduct);
      }
      case Op::Divide:
        return fmt::format("\\left\\lfloor \\frac{{{}}}{{{}}} \\right\\rfloor", index(node.a, kOr),
                           size(p_.arena[node.size]));
      case Op::Modulo:
        return in_parentheses(fmt::format("{} \\bmod {}", index(node.a, kUnary), size(p_.arena[node.size])));
      case Op::Inside:
        return fmt::format("\\operatorname{{inside}}\\left({}, {}\\right)", index(node.a, kOr),
                           size(p_.arena[node.size]));
    }
    return {};
  }

  // Bodies

  static std::string number(const Rational& value) {
    if (!value.finite()) return value.num() > 0 ? "\\infty" : "-\\infty";
    if (value.integral()) return std::to_string(value.num());
    const bool negative = value.num() < 0;
    return fmt::format("{}\\frac{{{}}}{{{}}}", negative ? "-" : "", negative ? -value.num() : value.num(),
                       value.den());
  }

  std::string unary(const Scalar& scalar) {
    const std::string a = body(scalar.a, kOr);
    switch (scalar.function) {
      case Function::Abs:
        return fmt::format("\\left|{}\\right|", a);
      case Function::Sqrt:
        return fmt::format("\\sqrt{{{}}}", a);
      case Function::Rsqrt:
        return fmt::format("\\frac{{1}}{{\\sqrt{{{}}}}}", a);
      case Function::Exp:
        return fmt::format("\\exp\\left({}\\right)", a);
      case Function::Log:
        return fmt::format("\\ln\\left({}\\right)", a);
      case Function::Tanh:
        return fmt::format("\\tanh\\left({}\\right)", a);
      case Function::Floor:
        return fmt::format("\\left\\lfloor {} \\right\\rfloor", a);
      case Function::Ceil:
        return fmt::format("\\left\\lceil {} \\right\\rceil", a);
      case Function::Sin:
        return fmt::format("\\sin\\left({}\\right)", a);
      case Function::Cos:
        return fmt::format("\\cos\\left({}\\right)", a);
      case Function::Atan:
        return fmt::format("\\arctan\\left({}\\right)", a);
      default:
        return fmt::format("\\operatorname{{{}}}\\left({}\\right)", program::name_of(scalar.function), a);
    }
  }

  static const char* sign_of(Function comparison) {
    switch (comparison) {
      case Function::Less:
        return "<";
      case Function::LessEqual:
        return "\\le";
      case Function::Equal:
        return "=";
      case Function::NotEqual:
        return "\\ne";
      default:
        return nullptr;
    }
  }
  std::string compared(const Scalar& scalar, const char* sign) {
    return fmt::format("{} {} {}", body(scalar.a, kOr), sign, body(scalar.b, kOr));
  }
  /// What must not be 0.
  std::string condition(ScalarId id) {
    const Scalar& scalar = p_.scalar(id);
    const char* sign = scalar.kind == ScalarKind::Binary ? sign_of(scalar.function) : nullptr;
    return sign != nullptr ? compared(scalar, sign) : body(id, kSum) + " \\ne 0";
  }

  std::string binary(const Scalar& scalar, Level outer) {
    const auto infix = [&](const char* sign, Level level) {
      const std::string text =
          fmt::format("{} {} {}", body(scalar.a, level), sign, body(scalar.b, static_cast<Level>(level + 1)));
      return level < outer ? in_parentheses(text) : text;
    };
    const auto call = [&](const char* name) {
      return fmt::format("\\{}\\left({}, {}\\right)", name, body(scalar.a, kOr), body(scalar.b, kOr));
    };
    switch (scalar.function) {
      case Function::Add:
        return infix("+", kSum);
      case Function::Subtract:
        return infix("-", kSum);
      case Function::Multiply:
        return infix("\\cdot", kProduct);
      case Function::Divide:
        return fmt::format("\\frac{{{}}}{{{}}}", body(scalar.a, kOr), body(scalar.b, kOr));
      case Function::Power:
        return fmt::format("{{{}}}^{{{}}}", in_parentheses(body(scalar.a, kOr)), body(scalar.b, kOr));
      case Function::And:
        return infix("\\wedge", kAnd);
      case Function::Or:
        return infix("\\vee", kOr);
      case Function::Maximum:
        return call("max");
      case Function::Minimum:
        return call("min");
      case Function::Fmod:
        return fmt::format("\\operatorname{{fmod}}\\left({}, {}\\right)", body(scalar.a, kOr),
                           body(scalar.b, kOr));
      default:  // 1 where it holds and 0 elsewhere (Iverson's brackets)
        return fmt::format("\\left[{}\\right]", compared(scalar, sign_of(scalar.function)));
    }
  }

  std::string body(ScalarId id, Level outer) {
    const Scalar& scalar = p_.scalar(id);
    switch (scalar.kind) {
      case ScalarKind::Literal: {
        const std::string text = number(scalar.literal);
        return text[0] == '-' && outer > kSum ? in_parentheses(text) : text;
      }
      case ScalarKind::Index:
        return index(scalar.index, outer);
      case ScalarKind::Read: {
        Texts at;
        for (const ExprId each : scalar.indices) at.push_back(index(each, kOr));
        const std::string text = fmt::format("{}[{}]", name_(p_.tensor(scalar.tensor).name), joined(at));
        if (scalar.fill == Rational(0)) return text;
        return fmt::format("{}_{{\\text{{outside: }} {}}}", text, number(scalar.fill));
      }
      case ScalarKind::Unary:
        if (scalar.function != Function::Negate) return unary(scalar);
        return outer > kSum ? in_parentheses("-" + body(scalar.a, kUnary)) : "-" + body(scalar.a, kUnary);
      case ScalarKind::Binary:
        return binary(scalar, outer);
      case ScalarKind::Select:
        return fmt::format("\\begin{{cases}} {} & \\text{{if }} {} \\\\ {} & \\text{{else}} \\end{{cases}}",
                           body(scalar.b, kOr), condition(scalar.a), body(scalar.c, kOr));
    }
    return {};
  }

  const Program& p_;
  Names name_;
  Texts iterators_, words_;  // by slot: in LaTeX, in the text form
};

}  // namespace

std::string to_latex(const Program& program) {
  program::verify(program);
  return LatexWriter(program).write();
}

}  // namespace syno::emit
