// bindings/bind_emit.cpp — programs as text for other systems, in Python.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "emit/emit.hpp"
#include "support/fork_gate.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

void bind_emit(py::module_& m) {
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
