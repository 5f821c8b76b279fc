// Programs as text: the full form, which parses back to the same program, and the short form for people.
#include <algorithm>
#include <set>

#include "program/names.hpp"
#include "program/syntax.hpp"
#include "program/text.hpp"
#include "program/unbound.hpp"
#include "support/error.hpp"

namespace syno::program {
namespace {

// Binding strength of body operators, loosest first; a product is what a reduction takes.
enum Level { kOr, kAnd, kCompare, kSum, kProduct, kUnary, kPower, kAtom };

Level level_of(Function function) {
  switch (function) {
    case Function::Or:
      return kOr;
    case Function::And:
      return kAnd;
    case Function::Less:
    case Function::LessEqual:
    case Function::Equal:
    case Function::NotEqual:
      return kCompare;
    case Function::Add:
    case Function::Subtract:
      return kSum;
    case Function::Multiply:
    case Function::Divide:
      return kProduct;
    default:
      return kAtom;
  }
}

std::string_view word_of(Role role) {
  return role == Role::Weight ? "weight" : role == Role::Constant ? "constant" : "input";
}

// Exact: an integer, a decimal where one of at most six places exists, or ratio(a, b).
std::string number_text(const Rational& value) {
  if (!value.finite() || value.integral()) return value.to_text();
  std::int64_t scale = 10;
  for (int places = 1; places <= 6; ++places, scale *= 10) {
    if (scale % value.den() != 0) continue;
    std::int64_t digits = 0;
    if (__builtin_mul_overflow(value.num(), scale / value.den(), &digits)) break;
    const std::int64_t magnitude = digits < 0 ? -digits : digits;
    return fmt::format("{}{}.{:0{}}", digits < 0 ? "-" : "", magnitude / scale, magnitude % scale, places);
  }
  return fmt::format("ratio({}, {})", value.num(), value.den());
}

class Printer {
 public:
  Printer(const Program& program, bool full) : program_(program), full_(full), names_(program.next_slot) {}

  std::string run() {
    std::string result;
    if (full_) result += size_statements();
    for (const Tensor& tensor : program_.tensors)
      if (tensor.role == Role::Constant || (full_ && tensor.role != Role::Computed))
        result += declaration(tensor);
    for (const Scope& scope : program_.scopes) result += statement(scope);
    const bool last = program_.outputs.size() == 1 && !program_.scopes.empty() &&
                      program_.outputs[0] == program_.scopes.back().output;
    if (full_ || !last) {
      std::vector<std::string> names;
      for (const TensorId id : program_.outputs) names.push_back(program_.tensor(id).name);
      result += fmt::format("return {}\n", fmt::join(names, ", "));
    }
    return result;
  }

  std::string loops() {
    std::string result;
    for (const Scope& scope : program_.scopes) {
      name_iterators(scope);
      const Tensor& output = program_.tensor(scope.output);
      const bool accumulates = !scope.target.empty(), reduces = scope.reduction != Reduction::None;
      if (accumulates) result += fmt::format("{}[...] = 0\n", output.name);
      std::size_t depth = open_loops(scope.traversal, 0, result);
      std::vector<std::string> names;
      for (const Iterator& iterator : scope.traversal) names.push_back(names_[iterator.slot]);
      const std::string place =
          fmt::format("{}[{}]", output.name, accumulates ? indices(scope.target) : join(names));
      const std::string value = body(scope.body, kOr);
      if (!reduces) {
        result += fmt::format("{}{} {}= {}\n", indent(depth), place, accumulates ? "+" : "", value);
        continue;
      }
      const std::string total = accumulates ? "total" : place;
      result += fmt::format("{}{} = {}\n", indent(depth), total, start_of(scope.reduction));
      const std::size_t inner = open_loops(scope.sums, depth, result);
      result += indent(inner) + step_of(scope.reduction, total, value) + "\n";
      if (scope.reduction == Reduction::Mean)
        result += fmt::format("{}{} /= {}\n", indent(depth), total, count(scope.sums));
      if (accumulates) result += fmt::format("{}{} += total\n", indent(depth), place);
    }
    return result;
  }

 private:
  static std::string indent(std::size_t depth) { return std::string(2 * depth, ' '); }

  std::size_t open_loops(const std::vector<Iterator>& iterators, std::size_t depth,
                         std::string& result) const {
    for (const Iterator& iterator : iterators) {
      const symbolic::Expr& begin = program_.arena[iterator.range.begin];
      const bool from_zero = begin.op == symbolic::Op::Constant && begin.value == 0;
      result += fmt::format("{}for {} in range({}{}):\n", indent(depth++), names_[iterator.slot],
                            from_zero ? "" : index(iterator.range.begin) + ", ", index(iterator.range.end));
    }
    return depth;
  }

  static std::string_view start_of(Reduction reduction) {
    switch (reduction) {
      case Reduction::Product:
        return "1";
      case Reduction::Max:
        return "-inf";
      case Reduction::Min:
        return "inf";
      default:
        return "0";
    }
  }
  static std::string step_of(Reduction reduction, const std::string& total, const std::string& value) {
    switch (reduction) {
      case Reduction::Product:
        return fmt::format("{} *= {}", total, value);
      case Reduction::Max:
        return fmt::format("{0} = max({0}, {1})", total, value);
      case Reduction::Min:
        return fmt::format("{0} = min({0}, {1})", total, value);
      default:
        return fmt::format("{} += {}", total, value);
    }
  }
  std::string count(const std::vector<Iterator>& sums) const {
    std::vector<std::string> extents;
    for (const Iterator& iterator : sums) {
      const std::string begin = index(iterator.range.begin), end = index(iterator.range.end);
      extents.push_back(begin == "0" ? fmt::format("({})", end) : fmt::format("({} - ({}))", end, begin));
    }
    return extents.empty()       ? "1"
           : extents.size() == 1 ? extents[0]
                                 : fmt::format("({})", fmt::join(extents, " * "));
  }

  std::string size_statements() const {
    std::string result;
    const auto& variables = program_.sizes.variables();
    for (std::size_t first = 0; first < variables.size();) {
      std::size_t end = first;
      while (end < variables.size() && variables[end].kind == variables[first].kind) ++end;
      std::vector<std::string> names, rows;
      for (std::size_t i = first; i < end; ++i) names.push_back(variables[i].name);
      for (std::size_t v = 0; v < program_.sizes.valuation_count(); ++v) {
        const auto row = program_.sizes.valuation(v).subspan(first, end - first);
        rows.push_back(row.size() == 1 ? std::to_string(row[0]) : fmt::format("({})", fmt::join(row, ", ")));
      }
      result +=
          fmt::format("size {} : {}", fmt::join(names, ", "),
                      variables[first].kind == symbolic::VariableKind::Primary ? "primary" : "coefficient");
      if (!rows.empty()) result += fmt::format(" = {}", fmt::join(rows, ", "));
      result += "\n";
      first = end;
    }
    return result;
  }

  std::string declaration(const Tensor& tensor) const {
    std::vector<std::string> dims, values;
    for (const Range& dim : tensor.dims) dims.push_back(range(dim));
    std::string result = fmt::format("{} {}[{}]", word_of(tensor.role), tensor.name, fmt::join(dims, ", "));
    if (tensor.role == Role::Constant) {
      for (const Rational& value : tensor.literal) values.push_back(value.to_text());
      result += fmt::format(" = {{{}}}", fmt::join(values, ", "));
    }
    return result + "\n";
  }

  std::string statement(const Scope& scope) {
    name_iterators(scope);
    const Tensor& output = program_.tensor(scope.output);
    std::string result = output.name;
    if (scope.target.empty()) {
      result += fmt::format("[{}] = ", iterators(scope.traversal));
    } else {
      if (full_ || !short_target(scope)) {
        std::vector<std::string> dims;
        for (const Range& dim : output.dims) dims.push_back(range(dim));
        result += fmt::format("[{}] : [{}]", fmt::join(dims, ", "), iterators(scope.traversal));
      }
      result += fmt::format("[{}] += ", indices(scope.target));
    }
    const bool reduces = scope.reduction != Reduction::None;
    if (reduces) result += fmt::format("{}[{}] ", syntax::word_of(scope.reduction), iterators(scope.sums));
    result += body(scope.body, reduces ? kProduct : kOr);
    return result + "\n";
  }

  // The short form of an accumulation takes its iterators from the left side.
  bool short_target(const Scope& scope) const {
    std::set<std::uint32_t> used;
    for (const ExprId index : scope.target)
      for (const std::uint32_t slot : program_.arena.iterators(index)) used.insert(slot);
    return used.size() == scope.traversal.size();
  }

  void name_iterators(const Scope& scope) { program::name_iterators(program_, scope, names_); }

  std::string iterators(const std::vector<Iterator>& iterators) const {
    std::vector<std::string> words;
    for (const Iterator& iterator : iterators) {
      const symbolic::Expr& begin = program_.arena[iterator.range.begin];
      const bool from_zero = begin.op == symbolic::Op::Constant && begin.value == 0;
      const std::string& name = names_[iterator.slot];
      words.push_back(full_ || !from_zero ? fmt::format("{}: {}", name, range(iterator.range)) : name);
    }
    return join(words);
  }

  std::string range(const Range& range) const {
    const symbolic::Expr& begin = program_.arena[range.begin];
    if (begin.op == symbolic::Op::Constant && begin.value == 0) return index(range.end);
    return index(range.begin) + ".." + index(range.end);
  }

  std::string index(ExprId id) const {
    std::string text = symbolic::to_text(program_.arena, id, program_.sizes,
                                         [&](std::uint32_t slot) { return names_.at(slot); });
    if (!full_) text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
    return text;
  }

  std::string indices(const std::vector<ExprId>& ids) const {
    std::vector<std::string> words;
    for (const ExprId id : ids) words.push_back(index(id));
    return join(words);
  }

  std::string join(const std::vector<std::string>& words) const {
    return fmt::format("{}", fmt::join(words, full_ ? ", " : ","));
  }

  /// The text of a scalar, in parentheses where it binds looser than `outer`.
  std::string body(ScalarId id, Level outer) const {
    const Scalar& scalar = program_.scalar(id);
    const auto wrapped = [&](std::string text, Level inner) {
      return inner < outer ? "(" + text + ")" : text;
    };
    switch (scalar.kind) {
      case ScalarKind::Literal: {
        const bool negative = scalar.literal < Rational(0);
        return wrapped(number_text(scalar.literal), negative ? kUnary : kAtom);
      }
      case ScalarKind::Index: {
        const bool plain = program_.arena[scalar.index].op == symbolic::Op::Iterator;
        return plain ? index(scalar.index) : fmt::format("index({})", index(scalar.index));
      }
      case ScalarKind::Read: {
        std::string text =
            fmt::format("{}[{}]", program_.tensor(scalar.tensor).name, indices(scalar.indices));
        if (scalar.fill != Rational(0)) text += " fill " + number_text(scalar.fill);
        return text;
      }
      case ScalarKind::Unary:
        if (scalar.function == Function::Negate) {
          // In parentheses, so that a negated number stays distinct from a negative one.
          const bool number = program_.scalar(scalar.a).kind == ScalarKind::Literal;
          const std::string inner = body(scalar.a, kUnary);
          return wrapped(number ? "-(" + inner + ")" : "-" + inner, kUnary);
        }
        return fmt::format("{}({})", name_of(scalar.function), body(scalar.a, kOr));
      case ScalarKind::Binary: {
        const Level level = level_of(scalar.function);
        if (level == kAtom)
          return fmt::format("{}({}, {})", name_of(scalar.function), body(scalar.a, kOr),
                             body(scalar.b, kOr));
        // Comparisons do not chain; the others group to the left.
        const Level left = level == kCompare ? kSum : level;
        const auto right = static_cast<Level>(level + 1);
        return wrapped(
            fmt::format("{} {} {}", body(scalar.a, left), name_of(scalar.function), body(scalar.b, right)),
            level);
      }
      case ScalarKind::Select:
        return fmt::format("select({}, {}, {})", body(scalar.a, kOr), body(scalar.b, kOr),
                           body(scalar.c, kOr));
    }
    return {};
  }

  const Program& program_;
  bool full_;
  std::vector<std::string> names_;  // by slot, for the scope being printed
};

}  // namespace

std::string to_text(const Program& program) { return Printer(program, true).run(); }

std::string to_loops(const Program& program) { return Printer(program, true).loops(); }

std::string to_short_text(const Program& program) {
  std::string text = Printer(program, false).run();
  if (!text.empty()) text.pop_back();
  if (program.concrete()) return text;
  try {  // without `size` statements, some sizes would be taken for iterators
    std::string marked;
    std::size_t from = 0;
    for (const syntax::Token& name : syntax::names_to_mark(text, syntax::parse_text(text))) {
      marked += text.substr(from, name.position - from) + fmt::format("size({})", name.text);
      from = name.position + name.text.size();
    }
    return marked + text.substr(from);
  } catch (const ParseError&) {  // longer or deeper than what is read
    return text;
  }
}

}  // namespace syno::program
