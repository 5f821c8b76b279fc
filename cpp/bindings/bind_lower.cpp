// bindings/bind_lower.cpp — lowering in Python: methods of PGraph that give tensor programs.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "lower/lower.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

void bind_lower(py::module_& m) {
  using syno::pgraph::CompleteGraph;
  const py::object graph = m.attr("PGraph");
  auto type = py::reinterpret_borrow<py::class_<CompleteGraph>>(graph);
  type.def(
      "one_scope",
      [](const CompleteGraph& self) {
        const py::gil_scoped_release release;
        return syno::lower::one_scope(self);
      },
      R"doc(
    The operator as one tensor expression, symbolic over the sizes of its signature.

    Returns:
        A program ``y[...] = sum[...] x[...] * w1[...] * ...``; weights have the role ``"weight"`` and are named in
        the order of the pGraph's contractions.
    Source:
        Syno, Table 1: the coordinates of the output, pushed through the primitives, index input and weights.
)doc");
  type.def(
      "staged",
      [](const CompleteGraph& self, std::size_t max_stages) {
        const py::gil_scoped_release release;
        return syno::lower::staged(self, {.max_stages = max_stages});
      },
      py::kw_only(), "max_stages"_a = syno::lower::StagingOptions{}.max_stages, R"doc(
    The operator in stages with the least FLOPs: the same function as ``one_scope()``.

    The order of contractions, where each reduction is materialised, and which weights are multiplied with each other
    first are searched for the least FLOPs summed over all valuations; ties go to the fewest bytes of intermediates.

    Args:
        max_stages: the search is exhaustive up to this many candidate stages, and along one greedy order beyond.
    Returns:
        A program with intermediates ``t1, t2, ...`` (and ``v1, ...`` for products of weights).
    Source:
        Materialised reduction, Syno §8.
)doc");
}
