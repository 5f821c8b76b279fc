// synth/distance.hpp — shape distance: the least number of steps to the wanted input, as a lower bound (Syno
// §7.1).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
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
};

/// Divides the frontier and the wanted dimensions into reshape groups. Within a group of c frontier and d
/// wanted coordinates of equal size, connecting them takes c - 1 joins (Split, Unfold) and d - 1 Merges;
/// where sizes differ something has to leave (Unfold's window, a matched coordinate) or join (a Reduce, a
/// Stride). The least sum over all groupings bounds the steps from below: every finished operator's steps
/// above this frontier contain a connection of each group. Contractions count once however much they match,
/// so that the bound stays admissible where one follows.
class ShapeDistance {
 public:
  static constexpr int kUnreachable = 100;
  ShapeDistance(SizePool& sizes, std::vector<SizeNumber> wanted, bool even_windows);

  /// The distance, or any number greater than `limit` when it exceeds that.
  int operator()(std::span<const DistanceItem> items, const Remaining& remaining, int limit);
  std::size_t memo_size() const { return memo_.size(); }

 private:
  struct Group {
    int wanted = 0;
    SizeNumber wanted_product = kOne;
    int items = 0;
    SizeNumber product = kOne;
    bool mergeable = false;
    int discards = 0;
  };
  struct Cost {
    int steps = 0;
    int merges = 0;
    int joins = 0;
    int windows = 0;
    int reduces = 0;
    int gaps = 0;  ///< Unfolds that gaps need beyond the joins of their own group
    bool matched = false;
    bool second_weight = false;
  };
  void partition_wanted(std::size_t at);
  void place_item(std::size_t at, const Cost& cost, std::size_t least_choice);
  void close_groups(std::size_t group, Cost cost);
  bool feasible(const Cost& cost) const;
  int total(const Cost& cost) const;

  SizePool& sizes_;
  std::vector<SizeNumber> wanted_;
  bool even_windows_;
  std::unordered_map<std::uint64_t, std::uint8_t> memo_;

  // The computation under way.
  std::array<DistanceItem, 16> items_{};
  std::size_t item_count_ = 0;
  Remaining remaining_;
  std::array<Group, 8> groups_{};
  std::size_t group_count_ = 0;
  int best_ = kUnreachable;
};

}  // namespace syno::synth
