#include "program/term_boxes.hpp"

#include <algorithm>

#include "support/checked.hpp"

namespace syno::program::detail {

double TermBox::size() const {
  double terms = 1;
  for (const std::int64_t each : extent) terms *= static_cast<double>(each);
  return terms;
}

bool TermBox::contains(const std::int64_t* sums) const {
  for (std::size_t i = 0; i < begin.size(); ++i)
    if (sums[i] < begin[i] || sums[i] - begin[i] >= extent[i]) return false;
  return true;
}

TermBox all_terms(const ScopeCode& code) {
  const auto first = static_cast<std::ptrdiff_t>(code.traversal_count);
  return {{code.begin.begin() + first, code.begin.end()}, {code.extent.begin() + first, code.extent.end()}};
}

namespace {

/// Of an affine index, the values of each iterator of the sums at which it can lie in [begin, begin +
/// extent), wherever the others are; nothing where it never does. Numbers are small beside 2^62: they are
/// checked when a scope is compiled.
bool narrow(TermBox& box, const ScopeCode& code, const std::vector<std::int64_t>& iterators,
            const CheckedLane& check) {
  const Affine& lane = code.lanes[check.lane];
  const std::size_t first = code.traversal_count;
  std::int64_t low = lane.constant, high = lane.constant;
  for (const auto& [position, coefficient] : lane.terms) {
    std::int64_t least = iterators[position], most = least;
    if (position >= first) {
      least = box.begin[position - first];
      most = least + box.extent[position - first] - 1;
    }
    low += coefficient * (coefficient > 0 ? least : most);
    high += coefficient * (coefficient > 0 ? most : least);
  }
  const std::int64_t least = check.begin, most = check.begin + check.extent - 1;
  if (high < least || low > most) return false;
  for (const auto& [position, coefficient] : lane.terms) {
    if (position < first) continue;
    std::int64_t& begin = box.begin[position - first];
    std::int64_t& extent = box.extent[position - first];
    // Steps of `size` away from where the index is least: those that the others may still make up for.
    const std::int64_t size = std::abs(coefficient), alone = high - size * (extent - 1);
    const std::int64_t skipped = std::max<std::int64_t>(0, -floor_divide(alone - least, size));
    const std::int64_t reached = std::min(extent - 1, floor_divide(most - low, size));
    if (reached < skipped) return false;
    begin += coefficient > 0 ? skipped : extent - 1 - reached;
    extent = reached - skipped + 1;
  }
  return true;
}

}  // namespace

std::vector<TermBox> inner_boxes(const ScopeCode& code, const std::vector<std::int64_t>& iterators) {
  const TermBox all = all_terms(code);
  std::vector<TermBox> boxes;
  for (const Access& access : code.accesses) {
    TermBox box = all;
    if (!std::all_of(access.lanes.begin(), access.lanes.end(),
                     [&](const CheckedLane& check) { return narrow(box, code, iterators, check); }))
      continue;
    if (box.extent == all.extent) continue;
    boxes.push_back(std::move(box));
  }
  return boxes;
}

TermBox hull(const std::vector<TermBox>& boxes) {
  TermBox around = boxes.front();
  for (const TermBox& box : boxes)
    for (std::size_t i = 0; i < box.begin.size(); ++i) {
      const std::int64_t end = std::max(around.begin[i] + around.extent[i], box.begin[i] + box.extent[i]);
      around.begin[i] = std::min(around.begin[i], box.begin[i]);
      around.extent[i] = end - around.begin[i];
    }
  return around;
}

}  // namespace syno::program::detail
