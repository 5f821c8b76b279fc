// bindings/bind_graph.cpp — whole networks in Python: graphs of programs, where their tensors lie, and what
// runs them.
#include <fmt/format.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>
#include <variant>

#include "bindings/node_view.hpp"
#include "graph/executable.hpp"
#include "graph/graph.hpp"
#include "graph/interpret.hpp"
#include "graph/key.hpp"
#include "graph/merge.hpp"
#include "graph/plan.hpp"
#include "graph/rewrites.hpp"
#include "graph/scales.hpp"
#include "graph/text.hpp"
#include "graph/views.hpp"
#include "jit/native_library.hpp"
#include "support/error.hpp"
#include "support/hash.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace {

using namespace syno;
using graph::Argument;
using graph::ElementType;
using graph::Executable;
using graph::Graph;
using graph::Operand;
using graph::Shape;
using jit::NativeLibrary;
using program::Program;

std::vector<graph::TensorId> ids_of(const Graph& g, const std::vector<std::string>& names) {
  std::vector<graph::TensorId> ids;
  for (const std::string& name : names) ids.push_back(g.tensor_named(name));
  return ids;
}

std::vector<std::string> names_with(const Graph& g, graph::Role role) {
  return tensor_names(g, g.with_role(role));
}

const char* word_for(graph::Role role) {
  switch (role) {
    case graph::Role::Input:
      return "input";
    case graph::Role::Weight:
      return "weight";
    case graph::Role::Computed:
      return "computed";
  }
  return "";
}

std::vector<std::size_t> places_of(const Graph& g, const std::vector<std::string>& nodes) {
  std::vector<std::size_t> places;
  for (const std::string& node : nodes) places.push_back(g.node_named(node));
  return places;
}

std::variant<Graph, std::string> merged(const Graph& g, const std::vector<std::string>& nodes,
                                        const std::string& name) {
  std::vector<std::size_t> places = places_of(g, nodes);
  const py::gil_scoped_release unlocked;
  return graph::merged(g, std::move(places), name);
}

using Numbers = py::array_t<double, py::array::c_style | py::array::forcecast>;

graph::Values values_of(const Numbers& array) {
  graph::Values values;
  values.shape.assign(array.shape(), array.shape() + array.ndim());
  values.data.assign(array.data(), array.data() + array.size());
  return values;
}

Numbers array_of(const graph::Values& values) {
  Numbers array(values.shape);
  std::copy(values.data.begin(), values.data.end(), array.mutable_data());
  return array;
}

std::map<std::string, Numbers> interpreted(const Graph& g, const std::map<std::string, Numbers>& given,
                                           const std::optional<py::function>& call) {
  std::map<std::string, graph::Values> values;
  for (const auto& [name, array] : given) values.emplace(name, values_of(array));
  graph::CallFunction run;
  if (call)
    run = [&](const graph::Node& node, const std::vector<graph::Values>& inputs) {
      const py::gil_scoped_acquire lock;
      py::list arrays;
      for (const graph::Values& each : inputs) arrays.append(array_of(each));
      std::vector<graph::Values> made;
      for (const py::handle each : py::cast<py::sequence>((*call)(view_of(g, node), arrays)))
        made.push_back(values_of(Numbers::ensure(each)));
      return made;
    };
  std::map<std::string, graph::Values> outputs;
  {
    const py::gil_scoped_release unlocked;
    outputs = graph::interpret(g, values, run);
  }
  std::map<std::string, Numbers> arrays;
  for (const auto& [name, each] : outputs) arrays.emplace(name, array_of(each));
  return arrays;
}

void bind_rewrites(py::module_& m) {
  py::class_<graph::GraphSite>(m, "GraphSite", "Where a rewrite of graphs applies, by the names of nodes.")
      .def(py::init([](std::string node, std::string other) {
             return graph::GraphSite{std::move(node), std::move(other)};
           }),
           "node"_a, "other"_a = "")
      .def_readonly("node", &graph::GraphSite::node, "The one that goes or changes.")
      .def_readonly("other", &graph::GraphSite::other, "A second one, if the rewrite is about two.")
      .def(
          "__eq__", [](const graph::GraphSite& a, const graph::GraphSite& b) { return a == b; },
          py::is_operator())
      .def("__repr__", [](const graph::GraphSite& site) {
        return fmt::format("<GraphSite {}{}{}>", site.node, site.other.empty() ? "" : ", ", site.other);
      });
  m.def(
      "graph_rows",
      [] {
        std::vector<std::tuple<std::string, std::string, bool>> rows;
        for (const graph::GraphRewrite& row : graph::graph_rewrites())
          rows.emplace_back(std::string(row.name), std::string(row.statement), row.reassociates);
        return rows;
      },
      "(name, statement, whether it is exact over the reals alone) of each rewrite of graphs.");
  m.def(
      "graph_sites",
      [](const Graph& g, const std::string& row) {
        const py::gil_scoped_release unlocked;
        return graph::graph_rewrite_named(row).find(g);
      },
      "graph"_a, "row"_a, "Where a rewrite applies.");
  m.def(
      "graph_rewrite",
      [](const Graph& g, const std::string& row, const graph::GraphSite& site) {
        const py::gil_scoped_release unlocked;
        return graph::graph_rewrite_named(row).apply(g, site);
      },
      "graph"_a, "row"_a, "site"_a, R"doc(
    The graph that a rewrite makes: it computes the same outputs, in order, though maybe under other names.

    Raises:
        ScheduleError: the rewrite does not apply there.
        UnknownName: no rewrite has this name.
)doc");
}

void bind_graphs(py::module_& m) {
  py::class_<NodeView>(m, "GraphNode", "A node of a graph: a program, or a call of a function.")
      .def_readonly("name", &NodeView::name, "Of the node.")
      .def_property_readonly(
          "program",
          [](const NodeView& node) -> std::optional<Program> {
            if (!node.program) return std::nullopt;
            return node.program->program;
          },
          "What it computes; None for a call.")
      .def_property_readonly(
          "program_text",
          [](const NodeView& node) { return node.program ? node.program->text : std::string(); },
          "The full text of its program; empty for a call.")
      .def_readonly("function", &NodeView::function, "Of a call: whom.")
      .def_readonly("attributes", &NodeView::attributes, "Of a call: a JSON object.")
      .def_readonly("inputs", &NodeView::inputs, "Names of the tensors that it reads.")
      .def_readonly("outputs", &NodeView::outputs, "Names of the tensors that it computes.")
      .def("__repr__", [](const NodeView& node) {
        return fmt::format("<GraphNode {}: {}({}) -> {}>", node.name,
                           node.program ? "program" : node.function, fmt::join(node.inputs, ", "),
                           fmt::join(node.outputs, ", "));
      });
  py::class_<Graph> bound(m, "Graph", R"doc(
    A network: nodes that are tensor programs, or calls of functions, and tensors between them.

    Example:
        >>> from syno._core import Graph, Program
        >>> graph = Graph("small")
        >>> graph.add_input("x", [2, 3], "float32")
        >>> graph.add_program("relu", Program.parse("y[i,j] = relu(x[i,j])", shapes={"x": [2, 3]}), ["x"], ["t"])
        >>> graph.set_outputs(["t"])
        >>> graph.tensor("t")
        ([2, 3], 'float32', 'computed')
)doc");
  bound.def(py::init<std::string>(), "name"_a = "graph")
      .def_readonly("name", &Graph::name, "Of the network.")
      .def(
          "add_input",
          [](Graph& g, std::string name, Shape shape, const std::string& dtype) {
            g.add_input(std::move(name), std::move(shape), graph::element_type_named(dtype));
          },
          "name"_a, "shape"_a, "dtype"_a = "float32", "A tensor that the caller gives.")
      .def(
          "add_weight",
          [](Graph& g, std::string name, Shape shape, const std::string& dtype) {
            g.add_weight(std::move(name), std::move(shape), graph::element_type_named(dtype));
          },
          "name"_a, "shape"_a, "dtype"_a = "float32", "A tensor that stays the same over calls.")
      .def(
          "add_program",
          [](Graph& g, std::string name, const Program& program, const std::vector<std::string>& inputs,
             const std::vector<std::string>& outputs, const std::string& dtype) {
            g.add_program(std::move(name), program, ids_of(g, inputs), outputs,
                          graph::element_type_named(dtype));
          },
          "name"_a, "program"_a, "inputs"_a, "outputs"_a, "dtype"_a = "float32", R"doc(
    A node that computes a program.

    Args:
        inputs: names of tensors, in the order of the program's inputs.
        outputs: names of new tensors, in the order of its outputs.
        dtype: of all of them: "float32", "float64" or "bfloat16".
    Raises:
        VerifyError: they do not fit the program.
        UnknownName: there is no such tensor or type.
)doc")
      .def(
          "add_call",
          [](Graph& g, std::string name, std::string function, const std::string& attributes,
             const std::vector<std::string>& inputs,
             const std::vector<std::tuple<std::string, Shape, std::string>>& outputs) {
            std::vector<graph::Tensor> results;
            for (const auto& [output, shape, dtype] : outputs)
              results.push_back({output, shape, graph::element_type_named(dtype), graph::Role::Computed});
            g.add_call(std::move(name), std::move(function), attributes, ids_of(g, inputs),
                       std::move(results));
          },
          "name"_a, "function"_a, "attributes"_a, "inputs"_a, "outputs"_a, R"doc(
    A node that a function computes: `gather`, `scatter`, `cast`, `argmax`, `sample`, `scan` and `copy` are the engine's, others the host's.

    Args:
        attributes: a JSON object; ``{"random": true}`` keeps two equal calls apart.
        outputs: (name, shape, dtype) of new tensors.
    Raises:
        FormatError: attributes that are no JSON object.
        VerifyError, UnknownName: as for `add_program`.
)doc")
      .def(
          "set_outputs",
          [](Graph& g, const std::vector<std::string>& names) { g.outputs = ids_of(g, names); }, "names"_a,
          "What the network returns: any tensors, in order.")
      .def_property_readonly(
          "inputs", [](const Graph& g) { return names_with(g, graph::Role::Input); }, "Names, in order.")
      .def_property_readonly(
          "weights", [](const Graph& g) { return names_with(g, graph::Role::Weight); }, "Names, in order.")
      .def_property_readonly(
          "outputs", [](const Graph& g) { return tensor_names(g, g.outputs); }, "Names, in order.")
      .def_property_readonly(
          "nodes",
          [](const Graph& g) {
            std::vector<NodeView> views;
            for (const graph::Node& node : g.nodes()) views.push_back(view_of(g, node));
            return views;
          },
          "In an order in which each reads what is computed before it.")
      .def(
          "tensor",
          [](const Graph& g, const std::string& name) {
            const graph::Tensor& tensor = g.tensor(g.tensor_named(name));
            return std::make_tuple(tensor.shape, std::string(graph::name_of(tensor.type)),
                                   word_for(tensor.role));
          },
          "name"_a, "(shape, dtype, role) of a tensor; the role is input, weight or computed.")
      .def_static("parse", &graph::parse, "text"_a, py::call_guard<py::gil_scoped_release>(), R"doc(
    Read the text that `text` writes.

    Raises:
        ParseError: the text is malformed, naming the line.
        VerifyError: nodes and tensors do not fit each other.
)doc")
      .def("text", &graph::to_text, "The full text form; parsing it gives the same graph.")
      .def("__str__", &graph::to_text)
      .def("dot", &graph::to_dot, "For Graphviz.")
      .def(
          "verify", [](const Graph& g) { graph::verify(g); },
          "Checks every invariant; VerifyError says which one does not hold.")
      .def("key", &graph::structural_key,
           "32 hexadecimal digits: equal for graphs that are equal up to names and the order of independent "
           "nodes.")
      .def("cleaned", &graph::cleaned, py::call_guard<py::gil_scoped_release>(),
           "The graph after all rewrites of `graph_rows` that do not reassociate, until none applies.")
      .def("scales_in_weights", &graph::scales_in_weights, py::call_guard<py::gil_scoped_release>(),
           "The graph after the rewrite `scales`, until it applies nowhere.")
      .def("interpret", &interpreted, "values"_a, "call"_a = py::none(), R"doc(
    The outputs by name, in double precision: slow, and what everything else is held to.

    Args:
        values: arrays of the inputs and weights by name.
        call: from a node and its inputs' arrays to its outputs' ones, for functions of the host.
    Raises:
        ShapeError: a value is missing, or of another shape.
        KernelError: a function of the host, and no `call`.
)doc")
      .def(
          "copy", [](const Graph& g) { return Graph(g); }, "Another graph with the same content.")
      .def(
          "is_view",
          [](const Graph& g, const std::string& node) {
            const auto& found = g.nodes()[g.node_named(node)];
            return found.program && graph::is_view(found.program->program);
          },
          "node"_a, "Whether a node's output has its one input's elements in the same row-major order.")
      .def(
          "run_of",
          [](const Graph& g, const std::string& node) {
            const auto& found = g.nodes()[g.node_named(node)];
            return found.program ? graph::run_of(found.program->program) : std::nullopt;
          },
          "node"_a,
          "The element of a node's one input from which on its output is a run of that, in row-major order; "
          "None "
          "where it is none.")
      .def(
          "only_reads",
          [](const Graph& g, const std::string& node) {
            const auto& found = g.nodes()[g.node_named(node)];
            return found.program && graph::only_reads(found.program->program);
          },
          "node"_a, "Whether each element of a node's output is an element of its one input.")
      .def(
          "joined_parts",
          [](const Graph& g, const std::string& node) {
            const auto& found = g.nodes()[g.node_named(node)];
            return found.program ? graph::joined_parts(found.program->program) : std::vector<std::int64_t>();
          },
          "node"_a,
          "Where each input of a node begins in its output, in elements, if they lie there one behind the "
          "other; "
          "empty if they do not.")
      .def("constant_nodes", &graph::constant_nodes, "Names of the nodes that depend on weights alone.")
      .def("try_merged", &merged, "nodes"_a, "name"_a = "",
           "The graph with these program nodes as one, or the reason why they cannot be one.")
      .def(
          "merged",
          [](const Graph& g, const std::vector<std::string>& nodes, const std::string& name) {
            auto made = merged(g, nodes, name);
            if (const auto* reason = std::get_if<std::string>(&made))
              fail<ScheduleError>("graph", "{}", *reason);
            return std::get<Graph>(std::move(made));
          },
          "nodes"_a, "name"_a = "", R"doc(
    The graph with these program nodes as one.

    Raises:
        ScheduleError: they cannot be one, and why.
        ShapeError: no node, or one twice.
)doc")
      .def("__repr__", [](const Graph& g) {
        return fmt::format("<Graph {}: {} nodes, {} weights>", g.name, g.nodes().size(),
                           g.with_role(graph::Role::Weight).size());
      });
}

Argument argument_of(const py::handle& given) {
  const auto pair = py::cast<std::pair<std::string, py::int_>>(given);
  Argument argument;
  if (pair.first == "fixed") {
    argument.kind = Argument::Kind::Fixed;
    argument.address = PyLong_AsVoidPtr(pair.second.ptr());
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  } else if (pair.first == "arena" || pair.first == "external") {
    argument.kind = pair.first == "arena" ? Argument::Kind::Arena : Argument::Kind::External;
    argument.at = py::cast<std::int64_t>(pair.second);
  } else {
    fail<UnknownName>("network", "no place is named '{}'; there are: arena, external, fixed", pair.first);
  }
  return argument;
}

/// ("kernel", kernel, threads, arguments), ("native", library, symbol, threads, sizes, arguments),
/// ("builtin", name, attributes, [(shape, dtype)], inputs, arguments) or ("host", arguments).
graph::Step step_of(const py::tuple& given) {
  graph::Step step;
  const auto kind = py::cast<std::string>(given[0]);
  const std::size_t wanted = kind == "kernel" ? 4 : kind == "native" ? 6 : kind == "builtin" ? 6 : 2;
  if (given.size() != wanted || (wanted == 2 && kind != "host"))
    fail<ShapeError>("network", "a step '{}' of {} parts", kind, given.size());
  if (kind == "kernel") {
    step.kernel = py::cast<std::shared_ptr<jit::Kernel>>(given[1]);
    step.threads = py::cast<int>(given[2]);
  } else if (kind == "native") {
    const auto library = py::cast<std::shared_ptr<NativeLibrary>>(given[1]);
    step.native = {library, &library->kernel(py::cast<std::string>(given[2]))};
    step.threads = py::cast<int>(given[3]);
    step.values = py::cast<std::vector<std::int64_t>>(given[4]);
  } else if (kind == "builtin") {
    const auto name = py::cast<std::string>(given[1]);
    const auto kinds = py::cast<std::vector<std::pair<Shape, std::string>>>(given[3]);
    const auto inputs = py::cast<std::size_t>(given[4]);
    const graph::Builtin* builtin = graph::find_builtin(name);
    if (builtin == nullptr) fail<UnknownName>("network", "the engine has no function '{}'", name);
    if (inputs + 1 != kinds.size())
      fail<ShapeError>("network", "{} takes {} tensors and gives one; {} are described", name, inputs,
                       kinds.size());
    std::vector<Operand> operands;
    for (const auto& [shape, dtype] : kinds) operands.push_back({graph::element_type_named(dtype), shape});
    const Operand written = operands.back();
    operands.pop_back();
    const auto attributes = py::cast<std::string>(given[2]);
    const Operand made = builtin->result(operands, attributes);
    const bool same = name == "copy" ? program::checked_product("network", made.shape) ==
                                           program::checked_product("network", written.shape)
                                     : made.shape == written.shape;
    if (made.type != written.type || !same)
      fail<ShapeError>("network", "{} gives {}, not {}", name, graph::described(made.shape, made.type),
                       graph::described(written.shape, written.type));
    step.builtin = builtin->bind(operands, attributes);
  }
  for (const py::handle argument : py::cast<py::sequence>(given[wanted - 1]))
    step.arguments.push_back(argument_of(argument));
  return step;
}

std::vector<void*> pointers_of(const Executable& executable, const py::sequence& addresses) {
  if (py::len(addresses) != executable.external_count())
    fail<ShapeError>("network", "{} addresses for {} inputs and outputs", py::len(addresses),
                     executable.external_count());
  std::vector<void*> pointers;
  for (const py::handle address : addresses) {
    pointers.push_back(PyLong_AsVoidPtr(address.ptr()));
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  }
  return pointers;
}

/// Memory that Python shows, in one piece; whoever holds one holds what it shows.
py::buffer_info bytes_of(const py::buffer& buffer) {
  py::buffer_info info = buffer.request();
  if (info.ndim != 1 || info.itemsize != 1 || (info.size > 1 && info.strides[0] != 1))
    fail<ShapeError>("memory", "bytes in one piece are wanted, not {} dimensions of {} bytes", info.ndim,
                     info.itemsize);
  return info;
}

void bind_libraries(py::module_& m) {
  py::class_<NativeLibrary, std::shared_ptr<NativeLibrary>>(
      m, "NativeLibrary",
      "Machine code of kernels that was linked before: loaded without LLVM, run as it is.")
      .def(py::init([](const py::buffer& elf) {
             const py::buffer_info info = bytes_of(elf);
             return std::make_shared<NativeLibrary>(
                 std::string_view(static_cast<const char*>(info.ptr), static_cast<std::size_t>(info.size)));
           }),
           "elf"_a, R"doc(
    Loads a shared object from memory.

    Raises:
        FormatError: it is none for this machine, or describes no kernels.
        KernelError: the system cannot load it.
)doc")
      .def_property_readonly(
          "kernels",
          [](const NativeLibrary& library) {
            using Row = std::tuple<std::int64_t, std::int64_t, std::vector<std::int64_t>,
                                   std::vector<std::pair<std::int64_t, std::int64_t>>>;
            std::map<std::string, Row> rows;
            for (const auto& [symbol, each] : library.kernels())
              rows.emplace(symbol,
                           Row(each.shared_bytes, each.private_bytes, each.argument_bytes, each.parameters));
            return rows;
          },
          "(workspace, workspace of each thread, arguments' sizes, least and greatest value of each size "
          "that calls bring along) by symbol; in bytes.")
      .def("__repr__", [](const NativeLibrary& library) {
        return fmt::format("<NativeLibrary: {} kernels>", library.kernels().size());
      });
  m.def(
      "hash_bytes",
      [](const py::buffer& bytes) {
        const py::buffer_info info = bytes_of(bytes);
        const py::gil_scoped_release unlocked;
        return to_hex(hash_bytes(info.ptr, static_cast<std::size_t>(info.size)));
      },
      "bytes"_a, "XXH3 of memory, 128 bits as 32 hexadecimal digits: against damage, not against people.");
  m.def(
      "address_of",
      [](const py::buffer& bytes) { return reinterpret_cast<std::uintptr_t>(bytes_of(bytes).ptr); },
      "bytes"_a, "Where memory begins; whoever uses it keeps it alive.");
}

void bind_executable(py::module_& m) {
  bind_libraries(m);
  py::class_<Executable>(m, "Executable", "A network's steps, run one after the other in one call.")
      .def(py::init([](const std::vector<py::tuple>& given, std::int64_t arena_bytes, std::size_t externals,
                       std::optional<py::function> host) {
             std::vector<graph::Step> steps;
             for (const py::tuple& each : given) try {
                 steps.push_back(step_of(each));
               } catch (const py::cast_error&) {
                 fail<ShapeError>("network",
                                  "step {} holds what its kind does not have, or a number of over 64 bits",
                                  steps.size());
               }
             graph::Host call;
             if (host)
               call = [function = std::make_shared<py::function>(std::move(*host))](
                          std::size_t step, std::span<void* const> arguments) {
                 const py::gil_scoped_acquire lock;
                 py::list addresses;
                 for (void* const each : arguments) addresses.append(reinterpret_cast<std::uintptr_t>(each));
                 (*function)(step, addresses);
               };
             return std::make_unique<Executable>(std::move(steps), arena_bytes, externals, std::move(call));
           }),
           "steps"_a, "arena_bytes"_a, "externals"_a, "host"_a = py::none(), R"doc(
    Steps in order.

    Args:
        steps: ``("kernel", kernel, threads, arguments)``, ``("native", library, symbol, threads, sizes, arguments)``,
            ``("builtin", name, attributes, [(shape, dtype)], inputs, arguments)`` or ``("host", arguments)``; an argument is ``("arena", byte)``, ``("external", number)`` or
            ``("fixed", address)``, inputs first.
        externals: how many buffers a caller gives: inputs, then outputs.
        host: called with the step's number and its arguments' addresses.
    Raises:
        ShapeError, UnknownName: a step that does not fit.
)doc")
      .def(
          "run",
          [](const Executable& executable, const py::sequence& addresses, int threads) {
            const std::vector<void*> pointers = pointers_of(executable, addresses);
            const py::gil_scoped_release unlocked;
            executable.run(pointers, threads);
          },
          "addresses"_a, "threads"_a = 1,
          "One run on the caller's row-major buffers; nothing about them is checked. Thread-safe.")
      .def(
          "profile",
          [](const Executable& executable, const py::sequence& addresses, int threads, int turns) {
            constexpr int kMostTurns = 1'000'000;
            if (turns < 1 || turns > kMostTurns)
              fail<ShapeError>("network", "turns={} must be from 1 to {}", turns, kMostTurns);
            const std::vector<void*> pointers = pointers_of(executable, addresses);
            const py::gil_scoped_release unlocked;
            return executable.profile(pointers, threads, turns);
          },
          "addresses"_a, "threads"_a = 1, "turns"_a = 15, "Median seconds of each step.")
      .def_property_readonly("step_count", &Executable::step_count, "Of all kinds.")
      .def_property_readonly("arena_bytes", &Executable::arena_bytes, "Between the steps of one run.");
  m.def(
      "plan_memory",
      [](const std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>>& given) {
        std::vector<graph::MemoryItem> items;
        for (const auto& [bytes, first, last] : given) items.push_back({bytes, first, last, {}, 0});
        const py::gil_scoped_release unlocked;
        const graph::MemoryPlan plan = graph::plan_memory(items);
        return std::make_tuple(plan.offsets, plan.bytes, plan.largest_live);
      },
      "items"_a, R"doc(
    Offsets in one arena of items that live from one step to another.

    Args:
        items: (bytes, first step, last step) of each.
    Returns:
        The offsets, the bytes of the arena, and those of the items that live at one step at most.
    Raises:
        ShapeError: fewer than 0 bytes, or an end before the beginning.
)doc");
}

}  // namespace

void bind_graph(py::module_& m) {
  bind_graphs(m);
  bind_rewrites(m);
  bind_executable(m);
}
