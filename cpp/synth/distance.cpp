#include "synth/distance.hpp"

#include <algorithm>

namespace syno::synth {
namespace {

constexpr std::size_t kMemoSize = 1U << 12;   ///< entries at first; doubles when half full
constexpr std::size_t kMemoLimit = 1U << 20;  ///< entries at most; beyond them the memo starts afresh
constexpr std::size_t kRatioSize = 1U << 12;  ///< a direct-mapped cache

std::uint64_t mix(std::uint64_t key, std::uint64_t word) {
  key = (key ^ word) * 0x9e3779b97f4a7c15ULL;
  return key ^ key >> 29;
}

std::int8_t plus(std::int8_t a, int b) { return static_cast<std::int8_t>(a + b); }

}  // namespace

ShapeDistance::ShapeDistance(const SizePool& sizes, std::vector<SizeNumber> wanted, bool even_windows)
    : sizes_(sizes), even_windows_(even_windows), memo_(kMemoSize), ratios_(kRatioSize) {
  for (const SizeNumber extent : wanted) wanted_.push_back(sizes[extent].packed);
}

ShapeDistance::MemoEntry& ShapeDistance::memo_slot(std::uint64_t key) {
  if (2 * memo_used_ >= memo_.size()) {
    std::vector<MemoEntry> old(memo_.size() < kMemoLimit ? 2 * memo_.size() : memo_.size());
    old.swap(memo_);
    memo_used_ = 0;
    if (memo_.size() > old.size()) {
      for (const MemoEntry& entry : old) {
        if (entry.key != 0) memo_slot(entry.key) = entry;
      }
    }
  }
  for (std::size_t at = key & (memo_.size() - 1);; at = (at + 1) & (memo_.size() - 1)) {
    if (memo_[at].key == key) return memo_[at];
    if (memo_[at].key == 0) {
      memo_[at].key = key;
      memo_[at].limit = 0;
      memo_[at].value = 0;
      ++memo_used_;
      return memo_[at];
    }
  }
}

RatioFacts ShapeDistance::ratio_facts(PackedSize size) {
  RatioEntry& entry = ratios_[mix(mix(0x51ed270b, size.low), size.high) & (kRatioSize - 1)];
  if (!entry.known || !(entry.size == size)) entry = {size, sizes_.ratio(size), true};
  return entry.facts;
}

int ShapeDistance::operator()(std::span<const DistanceItem> items, const Remaining& remaining, int limit) {
  item_count_ = items.size();
  for (std::size_t k = 0; k < item_count_; ++k) {
    const SizeFacts& facts = sizes_[items[k].extent];
    items_[k].given = items[k];
    items_[k].size = facts.packed;
    items_[k].frozen = !(facts.packed & remaining.frozen).is_zero();
    items_[k].window = facts.coefficient && (even_windows_ || facts.odd);
    // The hash of the size orders items the same way in every thread; frozen ones first, they have fewest
    // places.
    items_[k].order = (facts.hash & ~0xfULL) | static_cast<std::uint64_t>(items[k].removal) << 2 |
                      static_cast<std::uint64_t>(items[k].discards) << 1 |
                      static_cast<std::uint64_t>(items[k].mergeable);
  }
  std::sort(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(item_count_),
            [](const Item& a, const Item& b) { return a.frozen != b.frozen ? a.frozen : a.order < b.order; });
  remaining_ = remaining;
  std::uint64_t key = 0x243f6a8885a308d3ULL;
  for (std::size_t k = 0; k < item_count_; ++k) key = mix(key, items_[k].order);
  const auto few = [](int count) { return static_cast<std::uint64_t>(std::min(count, 15)); };
  key = mix(key, few(remaining.merges) | few(remaining.splits) << 4 | few(remaining.unfolds) << 8 |
                     few(remaining.strides) << 12 | few(remaining.expands) << 16 |
                     few(remaining.contractions) << 20 | few(remaining.reduces) << 24 |
                     static_cast<std::uint64_t>(remaining.must_contract) << 28);
  key = mix(mix(key, remaining.frozen.low), remaining.frozen.high) | 1;
  const MemoEntry known = memo_slot(key);
  if (known.limit != 0 && (known.value < known.limit || limit < known.limit)) return known.value;
  best_ = limit + 1;
  group_count_ = 0;
  partition_wanted(0);
  // `limit` is stored one up, so that 0 means unknown: a value below it is exact, others only exceed the
  // limit.
  MemoEntry& entry = memo_slot(key);
  entry.value = static_cast<std::uint8_t>(best_);
  entry.limit = static_cast<std::uint8_t>(limit + 1);
  return best_;
}

void ShapeDistance::partition_wanted(std::size_t at) {
  if (at == wanted_.size()) {
    place_item(0, Cost(), 0);
    return;
  }
  for (std::size_t g = 0; g < group_count_; ++g) {
    const Group before = groups_[g];
    groups_[g].wanted = plus(before.wanted, 1);
    groups_[g].ratio = before.ratio / wanted_[at];
    partition_wanted(at + 1);
    groups_[g] = before;
  }
  groups_[group_count_] = {1, 0, 0, false, PackedSize() / wanted_[at]};
  ++group_count_;
  partition_wanted(at + 1);
  --group_count_;
}

int ShapeDistance::total(const Cost& cost) const {
  // A gap that no window of the frontier fills takes an Unfold and a Merge that makes its window.
  return cost.steps + 2 * std::max(0, cost.gaps - cost.windows) +
         (cost.matched || remaining_.must_contract ? 1 : 0) + (cost.second_weight ? 1 : 0);
}

bool ShapeDistance::worse(const Cost& cost) const {
  return total(cost) >= best_ || cost.merges > remaining_.merges ||
         cost.windows > remaining_.unfolds + remaining_.expands ||
         cost.joins > remaining_.splits + remaining_.unfolds || cost.reduces > remaining_.reduces;
}

void ShapeDistance::place_item(std::size_t at, Cost cost, std::size_t least_choice) {
  if (worse(cost)) return;
  if (at == item_count_) {
    close_groups(0, cost);
    return;
  }
  const Item& item = items_[at];
  const bool same_next = at + 1 < item_count_ && items_[at + 1].order == item.order;
  const auto next = [&](std::size_t choice, const Cost& c) { place_item(at + 1, c, same_next ? choice : 0); };
  constexpr std::uint64_t kSigns = 0x8080808080808080ULL;
  for (std::size_t g = least_choice; g < group_count_; ++g) {
    const Group before = groups_[g];
    if (before.items == 0) {
      // Empty groups that want the same are interchangeable.
      bool earlier = false;
      for (std::size_t e = 0; e < g; ++e)
        earlier = earlier || (groups_[e].items == 0 && groups_[e].ratio == before.ratio &&
                              groups_[e].wanted == before.wanted);
      if (earlier) continue;
    }
    Group& group = groups_[g];
    group.ratio = before.ratio * item.size;
    if (item.frozen) {
      // What is frozen cannot leave again: it must not exceed what the group wants.
      const PackedSize excess = group.ratio & remaining_.frozen;
      const PackedSize lack = PackedSize() / excess;
      if (((lack.low | lack.high) & kSigns) != 0) {
        group = before;
        continue;
      }
    }
    group.items = plus(before.items, 1);
    group.mergeable = before.mergeable || item.given.mergeable;
    group.discards = plus(before.discards, item.given.discards ? 1 : 0);
    Cost more = cost;
    if (before.items > 0) {
      more.steps = plus(more.steps, 1);
      more.joins = plus(more.joins, 1);
    }
    next(g, more);
    group = before;
  }
  if (item.frozen && remaining_.expands == 0) return;
  if (least_choice <= group_count_ && remaining_.contractions > 0 && !item.frozen) {
    Cost more = cost;
    more.matched = true;
    if (item.given.removal == Removal::Steps) more.steps = plus(more.steps, 1);
    if (item.given.removal == Removal::SecondWeight) {
      if (remaining_.contractions > 1) {
        more.second_weight = true;
      } else {
        more.steps = plus(more.steps, 1);
      }
    }
    next(group_count_, more);
  }
  if ((item.window && remaining_.unfolds > 0) || remaining_.expands > 0) {
    Cost more = cost;
    more.steps = plus(more.steps, 1);
    more.windows = plus(more.windows, 1);
    next(group_count_ + 1, more);
  }
}

/// Adds what each group still needs: Merges to reach all its wanted dimensions, and a way out or in where the
/// sizes differ.
void ShapeDistance::close_groups(std::size_t at, Cost cost) {
  if (worse(cost)) return;
  if (at == group_count_) {
    best_ = total(cost);
    return;
  }
  const Group& group = groups_[at];
  const auto use = [&](int merges, int joins, int reduces, int other, bool matched, bool strided = false) {
    // A Merge cannot stand directly above the only coordinate: at least a Shift has to come between.
    const int between = merges > 0 && !group.mergeable && group.items == 1 && reduces == 0 ? 1 : 0;
    Cost more = cost;
    more.steps = plus(more.steps, merges + joins + reduces + other + between);
    more.merges = plus(more.merges, merges);
    more.joins = plus(more.joins, joins);
    more.reduces = plus(more.reduces, reduces);
    more.gaps = plus(more.gaps,
                     std::max(0, group.discards + (strided ? 1 : 0) - std::max(group.items - 1, 0) - joins));
    more.matched = more.matched || matched;
    close_groups(at + 1, more);
  };
  const int fork = group.wanted - 1;
  if (remaining_.expands == 0 && !(group.ratio & remaining_.frozen).is_zero()) return;
  if (group.items == 0) {
    if (remaining_.reduces > 0) use(fork, 0, 1, 0, false);
    return;
  }
  if (group.ratio.is_zero()) return use(fork, 0, 0, 0, false);
  const RatioFacts facts = ratio_facts(group.ratio);
  const bool may_leave = facts.integral && !facts.negative_primary;
  if (remaining_.unfolds > 0 && may_leave && facts.coefficient && (even_windows_ || facts.odd)) {
    if (group.items > 1) {
      use(fork, 0, 0, 0, false);  // one of the joins already counted is the Unfold
    } else {
      use(fork + 1, 1, 0, 0, false);
    }
  }
  if (remaining_.expands > 0 && may_leave) use(fork + 1, 0, 0, 1, false);
  if (remaining_.contractions > 0 && may_leave) use(fork + 1, 0, 0, 0, true);
  if (remaining_.reduces > 0) use(fork, 1, 1, 0, false);
  if (remaining_.strides > 0 && facts.coefficient) use(fork, 0, 0, 1, false, true);
}

}  // namespace syno::synth
