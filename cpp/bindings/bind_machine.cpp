// bindings/bind_machine.cpp — machine models, and what they predict of loop nests, in Python.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "jit/kernel.hpp"
#include "machine/cache_simulation.hpp"
#include "machine/features.hpp"
#include "machine/machine.hpp"
#include "machine/predict.hpp"
#include "support/error.hpp"
#include "support/json.hpp"
#include "support/significant.hpp"
#include "tune/measure_machine.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace {

using namespace syno;
using machine::Machine;
using machine::MemoryLevel;

const machine::Cpu& cpu_or_host(const std::optional<machine::Cpu>& cpu) {
  return cpu ? *cpu : jit::host_cpu();
}

Machine machine_from_text(const std::string& text) {
  return machine::machine_from_json(parse_json("machine", text));
}

void bind_models(py::module_& m) {
  py::class_<MemoryLevel>(m, "MemoryLevel",
                          "One level of the memory hierarchy, as a single busy core sees it.")
      .def_readonly("name", &MemoryLevel::name)
      .def_readonly("bytes", &MemoryLevel::bytes, "Capacity.")
      .def_property_readonly("usable_bytes", &MemoryLevel::usable,
                             "What of it was left by others when it was measured; all where it was not.")
      .def_readonly("shared_by", &MemoryLevel::shared_by, "Hardware threads that share it.")
      .def_readonly("line_bytes", &MemoryLevel::line_bytes)
      .def_readonly("ways", &MemoryLevel::ways, "Of a set-associative cache; 0 for main memory.")
      .def_readonly("latency_ns", &MemoryLevel::latency_ns, "Of a load whose address waits for the last one.")
      .def_readonly("read_gbs", &MemoryLevel::read_gbs, "1e9 bytes a second, reading in order.")
      .def_readonly(
          "write_gbs", &MemoryLevel::write_gbs,
          "1e9 bytes a second, writing in order. A line that is read before it is written counts once.")
      .def_readonly("copy_gbs", &MemoryLevel::copy_gbs,
                    "1e9 bytes a second, read and written together, copying in order.")
      .def("seconds", &MemoryLevel::seconds, "read"_a, "written"_a,
           "The least time to read and to write so many bytes in order: as much as can be as a copy.")
      .def("__repr__", [](const MemoryLevel& level) {
        return fmt::format("MemoryLevel({}, {} bytes, read {:.1f} GB/s)", level.name, level.bytes,
                           level.read_gbs);
      });
  py::class_<machine::Tlb>(
      m, "Tlb",
      "The pages whose places a core has at hand: of what lies in others it first walks through tables.")
      .def_readonly("pages", &machine::Tlb::pages, "0: not known, and walks are not counted.")
      .def_readonly("page_bytes", &machine::Tlb::page_bytes)
      .def_readonly("walk_ns", &machine::Tlb::walk_ns,
                    "Of a load whose address waits for the last one, beside the line.")
      .def("__repr__", [](const machine::Tlb& tlb) {
        return fmt::format("Tlb({} pages of {} bytes, walk {:.1f} ns)", tlb.pages, tlb.page_bytes,
                           tlb.walk_ns);
      });
  py::class_<Machine>(m, "MachineModel", R"doc(
    What one core of a machine computes a second and what each memory level gives it. Immutable.

    Schedules are constructed from it alone, so that they can be made for a machine that is not here.
)doc")
      .def_readonly("name", &Machine::name)
      .def_readonly("cores", &Machine::cores)
      .def_readonly("threads_per_core", &Machine::threads_per_core)
      .def_readonly("source", &Machine::source, "Where the figures come from; empty: this machine.")
      .def_readonly("vector_bits", &Machine::vector_bits)
      .def_readonly("vector_registers", &Machine::vector_registers)
      .def_readonly("ghz", &Machine::ghz)
      .def_readonly("fma_per_cycle", &Machine::fma_per_cycle, "Vector multiply-adds a cycle, sustained.")
      .def_property_readonly(
          "fma_pipes", &Machine::fma_pipes,
          "Vector multiply-adds that a cycle starts: what was measured, in whole ports, no fewer than "
          "`fma_ports`.")
      .def_readonly(
          "fma_ports", &Machine::fma_ports,
          "Those that every CPU of its name starts in a cycle; 0: not known, or not the same on all.")
      .def_property_readonly("disturbed", &Machine::disturbed,
                             "Whether it was measured while something else used the core.")
      .def_readonly("fma_latency_cycles", &Machine::fma_latency_cycles)
      .def_property_readonly(
          "access_cycles",
          [](const Machine& machine) {
            std::map<std::string, double> made;
            for (const auto& [name, cycles] : machine::named(machine.access_cycles))
              made.emplace(name, cycles);
            return made;
          },
          "Cycles of accesses that are no plain vector, of data in the first cache: \"broadcast\" of a "
          "number into\n"
          "all lanes, \"unaligned\" of a vector beyond an aligned one, \"picked\" of one whose lanes are "
          "picked from\n"
          "two, \"gathered\" and \"scattered\" of an element, \"narrow_store\" of half a vector or less, "
          "\"masked\" of\n"
          "a mask that is computed, \"near_piece\" of a line of the second cache in short pieces far apart, "
          "\"maximum\" of the "
          "larger of two\nvectors that may hold what is no number.")
      .def_readonly("tlb", &Machine::tlb)
      .def_readonly("levels", &Machine::levels, "Nearest to the core first; the last one is main memory.")
      .def_readonly("measured", &Machine::measured, "By micro-benchmarks; otherwise rates are typical ones.")
      .def(
          "peak_gflops",
          [](const Machine& machine, int bytes) {
            if (bytes < 1 || bytes > 8)
              fail<ShapeError>("machine", "elements of {} bytes; there are those of 1 to 8", bytes);
            return machine.peak_gflops(bytes);
          },
          "element_bytes"_a = 4,
          "Multiply-add peak of one core, 1e9 floating-point operations a second (a multiply-add is two).")
      .def(
          "to_json", [](const Machine& machine) { return machine::to_json(machine).dump(1); },
          "The machine file, as text; ``from_json`` reads it back.")
      .def_static("from_json", &machine_from_text, "text"_a, R"doc(
    Read a machine file.

    Raises:
        FormatError: names the path of what is missing, unknown, of another type or impossible.
)doc")
      .def(
          "__eq__", [](const Machine& a, const Machine& b) { return a == b; }, py::is_operator())
      .def("__hash__",
           [](const Machine& machine) { return py::hash(py::str(machine::to_json(machine).dump())); })
      .def("__str__", [](const Machine& machine) { return machine::to_text(machine); })
      .def("__repr__", [](const Machine& machine) {
        return fmt::format("<MachineModel {}, {:.1f} GFLOP/s a core>", machine.name, machine.peak_gflops(4));
      });
  m.def(
      "describe_machine",
      [](const std::optional<machine::Cpu>& cpu) { return machine::describe_machine(cpu_or_host(cpu)); },
      "cpu"_a = py::none(), R"doc(
    What the system says about this machine; rates are typical ones, not measured.

    Args:
        cpu: of ``cpu_named``: what code is generated for; default ``host_cpu()``.
)doc");
  m.def(
      "measure_machine",
      [](const std::optional<machine::Cpu>& cpu) {
        const py::gil_scoped_release unlocked;
        return tune::measure_machine(cpu_or_host(cpu));
      },
      "cpu"_a = py::none(), R"doc(
    This machine with its rates measured by micro-benchmarks of generated code on one core: about ten seconds.

    Args:
        cpu: of ``cpu_named``: what code is generated for; default ``host_cpu()``.
)doc");
}

void check_input(const nest::LoopNest& nest, const std::string& name) {
  std::vector<std::string> names;
  for (const nest::Buffer& buffer : nest.buffers)
    if (buffer.kind == nest::BufferKind::Input) names.push_back(buffer.name);
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw UnknownName("machine", unknown_name("input", name, names));
}

void bind_predict(py::module_& m) {
  py::class_<machine::Prediction>(m, "Prediction", "How long a loop nest should take, and what limits it.")
      .def_readonly("seconds", &machine::Prediction::seconds, "Of one call.")
      .def_readonly("compute_s", &machine::Prediction::compute_s, "With every access in the first cache.")
      .def_readonly("memory_s", &machine::Prediction::memory_s, "Of what each level of the machine gives.")
      .def_readonly("moved_bytes", &machine::Prediction::moved_bytes, "What each level of the machine gives.")
      .def_readonly("overhead_s", &machine::Prediction::overhead_s, "Entering loops and starting threads.")
      .def_readonly("waiting_s", &machine::Prediction::waiting_s,
                    "For short pieces of the second cache far apart, which nothing hides.")
      .def_readonly(
          "page_walks", &machine::Prediction::page_walks,
          "Pages that the TLB does not hold when they are touched; 0 where all fit it or its size is "
          "not known.")
      .def_readonly("walking_s", &machine::Prediction::walking_s, "What walks through page tables add.")
      .def_readonly("flops", &machine::Prediction::flops, "A multiply-add is two.")
      .def_readonly("bottleneck", &machine::Prediction::bottleneck,
                    "'multiply-adds', 'loads', 'stores', 'latency of sums', 'registers', 'loop overhead', "
                    "'short pieces', 'page walks' or the name of a level.")
      .def_readonly("fraction_of_peak", &machine::Prediction::fraction_of_peak,
                    "Of the multiply-add peak of the threads used.")
      .def("__repr__", [](const machine::Prediction& made) {
        return fmt::format("Prediction({} us, {:.2f} of the peak, limited by {})",
                           significant(made.seconds * 1e6), made.fraction_of_peak, made.bottleneck);
      });
  m.def(
      "predict_nest",
      [](const nest::LoopNest& nest, const Machine& machine, int threads, bool cold,
         std::optional<std::vector<std::string>> near, std::optional<std::size_t> far) {
        for (const std::string& name : near.value_or(std::vector<std::string>{})) check_input(nest, name);
        const py::gil_scoped_release unlocked;
        return machine::predict(nest, machine, {threads, cold, std::move(near), far.value_or(SIZE_MAX)});
      },
      "nest"_a, "machine"_a, py::kw_only(), "threads"_a = 1, "cold"_a = false, "near"_a = std::nullopt,
      "far"_a = std::nullopt, R"doc(
    Predict the time of a loop nest from the machine model alone.

    Args:
        nest: what a schedule makes of a program.
        machine: the model, of this machine or another.
        threads: of a call.
        cold: arguments come from main memory instead of the nearest level that holds them.
        near: names of the inputs that do not come from ``far``, where the others do; default: as ``cold`` says.
        far: an index of the machine's levels; default main memory.
    Raises:
        UnknownName: no input has one of the names.
)doc");
  py::class_<machine::CacheTraffic>(m, "CacheTraffic", "What a loop nest asked of caches.")
      .def_readonly("loads", &machine::CacheTraffic::loads, "Instructions that read memory; a vector is one.")
      .def_readonly("stores", &machine::CacheTraffic::stores, "Instructions that write memory.")
      .def_readonly("misses", &machine::CacheTraffic::misses,
                    "Lines that were not there, by level of the machine but for main memory.")
      .def_readonly("page_walks", &machine::CacheTraffic::page_walks,
                    "To pages that the TLB did not hold; 0 where the machine says nothing of it.")
      .def("__repr__", [](const machine::CacheTraffic& made) {
        return fmt::format("CacheTraffic({} loads, {} stores, misses {}, {} page walks)", made.loads,
                           made.stores, fmt::join(made.misses, ", "), made.page_walks);
      });
  m.def(
      "simulate_caches",
      [](const nest::LoopNest& nest, const Machine& machine, std::int64_t lines_per_miss) {
        const py::gil_scoped_release unlocked;
        return machine::simulate_caches(nest, machine, {lines_per_miss});
      },
      "nest"_a, "machine"_a, py::kw_only(), "lines_per_miss"_a = 1, R"doc(
    Count what a loop nest asks of caches by running through its accesses, one after the other.

    Caches are those of the machine, each for this core alone, empty at the beginning, set-associative, replacing what was used
    longest ago; a store reads its line first. So is the TLB, of pages. It takes some fifty nanoseconds an element that is read or written.

    Args:
        nest: what a schedule makes of a program, without parameters.
        machine: the model, of this machine or another.
        lines_per_miss: lines that a miss of the first cache brings, itself and those behind it; 1 to 1024. The ALT paper (5.1)
            sees four on a Cortex-A76.
    Raises:
        ShapeError: the nest has parameters, or ``lines_per_miss`` is out of range.
)doc");
  m.def(
      "nest_features",
      [](const nest::LoopNest& nest, const Machine& machine, int threads) {
        const py::gil_scoped_release unlocked;
        return machine::features_of(machine::predict(nest, machine, {.threads = threads}));
      },
      "nest"_a, "machine"_a, py::kw_only(), "threads"_a = 1,
      "What a learned cost model sees of a nest: logarithms of counts, in the order of ``feature_names()``.");
  m.def(
      "feature_names",
      [] {
        std::vector<std::string> names;
        for (const auto name : machine::feature_names()) names.emplace_back(name);
        return names;
      },
      "Names of the numbers that ``nest_features`` returns.");
}

}  // namespace

void bind_machine(py::module_& m) {
  bind_models(m);
  bind_predict(m);
}
