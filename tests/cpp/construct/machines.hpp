// Machines that schedules are constructed for, whatever runs the tests.
#pragma once

#include "machine/machine.hpp"

namespace syno::construct {

/// With the caches of a server core and vectors of 512 bits.
inline machine::Machine server() {
  machine::Machine machine;
  machine.name = "server";
  machine.levels = {{"L1", 32 << 10, 1, 64, 8, 1.1, 220, 117},
                    {"L2", 1 << 20, 1, 64, 8, 5, 115, 110},
                    {"L3", 32 << 20, 2, 64, 16, 40, 75, 80},
                    {"memory", std::int64_t{16} << 30, 2, 64, 0, 150, 25, 25}};
  return machine;
}
/// Two levels of cache, vectors of 256 bits.
inline machine::Machine desktop() {
  machine::Machine machine = server();
  machine.name = "desktop";
  machine.vector_bits = 256;
  machine.vector_registers = 16;
  machine.fma_per_cycle = 2;
  machine.levels.erase(machine.levels.begin() + 2);
  return machine;
}

}  // namespace syno::construct
