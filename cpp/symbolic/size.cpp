#include "symbolic/size.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <set>

#include "support/checked.hpp"
#include "support/error.hpp"
#include "support/shown.hpp"

namespace syno::symbolic {
namespace {

std::int8_t checked_exponent(int exponent) {
  if (exponent < std::numeric_limits<std::int8_t>::min() ||
      exponent > std::numeric_limits<std::int8_t>::max()) {
    fail<ShapeError>("size", "exponent {} of a variable does not fit 8 bits", exponent);
  }
  return static_cast<std::int8_t>(exponent);
}

Rational power(Rational base, int exponent) {
  Rational result = 1;
  const Rational factor = exponent < 0 ? Rational(1) / base : base;
  for (int i = exponent < 0 ? -exponent : exponent; i > 0; --i) result = result * factor;
  return result;
}

constexpr std::size_t kMostSizeNesting = 100;

bool name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool name_part(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// product := power (('*' | '/') power)*;  power := atom ('^' ['-'] digits)?;  atom := name | digits | '('
/// product ')'
class SizeParser {
 public:
  SizeParser(std::string_view text, const Sizes& sizes) : text_(text), sizes_(sizes) {}

  Size parse() {
    const Size result = product();
    if (at_ != text_.size()) wrong("expected '*', '/' or the end");
    return result;
  }

 private:
  [[noreturn]] void wrong(std::string_view what) const {
    fail<ParseError>("size", "{} at column {} of '{}'", what, at_ + 1, shown(text_));
  }
  void skip_space() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool accept(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    skip_space();
    return true;
  }
  std::int64_t integer() {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc() || value < 0) wrong("expected an integer that fits 64 bits");
    at_ = static_cast<std::size_t>(end - text_.data());
    skip_space();
    return value;
  }
  Size product() {
    skip_space();
    Size result = power_of_atom();
    for (;;) {
      if (accept('*')) {
        result = result * power_of_atom();
      } else if (accept('/')) {
        result = result / power_of_atom();
      } else {
        return result;
      }
    }
  }
  Size power_of_atom() {
    const Size base = atom();
    if (!accept('^')) return base;
    const bool negative = accept('-');
    const std::int64_t exponent = integer();
    if (exponent > std::numeric_limits<std::int8_t>::max()) wrong("the exponent is too large");
    return base.pow(static_cast<int>(negative ? -exponent : exponent));
  }
  Size atom() {
    if (accept('(')) {
      if (++nesting_ > kMostSizeNesting) wrong("this is nested too deeply");
      const Size result = product();
      if (!accept(')')) wrong("expected ')'");
      --nesting_;
      return result;
    }
    if (at_ < text_.size() && name_start(text_[at_])) {
      const std::size_t begin = at_;
      while (at_ < text_.size() && name_part(text_[at_])) ++at_;
      const std::string_view name = text_.substr(begin, at_ - begin);
      const auto index = sizes_.find(name);
      if (!index) {
        std::vector<std::string> names;
        for (const Variable& variable : sizes_.variables()) names.push_back(variable.name);
        throw UnknownName("size", unknown_name("size variable", name, names));
      }
      skip_space();
      return Size::variable(*index);
    }
    if (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]))) {
      const std::int64_t value = integer();
      if (value == 0) wrong("a size is positive, not 0,");
      return Size(value);
    }
    wrong("expected a variable, a positive integer or '('");
  }

  std::string_view text_;
  const Sizes& sizes_;
  std::size_t at_ = 0;
  std::size_t nesting_ = 0;
};

}  // namespace

Size Size::variable(std::size_t index, int exponent) {
  SYNO_ASSERT(index < kMaxVariables, "a size variable's index is below kMaxVariables");
  Size result;
  result.exponents_[index] = checked_exponent(exponent);
  return result;
}

bool Size::has_variables() const {
  return std::any_of(exponents_.begin(), exponents_.end(), [](std::int8_t e) { return e != 0; });
}

Size operator*(const Size& a, const Size& b) {
  Size result;
  result.factor_ = a.factor_ * b.factor_;
  for (std::size_t i = 0; i < kMaxVariables; ++i) {
    result.exponents_[i] = checked_exponent(a.exponents_[i] + b.exponents_[i]);
  }
  return result;
}

Size operator/(const Size& a, const Size& b) {
  Size result;
  result.factor_ = a.factor_ / b.factor_;
  for (std::size_t i = 0; i < kMaxVariables; ++i) {
    result.exponents_[i] = checked_exponent(a.exponents_[i] - b.exponents_[i]);
  }
  return result;
}

Size Size::pow(int exponent) const {
  Size result;
  result.factor_ = power(factor_, exponent);
  for (std::size_t i = 0; i < kMaxVariables; ++i) {
    result.exponents_[i] = checked_exponent(exponents_[i] * exponent);
  }
  return result;
}

std::strong_ordering Size::operator<=>(const Size& other) const {
  if (const auto order = exponents_ <=> other.exponents_; order != 0) return order;
  return factor_ <=> other.factor_;
}

Sizes::Sizes(std::vector<Variable> variables, std::vector<std::vector<std::int64_t>> valuations)
    : variables_(std::move(variables)), valuations_(std::move(valuations)) {
  if (variables_.size() > kMaxVariables) {
    fail<SpecError>("sizes", "{} size variables; at most {} are supported", variables_.size(), kMaxVariables);
  }
  std::set<std::string_view> names;
  for (const Variable& variable : variables_) {
    const std::string& name = variable.name;
    if (name.empty() || !name_start(name[0]) || !std::all_of(name.begin(), name.end(), name_part)) {
      fail<SpecError>("sizes", "'{}' is not a name: use letters, digits and '_', no digit first", name);
    }
    if (!names.insert(name).second) fail<SpecError>("sizes", "size variable '{}' is declared twice", name);
  }
  for (std::size_t i = 0; i < valuations_.size(); ++i) {
    if (valuations_[i].size() != variables_.size()) {
      fail<SpecError>("sizes", "valuation {} gives {} values for {} variables", i, valuations_[i].size(),
                      variables_.size());
    }
    for (std::size_t v = 0; v < variables_.size(); ++v) {
      if (valuations_[i][v] < 1) {
        fail<SpecError>("sizes", "valuation {} gives {} = {}; a size is at least 1", i, variables_[v].name,
                        valuations_[i][v]);
      }
    }
  }
}

std::optional<std::size_t> Sizes::find(std::string_view name) const {
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    if (variables_[i].name == name) return i;
  }
  return std::nullopt;
}

std::span<const std::int64_t> Sizes::valuation(std::size_t index) const {
  if (variables_.empty()) return {};
  if (index >= valuations_.size()) {
    fail<SpecError>("sizes", "valuation {} asked for, but there are {}", index, valuations_.size());
  }
  return valuations_[index];
}

std::size_t Sizes::add_variable(Variable variable) {
  SYNO_ASSERT(valuations_.empty(), "variables are added before valuations");
  std::vector<Variable> variables = variables_;
  variables.push_back(std::move(variable));
  *this = Sizes(std::move(variables), {});
  return variables_.size() - 1;
}

Rational Sizes::value(const Size& size, std::size_t valuation) const {
  Rational result = size.factor();
  if (!size.has_variables()) return result;
  const auto values = this->valuation(valuation);
  for (std::size_t i = 0; i < kMaxVariables; ++i) {
    const int exponent = size.exponent(i);
    if (exponent == 0) continue;
    SYNO_ASSERT(i < values.size(), "a size uses only variables of its table");
    result = result * power(values[i], exponent);
  }
  return result;
}

std::int64_t Sizes::integer_value(const Size& size, std::size_t valuation) const {
  const Rational result = value(size, valuation);
  if (!result.integral()) {
    fail<ShapeError>("size", "{} is {} at valuation {}, not an integer", to_text(size), result.to_text(),
                     valuation);
  }
  return result.num();
}

namespace {

/// Whether `holds` is true of the size at every valuation; a size without variables has one value.
template <class Holds>
bool for_every_valuation(const Sizes& sizes, const Size& size, Holds holds) {
  if (!size.has_variables()) return holds(size.factor());
  if (sizes.valuation_count() == 0) {
    fail<SpecError>("sizes", "'{}' has no valuation yet; give its variables values first",
                    sizes.to_text(size));
  }
  for (std::size_t i = 0; i < sizes.valuation_count(); ++i) {
    if (!holds(sizes.value(size, i))) return false;
  }
  return true;
}

bool integral_monomial(const Size& size) {
  if (!size.factor().integral()) return false;
  for (std::size_t i = 0; i < kMaxVariables; ++i) {
    if (size.exponent(i) < 0) return false;
  }
  return true;
}

}  // namespace

bool Sizes::integral(const Size& size) const {
  return integral_monomial(size) ||
         for_every_valuation(*this, size, [](Rational value) { return value.integral(); });
}

bool Sizes::divides(const Size& divisor, const Size& size) const { return integral(size / divisor); }

bool Sizes::less(const Size& a, const Size& b) const {
  return for_every_valuation(*this, b / a, [](Rational ratio) { return ratio > 1; });
}

bool Sizes::less_equal(const Size& a, const Size& b) const {
  return for_every_valuation(*this, b / a, [](Rational ratio) { return ratio >= 1; });
}

bool Sizes::equal_values(const Size& a, const Size& b) const {
  return a == b || for_every_valuation(*this, b / a, [](Rational ratio) { return ratio == 1; });
}

bool Sizes::much_larger(const Size& large, const Size& small, Rational ratio) const {
  return for_every_valuation(*this, large / small, [&](Rational value) { return value >= ratio; });
}

std::string Sizes::to_text(const Size& size) const {
  std::string text;
  if (size.factor() != Rational(1) || !size.has_variables()) text = size.factor().to_text();
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    const int exponent = size.exponent(i);
    if (exponent == 0) continue;
    if (!text.empty()) text += '*';
    text += variables_[i].name;
    if (exponent != 1) text += fmt::format("^{}", exponent);
  }
  return text;
}

Size Sizes::parse(std::string_view text) const { return SizeParser(text, *this).parse(); }

}  // namespace syno::symbolic
