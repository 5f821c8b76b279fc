// synth/further_inputs.hpp — data inputs beside the first: how a contraction may bring them in, and how far
// away the inputs are while some are missing.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "synth/distance.hpp"
#include "synth/state.hpp"

namespace syno::synth {

class FurtherInputs {
 public:
  FurtherInputs(SizePool& sizes, const Spec& spec, std::vector<SizeNumber> wanted, const Freedom& freedom);

  bool none() const { return extents_.empty(); }
  /// The inputs that no contraction brought in yet, as bits.
  std::uint8_t missing(const State& state) const;
  std::vector<SizeNumber> elements() const;  ///< of each input, fixed dimensions included

  /// Every way to give a missing input its coordinates: shared ones stay, matched ones leave. Any coordinate
  /// will do, since nothing about given data can be rearranged offline.
  void moves(const State& state, std::vector<Move>& out) const;

  /// The least number of steps to the first input's extents while some inputs are missing, or any number
  /// above `limit`. Each missing input takes one contraction; of its dimensions some are matched, and those
  /// have to be made too. What it matches could as well leave last, so that together they are one wanted
  /// multiset; the least over all such multisets is a lower bound. What it shares costs nothing here.
  int distance(std::uint8_t missing, std::span<const Piece> pieces, const Remaining& remaining, int limit);
  /// Whether it is at most `limit`.
  bool within(std::uint8_t missing, std::span<const Piece> pieces, const Remaining& remaining, int limit);

  /// Positions in an input's WeightRecord, shared coordinates first, for each of its open dimensions in
  /// order; calls back once for each assignment of equal extents.
  template <class Visit>
  void assignments(const WeightRecord& record, const CoordinatePool& pool, Visit&& visit) const;

  /// Open dimensions of an input, by their numbers in the signature.
  const std::vector<std::size_t>& open(std::size_t input) const { return open_[input]; }
  std::size_t bytes() const;

 private:
  static constexpr std::size_t kMostWanted = 8;  ///< dimensions one ShapeDistance takes
  /// None where there are more dimensions than one ShapeDistance takes.
  const std::vector<std::unique_ptr<ShapeDistance>>& targets_of(std::uint8_t missing);

  SizePool& sizes_;
  const Spec& spec_;
  std::vector<SizeNumber> wanted_;
  Freedom freedom_;                               ///< allowed of coordinates that an input may yet read
  std::vector<std::vector<std::size_t>> open_;    ///< by input
  std::vector<std::vector<SizeNumber>> extents_;  ///< by input, of its open dimensions
  /// By missing inputs: a distance to each multiset of the first input's extents and matched ones. Empty: not
  /// made yet.
  std::vector<std::vector<std::unique_ptr<ShapeDistance>>> targets_;
};

/// The coordinate at a position of a record: shared ones, then matched ones.
inline Coordinate coordinate_at(const WeightRecord& record, std::size_t position) {
  return position < record.inner_count ? record.inner[position] : record.outer[position - record.inner_count];
}

template <class Visit>
void FurtherInputs::assignments(const WeightRecord& record, const CoordinatePool& pool, Visit&& visit) const {
  const std::vector<SizeNumber>& extents = extents_[record.source - 1U];
  std::array<std::uint8_t, kMaxFrontier> position{};
  std::uint32_t used = 0;
  const auto place = [&](const auto& self, std::size_t at) -> void {
    if (at == extents.size()) {
      visit(std::span<const std::uint8_t>(position.data(), extents.size()));
      return;
    }
    for (std::uint8_t k = 0; k < extents.size(); ++k) {
      if ((used >> k & 1) != 0 || pool[coordinate_at(record, k)].extent != extents[at]) continue;
      used |= 1U << k;
      position[at] = k;
      self(self, at + 1);
      used &= ~(1U << k);
    }
  };
  place(place, 0);
}

}  // namespace syno::synth
