// bindings/bind_tune.cpp — what chooses schedules by the machine model, and what measures them, in Python.
#include <fmt/ranges.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <variant>

#include "bindings/dtypes.hpp"
#include "construct/gensor.hpp"
#include "construct/policies.hpp"
#include "construct/tiling.hpp"
#include "machine/machine.hpp"
#include "support/error.hpp"
#include "support/significant.hpp"
#include "tune/measure.hpp"
#include "tune/space.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace {

using namespace syno;
using machine::Machine;

using PolicyArgument = std::variant<std::string, py::function>;

/// A question as Python sees it.
struct ScopeQuestion {
  std::string scope;
  std::vector<std::int64_t> extents;
  std::size_t traversal = 0;
  construct::Sketches sketches;
};

using Given = std::map<std::string, std::int64_t>;

std::size_t sketch_named(const construct::Sketches& sketches, const py::handle& which) {
  if (py::isinstance<py::str>(which)) {
    std::vector<std::string> valid;
    for (const auto& sketch : sketches) valid.push_back(sketch.name);
    const auto name = which.cast<std::string>();
    const auto at = std::find(valid.begin(), valid.end(), name);
    if (at == valid.end()) fail<UnknownName>("construct", "{}", unknown_name("sketch", name, valid));
    return static_cast<std::size_t>(at - valid.begin());
  }
  if (!py::isinstance<py::int_>(which) || py::isinstance<py::bool_>(which))
    fail<ScheduleError>("construct", "{} is neither the place nor the name of a sketch",
                        py::repr(which).cast<std::string>());
  int overflow = 0;
  const long long at = PyLong_AsLongLongAndOverflow(which.ptr(), &overflow);
  if (overflow != 0 || at < 0 || at >= static_cast<long long>(sketches.size()))
    fail<ScheduleError>("construct", "there are {} sketches, counted from 0; none is number {}",
                        sketches.size(), py::repr(which).cast<std::string>());
  return static_cast<std::size_t>(at);
}

/// The counted numbers of a sketch with those that are given.
construct::Choosing choosing_of(const construct::Sketches& sketches, const py::handle& which,
                                const py::handle& given) {
  const std::size_t at = sketch_named(sketches, which);
  const construct::Sketch& sketch = sketches[at];
  construct::Choosing made{at, sketch.counted};
  if (!py::isinstance<py::dict>(given))
    fail<ScheduleError>("construct", "the numbers of {} are a dict such as {{'rows': 4}}, not {}",
                        sketch.name, py::repr(given).cast<std::string>());
  std::vector<std::string> valid;
  for (const auto& choice : sketch.choices) valid.emplace_back(choice.name);
  for (const auto& [key, value] : py::reinterpret_borrow<py::dict>(given)) {
    const std::string name = py::str(key);
    const auto choice = std::find_if(sketch.choices.begin(), sketch.choices.end(),
                                     [&](const auto& c) { return c.name == name; });
    if (choice == sketch.choices.end())
      fail<UnknownName>("construct", "{}", unknown_name("choice of " + sketch.name, name, valid));
    const bool whole = py::isinstance<py::int_>(value) && !py::isinstance<py::bool_>(value);
    int overflow = 0;
    const std::int64_t number = whole ? PyLong_AsLongLongAndOverflow(value.ptr(), &overflow) : 0;
    if (!whole || overflow != 0 ||
        std::find(choice->values.begin(), choice->values.end(), number) == choice->values.end())
      fail<ScheduleError>("construct", "{} of {} is one of [{}], not {}", name, sketch.name,
                          fmt::join(choice->values, ", "), py::repr(value).cast<std::string>());
    made.numbers.*choice->number = number;
  }
  return made;
}

construct::Chooser chooser_of(const py::function& policy) {
  // The last reference may go where the lock is not held.
  const std::shared_ptr<py::function> kept(new py::function(policy), [](py::function* function) {
    const py::gil_scoped_acquire locked;
    delete function;
  });
  return [kept](const construct::Question& question) {
    const py::gil_scoped_acquire locked;
    const auto asked = std::make_shared<ScopeQuestion>();
    asked->scope = question.scope;
    asked->extents = question.facts.extents;
    asked->traversal = question.facts.traversal;
    asked->sketches = question.sketches;
    const py::object answer = (*kept)(py::cast(asked));
    if (!py::isinstance<py::tuple>(answer) || py::len(answer) != 2)
      fail<ScheduleError>("construct",
                          "a policy answers (sketch, {{choice: value}}) for '{}'; this one answered {}",
                          question.scope, py::repr(answer).cast<std::string>());
    const auto pair = py::reinterpret_borrow<py::tuple>(answer);
    const construct::Choosing made = choosing_of(question.sketches, pair[0], pair[1]);
    if (!question.sketches[made.sketch].fits(made.numbers))
      fail<ScheduleError>("construct",
                          "{} has no register tile of these numbers: they do not fit the registers",
                          question.sketches[made.sketch].name);
    return made;
  };
}

void bind_construct(py::module_& m) {
  py::class_<construct::Sketch>(
      m, "ConstructSketch", "A way to schedule one reduction: the structure, and the numbers it leaves open.")
      .def_readonly("name", &construct::Sketch::name, "Of the strategy and of what distinguishes this one.")
      .def_readonly("cycles", &construct::Sketch::cycles, "Predicted by count, with the counted numbers.")
      .def_property_readonly(
          "choices",
          [](const construct::Sketch& sketch) {
            std::map<std::string, std::vector<std::int64_t>> values;
            for (const auto& choice : sketch.choices) values[std::string(choice.name)] = choice.values;
            return values;
          },
          "The values of each number that is left open, by name.")
      .def_property_readonly(
          "counted",
          [](const construct::Sketch& sketch) {
            Given numbers;
            for (const auto& choice : sketch.choices)
              numbers[std::string(choice.name)] = sketch.counted.*choice.number;
            return numbers;
          },
          "The numbers that count the fewest cycles.")
      .def(
          "estimate",
          [](const construct::Sketch& sketch, const py::object& numbers) {
            return sketch.estimate(choosing_of({sketch}, py::int_(0), numbers).numbers);
          },
          "numbers"_a, "Predicted cycles by count; infinite where there is no such register tile.")
      .def(
          "breakdown",
          [](const construct::Sketch& sketch, const py::object& numbers) {
            const auto made = sketch.count(choosing_of({sketch}, py::int_(0), numbers).numbers);
            return std::map<std::string, double>{{"computing", made.computing},
                                                 {"copying", made.copying},
                                                 {"moving", made.moving},
                                                 {"waiting", made.waiting}};
          },
          "numbers"_a = py::dict(),
          R"(What ``estimate`` is made of, in cycles: computing hides most of moving, nothing hides waiting.

    Args:
        numbers: those that differ from the counted ones, as ``{"rows": 4}``.
    Raises:
        UnknownName: a number that the sketch does not leave open.
        ScheduleError: a value it does not have.
)")
      .def(
          "tiling",
          [](const construct::Sketch& sketch, const py::object& numbers) {
            return to_text(sketch.tiling(choosing_of({sketch}, py::int_(0), numbers).numbers), *sketch.facts);
          },
          "numbers"_a = py::dict(),
          R"(In words: the register tile, the loops around it, the copies and where the result goes.

    Args:
        numbers: those that differ from the counted ones, as ``{"rows": 4}``.
    Raises:
        UnknownName: a number that the sketch does not leave open.
        ScheduleError: a value it does not have.
)")
      .def("__repr__", [](const construct::Sketch& sketch) {
        return fmt::format("<ConstructSketch {}, {:.3g} cycles>", sketch.name, sketch.cycles);
      });
  py::class_<ScopeQuestion, std::shared_ptr<ScopeQuestion>>(m, "ScopeQuestion",
                                                            "What a policy is asked: how to write one scope.")
      .def_readonly("scope", &ScopeQuestion::scope, "The tensor it computes.")
      .def_readonly("extents", &ScopeQuestion::extents, "Of its loops, results first, then sums.")
      .def_readonly("traversal", &ScopeQuestion::traversal, "How many of them are over results.")
      .def_readonly("sketches", &ScopeQuestion::sketches, "What can be answered.")
      .def("__repr__", [](const ScopeQuestion& question) {
        return fmt::format("<ScopeQuestion {}: {} sketches>", question.scope, question.sketches.size());
      });
  m.def(
      "construction_policies",
      [] {
        std::vector<std::pair<std::string, std::string>> rows;
        for (const auto& row : construct::policies())
          rows.emplace_back(std::string(row.name), std::string(row.meaning));
        return rows;
      },
      "The policies that construct schedules without measuring: (name, meaning) of each.");
  py::class_<construct::Constructed>(m, "Constructed",
                                     "A schedule that was constructed without measuring, and why.")
      .def_readonly("schedule", &construct::Constructed::schedule)
      .def_readonly("prediction", &construct::Constructed::prediction)
      .def_property_readonly(
          "predicted_s", [](const construct::Constructed& made) { return made.prediction.seconds; },
          "Of one call.")
      .def_readonly("counted_s", &construct::Constructed::counted_s, "Predicted for the counted schedule.")
      .def_property_readonly("bottleneck",
                             [](const construct::Constructed& made) { return made.prediction.bottleneck; })
      .def_readonly("construct_ms", &construct::Constructed::construct_ms)
      .def(
          "to_json", [](const construct::Constructed& made) { return construct::to_json(made).dump(); },
          "Walks, benefits, ranking, as JSON text.")
      .def(
          "text",
          [](const construct::Constructed& made, bool walk) { return construct::to_text(made, walk); },
          py::kw_only(), "walk"_a = false,
          "Why the schedule is as it is; with ``walk``, every step of the walks instead of those that tell "
          "most.")
      .def("__str__", [](const construct::Constructed& made) { return construct::to_text(made); })
      .def("__repr__", [](const construct::Constructed& made) {
        return fmt::format("<Constructed schedule, {} us predicted, limited by {}>",
                           significant(made.prediction.seconds * 1e6), made.prediction.bottleneck);
      });
  m.def(
      "construct_schedule",
      [](const program::Program& program, const Machine& machine, const std::string& dtype, int threads,
         const PolicyArgument& policy, std::uint64_t seed, int iterations, int walks, bool annealing,
         bool vthreads, bool printed, bool record_all, bool counted, std::size_t finalists,
         std::size_t refinements, std::size_t budget, bool cold, construct::Strides strides,
         int spare_registers, std::vector<std::string> constants, std::size_t constants_from, bool fusions,
         bool explain) {
        construct::ConstructOptions options;
        options.explain = explain;
        options.cold = cold;
        options.fusions = fusions;
        options.strides = std::move(strides);
        options.spare_registers = spare_registers;
        options.constants = std::move(constants);
        options.constants_from = constants_from;
        if (const auto* name = std::get_if<std::string>(&policy))
          options.policy = construct::policy_named(*name).name;
        else
          options.chooser = chooser_of(std::get<py::function>(policy));
        options.budget = budget;
        options.seed = seed;
        options.iterations = iterations;
        options.walks = walks;
        options.annealing = annealing;
        options.vthreads = vthreads;
        options.printed = printed;
        options.record_all = record_all;
        options.counted = counted;
        options.finalists = finalists;
        options.refinements = refinements;
        options.threads = threads;
        const nest::Dtype wanted = bindings::dtype_named(dtype);
        const py::gil_scoped_release unlocked;
        return construct::construct(program, wanted, machine, options);
      },
      "program"_a, "machine"_a, py::kw_only(), "dtype"_a = "float32", "threads"_a = 1, "policy"_a = "graph",
      "seed"_a = 0, "iterations"_a = 100, "walks"_a = 2, "annealing"_a = true, "vthreads"_a = true,
      "printed"_a = false, "record_all"_a = true, "counted"_a = true, "finalists"_a = 5, "refinements"_a = 24,
      "budget"_a = 10'000, "cold"_a = false, "strides"_a = construct::Strides{}, "spare_registers"_a = 0,
      "constants"_a = std::vector<std::string>{}, "constants_from"_a = 0, "fusions"_a = true,
      "explain"_a = true,
      R"doc(
    Construct a schedule from the machine model, without measuring (Gensor, section IV).

    Args:
        program: a concrete one.
        machine: the model it is constructed for.
        dtype: of the arguments: "float32", "float64" or "bfloat16".
        threads: how many the kernel will mostly run on.
        policy: "graph" (Gensor's walk), "tree" (greedy, no way back, as Roller), "uniform" (a random walk along the
            same edges), "all" (every state, up to ``budget``), "counted" (no construction), as
            ``construction_policies()`` lists them; or a function that is asked once a scope, consumers first, and
            again where the construction begins anew. It gets a ``ScopeQuestion`` and returns
            ``(sketch, {choice: value})``: the place or name of a sketch, and the numbers that differ from its
            counted ones. It should depend on the question only.
        seed: of the walks. The result depends on the arguments only.
        iterations: of a walk; walks: restarts for each sketch.
        annealing: the benefit of caching grows with the iteration.
        vthreads: register interleaving exists.
        printed: formula (1) as the paper prints it instead of as its text explains it.
        record_all: every state that can be built is a candidate; otherwise with the paper's probability.
        counted: the counted schedule stays where nothing is predicted to be better.
        finalists: states of a scope that are built and predicted, whatever the policy.
        refinements: states next to the best finalists that are built and predicted, one number after the other moved
            as long as the prediction falls; 0: none.
        budget: states of a sketch that "all" counts.
        cold: arguments come from main memory.
        strides: of arguments that are not row-major, by name, in elements; the nest is for those.
        spare_registers: that tiles leave to the code generator, beside those they always do.
        constants: names of inputs that stay the same over calls; copies of them are prepacked
            (`apply_prepacked`), and predictions are of calls.
        constants_from: an index of the machine's levels: ``constants`` come from there at each call, as weights of a
            network do that no nearer one holds; 0: from the nearest that holds the arguments.
        fusions: scopes may be computed tile by tile of one that reads them, where that is predicted to be faster.
        explain: remember what was considered; the schedule is the same without.
    Raises:
        ScheduleError: the program has symbolic sizes, or a constant is computed or no tensor of it.
        UnknownName: another dtype or policy; a function named a sketch or a choice that there is not.
        ScheduleError: a function answered something else, or what cannot be built.
)doc");
}

void bind_measure(py::module_& m) {
  using tune::Measured;
  using tune::MeasureOptions;
  py::class_<Measured>(m, "Measured", "What one candidate took, or why it has no time.")
      .def_property_readonly(
          "outcome", [](const Measured& made) { return std::string(tune::name_of(made.outcome)); },
          "'ok', 'not applicable', 'wrong', 'crashed', 'timed out' or 'too much memory'.")
      .def_readonly("reason", &Measured::reason, "Where the outcome is not 'ok'.")
      .def_readonly("median_s", &Measured::median_s, "Of one call.")
      .def_readonly("q1_s", &Measured::q1_s)
      .def_readonly("q3_s", &Measured::q3_s)
      .def_readonly("samples", &Measured::samples)
      .def_readonly("calls", &Measured::calls, "In a sample.")
      .def_readonly("compile_ms", &Measured::compile_ms)
      .def_readonly("spills", &Measured::spills)
      .def_readonly("note", &Measured::note, "What may have disturbed the times; empty: nothing known.")
      .def("__repr__", [](const Measured& made) {
        return made.outcome == tune::Outcome::Ok
                   ? fmt::format("Measured({} us, [{}, {}])", significant(made.median_s * 1e6),
                                 significant(made.q1_s * 1e6), significant(made.q3_s * 1e6))
                   : fmt::format("Measured({}: {})", tune::name_of(made.outcome), made.reason);
      });
  py::class_<MeasureOptions>(m, "MeasureOptions", "How candidates are measured.")
      .def(py::init<>())
      .def_readwrite("threads", &MeasureOptions::threads, "Of a call.")
      .def_readwrite("cold", &MeasureOptions::cold, "Caches are flushed before every call.")
      .def_readwrite("verify", &MeasureOptions::verify, "Against the interpreter, before anything is timed.")
      .def_readwrite("samples", &MeasureOptions::samples, "3 to 64.")
      .def_readwrite("sample_s", &MeasureOptions::sample_s,
                     "A sample repeats the call for this long, seconds.")
      .def_readwrite("limit_s", &MeasureOptions::limit_s, "For verifying and timing one candidate, seconds.")
      .def_readwrite("memory_bytes", &MeasureOptions::memory_bytes, "Arguments and workspace together.")
      .def_readwrite("compilers", &MeasureOptions::compilers,
                     "Threads that compile; 0: as many as there are.")
      .def_readwrite("pin", &MeasureOptions::pin, "CPU to run on with one thread; -1: the last usable one.")
      .def_readwrite("lock_file", &MeasureOptions::lock_file,
                     "Held while something is timed; empty: no lock.")
      .def_readwrite("lock_wait_s", &MeasureOptions::lock_wait_s,
                     "After so many seconds it is timed without the lock, and noted.")
      .def_readwrite("cache_directory", &MeasureOptions::cache_directory,
                     "Of compiled objects; empty: none.");
  m.def("measure_schedules", &tune::measure, "program"_a, "schedules"_a, "options"_a,
        py::call_guard<py::gil_scoped_release>(), R"doc(
    Compile in parallel, then verify and time one after the other, each in a child process.

    Args:
        program: a concrete one.
        schedules: the candidates.
        options: threads, limits, samples.
    Returns:
        One `Measured` a candidate, in order.
    Raises:
        KernelError: threads, samples or limit_s out of range.
)doc");
  m.def("compare_schedules", &tune::compare, "program"_a, "a"_a, "b"_a, "options"_a,
        py::call_guard<py::gil_scoped_release>(),
        "time(a) / time(b), called in turns in one child process, by first quartiles; 0 where either fails.");
}

void bind_space(py::module_& m) {
  using tune::Candidate;
  using tune::ScheduleSpace;
  py::class_<Candidate>(m, "Candidate", "A schedule that applies, with what a cost model sees of it.")
      .def_readonly("schedule", &Candidate::schedule)
      .def_readonly("features", &Candidate::features, "In the order of ``feature_names()``.")
      .def_readonly("predicted_s", &Candidate::predicted_s, "Of one call.");
  py::class_<ScheduleSpace>(m, "ScheduleSpace", R"doc(
    The space a search draws schedules of one program from: sketches with numbers, and traces changed in place.

    Every candidate applies to the program and keeps its meaning. The same seed draws the same candidate.
)doc")
      .def(py::init([](const program::Program& program, const Machine& machine, const std::string& dtype,
                       int threads, std::vector<std::string> constants, bool laid_out) {
             return ScheduleSpace(program, bindings::dtype_named(dtype), machine, threads,
                                  std::move(constants), laid_out);
           }),
           "program"_a, "machine"_a, py::kw_only(), "dtype"_a = "float32", "threads"_a = 1,
           "constants"_a = std::vector<std::string>{}, "laid_out"_a = false, R"doc(
    Args:
        constants: inputs that stay the same over calls: what is made of them alone is prepacked, and what is predicted
            is a call without it.
        laid_out: the program says where intermediate results lie, as one with chosen layouts does; no schedule says
            otherwise.
)doc")
      .def(
          "starts",
          [](const ScheduleSpace& space) {
            const py::gil_scoped_release unlocked;
            return space.starts();
          },
          "Where a search begins: every sketch of every reduction by its counted numbers, the others as "
          "counted; "
          "what is predicted to be fastest first.")
      .def(
          "sample",
          [](const ScheduleSpace& space, std::uint64_t seed) {
            const py::gil_scoped_release unlocked;
            Random random(seed);
            return space.sample(random);
          },
          "seed"_a, "A random sketch with random numbers for every reduction; None where nothing applies.")
      .def(
          "mutate",
          [](const ScheduleSpace& space, const Candidate& parent, std::uint64_t seed) {
            const py::gil_scoped_release unlocked;
            Random random(seed);
            return space.mutate(parent, random);
          },
          "parent"_a, "seed"_a, "One number, sketch or decision changed; None where nothing applies.")
      .def(
          "cross",
          [](const ScheduleSpace& space, const Candidate& a, const Candidate& b, std::uint64_t seed) {
            const py::gil_scoped_release unlocked;
            Random random(seed);
            return space.cross(a, b, random);
          },
          "a"_a, "b"_a, "seed"_a, "Each scope's choice from one of two parents; None where nothing applies.")
      .def(
          "candidate",
          [](const ScheduleSpace& space, const schedule::Schedule& schedule) {
            const py::gil_scoped_release unlocked;
            return space.candidate(schedule);
          },
          "schedule"_a, "Of a schedule from elsewhere; None where it does not apply.");
  m.def(
      "trace_mutations",
      [] {
        std::vector<std::pair<std::string, std::string>> rows;
        for (const auto& row : tune::trace_mutations()) rows.emplace_back(row.name, row.meaning);
        return rows;
      },
      "(name, meaning) of every way to change a trace in place.");
}

}  // namespace

void bind_tune(py::module_& m) {
  bind_construct(m);
  bind_measure(m);
  bind_space(m);
}
