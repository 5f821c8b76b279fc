// bindings/bind_layout.cpp — layouts of the tensors of networks in Python.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "graph/layout.hpp"
#include "schedule/laid_out.hpp"
#include "support/error.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace {

using namespace syno;
using graph::Graph;

Graph laid_out(const Graph& g, const std::map<std::string, std::string>& layouts) {
  std::map<graph::TensorId, graph::Layout> wanted;
  for (const auto& [name, text] : layouts) wanted.emplace(g.tensor_named(name), schedule::parse_layout(text));
  const py::gil_scoped_release unlocked;
  return graph::lay_out(g, wanted);
}

std::tuple<Graph, std::string> with_copy(const Graph& g, const std::string& tensor,
                                         const std::vector<std::string>& nodes) {
  std::vector<std::size_t> places;
  for (const std::string& node : nodes) places.push_back(g.node_named(node));
  graph::TensorId copy{};
  Graph made = graph::with_copy(g, g.tensor_named(tensor), places, copy);
  std::string name = made.tensor(copy).name;
  return {std::move(made), std::move(name)};
}

}  // namespace

void bind_layout(py::module_& m) {
  auto bound = py::reinterpret_borrow<py::class_<Graph>>(m.attr("Graph"));
  bound
      .def("lay_out", &laid_out, "layouts"_a, R"doc(
    The graph in which these tensors lie in other layouts (ALT §4): programs that compute or read them are
    rewritten; inputs, weights and what calls compute are copied into theirs, what the graph returns or a call
    reads is copied back.

    Args:
        layouts: by tensor, sequences of ``split(dimension, extents...)``, ``reorder(order...)``,
            ``fuse(dimension, count)``, ``unfold(dimension, tile, stride)``, ``pad(dimension, before, after)`` and
            ``store_at(dimension, slots)``, dimensions from 0.
    Raises:
        ScheduleError: a step does not fit its tensor, or no program computes on its type.
        ShapeError: a tensor without elements.
        ParseError, UnknownName: a text that is no layout, a name that no tensor or primitive has.

    Example:
        >>> from syno._core import Graph, Program
        >>> graph = Graph("small")
        >>> graph.add_input("x", [2, 4], "float32")
        >>> graph.add_program("relu", Program.parse("y[i,j] = relu(x[i,j])", shapes={"x": [2, 4]}), ["x"], ["t"])
        >>> graph.add_program("half", Program.parse("y[i,j] = x[i,j] / 2", shapes={"x": [2, 4]}), ["t"], ["y"])
        >>> graph.set_outputs(["y"])
        >>> graph.lay_out({"t": "reorder(1, 0)"}).tensor("t")
        ([4, 2], 'float32', 'computed')
)doc")
      .def(
          "row_major",
          [](const Graph& g, const std::vector<std::string>& tensors) {
            std::vector<graph::TensorId> ids;
            for (const std::string& name : tensors) ids.push_back(g.tensor_named(name));
            return graph::row_major(g, ids);
          },
          "tensors"_a, "The graph in which these tensors have no layout; ScheduleError where one has none.")
      .def("with_copy", &with_copy, "tensor"_a, "nodes"_a, R"doc(
    The graph in which these nodes read a copy of a tensor, which may have a layout of its own; and its name.

    Raises:
        ScheduleError: one of the nodes is no program that reads it.
)doc")
      .def(
          "store_at",
          [](const Graph& g, const std::string& guest, const std::string& host, std::size_t dim) {
            return graph::store_at(g, g.tensor_named(guest), g.tensor_named(host), dim);
          },
          "guest"_a, "host"_a, "dim"_a, R"doc(
    The graph in which a constant lies behind dimension `dim` of another one (ALT's store_at): a bias in the rows
    of its weight.

    Args:
        guest: a tensor of the shape that `host` has before dimension `dim`.
    Raises:
        ScheduleError: one of the two is no constant.
        ShapeError: the shapes do not fit.
)doc")
      .def(
          "layout",
          [](const Graph& g, const std::string& name) {
            const graph::Tensor& tensor = g.tensor(g.tensor_named(name));
            return std::make_tuple(schedule::to_text(tensor.layout),
                                   tensor.layout.empty() ? tensor.shape : tensor.elements);
          },
          "name"_a, "(layout, shape of what lies so) of a tensor; the text of a row-major one is empty.")
      .def(
          "is_elementwise",
          [](const Graph& g, const std::string& node) {
            const auto& found = g.nodes()[g.node_named(node)];
            return found.program && graph::is_elementwise(found.program->program);
          },
          "node"_a, "Whether a node computes each element of its output from those at the same place.");
  m.def(
      "laid_out",
      [](const program::Program& program, const std::string& name, const std::string& layout) {
        const auto tensor = program.find_tensor(name);
        if (!tensor) {
          std::vector<std::string> valid;
          for (const auto& each : program.tensors) valid.push_back(each.name);
          throw UnknownName("layout", unknown_name("tensor", name, valid));
        }
        return schedule::laid_out(program, *tensor, schedule::parse_layout(layout));
      },
      "program"_a, "tensor"_a, "layout"_a, R"doc(
    The program of which a tensor lies in another layout: what `Graph.lay_out` makes of the programs of a graph.

    Raises:
        ScheduleError: a step does not fit its shape.
        ShapeError: the program has size variables.
        ParseError, UnknownName: a text that is no layout, a name that no tensor or primitive has.

    Example:
        >>> from syno._core import Program, laid_out
        >>> program = Program.parse("y[i] = sum[c] x[i,c]", shapes={"x": [2, 4]})
        >>> print(laid_out(program, "x", "split(1, 2, 2) reorder(1, 0, 2)").short_text())
        y[i] = sum[c,cm] x[c,i,cm]
)doc");
}
