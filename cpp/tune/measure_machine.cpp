// Rates of this machine, measured with generated code: what kernels can reach is what the code generator
// reaches, and a CPU named by SYNO_CPU is measured as it would be used.
#include "tune/measure_machine.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <numeric>

#include "jit/kernel.hpp"
#include "support/clock.hpp"
#include "support/random.hpp"

namespace syno::tune {

namespace {

using machine::Machine;
using machine::MemoryLevel;

using Clock = std::chrono::steady_clock;
using Floats = std::vector<float>;

/// Seconds of one call: the fastest of several samples, since disturbances only ever add.
double fastest(const std::function<void()>& call, double sample_s = 4e-3, int samples = 12) {
  call();
  auto start = Clock::now();
  call();
  const double once = std::max(seconds_since(start), 1e-8);
  const int calls = std::max(1, static_cast<int>(sample_s / once));
  double best = once;
  for (int sample = 0; sample < samples; ++sample) {
    start = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    best = std::min(best, seconds_since(start) / calls);
  }
  return best;
}

double time_nest(const std::string& text, const machine::Cpu& cpu, std::vector<float*> arguments) {
  jit::CompileOptions options;
  options.cpu = &cpu;
  const auto kernel = jit::compile(nest::parse_loop_nest(text), options);
  kernel->require_runs_here();
  std::vector<void*> pointers(arguments.begin(), arguments.end());
  return fastest([&] { kernel->call_unchecked(pointers.data(), 1); });
}

/// Cycles a second: additions that wait for each other take one cycle each.
double measure_ghz() {
  constexpr int kRounds = 4000, kChain = 64;
  const double seconds = fastest([] {
    std::uint64_t value = 1, step = 3;  // locals: captured ones would go through memory
    for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 64
      for (int j = 0; j < kChain; ++j) {
        value += step;
        asm volatile("" : "+r"(value), "+r"(step));
      }
    }
  });
  return kRounds * kChain / seconds * 1e-9;
}

constexpr std::int64_t kDepth = 128, kRepeats = 200;
constexpr std::int64_t kPageFloats = 1024;  ///< of the smallest pages

/// Multiply-adds of vectors a second, of the register tile kernels are made of.
double measure_fma(const machine::Cpu& cpu, std::int64_t lanes) {
  const std::int64_t rows = (cpu.target.vector_registers - 4) / 2;
  const std::int64_t width = 2 * lanes;
  Floats a(static_cast<std::size_t>(rows * kDepth)), b(static_cast<std::size_t>(kDepth * width)),
      y(static_cast<std::size_t>(rows * width));
  const std::string tile = fmt::format("for m in 0..{} unroll\n", rows);
  const auto body = [&](int depth, const std::string& store) {
    const std::string in(static_cast<std::size_t>(2 * depth), ' ');
    return fmt::format("{0}{1}{0}  for v in 0..2 unroll\n{0}    for l in 0..{2} vector\n{0}      {3}\n", in,
                       tile, lanes, store);
  };
  const std::string nest =
      fmt::format("nest peak\ninput a: f32[{0}, {1}]\ninput b: f32[{1}, {2}]\noutput y: f32[{0}, {2}]\n",
                  rows, kDepth, width) +
      fmt::format("register t: f32[{}, 2, {}]\nfor i in 0..{}\n  allocate t\n", rows, lanes, kRepeats) +
      body(2, "t[m, v, l] = 0") + fmt::format("    for k in 0..{}\n", kDepth) +
      body(3, fmt::format("t[m, v, l] += a[m, k] * b[k, {} * v + l]", lanes)) +
      body(2, fmt::format("y[m, {} * v + l] = t[m, v, l]", lanes));
  const double seconds = time_nest(nest, cpu, {a.data(), b.data(), y.data()});
  return static_cast<double>(kRepeats * kDepth * rows * 2) / seconds;
}

/// Long chains: the core would work on two short ones at once.
constexpr std::int64_t kChain = 4096, kChains = 8;

/// Seconds until a sum of vectors can be added to again.
double measure_fma_latency(const machine::Cpu& cpu, std::int64_t lanes) {
  Floats a(static_cast<std::size_t>(kChain)), b(static_cast<std::size_t>(lanes)),
      y(static_cast<std::size_t>(lanes));
  const std::string nest = fmt::format(
      "nest latency\ninput a: f32[{0}]\ninput b: f32[{1}]\noutput y: f32[{1}]\nregister t: f32[{1}]\n"
      "for i in 0..{2}\n  allocate t\n    for l in 0..{1} vector\n      t[l] = 0\n    for k in 0..{0}\n"
      "      for l in 0..{1} vector\n        t[l] += a[k] * b[l]\n    for l in 0..{1} vector\n      y[l] = "
      "t[l]\n",
      kChain, lanes, kChains);
  return time_nest(nest, cpu, {a.data(), b.data(), y.data()}) / static_cast<double>(kChain * kChains);
}

double measure_read(const machine::Cpu& cpu, std::int64_t lanes, std::int64_t bytes, float* memory) {
  const std::int64_t count = bytes / 4, repeats = std::max<std::int64_t>(1, (1 << 20) / bytes);
  const std::int64_t step = 8 * lanes, steps = std::max<std::int64_t>(1, count / step);
  Floats y(static_cast<std::size_t>(step));
  const auto body = [&](int depth, const std::string& store) {
    const std::string in(static_cast<std::size_t>(2 * depth), ' ');
    return fmt::format("{0}for v in 0..8 unroll\n{0}  for l in 0..{1} vector\n{0}    {2}\n", in, lanes,
                       store);
  };
  const std::string nest =
      fmt::format("nest read\ninput x: f32[{}]\noutput y: f32[{}]\nregister t: f32[8, {}]\n", steps * step,
                  step, lanes) +
      fmt::format("for i in 0..{}\n  allocate t\n", repeats) + body(2, "t[v, l] = 0") +
      fmt::format("    for k in 0..{}\n", steps) +
      body(3, fmt::format("t[v, l] += x[{} * k + ({} * v + l)]", step, lanes)) +
      body(2, fmt::format("y[{} * v + l] = t[v, l]", lanes));
  return static_cast<double>(repeats * steps * step * 4) / time_nest(nest, cpu, {memory, y.data()}) * 1e-9;
}

/// `part`: of each vector the first half is written, where it is 2.
double measure_write(const machine::Cpu& cpu, std::int64_t lanes, std::int64_t bytes, float* memory,
                     std::int64_t part = 1) {
  const std::int64_t count = bytes / 4, repeats = std::max<std::int64_t>(1, (1 << 20) / bytes);
  const std::int64_t step = 8 * lanes, steps = std::max<std::int64_t>(1, count / step);
  const std::string nest = fmt::format(
      "nest write\noutput y: f32[{0}]\nfor i in 0..{1}\n  for k in 0..{2}\n    for v in 0..8 unroll\n"
      "      for l in 0..{5} vector\n        y[{4} * k + ({3} * v + l)] = 1\n",
      steps * step, repeats, steps, lanes, step, lanes / part);
  return static_cast<double>(repeats * steps * step * 4) / time_nest(nest, cpu, {memory}) * 1e-9;
}

/// Half of the bytes are read, half are written.
double measure_copy(const machine::Cpu& cpu, std::int64_t lanes, std::int64_t bytes, float* memory) {
  const std::int64_t step = 8 * lanes;
  const std::int64_t count = bytes / 8, repeats = std::max<std::int64_t>(1, (1 << 20) / bytes);
  const std::int64_t steps = std::max<std::int64_t>(1, count / step);
  const std::string nest = fmt::format(
      "nest copy\ninput x: f32[{0}]\noutput y: f32[{0}]\nfor i in 0..{1}\n  for k in 0..{2}\n"
      "    for v in 0..8 unroll\n      for l in 0..{3} vector\n"
      "        y[{4} * k + ({3} * v + l)] = x[{4} * k + ({3} * v + l)]\n",
      steps * step, repeats, steps, lanes, step);
  // Not a multiple of a page apart: a load would wait for an earlier store to the same place in another page.
  float* const to = memory + steps * step + 4 * step;
  return static_cast<double>(repeats * steps * step * 8) / time_nest(nest, cpu, {memory, to}) * 1e-9;
}

/// Sums in registers, by vectors: what is added to t[m, l] in step k.
struct Probe {
  std::int64_t count = 0, steps = 0;  ///< of registers, and of k
  std::string inputs, added;
  std::vector<float*> arguments;
  std::string mode = "+";
};
/// Seconds of a step.
double step_seconds(const machine::Cpu& cpu, std::int64_t lanes, const Probe& probe) {
  Floats y(static_cast<std::size_t>(probe.count * lanes));
  const auto body = [&](int depth, const std::string& store) {
    const std::string in(static_cast<std::size_t>(2 * depth), ' ');
    return fmt::format("{0}for m in 0..{1} unroll\n{0}  for l in 0..{2} vector\n{0}    {3}\n", in,
                       probe.count, lanes, store);
  };
  const std::int64_t repeats = kRepeats * kDepth / probe.steps;
  const std::string nest = fmt::format("nest probe\n{}output y: f32[{}]\nregister t: f32[{}, {}]\n",
                                       probe.inputs, probe.count * lanes, probe.count, lanes) +
                           fmt::format("for i in 0..{}\n  allocate t\n", repeats) + body(2, "t[m, l] = 0") +
                           fmt::format("    for k in 0..{}\n", probe.steps) +
                           body(3, fmt::format("t[m, l] {}= {}", probe.mode, probe.added)) +
                           body(2, fmt::format("y[{} * m + l] = t[m, l]", lanes));
  std::vector<float*> arguments = probe.arguments;
  arguments.push_back(y.data());
  return time_nest(nest, cpu, std::move(arguments)) / static_cast<double>(repeats * probe.steps);
}

/// What accesses cost that are no plain vectors: what a step takes with them, beyond what else it takes.
/// `memory`: aligned, some of it in the first cache.
machine::AccessCycles measure_accesses(const machine::Cpu& cpu, const Machine& machine, float* memory) {
  const std::int64_t lanes = machine.lanes(4);
  const double cycle = 1e-9 / machine.ghz;
  const machine::AccessCycles typical;
  machine::AccessCycles made;
  // What something else adds on the core has no bound, what ports do has.
  const auto each = [&](double cycles, double of, double like) {
    return std::clamp(cycles / of, like / 100, 20 * like);
  };
  {
    // A number for every sum, as many as a tile of one vector has, a row of memory each.
    const std::int64_t rows = machine.vector_registers - 4;
    const std::int64_t steps = machine.levels[0].bytes / (8 * (rows + lanes));
    const double load = machine.vector_bits / 8.0 * machine.ghz / machine.levels[0].read_gbs;
    const double step =
        step_seconds(cpu, lanes,
                     {rows,
                      steps,
                      fmt::format("input a: f32[{0}, {1}]\ninput b: f32[{1}, {2}]\n", rows, steps, lanes),
                      "a[m, k] * b[k, l]",
                      {memory, memory + rows * steps}});
    made.broadcast = each(step / cycle - load, static_cast<double>(rows), typical.broadcast);
  }
  if (lanes > 1) {
    const std::int64_t bytes = machine.levels[0].bytes / 2;
    const double vectors = measure_write(cpu, lanes, bytes, memory, 2) * 8e9 / machine.vector_bits;
    made.narrow_store = each(1 / (vectors * cycle), 1, typical.narrow_store);
  }
  const std::int64_t count = 8, steps = machine.levels[0].bytes / (16 * count * lanes);
  const auto added = [&](std::int64_t apart, std::int64_t stride, std::int64_t offset,
                         const std::string& guard = "") {
    const std::int64_t elements = apart * count * steps + stride * lanes + offset;
    const Probe probe{
        count,
        steps,
        fmt::format("input a: f32[{}]\n", elements),
        fmt::format("a[{} * k + ({} * m + ({} * l + {}))]{}", apart * count, apart, stride, offset, guard),
        {memory}};
    return step_seconds(cpu, lanes, probe) / cycle;
  };
  const double vectors = added(lanes, 1, 0);
  made.unaligned = each(added(lanes, 1, 1) - vectors, count, typical.unaligned);
  {
    // All of what four vectors hold: three picks a vector, one load.
    const std::int64_t parts = 4, few = count / parts, blocks = steps / parts;
    const Probe probe{
        few,
        blocks,
        fmt::format("input a: f32[{}]\n", parts * lanes * few * blocks),
        fmt::format("(a[{0} * k + ({1} * m + 4 * l)] + a[{0} * k + ({1} * m + (4 * l + 1))] + a[{0} * k + "
                    "({1} * m + (4 * l + 2))] + a[{0} * k + ({1} * m + (4 * l + 3))])",
                    parts * lanes * few, parts * lanes),
        {memory}};
    made.picked = each(step_seconds(cpu, lanes, probe) / cycle,
                       static_cast<double>(few * parts * (parts - 1)), typical.picked);
  }
  made.masked = each(added(lanes, 1, 0, fmt::format(" {{k + (l - 1) in 0..{} else 0}}", steps)) - vectors, 1,
                     typical.masked);
  if (machine.levels.size() > 2) {
    // A register tile whose rows of two vectors, of a line at least, come from the second cache: each behind
    // the one before, or on the next page and line.
    const std::int64_t line = machine.levels[0].line_bytes / 4, width = 2 * lanes;
    const std::int64_t rows = (machine.vector_registers - 6) / 2;
    const std::int64_t near = std::max(width, line), far = kPageFloats + line;
    const std::int64_t steps = 2 * machine.levels[0].bytes / (4 * near);
    const auto step = [&](std::int64_t apart) {
      const Probe probe{2 * rows,
                        steps,
                        fmt::format("input a: f32[{}, {}]\ninput b: f32[{}]\n", rows, steps, far * steps),
                        fmt::format("a[m / 2, k] * b[{} * k + ({} * (m % 2) + l)]", apart, lanes),
                        {memory, memory + rows * steps + line - rows * steps % line}};
      return step_seconds(cpu, lanes, probe) / cycle;
    };
    if (8 * near * steps < machine.levels[1].bytes) {
      double together = INFINITY, apart = INFINITY;
      for (int time = 0; time < 3; ++time) {  // others' work lasts longer than the samples of one
        together = std::min(together, step(near));
        apart = std::min(apart, step(far));
      }
      const double lines = static_cast<double>(near) / static_cast<double>(line);
      made.near_piece = each(apart - together, lines, typical.near_piece);
    }
  }
  {
    const Probe probe{count,
                      steps,
                      fmt::format("input a: f32[{}]\n", count * lanes * steps),
                      fmt::format("a[{} * k + ({} * m + l)]", count * lanes, lanes),
                      {memory},
                      "max"};
    made.maximum = each(step_seconds(cpu, lanes, probe) / cycle, count, typical.maximum);
  }
  // Too far apart for a few vectors to hold them.
  made.gathered = each(added(1, 3 * lanes, 0), static_cast<double>(count * lanes), typical.gathered);
  return made;
}

/// The most of several times, until it is what whole ports do: what uses the core beside us comes and goes.
double most_of(const std::function<double()>& per_cycle, double ports = 0) {
  constexpr int kTimes = 8;
  double most = 0;
  for (int i = 0; i < kTimes; ++i) {
    most = std::max(most, per_cycle());
    if (machine::undisturbed(most, ports)) break;
  }
  return most;
}

/// What of a shared cache holds what is read again and again: eighths, until reading takes less than the
/// middle of the times that it takes from the cache and from behind it.
std::int64_t measure_usable(const MemoryLevel& cache, double behind_gbs,
                            const std::function<double(std::int64_t)>& read_gbs) {
  constexpr std::int64_t kParts = 8;
  const double middle_gbs = 2 / (1 / cache.read_gbs + 1 / behind_gbs);
  for (std::int64_t part = kParts; part > 1; --part) {
    const std::int64_t bytes = cache.bytes / kParts * part;
    if (read_gbs(bytes) >= middle_gbs) return bytes;
  }
  return cache.bytes / kParts;
}

/// Nanoseconds of a load whose address the load before it gives: one cycle through so many places in random
/// order. Ones are left there.
double chase_ns(std::int64_t count, const std::function<char*(std::int64_t)>& at_place) {
  std::vector<std::uint32_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0u);
  Random random(1);
  for (std::size_t i = order.size() - 1; i > 0; --i)
    std::swap(order[i], order[random.below(i)]);  // one cycle
  const auto place = [&](std::size_t i) {
    return reinterpret_cast<void**>(at_place(static_cast<std::int64_t>(i)));
  };
  for (std::size_t i = 0; i < order.size(); ++i) *place(i) = place(order[i]);
  void** at = place(0);
  for (std::int64_t i = 0; i < std::min<std::int64_t>(count, 1 << 17); ++i) at = static_cast<void**>(*at);
  constexpr int kSteps = 20'000;
  const double seconds = fastest(
      [&] {
        for (int i = 0; i < kSteps; ++i) at = static_cast<void**>(*at);
        asm volatile("" : "+r"(at));
      },
      2e-3, 5);
  // Halves of pointers are denormal numbers, at which some CPUs stop for more than a hundred cycles.
  for (std::size_t i = 0; i < order.size(); ++i)
    std::fill_n(reinterpret_cast<float*>(place(i)), sizeof(void*) / sizeof(float), 1.0f);
  return seconds / kSteps * 1e9;
}

/// More than TLBs have: where they are walked through in one order, none is found again.
constexpr std::int64_t kMostPages = 8192;
constexpr std::int64_t kMostProbe = std::int64_t{256} << 20;

}  // namespace

double measure_latency(std::int64_t bytes, std::int64_t line, float* memory) {
  char* const base = reinterpret_cast<char*>(memory);
  return chase_ns(std::max<std::int64_t>(2, bytes / line), [&](std::int64_t i) { return base + i * line; });
}

machine::Tlb measure_tlb(std::int64_t bytes, std::int64_t page, std::int64_t line, float* memory) {
  constexpr std::int64_t kLeast = 256;
  constexpr double kWorthANote = 1;  // nanoseconds
  char* const base = reinterpret_cast<char*>(memory);
  const auto more_ns = [&](std::int64_t count) {
    // Each on another line of its page, so that they do not meet in a set of a cache.
    double apart = INFINITY, together = INFINITY;
    for (int time = 0; time < 3; ++time) {  // others' work lasts longer than the samples of one
      apart = std::min(
          apart, chase_ns(count, [&](std::int64_t i) { return base + i * page + i % (page / line) * line; }));
      together = std::min(together, chase_ns(count, [&](std::int64_t i) { return base + i * line; }));
    }
    return apart - together;
  };
  const std::int64_t most = bytes / page;
  if (most <= 2 * kLeast) return {};
  const double near = more_ns(kLeast), walk = more_ns(most) - near;
  if (walk < kWorthANote) return {};
  std::int64_t pages = kLeast;
  for (double next = kLeast * std::sqrt(2.0); next < static_cast<double>(most); next *= std::sqrt(2.0)) {
    const std::int64_t count = std::llround(next);
    if (more_ns(count) - near > walk / 2) break;
    pages = count;
  }
  return {pages, page, walk};
}

Machine measure_machine(const machine::Cpu& cpu) {
  Machine machine = describe_machine(cpu);
  const std::int64_t lanes = machine.lanes(4);
  machine.ghz = measure_ghz();
  machine.fma_per_cycle =
      most_of([&] { return measure_fma(cpu, lanes) / (machine.ghz * 1e9); }, machine.fma_ports);
  machine.fma_latency_cycles = measure_fma_latency(cpu, lanes) * machine.ghz * 1e9;
  std::vector<std::int64_t> probes;
  std::int64_t below = 0;
  for (std::size_t l = 0; l < machine.levels.size(); ++l) {
    // A set that this level holds with room to spare and the one before does not hold. Not more: a cache
    // that is shared may be full of what others do.
    const bool memory = l + 1 == machine.levels.size();
    const std::int64_t bytes = machine.levels[l].bytes;
    if (memory)
      probes.push_back(std::max(2 * below, std::clamp<std::int64_t>(4 * below, 64 << 20, kMostProbe)));
    else
      probes.push_back(below == 0 ? bytes / 2 : std::min(4 * below, bytes * 3 / 4));
    below = machine.levels[l].bytes;
  }
  Floats memory(static_cast<std::size_t>(*std::max_element(probes.begin(), probes.end()) / 4) + 4096);
  const auto line = reinterpret_cast<std::uintptr_t>(memory.data()) % 64;
  float* const aligned = memory.data() + (line == 0 ? 0 : (64 - line) / 4);
  for (std::size_t l = 0; l < machine.levels.size(); ++l) {
    MemoryLevel& level = machine.levels[l];
    level.write_gbs = measure_write(cpu, lanes, probes[l], aligned);
    const auto read = [&] { return measure_read(cpu, lanes, probes[l], aligned); };
    const double vectors = machine.ghz * machine.vector_bits / 8.0;  // GB/s of one a cycle
    level.read_gbs = l > 0 ? read() : vectors * most_of([&] { return read() / vectors; });
    level.copy_gbs = measure_copy(cpu, lanes, probes[l], aligned);
    level.latency_ns = measure_latency(probes[l], level.line_bytes, aligned);
  }
  if (machine.levels.size() > 2) {
    MemoryLevel& last = machine.levels[machine.levels.size() - 2];
    const MemoryLevel& behind = machine.levels.back();
    const bool fits = last.bytes <= static_cast<std::int64_t>(memory.size()) * 4;
    if (fits && behind.read_gbs < last.read_gbs)
      last.usable_bytes = measure_usable(last, behind.read_gbs, [&](std::int64_t bytes) {
        return measure_read(cpu, lanes, bytes, aligned);
      });
  }
  const std::int64_t page = ::sysconf(_SC_PAGESIZE);
  const auto within = reinterpret_cast<std::uintptr_t>(aligned) % static_cast<std::uintptr_t>(page);
  const std::int64_t before = within == 0 ? 0 : page - static_cast<std::int64_t>(within);
  machine.tlb = measure_tlb(std::min(probes.back(), kMostPages * page) - before, page,
                            machine.levels[0].line_bytes, aligned + before / 4);
  machine.access_cycles = measure_accesses(cpu, machine, aligned);
  machine.measured = true;
  return machine;
}

}  // namespace syno::tune
