#include "support/error.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "support/shown.hpp"

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

constexpr std::size_t kMostNames = 40;    // listed as valid
constexpr std::size_t kMostLetters = 64;  // of a name that is compared with the valid ones

}  // namespace

std::string unknown_name(std::string_view kind, std::string_view name,
                         const std::vector<std::string>& valid) {
  std::vector<std::string> names = valid;
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::string text = fmt::format("unknown {} '{}'", kind, shown(name));
  const std::string_view compared = name.substr(0, kMostLetters);
  const auto nearest = std::min_element(names.begin(), names.end(), [&](const auto& a, const auto& b) {
    return edit_distance(a, compared) < edit_distance(b, compared);
  });
  if (nearest != names.end() &&
      edit_distance(*nearest, compared) <= std::max<std::size_t>(2, compared.size() / 3)) {
    text += fmt::format("; did you mean '{}'?", shown(*nearest));
  }
  if (names.empty()) return text + "; there is none";
  std::vector<std::string> listed;
  for (const std::string& one : names)
    if (listed.size() < kMostNames) listed.push_back(shown(one));
  const std::string more =
      names.size() > kMostNames ? fmt::format(" and {} more", names.size() - kMostNames) : std::string();
  return text + fmt::format(" Valid: {}{}", fmt::join(listed, ", "), more);
}

void broken_invariant(const char* file, int line, const char* condition, const char* what) {
  std::fprintf(stderr, "syno: internal error at %s:%d: %s (%s)\n", file, line, what, condition);
  std::abort();
}

}  // namespace syno
