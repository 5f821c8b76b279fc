#include "machine/block_cycles.hpp"

#include <algorithm>

namespace syno::machine {

namespace {

constexpr double kKnownMask = 0.2;     ///< of a load: its mask is moved to a register
constexpr double kCondition = 1;       ///< that all lanes share: a comparison, and a choice of where to load
constexpr double kSpill = 3;           ///< cycles of a value that no register holds, stored and loaded again
constexpr double kLargestBlock = 256;  ///< multiply-adds; beyond it the code generator spills
constexpr double kLookAhead = 200;     ///< instructions
constexpr double kStarted = 4;         ///< of them in a cycle
/// Of what one block leaves idle, the share that the blocks around it use while the core looks ahead. From
/// 5,700 measured schedules of 142 products and convolutions on a Zen 5 (AVX-512): 0.5 to 1 rank alike.
constexpr double kOverlapping = 0.7;

}  // namespace

void Cycles::add(const Cycles& other, double times) {
  fma += other.fma * times;
  loads += other.loads * times;
  stores += other.stores * times;
  latency += other.latency * times;
  spills += other.spills * times;
  overhead += other.overhead * times;
  total += other.total * times;
}

Cycles cycles_of(const Work& work, const Machine& machine) {
  Cycles made;
  const double vector_bytes = machine.vector_bits / 8.0;
  const double load = vector_bytes * machine.ghz / machine.levels[0].read_gbs;
  const double store = vector_bytes * machine.ghz / machine.levels[0].write_gbs;
  const AccessCycles& cycles = machine.access_cycles;
  made.fma = (work.fma + work.costly) / machine.fma_pipes() + work.maxima * cycles.maximum;
  const double again = work.held > machine.vector_registers ? work.loaded_again : 0;
  const double crossing = work.crossing_loads * (1 + again / std::max(1.0, work.vector_loads));
  made.loads = (work.vector_loads + again) * load + crossing * cycles.unaligned +
               work.scalar_loads * cycles.broadcast + work.picks * cycles.picked +
               work.gathers * cycles.gathered + work.masks * cycles.masked + work.known_masks * kKnownMask +
               work.conditions * kCondition;
  // A store that crosses lines is two, as a load is.
  made.stores = (work.vector_stores + work.crossing_stores * cycles.unaligned / load) * store +
                work.narrow_stores * cycles.narrow_store + work.scatters * cycles.scattered;
  made.latency = work.chain * machine.fma_latency_cycles;
  if (!work.carried) {  // the next execution does not wait: as many as the core looks ahead run at once
    const double instructions = work.fma + work.maxima + work.vector_loads + work.scalar_loads +
                                work.vector_stores + work.narrow_stores;
    made.latency /= std::max(1.0, kLookAhead / std::max(1.0, instructions));
  }
  const double excess = work.registers - machine.vector_registers;
  if (excess > 0) made.spills = excess * kSpill;
  if (work.fma > kLargestBlock) made.spills += 0.1 * work.fma;
  made.total = std::max({made.fma, made.loads, made.stores, made.latency}) + made.spills;
  return made;
}

void overlap(Cycles& sum, std::size_t parts) {
  const double busy = std::max({sum.fma, sum.loads, sum.stores}) + sum.spills + sum.overhead;
  const double ahead = kLookAhead / kStarted * static_cast<double>(parts);
  sum.total -= kOverlapping * std::clamp(sum.total - busy, 0.0, ahead);
}

}  // namespace syno::machine
