#include "program/names.hpp"

#include <algorithm>
#include <array>

namespace syno::program {

bool is_identifier(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return !name.empty() && letter(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || digit(c); });
}

bool is_reserved(std::string_view name) {
  constexpr std::array<std::string_view, 13> kWords = {
      "sum", "max", "min", "prod", "mean", "and", "or", "inf", "fill", "index", "inside", "select", "ratio"};
  return std::find(kWords.begin(), kWords.end(), name) != kWords.end();
}

}  // namespace syno::program
