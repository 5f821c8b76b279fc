#include "support/shown.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace syno {
namespace {

constexpr std::size_t kMostMessage = 4000;

/// How many bytes the UTF-8 character at `at` has; 0 where there is none.
std::size_t character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char first = byte(0);
  const std::size_t size = first < 0x80   ? 1
                           : first < 0xc2 ? 0
                           : first < 0xe0 ? 2
                           : first < 0xf0 ? 3
                           : first < 0xf5 ? 4
                                          : 0;
  if (size == 0 || at + size > text.size()) return 0;
  for (std::size_t i = 1; i < size; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  const bool overlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool no_character = (first == 0xed && byte(1) >= 0xa0) || (first == 0xf4 && byte(1) >= 0x90);
  return overlong || no_character ? 0 : size;
}

/// What is no UTF-8, and control characters but line ends where those may stay, become '?'.
std::string cleaned(std::string_view text, bool keep_lines) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = character_at(text, at);
    const auto c = static_cast<unsigned char>(text[at]);
    const bool control = c < 0x20 || c == 0x7f;
    if (size == 0 || (control && !(keep_lines && (c == '\n' || c == '\t'))))
      result += '?';
    else
      result += text.substr(at, size);
    at += std::max<std::size_t>(size, 1);
  }
  return result;
}

/// The text without its middle, cut between characters.
std::string without_middle(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  const auto begins = [&](std::size_t at) { return (static_cast<unsigned char>(text[at]) & 0xc0) != 0x80; };
  std::size_t head = most * 3 / 4, tail = text.size() - most / 4;
  while (head > 0 && !begins(head)) --head;
  while (tail < text.size() && !begins(tail)) ++tail;
  return fmt::format("{} ... ({} bytes) ... {}", text.substr(0, head), text.size(), text.substr(tail));
}

}  // namespace

std::string shown(std::string_view text, std::size_t most) {
  // Cut first, so that a long text costs no more than a short one.
  return without_middle(cleaned(without_middle(text, 4 * most), false), most);
}

std::string shown_message(std::string_view message) {
  return without_middle(cleaned(without_middle(message, 4 * kMostMessage), true), kMostMessage);
}

}  // namespace syno
