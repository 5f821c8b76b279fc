// bindings/bind_emit.cpp — programs as text for other systems, in Python.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <nlohmann/json.hpp>

#include "emit/emit.hpp"
#include "machine/gpu.hpp"
#include "support/fork_gate.hpp"
#include "support/json.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace {

using syno::machine::Gpu;

Gpu gpu_from_text(const std::string& text) {
  return syno::machine::gpu_from_json(syno::parse_json("machine", text));
}

const char* word_of(syno::emit::TileKind kind) {
  switch (kind) {
    case syno::emit::TileKind::Points:
      return "points";
    case syno::emit::TileKind::Reduced:
      return "reduced";
    default:
      return "product";
  }
}

std::string shown(const syno::emit::TritonKernel& kernel) {
  const syno::emit::Tile& tile = kernel.tile;
  return fmt::format(
      "{}: {} of {} x {} x {}, {} warps, {} stages, {} parts of {} steps{}, {:.3g} us predicted",
      kernel.output, word_of(tile.kind), tile.rows, tile.columns, tile.depth, tile.warps, tile.stages,
      tile.parts, tile.steps, tile.split_tf32 ? " by TF32" : "", tile.seconds * 1e6);
}

void bind_gpu(py::module_& m) {
  py::class_<Gpu>(m, "GpuModel", R"doc(
    What a GPU computes a second and what its memories give. Immutable.

    Tiles of Triton kernels are chosen from it alone, so that text can be written for a GPU that is not here.
)doc")
      .def_readonly("name", &Gpu::name)
      .def_readonly("source", &Gpu::source, "Where the figures come from.")
      .def_readonly("multiprocessors", &Gpu::multiprocessors)
      .def_readonly("ghz", &Gpu::ghz, "Boost clock, which the rates belong to.")
      .def_readonly("fp32_tflops", &Gpu::fp32_tflops, "1e12 operations a second; a multiply-add is two.")
      .def_readonly("fp64_tflops", &Gpu::fp64_tflops)
      .def_readonly("tensor_tflops", &Gpu::tensor_tflops, "Of float16 or bfloat16, summed in float32, dense.")
      .def_readonly("memory_gbs", &Gpu::memory_gbs, "1e9 bytes a second.")
      .def_readonly("l2_gbs", &Gpu::l2_gbs, "1e9 bytes a second.")
      .def_readonly("l2_bytes", &Gpu::l2_bytes)
      .def_readonly("shared_bytes_per_block", &Gpu::shared_bytes_per_block)
      .def_readonly("measured", &Gpu::measured, "By programs; otherwise figures of data sheets.")
      .def(
          "to_json", [](const Gpu& gpu) { return syno::machine::to_json(gpu).dump(1); },
          "The GPU file, as text; ``from_json`` reads it back.")
      .def_static("from_json", &gpu_from_text, "text"_a, R"doc(
    Read a GPU file.

    Raises:
        FormatError: names the path of what is missing, unknown, of another type or impossible.
)doc")
      .def(
          "__eq__", [](const Gpu& a, const Gpu& b) { return a == b; }, py::is_operator())
      .def("__hash__", [](const Gpu& gpu) { return py::hash(py::str(syno::machine::to_json(gpu).dump())); })
      .def("__str__", [](const Gpu& gpu) { return syno::machine::to_text(gpu); })
      .def("__repr__", [](const Gpu& gpu) {
        return fmt::format("<GpuModel {}, {:.1f} TFLOP/s>", gpu.name, gpu.fp32_tflops);
      });
  using syno::emit::TritonKernel;
  using syno::emit::TritonText;
  py::class_<TritonKernel>(m, "TritonKernel", "The tiles of one kernel, and how long it should take.")
      .def_readonly("output", &TritonKernel::output, "The tensor that it computes.")
      .def_property_readonly(
          "kind", [](const TritonKernel& k) { return word_of(k.tile.kind); },
          "\"points\": a term of every result after the other; \"reduced\": many terms at a time; "
          "\"product\": of "
          "matrices, by ``tl.dot``.")
      .def_property_readonly(
          "rows", [](const TritonKernel& k) { return k.tile.rows; }, "Of a block's results.")
      .def_property_readonly(
          "columns", [](const TritonKernel& k) { return k.tile.columns; }, "The same.")
      .def_property_readonly(
          "depth", [](const TritonKernel& k) { return k.tile.depth; }, "Terms at a time.")
      .def_property_readonly(
          "parts", [](const TritonKernel& k) { return k.tile.parts; },
          "Blocks that share the terms of a result; a second kernel adds up what they make.")
      .def_property_readonly(
          "blocks", [](const TritonKernel& k) { return k.tile.blocks; }, "That the kernel is started with.")
      .def_property_readonly(
          "steps", [](const TritonKernel& k) { return k.tile.steps; }, "Of `depth` terms that a block takes.")
      .def_property_readonly("warps", [](const TritonKernel& k) { return k.tile.warps; })
      .def_property_readonly("stages", [](const TritonKernel& k) { return k.tile.stages; })
      .def_property_readonly(
          "seconds", [](const TritonKernel& k) { return k.tile.seconds; }, "Predicted.")
      .def_property_readonly(
          "times",
          [](const TritonKernel& k) {
            const auto& t = k.tile.times;
            return std::map<std::string, double>{{"arithmetic", t.arithmetic}, {"indices", t.indices},
                                                 {"shared", t.shared},         {"cached", t.cached},
                                                 {"memory", t.memory},         {"waiting", t.waiting}};
          },
          "Predicted seconds where only multiply-adds, index arithmetic, shared memory, L2, memory or the "
          "latency of loads "
          "held it up.")
      .def_property_readonly(
          "split_tf32", [](const TritonKernel& k) { return k.tile.split_tf32; },
          "Whether a float32 product is three of TF32, on tensor cores.")
      .def_readonly("candidates", &TritonKernel::candidates, "Tiles that there were to choose from.")
      .def("__repr__", &shown);
  py::class_<TritonText>(m, "TritonText", "A program as Triton kernels.")
      .def_readonly("source", &TritonText::source, "A Python module with ``run(*inputs)``.")
      .def_readonly("kernels", &TritonText::kernels, "One a scope.")
      .def_readonly("seconds", &TritonText::seconds,
                    "Predicted, of one run on the GPU that it was written for.")
      .def("__str__", [](const TritonText& text) { return text.source; })
      .def("__repr__", [](const TritonText& text) {
        return fmt::format("<TritonText, {} kernels, {:.3g} us predicted>", text.kernels.size(),
                           text.seconds * 1e6);
      });
}

}  // namespace

void bind_emit(py::module_& m) {
  bind_gpu(m);
  using syno::program::Program;
  const auto unlocked = [](auto&& work) {
    const py::gil_scoped_release release;
    const syno::ForkSection section;  // of the tables that are made at first use
    return work();
  };
  m.def(
      "emit_pytorch",
      [unlocked](const Program& program, const std::string& class_name) {
        return unlocked([&] { return syno::emit::to_pytorch(program, class_name); });
      },
      "program"_a, "class_name"_a = "Operator", R"doc(
    A PyTorch module that computes the program: plain ATen, differentiable, the same function.

    Each scope becomes views, pads and rolls of what it reads and then one convolution, ``einsum`` or element-wise
    expression. ``forward`` takes the inputs with the role ``"input"`` in order; weights are parameters of the same
    names. Where the first dimension of every input only passes through, any batch size works.

    Args:
        program: concrete, or with a single valuation.
        class_name: the name of the class, a Python identifier.
    Returns:
        The source of a Python module that needs only ``torch``; its class takes ``dtype`` and ``device``.
    Raises:
        ShapeError: the program has several valuations; choose one with ``at``. Or ``class_name`` is no identifier.
        VerifyError: the program is not well formed.
    Source:
        The PyTorch code generator of Syno §8.
)doc");
  m.def(
      "emit_te",
      [unlocked](const Program& program, const std::string& dtype) {
        return unlocked([&] { return syno::emit::to_te(program, dtype); });
      },
      "program"_a, "dtype"_a = "float32", R"doc(
    TVM tensor expressions that compute the program.

    Args:
        program: concrete, or with a single valuation.
        dtype: of every tensor, as TVM names it.
    Returns:
        The source of a Python module with ``build() -> (inputs, outputs)``: the placeholders in the order of
        ``program.inputs``, and the output tensors. It needs only ``tvm.te``.
    Raises:
        ShapeError: the program has several valuations; choose one with ``at``.
        VerifyError: the program is not well formed.
    Source:
        The TVM TE code generator of Syno §8.
)doc");
  m.def(
      "emit_triton",
      [unlocked](const Program& program, const Gpu& gpu, const std::string& dtype,
                 std::optional<std::uint64_t> variant, const std::string& precision,
                 const std::vector<std::size_t>& ranks) {
        return unlocked(
            [&] { return syno::emit::to_triton(program, gpu, {dtype, variant, precision, ranks}); });
      },
      "program"_a, "gpu"_a, "dtype"_a = "float32", py::kw_only(), "variant"_a = py::none(),
      "precision"_a = "ieee", "ranks"_a = std::vector<std::size_t>{}, R"doc(
    Triton kernels that compute the program, a kernel a scope, with tiles chosen from the model of a GPU.

    A scope is a matrix product (``tl.dot``) where its factors can be shared out to two operands and
    that is predicted to be the fastest; otherwise its terms are multiplied and added up. Results are the same at each
    run, but for accumulating scopes, which add atomically.

    Args:
        program: concrete, or with a single valuation.
        dtype: of inputs and outputs: "float32", "float64", or "float16" and "bfloat16", which compute in float32.
        variant: a number that chooses other tiles among those that fit than the ones predicted to be the fastest.
        precision: of float32 products: "ieee", or "tf32x3", which lets tensor cores compute one as three of TF32 where
            that is predicted to be faster. A value that rounds to more than the largest TF32 number is infinite then.
        ranks: for each scope, which candidate is taken: 0 is the one predicted to be the fastest, and first come those
            that differ in shape. Beyond the last it is the last.
    Returns:
        The source of a Python module that needs only ``torch`` and ``triton``; ``run(*inputs)`` takes the tensors in the
        order of ``program.inputs`` and returns a tuple of outputs.
    Raises:
        ShapeError: the program has several valuations; choose one with ``at``.
        UnknownName: no such dtype or precision.
        KernelError: the program has a function that Triton lacks.
        VerifyError: the program is not well formed.
)doc");
  m.def(
      "emit_c",
      [unlocked](const Program& program, const std::string& function, bool double_precision,
                 std::size_t points, std::uint64_t seed) {
        return unlocked(
            [&] { return syno::emit::to_c(program, {function, double_precision, points, seed}); });
      },
      "program"_a, py::kw_only(), "function"_a = "syno_operator", "double_precision"_a = false,
      "points"_a = 32, "seed"_a = 0, R"doc(
    C11 that computes the program and checks itself.

    ``main`` fills the inputs from a fixed sequence, runs the function, compares sampled elements of every output with
    values that the interpreter gave, prints one line and returns 0 only if all agree.

    Args:
        program: concrete, or with a single valuation.
        function: the name of the C function.
        double_precision: compute in ``double`` instead of ``float``.
        points: elements of each output to compare.
        seed: chooses the points.
    Returns:
        A translation unit; ``cc -std=c11 file.c -lm`` builds it.
    Raises:
        ShapeError: the program has several valuations; choose one with ``at``. Or ``function`` is no C identifier.
        VerifyError: the program is not well formed.
)doc");
  m.def(
      "emit_latex",
      [unlocked](const Program& program) { return unlocked([&] { return syno::emit::to_latex(program); }); },
      "program"_a, R"doc(
    The program as mathematics, for papers and notebooks: LaTeX without the dollars, several scopes as lines of
    ``aligned``.

    Comparisons, 1 where they hold, stand in Iverson's brackets; ranges that begin at 0 are left out, and what a read
    gives outside of its tensor where that is 0.

    Args:
        program: any program; symbolic sizes are printed as such.
    Raises:
        VerifyError: the program is not well formed.
)doc");
  m.def(
      "emit_graphviz",
      [unlocked](const Program& program) {
        return unlocked([&] { return syno::emit::to_graphviz(program); });
      },
      "program"_a, R"doc(
    The program as a graph in the dot language: tensors with roles and shapes, and the scopes between them.

    Args:
        program: any program; symbolic sizes are printed as such.
    Raises:
        VerifyError: the program is not well formed.
)doc");
}
