// machine/machine.hpp — the machine model: what a core computes a second and what each memory level gives it.
// Policies choose schedules by it alone, so that a schedule can be made for a machine that is not here.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "machine/cpu.hpp"

namespace syno::machine {

/// One level of the memory hierarchy, as a single busy core sees it.
struct MemoryLevel {
  std::string name;        ///< "L1", "L2", ..., "memory"
  std::int64_t bytes = 0;  ///< capacity
  int shared_by = 1;       ///< hardware threads that share it
  std::int64_t line_bytes = 64;
  int ways = 8;           ///< of a set-associative cache; 0 for main memory
  double latency_ns = 0;  ///< of a load whose address waits for the last one
  double read_gbs = 0;    ///< 1e9 bytes a second, reading in order
  double write_gbs = 0;   ///< the same, writing: a line that is read before it is written counts once
  double copy_gbs = 0;    ///< the same, of bytes read and bytes written together, copying
  /// What of it was left by others when it was measured, as neighbours in a shared cache; 0: all.
  std::int64_t usable_bytes = 0;
  /// The least time to read and write so many bytes in order: what can be overlaps like a copy.
  double seconds(double read, double written) const;
  std::int64_t usable() const { return usable_bytes > 0 ? usable_bytes : bytes; }
  bool operator==(const MemoryLevel&) const = default;
};

/// What accesses that are no plain vector cost a core whose data lies in the first cache, in cycles. The
/// defaults stand for machines nobody measured.
struct AccessCycles {
  /// Of a number that is loaded into all lanes of a multiply-add. From 960 measured schedules of twelve
  /// operators on a Zen 3 (AVX2), whose times 0.75 and 0.85 rank best of 0.5 to 1.0; a Zen 5 has 0.5.
  double broadcast = 0.8;
  double unaligned = 0.15;  ///< of a load at no multiple of its size, beyond that of one at such a multiple
  double picked = 1;        ///< of a vector whose lanes are picked from two others, beside their loads
  double gathered = 1.4;    ///< of each element of a vector whose elements lie far apart
  double scattered = 1.5;   ///< the same, stored
  double narrow_store = 1;  ///< of half a vector or less
  double masked = 1;        ///< of a mask that is computed
  /// Of a line that comes from the second cache in a piece of less than kFollowedLines, more than
  /// kFollowedStep behind the piece before, beside multiply-adds. The default is from schedules of 14
  /// products and convolutions on a Zen 3, whole reductions beside parts that stay in the first cache.
  double near_piece = 0.6;
  /// Of the larger, or smaller, of two vectors, which is no number where one of them is none: a comparison
  /// and two choices, or one instruction where the CPU has it (fmax, fmin).
  double maximum = 1.5;
  bool operator==(const AccessCycles&) const = default;
};

/// The pages whose places the core has at hand: of what lies in others it first walks through tables.
struct Tlb {
  std::int64_t pages = 0;  ///< 0: not known, and walks are not counted
  std::int64_t page_bytes = 4096;
  double walk_ns = 0;  ///< of a load whose address waits for the last one, beside the line
  bool operator==(const Tlb&) const = default;
};

struct Machine {
  std::string name;    ///< of the CPU, for people
  std::string source;  ///< where the figures come from, for people; empty: this machine
  int cores = 1;
  int threads_per_core = 1;
  int vector_bits = 512;
  int vector_registers = 32;
  double ghz = 3;            ///< under load
  double fma_per_cycle = 1;  ///< vectors of vector_bits, sustained
  /// Vectors that start in a cycle on every CPU of its name; 0: not known, or not the same on all.
  double fma_ports = 0;
  double fma_latency_cycles = 4;  ///< until a sum can be added to again
  AccessCycles access_cycles;
  Tlb tlb;
  std::vector<MemoryLevel> levels;  ///< nearest to the core first; the last one is main memory
  bool measured = false;            ///< by micro-benchmarks; otherwise rates are typical ones
  bool operator==(const Machine&) const = default;

  std::int64_t lanes(std::int64_t element_bytes) const { return vector_bits / (8 * element_bytes); }
  /// Vectors of multiply-adds that a cycle starts: whole ones, or one half of each, no less than the CPU is
  /// known to have. Less is measured where something else used the core, another program or another machine
  /// on the same one; schedules are made for the core.
  double fma_pipes() const;
  /// Whether it was measured while something else used the core.
  bool disturbed() const;
  /// Multiply-add peak of one core, 1e9 floating-point operations a second (one multiply-add is two).
  double peak_gflops(std::int64_t element_bytes) const;
  /// The nearest level that holds `bytes`, as an index; main memory where none does.
  std::size_t level_of(double bytes) const;
  /// What schedules may assume of it.
  Target target(int threads) const;
};

/// The ports that a rate a cycle, measured or not, is of: whole ones, or one that takes two cycles.
double whole_pipes(double per_cycle);
/// Whether a measured rate is about what whole ports do, or these, where there are as many.
bool undisturbed(double per_cycle, double ports = 0);

/// What the system says about this machine and the CPU code is generated for; rates are typical ones. Of a
/// CPU of another architecture everything is typical, but for its vectors.
Machine describe_machine(const Cpu& cpu);

/// By the names that a machine file has.
std::vector<std::pair<std::string_view, double>> named(const AccessCycles& cycles);

/// Machine files: {"format": "syno machine", "version": 1, ...}. FormatError names the path of what is
/// missing, unknown, of another type or impossible (a level smaller than the one before, a rate of 0).
nlohmann::json to_json(const Machine& machine);
Machine machine_from_json(const nlohmann::json& json);

/// One line a fact, aligned, for people.
std::string to_text(const Machine& machine);

}  // namespace syno::machine
