// machine/predict.hpp — how long a loop nest takes, from the machine model alone: microseconds instead of a
// measurement. Ranks the states of a construction, candidates of a search, and tells what limits a kernel.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "machine/block_cycles.hpp"
#include "machine/machine.hpp"
#include "nest/loop_nest.hpp"

namespace syno::machine {

struct PredictOptions {
  int threads = 1;
  bool cold = false;  ///< arguments come from main memory; otherwise from the nearest level that holds them
  /// Inputs other than these come from level `far` at each call, as weights of a network do that no nearer
  /// one holds; none: as `cold` says.
  std::optional<std::vector<std::string>> near = {};
  std::size_t far = SIZE_MAX;  ///< an index of the machine's levels; main memory where there is none
};

struct Prediction {
  double seconds = 0;
  double compute_s = 0;             ///< with every access in the first cache
  Cycles cycles;                    ///< of that, of all threads together
  double speed_up = 1;              ///< of several threads
  std::vector<double> moved_bytes;  ///< by machine level: what it gives the core beyond nearer levels
  std::vector<double> memory_s;     ///< the time of that
  double waiting_s = 0;             ///< for short pieces of the second cache, which nothing hides
  double page_walks = 0;            ///< pages that the TLB does not hold when they are touched
  double walking_s = 0;             ///< what walks through page tables add
  double flops = 0;                 ///< a multiply-add is two
  double overhead_s = 0;            ///< entering loops, starting threads
  std::string bottleneck;           ///< "multiply-adds", "short pieces", "page walks", ..., or a level's name
  double fraction_of_peak = 0;      ///< flops against the peak of the threads used
  double largest_block = 0;  ///< multiply-adds of the largest innermost block, each vector counted once
};

/// Innermost blocks are counted by ports (multiply-adds, loads, stores), by the latency of sums that wait for
/// themselves and by registers; each level's traffic by the footprints of loops that fit it: what is read
/// again while it is still there costs nothing (derive-and-tune §2: Q and F of Gensor, per access).
Prediction predict(const nest::LoopNest& nest, const Machine& machine, const PredictOptions& options = {});

}  // namespace syno::machine
