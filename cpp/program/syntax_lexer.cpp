#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <limits>

#include "program/syntax.hpp"
#include "support/checked.hpp"
#include "support/error.hpp"

namespace syno::program::syntax {

void parse_error(std::string_view text, std::size_t position, std::string_view message) {
  position = std::min(position, text.size());
  std::size_t begin = position == 0 ? std::string_view::npos : text.rfind('\n', position - 1);
  begin = begin == std::string_view::npos ? 0 : begin + 1;
  const std::size_t end = std::min(text.find('\n', position), text.size());
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(position), '\n');
  // A long line is shown around the place only.
  constexpr std::size_t kShown = 120;
  const std::size_t first = position - begin > kShown / 2 ? position - kShown / 2 : begin;
  const std::string_view shown = text.substr(first, std::min(end - first, kShown));
  std::string clean(shown);
  for (char& c : clean)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f)
      c = c == '\t' ? ' ' : '?';
  throw ParseError("parse", fmt::format("{} (line {}, column {})\n  {}\n  {:>{}}", message, line,
                                        position - begin + 1, clean, "^", position - first + 1));
}

std::vector<Token> tokenize(std::string_view text) {
  constexpr std::array<std::string_view, 6> kPairs = {"..", "+=", "<=", ">=", "==", "!="};
  constexpr std::string_view kSymbols = "[](){},;:=+-*/%<>^@";
  const auto is_digit = [&](std::size_t i) {
    return i < text.size() && std::isdigit(static_cast<unsigned char>(text[i]));
  };
  const auto is_letter = [&](std::size_t i) {
    return i < text.size() && (std::isalpha(static_cast<unsigned char>(text[i])) || text[i] == '_');
  };

  std::vector<Token> tokens;
  std::size_t depth = 0;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = i;
    const auto push = [&](TokenKind kind, std::size_t size) {
      tokens.push_back({kind, text.substr(begin, size), begin});
      i = begin + size;
    };
    const char c = text[i];
    if (c == '\n') {
      if (depth == 0) tokens.push_back({TokenKind::Newline, text.substr(i, 1), i});
      ++i;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++i;
    } else if (c == '#') {
      while (i < text.size() && text[i] != '\n') ++i;
    } else if (is_letter(i)) {
      while (is_letter(i) || is_digit(i)) ++i;
      push(TokenKind::Name, i - begin);
    } else if (is_digit(i) || (c == '.' && is_digit(i + 1))) {
      while (is_digit(i)) ++i;
      if (i < text.size() && text[i] == '.' && !(i + 1 < text.size() && text[i + 1] == '.')) {
        ++i;
        while (is_digit(i)) ++i;
      }
      if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
        const std::size_t sign = i + 1 < text.size() && (text[i + 1] == '+' || text[i + 1] == '-') ? 1 : 0;
        if (is_digit(i + 1 + sign)) {
          i += 1 + sign;
          while (is_digit(i)) ++i;
        }
      }
      push(TokenKind::Number, i - begin);
    } else if (std::find(kPairs.begin(), kPairs.end(), text.substr(i, 2)) != kPairs.end()) {
      push(TokenKind::Symbol, 2);
    } else if (text.substr(i, 2) == "**" || text.substr(i, 2) == "//") {
      push(TokenKind::Symbol, 2);
    } else if (kSymbols.find(c) != std::string_view::npos) {
      if (c == '[' || c == '(' || c == '{') ++depth;
      if ((c == ']' || c == ')' || c == '}') && depth > 0) --depth;
      push(TokenKind::Symbol, 1);
    } else {
      parse_error(text, i, "this character has no meaning here");
    }
  }
  tokens.push_back({TokenKind::End, {}, text.size()});
  return tokens;
}

std::optional<Rational> parse_decimal(std::string_view text) {
  constexpr UInt128 kMost = ~UInt128{0} / 10 - 1;
  UInt128 digits = 0;
  int exponent = 0, written = 0;
  bool fraction = false;
  std::size_t i = 0;
  for (; i < text.size() && text[i] != 'e' && text[i] != 'E'; ++i) {
    if (text[i] == '.') {
      fraction = true;
      continue;
    }
    if (digits > kMost) return std::nullopt;
    digits = 10 * digits + static_cast<unsigned>(text[i] - '0');
    exponent -= fraction ? 1 : 0;
  }
  if (i < text.size()) {
    ++i;
    if (text[i] == '+') ++i;
    const auto [end, error] = std::from_chars(text.data() + i, text.data() + text.size(), written);
    if (error != std::errc() || written < -1000 || written > 1000) return std::nullopt;
  }
  if (digits == 0) return Rational(0);
  exponent += written;
  // Of 0.00043402777777777775 the numerator and 10^20 leave 64 bits, what is left of them does not.
  std::int64_t denominator = 1;
  for (const unsigned prime : {2U, 5U}) {
    for (int power = exponent; power != 0; power += power < 0 ? 1 : -1) {
      if (power > 0) {
        if (digits > kMost) return std::nullopt;
        digits *= prime;
      } else if (digits % prime == 0) {
        digits /= prime;
      } else if (__builtin_mul_overflow(denominator, prime, &denominator)) {
        return std::nullopt;
      }
    }
  }
  constexpr auto kLargest = static_cast<UInt128>(std::numeric_limits<std::int64_t>::max());
  if (digits > kLargest) return std::nullopt;
  return Rational(static_cast<std::int64_t>(digits), denominator);
}

}  // namespace syno::program::syntax
