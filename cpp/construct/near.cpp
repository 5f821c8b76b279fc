#include "construct/near.hpp"

#include <algorithm>

#include "construct/caches.hpp"
#include "construct/construct.hpp"
#include "machine/tile_cost.hpp"

namespace syno::construct {

namespace {

double cycles_of(const machine::Target& target, const Touched& touched) {
  const bool followed = touched.lines >= machine::kFollowedLines * touched.pieces;
  return kNearLine * touched.lines + (followed ? 0 : target.near_piece_cycles * touched.pieces);
}

}  // namespace

double near_cycles(const machine::Target& target, std::span<const NearOperand> operands, double inner,
                   double outer) {
  const double room = kNearShare * static_cast<double>(target.l1_bytes) / kLine;
  double tile = 0, range = 0;
  for (const NearOperand& operand : operands) {
    tile += operand.tile.lines;
    range += operand.stays ? operand.tile.lines : operand.range.lines;
  }
  double cycles = 0;
  for (const NearOperand& operand : operands) {
    const double again = inner * cycles_of(target, operand.tile);
    const double once = cycles_of(target, operand.stays ? operand.tile : operand.range);
    cycles += tile <= room || range <= room ? std::min(once, again) : again;
  }
  return outer * cycles * target.fma_per_cycle;
}

Touched run_of(double bytes) { return {std::max(1.0, bytes / kLine), 1}; }

std::vector<std::int64_t> iterations_of_part(std::vector<std::int64_t> extents, std::int64_t steps) {
  std::int64_t inside = 1;
  bool full = false;
  for (std::size_t i = extents.size(); steps > 0 && i-- > 0;) {
    if (full) {
      extents[i] = 1;
    } else if (inside * extents[i] <= steps) {
      inside *= extents[i];
    } else {
      extents[i] = even_part(extents[i], steps / inside);
      full = true;
    }
  }
  return extents;
}

SumPart part_of_sum(const std::vector<std::int64_t>& extents, std::size_t traversal, std::int64_t steps) {
  const auto sums = extents.begin() + static_cast<std::ptrdiff_t>(traversal);
  SumPart made{std::vector<std::int64_t>(traversal, 1), 1};
  for (const std::int64_t iterations : iterations_of_part({sums, extents.end()}, steps)) {
    made.iterations.push_back(iterations);
    made.steps *= static_cast<double>(iterations);
  }
  return made;
}

}  // namespace syno::construct
