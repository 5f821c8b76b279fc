#include "synth/distance.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>

namespace syno::synth {
namespace {

constexpr std::size_t kMemoSize = 1U << 12;   ///< entries at first; doubles when half full
constexpr std::size_t kMemoLimit = 1U << 18;  ///< entries at most; beyond them the memo starts afresh

std::uint64_t mix(std::uint64_t key, std::uint64_t word) {
  key = (key ^ word) * 0x9e3779b97f4a7c15ULL;
  return key ^ key >> 29;
}

}  // namespace

ShapeDistance::ShapeDistance(SizePool& sizes, const Spec& spec, std::vector<SizeNumber> wanted,
                             const Freedom& freedom)
    : sizes_(sizes),
      wanted_(std::move(wanted)),
      freedom_(freedom),
      connections_(sizes, spec, freedom),
      memo_(kMemoSize) {
  std::sort(wanted_.begin(), wanted_.end());  // equal ones are neighbours
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
  for (std::size_t at = (key ^ key >> 32) & (memo_.size() - 1);; at = (at + 1) & (memo_.size() - 1)) {
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

int ShapeDistance::operator()(std::span<const Piece> pieces, const Remaining& remaining, int limit) {
  item_count_ = pieces.size();
  for (std::size_t k = 0; k < item_count_; ++k) {
    const SizeFacts& facts = sizes_[pieces[k].extent];
    items_[k].given = pieces[k];
    items_[k].size = facts.packed;
    items_[k].frozen = !(facts.packed & remaining.frozen).is_zero();
    // The hash of the size orders items the same way in every thread; frozen ones first, they have fewest
    // places.
    items_[k].order = (facts.hash & ~0x3fffULL) | pieces[k].traits;
  }
  std::sort(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(item_count_),
            [](const Item& a, const Item& b) { return a.frozen != b.frozen ? a.frozen : a.order < b.order; });
  remaining_ = remaining;
  std::uint64_t key = 0x243f6a8885a308d3ULL;
  for (std::size_t k = 0; k < item_count_; ++k) key = mix(key, items_[k].order);
  const auto few = [](int count) { return static_cast<std::uint64_t>(std::clamp(count, 0, 15)); };
  key = mix(key, few(remaining.merges) | few(remaining.splits) << 4 | few(remaining.unfolds) << 8 |
                     few(remaining.strides) << 12 | few(remaining.expands) << 16 |
                     few(remaining.contractions) << 20 | few(remaining.reduces) << 24 |
                     static_cast<std::uint64_t>(remaining.must_contract) << 28 | few(remaining.shifts) << 32);
  // Of coefficient variables only Reduces to come ask how often they may still occur.
  auto left = std::bit_cast<PackedSize>(remaining.left);
  if (remaining.reduces == 0) left = left & sizes_.primary_lanes();
  key = mix(mix(mix(mix(key, left.low), left.high), remaining.frozen.low), remaining.frozen.high) | 1;
  const MemoEntry known = memo_slot(key);
  if (known.limit != 0 && (known.value < known.limit || limit < known.limit)) return known.value;
  best_ = limit + 1;
  // A third contraction makes nothing possible that two do not.
  const int most = std::min(remaining.contractions, 2);
  for (contractions_ = remaining.must_contract ? 1 : 0; contractions_ <= most && contractions_ < best_;
       ++contractions_) {
    group_count_ = 0;
    partition_wanted(0, 0);
  }
  // `limit` is stored one up, so that 0 means unknown: a value below it is exact, others only exceed the
  // limit.
  MemoEntry& entry = memo_slot(key);
  entry.value = static_cast<std::uint8_t>(best_);
  entry.limit = static_cast<std::uint8_t>(limit + 1);
  return best_;
}

/// Of equal dimensions none goes to an earlier group than the one before it.
void ShapeDistance::partition_wanted(std::size_t at, std::size_t least_group) {
  if (at == wanted_.size()) {
    place_item(0, contractions_, 0, Removed(), 0);
    return;
  }
  const PackedSize size = sizes_[wanted_[at]].packed;
  const bool same_next = at + 1 < wanted_.size() && wanted_[at + 1] == wanted_[at];
  if (remaining_.merges > 0) {
    for (std::size_t g = least_group; g < group_count_; ++g) {
      const Group before = groups_[g];
      groups_[g].wanted[groups_[g].wanted_count++] = wanted_[at];
      groups_[g].ratio = before.ratio / size;
      partition_wanted(at + 1, same_next ? g : 0);
      groups_[g] = before;
    }
  }
  groups_[group_count_] = Group();
  groups_[group_count_].wanted[0] = wanted_[at];
  groups_[group_count_].wanted_count = 1;
  groups_[group_count_].ratio = PackedSize() / size;
  ++group_count_;
  partition_wanted(at + 1, same_next ? group_count_ - 1 : 0);
  --group_count_;
}

/// Each item joins a group or leaves. `least_steps`: contractions, joins and steps of what left so far.
void ShapeDistance::place_item(std::size_t at, int least_steps, int expands, const Removed& removed,
                               std::size_t least_choice) {
  if (least_steps >= best_) return;
  if (at == item_count_) {
    int steps = contractions_ + expands + removed.items;
    if (removed.items > 0 && !removed.mergeable) {
      // Joined with each other, and then a window or a Shift for a Merge to stand above.
      if (removed.items < 2) return;
      if (!removed.window) ++steps;
    }
    int rest = 0;
    int least = steps;
    for (std::size_t g = 0; g < group_count_; ++g) {
      rest += std::max(groups_[g].item_count - 1, 0);
      least += least_steps_of(groups_[g]);
      if (least >= best_) return;
    }
    const auto most = [](int count) { return static_cast<unsigned>(std::clamp(count, 0, 100)); };
    std::uint64_t word = most(best_ - 1);
    const int limits[] = {remaining_.merges, remaining_.splits,  remaining_.unfolds,
                          remaining_.shifts, remaining_.strides, remaining_.expands - expands,
                          remaining_.reduces};
    for (std::size_t lane = 0; lane < 7; ++lane)
      word |= static_cast<std::uint64_t>(most(limits[lane])) << (8 * (lane + 1));
    limits_ = StepCounts(word);
    close_groups(0, StepCounts(static_cast<std::uint64_t>(steps)), rest);
    return;
  }
  const Item& item = items_[at];
  const Traits traits = item.given.traits;
  const bool same_next = at + 1 < item_count_ && items_[at + 1].given == item.given;
  const auto next = [&](std::size_t choice, int steps, int more_expands, const Removed& gone) {
    place_item(at + 1, least_steps + steps, expands + more_expands, gone, same_next ? choice : 0);
  };
  constexpr std::uint64_t kSigns = 0x8080808080808080ULL;
  for (std::size_t g = least_choice; g < group_count_; ++g) {
    Group& group = groups_[g];
    if (group.item_count == 0) {
      // Empty groups that want the same are interchangeable.
      bool earlier = false;
      for (std::size_t e = 0; e < g; ++e)
        earlier = earlier || (groups_[e].item_count == 0 && groups_[e].ratio == group.ratio &&
                              groups_[e].wanted_count == group.wanted_count);
      if (earlier) continue;
    } else if (group.item_count == Connections::kMaxPieces) {
      continue;
    }
    const PackedSize before = group.ratio;
    group.ratio = before * item.size;
    if (item.frozen && remaining_.expands == 0) {
      // What is frozen cannot leave again: it must not exceed what the group wants.
      const PackedSize excess = group.ratio & remaining_.frozen;
      const PackedSize lack = PackedSize() / excess;
      if (((lack.low | lack.high) & kSigns) != 0) {
        group.ratio = before;
        continue;
      }
    }
    group.item[group.item_count++] = static_cast<std::uint8_t>(at);
    next(g, group.item_count > 1 ? 1 : 0, 0, removed);
    --group.item_count;
    group.ratio = before;
  }
  if (least_choice <= group_count_ && contractions_ > 0 && !item.frozen) {
    if (has(traits, Trait::Match) || (contractions_ > 1 && has(traits, Trait::MatchShared)))
      next(group_count_, 0, 0, removed);
  }
  if (least_choice <= group_count_ + 1 && remaining_.merges > 0 && !item.frozen &&
      (contractions_ > 1 || (contractions_ > 0 && freedom_.any_match))) {
    Removed gone = removed;
    ++gone.items;
    gone.mergeable = gone.mergeable || has(traits, Trait::Merge) || has(traits, Trait::SmallMerge);
    gone.window = gone.window || sizes_[item.given.extent].coefficient;
    next(group_count_ + 1, 1, 0, gone);
  }
  if (expands < remaining_.expands) next(group_count_ + 2, 1, 1, removed);
}

/// From the group's counts and its primary variables alone: what joins all items, takes the wanted
/// dimensions apart, brings in variables that are missing and takes out those that are too many.
int ShapeDistance::least_steps_of(const Group& group) const {
  constexpr int kNever = 100;
  int steps = group.wanted_count - 1;
  if (group.item_count == 0) return remaining_.reduces > 0 ? steps + 1 : kNever;
  steps += group.item_count - 1;
  const PackedSize ratio = group.ratio & sizes_.primary_lanes();
  if (ratio.is_zero() || remaining_.strides > 0 || remaining_.expands > 0) return steps;
  bool lacks = false;
  bool exceeds = false;
  for (std::size_t i = 0; i < remaining_.left.size(); ++i) {
    const int exponent = ratio.exponent(i);
    lacks = lacks || exponent < 0;
    exceeds = exceeds || exponent > 0;
    if (std::abs(exponent) > remaining_.left[i]) return kNever;
  }
  if (lacks) {
    if (remaining_.reduces == 0) return kNever;
    steps += 2;  // a Reduce, and what joins it
  }
  if (exceeds) {  // only a weight takes primary variables out, and only of parts
    if (contractions_ == 0 || remaining_.merges == 0) return kNever;
    steps += group.wanted_count == 1;  // else the Merges that take the wanted apart may do
  }
  return steps;
}

/// Whether `reduces` Reduces, joined with all of the group but its windows, may be the one dimension it wants.
bool ShapeDistance::reduce_completes(const Group& group, int reduces) const {
  std::array<PackedSize, kMaxItems> windows{};
  std::size_t count = 0;
  for (std::size_t k = 0; k < group.item_count; ++k) {
    const SizeFacts& facts = sizes_[items_[group.item[k]].given.extent];
    if (facts.coefficient) windows[count++] = facts.packed;
  }
  PackedSize lack = PackedSize() / group.ratio;
  for (std::uint32_t step = 0; step < 1U << count; ++step) {
    if (step > 0) {  // in Gray's order each set differs from the one before in a single window
      const auto window = static_cast<std::size_t>(std::countr_zero(step));
      const bool enters = ((step ^ step >> 1) >> window & 1) != 0;
      lack = enters ? lack * windows[window] : lack / windows[window];
    }
    bool affordable = true;
    for (std::size_t i = 0; i < remaining_.left.size(); ++i)
      affordable = affordable && std::abs(lack.exponent(i)) <= remaining_.left[i];
    if (affordable && (reduces > 1 || sizes_.may_be_reduced(lack))) return true;
  }
  return false;
}

/// Adds the ways of one group after another; `least_rest` are the joins that the groups from here on need.
void ShapeDistance::close_groups(std::size_t at, StepCounts counts, int least_rest) {
  if (counts.steps() + least_rest >= best_) return;
  if (at == group_count_) {
    best_ = counts.steps();
    return;
  }
  const Group& group = groups_[at];
  const int own = std::max(group.item_count - 1, 0);
  const auto use = [&](StepCounts way) {
    const StepCounts sum = counts + way;
    if (sum.within(limits_)) close_groups(at + 1, sum, least_rest - own);
  };
  const auto fork = static_cast<unsigned>(group.wanted_count - 1);
  if (remaining_.reduces > 0) {
    // Joined with all that is there, a Reduce makes up for the difference: where nothing is taken apart that
    // is one extent for each choice of windows, and below a Merge, or as the product of several, any.
    const StepCounts joined = StepCounts(group.item_count) + StepCounts::of(StepCounts::Reduces);
    if (fork > 0 || remaining_.strides > 0 || remaining_.expands > 0 || reduce_completes(group, 1)) {
      use(StepCounts::of(StepCounts::Merges, fork) + joined);
    } else {
      if (remaining_.reduces > 1 && reduce_completes(group, 2))
        use(StepCounts(1) + joined + StepCounts::of(StepCounts::Reduces));
      use(StepCounts::of(StepCounts::Merges) + joined);
    }
  }
  if (group.item_count == 0) return;
  std::array<Piece, kMaxItems> pieces{};
  for (std::size_t k = 0; k < group.item_count; ++k) pieces[k] = items_[group.item[k]].given;
  const Connections::Around around{.contractions = contractions_,
                                   .merges = remaining_.merges,
                                   .shifts = remaining_.shifts,
                                   .strides = remaining_.strides,
                                   .expands = remaining_.expands,
                                   .left = remaining_.left};
  const Ways ways = connections_({pieces.data(), group.item_count}, {group.wanted.data(), group.wanted_count},
                                 around, best_ - 1 - counts.steps() - (least_rest - own));
  for (std::uint8_t i = 0; i < ways.count; ++i) use(ways.way[i]);
}

}  // namespace syno::synth
