// synth/connect.hpp — the least steps that make wanted extents of given coordinates, exact in sizes and
// kinds.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "synth/sizes.hpp"

namespace syno::synth {

/// What rules may still allow of a coordinate; what they depend on beyond it counts as allowed.
enum class Trait : std::uint16_t {
  Match = 1,          ///< a contraction may match it as it is
  MatchShared = 2,    ///< one contraction has to share it before another may match it
  Merge = 4,          ///< a Merge by any block may stand above it
  SmallMerge = 8,     ///< ... by a block that is not much larger than one place
  Shift = 16,         ///< a Shift may stand above it
  Window = 32,        ///< may be the window of an Unfold
  WindowShared = 64,  ///< ... once a contraction shares it
  Slide = 128,        ///< may be what a window slides over
  SlideShared = 256,  ///< ... once a contraction shares it
  Sums = 512,         ///< made of Reduces alone
  Gaps = 1024,        ///< a Stride's gaps are to be filled
  Part = 2048,        ///< made by a step that is only supposed: it may be matched on its way
  Unordered = 4096,   ///< channels
  Repeat = 8192,      ///< an Expand may stand above it
  Indexed = 16384,    ///< a weight indexes it or what it is made of
  Bare = 32768,       ///< a Reduce as it is
};
using Traits = std::uint16_t;
constexpr Traits operator|(Trait a, Trait b) {
  return static_cast<Traits>(static_cast<Traits>(a) | static_cast<Traits>(b));
}
constexpr Traits operator|(Traits a, Trait b) { return static_cast<Traits>(a | static_cast<Traits>(b)); }
constexpr bool has(Traits traits, Trait trait) { return (traits & static_cast<Traits>(trait)) != 0; }

struct Piece {
  SizeNumber extent = kOne;
  Traits traits = 0;
  bool operator==(const Piece&) const = default;
};

/// Steps of each kind, a byte each, so that sums are additions.
class StepCounts {
 public:
  enum Lane : unsigned { Steps, Merges, Splits, Unfolds, Shifts, Strides, Expands, Reduces };
  constexpr StepCounts() = default;
  constexpr explicit StepCounts(std::uint64_t word) : word_(word) {}
  /// `n` steps of one kind.
  static constexpr StepCounts of(Lane lane, unsigned n = 1) {
    return StepCounts(static_cast<std::uint64_t>(n) << (8 * lane) | n);
  }
  constexpr int operator[](Lane lane) const { return static_cast<int>(word_ >> (8 * lane) & 0xff); }
  constexpr int steps() const { return (*this)[Steps]; }
  friend constexpr StepCounts operator+(StepCounts a, StepCounts b) { return StepCounts(a.word_ + b.word_); }
  /// No lane above its limit; lanes and limits stay below 128.
  constexpr bool within(StepCounts limits) const {
    return (((limits.word_ | kHigh) - word_) & kHigh) == kHigh;
  }
  friend constexpr StepCounts least(StepCounts a, StepCounts b) {
    StepCounts result;
    for (unsigned at = 0; at < 64; at += 8) {
      const std::uint64_t x = a.word_ >> at & 0xff;
      const std::uint64_t y = b.word_ >> at & 0xff;
      result.word_ |= (x < y ? x : y) << at;
    }
    return result;
  }
  bool operator==(const StepCounts&) const = default;

 private:
  static constexpr std::uint64_t kHigh = 0x8080808080808080ULL;
  std::uint64_t word_ = 0;
};

/// The ways that none of the others beats in every lane; when there are too many, one that beats several
/// stands for them, so that it stays a lower bound.
struct Ways {
  std::array<StepCounts, 4> way{};
  std::uint8_t count = 0;
  void add(StepCounts counts);
};

/// What a rule that is switched off, or an extension, allows beyond the traits.
struct Freedom {
  bool merges = false;   ///< Merges above anything
  bool shifts = false;   ///< Shifts above anything
  bool slides = false;   ///< windows over anything
  bool expands = false;  ///< Expands above anything
  bool windows = false;  ///< anything of a small extent as a window
  bool even_windows = false;
  bool large_windows = false;
  bool gaps = false;       ///< a Stride's gaps need not be filled
  bool strides = false;    ///< of any dimension, not of windows alone
  bool any_match = false;  ///< Merge parts are matched whatever else was
};

/// Searches over multisets of coordinates: only sizes, kinds and counts are kept of the real steps, so that
/// every real way is one of the ways found here.
class Connections {
 public:
  Connections(SizePool& sizes, const Spec& spec, const Freedom& freedom);

  /// What stands around the coordinates.
  struct Around {
    int contractions = 0;  ///< that will follow; they match parts and share windows at no step of their own
    int merges = 0, shifts = 0, strides = 0, expands = 0;  ///< still allowed
    Usage left{};  ///< occurrences of the primary variables still allowed
  };
  /// Ways to make exactly `wanted` of `pieces` in at most `limit` steps. The search goes no deeper than
  /// kDeepest (kDeepestOfMany where ways branch often), nor as deep as a way by a Stride; one of a step more,
  /// of no kind, stands for all longer ways.
  Ways operator()(std::span<const Piece> pieces, std::span<const SizeNumber> wanted, const Around& around,
                  int limit);
  /// By its size alone; joined with others a piece is part of a window only if it could be one.
  bool may_be_window(const SizeFacts& facts) const;
  std::size_t bytes() const {
    return keys_.capacity() * sizeof(std::uint64_t) + memo_.capacity() * sizeof(Entry);
  }
  static constexpr int kDeepest = 5;
  static constexpr int kDeepestOfMany = 2;
  static constexpr std::size_t kMaxPieces = 10;

 private:
  struct Group {
    std::array<Piece, kMaxPieces> piece{};
    std::uint8_t count = 0;
    void add(Piece piece);
    void remove(std::size_t at);
  };
  struct Entry {
    Ways ways;
    std::int8_t limit = -1;
  };
  Ways solve(const Group& group, const Around& allowed, int limit);
  Ways solve_further(const Group& group, const Around& around, int limit);
  bool may_leave(PackedSize excess, const Around& around);
  bool primaries_match(const Group& group, const Around& around) const;
  bool hopeless(const Group& group, const Around& around, int limit);
  template <class Divide>
  bool only_useful_blocks(const Group& group, std::size_t at, const Around& around, int limit,
                          Divide&& divide);
  bool made(const Group& group) const;
  /// How far the pieces are what is wanted as they are.
  struct Matched {
    int missing = 0;     ///< wanted extents that no piece has
    int others = 0;      ///< pieces that are not wanted and cannot leave without a step
    PackedSize leaving;  ///< product of those that can
  };
  Matched match_wanted(const Group& group, const Around& around) const;
  bool made_by_leaving(const Group& group, const Around& around);
  bool fits(const Group& group) const;
  std::uint64_t key_of(const Group& group, const Around& around) const;
  const Entry* find(std::uint64_t key) const;  ///< null: not known
  void store(std::uint64_t key, const Ways& ways, int limit);
  Traits part_traits(SizeNumber extent, Traits whole, bool major, const Usage& left) const;
  bool may_slide(const Piece& dim, const Piece& window, const Around& around) const;
  bool within_left(SizeNumber extent, const Usage& left) const;

  SizePool& sizes_;
  const Spec& spec_;
  Freedom freedom_;
  std::vector<std::uint64_t> keys_;  ///< of the memo, apart so that a search for one touches little; 0: free
  std::vector<Entry> memo_;
  std::size_t memo_used_ = 0;
  std::array<SizeNumber, 8> wanted_{};
  std::size_t wanted_count_ = 0;
  PackedSize wanted_product_;
};

}  // namespace syno::synth
