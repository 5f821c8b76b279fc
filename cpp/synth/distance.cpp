#include "synth/distance.hpp"

#include <algorithm>

namespace syno::synth {
namespace {

constexpr std::size_t kMemoLimit = 1U << 20;  ///< entries; beyond it the memo starts afresh

}  // namespace

ShapeDistance::ShapeDistance(SizePool& sizes, std::vector<SizeNumber> wanted, bool even_windows)
    : sizes_(sizes), wanted_(std::move(wanted)), even_windows_(even_windows) {}

int ShapeDistance::operator()(std::span<const DistanceItem> items, const Remaining& remaining, int limit) {
  item_count_ = items.size();
  std::copy(items.begin(), items.end(), items_.begin());
  const auto order = [](const DistanceItem& item) {
    return static_cast<std::uint64_t>(item.extent) << 4 | static_cast<std::uint64_t>(item.removal) << 2 |
           static_cast<std::uint64_t>(item.discards) << 1 | static_cast<std::uint64_t>(item.mergeable);
  };
  std::sort(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(item_count_),
            [&](const DistanceItem& a, const DistanceItem& b) { return order(a) < order(b); });
  remaining_ = remaining;
  std::uint64_t key = 0x243f6a8885a308d3ULL;
  const auto add = [&key](std::uint64_t word) {
    key = (key ^ word) * 0x9e3779b97f4a7c15ULL;
    key ^= key >> 29;
  };
  for (std::size_t i = 0; i < item_count_; ++i) add(order(items_[i]));
  const auto few = [](int count) { return static_cast<std::uint64_t>(std::min(count, 15)); };
  add(few(remaining.merges) | few(remaining.splits) << 4 | few(remaining.unfolds) << 8 |
      few(remaining.strides) << 12 | few(remaining.expands) << 16 | few(remaining.contractions) << 20 |
      few(remaining.reduces) << 24 | static_cast<std::uint64_t>(remaining.must_contract) << 28 |
      static_cast<std::uint64_t>(limit) << 32);
  const auto found = memo_.find(key);
  if (found != memo_.end()) return found->second;
  best_ = limit + 1;
  group_count_ = 0;
  partition_wanted(0);
  if (memo_.size() >= kMemoLimit) memo_.clear();
  memo_.emplace(key, static_cast<std::uint8_t>(best_));
  return best_;
}

void ShapeDistance::partition_wanted(std::size_t at) {
  if (at == wanted_.size()) {
    place_item(0, Cost(), 0);
    return;
  }
  for (std::size_t g = 0; g < group_count_; ++g) {
    const Group before = groups_[g];
    ++groups_[g].wanted;
    groups_[g].wanted_product = sizes_.times(before.wanted_product, wanted_[at]);
    partition_wanted(at + 1);
    groups_[g] = before;
  }
  groups_[group_count_] = {1, wanted_[at], 0, kOne, false, 0};
  ++group_count_;
  partition_wanted(at + 1);
  --group_count_;
}

int ShapeDistance::total(const Cost& cost) const {
  // A gap that no window of the frontier fills takes an Unfold and a Merge that makes its window.
  return cost.steps + 2 * std::max(0, cost.gaps - cost.windows) +
         (cost.matched || remaining_.must_contract ? 1 : 0) + (cost.second_weight ? 1 : 0);
}

bool ShapeDistance::feasible(const Cost& cost) const {
  return cost.merges <= remaining_.merges && cost.windows <= remaining_.unfolds + remaining_.expands &&
         cost.joins <= remaining_.splits + remaining_.unfolds && cost.reduces <= remaining_.reduces;
}

void ShapeDistance::place_item(std::size_t at, const Cost& cost, std::size_t least_choice) {
  if (total(cost) >= best_ || !feasible(cost)) return;
  if (at == item_count_) {
    close_groups(0, cost);
    return;
  }
  const DistanceItem& item = items_[at];
  const bool same_next = at + 1 < item_count_ && items_[at + 1].extent == item.extent &&
                         items_[at + 1].removal == item.removal &&
                         items_[at + 1].mergeable == item.mergeable &&
                         items_[at + 1].discards == item.discards;
  const auto next = [&](std::size_t choice, const Cost& c) { place_item(at + 1, c, same_next ? choice : 0); };
  for (std::size_t g = least_choice; g < group_count_; ++g) {
    const Group before = groups_[g];
    Group& group = groups_[g];
    ++group.items;
    group.product = sizes_.times(before.product, item.extent);
    group.mergeable = before.mergeable || item.mergeable;
    group.discards = before.discards + (item.discards ? 1 : 0);
    Cost more = cost;
    if (before.items > 0) {
      ++more.steps;
      ++more.joins;
    }
    next(g, more);
    group = before;
  }
  if (least_choice <= group_count_ && remaining_.contractions > 0) {
    Cost more = cost;
    more.matched = true;
    if (item.removal == Removal::Steps) ++more.steps;
    if (item.removal == Removal::SecondWeight) {
      if (remaining_.contractions > 1) {
        more.second_weight = true;
      } else {
        ++more.steps;
      }
    }
    next(group_count_, more);
  }
  const SizeFacts& facts = sizes_[item.extent];
  if ((facts.coefficient && (even_windows_ || facts.odd) && remaining_.unfolds > 0) ||
      remaining_.expands > 0) {
    Cost more = cost;
    ++more.steps;
    ++more.windows;
    next(group_count_ + 1, more);
  }
}

/// Adds what each group still needs: Merges to reach all its wanted dimensions, and a way out or in where the
/// sizes differ.
void ShapeDistance::close_groups(std::size_t at, Cost cost) {
  if (total(cost) >= best_ || !feasible(cost)) return;
  if (at == group_count_) {
    best_ = total(cost);
    return;
  }
  const Group& group = groups_[at];
  const auto use = [&](int merges, int joins, int windows, int reduces, int other, bool matched,
                       bool strided = false) {
    // A Merge cannot stand directly above the only coordinate: at least a Shift has to come between.
    const int between = merges > 0 && !group.mergeable && group.items == 1 && reduces == 0 ? 1 : 0;
    Cost more = cost;
    more.steps += merges + joins + reduces + other + between;
    more.merges += merges;
    more.joins += joins;
    more.windows += windows;
    more.reduces += reduces;
    more.gaps += std::max(0, group.discards + (strided ? 1 : 0) - std::max(group.items - 1, 0) - joins);
    more.matched = more.matched || matched;
    close_groups(at + 1, more);
  };
  const int fork = group.wanted - 1;
  if (group.items == 0) {
    if (remaining_.reduces > 0) use(fork, 0, 0, 1, 0, false);
    return;
  }
  if (group.product == group.wanted_product) return use(fork, 0, 0, 0, 0, false);
  const SizeNumber quotient = sizes_.over(group.product, group.wanted_product);
  const SizeFacts& facts = sizes_[quotient];
  const bool may_leave = facts.integral && !facts.negative_primary;
  if (remaining_.unfolds > 0 && may_leave && facts.coefficient && (even_windows_ || facts.odd)) {
    if (group.items > 1) {
      use(fork, 0, 0, 0, 0, false);  // one of the joins already counted is the Unfold
    } else {
      use(fork + 1, 1, 0, 0, 0, false);
    }
  }
  if (remaining_.expands > 0 && may_leave) use(fork + 1, 0, 0, 0, 1, false);
  if (remaining_.contractions > 0 && may_leave) use(fork + 1, 0, 0, 0, 0, true);
  if (remaining_.reduces > 0) use(fork, 1, 0, 1, 0, false);
  if (remaining_.strides > 0 && facts.coefficient) use(fork, 0, 0, 0, 1, false, true);
}

}  // namespace syno::synth
