// bindings/bind_program.cpp — tensor programs in Python: parse, inspect, interpret.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <optional>

#include "bindings/interpreted.hpp"
#include "bindings/unlocked.hpp"
#include "equality/keys.hpp"
#include "lower/derivative.hpp"
#include "program/neutral.hpp"
#include "program/offsets.hpp"
#include "program/permute.hpp"
#include "program/program.hpp"
#include "program/text.hpp"
#include "program/verify.hpp"
#include "program/without_empty.hpp"
#include "support/error.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace {

using namespace syno;
using bindings::unlocked;
using namespace syno::program;

using Shape = std::vector<std::int64_t>;

lower::Tangled tangled(bool in_two_steps) {
  return in_two_steps ? lower::Tangled::InTwoSteps : lower::Tangled::AtOnce;
}

TensorId tensor_named(const Program& program, const std::string& name) {
  if (const auto id = program.find_tensor(name)) return *id;
  std::vector<std::string> names;
  for (const Tensor& tensor : program.tensors) names.push_back(tensor.name);
  throw UnknownName("program", unknown_name("tensor", name, names));
}

std::vector<std::string> names_of(const Program& program, const std::vector<TensorId>& ids) {
  std::vector<std::string> names;
  for (const TensorId id : ids) names.push_back(program.tensor(id).name);
  return names;
}

std::string role_of(const Program& program, const std::string& name) {
  switch (program.tensor(tensor_named(program, name)).role) {
    case Role::Input:
      return "input";
    case Role::Weight:
      return "weight";
    case Role::Constant:
      return "constant";
    case Role::Computed:
      return "computed";
  }
  return "";
}

Program parse_program(const std::string& text, const std::map<std::string, std::int64_t>& sizes,
                      const std::map<std::string, Shape>& shapes,
                      const std::optional<std::vector<std::string>>& weights,
                      const std::optional<std::vector<std::string>>& data) {
  ParseOptions options;
  options.sizes = {sizes.begin(), sizes.end()};
  options.shapes = {shapes.begin(), shapes.end()};
  if (data) options.data = *data;
  if (weights) options.weights = *weights;
  options.no_weights = weights && weights->empty() && options.data.empty();
  return unlocked([&] { return parse(text, options); });
}

std::vector<std::map<std::string, std::int64_t>> valuations_of(const Program& program) {
  std::vector<std::map<std::string, std::int64_t>> result;
  for (std::size_t v = 0; v < program.sizes.valuation_count(); ++v) {
    std::map<std::string, std::int64_t> row;
    for (std::size_t i = 0; i < program.sizes.variables().size(); ++i)
      row[program.sizes.variables()[i].name] = program.sizes.valuation(v)[i];
    result.push_back(std::move(row));
  }
  return result;
}

std::vector<std::string> symbolic_shape_of(const Program& program, const std::string& name) {
  std::vector<std::string> result;
  for (const Range& dim : program.tensor(tensor_named(program, name)).dims) {
    const symbolic::Expr& begin = program.arena[dim.begin];
    const symbolic::Expr& end = program.arena[dim.end];
    const bool from_zero = begin.op == symbolic::Op::Constant && begin.value == 0;
    if (from_zero && end.op == symbolic::Op::SizeValue)
      result.push_back(program.sizes.to_text(program.arena[end.size]));
    else if (from_zero && end.op == symbolic::Op::Constant)
      result.push_back(std::to_string(end.value));
    else
      fail<ShapeError>("symbolic_shape", "dimension {} of '{}' is not one size counted from 0", result.size(),
                       name);
  }
  return result;
}

std::vector<std::string> coefficients_of(const Program& program) {
  std::vector<std::string> names;
  for (const symbolic::Variable& variable : program.sizes.variables())
    if (variable.kind == symbolic::VariableKind::Coefficient) names.push_back(variable.name);
  return names;
}

Program with_valuations(const Program& program,
                        const std::vector<std::map<std::string, std::int64_t>>& rows) {
  std::vector<std::string> names;
  for (const symbolic::Variable& variable : program.sizes.variables()) names.push_back(variable.name);
  std::vector<std::vector<std::int64_t>> valuations;
  for (const auto& row : rows) {
    for (const auto& [name, value] : row) {
      if (!program.sizes.find(name)) throw UnknownName("with_valuations", unknown_name("size", name, names));
      if (value < 1) fail<ShapeError>("with_valuations", "size {}={} is below 1", name, value);
    }
    std::vector<std::int64_t> values;
    for (const std::string& name : names) {
      const auto found = row.find(name);
      if (found == row.end()) fail<ShapeError>("with_valuations", "no value for size {}", name);
      values.push_back(found->second);
    }
    valuations.push_back(std::move(values));
  }
  if (valuations.empty()) fail<ShapeError>("with_valuations", "no valuation is given");
  Program result = program;
  result.sizes = symbolic::Sizes(program.sizes.variables(), std::move(valuations));
  verify(result);
  return result;
}

std::string operator_key_of(const Program& program,
                            const std::vector<std::pair<std::string, std::size_t>>& unordered) {
  std::vector<equality::UnorderedDim> dims;
  for (const auto& [name, dim] : unordered) {
    const TensorId tensor = tensor_named(program, name);
    if (dim >= program.tensor(tensor).dims.size())
      fail<ShapeError>("operator_key", "dimension {} is not one of the {} of '{}'", dim,
                       program.tensor(tensor).dims.size(), name);
    dims.push_back({tensor, dim});
  }
  thread_local equality::OperatorKeyCache cache;
  return unlocked(
      [&] { return to_hex(equality::operator_key(equality::one_scope_form(program), dims, &cache)); });
}

void bind_class(py::module_& m) {
  py::class_<Cost>(m, "Cost", R"doc(
    What a program costs at one valuation.

    ``flops`` counts a multiply-add as one; ``params`` is the number of weight elements; ``bytes`` is compulsory
    traffic, every tensor once for each scope that touches it, 4 bytes an element.
)doc")
      .def_readonly("flops", &Cost::flops, "Multiply-adds, and one for each other scalar function.")
      .def_readonly("params", &Cost::params, "Elements of all weights.")
      .def_readonly("bytes", &Cost::bytes, "Compulsory traffic in bytes, 4 bytes an element.")
      .def("__repr__", [](const Cost& cost) {
        return fmt::format("Cost(flops={}, params={}, bytes={})", cost.flops, cost.params, cost.bytes);
      });

  py::class_<Program>(m, "Program", R"doc(
    A tensor program: a DAG of tensor expressions (EINNET's scopes, §3). Immutable.

    Example:
        >>> from syno._core import Program
        >>> p = Program.parse("y[m,n] = sum[k] a[m,k] * b[k,n]", shapes={"a": [2, 3], "b": [3, 4]})
        >>> p.shape("y"), p.cost().flops
        ([2, 4], 24)
)doc")
      .def_static(
          "parse", &parse_program, "text"_a, py::kw_only(), "sizes"_a = std::map<std::string, std::int64_t>(),
          "shapes"_a = std::map<std::string, Shape>(), "weights"_a = py::none(), "data"_a = py::none(), R"doc(
    Parse the text form, short or full.

    One statement a line or separated by ``;``. An iterator that alone indexes a dimension runs over it. An input
    dimension whose least index is -p counts as padded by p on both sides (extent = greatest index + 1 - p), otherwise
    its extent is greatest index + 1. Reads outside a tensor give their fill, 0 unless ``x[...] fill -inf`` says else.
    A reduction ``sum[k]`` (also max, min, prod, mean) takes the product on its right.

    Args:
        text: such as ``y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]``.
        sizes: extents of iterators, or values of sizes, by name. Those that follow from shapes may be left out.
        shapes: shapes of inputs by name; they override the padding rule.
        weights: names of the inputs that are weights; the rest is data. ``[]`` for none.
        data: names of the data inputs; the rest are weights. With neither, every input but the first one read is a weight.
    Returns:
        The program, verified; ``verify()`` says which shapes were assumed.
    Raises:
        ParseError: the text is not well formed; the message points at the place.
        ShapeError: sizes are missing or contradict each other.
        UnknownName: an option names nothing in the text.
        VerifyError: the program breaks an invariant.
    Example:
        >>> from syno._core import Program
        >>> p = Program.parse("y[n,o,h] = sum[c,r] x[n,c,2*h+r-1] * k[o,c,r]", sizes=dict(n=1, o=8, c=4, h=16, r=3))
        >>> print(p.verify(), end="")
        input x [1, 4, 31]
        weight k [8, 4, 3]
        output y [1, 8, 16]
)doc")
      .def(
          "text", [](const Program& p) { return unlocked([&] { return to_text(p); }); },
          "The full text form: every range, shape, role and fill. ``Program.parse(p.text())`` is the same "
          "program.")
      .def(
          "short_text", [](const Program& p) { return unlocked([&] { return to_short_text(p); }); },
          "The text form for people, without ranges and shapes.")
      .def(
          "loops", [](const Program& p) { return unlocked([&] { return to_loops(p); }); },
          "The program as nested loops, for people: one nest a scope, in order.")
      .def(
          "verify",
          [](const Program& p) {
            return unlocked([&] {
              verify(p);
              return describe_shapes(p);
            });
          },
          R"doc(
    Check every invariant and describe the shapes.

    Returns:
        One line a tensor: role, name, shape (at every valuation).
    Raises:
        VerifyError: names the scope, the tensor and the index that are wrong.
)doc")
      .def_property_readonly(
          "inputs", [](const Program& p) { return names_of(p, p.inputs()); },
          "Names of the data inputs and weights, in the order kernels take them.")
      .def_property_readonly(
          "outputs", [](const Program& p) { return names_of(p, p.outputs); },
          "Names of the outputs, in order.")
      .def_property_readonly(
          "tensors",
          [](const Program& p) {
            std::vector<std::string> names;
            for (const Tensor& tensor : p.tensors) names.push_back(tensor.name);
            return names;
          },
          "Names of all tensors.")
      .def("role", &role_of, "name"_a, R"doc(
    Role of a tensor: ``"input"``, ``"weight"``, ``"constant"`` or ``"computed"``.

    Args:
        name: of the tensor, as the text form has it.
    Raises:
        UnknownName: there is no tensor of this name.
)doc")
      .def(
          "shape",
          [](const Program& p, const std::string& name, std::optional<std::size_t> valuation) {
            const TensorId id = tensor_named(p, name);
            if (!valuation) return shape_of(p, id);
            if (*valuation >= p.sizes.valuation_count())
              fail<ShapeError>("shape", "valuation {} asked for, but the program has {}", *valuation,
                               p.sizes.valuation_count());
            return shape_of(p, id, *valuation);
          },
          "name"_a, "valuation"_a = py::none(), R"doc(
    Extents of a tensor, as integers.

    Args:
        name: of any tensor of the program.
        valuation: position in ``valuations``; only a symbolic program needs it.
    Raises:
        ShapeError: the program is symbolic and no valuation is given, or there is no such valuation.
        UnknownName: there is no tensor of this name.
)doc")
      .def_property_readonly(
          "valuation_count", [](const Program& p) { return p.sizes.valuation_count(); },
          "Number of valuations of the sizes; 1 for a concrete program.")
      .def_property_readonly("valuations", &valuations_of,
                             "Value of every size variable by name, one dictionary a valuation.")
      .def_property_readonly("concrete", &Program::concrete, "Whether no size is symbolic.")
      .def("symbolic_shape", &symbolic_shape_of, "name"_a, R"doc(
    Extents of a tensor as sizes: ``["N", "C_in", "2*H"]``; numbers in a concrete program.

    Args:
        name: of the tensor, as the text form has it.
    Raises:
        ShapeError: a dimension does not start at 0, or its extent is no single size.
        UnknownName: there is no tensor of this name.
)doc")
      .def_property_readonly("coefficients", &coefficients_of, "Names of the coefficient variables.")
      .def(
          "with_valuations",
          [](const Program& p, const std::vector<std::map<std::string, std::int64_t>>& rows) {
            return unlocked([&] { return with_valuations(p, rows); });
          },
          "valuations"_a, R"doc(
    The same symbolic program at other valuations, such as another batch.

    Args:
        valuations: a value >= 1 for every size variable, one dictionary a valuation.
    Raises:
        ShapeError: a variable has no value or one below 1.
        VerifyError: a size of the program is not an integer there.
        UnknownName: no such variable.
)doc")
      .def(
          "at", [](const Program& p, std::size_t i) { return unlocked([&] { return at(p, i); }); }, "i"_a,
          R"doc(
    The concrete program at a valuation: every size an integer, every index simplified.

    Args:
        i: place of the valuation, from 0.
    Raises:
        ShapeError: there is no such valuation.
)doc")
      .def(
          "cost", [](const Program& p, std::size_t i) { return unlocked([&] { return cost(p, i); }); },
          "i"_a = 0, R"doc(
    Exact cost at valuation ``i``.

    Returns:
        ``Cost(flops, params, bytes)``; flops counts one multiply-add as one.
    Raises:
        ShapeError: there is no such valuation, or a number does not fit 64 bits.
)doc")
      .def(
          "structural_key",
          [](const Program& p) { return unlocked([&] { return to_hex(equality::structural_key(p)); }); },
          R"doc(
    Key of the program as it stands, 32 hexadecimal digits, the same on every machine.

    Equal up to names, order of commuting terms and equal index expressions.
)doc")
      .def("operator_key", &operator_key_of,
           "unordered"_a = std::vector<std::pair<std::string, std::size_t>>(), R"doc(
    Key of the operator the program computes, 32 hexadecimal digits, the same on every machine.

    Two operators are the same when, at every valuation, their one-scope forms have the same terms up to a permutation of
    each weight's elements and of unordered channels.

    Args:
        unordered: ``(tensor, dimension)`` pairs whose channels may be permuted.
    Raises:
        UnknownName, ShapeError: a pair names no dimension of the program.
)doc")
      .def(
          "one_scope_form",
          [](const Program& p) { return unlocked([&] { return equality::one_scope_form(p); }); },
          "The program with producers substituted into consumers, one scope an output (EINNET's fusion).")
      .def("interpret", &bindings::interpret_float64, "inputs"_a, R"doc(
    Run the reference interpreter in float64: slow, the meaning of the program.

    Args:
        inputs: arrays by name, one for each of ``inputs``, of exactly its shape; converted to float64.
    Returns:
        Every output by name, float64, C-contiguous.
    Raises:
        ShapeError: an input is missing or of another shape, or the program is symbolic (choose a valuation with ``at``).
        UnknownName: an array for no input of the program.
    Example:
        >>> from syno._core import Program
        >>> p = Program.parse("y[i] = sum[j] x[i,j]", shapes={"x": [2, 2]})
        >>> p.interpret({"x": [[1, 2], [3, 4]]})["y"].tolist()
        [3.0, 7.0]
)doc")
      .def("interpret_exact", &bindings::interpret_exactly, "inputs"_a, R"doc(
    Run the reference interpreter in exact fractions.

    Args:
        inputs: arrays or nested lists of integers, fractions or (exactly converted) floats, by name.
    Returns:
        Every output by name, as an object array of ``fractions.Fraction``; infinities as floats.
    Raises:
        VerifyError: a function of the program is not rational, or a value is undefined, such as 1/0.
        ShapeError: as ``interpret``, or a fraction does not fit 64 bits.
)doc")
      .def("interpret_points", &bindings::interpret_at_points, "inputs"_a, "output"_a, "points"_a, R"doc(
    Single elements of one output, computing only what they need.

    Args:
        inputs: as for ``interpret``.
        output: name of an output.
        points: index tuples, one number a dimension.
    Returns:
        ``(values, absolute_terms)``, float64 arrays; ``absolute_terms`` is the sum of the absolute values of the terms
        that make each element, the scale of its rounding error.
    Raises:
        ShapeError, UnknownName: as ``interpret``; also a point outside the output.
)doc")
      .def("linear_rows", &bindings::linear_rows_of, "values"_a, "output"_a, "input"_a, "points"_a, R"doc(
    Rows of the matrix that the program is, where an output is linear in an input: of which elements of the input single
    elements of the output are sums, and how much of each. Computes only what these elements are made of.

    Args:
        values: arrays or nested lists, of all inputs but that one, by name.
        output: name of an output.
        input: name of the input.
        points: index tuples of the output, one number a dimension.
    Returns:
        For each point ``(offsets, values)``: row-major places in the input, int64, ascending, of what differs from
        zero, and it, float64.
    Raises:
        VerifyError: the output is not linear in the input; names the function or reduction.
        ShapeError, UnknownName: as ``interpret_points``.

    Example:
        >>> from syno._core import Program
        >>> p = Program.parse("y[i] = sum[j] x[i+j] * w[j]", shapes={"x": [4], "w": [2]})
        >>> [(offsets, values)] = p.linear_rows({"w": [3, 5]}, "y", "x", [(1,)])
        >>> offsets.tolist(), values.tolist()
        ([1, 2], [3.0, 5.0])
)doc")
      .def(
          "derivative",
          [](const Program& p, const std::string& name, bool in_two_steps) {
            return unlocked([&] { return lower::derivative(p, name, tangled(in_two_steps)); });
          },
          "name"_a, py::kw_only(), "in_two_steps"_a = true, R"doc(
    The vector-Jacobian product with respect to an input, as a program.

    Its inputs are those of this program that it needs and a cotangent ``d<output>`` for each output; its output is
    ``d<name>``.

    Args:
        name: of the input.
        in_two_steps: sums whose index maps tangle terms and elements become two of plain indices, which mostly are
            faster.
    Raises:
        VerifyError: the program is not differentiable there.
        UnknownName: ``name`` is not an input.
)doc")
      .def(
          "derivatives",
          [](const Program& p, const std::vector<std::string>& names, bool in_two_steps) {
            return unlocked([&] { return lower::derivatives(p, names, tangled(in_two_steps)); });
          },
          "names"_a, py::kw_only(), "in_two_steps"_a = true, R"doc(
    The vector-Jacobian products with respect to several inputs, as one program that computes what they have in common
    once.

    Its inputs are as for ``derivative``; its outputs are ``d<name>`` for each name, in order.

    Args:
        names: of the inputs, each once.
        in_two_steps: as for ``derivative``.
    Raises:
        ShapeError: there are no names, or one is there twice.
        VerifyError, UnknownName: as ``derivative``.
)doc")
      .def("with_permuted", &with_permuted, "name"_a, "order"_a, R"doc(
    The same computation of an input, or to an output, whose dimensions are kept in another order.

    Args:
        name: of the input or the output.
        order: dimension ``d`` of the new tensor is dimension ``order[d]`` of this one's: what is passed, or got, is
            ``x.transpose(order)``.
    Raises:
        UnknownName: no input or output is named ``name``.
        ShapeError: ``order`` is no permutation of its dimensions.
    Example:
        >>> from syno._core import Program
        >>> p = Program.parse("y[n,c] = relu(x[n,c])", sizes={"n": 2, "c": 3})
        >>> p.with_permuted("x", [1, 0])
        Program("y[n,c] = relu(x[c,n])")
        >>> p.with_permuted("y", [1, 0])
        Program("y[c,n] = relu(x[n,c])")
)doc")
      .def(
          "neutral",
          [](const Program& p, const std::optional<std::string>& core) {
            program::Neutral made = unlocked([&] { return program::neutral(p, core); });
            std::map<std::string, std::string> names;
            for (std::size_t t = 0; t < made.names.size(); ++t)
              names[made.program.tensors[t].name] = made.names[t];
            return py::make_tuple(std::move(made.program), std::move(names), std::move(made.core));
          },
          "core"_a = py::none(), R"doc(
    The same computation under names that say nothing: two programs that differ by the names of tensors alone have one.

    Args:
        core: output of the scope that shall be the core; default the one with most points.
    Returns:
        ``(program, names, core)``: the names that were given, by the neutral ones, and the scope with most points as a program
        of its own, which programs with other scopes around it share; None where it cannot stand alone.
    Raises:
        ShapeError: the program is symbolic.
        UnknownName: no scope writes `core`.
    Example:
        >>> from syno._core import Program
        >>> p = Program.parse("q[m,n] = sum[k] v[m,k] * w[k,n]; z[m,n] = relu(q[m,n])", sizes={"m": 2, "n": 3, "k": 4})
        >>> print(p.neutral()[0].short_text())
        core[m,n] = sum[k] a0[m,k] * a1[k,n]
        t0[m,n] = relu(core[m,n])
)doc")
      .def(
          "with_least_offsets", [](const Program& p) { return program::with_least_offsets(p).program; },
          R"doc(
    The same computation of other places of inputs of the same shapes: indices of each dimension are less by the least of
    them, where each is sure to be inside; in the last dimension by multiples of 16. It takes as long.

    Raises:
        ShapeError: the program is symbolic.
    Example:
        >>> from syno._core import Program
        >>> p = Program.parse("y[j] = x[7,j] + x[9,j+20]", sizes={"j": 4}, shapes={"x": [12, 32]})
        >>> p.with_least_offsets()
        Program("y[j] = x[0,j] + x[2,j+20]")
)doc")
      .def("heaviest", &program::heaviest, "share"_a, R"doc(
    The scopes with much of the work, most first, by their outputs.

    Args:
        share: least part of the points of all iteration spaces, 0 to 1.
)doc")
      .def("renamed", &program::renamed, "names"_a, R"doc(
    The same computation with other names for some tensors; one that is in their way gets a number behind its name.

    Args:
        names: new names by the tensors' present ones.
    Raises:
        UnknownName: there is no such tensor.
        ShapeError: two tensors would have one name, or text cannot hold it.
)doc")
      .def("without_empty", &without_empty, "three"_a, R"doc(
    What is left where some extents are 0. Programs have no empty ranges, so such a one is given twice: this is the
    program with 2 in the place of each.

    Tensors without elements are gone, from the inputs too; a sum over nothing is 0, a product 1, a mean not a number;
    what is read of an empty tensor is the fill.

    Args:
        three: the same with 3 in the place of each.
    Raises:
        ShapeError: an output is empty itself, a maximum or minimum is over nothing, or an index depends on the extents.
    Example:
        >>> from syno._core import Program
        >>> text = "y[i] = z[i] + sum[k] a[i,k]"
        >>> two, three = (Program.parse(text, sizes={"i": 4, "k": k}) for k in (2, 3))
        >>> two.without_empty(three).shape("y")
        [4]
)doc")
      .def(
          "__eq__", [](const Program& a, const Program& b) { return to_text(a) == to_text(b); },
          py::is_operator())
      .def("__hash__", [](const Program& p) { return hash_text(to_text(p)).low >> 1; })
      .def("__copy__", [](const Program& p) { return p; })
      .def(
          "__deepcopy__", [](const Program& p, const py::dict&) { return p; }, "memo"_a)
      .def("__str__", &to_text)
      .def("__repr__", [](const Program& p) { return "Program(\"" + to_short_text(p) + "\")"; });
}

}  // namespace

void bind_program(py::module_& m) { bind_class(m); }
