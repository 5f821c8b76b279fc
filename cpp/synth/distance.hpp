// synth/distance.hpp — shape distance: the least number of steps to the wanted input, as a lower bound (Syno
// §7.1).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "synth/connect.hpp"

namespace syno::synth {

/// How many steps of each kind the budgets still allow.
struct Remaining {
  int merges = 0;
  int splits = 0;
  int unfolds = 0;
  int shifts = 0;
  int strides = 0;
  int expands = 0;
  int contractions = 0;
  int reduces = 0;             ///< 0 once another primitive was used: Reduces come first
  bool must_contract = false;  ///< no weight yet, or a Reduce that some weight has to share
  Usage left{};                ///< occurrences of every variable
  PackedSize frozen;  ///< 0xff for each primary variable that no Reduce and no weight may use any more
};

/// Divides the frontier and the wanted dimensions into groups that further steps connect; what is in no group
/// is matched by a contraction or expanded away. The steps of a group come from Connections, which knows
/// sizes and kinds exactly; the least sum over all divisions bounds the steps from below: every finished
/// operator's steps above this frontier contain a connection of each group. Contractions count once however
/// much they match, and whatever one makes possible counts as possible, so that the bound stays admissible
/// where one follows.
class ShapeDistance {
 public:
  ShapeDistance(SizePool& sizes, const Spec& spec, std::vector<SizeNumber> wanted, const Freedom& freedom);

  /// The distance, or any number greater than `limit` when it exceeds that.
  int operator()(std::span<const Piece> pieces, const Remaining& remaining, int limit);
  /// Whether the distance is at most `limit`: the search for it ends at the first way that is short enough.
  bool within(std::span<const Piece> pieces, const Remaining& remaining, int limit);

  std::size_t bytes() const { return memo_.capacity() * sizeof(MemoEntry) + connections_.bytes(); }

 private:
  static constexpr std::size_t kMaxItems = 16;
  struct Group {
    std::array<SizeNumber, 8> wanted{};
    std::array<std::uint8_t, kMaxItems> item{};
    std::uint8_t wanted_count = 0;
    std::uint8_t item_count = 0;
    int least_steps = 0;
    PackedSize ratio;  ///< product of the items over product of the wanted
  };
  struct Item {
    PackedSize size;
    bool frozen = false;  ///< holds a variable that has to reach the input
    std::uint64_t order = 0;
    Piece given;
  };
  /// Items that leave without reaching the input, but not by being matched as they are.
  struct Removed {
    int items = 0;
    bool mergeable = false;
    bool window = false;
  };
  /// The items placed so far.
  struct Partial {
    int least_steps = 0;  ///< contractions, joins, Merges that must be and steps of what left
    int merges = 0;       ///< that must be
    int expands = 0;
    Removed removed;
  };
  /// What is known of the distance so far.
  struct MemoEntry {
    static constexpr std::uint8_t kUnknown = 0xff;
    std::uint64_t key = 0;
    std::uint8_t least = 0;
    std::uint8_t most = kUnknown;
  };
  std::uint64_t prepare(std::span<const Piece> pieces, const Remaining& remaining);
  void measure(int limit, bool any);
  void partition_wanted(std::size_t at, std::size_t least_group);
  void place_item(std::size_t at, const Partial& so_far, std::size_t least_choice);
  void close(const Partial& placed);
  bool reduce_completes(const Group& group, int reduces);
  void close_groups(std::size_t group, StepCounts counts, int least_rest);
  MemoEntry& memo_slot(std::uint64_t key);

  SizePool& sizes_;
  std::vector<SizeNumber> wanted_;
  Freedom freedom_;
  Connections connections_;
  std::vector<MemoEntry> memo_;
  std::size_t memo_used_ = 0;

  // The computation under way.
  std::array<Item, kMaxItems> items_{};
  std::size_t item_count_ = 0;
  std::size_t frozen_count_ = 0;
  Remaining remaining_;
  PackedSize all_left_;            ///< remaining_.left in bytes
  PackedSize left_;                ///< of the primary variables
  bool primaries_decide_ = false;  ///< nothing drops primary variables at will
  bool sizes_decide_ = false;      ///< ... nor changes sizes by coefficients at will
  int contractions_ = 0;           ///< supposed to follow
  StepCounts limits_;
  std::array<Group, 8> groups_{};
  std::size_t group_count_ = 0;
  int best_ = 0;              ///< least steps found, or one above the limit
  std::optional<int> found_;  ///< the last of these that are steps found
  bool any_ = false;          ///< the first that is found will do
};

}  // namespace syno::synth
