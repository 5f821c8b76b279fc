// machine/cpu.hpp — the CPU that code is generated for, and what a schedule may assume of it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "nest/loop_nest.hpp"

namespace syno::machine {

/// What a schedule may assume of its target; jit fills it from the host, and from what LLVM knows of the CPU.
struct Target {
  int vector_bits = 512;
  int vector_registers = 32;
  int threads = 1;
  std::int64_t l1_bytes = 32 << 10, l2_bytes = 1 << 20, l3_bytes = 32 << 20;
  double fma_per_cycle = 1, loads_per_cycle = 1;  ///< vectors
  double fma_latency_cycles = 4;                  ///< until a sum can be added to again
  double broadcast_cycles = 0.8;                  ///< of a number that is loaded into all lanes
  /// Of a line that is read in order from the second cache, the third one and main memory.
  std::array<double, 3> line_cycles{1, 2, 8};
  double unaligned_cycles = 0.15;  ///< more for a vector at no multiple of its size
  double near_piece_cycles = 0.6;  ///< of a line of a short piece of the second cache, beside its transfer
};

enum class Architecture { X86_64, AArch64 };

/// What code generation asks about a CPU: one value for a triple and its features.
struct TargetInfo {
  Architecture architecture = Architecture::X86_64;
  int vector_bits = 128;      ///< of the vectors that kernels compute with
  int vector_registers = 16;  ///< of that width
  int scalable_bits = 0;  ///< AArch64: SVE registers have exactly so many and vectors lie in them; 0: NEON
  bool scales_by_exponent = false;  ///< x * 2^n is one instruction: AVX-512's vscalef
  bool looks_up_lanes = false;      ///< so is a table of 16 floats, an index a lane: AVX-512's vpermps
  bool orders_with_nan = false;     ///< and the larger of two that is not a number when either is: fmax, fmin
  bool interleaves = false;         ///< two vectors, element by element: zip1, zip2, whatever their width
  bool shuffles_one_vector =
      false;  ///< a shuffle of two by any pattern goes through memory: SVE's tbl takes one
  /// Rounding to a whole number is one instruction: SSE4.1's, which whatever has wider vectors has.
  bool rounds() const { return architecture != Architecture::X86_64 || vector_bits > 128; }
  int lanes(nest::Dtype dtype) const { return vector_bits / static_cast<int>(8 * nest::byte_size(dtype)); }
};

/// The CPU code is generated for. Part of every cache key.
struct Cpu {
  std::string triple, name, features;
  TargetInfo info;   ///< what the code generator makes of them
  Target target;     ///< vector width, registers and caches that go with it
  bool here = true;  ///< of this machine's architecture: its code can be loaded into this process
  std::vector<std::string> enabled;  ///< features that code for it may use, in LLVM's names, sorted
};

}  // namespace syno::machine
