// The text form of loop nests: parsing, line by line, blocks by indentation.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>

#include "nest/affine.hpp"
#include "nest/loop_nest.hpp"
#include "nest/words.hpp"
#include "support/error.hpp"

namespace syno::nest {
namespace {

using program::Function;

struct Line {
  std::string_view text;  ///< without indentation
  std::size_t number = 0;
  std::size_t indentation = 0;
};

// Deeper than anything that is generated, shallow enough that recursion over statements and values is safe.
constexpr std::size_t kMaxText = std::size_t{64} << 20;
constexpr std::size_t kMaxNesting = 200;
constexpr std::size_t kMaxTerms = 2000;  // of one sum or product: trees grow to the left
constexpr std::int64_t kLargestParameter = std::int64_t{1} << 40;

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

class Parser {
 public:
  explicit Parser(std::string_view text) {
    if (text.size() > kMaxText)
      fail<ParseError>("loop nest", "the text has {} bytes; at most {} are read", text.size(), kMaxText);
    std::size_t number = 0;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      std::string_view raw = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      ++number;
      if (const std::size_t comment = raw.find('#'); comment != std::string_view::npos)
        raw = raw.substr(0, comment);
      while (!raw.empty() && std::isspace(static_cast<unsigned char>(raw.back()))) raw.remove_suffix(1);
      const std::size_t indentation = std::min(raw.find_first_not_of(' '), raw.size());
      if (raw.size() > indentation) lines_.push_back({raw.substr(indentation), number, indentation});
    }
  }

  LoopNest run() {
    if (lines_.empty()) fail<ParseError>("loop nest", "the text is empty; a nest begins with `nest <name>`");
    open(0);
    if (!word("nest")) wrong("expected `nest <name>`");
    nest_.name = name();
    finish();
    std::size_t next = 1;
    while (next < lines_.size() && parameter(next)) ++next;
    while (next < lines_.size() && declaration(next)) ++next;
    // Nested deeper than the declarations or not: the first statement says where the body stands.
    const std::size_t indentation = next < lines_.size() ? lines_[next].indentation : 0;
    nest_.root = block(next, indentation);
    if (next < lines_.size()) {
      open(next);
      wrong("this line is indented less than the body it belongs to");
    }
    return std::move(nest_);
  }

 private:
  // ---- one line at a time
  void open(std::size_t index) {
    line_ = index;
    rest_ = lines_[index].text;
  }
  [[noreturn]] void wrong(std::string_view what) const {
    const Line& line = lines_[line_];
    const std::size_t column = line.text.size() - rest_.size();
    fail<ParseError>("loop nest", "line {}: {}\n  {}\n  {:>{}}", line.number, what, line.text, "^",
                     column + 1);
  }
  void skip() {
    while (!rest_.empty() && rest_[0] == ' ') rest_.remove_prefix(1);
  }
  bool accept(std::string_view sign) {
    skip();
    if (!rest_.starts_with(sign)) return false;
    rest_.remove_prefix(sign.size());
    return true;
  }
  void expect(std::string_view sign) {
    if (!accept(sign)) wrong(fmt::format("expected `{}`", sign));
  }
  bool word(std::string_view wanted) {
    skip();
    if (!rest_.starts_with(wanted) || (rest_.size() > wanted.size() && is_name(rest_[wanted.size()])))
      return false;
    rest_.remove_prefix(wanted.size());
    return true;
  }
  std::string name() {
    skip();
    std::size_t n = 0;
    while (n < rest_.size() && is_name(rest_[n])) ++n;
    if (n == 0 || std::isdigit(static_cast<unsigned char>(rest_[0]))) wrong("expected a name");
    const std::string found(rest_.substr(0, n));
    rest_.remove_prefix(n);
    return found;
  }
  void finish() {
    skip();
    if (!rest_.empty()) wrong("expected the end of the line");
  }
  std::int64_t integer() {
    skip();
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) wrong("expected an integer that fits 64 bits");
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }
  bool at_number() {
    skip();
    std::string_view text = rest_;
    if (text.starts_with('-')) text.remove_prefix(1);
    if (text.empty()) return false;
    if (std::isdigit(static_cast<unsigned char>(text[0])) || text[0] == '.') return true;
    for (const std::string_view special : {"inf", "nan"})
      if (text.starts_with(special) && (text.size() == 3 || !is_name(text[3]))) return true;
    return false;
  }
  double number() {
    skip();
    const bool negative = accept("-");
    double value = 0;
    if (word("inf")) {
      value = std::numeric_limits<double>::infinity();
    } else if (word("nan")) {
      value = std::numeric_limits<double>::quiet_NaN();
    } else {
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
      if (error != std::errc()) wrong("expected a number");
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    }
    return negative ? -value : value;
  }
  template <class Enum, std::size_t n>
  Enum choice(const Words<Enum, n>& words, std::string_view what) {
    for (const auto& [key, text] : words)
      if (word(text)) return key;
    std::string valid;
    for (const auto& [key, text] : words) valid += fmt::format("{}{}", valid.empty() ? "" : ", ", text);
    wrong(fmt::format("expected {}: one of {}", what, valid));
  }
  std::vector<std::int64_t> integers() {
    expect("[");
    std::vector<std::int64_t> all;
    if (accept("]")) return all;
    do all.push_back(integer());
    while (accept(","));
    expect("]");
    return all;
  }

  // ---- declarations
  bool parameter(std::size_t index) {
    open(index);
    if (!word("parameter")) return false;
    Parameter made;
    made.name = name();
    if (slots_.count(made.name)) wrong(fmt::format("a second parameter is called `{}`", made.name));
    if (!word("in")) wrong("expected `in <begin>..<end>`");
    made.least = integer();
    expect("..");
    made.greatest = integer();
    if (made.least < 1 || made.greatest <= made.least)
      wrong(fmt::format("a parameter is in {}..{}; sizes begin at 1 and end after it", made.least,
                        made.greatest));
    if (made.greatest > kLargestParameter)
      wrong(fmt::format("a parameter is in {}..{}; at most {} are taken", made.least, made.greatest,
                        kLargestParameter));
    --made.greatest;
    finish();
    made.slot = nest_.new_slot();
    slots_[made.name].push_back(made.slot);
    ranges_.bind(made.slot, {made.least, made.greatest});
    nest_.parameters.push_back(std::move(made));
    return true;
  }
  /// Of a buffer: numbers, or what they are over parameters.
  void extents(Buffer& buffer) {
    buffer.live = indices();
    bool constant = true;
    for (const ExprId extent : buffer.live) {
      const AffineForm form = ranges_.form(nest_.arena, extent);
      constant = constant && form.is_constant();
      buffer.extents.push_back(ranges_.bounds(form).greatest);
      if (ranges_.bounds(form).least < 0)
        wrong(fmt::format("an extent is {}; extents are not negative", ranges_.bounds(form).least));
    }
    if (constant) buffer.live.clear();
  }
  bool declaration(std::size_t index) {
    open(index);
    Buffer buffer;
    bool found = false;
    for (const auto& [kind, text] : kBufferWords) {
      if (!word(text)) continue;
      buffer.kind = kind;
      found = true;
      break;
    }
    if (!found) return false;
    buffer.name = name();
    if (buffers_.count(buffer.name)) wrong(fmt::format("a second buffer is called `{}`", buffer.name));
    expect(":");
    buffer.dtype = choice(kDtypeWords, "a dtype");
    extents(buffer);
    buffer.strides = word("strides") ? integers() : row_major_strides(buffer.extents);
    if (buffer.kind == BufferKind::Constant) {
      expect("=");
      expect("{");
      if (!accept("}")) {
        do buffer.literal.push_back(number());
        while (accept(","));
        expect("}");
      }
    }
    finish();
    const std::string key = buffer.name;
    buffers_[key] = nest_.add(std::move(buffer));
    return true;
  }

  // ---- expressions
  /// Index expressions end at the first `,`, `]`, `)`, `}`, `..` or the word `in`, `else` or a loop kind
  /// outside their own parentheses.
  std::size_t expr_length() const {
    int depth = 0;
    for (std::size_t i = 0; i < rest_.size(); ++i) {
      const char c = rest_[i];
      if (c == '(') ++depth;
      if (c == ')' && depth-- == 0) return i;
      if (depth > 0) continue;
      if (c == ',' || c == ']' || c == '}' || rest_.substr(i).starts_with("..")) return i;
      if (!is_name(c) || (i > 0 && is_name(rest_[i - 1]))) continue;
      std::size_t n = i;
      while (n < rest_.size() && is_name(rest_[n])) ++n;
      const std::string_view found = rest_.substr(i, n - i);
      if (found == "in" || found == "else") return i;
      for (const auto& [kind, text] : kLoopWords)
        if (found == text) return i;
    }
    return rest_.size();
  }
  ExprId expr() {
    skip();
    std::size_t length = expr_length();
    std::string_view text = rest_.substr(0, length);
    while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
    if (text.empty()) wrong("expected an index expression");
    try {
      const ExprId id = symbolic::parse_expr(nest_.arena, text, sizes_, [this](std::string_view wanted) {
        const auto found = slots_.find(wanted);
        return found == slots_.end() || found->second.empty() ? std::nullopt
                                                              : std::optional(found->second.back());
      });
      rest_.remove_prefix(length);
      return id;
    } catch (const Error& error) {
      wrong(error.what());
    }
  }
  Condition condition() {
    Condition made;
    made.expr = expr();
    if (!word("in")) wrong("expected `in <begin>..<end>`");
    made.begin = integer();
    expect("..");
    made.end = integer();
    return made;
  }
  std::vector<ExprId> indices() {
    expect("[");
    std::vector<ExprId> all;
    if (accept("]")) return all;
    do all.push_back(expr());
    while (accept(","));
    expect("]");
    return all;
  }
  BufferId buffer_named(const std::string& wanted) {
    const auto found = buffers_.find(wanted);
    if (found == buffers_.end()) wrong(fmt::format("no buffer is called `{}`", wanted));
    return found->second;
  }

  // ---- values
  ValueId sum() {
    deeper();
    ValueId left = product();
    for (std::size_t terms = 1;; ++terms) {
      if (terms > kMaxTerms) wrong("this sum has too many terms: split it into several stores");
      if (accept("+")) {
        left = binary(Function::Add, left, product());
      } else if (accept("-")) {
        left = binary(Function::Subtract, left, product());
      } else {
        --nesting_;
        return left;
      }
    }
  }
  ValueId product() {
    ValueId left = operand();
    for (std::size_t factors = 1;; ++factors) {
      if (factors > kMaxTerms) wrong("this product has too many factors: split it into several stores");
      if (accept("*"))
        left = binary(Function::Multiply, left, operand());
      else if (accept("/"))
        left = binary(Function::Divide, left, operand());
      else
        return left;
    }
  }
  void deeper() {
    if (++nesting_ > kMaxNesting) wrong("this is nested too deeply");
  }
  ValueId binary(Function function, ValueId a, ValueId b) { return nest_.binary(function, a, b); }
  ValueId operand() {
    if (at_number()) return nest_.literal(number());
    if (accept("(")) {
      const ValueId inner = sum();
      expect(")");
      return inner;
    }
    const std::string_view before = rest_;
    const std::string called = name();
    skip();
    if (rest_.starts_with("[")) {
      const BufferId buffer = buffer_named(called);
      std::vector<ExprId> where = indices();
      std::vector<Condition> guards;
      double fill = 0;
      if (accept("{")) {
        do guards.push_back(condition());
        while (accept(","));
        if (!word("else")) wrong("expected `else <fill>`");
        fill = number();
        expect("}");
      }
      return nest_.load(buffer, std::move(where), std::move(guards), fill);
    }
    expect("(");
    ValueId made{};
    if (called == "index") {
      made = nest_.index_value(expr());
    } else if (called == "select") {
      const ValueId a = sum();
      expect(",");
      const ValueId b = sum();
      expect(",");
      made = nest_.select(a, b, sum());
    } else {
      const auto found = std::find_if(kFunctionWords.begin(), kFunctionWords.end(),
                                      [&](const auto& entry) { return entry.second == called; });
      if (found == kFunctionWords.end()) {
        rest_ = before;
        std::vector<std::string> valid{"index", "select"};
        for (const auto& entry : kFunctionWords) valid.emplace_back(entry.second);
        wrong(unknown_name("function", called, valid));
      }
      const ValueId a = sum();
      if (takes_one(found->first)) {
        made = nest_.unary(found->first, a);
      } else {
        expect(",");
        made = nest_.binary(found->first, a, sum());
      }
    }
    expect(")");
    return made;
  }

  // ---- statements
  StatementId block(std::size_t& next, std::size_t indentation) {
    std::vector<StatementId> children;
    while (next < lines_.size() && lines_[next].indentation >= indentation) {
      if (lines_[next].indentation > indentation) {
        open(next);
        wrong("this line is indented more than the block it stands in");
      }
      children.push_back(statement(next));
    }
    return nest_.sequence(std::move(children));
  }
  StatementId body(std::size_t& next) {
    const std::size_t outer = lines_[next].indentation;
    ++next;
    if (next >= lines_.size() || lines_[next].indentation <= outer) wrong("expected an indented body below");
    deeper();
    const StatementId made = block(next, lines_[next].indentation);
    --nesting_;
    return made;
  }
  StatementId statement(std::size_t& next) {
    open(next);
    if (word("for")) return loop(next);
    if (word("if")) {
      std::vector<Condition> conditions;
      do conditions.push_back(condition());
      while (accept(","));
      finish();
      return nest_.guard(std::move(conditions), body(next));
    }
    if (word("allocate")) {
      const BufferId buffer = buffer_named(name());
      finish();
      return nest_.allocate(buffer, body(next));
    }
    if (word("prefetch")) {
      const BufferId buffer = buffer_named(name());
      std::vector<ExprId> where = indices();
      finish();
      ++next;
      return nest_.prefetch(buffer, std::move(where));
    }
    const BufferId buffer = buffer_named(name());
    std::vector<ExprId> where = indices();
    StoreMode mode{};
    bool found = false;
    for (const auto& [key, text] : kStoreWords) {
      if (!accept(text)) continue;
      mode = key;
      found = true;
      break;
    }
    if (!found) wrong("expected one of =, +=, max=, min=, *=");
    const ValueId stored = sum();
    finish();
    ++next;
    return nest_.store(buffer, std::move(where), stored, mode);
  }
  StatementId loop(std::size_t& next) {
    const std::string called = name();
    if (!word("in")) wrong("expected `in <begin>..<end>`");
    const ExprId begin = expr();
    expect("..");
    const ExprId end = expr();
    LoopKind kind = LoopKind::Serial;
    skip();
    if (!rest_.empty()) kind = choice(kLoopWords, "a kind of loop");
    finish();
    const std::uint32_t slot = nest_.new_slot();
    slots_[called].push_back(slot);
    const StatementId inner = body(next);
    slots_[called].pop_back();
    return nest_.loop(called, slot, begin, end, kind, inner);
  }

  std::vector<Line> lines_;
  std::size_t line_ = 0;
  std::size_t nesting_ = 0;  ///< of statements and values
  std::string_view rest_;
  LoopNest nest_;
  const symbolic::Sizes sizes_;
  AffineForms ranges_;  ///< of parameters
  std::map<std::string, BufferId> buffers_;
  std::map<std::string, std::vector<std::uint32_t>, std::less<>> slots_;
};

}  // namespace

LoopNest parse_loop_nest(std::string_view text) { return Parser(text).run(); }

}  // namespace syno::nest
