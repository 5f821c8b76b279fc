// bindings/bind_layout.cpp — layouts of the tensors of networks in Python.
#include <fmt/format.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "graph/layout.hpp"
#include "graph/propagate.hpp"
#include "graph/sums_of_products.hpp"
#include "schedule/decisions.hpp"
#include "schedule/laid_out.hpp"
#include "support/error.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace {

using namespace syno;
using graph::Graph;

using Texts = std::map<std::string, std::string>;

std::map<graph::TensorId, graph::Layout> parsed(const Graph& g, const Texts& texts) {
  std::map<graph::TensorId, graph::Layout> layouts;
  for (const auto& [name, text] : texts) layouts.emplace(g.tensor_named(name), schedule::parse_layout(text));
  return layouts;
}

Graph laid_out(const Graph& g, const Texts& layouts, bool inner) {
  const auto wanted = parsed(g, layouts);
  const py::gil_scoped_release unlocked;
  return graph::lay_out(g, wanted, inner);
}

Texts propagated(const Graph& g, const Texts& layouts, const graph::Propagation& rules) {
  Texts texts;
  for (const auto& [tensor, layout] : graph::propagated(g, parsed(g, layouts), rules))
    texts.emplace(g.tensor(tensor).name, schedule::to_text(layout));
  return texts;
}

std::vector<std::pair<std::string, std::size_t>> channels(const Graph& g, const std::string& name) {
  const graph::Node& node = g.nodes()[g.node_named(name)];
  if (node.is_call()) fail<ScheduleError>("layout", "'{}' is a call, which has no program", name);
  const program::Program& program = node.program->program;
  const auto inputs = program.inputs();
  std::vector<std::pair<std::string, std::size_t>> found;
  for (const graph::Channel& channel : graph::channels_of(program)) {
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i] == channel.tensor) found.emplace_back(g.tensor(node.inputs[i]).name, channel.dim);
    for (std::size_t i = 0; i < program.outputs.size(); ++i)
      if (program.outputs[i] == channel.tensor)
        found.emplace_back(g.tensor(node.outputs[i]).name, channel.dim);
  }
  return found;
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

program::TensorId tensor_named(const program::Program& program, const std::string& name) {
  const auto tensor = program.find_tensor(name);
  if (tensor) return *tensor;
  std::vector<std::string> valid;
  for (const auto& each : program.tensors) valid.push_back(each.name);
  throw UnknownName("layout", unknown_name("tensor", name, valid));
}

py::list ranges(const std::vector<graph::NamedRange>& iterators) {
  py::list made;
  for (const auto& each : iterators) made.append(py::make_tuple(each.iterator, each.begin, each.end));
  return made;
}

py::list sums_of_products(const program::Program& program) {
  py::list found;
  for (const graph::SumOfProducts& sum : graph::sums_of_products(program)) {
    py::list factors;
    for (const graph::Factor& factor : sum.factors) {
      py::list indices;
      for (const graph::FactorIndex& index : factor.indices) {
        py::list terms;
        for (const auto& term : index.terms) terms.append(py::make_tuple(term.iterator, term.coefficient));
        indices.append(py::make_tuple(terms, index.constant, index.affine));
      }
      factors.append(py::make_tuple(program.tensor(factor.tensor).name, indices));
    }
    found.append(
        py::make_tuple(program.tensor(sum.output).name, ranges(sum.traversal), ranges(sum.sums), factors));
  }
  return found;
}

void bind_layout(py::module_& m) {
  py::class_<graph::Propagation>(m, "Propagation", "The rules by which layouts spread (ALT §4.1.3).")
      .def(py::init([](bool up, bool down, bool equal_shapes, bool one_to_one, bool independent) {
             return graph::Propagation{up, down, equal_shapes, one_to_one, independent};
           }),
           py::kw_only(), "up"_a = true, "down"_a = true, "equal_shapes"_a = true, "one_to_one"_a = true,
           "independent"_a = true, R"doc(
    Args:
        up: to what an elementwise node reads.
        down: to what an elementwise node computes.
        equal_shapes: only along elementwise nodes, between tensors of one shape.
        one_to_one: only layouts with one element a place.
        independent: not through sums of products.
)doc")
      .def_readonly("up", &graph::Propagation::up, "To what an elementwise node reads.")
      .def_readonly("down", &graph::Propagation::down, "To what an elementwise node computes.")
      .def_readonly("equal_shapes", &graph::Propagation::equal_shapes,
                    "Only along elementwise nodes, between tensors of one shape.")
      .def_readonly("one_to_one", &graph::Propagation::one_to_one, "Only layouts with one element a place.")
      .def_readonly("independent", &graph::Propagation::independent, "Not through sums of products.")
      .def("__repr__", [](const graph::Propagation& rules) {
        return fmt::format("<Propagation up={} down={} equal_shapes={} one_to_one={} independent={}>",
                           rules.up, rules.down, rules.equal_shapes, rules.one_to_one, rules.independent);
      });
  auto bound = py::reinterpret_borrow<py::class_<Graph>>(m.attr("Graph"));
  bound
      .def("lay_out", &laid_out, "layouts"_a, "inner"_a = true, R"doc(
    The graph in which these tensors lie in other layouts (ALT §4): programs that compute or read them are
    rewritten; inputs, weights and what calls compute are copied into theirs, what the graph returns or a call
    reads is copied back.

    Args:
        layouts: by tensor, sequences of ``split(dimension, extents...)``, ``reorder(order...)``,
            ``fuse(dimension, count)``, ``unfold(dimension, tile, stride)``, ``pad(dimension, before, after)`` and
            ``store_at(dimension, slots)``, dimensions from 0.
        inner: give what is elementwise of such a tensor within its program the layout, too.
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
      .def("propagated", &propagated, "layouts"_a, py::arg_v("rules", graph::Propagation{}, "Propagation()"),
           R"doc(
    These layouts, and those that follow for further tensors (ALT §4.1.3).

    Raises:
        ParseError, UnknownName: as for `lay_out`.

    Example:
        >>> from syno._core import Graph, Program
        >>> graph = Graph("small")
        >>> graph.add_input("x", [2, 4], "float32")
        >>> for name, read in ("a", "x"), ("b", "a"), ("c", "b"):
        ...     graph.add_program(name, Program.parse("y[i,j] = relu(x[i,j])", shapes={"x": [2, 4]}), [read], [name])
        >>> graph.set_outputs(["c"])
        >>> graph.propagated({"a": "reorder(1, 0)"})
        {'a': 'reorder(1, 0)', 'b': 'reorder(1, 0)'}
)doc")
      .def("channels", &channels, "node"_a,
           "(tensor, dimension) of a node's inputs and outputs that move with another factor of a sum of "
           "products; of a node that is none, none. ScheduleError for a call.")
      .def(
          "is_elementwise",
          [](const Graph& g, const std::string& node) {
            const auto& found = g.nodes()[g.node_named(node)];
            return found.program && graph::is_elementwise(found.program->program);
          },
          "node"_a, "Whether a node computes each element of its output from those at the same place.");
  m.def(
      "laid_out",
      [](const program::Program& program, const std::string& name, const std::string& layout,
         const std::string& copy) {
        const auto tensor = tensor_named(program, name);
        const auto parsed = schedule::parse_layout(layout);
        return copy.empty() ? schedule::laid_out(program, tensor, parsed)
                            : schedule::laid_out_copied(program, tensor, parsed, copy);
      },
      "program"_a, "tensor"_a, "layout"_a, "copy"_a = "", R"doc(
    The program of which a tensor lies in another layout: what `Graph.lay_out` makes of the programs of a graph.

    Args:
        copy: of an input or output, a copy of this name lies so, and the caller's memory stays as it is.
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
  m.def(
      "lay_out_decision",
      [](const std::string& tensor, const std::string& layout, const std::string& copy) {
        schedule::Schedule made;
        made.trace.push_back(schedule::lay_out_decision(tensor, schedule::parse_layout(layout), copy));
        return made;
      },
      "tensor"_a, "layout"_a, "copy"_a, R"doc(
    A schedule of one decision, ``lay_out``, after which a program is ``laid_out(program, tensor, layout, copy)``.

    Raises:
        ParseError, UnknownName: a text that is no layout.

    Example:
        >>> from syno._core import lay_out_decision
        >>> print(lay_out_decision("x", "split(1, 2, 2) reorder(1, 0, 2)", "x_l").text().splitlines()[1])
        lay_out x_l tensor=x numbers=1,2,2,1,0,2 words=split:3,reorder:3
)doc");
  m.def("sums_of_products", &sums_of_products, "program"_a, R"doc(
    The scopes of a concrete program that sum products, each as (output, iterators, iterators of the sum, factors).

    Iterators are (name, begin, end); a factor is (tensor, its indices), an index (terms, constant, whether it is affine),
    a term (iterator, coefficient), 0 where the iterator moves it in another way.

    Raises:
        ShapeError: the program has size variables.

    Example:
        >>> from syno._core import Program, sums_of_products
        >>> program = Program.parse("y[i] = sum[r] x[2*i+r-1] * k[r]", shapes={"x": [8], "k": [3]}, sizes={"i": 4})
        >>> sums_of_products(program)[0][3][0]
        ('x', [([('i', 2), ('r', 1)], -1, True)])
)doc");
  m.def(
      "moves_with",
      [](const program::Program& program) {
        std::map<std::string, std::string> made;
        for (const auto& [tensor, owner] : graph::owners_of(program))
          made.emplace(program.tensor(tensor).name, program.tensor(owner).name);
        return made;
      },
      "program"_a,
      "Tensors within a program that are elementwise of an output, or else of an input: by that one's name.");
}
