// synth/sizes.hpp — sizes as small numbers: the search's inner loop compares ids and looks values up.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "synth/number_map.hpp"
#include "synth/spec.hpp"

namespace syno::synth {

using SizeNumber = std::uint32_t;  ///< within one SizePool; 0 is the size one
inline constexpr SizeNumber kOne = 0;

/// Exponents of all variables: what a step takes from the occurrence limits, or what is left of them.
using Usage = std::array<std::int8_t, symbolic::kMaxVariables>;

/// Exponents of all variables, and of the primes in the signature's numbers, one in a byte each: products and
/// quotients are two additions.
struct PackedSize {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  bool operator==(const PackedSize&) const = default;

  static std::uint64_t add_bytes(std::uint64_t a, std::uint64_t b) {
    constexpr std::uint64_t kSigns = 0x8080808080808080ULL;
    return ((a & ~kSigns) + (b & ~kSigns)) ^ ((a ^ b) & kSigns);
  }
  static std::uint64_t subtract_bytes(std::uint64_t a, std::uint64_t b) {
    constexpr std::uint64_t kSigns = 0x8080808080808080ULL;
    return ((a | kSigns) - (b & ~kSigns)) ^ ((a ^ ~b) & kSigns);
  }
  friend PackedSize operator*(PackedSize a, PackedSize b) {
    return {add_bytes(a.low, b.low), add_bytes(a.high, b.high)};
  }
  friend PackedSize operator/(PackedSize a, PackedSize b) {
    return {subtract_bytes(a.low, b.low), subtract_bytes(a.high, b.high)};
  }
  friend PackedSize operator&(PackedSize a, PackedSize b) { return {a.low & b.low, a.high & b.high}; }
  bool is_zero() const { return (low | high) == 0; }
  std::int8_t exponent(std::size_t lane) const {
    return static_cast<std::int8_t>((lane < 8 ? low >> (8 * lane) : high >> (8 * (lane - 8))) & 0xff);
  }
  void set(std::size_t lane, std::int8_t exponent) {
    const std::uint64_t byte = static_cast<std::uint8_t>(exponent);
    std::uint64_t& word = lane < 8 ? low : high;
    const std::size_t at = 8 * (lane % 8);
    word = (word & ~(0xffULL << at)) | byte << at;
  }
};

/// What a reshape group has to know about the ratio of its sides.
struct RatioFacts {
  bool integral = false;
  bool coefficient = false;
  bool negative_primary = false;
  bool odd = false;
};

/// Everything about a size that the search asks for, for all valuations at once.
struct SizeFacts {
  symbolic::Size size;
  bool integral = false;  ///< an integer >= 1 at every valuation
  bool legal =
      false;  ///< may be the extent of a coordinate: integral, not one, within the limits of the spec
  bool coefficient = false;  ///< no primary variable
  bool negative_primary = false;
  bool odd = false;              ///< odd at every valuation
  bool reduced = false;          ///< may be the extent of a Reduce
  bool narrow = false;           ///< no wider than a window may be, mostly
  bool matchable = false;        ///< a weight may match it, mostly
  bool matchable_again = false;  ///< ... a Reduce, when another weight shares it
  double least = 0;              ///< over the valuations
  double greatest = 0;
  std::uint64_t hash = 0;  ///< stable; orders sizes the same way in every thread
  Usage magnitude{};       ///< |exponent| of every variable
  Usage primary{};         ///< exponents of the primary variables, 0 elsewhere
  PackedSize packed;
};

/// A way to Merge a coordinate: the block and what it takes from the occurrence limits.
struct BlockChoice {
  SizeNumber block = 0;
  SizeNumber group = 0;
  Usage usage{};
};

/// Interns sizes, products and quotients; one per thread. Repeated valuations are held once with a weight.
class SizePool {
 public:
  explicit SizePool(const Spec& spec);

  SizeNumber intern(const symbolic::Size& size);
  SizeNumber intern(PackedSize packed);
  SizeNumber times(SizeNumber a, SizeNumber b);
  SizeNumber over(SizeNumber a, SizeNumber b);
  const SizeFacts& operator[](SizeNumber number) const { return facts_[number]; }
  std::size_t valuation_count() const { return weights_.size(); }  ///< distinct ones
  std::size_t bytes() const;  ///< held, without the few sizes that Merges may take
  double weight(std::size_t valuation) const { return weights_[valuation]; }
  double value(SizeNumber number, std::size_t valuation) const {
    return values_[number * weights_.size() + valuation];
  }

  /// `holds(valuation)` is true where most of the layers' work is done (Thresholds::promising_share): what
  /// judges promise only may fail at a few small layers.
  template <class Holds>
  bool mostly(Holds&& holds) const {
    double share = 0;
    for (std::size_t v = 0; v < valuation_count(); ++v) share += holds(v) ? work_share_[v] : 0;
    return share >= spec_.thresholds.promising_share - 1e-9;
  }

  /// A window of one extent is no larger than the dimension of the other, at every valuation.
  bool fits_inside(SizeNumber window, SizeNumber extent) const;
  /// ... and small enough beside it to read more than zeros, mostly (Thresholds::unfold_ratio, max_window).
  bool promising_window(SizeNumber window, SizeNumber extent) const;

  /// No window has more taps at any valuation.
  double widest_window() const { return widest_window_; }

  /// Extents a Reduce may have, in a fixed order.
  const std::vector<SizeNumber>& reduce_extents() const { return reduce_extents_; }
  bool may_be_reduced(PackedSize size) const;  ///< it is one of them
  /// Blocks a coordinate of this extent may be merged by, in a fixed order.
  const std::vector<BlockChoice>& blocks(SizeNumber extent);

  /// The choice among blocks(extent) whose block is this, if there is one.
  std::optional<BlockChoice> block_of(SizeNumber extent, PackedSize block);

  RatioFacts ratio(PackedSize size) const;                     ///< computed; callers remember
  PackedSize primary_lanes() const { return primary_lanes_; }  ///< 0xff in the byte of each primary variable

  /// Primary variables first, greatest exponent greatest: the order that keeps one of two equal layouts.
  bool lexicographic_less(SizeNumber a, SizeNumber b) const;

 private:
  void enumerate_reduce_extents();
  double find_widest_window() const;
  bool within_limits(PackedSize size) const;
  void find_primes();
  PackedSize pack(const symbolic::Size& size) const;
  symbolic::Size unpack(PackedSize packed) const;
  SizeNumber add(PackedSize packed);

  Spec spec_;
  std::vector<std::int64_t> primes_;  ///< of the signature's numbers; their lanes follow the variables'
  PackedSize primary_lanes_;
  PackedSize number_lanes_;                  ///< 0xff in the byte of each prime
  std::vector<std::size_t> representative_;  ///< valuations, without repetitions
  std::vector<double> weights_;
  std::vector<double> work_share_;  ///< per distinct valuation, of Spec::weights; sum 1
  std::vector<SizeFacts> facts_;
  std::vector<double> values_;
  NumberMap by_packed_;  ///< numbers one up
  std::unordered_map<SizeNumber, std::vector<BlockChoice>> blocks_;
  std::vector<SizeNumber> reduce_extents_;
  double widest_window_ = kUnbounded;
};

}  // namespace syno::synth
