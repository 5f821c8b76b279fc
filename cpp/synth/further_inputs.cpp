#include "synth/further_inputs.hpp"

#include <algorithm>
#include <bit>
#include <set>

namespace syno::synth {

FurtherInputs::FurtherInputs(SizePool& sizes, const Spec& spec, std::vector<SizeNumber> wanted,
                             const Freedom& freedom)
    : sizes_(sizes), spec_(spec), wanted_(std::move(wanted)), freedom_(freedom) {
  // An input may yet read any coordinate, and rules that rest on a weight being rearranged offline then no
  // longer hold of it.
  freedom_.merges = freedom_.shifts = freedom_.slides = freedom_.windows = freedom_.any_match = true;
  for (const pgraph::FurtherInput& input : spec.signature.further) {
    open_.push_back(pgraph::open_dims(input.dims, input.fixed));
    extents_.emplace_back();
    for (const std::size_t d : open_.back()) extents_.back().push_back(sizes.intern(input.dims[d].extent));
  }
  targets_.resize(std::size_t{1} << extents_.size());
}

std::uint8_t FurtherInputs::missing(const State& state) const {
  auto bits = static_cast<std::uint8_t>((1U << extents_.size()) - 1);
  for (std::size_t w = 0; w < state.weight_count && state.data != 0; ++w) {
    if (const std::uint8_t source = state.weights[w].source; source != 0)
      bits = static_cast<std::uint8_t>(bits & ~(1U << (source - 1)));
  }
  return bits;
}

std::vector<SizeNumber> FurtherInputs::elements() const {
  std::vector<SizeNumber> result;
  for (const pgraph::FurtherInput& input : spec_.signature.further) {
    SizeNumber product = kOne;
    for (const pgraph::Dim& dim : input.dims) product = sizes_.times(product, sizes_.intern(dim.extent));
    result.push_back(product);
  }
  return result;
}

void FurtherInputs::moves(const State& state, std::vector<Move>& out) const {
  const std::uint8_t bits = missing(state);
  for (std::size_t input = 0; input < extents_.size(); ++input) {
    if ((bits >> input & 1) == 0) continue;
    const std::vector<SizeNumber>& wanted = extents_[input];
    Move move{.primitive = pgraph::Primitive::Contraction};
    move.source = static_cast<std::uint8_t>(input + 1);
    std::uint32_t met = 0;
    const auto choose = [&](const auto& self, std::uint8_t at) -> void {
      const auto left = wanted.size() - static_cast<std::size_t>(std::popcount(met));
      if (left == 0) {
        out.push_back(move);
        return;
      }
      if (at == state.dim_count || static_cast<std::size_t>(state.dim_count - at) < left) return;
      self(self, static_cast<std::uint8_t>(at + 1));
      // Dimensions of one extent are told apart when the operator is finished.
      std::size_t d = 0;
      while (d < wanted.size() && ((met >> d & 1) != 0 || wanted[d] != state.dims[at].extent)) ++d;
      if (d == wanted.size()) return;
      met |= 1U << d;
      const auto bit = static_cast<std::uint16_t>(1U << at);
      for (std::uint16_t* side : {&move.inner, &move.outer}) {
        *side = static_cast<std::uint16_t>(*side | bit);
        self(self, static_cast<std::uint8_t>(at + 1));
        *side = static_cast<std::uint16_t>(*side & ~bit);
      }
      met &= ~(1U << d);
    };
    choose(choose, 0);
  }
}

const std::vector<std::unique_ptr<ShapeDistance>>& FurtherInputs::targets_of(std::uint8_t missing) {
  auto& targets = targets_[missing];
  std::vector<SizeNumber> dims;
  for (std::size_t input = 0; input < extents_.size(); ++input) {
    if ((missing >> input & 1) != 0) dims.insert(dims.end(), extents_[input].begin(), extents_[input].end());
  }
  if (!targets.empty() || wanted_.size() + dims.size() > kMostWanted) return targets;
  std::set<std::vector<SizeNumber>> seen;
  for (std::uint32_t matched = 0; matched < 1U << dims.size(); ++matched) {
    std::vector<SizeNumber> target;
    for (std::size_t d = 0; d < dims.size(); ++d) {
      if ((matched >> d & 1) != 0) target.push_back(dims[d]);
    }
    std::sort(target.begin(), target.end());
    if (!seen.insert(target).second) continue;
    target.insert(target.end(), wanted_.begin(), wanted_.end());
    targets.push_back(std::make_unique<ShapeDistance>(sizes_, spec_, std::move(target), freedom_));
  }
  return targets;
}

int FurtherInputs::distance(std::uint8_t missing, std::span<const Piece> pieces, const Remaining& remaining,
                            int limit) {
  const int contractions = std::popcount(missing);
  if (contractions > limit) return contractions;
  const auto& targets = targets_of(missing);
  if (targets.empty()) return contractions;
  int best = limit + 1;
  for (const auto& target : targets) {
    const int rest = best - 1 - contractions;
    if (rest < 0) break;
    best = std::min(best, contractions + (*target)(pieces, remaining, rest));
  }
  return best;
}

bool FurtherInputs::within(std::uint8_t missing, std::span<const Piece> pieces, const Remaining& remaining,
                           int limit) {
  const int rest = limit - std::popcount(missing);
  if (rest < 0) return false;
  const auto& targets = targets_of(missing);
  return targets.empty() || std::any_of(targets.begin(), targets.end(), [&](const auto& target) {
           return target->within(pieces, remaining, rest);
         });
}

std::size_t FurtherInputs::bytes() const {
  std::size_t total = 0;
  for (const auto& targets : targets_) {
    for (const auto& target : targets) total += target->bytes();
  }
  return total;
}

}  // namespace syno::synth
