#include "machine/tile_cost.hpp"

#include <algorithm>

namespace syno::machine {

double step_cycles(const Target& target, double multiply_adds, double loads, double waiting) {
  return std::max({multiply_adds, loads * target.fma_per_cycle / target.loads_per_cycle,
                   waiting * target.fma_latency_cycles * target.fma_per_cycle}) +
         kStepCycles;
}

double tile_cycles(const Target& target, std::int64_t rows, std::int64_t vectors, double steps,
                   std::int64_t mr, std::int64_t nv) {
  constexpr double kVector = 1.5;  // it may cross lines
  const double number = std::max(1.0, target.broadcast_cycles * target.loads_per_cycle);
  const auto step = [&](std::int64_t m, std::int64_t v) {
    return step_cycles(target, static_cast<double>(m * v),
                       number * static_cast<double>(m) + kVector * static_cast<double>(v));
  };
  const auto row = [&](std::int64_t m) {
    const double full = static_cast<double>(vectors / nv) * step(m, nv);
    return full + (vectors % nv ? step(m, vectors % nv) : 0);
  };
  return steps * (static_cast<double>(rows / mr) * row(mr) + (rows % mr ? row(rows % mr) : 0));
}

bool tile_fits(const Target& target, std::int64_t rows, std::int64_t vectors) {
  return rows * vectors + vectors + 1 <= target.vector_registers;
}

Tile best_tile(const Target& target, std::int64_t rows, std::int64_t vectors, double steps,
               std::int64_t most_rows) {
  Tile best;
  for (std::int64_t nv = 1; nv <= std::min(vectors, kMostVectors); ++nv) {
    for (std::int64_t mr = 1; mr <= std::min(rows, most_rows); ++mr) {
      if (!tile_fits(target, mr, nv)) break;
      const double cycles = tile_cycles(target, rows, vectors, steps, mr, nv);
      if (best.cycles == 0 || cycles < best.cycles * 0.999) best = {mr, nv, cycles};
    }
  }
  return best;
}

}  // namespace syno::machine
