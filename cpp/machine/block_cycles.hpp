// machine/block_cycles.hpp — cycles of an innermost block with all it reads in the first cache, by what the
// core does in them.
#pragma once

#include <cstddef>

#include "machine/machine.hpp"
#include "machine/nest_facts.hpp"

namespace syno::machine {

/// Each part as if it were alone; `total` is what they take together.
struct Cycles {
  double fma = 0, loads = 0, stores = 0;
  double latency = 0;   ///< of sums that wait for themselves
  double spills = 0;    ///< of values that no register holds
  double overhead = 0;  ///< of loops around
  double total = 0;

  void add(const Cycles& other, double times);
};

/// Of one execution: by ports, by the latency of sums, by registers.
Cycles cycles_of(const Work& work, const Machine& machine);

/// Parts that follow each other, each with its own bottleneck: the end of one is computed while the next one
/// begins, as far as the core looks ahead. Shortens the total of their sum.
void overlap(Cycles& sum, std::size_t parts);

}  // namespace syno::machine
