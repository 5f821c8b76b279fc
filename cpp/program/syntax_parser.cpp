#include <algorithm>
#include <array>

#include "program/names.hpp"
#include "program/syntax.hpp"
#include "support/error.hpp"

namespace syno::program::syntax {
namespace {

// Deep enough for anything written or generated, shallow enough that recursion over a tree is safe.
constexpr std::size_t kMaxNesting = 200;
constexpr std::size_t kMaxDepth = 1000;
constexpr std::size_t kMaxIndexTokens = 500;
constexpr std::size_t kMaxStatements = 10'000;
constexpr std::size_t kMaxText = std::size_t{64} << 20;

template <class T, std::size_t N>
std::optional<T> lookup(const std::array<std::pair<std::string_view, T>, N>& table, std::string_view word) {
  for (const auto& [name, value] : table)
    if (name == word) return value;
  return std::nullopt;
}

constexpr std::array<std::pair<std::string_view, Reduction>, 5> kReductions = {{{"sum", Reduction::Sum},
                                                                                {"max", Reduction::Max},
                                                                                {"min", Reduction::Min},
                                                                                {"prod", Reduction::Product},
                                                                                {"mean", Reduction::Mean}}};
/// Functions that are called, but for those whose row says so itself.
constexpr std::array<std::pair<std::string_view, Function>, 3> kCalls = {
    {{"maximum", Function::Maximum}, {"minimum", Function::Minimum}, {"neg", Function::Negate}}};

std::optional<Function> called(std::string_view word) {
  for (const FunctionRow& row : kFunctions)
    if (row.symbol == word && is_call(row.function)) return row.function;
  return lookup(kCalls, word);
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {
    if (text.size() > kMaxText)
      fail<ParseError>("parse", "the text has {} bytes; the limit is {}", text.size(), kMaxText);
    tokens_ = tokenize(text);
    join_lines();
  }

  Text run() {
    Text result;
    for (;;) {
      while (peek().kind == TokenKind::Newline || is(";")) ++at_;
      if (peek().kind == TokenKind::End) break;
      statement(result);
      if (peek().kind != TokenKind::End && peek().kind != TokenKind::Newline && !is(";"))
        wrong("expected an operator or the end of the statement");
    }
    if (result.scopes.empty())
      parse_error(text_, text_.size(), "there is no statement such as `y[i] = 2 * x[i]` in this text");
    return result;
  }

 private:
  // A line that cannot end where it does goes on.
  void join_lines() {
    constexpr std::string_view kOpen[] = {"+", "-", "*",  "/",  "**", ",",  "=",   "+=", ":",
                                          "<", ">", "<=", ">=", "==", "!=", "and", "or"};
    constexpr std::string_view kNext[] = {"+",  "-",  "*",  "/",  "**",  ",",  "<",   ">",
                                          "<=", ">=", "==", "!=", "and", "or", "fill"};
    const auto one_of = [](const auto& set, std::string_view word) {
      return std::find(std::begin(set), std::end(set), word) != std::end(set);
    };
    std::vector<Token> joined;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (tokens_[i].kind == TokenKind::Newline) {
        while (tokens_[i + 1].kind == TokenKind::Newline) ++i;  // the last token is no newline
        const bool goes_on =
            !joined.empty() && (one_of(kOpen, joined.back().text) || one_of(kNext, tokens_[i + 1].text));
        if (goes_on) continue;
      }
      joined.push_back(tokens_[i]);
    }
    tokens_ = std::move(joined);
  }

  const Token& peek(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  bool is(std::string_view symbol) const { return peek().kind == TokenKind::Symbol && peek().text == symbol; }
  bool is_word(std::string_view word) const { return peek().kind == TokenKind::Name && peek().text == word; }
  bool accept(std::string_view symbol) {
    if (!is(symbol)) return false;
    ++at_;
    return true;
  }
  void expect(std::string_view symbol) {
    if (!accept(symbol)) wrong(fmt::format("expected `{}`", symbol));
  }
  Token name(std::string_view what) {
    if (peek().kind != TokenKind::Name) wrong(fmt::format("expected {}", what));
    return tokens_[at_++];
  }
  [[noreturn]] void wrong(std::string_view message) const { parse_error(text_, peek().position, message); }

  void statement(Text& result) {
    const bool keyword = peek().kind == TokenKind::Name && peek(1).kind == TokenKind::Name;
    const std::string_view word = keyword ? peek().text : std::string_view();
    if (word == "size") return size_statement(result);
    if (word == "input" || word == "weight" || word == "constant") return tensor_statement(result);
    if (word == "return") {
      if (!result.outputs.empty()) wrong("the outputs are returned twice");
      ++at_;
      do result.outputs.push_back(name("the name of an output"));
      while (accept(","));
      return;
    }
    scope_statement(result);
  }

  void size_statement(Text& result) {
    SizeStatement size;
    size.position = peek().position;
    ++at_;
    do size.names.push_back(name("the name of a size"));
    while (accept(","));
    if (accept(":")) {
      if (is_word("primary"))
        size.kind = symbolic::VariableKind::Primary;
      else if (is_word("coefficient"))
        size.kind = symbolic::VariableKind::Coefficient;
      else
        wrong("expected `primary` or `coefficient`");
      ++at_;
    }
    if (accept("=")) {
      do {
        std::vector<std::int64_t> row;
        const bool tuple = accept("(");
        do row.push_back(size_value());
        while (tuple && accept(","));
        if (tuple) expect(")");
        if (row.size() != size.names.size())
          wrong(fmt::format("{} values before this for {} sizes", row.size(), size.names.size()));
        size.values.push_back(std::move(row));
      } while (accept(","));
    }
    result.sizes.push_back(std::move(size));
  }

  std::int64_t size_value() {
    const Rational value = number();
    if (!value.integral() || value.num() < 1)
      parse_error(text_, tokens_[at_ - 1].position, "a size is a positive integer");
    return value.num();
  }

  void tensor_statement(Text& result) {
    const std::string_view word = tokens_[at_++].text;
    do {
      TensorStatement tensor;
      tensor.role = word == "input" ? Role::Input : word == "weight" ? Role::Weight : Role::Constant;
      tensor.name = tensor_name();
      expect("[");
      while (!is("]")) {
        tensor.dims.push_back(range());
        if (!accept(",")) break;
      }
      expect("]");
      if (tensor.role == Role::Constant) {
        expect("=");
        expect("{");
        while (!is("}")) {
          tensor.literal.push_back(rational());
          if (!accept(",")) break;
        }
        expect("}");
      }
      result.tensors.push_back(std::move(tensor));
    } while (accept(","));
  }

  Token tensor_name() {
    const Token result = name("the name of a tensor");
    if (is_reserved(result.text))
      parse_error(text_, result.position,
                  fmt::format("`{}` is a word of the language, not a name for a tensor", result.text));
    return result;
  }

  void scope_statement(Text& result) {
    ScopeStatement scope;
    if (peek().kind != TokenKind::Name) wrong("expected a statement such as `y[i] = 2 * x[i]`");
    scope.output = tensor_name();
    expect("[");
    const std::size_t left = at_;
    skip_to_closing();
    expect("]");
    const bool full_accumulation = is(":");
    scope.accumulates = full_accumulation || is("+=");
    const std::size_t after = at_;
    at_ = left;
    if (full_accumulation) {
      scope.dims.emplace();
      while (!is("]")) {
        scope.dims->push_back(range());
        if (!accept(",")) break;
      }
      expect("]");
      expect(":");
      expect("[");
      scope.traversal = bindings();
      expect("]");
      expect("[");
      scope.target = index_list();
      expect("]");
      expect("+=");
    } else if (scope.accumulates) {
      scope.target = index_list();
      at_ = after;
      expect("+=");
    } else {
      scope.traversal = bindings();
      expect("]");
      expect("=");
    }
    scope.body = expression();
    if (result.scopes.size() == kMaxStatements)
      wrong(fmt::format("these are more than {} statements: make several programs of them", kMaxStatements));
    result.scopes.push_back(std::move(scope));
  }

  void skip_to_closing() {
    for (std::size_t depth = 1; peek().kind != TokenKind::End; ++at_) {
      if (is("[") || is("(") || is("{")) ++depth;
      if ((is("]") || is(")") || is("}")) && --depth == 0) return;
    }
  }

  /// `n, h: H, r: -1..2`, up to the closing bracket.
  std::vector<Binding> bindings() {
    std::vector<Binding> result;
    while (!is("]")) {
      Binding binding;
      binding.name =
          name("an iterator (the left side of `=` and the brackets of a reduction hold plain iterators)");
      for (const Binding& other : result)
        if (other.name.text == binding.name.text)
          parse_error(text_, binding.name.position,
                      fmt::format("iterator '{}' appears twice", binding.name.text));
      if (accept(":")) binding.range = range();
      result.push_back(std::move(binding));
      if (!accept(",")) break;
    }
    return result;
  }

  RangeText range() {
    RangeText result;
    result.end = index();
    if (accept("..")) {
      result.begin = std::move(result.end);
      result.end = index();
    }
    return result;
  }

  std::vector<IndexText> index_list() {
    std::vector<IndexText> result;
    while (!is("]")) {
      result.push_back(index());
      if (!accept(",")) break;
    }
    return result;
  }

  IndexText index() {
    IndexText result;
    const std::size_t first = at_;
    result.place.begin = peek().position;
    for (std::size_t depth = 0;; ++at_) {
      const Token& token = peek();
      if (token.kind == TokenKind::End || token.kind == TokenKind::Newline) break;
      if (depth == 0 && (is(",") || is("]") || is(")") || is("..") || is(":") || is(";"))) break;
      if (is("[") || is("]") || is("{") || is("}") || is("=") || is(";") || is(".."))
        wrong("an index expression has only integers, names, `+ - * / %` and `inside(e, size)`");
      if (is("(") && ++depth > kMaxNesting) wrong("this is nested too deeply");
      if (is(")")) --depth;
      const Place place{token.position, token.position + token.text.size()};
      if (is_word("size") && peek(1).text == "(")
        result.names.push_back(size_mark());
      else if (token.kind == TokenKind::Name && !(token.text == "inside" && peek(1).text == "("))
        result.names.push_back({token, place});
      if (at_ - first > kMaxIndexTokens) wrong("this index expression is too long");
      result.place.end = peek().position + peek().text.size();
    }
    if (at_ == first) wrong("expected an index expression");
    return result;
  }

  /// `size(k)`; stops at its closing parenthesis.
  IndexName size_mark() {
    const std::size_t begin = tokens_[at_].position;
    at_ += 2;
    const Token size = name("the name of a size, as in `size(k)`");
    if (!is(")")) wrong("`size(k)` holds one name");
    return {size, {begin, peek().position + 1}, true};
  }

  // --- bodies, loosest binding first ---

  NodePtr expression() {
    nest();
    NodePtr left = conjunction();
    while (is_word("or")) left = binary(Function::Or, std::move(left), &Parser::conjunction);
    --nesting_;
    return left;
  }

  NodePtr conjunction() {
    NodePtr left = comparison();
    while (is_word("and")) left = binary(Function::And, std::move(left), &Parser::comparison);
    return left;
  }

  NodePtr comparison() {
    constexpr std::array<std::pair<std::string_view, Function>, 6> kSigns = {{{"<", Function::Less},
                                                                              {"<=", Function::LessEqual},
                                                                              {"==", Function::Equal},
                                                                              {"!=", Function::NotEqual},
                                                                              {">", Function::Less},
                                                                              {">=", Function::LessEqual}}};
    NodePtr left = sum();
    const auto sign = peek().kind == TokenKind::Symbol ? lookup(kSigns, peek().text) : std::nullopt;
    if (!sign) return left;
    const bool swap = is(">") || is(">=");
    NodePtr result = binary(*sign, std::move(left), &Parser::sum);
    if (swap) std::swap(result->operands[0], result->operands[1]);
    if (peek().kind == TokenKind::Symbol && lookup(kSigns, peek().text))
      wrong("comparisons do not chain: write `a < b and b < c`");
    return result;
  }

  NodePtr sum() {
    NodePtr left = product();
    while (is("+") || is("-"))
      left = binary(is("+") ? Function::Add : Function::Subtract, std::move(left), &Parser::product);
    return left;
  }

  NodePtr product() {
    NodePtr left = unary();
    while (is("*") || is("/"))
      left = binary(is("*") ? Function::Multiply : Function::Divide, std::move(left), &Parser::unary);
    if (is("%") || is("//"))
      wrong("`%` and `//` are for indices: write `index(i % 4)` to use an index as a number");
    return left;
  }

  NodePtr unary() {
    nest();
    NodePtr result;
    const bool number_next =
        peek(1).kind == TokenKind::Number || (peek(1).kind == TokenKind::Name && peek(1).text == "inf");
    if (is("-") && number_next && peek(2).text != "**") {
      result = node(NodeKind::Literal);
      result->literal = signed_number();
    } else if (is("-")) {
      result = node(NodeKind::Unary);
      result->function = Function::Negate;
      ++at_;
      adopt(*result, unary());
    } else if (peek().kind == TokenKind::Name && peek(1).text == "[" && lookup(kReductions, peek().text)) {
      result = node(NodeKind::Reduce);
      result->reduction = *lookup(kReductions, peek().text);
      at_ += 2;
      result->sums = bindings();
      expect("]");
      adopt(*result, product());
    } else {
      result = power();
    }
    --nesting_;
    return result;
  }

  NodePtr power() {
    NodePtr base = atom();
    if (is("**")) return binary(Function::Power, std::move(base), &Parser::unary);
    if (is("^")) wrong("write powers as `a ** b` or `pow(a, b)`");
    return base;
  }

  NodePtr atom() {
    if (accept("(")) {
      NodePtr inner = expression();
      expect(")");
      return inner;
    }
    NodePtr result = node(NodeKind::Literal);
    if (peek().kind == TokenKind::Number) {
      result->literal = number();
      return result;
    }
    if (peek().kind != TokenKind::Name) wrong("expected a number, a read such as `x[i]`, a function or `(`");
    if (peek(1).text == "[") return read();
    if (peek(1).text == "(") return call();
    if (is_word("inf")) {
      ++at_;
      result->literal = Rational::infinity();
      return result;
    }
    if (is_reserved(peek().text))
      wrong(fmt::format("`{}` is a word of the language and cannot stand here", peek().text));
    result->kind = NodeKind::Name;
    result->name = tokens_[at_++];
    return result;
  }

  NodePtr read() {
    NodePtr result = node(NodeKind::Read);
    result->name = tensor_name();
    expect("[");
    result->indices = index_list();
    expect("]");
    if (is_word("fill")) {
      ++at_;
      result->fill = signed_number();
    }
    return result;
  }

  NodePtr call() {
    NodePtr result = node(NodeKind::Unary);
    const Token function = tokens_[at_++];
    expect("(");
    if (function.text == "index") {
      result->kind = NodeKind::Index;
      result->indices.push_back(index());
      expect(")");
      return result;
    }
    if (function.text == "size") {
      result->kind = NodeKind::Name;
      result->name = name("the name of a size, as in `size(k)`");
      result->marked = true;
      expect(")");
      return result;
    }
    if (function.text == "ratio") {
      result->kind = NodeKind::Literal;
      const Rational numerator = signed_number();
      expect(",");
      const Rational denominator = signed_number();
      expect(")");
      if (denominator == Rational(0)) parse_error(text_, function.position, "the denominator is 0");
      result->literal = numerator / denominator;
      return result;
    }
    do adopt(*result, expression());
    while (accept(","));
    expect(")");
    const std::size_t given = result->operands.size();
    std::size_t wanted = 3;
    if (function.text == "select") {
      result->kind = NodeKind::Select;
    } else if (const auto known = called(function.text)) {
      result->function = *known;
      wanted = is_unary(*known) ? 1 : 2;
      if (wanted == 2) result->kind = NodeKind::Binary;
    } else if (lookup(kReductions, function.text)) {
      parse_error(text_, function.position,
                  fmt::format("a reduction names its iterators in brackets: `{0}[k] x[k]`, not `{0}(x)`",
                              function.text));
    } else {
      std::vector<std::string> names = {"select", "index", "ratio", "size"};
      for (const FunctionRow& row : kFunctions)
        if (is_call(row.function)) names.emplace_back(row.symbol);
      for (const auto& [word, unused] : kCalls) names.emplace_back(word);
      parse_error(text_, function.position, unknown_name("function", function.text, names));
    }
    if (given != wanted)
      parse_error(text_, function.position,
                  fmt::format("`{}` takes {} operands, but {} are given", function.text, wanted, given));
    return result;
  }

  NodePtr binary(Function function, NodePtr left, NodePtr (Parser::*right)()) {
    NodePtr result = node(NodeKind::Binary);
    ++at_;
    result->function = function;
    adopt(*result, std::move(left));
    adopt(*result, (this->*right)());
    return result;
  }

  NodePtr node(NodeKind kind) const {
    auto result = std::make_unique<Node>();
    result->kind = kind;
    result->position = peek().position;
    return result;
  }
  void adopt(Node& parent, NodePtr child) const {
    parent.depth = std::max(parent.depth, child->depth + 1);
    if (parent.depth > kMaxDepth)
      parse_error(text_, parent.position, "this expression is too deep: split it into several statements");
    parent.operands.push_back(std::move(child));
  }
  void nest() {
    if (++nesting_ > kMaxNesting) wrong("this is nested too deeply");
  }

  // --- numbers ---

  Rational number() {
    if (is_word("inf")) {
      ++at_;
      return Rational::infinity();
    }
    if (peek().kind != TokenKind::Number) wrong("expected a number");
    const Token token = tokens_[at_++];
    if (const auto value = parse_decimal(token.text)) return *value;
    parse_error(text_, token.position, "this number does not fit 64 bits as an exact fraction");
  }
  Rational signed_number() {
    const bool negative = accept("-");
    if (is_word("ratio")) {
      ++at_;
      expect("(");
      const Rational numerator = signed_number();
      expect(",");
      const Rational denominator = signed_number();
      if (denominator == Rational(0)) wrong("the denominator is 0");
      expect(")");
      return negative ? Rational(0) - numerator / denominator : numerator / denominator;
    }
    const Rational value = number();
    if (!value.finite()) return Rational::infinity(negative);
    return negative ? Rational(0) - value : value;
  }
  Rational rational() {
    const Rational value = signed_number();
    if (!accept("/")) return value;
    const Rational denominator = number();
    if (denominator == Rational(0)) wrong("the denominator before this is 0");
    return value / denominator;
  }

  std::string_view text_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  std::size_t nesting_ = 0;
};

}  // namespace

std::string spelled(std::string_view text, const IndexText& index,
                    const std::function<std::optional<std::string>(const IndexName&)>& instead) {
  std::string result;
  std::size_t from = index.place.begin;
  for (const IndexName& name : index.names) {
    const std::optional<std::string> other = instead(name);
    if (!other) continue;
    result += text.substr(from, name.place.begin - from);
    result += *other;
    from = name.place.end;
  }
  result += text.substr(from, index.place.end - from);
  for (std::size_t at = 0; (at = result.find('#', at)) != std::string::npos;)  // comments
    result.erase(at, std::min(result.find('\n', at), result.size()) - at);
  std::replace(result.begin(), result.end(), '\n', ' ');
  std::replace(result.begin(), result.end(), '\r', ' ');
  return result;
}

Text parse_text(std::string_view text) { return Parser(text).run(); }

std::string_view word_of(Reduction reduction) {
  for (const auto& [word, value] : kReductions)
    if (value == reduction) return word;
  return "";
}

}  // namespace syno::program::syntax
