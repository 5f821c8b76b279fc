// bindings/bind_schedule.cpp — schedules and loop nests in Python.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "bindings/dtypes.hpp"
#include "construct/construct.hpp"
#include "jit/kernel.hpp"
#include "nest/loop_nest.hpp"
#include "schedule/decisions.hpp"
#include "schedule/live.hpp"
#include "schedule/schedule.hpp"
#include "support/error.hpp"
#include "support/json.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace {

using namespace syno;
using namespace syno::construct;
using namespace syno::nest;
using namespace syno::schedule;
using bindings::dtype_named;
using machine::Target;

Schedule schedule_from_text(const std::string& text) {
  return schedule_from_json(parse_json("schedule", text));
}

using NamedRange = std::tuple<std::string, std::int64_t, std::int64_t>;

std::vector<nest::Parameter> parameters_of(const std::vector<NamedRange>& sizes) {
  std::vector<nest::Parameter> made;
  for (const auto& [name, least, greatest] : sizes) made.push_back({name, 0, least, greatest});
  return made;
}

py::dict interpret_nest(const LoopNest& nest, const py::dict& inputs,
                        const std::vector<std::int64_t>& parameters) {
  std::map<std::string, program::Values<double>> values;
  for (const auto& [key, value] : inputs) {
    const std::string name = py::cast<std::string>(key);
    const auto array = py::array_t < double, py::array::c_style | py::array::forcecast > ::ensure(value);
    if (!array) {
      PyErr_Clear();
      fail<ShapeError>("interpret", "'{}' is not an array of numbers", name);
    }
    program::Values<double> made;
    made.shape.assign(array.shape(), array.shape() + array.ndim());
    made.data.assign(array.data(), array.data() + array.size());
    values.emplace(name, std::move(made));
  }
  std::map<std::string, program::Values<double>> outputs;
  {
    const py::gil_scoped_release release;
    outputs = interpret(nest, values, parameters);
  }
  py::dict result;
  for (const auto& [name, output] : outputs) {
    py::array_t<double> array(output.shape);
    std::copy(output.data.begin(), output.data.end(), array.mutable_data());
    result[py::str(name)] = array;
  }
  return result;
}

py::list decision_rows() {
  py::list rows;
  for (const auto& row : decisions())
    rows.append(py::make_tuple(std::string(row.name), std::string(row.arguments), std::string(row.meaning)));
  return rows;
}

}  // namespace

void bind_schedule(py::module_& m) {
  py::class_<Schedule>(m, "Schedule", R"doc(
    A trace of decisions that turns a program into a loop nest (design, levels 7-9). Immutable.

    Example:
        >>> from syno._core import Program, default_schedule
        >>> p = Program.parse("y[m,n] = sum[k] a[m,k] * b[k,n]", sizes={"m": 8, "n": 8, "k": 8})
        >>> schedule = default_schedule(p)
        >>> Schedule.parse(schedule.text()) == schedule
        True
)doc")
      .def(py::init([](const std::string& dtype) { return Schedule{dtype_named(dtype), {}}; }), py::kw_only(),
           "dtype"_a = "float32", R"doc(
    The empty trace: plain loops.

    Args:
        dtype: of the arguments: "float32", "float64" or "bfloat16" (which computes in float32).
    Raises:
        UnknownName: another dtype.
)doc")
      .def_static("parse", &parse_schedule, "text"_a, R"doc(
    Parse the text form, one decision a line.

    Args:
        text: ``schedule f32`` and then lines such as ``split y loops=h numbers=8``.
    Raises:
        ParseError: names the line.
)doc")
      .def("text", py::overload_cast<const Schedule&>(&to_text), "The text form; ``parse`` reads it back.")
      .def(
          "to_json", [](const Schedule& schedule) { return to_json(schedule).dump(); },
          "The JSON form, as text; ``from_json`` reads it back.")
      .def_static("from_json", &schedule_from_text, "text"_a, R"doc(
    Read the JSON form.

    Args:
        text: what ``to_json`` gives.
    Raises:
        FormatError: says the path of what is wrong, or that the file is newer than this syno.
)doc")
      .def(
          "add",
          [](const Schedule& schedule, const std::string& name, const std::string& scope,
             const std::vector<std::string>& loops, const std::vector<std::int64_t>& numbers,
             const std::string& tensor, const std::vector<std::string>& words) {
            Schedule longer = schedule;
            longer.trace.push_back({name, scope, loops, numbers, tensor, words});
            return longer;
          },
          "name"_a, "scope"_a, py::kw_only(), "loops"_a = std::vector<std::string>(),
          "numbers"_a = std::vector<std::int64_t>(), "tensor"_a = "", "words"_a = std::vector<std::string>(),
          R"doc(
    This schedule with one more decision; what it means is checked when it is applied.

    Args:
        name: one of ``decisions()``.
        scope: the output tensor of the scope it is about.
        loops: names of the loops it is about.
        numbers: factors, extents or cuts.
        tensor: another tensor that it is about, where the decision has one.
        words: what the decision chooses between, where it has such a choice.
    Returns:
        A new schedule.
)doc")
      .def_property_readonly(
          "dtype", [](const Schedule& schedule) { return bindings::long_name(schedule.dtype); },
          "Of the arguments: 'float32', 'float64' or 'bfloat16'.")
      .def("__len__", [](const Schedule& schedule) { return schedule.trace.size(); })
      .def(
          "__eq__", [](const Schedule& a, const Schedule& b) { return a == b; }, py::is_operator())
      .def("__str__", py::overload_cast<const Schedule&>(&to_text))
      .def("__repr__", [](const Schedule& schedule) {
        return fmt::format("<Schedule {} of {} decisions>", bindings::long_name(schedule.dtype),
                           schedule.trace.size());
      });

  py::class_<LoopNest>(m, "LoopNest", R"doc(
    Explicit loops, buffers and register tiles: what a schedule makes of a program, and what is compiled. Immutable.
)doc")
      .def_static("parse", &parse_loop_nest, "text"_a, R"doc(
    Parse the text form.

    Args:
        text: what ``text()`` gives; from `#` to the end of a line is a comment.
    Raises:
        ParseError: names the line.
)doc")
      .def("text", py::overload_cast<const LoopNest&>(&to_text), "The text form; ``parse`` reads it back.")
      .def(
          "verify", [](const LoopNest& nest) { verify(nest); }, R"doc(
    Check that indices stay inside their buffers, that nothing unwritten is read and that parallel iterations do not
    meet.

    Raises:
        ScheduleError: names the loop, the buffer and the index.
)doc")
      .def("interpret", &interpret_nest, "inputs"_a, "parameters"_a = std::vector<std::int64_t>(), R"doc(
    Run the nest one iteration after the other in float64: the second oracle. Slow.

    Args:
        inputs: an array for every input buffer, by name.
        parameters: the value of each.
    Returns:
        A new float64 array for every output buffer, by name.
    Raises:
        ShapeError: an input is missing or of another shape, or a parameter is outside of its range.
)doc")
      .def("specialised", &nest::specialised, "parameters"_a, R"doc(
    The nest for one value of each parameter: without parameters.

    Args:
        parameters: their values, in the order in which the nest declares them.
    Raises:
        ShapeError: a value is outside of its range, or there are too few or too many.
)doc")
      .def_property_readonly(
          "parameters",
          [](const LoopNest& nest) {
            std::vector<std::tuple<std::string, std::int64_t, std::int64_t>> all;
            for (const auto& parameter : nest.parameters)
              all.emplace_back(parameter.name, parameter.least, parameter.greatest);
            return all;
          },
          "(name, least, greatest) of each size that a call brings along.")
      .def_property_readonly(
          "arguments",
          [](const LoopNest& nest) {
            std::vector<std::string> names;
            for (const BufferId id : arguments(nest)) names.push_back(nest.buffer(id).name);
            return names;
          },
          "Names of the arguments in call order: inputs, then outputs.")
      .def_property_readonly(
          "name", [](const LoopNest& nest) { return nest.name; }, "The kernel's symbol.")
      .def("__str__", py::overload_cast<const LoopNest&>(&to_text))
      .def("__repr__", [](const LoopNest& nest) {
        return fmt::format("<LoopNest {} with {} statements>", nest.name, nest.statements.size());
      });

  m.def(
      "default_schedule",
      [](const program::Program& program, const std::string& dtype, int threads,
         const std::vector<std::string>& constants, const Strides& strides) {
        Target target = jit::host_cpu().target;
        target.threads = threads;
        const Dtype wanted = dtype_named(dtype);
        const py::gil_scoped_release release;
        return construct::construct(program, wanted, target, fewest_cycles, constants, strides);
      },
      "program"_a, py::kw_only(), "dtype"_a = "float32", "threads"_a = 1,
      "constants"_a = std::vector<std::string>{}, "strides"_a = Strides{}, R"doc(
    A good schedule for any program on this machine, without measuring: register tiles, vectors, padded and packed
    copies, outermost loops parallel. The same for the same program, dtype and machine.

    Args:
        program: a concrete one (``Program.at``).
        dtype: of the arguments: "float32", "float64" or "bfloat16".
        threads: how many the kernel will mostly run on.
        constants: names of inputs that stay the same over calls; copies of them are prepacked
            (`apply_prepacked`).
        strides: of arguments that are not row-major, by name, in elements; the nest is for those.
    Raises:
        ScheduleError: the program has symbolic sizes, or a constant is computed or no tensor of it.
        UnknownName: another dtype.
)doc");
  m.def(
      "apply_prepacked",
      [](const program::Program& program, const Schedule& schedule,
         const std::vector<NamedRange>& sizes) -> std::optional<std::pair<LoopNest, LoopNest>> {
        auto nests = apply_prepacked(program, schedule, parameters_of(sizes));
        if (!nests) return std::nullopt;
        return std::pair{std::move(nests->prepack), std::move(nests->call)};
      },
      "program"_a, "schedule"_a, "sizes"_a = std::vector<NamedRange>(),
      py::call_guard<py::gil_scoped_release>(),
      R"doc(
    Make two loop nests of a program under a schedule: what its `prepack` decisions compute once, and the rest.

    Args:
        program: a concrete one.
        schedule: its decisions, in order.
        sizes: as for `apply_schedule`.
    Returns:
        (prepack, call), or None where nothing is prepacked. The outputs of `prepack` are inputs of `call`, by name,
        after the inputs that `call` still reads itself.
    Raises:
        ScheduleError: names the decision, its index in the trace and why it does not apply.
        UnknownName: a decision, scope, loop or tensor that there is not; lists the valid ones.
)doc");
  m.def(
      "with_live_ends",
      [](const std::vector<std::pair<std::vector<std::int64_t>, program::Program>>& instances,
         const std::vector<std::string>& names) {
        std::vector<schedule::Instance> all;
        for (const auto& [sizes, program] : instances) all.push_back({sizes, program});
        if (all.empty()) fail<ShapeError>("sizes", "there is no program");
        return schedule::with_live_ends(all, names);
      },
      "instances"_a, "names"_a, py::call_guard<py::gil_scoped_release>(), R"doc(
    A program whose extents calls may bring along, from what it is at some sizes.

    Args:
        instances: (sizes, the concrete program at them), the largest sizes first.
        names: of the sizes.
    Returns:
        The first program, with ends of ranges that follow the sizes: for `apply_schedule`.
    Raises:
        ShapeError: the programs differ in more than ends of ranges, or an end is no (a * size + b) / c of one size.
)doc");
  m.def(
      "live_ends", [](const program::Program& program) { return schedule::live_ends(program); }, "program"_a,
      "What tells a program of `with_live_ends` from the one of the largest sizes, as text; empty for "
      "others.");
  m.def(
      "fuses_growing",
      [](const program::Program& program, const Schedule& schedule) {
        return schedule::fuses_growing(program, schedule);
      },
      "program"_a, "schedule"_a, py::call_guard<py::gil_scoped_release>(), R"doc(
    Whether a schedule makes one loop of several of a scope without sums, of which an inner one ends where calls say.

    Such a loop runs as often for small sizes as for large ones. `construct_schedule` of the program itself avoids it.

    Args:
        program: of `with_live_ends`.
        schedule: of the program of the largest sizes.
    Raises:
        ScheduleError: names the decision, its index in the trace and why it does not apply.
)doc");
  m.def(
      "apply_schedule",
      [](const program::Program& program, const Schedule& schedule, const std::vector<NamedRange>& sizes) {
        return schedule::apply(program, schedule, parameters_of(sizes));
      },
      "program"_a, "schedule"_a, "sizes"_a = std::vector<NamedRange>(),
      py::call_guard<py::gil_scoped_release>(),
      R"doc(
    Make the loop nest of a program under a schedule.

    Args:
        program: a concrete one.
        schedule: its decisions, in order.
        sizes: (name, least, greatest) of those that calls bring along, for a program of `with_live_ends`.
    Raises:
        ShapeError: a size is outside of what the program was made for.
        ScheduleError: names the decision, its index in the trace and why it does not apply.
        UnknownName: a decision, scope, loop or tensor that there is not; lists the valid ones.
)doc");
  m.def("decisions", &decision_rows, R"doc(
    The decisions a schedule may hold.

    Returns:
        A list of (name, arguments, meaning), in the order people learn them.
)doc");
}
