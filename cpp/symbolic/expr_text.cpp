// The text form of index expressions: printing with the fewest parentheses, and parsing.
#include <cctype>
#include <charconv>
#include <variant>

#include "support/error.hpp"
#include "symbolic/expr.hpp"

namespace syno::symbolic {
namespace {

enum Precedence { kSum = 0, kProduct = 1, kAtom = 2 };

/// A size as the expression language writes it: fractions as powers, since `/` is floor division there.
struct SizeText {
  std::string text;
  bool compound = false;  ///< needs parentheses as a divisor
};
SizeText size_text(const Size& size, const Sizes& sizes) {
  const Rational factor = size.factor();
  std::size_t parts = 0;
  std::string text;
  const auto part = [&](std::string word) { text += (parts++ == 0 ? "" : "*") + word; };
  if (factor.num() != 1 || (factor.den() == 1 && !size.has_variables())) part(std::to_string(factor.num()));
  if (factor.den() != 1) part(std::to_string(factor.den()) + "^-1");
  if (size.has_variables()) part(sizes.to_text(size / Size(factor)));
  return {text, text.find('*') != std::string::npos};
}

class Printer {
 public:
  Printer(const Arena& arena, const Sizes& sizes, const Names& names)
      : arena_(arena), sizes_(sizes), names_(names) {}

  std::string operator()(ExprId id, int outer) const {
    const Expr& node = arena_[id];
    switch (node.op) {
      case Op::Iterator:
        return names_(static_cast<std::uint32_t>(node.a));
      case Op::Constant:
        return wrapped(std::to_string(node.value), node.value < 0 ? kSum : kAtom, outer);
      case Op::SizeValue: {
        const SizeText size = size_text(arena_[node.size], sizes_);
        return wrapped(size.text, size.compound ? kProduct : kAtom, outer);
      }
      case Op::Add:
        return wrapped((*this)(node.a, kSum) + term(node.b), kSum, outer);
      case Op::Multiply:
        if (node.value == -1) return wrapped("-" + (*this)(node.a, kAtom), kSum, outer);
        if (arena_[node.size].is_one()) {
          return wrapped(std::to_string(node.value) + " * " + (*this)(node.a, kAtom),
                         node.value < 0 ? kSum : kProduct, outer);
        }
        return wrapped((*this)(node.a, kProduct) + " * " + divisor(node.size), kProduct, outer);
      case Op::Divide:
        return wrapped((*this)(node.a, kProduct) + " / " + divisor(node.size), kProduct, outer);
      case Op::Modulo:
        return wrapped((*this)(node.a, kProduct) + " % " + divisor(node.size), kProduct, outer);
      case Op::Inside:
        return "inside(" + (*this)(node.a, kSum) + ", " + size_text(arena_[node.size], sizes_).text + ")";
    }
    return {};
  }

 private:
  static std::string wrapped(std::string text, int inner, int outer) {
    return inner < outer ? "(" + text + ")" : text;
  }
  std::string divisor(SizeId id) const {
    const SizeText size = size_text(arena_[id], sizes_);
    return size.compound ? "(" + size.text + ")" : size.text;
  }
  /// A summand with its sign in front: " + x" or " - x".
  std::string term(ExprId id) const {
    const Expr& node = arena_[id];
    if (node.op == Op::Constant && node.value < 0) return " - " + std::to_string(node.value).substr(1);
    if (node.op == Op::Multiply && node.value == -1) {
      return " - " + (*this)(node.a, kAtom);
    }
    if (node.op == Op::Multiply && node.value < 0 && arena_[node.size].is_one()) {
      return " - " + (*this)(id, kSum).substr(1);
    }
    return " + " + (*this)(id, kProduct);
  }

  const Arena& arena_;
  const Sizes& sizes_;
  const Names& names_;
};

// What recursion over an expression can bear: a sum grows to the left by one level a term.
constexpr std::size_t kMaxText = std::size_t{1} << 13;
constexpr std::size_t kMaxNesting = 250;

/// What a subterm stands for so far: a pure size stays one, so that it can be a divisor or carry powers.
using Value = std::variant<ExprId, Size>;

class ExprParser {
 public:
  ExprParser(Arena& arena, std::string_view text, const Sizes& sizes, const SlotOf& slot_of)
      : arena_(arena), text_(text), sizes_(sizes), slot_of_(slot_of) {}

  ExprId parse() {
    if (text_.size() > kMaxText)
      fail<ParseError>("index", "an index expression has {} bytes; at most {} are read", text_.size(),
                       kMaxText);
    const ExprId result = to_expr(sum());
    if (at_ != text_.size()) wrong("expected an operator or the end");
    return result;
  }

 private:
  [[noreturn]] void wrong(std::string_view what) const {
    fail<ParseError>("index", "{} at column {}\n  {}\n  {:>{}}", what, at_ + 1, text_, "^", at_ + 1);
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_space() {
    while (peek() == ' ' || peek() == '\t') ++at_;
  }
  bool accept(char c) {
    skip_space();
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) wrong(fmt::format("expected '{}'", c));
  }

  ExprId to_expr(const Value& value) {
    if (const Size* size = std::get_if<Size>(&value)) return arena_.size(*size);
    return std::get<ExprId>(value);
  }
  Size to_size(const Value& value) {
    if (const Size* size = std::get_if<Size>(&value)) return *size;
    const Expr& node = arena_[std::get<ExprId>(value)];
    if (node.op == Op::SizeValue) return arena_[node.size];
    if (node.op == Op::Constant && node.value > 0) return Size(node.value);
    wrong("expected a positive size, as a divisor or extent must be, before this");
  }

  Value sum() {
    Value result = product();
    for (;;) {
      skip_space();
      if (accept('+')) {
        const ExprId left = to_expr(result);
        result = arena_.add(left, to_expr(product()));
      } else if (accept('-')) {
        const ExprId left = to_expr(result);
        result = arena_.subtract(left, to_expr(product()));
      } else {
        return result;
      }
    }
  }

  Value product() {
    Value result = factor();
    for (;;) {
      const bool space_before = at_ > 0 && text_[at_ - 1] == ' ';
      skip_space();
      const bool spaced = space_before || (at_ > 0 && text_[at_ - 1] == ' ');
      if (accept('*')) {
        result = times(result, factor());
      } else if (peek() == '/' || peek() == '%') {
        const bool divide = text_[at_++] == '/';
        if (divide && peek() == '/') ++at_;  // Python's floor division is the same
        const bool tight_monomial = spaced && peek() == ' ';
        Size by = to_size(factor());
        while (tight_monomial && peek() == '*' && at_ + 1 < text_.size() && text_[at_ + 1] != ' ') {
          ++at_;
          by = by * to_size(factor());
        }
        const ExprId a = to_expr(result);
        result = divide ? arena_.divide(a, by) : arena_.modulo(a, by);
      } else {
        return result;
      }
    }
  }

  Value times(const Value& a, const Value& b) {
    const Size* left = std::get_if<Size>(&a);
    const Size* right = std::get_if<Size>(&b);
    if (left && right) return *left * *right;
    if (right) return arena_.multiply(std::get<ExprId>(a), *right);
    if (left) return arena_.multiply(std::get<ExprId>(b), *left);
    for (const auto& [one, other] : {std::pair(a, b), std::pair(b, a)}) {
      const Expr& node = arena_[std::get<ExprId>(one)];
      if (node.op == Op::Constant) return arena_.multiply(std::get<ExprId>(other), node.value);
    }
    wrong("a product needs at least one factor that is a size or an integer, but this one has none before");
  }

  Value factor() {
    if (nesting_ == kMaxNesting) wrong("this is nested too deeply");
    ++nesting_;
    const Value result = nested_factor();
    --nesting_;
    return result;
  }

  Value nested_factor() {
    skip_space();
    if (accept('-')) return arena_.multiply(to_expr(factor()), -1);
    Value base = atom();
    if (peek() != '^') return base;
    ++at_;
    const bool negative = accept('-');
    const std::int64_t exponent = integer();
    if (exponent > 127) wrong("the exponent is too large");
    return to_size(base).pow(static_cast<int>(negative ? -exponent : exponent));
  }

  Value atom() {
    skip_space();
    if (accept('(')) {
      Value result = sum();
      expect(')');
      return result;
    }
    if (std::isdigit(static_cast<unsigned char>(peek()))) {
      const std::int64_t value = integer();
      if (value == 0) return arena_.constant(0);
      return Size(value);
    }
    if (!std::isalpha(static_cast<unsigned char>(peek())) && peek() != '_') {
      wrong("expected a name, an integer or '('");
    }
    const std::size_t begin = at_;
    while (std::isalnum(static_cast<unsigned char>(peek())) || peek() == '_') ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (name == "inside" && peek() == '(') {
      ++at_;
      const ExprId value = to_expr(sum());
      expect(',');
      const Size extent = to_size(sum());
      expect(')');
      return arena_.inside(value, extent);
    }
    if (const auto slot = slot_of_(name)) return arena_.iterator(*slot);
    if (const auto variable = sizes_.find(name)) return Size::variable(*variable);
    at_ = begin;
    wrong(fmt::format("'{}' is neither an iterator nor a size here,", name));
  }

  std::int64_t integer() {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc() || value < 0) wrong("expected an integer that fits 64 bits");
    at_ = static_cast<std::size_t>(end - text_.data());
    return value;
  }

  Arena& arena_;
  std::string_view text_;
  const Sizes& sizes_;
  const SlotOf& slot_of_;
  std::size_t at_ = 0;
  std::size_t nesting_ = 0;
};

}  // namespace

std::string to_text(const Arena& arena, ExprId root, const Sizes& sizes, const Names& names) {
  return Printer(arena, sizes, names)(root, kSum);
}

ExprId parse_expr(Arena& arena, std::string_view text, const Sizes& sizes, const SlotOf& slot_of) {
  return ExprParser(arena, text, sizes, slot_of).parse();
}

}  // namespace syno::symbolic
