// machine/cpu.hpp — the CPU that code is generated for, and what a schedule may assume of it.
#pragma once

#include <cstdint>
#include <string>

namespace syno::machine {

/// What a schedule may assume of its target; jit fills it from the host.
struct Target {
  int vector_bits = 512;
  int vector_registers = 32;
  int threads = 1;
  std::int64_t l1_bytes = 32 << 10, l2_bytes = 1 << 20, l3_bytes = 32 << 20;
  double fma_per_cycle = 1, loads_per_cycle = 1;  ///< vectors
  double fma_latency_cycles = 4;                  ///< until a sum can be added to again
};

/// The CPU code is generated for. Part of every cache key.
struct Cpu {
  std::string triple, name, features;
  Target target;  ///< vector width, registers and caches that go with it
};

}  // namespace syno::machine
