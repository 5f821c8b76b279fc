#include "emit/python_names.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>

namespace syno::emit {

std::string python_name(std::string_view wanted, std::set<std::string>& used) {
  static const std::set<std::string, std::less<>> kTaken = {
      "False", "None",     "True",  "and",    "as",    "assert", "async",  "await",    "break",
      "class", "continue", "def",   "del",    "elif",  "else",   "except", "finally",  "for",
      "from",  "global",   "if",    "import", "in",    "is",     "lambda", "nonlocal", "not",
      "or",    "pass",     "raise", "return", "try",   "while",  "with",   "yield",    "self",
      "torch", "F",        "te",    "tvm",    "batch", "float",  "build",  "super"};
  std::string name;
  for (const char c : wanted) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) name = "t_" + name;
  while (kTaken.contains(name) || used.contains(name)) name += "_";
  used.insert(name);
  return name;
}

std::string tuple(const std::vector<std::string>& items) {
  return fmt::format("({}{})", fmt::join(items, ", "), items.size() == 1 ? "," : "");
}

}  // namespace syno::emit
