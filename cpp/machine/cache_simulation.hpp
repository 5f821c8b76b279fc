// machine/cache_simulation.hpp — what a loop nest asks of caches, counted by running through its accesses one
// after the other: the oracle of what predictions say about memory, and hardware counters where there are
// none.
#pragma once

#include <cstdint>
#include <vector>

#include "machine/machine.hpp"
#include "nest/loop_nest.hpp"

namespace syno::machine {

struct CacheTraffic {
  /// Instructions that read or write memory: a vector is one, and so is what repeated code reads, or writes,
  /// again in the same iteration. Of constants, too; not of registers.
  std::int64_t loads = 0, stores = 0;
  /// Lines that were not there, by level of the machine but for main memory.
  std::vector<std::int64_t> misses;
  std::int64_t page_walks =
      0;  ///< to pages that the TLB did not hold; 0 where the machine says nothing of it
};

struct CacheOptions {
  std::int64_t lines_per_miss = 1;  ///< a miss of the first cache brings so many lines that follow, itself
                                    ///< among them (ALT §5.1 sees four on a Cortex-A76)
};

/// Caches are empty at the beginning, set-associative, and replace what was used longest ago; a store reads
/// its line first. The TLB is one such, of pages, that has a single set. Buffers begin at multiples of a
/// page. Each cache is one core's: what is shared counts as its own.
///
/// ShapeError where the nest has parameters; ScheduleError as interpret(). Takes some fifty nanoseconds an
/// element that is read or written; can be interrupted.
CacheTraffic simulate_caches(const nest::LoopNest& nest, const Machine& machine,
                             const CacheOptions& options = {});

}  // namespace syno::machine
