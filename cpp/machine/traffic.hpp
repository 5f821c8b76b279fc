// machine/traffic.hpp — what a loop nest brings from each level of memory, by access: lines of caches and
// pages of the TLB that are not near any more when they are touched again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "machine/footprint.hpp"
#include "machine/machine.hpp"
#include "machine/nest_facts.hpp"
#include "machine/predict.hpp"

namespace syno::machine {

/// Follows a nest from its innermost blocks outwards; each of the calls below tells of the node that is
/// looked at now, whose children were looked at before. Accesses are indices of `facts.accesses`.
class Traffic {
 public:
  using Accesses = std::vector<std::size_t>;

  Traffic(const nest::LoopNest& nest, const NestFacts& facts, const Machine& machine,
          const PredictOptions& options);

  /// A block that is executed once.
  void block(const Accesses& accesses);
  /// Children that follow each other: what an earlier one touched, and all of it fits, is still there.
  void sequence(const Accesses& accesses);
  /// Before what a loop holds is looked at.
  void enter(const NestNode& loop);
  /// After it: the loop's whole range.
  void leave(const NestNode& loop, const Accesses& accesses);
  /// The whole nest is called again and again: what all of it fits stays where it is.
  void call_again(const Accesses& accesses);

  /// Seconds for which a level (>= 1) gives what these read and takes what they write, on one thread; adds
  /// its bytes.
  double moved_s(const Accesses& accesses, std::size_t level, double& moved) const;
  /// What pieces of the second cache add that are too short and too far apart to be followed.
  double waiting_s(const Accesses& accesses) const;
  double page_walks(const Accesses& accesses) const;
  /// Whether the nest asks ahead for what the access reads.
  bool asked(std::size_t access) const { return asked_[buffer_of(access)]; }

 private:
  /// What memory is counted in: lines of caches, pages of the TLB.
  struct Unit {
    double bytes = 0;
    std::vector<double> of_buffer;  ///< by buffer: as far as its strides go
    /// By access, of one execution of the node looked at last around it; and those that no access before it
    /// among the node's touches: find_fresh()'s.
    std::vector<double> touched, fresh;
  };

  /// What keeps units near: a cache, or the TLB.
  struct Near {
    std::size_t unit = 0;
    double capacity = 0;                 ///< bytes
    const MemoryLevel* cache = nullptr;  ///< none: the TLB
    std::vector<double> into;  ///< by access, of the node looked at last around it: what it brings in
  };

  /// An access before another one, to the same buffer.
  struct Earlier {
    std::size_t access = 0;
    bool alike = false;  ///< it moves by the same steps; else they are not known to be apart
  };

  void add_unit(std::int64_t bytes);
  void add_near(std::int64_t bytes, const MemoryLevel* cache);
  void share(std::size_t access);
  double term_width(const AddressTerm& term) const;
  Steps steps_of(const Access& access) const;
  static double distinct(const Unit& unit, const Access& access, const Steps& steps,
                         double* pieces = nullptr);
  double lines(const Access& access, double* pieces = nullptr) const;
  double together(const Unit& unit, std::size_t before, std::size_t access) const;
  void find_fresh(const Accesses& accesses);
  double unforeseen(const Access& access) const;
  double short_piece(const Access& access) const;
  bool conflicts(const Access& access, const MemoryLevel& level) const;
  bool fits(const Accesses& accesses, std::size_t level);
  double buffer_bytes(std::size_t buffer) const;
  static std::size_t buffer(const Access& access) { return static_cast<std::size_t>(access.buffer); }
  std::size_t buffer_of(std::size_t access) const { return buffer(facts_.accesses[access]); }

  const nest::LoopNest& nest_;
  const NestFacts& facts_;
  const Machine& machine_;
  const PredictOptions& options_;
  std::size_t caches_;        ///< of near_, before the TLB
  std::vector<bool> inside_;  ///< by slot: the loops whose whole range is looked at
  /// By access: how it moves in one execution of the node looked at last around it.
  std::vector<Steps> steps_;
  std::vector<Unit> units_;
  std::vector<Near> near_;
  std::vector<double> by_buffer_;
  std::vector<bool> body_fits_;      ///< by level: leave()'s
  std::vector<std::uint32_t> path_;  ///< slots of the loops around, outermost first
  std::vector<double> unforeseen_;   ///< by access: of its lines, the share that no prefetcher foresees
  std::vector<double> pieces_;       ///< by access: of its lines, the share that is waited for
  std::vector<bool> asked_;          ///< by buffer
  std::vector<bool> far_;            ///< by buffer: it comes from that level at each call
  std::vector<std::vector<Earlier>> earlier_;  ///< by access
  std::vector<bool> present_;                  ///< by access: among those that are looked at
};

}  // namespace syno::machine
