#include "program/names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

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

void name_iterators(const Program& program, const Scope& scope, std::vector<std::string>& names) {
  std::set<std::string> taken;
  for (const symbolic::Variable& variable : program.sizes.variables()) taken.insert(variable.name);
  for (const auto* group : {&scope.traversal, &scope.sums})
    for (const Iterator& iterator : *group) {
      std::string name = iterator.name;
      for (char& c : name)
        if (!is_identifier(std::string("a") + c)) c = '_';
      if (!is_identifier(name)) name = "i" + name;
      if (is_reserved(name)) name += "_";
      const std::string base = name;
      for (std::size_t number = 1; !taken.insert(name).second; ++number)
        name = fmt::format("{}_{}", base, number);
      names.at(iterator.slot) = name;
    }
}

}  // namespace syno::program
