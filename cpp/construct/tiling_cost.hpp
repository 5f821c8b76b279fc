// construct/tiling_cost.hpp — the one count of cycles over a tiling: what its register tile computes, which
// lines its loops bring from cache to cache, what its copies and results take. Proposers, walks and
// placements compare tilings by it; finalists are built and predicted from their nests (machine/predict.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "construct/tiling.hpp"
#include "support/inline_vector.hpp"

namespace syno::construct {

/// The numbers in which tilings of one structure differ.
struct TileSize {
  std::int64_t rows = 1, columns = 1, vectors = 1;
  std::int64_t steps = 0;  ///< of a part of the sum; 0: all
};
TileSize size_of(const Tiling& tiling, std::int64_t lanes);

/// What tilings of one structure cost. Cycles are those of a core that starts one multiply-add in each: one
/// that starts two takes half as long, and moves as much in half as many.
class TilingCost {
 public:
  /// `tiling`: of the structure; `facts` stay as long as this.
  TilingCost(const Target& target, std::int64_t lanes, const ScopeFacts& facts, const Tiling& tiling);
  TilingCost(const TilingCost&) = delete;
  TilingCost& operator=(const TilingCost&) = delete;

  /// Multiply-adds, loads and the latency of sums, every operand in the first cache. Of two rows and three
  /// vectors, y[o,w] += k[o,r] * x[w+r] takes six multiply-adds and five loads a step.
  double computing(const TileSize& size) const;
  /// Copies of operands and results, and sums that are kept between parts.
  double copying(const TileSize& size) const;
  /// Lines that come from the second cache, and from beyond it: what they take, and what is waited for
  /// besides.
  std::pair<double, double> moving(const TileSize& size) const;
  CycleCount count(const TileSize& size) const;
  /// All that moves stays in the first cache, whatever the numbers.
  bool near() const { return bytes_ <= near_room_; }

 private:
  using Iterations = InlineVector<std::int64_t, 10>;
  struct Operand {
    const BoxFacts* box = nullptr;
    double bytes = 0;                                    ///< of all of it
    bool in_order = false;                               ///< lies in the order of the tiles
    bool in_runs = false;                                ///< what lanes read lies together
    const std::vector<std::int64_t>* address = nullptr;  ///< by loop, where it is read as it lies
    std::vector<std::size_t> moved_by;  ///< loops, where not all indices are sums of loops; else none
    double line_cycles = 0;             ///< least ones of a line from beyond the second cache
    double packed = 0;                  ///< of one that a panel is copied from on the way
  };
  /// One loop around the register tile, in whole iterations of what it moves.
  struct Loop {
    Around::Of of = Around::Of::Loop;
    std::size_t loop = 0;
  };
  /// A read whose vectors are shared by rows and taps that meet at one place.
  struct Shared {
    const BoxFacts* box = nullptr;
    double load = 0;
    bool by_vectors = false;
  };

  struct Repeat {  ///< of a loop in the tile
    std::size_t loop = 0;
    std::int64_t times = 1;
  };
  using Repeats = InlineVector<Repeat, 8>;

  bool crosses_blocks(const ReadFacts& read, const Blocks& blocks) const;
  bool slides(const ReadFacts& read, Way way) const;
  std::int64_t lane_step(const ReadFacts& read) const;
  void add_load(const ReadFacts& read, std::size_t r);
  void add_operand(const ReadFacts& read, std::size_t r);
  double step(std::int64_t rows, std::int64_t columns, std::int64_t vectors) const;
  double begun() const;
  double of_tile(std::int64_t rows, std::int64_t columns, std::int64_t vectors) const;
  static double distinct(const BoxFacts& box, std::span<const Repeat> repeats);
  double shared(const Shared& read, std::int64_t rows, std::int64_t columns, double vectors,
                double sums) const;
  double copied(const OperandTiling& operand, const ReadFacts& read, const TileSize& size) const;
  double moved(double elements) const;
  double kept(const TileSize& size) const;
  std::int64_t trips(Around::Of of, const TileSize& size) const;
  void spread(const std::vector<std::size_t>& loops, std::int64_t tile, Iterations& iterations) const;
  Iterations of_a_tile(const TileSize& size, double& parts) const;
  bool conflicts(const Operand& operand, const Iterations& iterations, std::int64_t span,
                 std::int64_t ways) const;
  Touched touch(const Operand& operand, const Iterations& iterations) const;

  const Target& target_;
  const ScopeFacts& facts_;
  Tiling tiling_;
  std::int64_t lanes_ = 1;
  double element_ = 4;
  bool sums_ = false;                                  ///< lanes run along the sum
  std::vector<std::size_t> row_loops_;                 ///< with those that are repeated beside them
  std::int64_t rows_ = 1, columns_ = 1, vectors_ = 1;  ///< of all results
  std::int64_t body_ = 1;                              ///< terms of the sum in a step
  double times_ = 1, outer_ = 1, results_ = 1, reduction_ = 1;
  std::array<double, 8> loads_{};  ///< cycles of a step by what they are repeated for: rows, columns, vectors
  std::vector<Shared> shared_;
  std::vector<BoxFacts> ordered_;  ///< of copies whose dimensions lie in another order
  std::vector<Operand> operands_;
  std::vector<Loop> around_;
  std::size_t parts_ = 0;  ///< so many of these stand around parts of the sum
  double bytes_ = 0, near_room_ = 0, far_room_ = 0;
};

/// The numbers of a sketch with the fewest cycles, and these; infinite where none can be built.
void count(const Construction& c, Sketch& sketch);

}  // namespace syno::construct
