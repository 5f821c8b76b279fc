// bindings/bind_pgraph.cpp — pGraphs in Python: read, print, draw, lower, and the operators people know.
#include <fmt/format.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bindings/unlocked.hpp"
#include "lower/lower.hpp"
#include "lower/operator_key.hpp"
#include "pgraph/named.hpp"
#include "pgraph/pgraph.hpp"
#include "program/program.hpp"
#include "support/error.hpp"
#include "synth/spec.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace {

using namespace syno;
using bindings::unlocked;
using pgraph::CompleteGraph;

std::vector<std::string> lines_of(const CompleteGraph& graph) {
  std::vector<std::string> lines;
  pgraph::PGraph partial(graph.graph.signature());
  for (const pgraph::Step& step : graph.graph.steps()) {
    lines.push_back(pgraph::to_text(partial, step));
    partial = pgraph::apply_all(std::move(partial), {step});
  }
  return lines;
}

py::dict signature_of(const CompleteGraph& graph) {
  const pgraph::Signature& signature = graph.graph.signature();
  const auto dims = [&](const std::vector<pgraph::Dim>& list) {
    py::list result;
    for (const pgraph::Dim& dim : list) {
      result.append(py::dict("name"_a = dim.name, "extent"_a = signature.sizes.to_text(dim.extent),
                             "unordered"_a = dim.unordered));
    }
    return result;
  };
  const auto pairs = [](const pgraph::FixedPairs& fixed) {
    py::list result;
    for (const auto& [out, in] : fixed) result.append(py::make_tuple(out, in));
    return result;
  };
  py::list further;
  for (const pgraph::FurtherInput& input : signature.further)
    further.append(py::dict("dims"_a = dims(input.dims), "fixed"_a = pairs(input.fixed)));
  return py::dict("output"_a = dims(signature.output), "input"_a = dims(signature.input),
                  "fixed"_a = pairs(signature.fixed), "further"_a = further);
}

CompleteGraph build_named(const std::string& name, const synth::Spec& spec,
                          const std::map<std::string, std::string>& sizes) {
  pgraph::NamedParameters parameters;
  for (const auto& [key, text] : sizes) {
    const symbolic::Size size = spec.signature.sizes.parse(text);
    if (key == "kernel") {
      parameters.kernel = size;
    } else if (key == "groups") {
      parameters.groups = size;
    } else if (key == "dilation") {
      parameters.dilation = size;
    } else if (key == "shrink") {
      parameters.shrink = size;
    } else if (key == "block") {
      parameters.block = size;
    } else {
      throw UnknownName("named_operator",
                        unknown_name("parameter", key, {"kernel", "groups", "dilation", "shrink", "block"}));
    }
  }
  return pgraph::named_operator(name).build(spec.signature, parameters);
}

}  // namespace

void bind_pgraph(py::module_& m) {
  py::class_<CompleteGraph>(m, "PGraph", R"doc(
    An operator as a pGraph: steps from the output's coordinates to the input's (Syno, section 5).

    A value: equal when its text is equal. Picklable never; carry it as text.
)doc")
      .def_static(
          "parse", [](const std::string& text) { return pgraph::parse(text); }, "text"_a, R"doc(
    Read the text that :meth:`text` writes.

    Raises:
        ParseError: the text is malformed, naming the line; or a step is illegal, with the reason.
        VerifyError: the last line does not assign the frontier to the input.
)doc")
      .def(
          "text", [](const CompleteGraph& graph) { return pgraph::to_text(graph); },
          "The whole pGraph as text, signature included; ``parse(text())`` is equal to this.")
      .def(
          "hash", [](const CompleteGraph& graph) { return to_hex(pgraph::hash_of(graph)); }, R"doc(
    32 hexadecimal digits, the same on every machine. Equal for pGraphs that differ only in the order of
    commuting steps, of weights, or of Reduces of one extent. Finer than :meth:`operator_key`.
)doc")
      .def(
          "operator_key",
          [](const CompleteGraph& graph) {
            thread_local equality::OperatorKeyCache cache;
            return to_hex(lower::operator_key(graph, cache));
          },
          R"doc(
    32 hexadecimal digits, equal for equal operators: those that compute the same up to a permutation of each
    weight's elements and of the dimensions the signature leaves unordered, however they are built.
)doc")
      .def(
          "one_scope",
          [](const CompleteGraph& graph) { return unlocked([&] { return lower::one_scope(graph); }); },
          "The operator as a tensor program of one scope ``y = sum x * w1 * ...``, symbolic over its sizes.")
      .def(
          "staged", [](const CompleteGraph& graph) { return unlocked([&] { return lower::staged(graph); }); },
          "The operator as the tensor program of least FLOPs: materialised reduction (Syno, section 8).")
      .def(
          "to_svg", [](const CompleteGraph& graph) { return pgraph::to_svg(graph); },
          "A self-contained SVG drawing: output at the bottom, weights at the side, edges labelled by size.")
      .def(
          "to_graphviz", [](const CompleteGraph& graph) { return pgraph::to_graphviz(graph); },
          "The same drawing in Graphviz's dot language.")
      .def("_repr_svg_", [](const CompleteGraph& graph) { return pgraph::to_svg(graph); })
      .def_property_readonly("steps", &lines_of, "One line for each step, as in :meth:`text`.")
      .def_property_readonly("signature", &signature_of, R"doc(
    ``{"output": [...], "input": [...], "fixed": [...], "further": [...]}``; each dimension has ``name``, ``extent``
    and ``unordered``, each further data input ``dims`` and ``fixed``.
)doc")
      .def_property_readonly("weight_count",
                             [](const CompleteGraph& graph) { return graph.graph.weights().size(); })
      .def(
          "__eq__", [](const CompleteGraph& a, const CompleteGraph& b) { return a == b; }, py::is_operator())
      .def("__hash__", [](const CompleteGraph& graph) { return pgraph::hash_of(graph).low; })
      .def("__repr__", [](const CompleteGraph& graph) {
        return fmt::format("<PGraph of {} steps, {} weight(s), {}>", graph.graph.steps().size(),
                           graph.graph.weights().size(), to_hex(pgraph::hash_of(graph)).substr(0, 12));
      });
}

/// Apart from bind_pgraph(): the signature names Spec, which bind_synth() registers.
void bind_named_operators(py::module_& m) {
  m.def(
      "named_operators",
      [] {
        std::map<std::string, std::string> result;
        for (const auto& row : pgraph::named_operators()) result.emplace(row.name, row.description);
        return result;
      },
      "Names and descriptions of the operators that :func:`named_operator` builds (Syno, Table 2 and Fig. "
      "8).");
  m.def("named_operator", &build_named, "name"_a, "spec"_a, "sizes"_a = std::map<std::string, std::string>(),
        R"doc(
    Build an operator people know as a sequence of primitives, for a spec's signature.

    Args:
        name: one of :func:`named_operators`.
        spec: its signature says which dimensions are batch (fixed), channels (unordered) and spatial.
        sizes: ``kernel`` (3), ``groups`` (2), ``dilation`` (2), ``shrink`` (2) and ``block`` (2) as sizes over the
            spec's variables, such as ``{"kernel": "k", "groups": "g"}``.
    Raises:
        UnknownName: no such operator, parameter or variable.
        SpecError: the signature does not fit the operator, saying which dimension.
    Source:
        Syno, Table 2, Fig. 3 and Figs. 8 and 9.
)doc");
}
