// bindings/bind_jit.cpp — native kernels in Python: compile, call on any array in place, verify, look inside.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <optional>

#include "bindings/arrays.hpp"
#include "bindings/dtypes.hpp"
#include "jit/codegen.hpp"
#include "jit/kernel.hpp"
#include "jit/runtime.hpp"
#include "support/bfloat16.hpp"
#include "support/build_id.hpp"
#include "support/checked.hpp"
#include "support/error.hpp"
#include "support/memory.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace {

using namespace syno;
using bindings::BorrowedArray;
using jit::Kernel;
using nest::Buffer;
using nest::BufferKind;
using nest::Dtype;

void warn(const std::string& message) {
  const py::gil_scoped_acquire lock;
  py::module_::import("logging").attr("getLogger")("syno").attr("warning")("%s", message);
}

bool is_torch(const py::handle& object) {
  const auto module = py::str(py::type::handle_of(object).attr("__module__")).cast<std::string>();
  return module == "torch" || module.starts_with("torch.");
}

/// As the first input is: a torch tensor, or a NumPy array.
py::object new_output(const Buffer& buffer, const py::args& arrays) {
  const char* name = bindings::long_name(buffer.dtype);
  std::int64_t count = 1;
  for (const std::int64_t extent : buffer.extents) count = checked_multiply(count, extent);
  require_memory("kernel",
                 fmt::format("output `{}` of shape [{}]", buffer.name, fmt::join(buffer.extents, ", ")),
                 count, static_cast<std::int64_t>(nest::byte_size(buffer.dtype)));
  if (!arrays.empty() && is_torch(arrays[0])) {
    const py::module_ module = py::module_::import("torch");
    return module.attr("empty")(py::tuple(py::cast(buffer.extents)), "dtype"_a = module.attr(name));
  }
  py::object dtype = py::str(name);
  if (buffer.dtype == Dtype::BF16) {
    const bool bits = !arrays.empty() && py::isinstance<py::array_t<std::uint16_t>>(arrays[0]);
    if (bits)
      dtype = py::str("uint16");
    else
      dtype = py::module_::import("ml_dtypes").attr(name);
  }
  return py::module_::import("numpy").attr("empty")(py::tuple(py::cast(buffer.extents)), "dtype"_a = dtype);
}

int thread_count(const std::optional<int>& threads) {
  if (!threads) return 1;
  if (*threads < 1) fail<KernelError>("kernel", "num_threads is {}; it must be at least 1", *threads);
  return *threads;
}

/// A call's arrays in place: inputs as given, outputs given or new ones.
struct Arguments {
  std::vector<py::object> results;
  std::vector<BorrowedArray> borrowed;
  std::vector<jit::View> views;
};

Arguments arguments_of(const Kernel& kernel, const py::args& arrays, const py::object& out) {
  const nest::LoopNest& nest = kernel.nest();
  std::vector<const Buffer*> inputs, outputs;
  for (const nest::BufferId id : nest::arguments(nest)) {
    const Buffer& buffer = nest.buffer(id);
    (buffer.kind == BufferKind::Input ? inputs : outputs).push_back(&buffer);
  }
  if (arrays.size() != inputs.size()) {
    std::string names;
    for (const Buffer* buffer : inputs) names += (names.empty() ? "" : ", ") + buffer->name;
    fail<ShapeError>("kernel " + nest.name, "{} arrays for {} inputs: {}", arrays.size(), inputs.size(),
                     names);
  }
  Arguments made;
  if (out.is_none()) {
    for (const Buffer* buffer : outputs) made.results.push_back(new_output(*buffer, arrays));
  } else if (py::isinstance<py::tuple>(out) || py::isinstance<py::list>(out)) {
    for (const py::handle& each : out) made.results.push_back(py::reinterpret_borrow<py::object>(each));
  } else {
    made.results.push_back(out);
  }
  if (made.results.size() != outputs.size())
    fail<ShapeError>("kernel " + nest.name, "{} arrays for {} outputs", made.results.size(), outputs.size());
  made.borrowed.reserve(inputs.size() + outputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i)
    made.borrowed.emplace_back(arrays[i], inputs[i]->name, inputs[i]->dtype, false);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    made.borrowed.emplace_back(made.results[i], outputs[i]->name, outputs[i]->dtype, true);
  for (const BorrowedArray& array : made.borrowed) made.views.push_back(array.view());
  return made;
}

py::object call(const Kernel& kernel, const py::args& arrays, const py::object& out,
                std::optional<int> num_threads) {
  const int threads = thread_count(num_threads);
  const Arguments made = arguments_of(kernel, arrays, out);
  {
    const py::gil_scoped_release unlocked;
    kernel.variant_for(made.views).call(made.views, threads);
  }
  if (made.results.size() == 1) return made.results[0];
  return py::tuple(py::cast(made.results));
}

const Kernel& for_arrays(const Kernel& kernel, const py::args& arrays, const py::object& out) {
  const Arguments made = arguments_of(kernel, arrays, out);
  const py::gil_scoped_release unlocked;
  return kernel.variant_for(made.views);
}

void call_pointers(const Kernel& kernel, const py::sequence& pointers, int threads) {
  const std::size_t wanted = kernel.argument_count();
  const std::size_t given = py::len(pointers);
  if (given != wanted)
    fail<ShapeError>("kernel " + kernel.nest().name, "{} pointers for {} arguments (inputs, then outputs)",
                     given, wanted);
  if (!kernel.nest().parameters.empty())
    fail<ShapeError>("kernel " + kernel.nest().name,
                     "it has {} sizes that a call brings along; call what at() gives for them",
                     kernel.nest().parameters.size());
  std::array<void*, 32> few;
  std::vector<void*> many;
  void** all = few.data();
  if (wanted > few.size()) {
    many.resize(wanted);
    all = many.data();
  }
  for (std::size_t i = 0; i < wanted; ++i) {
    const py::object pointer = pointers[i];
    all[i] = PyLong_AsVoidPtr(pointer.ptr());
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  }
  kernel.require_runs_here();
  const py::gil_scoped_release unlocked;
  kernel.call_unchecked(all, threads);
}

/// The user's secret, before a cache directory is first used; with the GIL.
void share_secret() {
  static bool shared = false;
  if (shared) return;
  shared = true;
  py::module_::import("syno.kernels.cache").attr("share_secret")();
}

}  // namespace

namespace {

/// Row-major elements of a buffer, as or from numbers in double precision.
template <class Element, class Visit>
void for_elements(void* memory, std::int64_t count, const Visit& visit) {
  auto* const at = static_cast<Element*>(memory);
  for (std::int64_t i = 0; i < count; ++i) visit(at[i], i);
}

jit::Verification verify_elsewhere(const program::Program& program, const nest::LoopNest& nest,
                                   const py::function& run, std::uint64_t seed) {
  const auto count_of = [](const nest::Buffer& buffer) {
    std::int64_t count = 1;
    for (const std::int64_t extent : buffer.extents) count *= extent;
    return count;
  };
  const auto call = [&](const std::map<std::string, void*>& memory) {
    py::list inputs;
    std::vector<const nest::Buffer*> outputs;
    for (const nest::BufferId id : nest::arguments(nest)) {
      const nest::Buffer& buffer = nest.buffer(id);
      if (buffer.kind != nest::BufferKind::Input) {
        outputs.push_back(&buffer);
        continue;
      }
      py::array_t<double> array(buffer.extents);
      double* const to = array.mutable_data();
      void* const from = memory.at(buffer.name);
      if (buffer.dtype == nest::Dtype::F64)
        for_elements<double>(from, count_of(buffer), [&](double value, std::int64_t i) { to[i] = value; });
      else if (buffer.dtype == nest::Dtype::F32)
        for_elements<float>(from, count_of(buffer), [&](float value, std::int64_t i) { to[i] = value; });
      else
        for_elements<std::uint16_t>(from, count_of(buffer), [&](std::uint16_t value, std::int64_t i) {
          to[i] = from_bfloat16(value);
        });
      inputs.append(std::move(array));
    }
    const auto results =
        run(inputs).cast<std::vector<py::array_t<double, py::array::c_style | py::array::forcecast>>>();
    if (results.size() != outputs.size())
      fail<ShapeError>("verify", "{} outputs, not {}", results.size(), outputs.size());
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      const nest::Buffer& buffer = *outputs[o];
      const auto& result = results[o];
      if (std::vector<std::int64_t>(result.shape(), result.shape() + result.ndim()) != buffer.extents)
        fail<ShapeError>("verify", "output {} is not of shape [{}]", buffer.name,
                         fmt::join(buffer.extents, ", "));
      const double* const from = result.data();
      void* const to = memory.at(buffer.name);
      if (buffer.dtype == nest::Dtype::F64)
        for_elements<double>(to, count_of(buffer), [&](double& value, std::int64_t i) { value = from[i]; });
      else if (buffer.dtype == nest::Dtype::F32)
        for_elements<float>(to, count_of(buffer),
                            [&](float& value, std::int64_t i) { value = static_cast<float>(from[i]); });
      else
        for_elements<std::uint16_t>(to, count_of(buffer), [&](std::uint16_t& value, std::int64_t i) {
          value = to_bfloat16(static_cast<float>(from[i]));
        });
    }
  };
  return jit::verify(nest, call, program, seed);
}

}  // namespace

void bind_jit(py::module_& m) {
  jit::set_warning_handler(warn);

  py::class_<machine::Cpu>(m, "Cpu",
                           "The CPU code is generated for: name, exact features, vector width, caches.")
      .def_readonly("triple", &machine::Cpu::triple)
      .def_readonly("name", &machine::Cpu::name)
      .def_readonly("features", &machine::Cpu::features)
      .def_readonly("enabled", &machine::Cpu::enabled,
                    "Instruction sets that code for it may use, in LLVM's names.")
      .def_property_readonly(
          "scalable_bits", [](const machine::Cpu& cpu) { return cpu.info.scalable_bits; },
          "Width of the SVE registers that code for it needs, exactly; 0 where it needs none.")
      .def_readonly("runs_here", &machine::Cpu::here, "Whether kernels for it can be called in this process.")
      .def_property_readonly("vector_bits", [](const machine::Cpu& cpu) { return cpu.target.vector_bits; })
      .def_property_readonly("vector_registers",
                             [](const machine::Cpu& cpu) { return cpu.target.vector_registers; })
      .def_property_readonly("threads", [](const machine::Cpu& cpu) { return cpu.target.threads; })
      .def_property_readonly("l1_bytes", [](const machine::Cpu& cpu) { return cpu.target.l1_bytes; })
      .def_property_readonly("l2_bytes", [](const machine::Cpu& cpu) { return cpu.target.l2_bytes; })
      .def_property_readonly("l3_bytes", [](const machine::Cpu& cpu) { return cpu.target.l3_bytes; })
      .def("__repr__", [](const machine::Cpu& cpu) { return "Cpu(" + cpu.name + ", " + cpu.triple + ")"; });
  m.def("build_id", &build_id,
        "Identifies this build of the extension, for caches of what it makes: hexadecimal digits.");
  m.def("llvm_version", &jit::llvm_version, "Version of the LLVM that generates code, as text.");
  m.def("host_cpu", &jit::host_cpu, py::return_value_policy::reference, R"doc(
    This machine's CPU, or the one that the environment variable ``SYNO_CPU`` names.

    Raises:
        UnknownName: ``SYNO_CPU`` names no CPU.
)doc");
  m.def(
      "cpu_named",
      [](const std::string& name, const std::optional<std::string>& target) {
        return target ? jit::cpu_named(name, *target) : jit::cpu_named(name);
      },
      "name"_a, "target"_a = py::none(), R"doc(
    A CPU to generate code for: ``host``, ``generic``, or a name LLVM knows (``x86-64-v3``, ``znver4``).

    Args:
        target: a triple, ``x86_64-linux-gnu`` or ``aarch64-linux-gnu``; default this machine's. On AArch64
            ``generic+sve256`` is any CPU with SVE registers of 256 bits (128, 512).
    Raises:
        UnknownName: no such target, or no such CPU of it; the message lists the valid names.
)doc");

  py::class_<jit::LoopCode>(m, "LoopCode", "Instructions of one innermost loop of machine code.")
      .def_readonly("instructions", &jit::LoopCode::instructions)
      .def_readonly("multiply_adds", &jit::LoopCode::multiply_adds, "Fused ones.")
      .def_readonly("loads", &jit::LoopCode::loads, "That read memory, whatever else they do.")
      .def_readonly("stores", &jit::LoopCode::stores, "That only write it.")
      .def_readonly("spills", &jit::LoopCode::spills, "Of the stores: vector registers put on the stack.")
      .def_readonly("reloads", &jit::LoopCode::reloads, "Of the loads: taken from there.")
      .def("__repr__", [](const jit::LoopCode& loop) {
        return fmt::format(
            "LoopCode(instructions={}, multiply_adds={}, loads={}, stores={}, spills={}, reloads={})",
            loop.instructions, loop.multiply_adds, loop.loads, loop.stores, loop.spills, loop.reloads);
      });

  py::class_<jit::CompileReport>(m, "CompileReport",
                                 "What one compilation took and gave; milliseconds and bytes.")
      .def_readonly("build_ms", &jit::CompileReport::build_ms)
      .def_readonly("codegen_ms", &jit::CompileReport::codegen_ms)
      .def_readonly("link_ms", &jit::CompileReport::link_ms)
      .def_readonly("from_cache", &jit::CompileReport::from_cache)
      .def_readonly("code_bytes", &jit::CompileReport::code_bytes)
      .def_readonly("spills", &jit::CompileReport::spills)
      .def_readonly(
          "hot_spills", &jit::CompileReport::hot_spills,
          "Of the spills, those of an iteration of the deepest loop; one a loop further out counts a 32nd.")
      .def("__repr__", [](const jit::CompileReport& report) {
        return fmt::format(
            "CompileReport(build_ms={:.2f}, codegen_ms={:.2f}, link_ms={:.2f}, from_cache={}, "
            "code_bytes={}, spills={})",
            report.build_ms, report.codegen_ms, report.link_ms, report.from_cache ? "True" : "False",
            report.code_bytes, report.spills);
      });

  py::class_<jit::Verification>(m, "Verification", "A kernel against the interpreter; true when it passed.")
      .def_readonly("passed", &jit::Verification::passed)
      .def_readonly("max_rel_err", &jit::Verification::max_rel_err)
      .def_readonly("limit", &jit::Verification::limit)
      .def_readonly("points", &jit::Verification::points)
      .def_readonly("detail", &jit::Verification::detail)
      .def("__bool__", [](const jit::Verification& result) { return result.passed; })
      .def("__repr__", [](const jit::Verification& result) {
        return fmt::format("Verification(passed={}, max_rel_err={:.2e}, limit={:.0e}, points={}, worst: {})",
                           result.passed ? "True" : "False", result.max_rel_err, result.limit, result.points,
                           result.detail);
      });

  py::class_<Kernel, std::shared_ptr<Kernel>>(m, "Kernel", R"doc(
    Machine code of one loop nest. Thread-safe.

    Calls take anything with the buffer protocol or ``__dlpack__`` (NumPy arrays, torch tensors on the CPU) in place,
    with any strides: other strides than the nest's compile a variant of the kernel, once.
)doc")
      .def("__call__", &call, "out"_a = py::none(), "num_threads"_a = py::none(), R"doc(
    Computes the outputs.

    Args:
        arrays: the inputs in the nest's order, of its shapes and dtypes; bfloat16 as torch tensors, as
            ml_dtypes.bfloat16, or as their bits in uint16.
        out: an array (or a sequence of them, one an output) to write into, of any strides; default new ones.
        num_threads: threads of syno's own pool; default 1. The result does not depend on it.
    Returns:
        The output, or a tuple of them; torch tensors when the first input is one, else NumPy arrays (of bits where
        it is one of bits).
    Raises:
        ShapeError: the count or a shape differs; an output shares memory with another argument or with itself.
        KernelError: another dtype or device, or memory that cannot be read or written in place.
)doc")
      .def("for_arrays", &for_arrays, "out"_a = py::none(), py::return_value_policy::reference_internal,
           R"doc(
    The kernel for arrays with these strides: this one, or a variant that is compiled when first asked for.

    Args:
        arrays, out: as for a call.
    Raises:
        ShapeError, KernelError: as for a call.
)doc")
      .def(
          "call_pointers", &call_pointers, "pointers"_a, "threads"_a = 1,
          "One call on addresses of arrays with the nest's strides, inputs then outputs; nothing is checked.")
      .def(
          "verify",
          [](const Kernel& kernel, const program::Program& program, std::uint64_t seed, std::size_t points) {
            const py::gil_scoped_release unlocked;
            return jit::verify(kernel, program, seed, {.random_points = points});
          },
          "program"_a, "seed"_a = 0, "random_points"_a = jit::Effort{}.random_points, R"doc(
    Compares with the program's interpreter on random inputs: all corners of every output, both sides of each tail and
    border region of the nest, and random points.

    Args:
        program: what the kernel should compute.
        seed: of the inputs and the random points.
        random_points: of them, at least; fewer only where each adds up very many terms.
    Raises:
        KernelError: the program's inputs and outputs are not the kernel's.
)doc")
      .def("at", &Kernel::at, "parameters"_a, R"doc(
    This code for one value of each parameter of its nest: a kernel that can be called, without compiling anything.

    Raises:
        ShapeError: a value is outside of its range, or there are too few or too many.
)doc")
      .def("viewed", &Kernel::viewed, "shapes"_a, R"doc(
    This code on row-major arrays of other shapes, each of as many elements as before, in call order.

    Raises:
        ShapeError: another number of shapes, or of elements.
)doc")
      .def("llvm", &Kernel::llvm, py::call_guard<py::gil_scoped_release>(), "The LLVM IR as text.")
      .def("assembly", &Kernel::assembly, py::call_guard<py::gil_scoped_release>(),
           "The machine code as text.")
      .def_property_readonly("nest", &Kernel::nest, "The loop nest.")
      .def(
          "loops", [](const Kernel& kernel) { return nest::to_text(kernel.nest()); },
          "The loop nest as text.")
      .def(
          "object_bytes", [](const Kernel& kernel) { return py::bytes(kernel.object()); },
          "The ELF object; linking it needs no LLVM.")
      .def_property_readonly(
          "arguments",
          [](const Kernel& kernel) {
            std::vector<std::tuple<std::string, bool, std::vector<std::int64_t>>> all;
            for (const nest::BufferId id : nest::arguments(kernel.nest())) {
              const auto& buffer = kernel.nest().buffer(id);
              all.emplace_back(buffer.name, buffer.kind == nest::BufferKind::Output, buffer.extents);
            }
            return all;
          },
          "(name, whether it is written, shape) of each argument, in call order.")
      .def_property_readonly(
          "dtypes",
          [](const Kernel& kernel) {
            std::vector<std::string> all;
            for (const nest::BufferId id : nest::arguments(kernel.nest()))
              all.emplace_back(bindings::long_name(kernel.nest().buffer(id).dtype));
            return all;
          },
          "The dtype of each argument, in call order.")
      .def_property_readonly(
          "innermost_loops",
          [](const Kernel& kernel) {
            const py::gil_scoped_release unlocked;
            return jit::innermost_loops(kernel.object(), kernel.cpu());
          },
          "What the innermost loops of the machine code are made of, in its order.")
      .def_property_readonly("cpu", &Kernel::cpu, "The CPU it was compiled for.")
      .def_property_readonly("symbol", &Kernel::symbol, "The kernel's function in the object.")
      .def_property_readonly("workspace_bytes", &Kernel::workspace_bytes,
                             "(shared, for each thread): memory a caller of the bare object provides.")
      .def_property_readonly("report", &Kernel::report)
      .def_property_readonly("key", &Kernel::key, "Of the object cache: 32 hexadecimal digits.")
      .def_property_readonly("digest", &Kernel::digest,
                             "Of the key and the object itself, by the cache's secret: 64 hexadecimal "
                             "digits; empty where compiled fresh.");

  m.def(
      "run_on_openmp",
      [](std::uintptr_t parallel, std::uintptr_t thread_number) {
        jit::run_on({reinterpret_cast<decltype(jit::OpenMp::parallel)>(parallel),
                     reinterpret_cast<decltype(jit::OpenMp::thread_number)>(thread_number)});
      },
      "parallel"_a, "thread_number"_a, R"doc(
    Run kernels on the threads of an OpenMP runtime of this process, those that another library computes on.

    Args:
        parallel: address of libgomp's ``GOMP_parallel``; 0: kernels run on a pool of their own again.
        thread_number: address of its ``omp_get_thread_num``.
)doc");
  m.def("warm_workspace", &jit::warm_workspace, "bytes"_a, py::call_guard<py::gil_scoped_release>(), R"doc(
    Reads so much of the memory that the calling thread keeps for kernels' temporaries: it lies in the caches then, as
    between the kernels of a network, which all use the same.

    Args:
        bytes: as of `Kernel.workspace_bytes`; what there is of them is read.
)doc");
  m.def(
      "verify_prepacked",
      [](const Kernel& prepack, const Kernel& call, const program::Program& program, std::uint64_t seed,
         std::size_t points) {
        const py::gil_scoped_release unlocked;
        return jit::verify(prepack, call, program, seed, {.random_points = points});
      },
      "prepack"_a, "call"_a, "program"_a, "seed"_a = 0, "random_points"_a = jit::Effort{}.random_points,
      R"doc(
    Compares the two kernels of `apply_prepacked`, one after the other, with the program's interpreter, as
    `Kernel.verify` does.

    Raises:
        KernelError: the program's inputs and outputs are not the kernels'.
)doc");
  m.def(
      "verify_at_sizes",
      [](std::optional<const Kernel*> prepack, const std::vector<const Kernel*>& calls,
         const std::vector<const program::Program*>& programs, std::uint64_t seed, std::size_t points) {
        if (calls.size() != programs.size())
          fail<ShapeError>("verify", "{} kernels, but {} programs", calls.size(), programs.size());
        // An element that is None comes as no pointer.
        if (std::count(calls.begin(), calls.end(), nullptr) +
            std::count(programs.begin(), programs.end(), nullptr))
          throw py::type_error("verify_at_sizes takes a kernel and a program for each size, not None");
        std::vector<jit::SizedKernel> sized;
        for (std::size_t i = 0; i < calls.size(); ++i) sized.push_back({calls[i], programs[i]});
        const py::gil_scoped_release unlocked;
        return jit::verify_at_sizes(prepack.value_or(nullptr), sized, seed, {.random_points = points});
      },
      "prepack"_a, "calls"_a, "programs"_a, "seed"_a = 0, "random_points"_a = jit::Effort{}.random_points,
      R"doc(
    Compares kernels of a program for several sizes with its interpreter, as `Kernel.verify` does, until one does not pass.
    What has one shape at all sizes, as weights have, is drawn and packed once.

    Args:
        prepack: of `apply_prepacked`, what packs constants for all of them; None where there is no such kernel.
        calls: a kernel for each size, such as `Kernel.at` gives.
        programs: what each should compute.
        seed: of the inputs and the random points.
        random_points: of each.
    Returns:
        As many as were compared, each as `Kernel.verify` gives it.
    Raises:
        ShapeError: there are not as many programs as kernels.
        KernelError: a program's inputs and outputs are not the kernels'.
)doc");
  m.def("verify_elsewhere", &verify_elsewhere, "program"_a, "nest"_a, "run"_a, "seed"_a = 0, R"doc(
    Compares what computes a program elsewhere, on a GPU for example, with its interpreter, as `Kernel.verify` does.

    Args:
        nest: of the same program; says which dtype the arguments have and where to look closely.
        run: gets a list of the inputs as float64 arrays, whose values the dtype holds, and returns a list of the outputs
            as float64 arrays.
    Raises:
        KernelError: the program's inputs and outputs are not the nest's.
        ShapeError: an output has another shape.
)doc");
  m.def(
      "compile_nest",
      [](const nest::LoopNest& nest, const std::string& cache_directory,
         const std::optional<machine::Cpu>& cpu, bool fresh) {
        if (!cache_directory.empty()) share_secret();
        const py::gil_scoped_release unlocked;
        jit::CompileOptions options;
        options.cache_directory = cache_directory;
        options.cpu = cpu ? &*cpu : nullptr;
        options.fresh = fresh;
        return jit::compile(nest, options);
      },
      "nest"_a, py::kw_only(), "cache_directory"_a = "", "cpu"_a = py::none(), "fresh"_a = false, R"doc(
    Compiles a loop nest.

    Args:
        cache_directory: where compiled objects are kept; empty: nowhere.
        cpu: of `cpu_named`; default `host_cpu()`.
        fresh: compile even what this process or the cache already has, to time it.
    Raises:
        ScheduleError: the nest does not verify.
        KernelError: no code can be made of it.
)doc");
}
