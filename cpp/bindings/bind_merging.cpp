// bindings/bind_merging.cpp — nodes of a graph merged pair by pair, in Python.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bindings/node_view.hpp"
#include "graph/merging.hpp"
#include "graph/views.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace {

using syno::graph::Graph;
using syno::graph::Merging;

void bind_scan(py::class_<Merging>& merging) {
  merging
      .def("next", &Merging::next, R"doc(
    The first producer and reader that were not refused; None where there are none left.

    Returns:
        First those whose producer goes first, then all; in the order of the readers, and for one reader in the order of what
        it reads.
)doc")
      .def(
          "refuse",
          [](Merging& g, std::size_t producer, std::size_t reader) { g.refuse({producer, reader}); },
          "producer"_a, "reader"_a, "Leaves a pair out from now on.")
      .def("goes_first", &Merging::goes_first, "producer"_a,
           "From now on pairs of this producer come before all others.\n\n"
           "    Raises:\n        ShapeError: there is no such node, or it was merged.")
      .def(
          "wiring",
          [](const Merging& g, std::size_t producer, std::size_t reader) {
            return g.wiring({producer, reader});
          },
          "producer"_a, "reader"_a,
          "Equal for pairs of equal programs whose merged nodes are equal but for names: which of their "
          "tensors are "
          "the same, what these are to the graph, and who else reads them.");
}

}  // namespace

void bind_merging(py::module_& m) {
  py::class_<Merging> merging(m, "Merging", R"doc(
Pairs of nodes of a graph merged one after the other, each in a time that does not depend on how large the graph is.

Nodes are called by numbers: those of the graph by their places, merged ones from there on. What comes of it is what
`Graph.merged` makes, pair by pair.

Args:
    graph: without layouts.
Raises:
    ScheduleError: a tensor has a layout.
)doc");
  merging.def(py::init<Graph>(), "graph"_a);
  bind_scan(merging);
  merging
      .def(
          "alone",
          [](const Merging& g, std::size_t producer, std::size_t reader) {
            const py::gil_scoped_release unlocked;
            return g.alone({producer, reader});
          },
          "producer"_a, "reader"_a,
          "The node that a producer and its reader would be, in a graph of its own; or the reason why they "
          "cannot be "
          "one.\n\n    Raises:\n        ShapeError: they are no such nodes, or were merged with others.")
      .def(
          "merge",
          [](Merging& g, std::size_t producer, std::size_t reader) {
            const py::gil_scoped_release unlocked;
            return g.merge({producer, reader});
          },
          "producer"_a, "reader"_a,
          "Makes them one.\n\n    Returns:\n        Its number; or the reason why they cannot be one.\n"
          "    Raises:\n        ShapeError: they are no such nodes, or were merged with others.")
      .def(
          "node",
          [](const Merging& g, std::size_t number) { return syno::view_of(g.original(), g.node(number)); },
          "number"_a,
          "The node of that number.\n\n    Raises:\n        ShapeError: there is none, or it was merged.")
      .def(
          "is_view",
          [](const Merging& g, std::size_t number) {
            const auto& node = g.node(number);
            return node.program && syno::graph::is_view(node.program->program);
          },
          "number"_a, "Whether a node's output is all of its one input, as it lies.")
      .def("find", &Merging::find_node, "name"_a, "The number of the node of that name; None: there is none.")
      .def("graph", &Merging::graph, py::call_guard<py::gil_scoped_release>(),
           "The graph with what was merged until now.");
}
