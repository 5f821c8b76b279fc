#include "support/error.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>

namespace syno {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replace});
    }
  }
  return row.back();
}

}  // namespace

std::string unknown_name(std::string_view kind, std::string_view name,
                         const std::vector<std::string>& valid) {
  std::string text = fmt::format("unknown {} '{}'", kind, name);
  const auto nearest = std::min_element(valid.begin(), valid.end(), [&](const auto& a, const auto& b) {
    return edit_distance(a, name) < edit_distance(b, name);
  });
  if (nearest != valid.end() && edit_distance(*nearest, name) <= std::max<std::size_t>(2, name.size() / 3)) {
    text += fmt::format("; did you mean '{}'?", *nearest);
  }
  return text + fmt::format(" Valid: {}", fmt::join(valid, ", "));
}

void broken_invariant(const char* file, int line, const char* condition, const char* what) {
  std::fprintf(stderr, "syno: internal error at %s:%d: %s (%s)\n", file, line, what, condition);
  std::abort();
}

}  // namespace syno
