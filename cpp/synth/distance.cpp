#include "synth/distance.hpp"

#include <algorithm>
#include <bit>

#include "support/mix.hpp"

namespace syno::synth {
namespace {

constexpr std::size_t kDistances = 1U << 12;       ///< entries at first; doubles when half full
constexpr std::size_t kDistancesLimit = 1U << 18;  ///< entries at most; beyond them the memo starts afresh

bool any_negative(PackedSize size) {
  constexpr std::uint64_t kSigns = 0x8080808080808080ULL;
  return ((size.low | size.high) & kSigns) != 0;
}
bool any_positive(PackedSize size) { return any_negative(PackedSize() / size); }

}  // namespace

ShapeDistance::ShapeDistance(SizePool& sizes, const Spec& spec, std::vector<SizeNumber> wanted,
                             const Freedom& freedom)
    : sizes_(sizes),
      wanted_(std::move(wanted)),
      freedom_(freedom),
      connections_(sizes, spec, freedom),
      memo_(kDistances) {
  std::sort(wanted_.begin(), wanted_.end());  // equal ones are neighbours
}

ShapeDistance::MemoEntry& ShapeDistance::memo_slot(std::uint64_t key) {
  if (2 * memo_used_ >= memo_.size()) {
    std::vector<MemoEntry> old(memo_.size() < kDistancesLimit ? 2 * memo_.size() : memo_.size());
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
      memo_[at] = {.key = key};
      ++memo_used_;
      return memo_[at];
    }
  }
}

/// Sorts the items and names the question.
std::uint64_t ShapeDistance::prepare(std::span<const Piece> pieces, const Remaining& remaining) {
  item_count_ = pieces.size();
  frozen_count_ = 0;
  for (std::size_t k = 0; k < item_count_; ++k) {
    const SizeFacts& facts = sizes_[pieces[k].extent];
    items_[k].given = pieces[k];
    items_[k].size = facts.packed;
    items_[k].frozen = !(facts.packed & remaining.frozen).is_zero();
    frozen_count_ += items_[k].frozen;
    // The hash of the size orders items the same way in every thread; frozen ones first, they have fewest
    // places, then those with primary variables.
    items_[k].order = (facts.hash & ~0xffffULL) >> 1 | static_cast<std::uint64_t>(facts.coefficient) << 63 |
                      pieces[k].traits;
  }
  std::sort(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(item_count_),
            [](const Item& a, const Item& b) { return a.frozen != b.frozen ? a.frozen : a.order < b.order; });
  remaining_ = remaining;
  // Strides of windows only dilate them; what they make slides as well without.
  if (!freedom_.strides && !freedom_.gaps) remaining_.strides = 0;
  std::uint64_t key = 0x243f6a8885a308d3ULL;
  for (std::size_t k = 0; k < item_count_; ++k) key = join_key(key, items_[k].order);
  const auto few = [](int count) { return static_cast<std::uint64_t>(std::clamp(count, 0, 15)); };
  key = join_key(key, few(remaining.merges) | few(remaining.splits) << 4 | few(remaining.unfolds) << 8 |
                          few(remaining_.strides) << 12 | few(remaining.expands) << 16 |
                          few(remaining.contractions) << 20 | few(remaining.reduces) << 24 |
                          static_cast<std::uint64_t>(remaining.must_contract) << 28 |
                          few(remaining.shifts) << 32);
  // Of coefficient variables only Reduces to come ask how often they may still occur.
  all_left_ = std::bit_cast<PackedSize>(remaining.left);
  left_ = all_left_ & sizes_.primary_lanes();
  primaries_decide_ = remaining_.expands == 0;  // a Stride's factor is a coefficient
  sizes_decide_ = primaries_decide_ && remaining_.strides == 0;
  const PackedSize left = remaining.reduces == 0 ? left_ : all_left_;
  for (const std::uint64_t word : {left.low, left.high, remaining.frozen.low, remaining.frozen.high})
    key = join_key(key, word);
  return key | 1;
}

/// The least steps of at most `limit`, or any so few.
void ShapeDistance::measure(int limit, bool any) {
  best_ = limit + 1;
  found_.reset();
  any_ = any;
  // A third contraction makes nothing possible that two do not.
  const int most = std::min(remaining_.contractions, 2);
  for (contractions_ = remaining_.must_contract ? 1 : 0; contractions_ <= most && contractions_ < best_;
       ++contractions_) {
    group_count_ = 0;
    partition_wanted(0, 0);
  }
}

int ShapeDistance::operator()(std::span<const Piece> pieces, const Remaining& remaining, int limit) {
  const std::uint64_t key = prepare(pieces, remaining);
  const MemoEntry known = memo_slot(key);
  if (known.least > limit || known.least == known.most) return known.least;
  measure(limit, false);
  MemoEntry& entry = memo_slot(key);
  entry.least = static_cast<std::uint8_t>(best_);
  if (found_) entry.most = entry.least;
  return best_;
}

bool ShapeDistance::within(std::span<const Piece> pieces, const Remaining& remaining, int limit) {
  if (limit < 0) return false;
  const std::uint64_t key = prepare(pieces, remaining);
  const MemoEntry known = memo_slot(key);
  if (known.least > limit) return false;
  if (known.most <= limit) return true;
  measure(limit, true);
  MemoEntry& entry = memo_slot(key);
  if (found_) {
    entry.most = static_cast<std::uint8_t>(*found_);
  } else {
    entry.least = static_cast<std::uint8_t>(limit + 1);
  }
  return found_.has_value();
}

/// Of equal dimensions none goes to an earlier group than the one before it.
void ShapeDistance::partition_wanted(std::size_t at, std::size_t least_group) {
  if (at == wanted_.size()) {
    const int forks = static_cast<int>(wanted_.size() - group_count_);
    place_item(0, {.least_steps = contractions_ + forks, .merges = forks, .expands = 0, .removed = {}}, 0);
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

/// Each item joins a group or leaves.
void ShapeDistance::place_item(std::size_t at, const Partial& so_far, std::size_t least_choice) {
  if (so_far.least_steps >= best_ || so_far.merges > remaining_.merges) return;
  if (at == frozen_count_) {
    for (std::size_t g = 0; g < group_count_; ++g) {
      if (any_negative(groups_[g].ratio & remaining_.frozen)) return;  // nothing else can bring it in
    }
  }
  if (at == item_count_) return close(so_far);
  const Item& item = items_[at];
  const Traits traits = item.given.traits;
  const bool same_next = at + 1 < item_count_ && items_[at + 1].given == item.given;
  const auto next = [&](std::size_t choice, const Partial& partial) {
    place_item(at + 1, partial, same_next ? choice : 0);
  };
  for (std::size_t g = least_choice; g < group_count_; ++g) {
    Group& group = groups_[g];
    if (group.item_count == 0) {
      // Empty groups that want the same are interchangeable.
      bool earlier = false;
      for (std::size_t e = 0; e < g; ++e)
        earlier = earlier || (groups_[e].item_count == 0 && groups_[e].wanted == group.wanted);
      if (earlier) continue;
    } else if (group.item_count == Connections::kMaxPieces) {
      continue;
    }
    const PackedSize before = group.ratio;
    const PackedSize after = before * item.size;
    Partial partial = so_far;
    partial.least_steps += group.item_count > 0;
    if (primaries_decide_) {
      const PackedSize primary = after & sizes_.primary_lanes();
      if (any_negative(left_ / primary)) continue;
      if (any_positive(primary)) {  // only a weight takes primary variables out, and only of parts
        if (contractions_ == 0 || remaining_.merges == 0) continue;
        if (group.wanted_count == 1 && !any_positive(before & sizes_.primary_lanes())) {
          ++partial.least_steps;
          ++partial.merges;
        }
      }
    } else if (item.frozen && remaining_.expands == 0 && any_positive(after & remaining_.frozen)) {
      continue;
    }
    group.ratio = after;
    group.item[group.item_count++] = static_cast<std::uint8_t>(at);
    next(g, partial);
    --group.item_count;
    group.ratio = before;
  }
  if (least_choice <= group_count_ && contractions_ > 0 && !item.frozen) {
    if (has(traits, Trait::Match) || (contractions_ > 1 && has(traits, Trait::MatchShared)))
      next(group_count_, so_far);
  }
  if (least_choice <= group_count_ + 1 && remaining_.merges > 0 && !item.frozen &&
      (contractions_ > 1 || (contractions_ > 0 && freedom_.any_match))) {
    Partial partial = so_far;
    partial.merges += partial.removed.items == 0;
    ++partial.least_steps;
    Removed& gone = partial.removed;
    ++gone.items;
    gone.mergeable = gone.mergeable || has(traits, Trait::Merge) || has(traits, Trait::SmallMerge);
    gone.window = gone.window || sizes_[item.given.extent].coefficient;
    next(group_count_ + 1, partial);
  }
  if (so_far.expands < remaining_.expands) {
    Partial partial = so_far;
    ++partial.least_steps;
    ++partial.expands;
    next(group_count_ + 2, partial);
  }
}

/// Every item has its place: the least steps of each group by its counts and primary variables alone, then
/// exactly.
void ShapeDistance::close(const Partial& placed) {
  const Removed& removed = placed.removed;
  int steps = contractions_ + placed.expands + removed.items;
  if (removed.items > 0 && !removed.mergeable) {
    // Joined with each other, and then a window or a Shift for a Merge to stand above.
    if (removed.items < 2) return;
    if (!removed.window) ++steps;
  }
  int rest = 0;
  for (std::size_t g = 0; g < group_count_; ++g) {
    Group& group = groups_[g];
    group.least_steps = group.wanted_count - 1;
    const PackedSize primary = group.ratio & sizes_.primary_lanes();
    if (group.item_count == 0) {
      if (remaining_.reduces == 0) return;
      ++group.least_steps;
    } else {
      group.least_steps += group.item_count - 1;
      if (primaries_decide_ && any_negative(primary)) {
        if (remaining_.reduces == 0 || any_negative(left_ * primary)) return;
        group.least_steps += 2;  // a Reduce, and what joins it
      }
      if (primaries_decide_ && group.wanted_count == 1 && any_positive(primary))
        ++group.least_steps;  // a Merge
    }
    rest += group.least_steps;
    if (steps + rest >= best_) return;
  }
  const auto most = [](int count) { return static_cast<unsigned>(std::clamp(count, 0, 100)); };
  std::uint64_t word = most(best_ - 1);
  const int limits[] = {remaining_.merges, remaining_.splits,  remaining_.unfolds,
                        remaining_.shifts, remaining_.strides, remaining_.expands - placed.expands,
                        remaining_.reduces};
  for (std::size_t lane = 0; lane < 7; ++lane)
    word |= static_cast<std::uint64_t>(most(limits[lane])) << (8 * (lane + 1));
  limits_ = StepCounts(word);
  close_groups(0, StepCounts(static_cast<std::uint64_t>(steps)), rest);
}

/// Whether `reduces` Reduces, joined with all of the group but its windows, may make the one extent it wants.
bool ShapeDistance::reduce_completes(const Group& group, int reduces) {
  std::array<PackedSize, kMaxItems> windows{};
  std::size_t count = 0;
  for (std::size_t k = 0; k < group.item_count; ++k) {
    const SizeFacts& facts = sizes_[items_[group.item[k]].given.extent];
    if (connections_.may_be_window(facts)) windows[count++] = facts.packed;
  }
  PackedSize lack = PackedSize() / group.ratio;
  for (std::uint32_t step = 0; step < 1U << count; ++step) {
    if (step > 0) {  // in Gray's order each set differs from the one before in a single window
      const auto window = static_cast<std::size_t>(std::countr_zero(step));
      const bool enters = ((step ^ step >> 1) >> window & 1) != 0;
      lack = enters ? lack * windows[window] : lack / windows[window];
    }
    const bool affordable = !any_negative(all_left_ / lack) && !any_negative(all_left_ * lack) &&
                            !any_negative(lack & sizes_.primary_lanes());
    if (affordable && (reduces > 1 ? sizes_[sizes_.intern(lack)].least >= 4 : sizes_.may_be_reduced(lack)))
      return true;
  }
  return false;
}

/// Adds the ways of one group after another; `least_rest` are the steps that the groups from here on need.
void ShapeDistance::close_groups(std::size_t at, StepCounts counts, int least_rest) {
  if (counts.steps() + least_rest >= best_) return;
  if (at == group_count_) {
    found_ = counts.steps();
    best_ = any_ ? 0 : *found_;  // nothing is less than 0
    return;
  }
  const Group& group = groups_[at];
  const int own = group.least_steps;
  const auto use = [&](StepCounts way) {
    const StepCounts sum = counts + way;
    if (sum.within(limits_)) close_groups(at + 1, sum, least_rest - own);
  };
  const auto fork = static_cast<unsigned>(group.wanted_count - 1);
  if (remaining_.reduces > 0) {
    // Joined with all that is there, a Reduce makes up for the difference: where nothing is taken apart that
    // is one extent for each choice of windows, and below a Merge, or as the product of several, any.
    const StepCounts joined = StepCounts(group.item_count) + StepCounts::of(StepCounts::Reduces);
    if (!sizes_decide_) {
      use(StepCounts::of(StepCounts::Merges, fork) + joined);
    } else if (fork == 0 && reduce_completes(group, 1)) {
      use(joined);
    } else {
      if (fork == 0 && remaining_.reduces > 1 && reduce_completes(group, 2))
        use(StepCounts(1) + joined + StepCounts::of(StepCounts::Reduces));
      // A Merge stands above sums only after a Shift.
      const bool sums =
          !freedom_.merges && !freedom_.slides && contractions_ == 0 &&
          std::all_of(group.item.begin(), group.item.begin() + group.item_count, [&](auto k) {
            return has(items_[k].given.traits, Trait::Sums) && !has(items_[k].given.traits, Trait::Indexed);
          });
      use(joined + StepCounts::of(StepCounts::Merges, std::max(fork, 1U)) +
          StepCounts::of(StepCounts::Shifts, sums ? 1 : 0));
    }
  }
  const int limit = best_ - 1 - counts.steps() - (least_rest - own);
  if (group.item_count == 0 || limit < own) return;
  std::array<Piece, kMaxItems> pieces{};
  for (std::size_t k = 0; k < group.item_count; ++k) pieces[k] = items_[group.item[k]].given;
  const Connections::Around around{.contractions = contractions_,
                                   .merges = remaining_.merges,
                                   .shifts = remaining_.shifts,
                                   .strides = remaining_.strides,
                                   .expands = remaining_.expands,
                                   .left = remaining_.left};
  const Ways ways = connections_({pieces.data(), group.item_count}, {group.wanted.data(), group.wanted_count},
                                 around, limit);
  for (std::uint8_t i = 0; i < ways.count; ++i) use(ways.way[i]);
}

}  // namespace syno::synth
