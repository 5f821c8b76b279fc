// bindings/bind_emit.cpp — programs as text for other systems, in Python.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "emit/emit.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

void bind_emit(py::module_& m) {
  using syno::program::Program;
  const auto unlocked = [](auto&& work) {
    const py::gil_scoped_release release;
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
}
