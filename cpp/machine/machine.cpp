#include "machine/machine.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "machine/file_reader.hpp"

namespace syno::machine {

namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

std::int64_t leading_number(const std::string& text, std::int64_t otherwise) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return otherwise;
  if (end != text.data() + text.size() && *end == 'K') value <<= 10;
  if (end != text.data() + text.size() && *end == 'M') value <<= 20;
  return value;
}

/// How many CPUs a list such as `0-3,8` names.
int count_of_list(const std::string& list) {
  int count = 0;
  for (std::size_t at = 0; at < list.size();) {
    std::size_t comma = list.find(',', at);
    if (comma == std::string::npos) comma = list.size();
    const std::string piece = list.substr(at, comma - at);
    const auto dash = piece.find('-');
    const std::int64_t first = leading_number(piece, 0);
    const std::int64_t last =
        dash == std::string::npos ? first : leading_number(piece.substr(dash + 1), first);
    count += static_cast<int>(std::max<std::int64_t>(0, last - first + 1));
    at = comma + 1;
  }
  return std::max(1, count);
}

/// Typical rates by distance from the core, for a machine nobody measured: bytes a cycle, cycles.
struct Typical {
  double read_bytes, write_bytes, latency_cycles;
};
constexpr Typical kTypical[] = {{64, 32, 4}, {32, 20, 14}, {24, 16, 50}};
/// What copying reaches where reading and writing share all of the way.
double one_after_the_other(const MemoryLevel& level) {
  return 2 / (1 / level.read_gbs + 1 / level.write_gbs);
}
constexpr double kMemoryGbs = 20, kMemoryWriteGbs = 12, kMemoryNs = 100;

std::vector<MemoryLevel> caches(const Target& target, bool here) {
  std::vector<MemoryLevel> found;
  for (int index = 0; here && index < 16; ++index) {
    const fs::path at = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}", index);
    std::error_code ignored;
    if (!fs::exists(at / "size", ignored)) break;
    if (first_line(at / "type") == "Instruction") continue;
    MemoryLevel level;
    level.name = "L" + first_line(at / "level");
    level.bytes = leading_number(first_line(at / "size"), 0);
    level.shared_by = count_of_list(first_line(at / "shared_cpu_list"));
    level.line_bytes = leading_number(first_line(at / "coherency_line_size"), 64);
    level.ways = static_cast<int>(leading_number(first_line(at / "ways_of_associativity"), 8));
    if (level.bytes > (found.empty() ? 0 : found.back().bytes)) found.push_back(level);
  }
  if (!found.empty()) return found;
  std::int64_t last = 0;
  for (const auto& [name, bytes] :
       {std::pair{"L1", target.l1_bytes}, {"L2", target.l2_bytes}, {"L3", target.l3_bytes}}) {
    if (bytes <= last) continue;
    MemoryLevel level;
    level.name = name;
    level.bytes = last = bytes;
    found.push_back(level);
  }
  return found;
}

std::string cpu_name(const Cpu& cpu) {
  if (!cpu.here) return cpu.name;
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const auto colon = line.find(':');
    if (!line.starts_with("model name") || colon == std::string::npos) continue;
    return line.substr(std::min(line.size(), colon + 2)) + " (" + cpu.name + ")";
  }
  return cpu.name;
}

// ---- The file.

constexpr const char* kFormat = "syno machine";
constexpr int kVersion = 1;

struct NamedCycles {
  const char* name;
  double AccessCycles::* cycles;
};
constexpr NamedCycles kAccessCycles[] = {
    {"broadcast", &AccessCycles::broadcast}, {"unaligned", &AccessCycles::unaligned},
    {"picked", &AccessCycles::picked},       {"gathered", &AccessCycles::gathered},
    {"scattered", &AccessCycles::scattered}, {"narrow_store", &AccessCycles::narrow_store},
    {"masked", &AccessCycles::masked},       {"near_piece", &AccessCycles::near_piece},
    {"maximum", &AccessCycles::maximum}};

constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;

}  // namespace

/// A measured rate may be off by that much, either way: the clock has changed in between.
constexpr double kAbout = 0.93;

double whole_pipes(double per_cycle) {
  const double least = kAbout * per_cycle;
  return least <= 0.5 ? 0.5 : std::ceil(least);
}

bool undisturbed(double per_cycle, double ports) {
  return per_cycle >= kAbout * std::max(ports, whole_pipes(per_cycle));
}

double Machine::fma_pipes() const { return std::max(fma_ports, whole_pipes(fma_per_cycle)); }

bool Machine::disturbed() const { return measured && fma_per_cycle < kAbout * fma_pipes(); }

double Machine::peak_gflops(std::int64_t element_bytes) const {
  return 2 * static_cast<double>(lanes(element_bytes)) * fma_pipes() * ghz;
}

std::size_t Machine::level_of(double bytes) const {
  for (std::size_t l = 0; l + 1 < levels.size(); ++l)
    if (bytes <= static_cast<double>(levels[l].usable())) return l;
  return levels.size() - 1;
}

Target Machine::target(int threads) const {
  Target made;
  made.vector_bits = vector_bits;
  made.vector_registers = vector_registers;
  made.threads = threads;
  const auto bytes = [&](std::size_t level) {
    const std::size_t last = levels.size() < 2 ? 0 : levels.size() - 2;
    return levels[std::min(level, last)].bytes;
  };
  made.l1_bytes = bytes(0);
  made.l2_bytes = bytes(1);
  made.l3_bytes = bytes(2);
  made.fma_per_cycle = fma_pipes();
  made.fma_latency_cycles = fma_latency_cycles;
  made.broadcast_cycles = access_cycles.broadcast;
  made.near_piece_cycles = access_cycles.near_piece;
  for (std::size_t l = 0; l < made.line_cycles.size() && levels.size() > 1; ++l) {
    const MemoryLevel& level = levels[std::min(l + 1, levels.size() - 1)];
    made.line_cycles[l] = static_cast<double>(level.line_bytes) * ghz / level.read_gbs;
  }
  made.unaligned_cycles = access_cycles.unaligned;
  // Ports are whole; what is measured of a level misses them by how it is measured.
  const double loads = levels.empty() ? 1 : levels[0].read_gbs / ghz / (vector_bits / 8.0);
  made.loads_per_cycle = std::max(1.0, std::round(loads));
  return made;
}

double MemoryLevel::seconds(double read, double written) const {
  const double copied = std::min(read, written);
  return (2 * copied / copy_gbs + (read - copied) / read_gbs + (written - copied) / write_gbs) * 1e-9;
}

Machine describe_machine(const Cpu& cpu) {
  Machine machine;
  machine.name = cpu_name(cpu);
  machine.vector_bits = cpu.target.vector_bits;
  machine.vector_registers = cpu.target.vector_registers;
  machine.fma_per_cycle = cpu.target.fma_per_cycle;
  // Of CPUs with 512-bit vectors some have one unit for them, some two, under one name.
  if (machine.vector_bits < 512) machine.fma_ports = cpu.target.fma_per_cycle;
  // Comparing and choosing goes two vectors a cycle, also where one is multiplied and added.
  machine.access_cycles.maximum = (cpu.info.orders_with_nan ? 1 : 3) / 2.0;
  const bool here = cpu.here;
  const std::string siblings =
      here ? first_line("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list") : "";
  machine.threads_per_core = siblings.empty() ? 1 : count_of_list(siblings);
  machine.cores = std::max(1, cpu.target.threads / machine.threads_per_core);
  machine.levels = caches(cpu.target, here);
  for (std::size_t l = 0; l < machine.levels.size(); ++l) {
    Typical typical = kTypical[std::min<std::size_t>(l, 2)];
    if (l < 2) {  // as wide as what computes asks for: two vectors a cycle where two are multiplied
      const double wider = std::max(1.0, machine.vector_bits / 8.0 * machine.fma_per_cycle / 64);
      typical.read_bytes *= wider;
      typical.write_bytes *= wider;
    }
    machine.levels[l].read_gbs = typical.read_bytes * machine.ghz;
    machine.levels[l].write_gbs = typical.write_bytes * machine.ghz;
    machine.levels[l].copy_gbs = one_after_the_other(machine.levels[l]);
    machine.levels[l].latency_ns = typical.latency_cycles / machine.ghz;
  }
  MemoryLevel memory;
  memory.name = "memory";
  const std::int64_t pages = here ? ::sysconf(_SC_PHYS_PAGES) : 0, page = ::sysconf(_SC_PAGE_SIZE);
  memory.bytes = pages > 0 && page > 0 ? pages * page : std::int64_t{1} << 33;
  memory.shared_by = machine.cores * machine.threads_per_core;
  memory.ways = 0;
  memory.latency_ns = kMemoryNs;
  memory.read_gbs = kMemoryGbs;
  memory.write_gbs = kMemoryWriteGbs;
  memory.copy_gbs = one_after_the_other(memory);
  machine.levels.push_back(memory);
  return machine;
}

std::vector<std::pair<std::string_view, double>> named(const AccessCycles& cycles) {
  std::vector<std::pair<std::string_view, double>> made;
  for (const auto& [name, number] : kAccessCycles) made.emplace_back(name, cycles.*number);
  return made;
}

nlohmann::json to_json(const Machine& machine) {
  nlohmann::json levels = nlohmann::json::array();
  for (const auto& level : machine.levels) {
    levels.push_back({{"name", level.name},
                      {"bytes", level.bytes},
                      {"shared_by", level.shared_by},
                      {"line_bytes", level.line_bytes},
                      {"ways", level.ways},
                      {"latency_ns", level.latency_ns},
                      {"read_gbs", level.read_gbs},
                      {"write_gbs", level.write_gbs},
                      {"copy_gbs", level.copy_gbs}});
    if (level.usable_bytes > 0) levels.back()["usable_bytes"] = level.usable_bytes;
  }
  nlohmann::json made{{"format", kFormat},
                      {"version", kVersion},
                      {"name", machine.name},
                      {"cores", machine.cores},
                      {"threads_per_core", machine.threads_per_core},
                      {"vector_bits", machine.vector_bits},
                      {"vector_registers", machine.vector_registers},
                      {"ghz", machine.ghz},
                      {"fma_per_cycle", machine.fma_per_cycle},
                      {"fma_latency_cycles", machine.fma_latency_cycles},
                      {"measured", machine.measured},
                      {"levels", std::move(levels)}};
  for (const auto& [name, cycles] : named(machine.access_cycles)) made["access_cycles"][name] = cycles;
  if (machine.tlb.pages > 0)
    made["tlb"] = {{"pages", machine.tlb.pages},
                   {"page_bytes", machine.tlb.page_bytes},
                   {"walk_ns", machine.tlb.walk_ns}};
  if (!machine.source.empty()) made["source"] = machine.source;
  if (machine.fma_ports > 0) made["fma_ports"] = machine.fma_ports;
  return made;
}

Machine machine_from_json(const nlohmann::json& json) {
  FileReader root(json, "");
  root.head(kFormat, kVersion);
  Machine machine;
  machine.name = root.text("name");
  machine.source = root.optional_text("source");
  machine.cores = root.integer<int>("cores", 1, 1 << 16);
  machine.threads_per_core = root.integer<int>("threads_per_core", 1, 64);
  machine.vector_bits = root.integer<int>("vector_bits", 64, 1 << 14);
  if ((machine.vector_bits & (machine.vector_bits - 1)) != 0)
    wrong("/vector_bits", fmt::format("is {}, not a power of two", machine.vector_bits));
  machine.vector_registers = root.integer<int>("vector_registers", 4, 1 << 10);
  machine.ghz = root.positive("ghz");
  machine.fma_per_cycle = root.positive("fma_per_cycle");
  machine.fma_ports = root.optional_positive("fma_ports", 0);
  machine.fma_latency_cycles = root.positive("fma_latency_cycles");
  machine.measured = root.truth("measured");
  if (const auto* cycles_of = root.optional("access_cycles")) {  // files of earlier versions have none
    FileReader row(*cycles_of, "/access_cycles");
    for (const auto& [name, cycles] : kAccessCycles)
      machine.access_cycles.*cycles = row.optional_positive(name, machine.access_cycles.*cycles);
    row.nothing_else();
  }
  if (const auto* tlb = root.optional("tlb")) {
    FileReader row(*tlb, "/tlb");
    machine.tlb.pages = row.integer<std::int64_t>("pages", 1, 1 << 24);
    machine.tlb.page_bytes = row.integer<std::int64_t>("page_bytes", 1 << 10, std::int64_t{1} << 34);
    machine.tlb.walk_ns = row.positive("walk_ns");
    row.nothing_else();
  }
  const auto& levels = root.at("levels");
  root.nothing_else();
  if (!levels.is_array() || levels.size() < 2)
    wrong("/levels", "is not a list of at least two levels: a cache and main memory");
  for (std::size_t l = 0; l < levels.size(); ++l) {
    const std::string path = fmt::format("/levels/{}", l);
    FileReader row(levels[l], path);
    MemoryLevel level;
    level.name = row.text("name");
    level.bytes = row.integer<std::int64_t>("bytes", 1, kMostBytes);
    level.shared_by = row.integer<int>("shared_by", 1, 1 << 16);
    level.line_bytes = row.integer<std::int64_t>("line_bytes", 1, 1 << 16);
    level.ways = row.integer<int>("ways", 0, 1 << 16);
    level.latency_ns = row.positive("latency_ns");
    level.read_gbs = row.positive("read_gbs");
    level.write_gbs = row.positive("write_gbs");
    level.copy_gbs = row.optional_positive("copy_gbs", one_after_the_other(level));
    level.usable_bytes = row.optional_integer<std::int64_t>("usable_bytes", 1, level.bytes, 0);
    row.nothing_else();
    if (l > 0 && level.bytes <= machine.levels.back().bytes)
      wrong(path + "/bytes", fmt::format("is {}, no more than the {} of the level before", level.bytes,
                                         machine.levels.back().bytes));
    machine.levels.push_back(std::move(level));
  }
  return machine;
}

std::string to_text(const Machine& machine) {
  std::string text = fmt::format("{}\n", machine.name);
  text += fmt::format("  {} cores, {} thread(s) each; {}-bit vectors, {} registers\n", machine.cores,
                      machine.threads_per_core, machine.vector_bits, machine.vector_registers);
  text += fmt::format(
      "  {:.2f} GHz, {:.2f} FMA a cycle, latency {:.1f} cycles: {:.1f} GFLOP/s a core (float32)\n",
      machine.ghz, machine.fma_per_cycle, machine.fma_latency_cycles, machine.peak_gflops(4));
  std::string accesses;
  for (const auto& [name, cycles] : named(machine.access_cycles))
    accesses += fmt::format("{}{} {:.2f}", accesses.empty() ? "" : ", ", name, cycles);
  text += fmt::format("  cycles of an access: {}\n", accesses);
  for (const auto& level : machine.levels) {
    const bool large = level.bytes >= (std::int64_t{1} << 20);
    text += fmt::format(
        "  {:6} {:>6} {}  read {:6.1f} GB/s, write {:6.1f}, copy {:6.1f}, latency {:6.1f} ns, shared by {}",
        level.name, level.bytes >> (large ? 20 : 10), large ? "MiB" : "KiB", level.read_gbs, level.write_gbs,
        level.copy_gbs, level.latency_ns, level.shared_by);
    text += level.usable() < level.bytes ? fmt::format(", {} KiB usable\n", level.usable() >> 10) : "\n";
  }
  if (machine.tlb.pages > 0)
    text += fmt::format("  TLB    {:>6} pages of {} KiB, walk {:.1f} ns\n", machine.tlb.pages,
                        machine.tlb.page_bytes >> 10, machine.tlb.walk_ns);
  return text + (machine.measured ? "  measured\n" : "  typical rates, not measured\n");
}

}  // namespace syno::machine
