// synth/distance.hpp — shape distance: the least number of steps to the wanted input, as a lower bound (Syno
// §7.1).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "synth/sizes.hpp"

namespace syno::synth {

/// What a later contraction would need to take a coordinate out of the frontier.
enum class Removal : std::uint8_t {
  Match,         ///< nothing: it may be matched as it is
  SecondWeight,  ///< a Reduce that a first weight has to share before a second may match it
  Steps,         ///< at least one more step
};

struct DistanceItem {
  SizeNumber extent = 0;
  Removal removal = Removal::Steps;
  bool mergeable = true;  ///< a Merge may stand directly above it
  bool discards = false;  ///< an Unfold of its own has to fill its gaps
};

/// How many steps of each kind the budgets still allow.
struct Remaining {
  int merges = 0;
  int splits = 0;
  int unfolds = 0;
  int strides = 0;
  int expands = 0;
  int contractions = 0;
  int reduces = 0;             ///< 0 once another primitive was used: Reduces come first
  bool must_contract = false;  ///< no weight yet, or a Reduce that some weight has to share
  PackedSize frozen;  ///< 0xff for each primary variable that no Reduce and no weight may use any more
};

/// Divides the frontier and the wanted dimensions into reshape groups. Within a group of c frontier and d
/// wanted coordinates of equal size, connecting them takes c - 1 joins (Split, Unfold) and d - 1 Merges;
/// where sizes differ something has to leave (Unfold's window, a matched coordinate) or join (a Reduce, a
/// Stride). The least sum over all groupings bounds the steps from below: every finished operator's steps
/// above this frontier contain a connection of each group. Contractions count once however much they match,
/// so that the bound stays admissible where one follows.
class ShapeDistance {
 public:
  ShapeDistance(const SizePool& sizes, std::vector<SizeNumber> wanted, bool even_windows);

  /// The distance, or any number greater than `limit` when it exceeds that.
  int operator()(std::span<const DistanceItem> items, const Remaining& remaining, int limit);

 private:
  struct Group {
    std::int8_t wanted = 0;
    std::int8_t items = 0;
    std::int8_t discards = 0;
    bool mergeable = false;
    PackedSize ratio;  ///< product of the items over product of the wanted
  };
  struct Cost {
    std::int8_t steps = 0;
    std::int8_t merges = 0;
    std::int8_t joins = 0;
    std::int8_t windows = 0;
    std::int8_t reduces = 0;
    std::int8_t gaps = 0;  ///< Unfolds that gaps need beyond the joins of their own group
    bool matched = false;
    bool second_weight = false;
  };
  struct Item {
    PackedSize size;
    bool frozen = false;  ///< holds a variable that has to reach the input
    bool window = false;  ///< may be the window of an Unfold
    std::uint64_t order = 0;
    DistanceItem given;
  };
  struct MemoEntry {
    std::uint64_t key = 0;
    std::uint8_t value = 0;  ///< the distance, or a lower bound above `limit`
    std::uint8_t limit = 0;
  };
  struct RatioEntry {
    PackedSize size;
    RatioFacts facts;
    bool known = false;
  };
  void partition_wanted(std::size_t at);
  void place_item(std::size_t at, Cost cost, std::size_t least_choice);
  void close_groups(std::size_t group, Cost cost);
  bool worse(const Cost& cost) const;
  int total(const Cost& cost) const;
  RatioFacts ratio_facts(PackedSize size);
  MemoEntry& memo_slot(std::uint64_t key);

  const SizePool& sizes_;
  std::vector<PackedSize> wanted_;
  bool even_windows_;
  std::vector<MemoEntry> memo_;
  std::size_t memo_used_ = 0;
  std::vector<RatioEntry> ratios_;

  // The computation under way.
  std::array<Item, 16> items_{};
  std::size_t item_count_ = 0;
  Remaining remaining_;
  std::array<Group, 8> groups_{};
  std::size_t group_count_ = 0;
  int best_ = 0;
};

}  // namespace syno::synth
