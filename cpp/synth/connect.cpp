#include "synth/connect.hpp"

#include <algorithm>
#include <bit>

#include "support/error.hpp"
#include "support/mix.hpp"

namespace syno::synth {
namespace {

constexpr std::size_t kMemoSize = 1U << 10;   ///< entries at first; doubles when half full
constexpr std::size_t kMemoLimit = 1U << 17;  ///< entries at most; beyond them new ones replace old ones
constexpr std::size_t kBucket = 4;            ///< neighbouring places a key may have

constexpr std::size_t place(std::uint64_t key) { return static_cast<std::size_t>(key ^ key >> 32); }

bool covers(StepCounts less, StepCounts more) { return less.within(more); }

/// A part that a contraction matches takes no step of its own.
bool leaves_free(const Piece& piece, const Connections::Around& around) {
  return around.contractions > 0 && has(piece.traits, Trait::Part) && has(piece.traits, Trait::Match);
}

}  // namespace

void Ways::add(StepCounts counts) {
  std::uint8_t kept = 0;
  for (std::uint8_t i = 0; i < count; ++i) {
    if (covers(way[i], counts)) return;
    if (!covers(counts, way[i])) way[kept++] = way[i];
  }
  count = kept;
  if (count == way.size()) {
    way[count - 1U] = least(way[count - 1U], counts);
    return;
  }
  way[count++] = counts;
}

Connections::Connections(SizePool& sizes, const Spec& spec, const Freedom& freedom)
    : sizes_(sizes), spec_(spec), freedom_(freedom), keys_(kMemoSize), memo_(kMemoSize) {}

void Connections::Group::add(Piece more) {
  // Sorted, so that equal multisets are equal arrays. Numbers differ between pools; no answer depends on
  // them.
  std::size_t at = count++;
  const auto order = [](const Piece& p) { return static_cast<std::uint64_t>(p.extent) << 16 | p.traits; };
  for (; at > 0 && order(piece[at - 1]) > order(more); --at) piece[at] = piece[at - 1];
  piece[at] = more;
}

void Connections::Group::remove(std::size_t at) {
  for (; at + 1 < count; ++at) piece[at] = piece[at + 1];
  --count;
}

const Connections::Entry* Connections::find(std::uint64_t key) const {
  const std::size_t mask = keys_.size() - 1;
  for (std::size_t k = 0; k < kBucket; ++k) {
    const std::size_t at = (place(key) + k) & mask;
    if (keys_[at] == key) return &memo_[at];
  }
  return nullptr;
}

void Connections::store(std::uint64_t key, const Ways& ways, int limit) {
  if (2 * memo_used_ >= keys_.size() && keys_.size() < kMemoLimit) {
    std::vector<std::uint64_t> keys(2 * keys_.size());
    std::vector<Entry> entries(2 * memo_.size());
    keys.swap(keys_);
    entries.swap(memo_);
    memo_used_ = 0;
    for (std::size_t k = 0; k < keys.size(); ++k) {
      if (keys[k] != 0) store(keys[k], entries[k].ways, entries[k].limit);
    }
  }
  const std::size_t mask = keys_.size() - 1;
  // In a full bucket the key's high bits choose what it replaces.
  std::size_t chosen = (place(key) + (key >> 60) % kBucket) & mask;
  for (std::size_t k = 0; k < kBucket; ++k) {
    const std::size_t at = (place(key) + k) & mask;
    if (keys_[at] != key && keys_[at] != 0) continue;
    chosen = at;
    break;
  }
  memo_used_ += keys_[chosen] == 0;
  keys_[chosen] = key;
  memo_[chosen] = {ways, static_cast<std::int8_t>(limit)};
}

std::uint64_t Connections::key_of(const Group& group, const Around& around) const {
  std::uint64_t key = 0x13198a2e03707344ULL;
  for (std::size_t i = 0; i < group.count; ++i)
    key = join_key(key, static_cast<std::uint64_t>(group.piece[i].extent) << 16 | group.piece[i].traits);
  for (std::size_t i = 0; i < wanted_count_; ++i)
    key = join_key(key, ~static_cast<std::uint64_t>(wanted_[i]));
  const auto few = [](int count) { return static_cast<std::uint64_t>(std::clamp(count, 0, 15)); };
  key = join_key(key, few(std::min(around.contractions, 2)) | few(around.merges) << 4 |
                          few(around.shifts) << 8 | few(around.expands) << 12);
  std::uint64_t left = 0;
  for (std::size_t i = 0; i < around.left.size(); ++i)
    left = left << 4 | few(sizes_.primary_lanes().exponent(i) != 0 ? around.left[i] : 0);
  return join_key(key, left) | 1;
}

bool Connections::made(const Group& group) const {
  if (group.count != wanted_count_) return false;
  std::array<SizeNumber, kMaxPieces> extents{};
  for (std::size_t i = 0; i < group.count; ++i) {
    if (has(group.piece[i].traits, Trait::Gaps) && !freedom_.gaps) return false;
    extents[i] = group.piece[i].extent;
  }
  std::sort(extents.begin(), extents.begin() + group.count);
  return std::equal(wanted_.begin(), wanted_.begin() + static_cast<std::ptrdiff_t>(wanted_count_),
                    extents.begin());
}

/// Each piece that has a wanted extent stands for it, as many as there are; a part that a contraction matches
/// may leave instead.
Connections::Matched Connections::match_wanted(const Group& group, const Around& around) const {
  std::array<SizeNumber, 8> missing = wanted_;
  Matched found{.missing = static_cast<int>(wanted_count_), .leaving = {}};
  const auto take = [&](const Piece& piece) {
    if (has(piece.traits, Trait::Gaps) && !freedom_.gaps) return false;
    const auto end = missing.begin() + found.missing;
    const auto at = std::find(missing.begin(), end, piece.extent);
    if (at == end) return false;
    *at = missing[static_cast<std::size_t>(--found.missing)];
    return true;
  };
  for (const bool loose : {false, true}) {
    for (std::size_t i = 0; i < group.count; ++i) {
      const Piece& piece = group.piece[i];
      if (leaves_free(piece, around) != loose || take(piece)) continue;
      if (loose) {
        found.leaving = found.leaving * sizes_[piece.extent].packed;
      } else {
        ++found.others;
      }
    }
  }
  return found;
}

/// Whether the group is what is wanted once parts that a contraction matches have left, the only thing that
/// takes no step.
bool Connections::made_by_leaving(const Group& group, const Around& around) {
  const Matched found = match_wanted(group, around);
  return found.missing == 0 && found.others == 0 &&
         (found.leaving.is_zero() || may_leave(found.leaving, around));
}

/// The product is what is wanted and no gap is open.
bool Connections::fits(const Group& group) const {
  PackedSize product;
  for (std::size_t i = 0; i < group.count; ++i) {
    if (has(group.piece[i].traits, Trait::Gaps) && !freedom_.gaps) return false;
    product = product * sizes_[group.piece[i].extent].packed;
  }
  return product == wanted_product_;
}

bool Connections::within_left(SizeNumber extent, const Usage& left) const {
  const Usage& usage = sizes_[extent].primary;
  for (std::size_t i = 0; i < usage.size(); ++i) {
    if (usage[i] > left[i]) return false;
  }
  return true;
}

bool Connections::may_be_window(const SizeFacts& facts) const {
  return facts.coefficient && (facts.odd || freedom_.even_windows || freedom_.windows) &&
         (freedom_.large_windows || facts.narrow);
}

/// Whether extents of whole pieces can multiply to this, and what is not a window's can be matched.
bool Connections::may_leave(PackedSize excess, const Around& around) {
  const PackedSize primary = excess & sizes_.primary_lanes();
  if (!primary.is_zero()) {
    if (around.contractions == 0) return false;
    for (std::size_t i = 0; i < around.left.size(); ++i) {
      const int exponent = primary.exponent(i);
      if (exponent < 0 || exponent > around.left[i]) return false;
    }
  }
  return sizes_[sizes_.intern(excess)].least >= 1;
}

/// Strides change extents by coefficients only: primary variables have to be there, and what is too much of
/// them has to be matched.
bool Connections::primaries_match(const Group& group, const Around& around) const {
  if (around.expands > 0) return true;
  PackedSize product;
  for (std::size_t i = 0; i < group.count; ++i) product = product * sizes_[group.piece[i].extent].packed;
  const PackedSize excess = (product / wanted_product_) & sizes_.primary_lanes();
  for (std::size_t i = 0; i < around.left.size(); ++i) {
    const int exponent = excess.exponent(i);
    if (exponent < 0 || (exponent > 0 && (around.contractions == 0 || exponent > around.left[i])))
      return false;
  }
  return true;
}

/// What no number of the allowed steps can mend: too few pieces, too many, or an excess that no pieces make
/// up.
bool Connections::hopeless(const Group& group, const Around& around, int limit) {
  const int count = group.count;
  const int wanted = static_cast<int>(wanted_count_);
  if (count == 0 || wanted - count > std::min(around.merges, limit)) return true;
  int loose = 0;  // pieces that may leave without a step
  PackedSize product;
  for (std::size_t i = 0; i < group.count; ++i) {
    const Piece& piece = group.piece[i];
    product = product * sizes_[piece.extent].packed;
    loose += leaves_free(piece, around);
  }
  if (count - loose - wanted > limit) return true;
  // A step is of two pieces at most, and makes one, or a Merge two.
  const Matched found = match_wanted(group, around);
  if (found.others > 2 * limit || found.missing > limit + std::min(around.merges, limit)) return true;
  if (around.expands > 0) return false;
  const PackedSize excess = product / wanted_product_;
  if (excess.is_zero()) return false;
  if (!may_leave(excess, around)) return true;
  if (around.merges > 0 && limit > 0) return false;
  // Nothing new comes apart: the excess is the product of pieces that are matched or slide as windows.
  std::array<PackedSize, kMaxPieces> leaves{};
  std::size_t leaving = 0;
  for (std::size_t i = 0; i < group.count; ++i) {
    const Piece& piece = group.piece[i];
    const SizeFacts& facts = sizes_[piece.extent];
    const bool matched = leaves_free(piece, around);
    if (matched || may_be_window(facts)) leaves[leaving++] = facts.packed;
  }
  // In Gray's order each set differs from the one before in a single leaf.
  PackedSize all;
  for (std::uint32_t step = 1; step < 1U << leaving; ++step) {
    const auto leaf = static_cast<std::size_t>(std::countr_zero(step));
    const std::uint32_t set = step ^ step >> 1;
    all = (set >> leaf & 1) != 0 ? all * leaves[leaf] : all / leaves[leaf];
    if (all == excess) return false;
  }
  return true;
}

Traits Connections::part_traits(SizeNumber extent, Traits whole, bool major, const Usage& left) const {
  const SizeFacts& facts = sizes_[extent];
  Traits traits = Trait::Part | Trait::Slide;
  traits = traits | Trait::Repeat;
  if (freedom_.any_match || (facts.matchable && within_left(extent, left))) traits = traits | Trait::Match;
  if (!major || freedom_.merges) traits = traits | Trait::Merge;
  if (!has(whole, Trait::Unordered) || freedom_.shifts) traits = traits | Trait::Shift;
  if (facts.coefficient && (facts.odd || freedom_.even_windows)) traits = traits | Trait::Window;
  return static_cast<Traits>(traits | (whole & ((Trait::Sums | Trait::Unordered) | Trait::Indexed)));
}

bool Connections::may_slide(const Piece& dim, const Piece& window, const Around& around) const {
  const bool shares = around.contractions > 0;
  const SizeFacts& facts = sizes_[window.extent];
  if (!facts.coefficient) return false;
  if (!freedom_.windows) {
    if (!has(window.traits, Trait::Window) && !(shares && has(window.traits, Trait::WindowShared)))
      return false;
  }
  if (!freedom_.slides) {
    if (has(dim.traits, Trait::Sums)) {
      // Weights that index all of the sum have fewer elements than one only where they are two.
      const bool bare = has(dim.traits, Trait::Bare);
      const int known =
          (has(dim.traits, Trait::Indexed) ? 1 : 0) + (bare && has(window.traits, Trait::Window) ? 1 : 0);
      if (around.contractions < (bare ? 2 : 1) - known) return false;
    }
    if (!has(dim.traits, Trait::Slide) &&
        !(shares && has(dim.traits, Trait::SlideShared) && within_left(dim.extent, around.left)))
      return false;
  }
  if (freedom_.large_windows) return sizes_.fits_inside(window.extent, dim.extent);
  return sizes_.promising_window(window.extent, dim.extent);
}

/// After the last Merge nothing comes apart any more. A part that stays is, joined with some of the other
/// pieces, a wanted extent; one that leaves is what the other part leaves of the whole. False where that does
/// not say which blocks are of use.
template <class Divide>
bool Connections::only_useful_blocks(const Group& group, std::size_t at, const Around& around, int limit,
                                     Divide&& divide) {
  if ((around.merges != 1 && limit != 1) || around.expands > 0) return false;
  const PackedSize whole = sizes_[group.piece[at].extent].packed;
  std::array<PackedSize, kMaxPieces> others{};
  std::uint32_t leaving = 0;  // those that may be matched or be windows
  std::size_t count = 0;
  for (std::size_t i = 0; i < group.count; ++i) {
    if (i == at) continue;
    const Piece& piece = group.piece[i];
    const bool matched = leaves_free(piece, around);
    if (matched || may_be_window(sizes_[piece.extent])) leaving |= 1U << count;
    others[count++] = sizes_[piece.extent].packed;
  }
  constexpr std::size_t kMost = 64;
  std::array<PackedSize, kMost> parts{};
  std::size_t part_count = 0;
  for (std::uint32_t set = 0; set < 1U << count; ++set) {
    if (wanted_count_ == 1 && ((~set & ((1U << count) - 1)) & ~leaving) != 0) continue;
    PackedSize joined;
    int joins = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if ((set >> i & 1) == 0) continue;
      joined = joined * others[i];
      ++joins;
    }
    if (joins >= limit + static_cast<int>(wanted_count_)) continue;
    if (joined == wanted_product_) return false;  // both parts may leave, whatever they are
    for (std::size_t w = 0; w < wanted_count_ && joins < limit; ++w) {
      const PackedSize part = sizes_[wanted_[w]].packed / joined;
      if (part == whole) return false;  // both parts may stay, whatever they are
      if (part.is_zero() || std::find(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(part_count),
                                      part) != parts.begin() + static_cast<std::ptrdiff_t>(part_count))
        continue;
      if (part_count == kMost) return false;
      parts[part_count++] = part;
    }
  }
  const SizeNumber extent = group.piece[at].extent;
  for (std::size_t k = 0; k < part_count; ++k) {
    if (const auto choice = sizes_.block_of(extent, parts[k])) divide(*choice);
    const PackedSize rest = whole / parts[k];
    if (std::find(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(part_count), rest) !=
        parts.begin() + static_cast<std::ptrdiff_t>(part_count))
      continue;  // as a block of its own
    if (const auto choice = sizes_.block_of(extent, rest)) divide(*choice);
  }
  return true;
}

Ways Connections::operator()(std::span<const Piece> pieces, std::span<const SizeNumber> wanted,
                             const Around& around, int limit) {
  SYNO_ASSERT(pieces.size() <= kMaxPieces && wanted.size() <= wanted_.size(),
              "a group holds few coordinates");
  Group group;
  for (const Piece& piece : pieces) group.add(piece);
  wanted_count_ = wanted.size();
  std::copy(wanted.begin(), wanted.end(), wanted_.begin());
  std::sort(wanted_.begin(), wanted_.begin() + static_cast<std::ptrdiff_t>(wanted_count_));
  wanted_product_ = PackedSize();
  for (const SizeNumber extent : wanted) wanted_product_ = wanted_product_ * sizes_[extent].packed;
  // Where many Merges or any Expand may follow, ways branch far more often.
  int deepest = around.merges > 2 || around.expands > 0 ? kDeepestOfMany : kDeepest;
  Ways strided;
  // A Stride of a window is taken only to dilate it: as it is, the window slides in a step less.
  if (around.strides > 0 && freedom_.strides && primaries_match(group, around)) {
    // A Stride may have any of many extents: it makes up for whatever is missing. A window fills its gaps:
    // the one of the joins that is an Unfold, or else one that a Merge splits off; or a
    // part that a weight matches takes them away.
    const auto joins = static_cast<unsigned>(group.count - 1);
    const unsigned fill = joins > 0 || freedom_.gaps ? 0 : around.contractions > 0 ? 1 : 2;
    const StepCounts way = StepCounts(joins + fill) + StepCounts::of(StepCounts::Strides) +
                           StepCounts::of(StepCounts::Merges, static_cast<unsigned>(wanted_count_) - 1);
    // It is little longer than any other: these are not worth a deep search.
    deepest = std::min({deepest, kDeepestOfMany, way.steps() - 1});
    if (way.steps() <= limit) strided.add(way);
  }
  Around without = around;
  without.strides = 0;
  Ways ways = solve(group, without, std::min(limit, deepest));
  if (limit > deepest) {
    // Each join and each fork is a step but for parts that a weight matches.
    const int joins = around.contractions > 0 ? 0 : group.count - 1;
    ways.add(StepCounts(static_cast<std::uint64_t>(std::max(deepest + 1, joins))));
  }
  for (std::uint8_t i = 0; i < strided.count; ++i) ways.add(strided.way[i]);
  return ways;
}

Ways Connections::solve(const Group& group, const Around& allowed, int limit) {
  Ways ways;
  if (made(group)) {
    ways.add(StepCounts());
    return ways;
  }
  // What no step is left for asks the same question as what is not allowed.
  Around around = allowed;
  around.merges = std::min(allowed.merges, limit);
  around.shifts = std::min(allowed.shifts, std::max(limit - 1, 0));  // a Merge stands above
  around.expands = std::min(allowed.expands, limit);
  if (limit == 0) {
    if (made_by_leaving(group, around)) ways.add(StepCounts());
    return ways;
  }
  if (limit == 1 && around.expands > 0) {
    // The one step is an Expand, or none is.
    around.expands = 0;
    for (std::size_t i = 0; i < group.count && group.count > 1; ++i) {
      if (!freedom_.expands && !has(group.piece[i].traits, Trait::Repeat)) continue;
      Group without = group;
      without.remove(i);
      if (made_by_leaving(without, around)) {
        ways.add(StepCounts::of(StepCounts::Expands));
        break;
      }
    }
  }
  Ways others = solve_further(group, around, limit);
  for (std::uint8_t i = 0; i < others.count; ++i) ways.add(others.way[i]);
  return ways;
}

/// As solve(), where something has to be done.
Ways Connections::solve_further(const Group& group, const Around& around, int limit) {
  Ways ways;
  if (hopeless(group, around, limit)) return ways;
  if (wanted_count_ == 1 && fits(group)) {
    // Sizes only ever shrink: nothing may leave, so that one Split after the other is all there is.
    if (group.count - 1 <= limit) ways.add(StepCounts::of(StepCounts::Splits, group.count - 1U));
    return ways;
  }
  const std::uint64_t key = key_of(group, around);
  {
    const Entry* known = find(key);
    if (known != nullptr && known->limit >= limit) {
      for (std::uint8_t i = 0; i < known->ways.count; ++i) {
        if (known->ways.way[i].steps() <= limit) ways.add(known->ways.way[i]);
      }
      return ways;
    }
  }
  const auto go = [&](const Group& next, StepCounts step, const Around& then) {
    const Ways rest = solve(next, then, limit - step.steps());
    for (std::uint8_t i = 0; i < rest.count; ++i) ways.add(rest.way[i] + step);
  };
  for (std::size_t i = 0; i < group.count; ++i) {
    const Piece dim = group.piece[i];
    if (i > 0 && group.piece[i - 1] == dim) continue;  // equal pieces are interchangeable
    Group without = group;
    without.remove(i);
    const auto facts = [&](SizeNumber extent) -> const SizeFacts& { return sizes_[extent]; };
    if (leaves_free(dim, around)) go(without, StepCounts(), around);
    for (std::size_t j = 0; j < group.count; ++j) {
      if (j == i) continue;
      const Piece other = group.piece[j];
      Group apart = without;
      apart.remove(j > i ? j - 1 : j);
      if (j > i) {  // a Split either way gives one size
        const SizeNumber extent = sizes_.times(dim.extent, other.extent);
        if (facts(extent).legal) {
          const bool wide =
              std::min(facts(dim.extent).least, facts(other.extent).least) >= sizes_.widest_window();
          auto traits = static_cast<Traits>(wide ? Trait::SlideShared : Trait::Slide);
          if (freedom_.merges) traits = traits | Trait::Merge;
          const double small = spec_.thresholds.shift_ratio;
          if (freedom_.shifts || facts(dim.extent).greatest <= small || facts(other.extent).greatest <= small)
            traits = traits | Trait::Shift;
          if (facts(extent).coefficient && (facts(extent).odd || freedom_.even_windows))
            traits = traits | Trait::Window;
          traits =
              static_cast<Traits>(traits | (dim.traits & other.traits & static_cast<Traits>(Trait::Sums)) |
                                  ((dim.traits | other.traits) & (Trait::Gaps | Trait::Indexed)));
          Group next = apart;
          next.add({extent, traits});
          go(next, StepCounts::of(StepCounts::Splits), around);
        }
      }
      if (may_slide(dim, other, around)) {
        Traits traits = Trait::Slide | Trait::Merge;
        traits = traits | Trait::Shift;
        if (facts(dim.extent).coefficient && (facts(dim.extent).odd || freedom_.even_windows))
          traits = traits | Trait::Window;
        Group next = apart;
        next.add({dim.extent, traits});  // whatever gaps there were are taken for filled
        go(next, StepCounts::of(StepCounts::Unfolds), around);
      }
    }
    if (around.merges > 0) {
      const bool any = has(dim.traits, Trait::Merge) || freedom_.merges;
      if (any || has(dim.traits, Trait::SmallMerge)) {
        Around then = around;
        --then.merges;
        const auto divide = [&](const BlockChoice& choice) {
          if (!any && facts(choice.block).greatest > spec_.thresholds.shift_ratio) return;
          Group next = without;
          next.add({choice.group, part_traits(choice.group, dim.traits, true, around.left)});
          next.add({choice.block, part_traits(choice.block, dim.traits, false, around.left)});
          go(next, StepCounts::of(StepCounts::Merges), then);
        };
        if (!only_useful_blocks(group, i, around, limit, divide)) {
          for (const BlockChoice& choice : sizes_.blocks(dim.extent)) divide(choice);
        }
      }
      if (around.shifts > 0 && (freedom_.shifts || has(dim.traits, Trait::Shift))) {
        // Only as what lets a Merge follow.
        Around then = around;
        --then.shifts;
        Traits traits = Trait::SlideShared | Trait::SmallMerge;
        if (freedom_.merges) traits = traits | Trait::Merge;
        if (has(dim.traits, Trait::Window) || has(dim.traits, Trait::WindowShared))
          traits = traits | Trait::Window;
        traits = static_cast<Traits>(
            traits | (dim.traits & ((Trait::Sums | Trait::Gaps) | Trait::Unordered | Trait::Indexed)));
        Group next = without;
        next.add({dim.extent, traits});
        go(next, StepCounts::of(StepCounts::Shifts), then);
      }
    }
    if (around.expands > 0 && (freedom_.expands || has(dim.traits, Trait::Repeat)) && without.count > 0) {
      Around then = around;
      --then.expands;
      go(without, StepCounts::of(StepCounts::Expands), then);
    }
  }
  store(key, ways, limit);
  return ways;
}

}  // namespace syno::synth
