// graph/fresh_name.hpp — names that nothing has yet.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace syno::graph {

/// `wanted`, or with a number behind it: the first for which `taken(name)` is false.
template <class Taken>
std::string fresh_name(std::string_view wanted, Taken&& taken) {
  std::string name(wanted);
  for (int i = 2; taken(name); ++i) name = fmt::format("{}.{}", wanted, i);
  return name;
}

}  // namespace syno::graph
