// construct/etir.hpp — Gensor's states and actions (paper §IV-A, §IV-B) for one reduction on a CPU: tile
// extents for every loop and memory level, virtual threads, and the benefit of each action.
//
// Levels count towards the core: caches from the farthest to L1, then registers. A virtual thread is an
// independent sum that is interleaved with the others in the inner loop, which hides the latency of additions
// and lets one broadcast operand serve several vectors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "construct/construct.hpp"
#include "machine/machine.hpp"
#include "support/inline_vector.hpp"

namespace syno::construct {

/// A loop of the scope, or several that a sketch flattens into one.
struct EtirDim {
  std::string name;
  std::int64_t extent = 1;
  std::int64_t unit = 1;  ///< least tile: the lanes where vectors run along it
  bool reduction = false;
  bool parts = false;              ///< its tile of the farthest cache is what parts of the reduction take
  std::vector<std::size_t> loops;  ///< of the facts, outermost first
  int tile_choice = -1;            ///< of the sketch: what the register tile of this dim sets
  int thread_choice = -1;          ///< what its virtual threads set
};

enum class ActionKind : std::uint8_t { Tile, InvTile, Cache, SetVThread };
std::string_view name_of(ActionKind kind);

/// One edge of the construction graph.
struct Action {
  ActionKind kind = ActionKind::Tile;
  std::size_t dim = 0;
  std::int64_t value =
      0;  ///< the tile or the number of virtual threads it leads to; Cache: 1 packs on the way
  bool operator==(const Action&) const = default;
};

/// A node: the matrix of tile extents, the virtual threads and the level that is being scheduled.
struct Etir {
  InlineVector<InlineVector<std::int64_t, 3>, 6> tiles;  ///< [dim][level], level 0 is registers, 1 is L1, ...
  InlineVector<std::int64_t, 6> vthreads;                ///< [dim]
  std::size_t level = 0;                                 ///< being scheduled; moves towards 0 only
  bool packed = false;                                   ///< panels of a contiguous operand are copied
  bool operator==(const Etir&) const = default;
};

struct BenefitOptions {
  bool printed = false;  ///< formula (1) as the paper prints it; otherwise as its text explains it
  bool vthreads = true;  ///< whether setVThread exists
  bool inverse = true;   ///< whether invTile exists: without it the graph is a tree
};

/// The construction graph of one sketch of one scope.
class EtirGraph {
 public:
  EtirGraph(const ScopeFacts& facts, const Sketch& sketch, const Machine& machine, std::int64_t element_bytes,
            const BenefitOptions& options);

  Etir start() const;
  std::size_t levels() const { return capacities_.size(); }
  const std::vector<EtirDim>& dims() const { return dims_; }

  /// Every action of a state that leads to one whose footprint fits, with its benefit at iteration `t`
  /// (annealing multiplies the benefit of caching by c(t) = 3 / (1 + exp(-(ln 5 / 10) * (t - 10)))).
  struct Edge {
    Action action;
    double benefit = 0;
  };
  std::vector<Edge> edges(const Etir& state, double t, bool annealing) const;
  Etir apply(const Etir& state, const Action& action) const;
  /// States that can be built: every register tile and number of virtual threads, with caches that hold all
  /// of a loop or one tile of it where the sketch asks which; at most so many, those of small tiles first.
  std::vector<Etir> all(std::size_t most) const;

  /// Bytes moved into a level over the whole scope, and bytes a tile of it occupies.
  double traffic(const Etir& state, std::size_t level) const;
  double footprint(const Etir& state, std::size_t level) const;
  bool fits(const Etir& state, std::size_t level) const;

  /// The numbers a state stands for, without tiles of caches.
  Numbers numbers(const Etir& state) const;
  /// The state as it can be built: tiles of caches are whole tiles of the level below, even ones where there
  /// are some about as large, and as large as the loop where the sketch cannot cut it.
  Etir settled(const Etir& state) const;
  /// The tiles of caches of a settled state, as numbers of the sketch; none where nothing would be cut.
  std::vector<CacheTiles> blocks(const Etir& settled) const;
  /// The same for parts of the reduction of so many steps alone.
  std::vector<CacheTiles> parts(std::int64_t steps) const;
  /// Seconds to move what each level gets from the next one.
  double moving(const Etir& state) const;
  /// More than the farthest of these caches holds is read and written.
  bool overflows() const;
  std::string to_text(const Etir& state) const;
  std::string to_text(const Action& action) const;

 private:
  std::vector<std::int64_t> steps_of(std::size_t dim, std::size_t level) const;
  InlineVector<std::int64_t, 10> loop_tiles(const Etir& state, std::size_t level) const;
  bool cuts(const std::vector<std::size_t>& loops) const;
  /// By loop of a dim, its tile where they are filled from the innermost one on.
  std::vector<std::int64_t> spread(const EtirDim& dim, std::int64_t tile) const;
  /// What a level holds of a tile and what moves into it, counted together.
  struct Bytes {
    double footprint = 0, traffic = 0;
  };
  Bytes bytes(const Etir& state, std::size_t level) const;
  double benefit_of_tile(const Bytes& before, const Bytes& after) const;
  double benefit_of_cache(const Etir& state, bool pack) const;
  double benefit_of_vthreads(const Etir& before, const Etir& after, std::size_t dim) const;
  double accumulators(const Etir& state) const;
  std::int64_t register_tile(const Etir& state, std::size_t dim) const;

  ScopeFacts facts_;
  const Sketch& sketch_;
  const Machine& machine_;
  double bytes_ = 4, line_ = 16;  ///< of an element; elements of a line
  std::int64_t lanes_ = 16;
  BenefitOptions options_;
  std::vector<EtirDim> dims_;
  std::vector<double> capacities_;                             ///< bytes by level, 0 for registers
  std::vector<std::vector<std::vector<std::int64_t>>> steps_;  ///< [dim][level]: tiles, ascending
};

}  // namespace syno::construct
