#include "machine/gpu.hpp"

#include <nlohmann/json.hpp>

#include "machine/file_reader.hpp"

namespace syno::machine {
namespace {

constexpr const char* kGpuFormat = "syno gpu";
constexpr int kGpuVersion = 1;
constexpr std::int64_t kGpuMostBytes = std::int64_t{1} << 40;

}  // namespace

nlohmann::json to_json(const Gpu& gpu) {
  nlohmann::json json = {{"format", kGpuFormat},
                         {"version", kGpuVersion},
                         {"name", gpu.name},
                         {"source", gpu.source},
                         {"multiprocessors", gpu.multiprocessors},
                         {"ghz", gpu.ghz},
                         {"fp32_tflops", gpu.fp32_tflops},
                         {"fp64_tflops", gpu.fp64_tflops},
                         {"tensor_tflops", gpu.tensor_tflops},
                         {"int32_tops", gpu.int32_tops},
                         {"memory_gbs", gpu.memory_gbs},
                         {"l2_gbs", gpu.l2_gbs},
                         {"l2_bytes", gpu.l2_bytes},
                         {"shared_bytes", gpu.shared_bytes},
                         {"shared_bytes_per_block", gpu.shared_bytes_per_block},
                         {"shared_bytes_per_cycle", gpu.shared_bytes_per_cycle},
                         {"registers", gpu.registers},
                         {"registers_per_thread", gpu.registers_per_thread},
                         {"threads", gpu.threads},
                         {"blocks", gpu.blocks},
                         {"latency_ns", gpu.latency_ns},
                         {"launch_us", gpu.launch_us},
                         {"measured", gpu.measured}};
  if (gpu.tf32_tflops > 0) json["tf32_tflops"] = gpu.tf32_tflops;
  return json;
}

Gpu gpu_from_json(const nlohmann::json& json) {
  FileReader root(json, "");
  root.head(kGpuFormat, kGpuVersion);
  Gpu gpu;
  gpu.name = root.text("name");
  gpu.source = root.optional_text("source");
  gpu.multiprocessors = root.integer<int>("multiprocessors", 1, 1 << 16);
  gpu.ghz = root.positive("ghz");
  gpu.fp32_tflops = root.positive("fp32_tflops");
  gpu.fp64_tflops = root.positive("fp64_tflops");
  gpu.tensor_tflops = root.positive("tensor_tflops");
  gpu.tf32_tflops = root.optional_positive("tf32_tflops", 0);
  gpu.int32_tops = root.positive("int32_tops");
  gpu.memory_gbs = root.positive("memory_gbs");
  gpu.l2_gbs = root.positive("l2_gbs");
  gpu.l2_bytes = root.integer<std::int64_t>("l2_bytes", 1, kGpuMostBytes);
  gpu.shared_bytes = root.integer<std::int64_t>("shared_bytes", 1 << 10, kGpuMostBytes);
  gpu.shared_bytes_per_block = root.integer<std::int64_t>("shared_bytes_per_block", 1 << 10, kGpuMostBytes);
  if (gpu.shared_bytes_per_block > gpu.shared_bytes)
    wrong("/shared_bytes_per_block", fmt::format("is {}, more than the {} of a multiprocessor",
                                                 gpu.shared_bytes_per_block, gpu.shared_bytes));
  gpu.shared_bytes_per_cycle = root.integer<int>("shared_bytes_per_cycle", 1, 1 << 16);
  gpu.registers = root.integer<int>("registers", 1 << 12, 1 << 24);
  gpu.registers_per_thread = root.integer<int>("registers_per_thread", 32, 1 << 12);
  gpu.threads = root.integer<int>("threads", 32, 1 << 16);
  gpu.blocks = root.integer<int>("blocks", 1, 1 << 12);
  gpu.latency_ns = root.positive("latency_ns");
  gpu.launch_us = root.positive("launch_us");
  gpu.measured = root.truth("measured");
  root.nothing_else();
  return gpu;
}

std::string to_text(const Gpu& gpu) {
  std::string text = gpu.name + "\n";
  text += fmt::format("  {} multiprocessors, {:.2f} GHz\n", gpu.multiprocessors, gpu.ghz);
  text += fmt::format("  TFLOP/s: {:.1f} float32, {:.1f} float64, {:.1f} tensor cores; {:.1f} Tint32/s\n",
                      gpu.fp32_tflops, gpu.fp64_tflops, gpu.tensor_tflops, gpu.int32_tops);
  text += fmt::format("  memory {:.0f} GB/s, latency {:.0f} ns; L2 {} MiB, {:.0f} GB/s\n", gpu.memory_gbs,
                      gpu.latency_ns, gpu.l2_bytes >> 20, gpu.l2_gbs);
  text += fmt::format(
      "  a multiprocessor: {} KiB shared memory ({} a block), {} registers, {} threads, {} blocks\n",
      gpu.shared_bytes >> 10, gpu.shared_bytes_per_block >> 10, gpu.registers, gpu.threads, gpu.blocks);
  return text + (gpu.measured ? "  measured\n" : "  figures of data sheets, not measured\n");
}

}  // namespace syno::machine
