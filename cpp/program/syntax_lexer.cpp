#include <algorithm>
#include <array>
#include <cctype>

#include "program/syntax.hpp"
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

}  // namespace syno::program::syntax
