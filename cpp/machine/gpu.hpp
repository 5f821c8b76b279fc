// machine/gpu.hpp — the model of a GPU: what it computes a second and what each memory gives. Tiles of
// kernels are chosen by it alone, so that text can be written for a GPU that is not here.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace syno::machine {

/// Of the whole device where nothing else is said. Rates are peaks of data sheets unless `measured`.
struct Gpu {
  std::string name;
  std::string source;             ///< where the figures come from, for people
  int multiprocessors = 1;        ///< NVIDIA's SMs
  double ghz = 1;                 ///< boost clock, which the peaks belong to
  double fp32_tflops = 1;         ///< 1e12 operations a second, a multiply-add is two; no tensor cores
  double fp64_tflops = 1;         ///< the same
  double tensor_tflops = 1;       ///< products of float16 or bfloat16 summed in float32, dense
  double tf32_tflops = 0;         ///< products of TF32 (11 bits) summed in float32, dense; 0: has none
  double int32_tops = 1;          ///< 1e12 integer operations a second
  double memory_gbs = 1;          ///< 1e9 bytes a second
  double l2_gbs = 1;              ///< the same
  std::int64_t l2_bytes = 1;      ///< capacity
  std::int64_t shared_bytes = 1;  ///< shared memory of a multiprocessor
  std::int64_t shared_bytes_per_block = 1;  ///< the most that one block may have of it
  int shared_bytes_per_cycle = 128;         ///< of a multiprocessor
  int registers = 1 << 16;                  ///< 32 bits each, of a multiprocessor
  int registers_per_thread = 255;
  int threads = 2048;       ///< of a multiprocessor
  int blocks = 32;          ///< the same
  double latency_ns = 600;  ///< of a load from memory
  double launch_us = 3;     ///< of one kernel after another
  bool measured = false;
  bool operator==(const Gpu&) const = default;

  double cycles_per_second() const { return ghz * 1e9; }
};

/// GPU files: {"format": "syno gpu", "version": 1, ...}. FormatError names the path of what is missing,
/// unknown, of another type or impossible (a block with more shared memory than a multiprocessor has).
nlohmann::json to_json(const Gpu& gpu);
Gpu gpu_from_json(const nlohmann::json& json);

/// One line a fact, for people.
std::string to_text(const Gpu& gpu);

}  // namespace syno::machine
