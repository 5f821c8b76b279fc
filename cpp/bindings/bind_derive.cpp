// bindings/bind_derive.cpp — rewrites of programs in Python: the rows, where they apply, the search among
// equivalent programs, and what is computed once.
#include <fmt/format.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "derive/einnet.hpp"
#include "derive/folded.hpp"
#include "derive/forms.hpp"
#include "derive/roughness.hpp"
#include "derive/search.hpp"
#include "lower/compacted.hpp"
#include "machine/machine.hpp"
#include "program/merge_dims.hpp"
#include "support/error.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace {

using namespace syno;
using derive::Rewrite;
using derive::SearchOptions;
using derive::Site;
using program::Program;

derive::Rates rates_of(const machine::Machine& machine, int element_bytes) {
  if (element_bytes != 2 && element_bytes != 4 && element_bytes != 8)
    fail<ShapeError>("derive", "element_bytes={}; numbers have 2, 4 or 8 bytes", element_bytes);
  derive::Rates rates;
  rates.multiply_adds_per_s = machine.peak_gflops(element_bytes) * 1e9 / 2;
  rates.element_bytes = element_bytes;
  for (const machine::MemoryLevel& level : machine.levels) {
    const double between = 2e9 / (1 / std::max(level.read_gbs, 1e-3) + 1 / std::max(level.write_gbs, 1e-3));
    rates.levels.push_back({static_cast<double>(level.usable()), between});
    rates.memory_bytes_per_s = between;
  }
  return rates;
}

std::string described(const Site& site) {
  std::string text = site.scope;
  if (!site.iterator.empty()) text += "[" + site.iterator + "]";
  if (!site.other.empty()) text += ", " + site.other;
  if (!site.numbers.empty()) text += fmt::format(" ({})", fmt::join(site.numbers, ", "));
  return text;
}

Program rewritten(Program program, const std::string& row, const Site& site) {
  if (row == derive::kEinnetStep) {
    derive::apply_einnet(program, site);
    return program;
  }
  derive::rewrite_named(row).apply(program, site);
  const auto inputs = program.inputs();
  return lower::compacted(program, {inputs.begin(), inputs.end()});
}

// What Python says while the search runs: whether to go on. What it raises goes on when the search is back.
class Watcher {
 public:
  explicit Watcher(py::object call) : call_(std::move(call)) {}

  bool operator()(const derive::Progress& progress) {
    const py::gil_scoped_acquire lock;
    if (PyErr_CheckSignals() != 0) {
      raised_.emplace();  // takes the pending exception over
      return false;
    }
    if (call_.is_none()) return true;
    try {
      const py::object answer = call_(progress.states, progress.seconds, progress.best);
      return answer.is_none() || py::cast<bool>(answer);
    } catch (py::error_already_set& error) {
      raised_.emplace(std::move(error));
      return false;
    }
  }

  bool interrupted() const { return raised_ && raised_->matches(PyExc_KeyboardInterrupt); }
  /// Anything but Ctrl-C, which ends the search with what it has.
  void rethrow() {
    if (raised_ && !interrupted()) throw std::move(*raised_);
  }

 private:
  py::object call_;
  std::optional<py::error_already_set> raised_;
};

constexpr int kMostWorkers = 1024;

struct Result {
  derive::Found found;
  bool interrupted = false;
};

Result search(const Program& program, const machine::Machine& machine, const std::vector<std::string>& rules,
              const std::vector<std::string>& constants, bool reassociating, int depth, double seconds,
              std::int64_t states, double growth, double roughness, int keep, int element_bytes, int workers,
              const py::object& watch) {
  if (workers < 1 || workers > kMostWorkers)
    fail<ShapeError>("derive", "workers={}; a search has 1 to {}", workers, kMostWorkers);
  SearchOptions options;
  options.rows = rules;
  options.constants = constants;
  options.reassociating = reassociating;
  options.depth = depth;
  options.seconds = seconds;
  options.states = states;
  options.growth = growth;
  options.roughness = roughness;
  options.keep = keep;
  options.threads = workers;
  options.rates = rates_of(machine, element_bytes);
  Watcher watcher(watch);
  Result result;
  {
    const py::gil_scoped_release unlocked;
    result.found = derive::search(program, options, std::ref(watcher));
  }
  watcher.rethrow();
  result.interrupted = watcher.interrupted();
  return result;
}

struct EinnetResult {
  derive::EinnetFound found;
  bool interrupted = false;

  std::string ended() const {
    if (interrupted) return "interrupted";
    return found.memory ? "memory" : std::string(derive::name_of(found.found.ended));
  }
};

EinnetResult search_einnet(const Program& program, const machine::Machine& machine, const std::string& target,
                           const std::vector<std::string>& constants, int depth, int converging,
                           double seconds, std::int64_t states, std::int64_t bytes, bool key, int keep,
                           int element_bytes, const py::object& watch) {
  derive::EinnetOptions options;
  options.target = target;
  options.constants = constants;
  options.depth = depth;
  options.converging = converging;
  options.seconds = seconds;
  options.states = states;
  options.bytes = bytes;
  options.key = key;
  options.keep = keep;
  options.rates = rates_of(machine, element_bytes);
  Watcher watcher(watch);
  EinnetResult result;
  {
    const py::gil_scoped_release unlocked;
    result.found = derive::search_einnet(program, options, std::ref(watcher));
  }
  watcher.rethrow();
  result.interrupted = watcher.interrupted();
  return result;
}

void bind_einnet(py::module_& m) {
  py::class_<EinnetResult>(m, "EinnetSearch", "What a search in EINNET's space found.")
      .def_property_readonly("derivations", [](const EinnetResult& r) { return r.found.found.derivations; })
      .def_property_readonly(
          "labels", [](const EinnetResult& r) { return r.found.labels; },
          "Of each derivation: which operator its product is.")
      .def_property_readonly("states", [](const EinnetResult& r) { return r.found.found.states; })
      .def_property_readonly("applications", [](const EinnetResult& r) { return r.found.found.applications; })
      .def_property_readonly("repeats", [](const EinnetResult& r) { return r.found.found.repeats; })
      .def_property_readonly("seconds", [](const EinnetResult& r) { return r.found.found.seconds; })
      .def_property_readonly("candidates", [](const EinnetResult& r) { return r.found.candidates; })
      .def_property_readonly(
          "converged", [](const EinnetResult& r) { return r.found.converged; },
          "Of the states, those that the converging stage made.")
      .def_property_readonly(
          "target_depth", [](const EinnetResult& r) { return r.found.target_depth; },
          "The least number of steps to the target; -1 where it was not found.")
      .def_property_readonly(
          "nearest", [](const EinnetResult& r) { return r.found.nearest; },
          "How many iterators the nearest state is away from the target; 0: it was found.")
      .def_property_readonly(
          "missing", [](const EinnetResult& r) { return r.found.missing; }, "What they are.")
      .def_property_readonly(
          "bytes", [](const EinnetResult& r) { return r.found.bytes; }, "Of memory for states, in the end.")
      .def_property_readonly(
          "levels",
          [](const EinnetResult& r) {
            std::vector<std::tuple<std::int64_t, std::int64_t, double>> levels;
            for (const auto& level : r.found.levels)
              levels.emplace_back(level.states, level.candidates, level.seconds);
            return levels;
          },
          "By depth: new states, those that are the target, seconds since the beginning.")
      .def_property_readonly("ended", &EinnetResult::ended)
      .def("__repr__", [](const EinnetResult& r) {
        return fmt::format("<EinnetSearch {} states, {} candidates>", r.found.found.states,
                           r.found.candidates);
      });
  m.def(
      "guessed_seconds",
      [](const Program& program, const machine::Machine& machine, const std::vector<std::string>& constants,
         int element_bytes) {
        const py::gil_scoped_release unlocked;
        const derive::Rates rates = rates_of(machine, element_bytes);
        return derive::estimate(program, rates, derive::before_calls(program, constants)).seconds;
      },
      "program"_a, "machine"_a, py::kw_only(), "constants"_a = std::vector<std::string>{},
      "element_bytes"_a = 4, R"doc(
    Seconds of a call of a concrete program, as the search among equivalent ones guesses them: without a schedule.

    Args:
        constants: inputs that stay the same over calls: what depends on them alone costs nothing.
        element_bytes: 2, 4 or 8.
    Raises:
        ShapeError: elements of another size.
        UnknownName: no such input.
)doc");
  m.def("search_einnet", &search_einnet, "program"_a, "machine"_a, py::kw_only(), "target"_a = "any",
        "constants"_a = std::vector<std::string>{}, "depth"_a = 7, "converging"_a = 0, "seconds"_a = 0.0,
        "states"_a = 0, "bytes"_a = std::int64_t{8} << 30, "key"_a = true, "keep"_a = 16,
        "element_bytes"_a = 4, "watch"_a = py::none(), R"doc(
    Every program that EINNET's rules make of a sum of products in so many steps; Ctrl-C returns what there is.

    Args:
        target: the operator of a library that is looked for: "matmul", "bmm", "conv", "g2bmm", with attributes
            as "conv:kernel=3x3", or "any".
        constants: inputs that stay the same over calls.
        depth: most steps of any kind.
        converging: from there on steps that each come nearer to the target are taken, too, where at most so many
            iterators keep a program from being it (paper, section 5.2; its code has 2). 0: none.
        seconds: 0: as long as it takes.
        states: most states; 0: any number.
        bytes: most memory for states.
        key: False: a program is looked at each time it is made.
        keep: most programs that come back.
        watch: called with (states, seconds, guessed seconds of the original); False stops the search.

    Raises:
        ScheduleError: no scope is a sum of products of elements.
        UnknownName: no such target, or attribute of it.
)doc");
  using Pairs = std::vector<std::pair<std::string, std::size_t>>;
  const auto pairs_of = [](const Program& program, const Pairs& named) {
    std::vector<program::DimPair> pairs;
    for (const auto& [name, dim] : named) {
      const auto tensor = program.find_tensor(name);
      if (!tensor || dim + 1 >= program.tensor(*tensor).dims.size())
        fail<ShapeError>("merge_dims", "the program has no dimensions {} and {} of {}", dim, dim + 1, name);
      pairs.push_back({*tensor, dim});
    }
    return pairs;
  };
  m.def(
      "mergeable",
      [pairs_of](const Program& program, const Pairs& wanted) {
        Pairs found;
        for (const auto& pair : program::mergeable(program, pairs_of(program, wanted)))
          found.emplace_back(program.tensor(pair.tensor).name, pair.dim);
        return found;
      },
      "program"_a, "wanted"_a, R"doc(
    Of (tensor, dimension), those that a concrete program only walks together with the dimension behind.

    Raises:
        ShapeError: there is no such dimension.
)doc");
  m.def(
      "merge_dims",
      [pairs_of](const Program& program, const Pairs& pairs, std::optional<std::int64_t> extent) {
        return program::merge_dims(program, pairs_of(program, pairs), extent);
      },
      "program"_a, "pairs"_a, "extent"_a = py::none(), R"doc(
    The program with dimensions that `mergeable` gave and those behind them made one.

    Args:
        extent: of all that are merged; default the product of two.
    Raises:
        ShapeError: there is no such dimension, it is not mergeable, or the extent is below 1.
)doc");
  m.def(
      "einnet_step",
      [](const Program& program, const Site& site, const std::string& target) {
        const derive::EinnetStep step = derive::einnet_step(program, site, target);
        return std::make_pair(step.moves, step.label);
      },
      "program"_a, "site"_a, "target"_a = "any",
      "A line for each move of an 'einnet' step, and which operator the product is in the end.");
}

void bind_rows(py::module_& m) {
  py::class_<Site>(m, "RewriteSite", "Where a rewrite applies, by names.")
      .def(py::init([](std::string scope, std::string iterator, std::string other, std::string made,
                       std::vector<std::int64_t> numbers) {
             return Site{std::move(scope), std::move(iterator), std::move(other), std::move(made),
                         std::move(numbers)};
           }),
           "scope"_a, "iterator"_a = "", "other"_a = "", "made"_a = "",
           "numbers"_a = std::vector<std::int64_t>{})
      .def_readonly("scope", &Site::scope, "The scope that changes, by its output.")
      .def_readonly("iterator", &Site::iterator, "Of that scope; empty where the rewrite is not about one.")
      .def_readonly("other", &Site::other, "Another scope or iterator; empty where it is about one only.")
      .def_readonly("made", &Site::made, "The tensor that comes into being; empty: a name nobody has.")
      .def_readonly("numbers", &Site::numbers, "What the rewrite lets one choose: a factor, a tile's size.")
      .def("__str__", &described)
      .def(
          "__eq__", [](const Site& a, const Site& b) { return a == b; }, py::is_operator())
      .def("__repr__", [](const Site& site) { return fmt::format("<RewriteSite {}>", described(site)); });
  m.def(
      "rewrite_rows",
      [] {
        std::vector<std::tuple<std::string, std::string, bool, bool>> rows;
        for (const Rewrite& row : derive::rewrites())
          rows.emplace_back(std::string(row.name), std::string(row.statement), row.exact, row.finishes);
        return rows;
      },
      "(name, statement, exact, finishes) of each rewrite. Not exact: equal over the reals only; finishes: "
      "it "
      "says where results lie, and is the last step of a derivation.");
  m.def("without_copies", &derive::without_copies, "program"_a,
        "The program with scopes that only copy in the place of their reads.");
  m.def("slides", &derive::slides, "program"_a,
        "Whether a sum of products reads at sums of iterators, as windows and bands do.");
  m.def(
      "rewrite_sites",
      [](const Program& program, const std::string& name) {
        const py::gil_scoped_release unlocked;
        return derive::sites(derive::rewrite_named(name), program);
      },
      "program"_a, "name"_a, "Where a rewrite applies to a concrete program.");
  m.def(
      "rewrite",
      [](const Program& program, const std::string& name, const Site& site) {
        const py::gil_scoped_release unlocked;
        return rewritten(program, name, site);
      },
      "program"_a, "name"_a, "site"_a, R"doc(
    The program that a rewrite makes: the same inputs and outputs, the same values.

    Raises:
        ScheduleError: the rewrite does not apply there.
        UnknownName: no rewrite has this name.
)doc");
}

void bind_folding(py::module_& m) {
  m.def(
      "fold_constants",
      [](const Program& program,
         const std::vector<std::string>& constants) -> std::optional<std::pair<Program, Program>> {
        const py::gil_scoped_release unlocked;
        auto parts = derive::folded(program, constants);
        if (!parts) return std::nullopt;
        return std::make_pair(std::move(parts->once), std::move(parts->call));
      },
      "program"_a, "constants"_a, R"doc(
    A program in two: what depends on constant inputs alone, and what every call computes of that and the data.

    None where nothing that no caller reads depends on constants alone.

    Raises:
        UnknownName: no input has one of the names.
)doc");
  m.def(
      "constant_bytes",
      [](const Program& program, const std::vector<std::string>& constants) {
        const derive::ConstantBytes bytes = derive::constant_bytes(program, constants);
        return std::make_pair(bytes.before, bytes.after);
      },
      "program"_a, "constants"_a,
      "Bytes at 4 an element: of the constant inputs, and of what a call reads once they are folded.");
}

}  // namespace

void bind_derive(py::module_& m) {
  bind_rows(m);
  bind_einnet(m);
  bind_folding(m);
  py::class_<derive::Derivation>(m, "Derivation", "A program that rewrites made of another one.")
      .def_readonly("program", &derive::Derivation::program)
      .def_property_readonly(
          "steps",
          [](const derive::Derivation& made) {
            std::vector<std::pair<std::string, Site>> steps;
            for (const derive::Step& step : made.steps) steps.emplace_back(step.row, step.site);
            return steps;
          },
          "(rewrite, site), from the given program on.")
      .def_readonly("exact", &derive::Derivation::exact)
      .def_readonly("roughness", &derive::Derivation::roughness, "See roughness().")
      .def_property_readonly("key", [](const derive::Derivation& made) { return to_hex(made.key); })
      .def_property_readonly("guessed_s",
                             [](const derive::Derivation& made) { return made.estimate.seconds; })
      .def_property_readonly(
          "multiply_adds", [](const derive::Derivation& made) { return made.estimate.multiply_adds; },
          "Of a call; what constants alone decide is not counted.")
      .def_property_readonly(
          "bytes", [](const derive::Derivation& made) { return made.estimate.bytes; },
          "Each tensor that a scope of a call touches, once.");
  py::class_<Result>(m, "DerivationSearch", "What a search among equivalent programs found.")
      .def_property_readonly("derivations", [](const Result& r) { return r.found.derivations; })
      .def_property_readonly("states", [](const Result& r) { return r.found.states; })
      .def_property_readonly("applications", [](const Result& r) { return r.found.applications; })
      .def_property_readonly("repeats", [](const Result& r) { return r.found.repeats; })
      .def_property_readonly("costly", [](const Result& r) { return r.found.costly; })
      .def_property_readonly("rough", [](const Result& r) { return r.found.rough; })
      .def_property_readonly("deepest", [](const Result& r) { return r.found.deepest; })
      .def_property_readonly("seconds", [](const Result& r) { return r.found.seconds; })
      .def_property_readonly("ended",
                             [](const Result& r) {
                               return r.interrupted ? std::string("interrupted")
                                                    : std::string(derive::name_of(r.found.ended));
                             })
      .def("__repr__", [](const Result& r) {
        return fmt::format("<DerivationSearch {} programs of {}>", r.found.derivations.size(),
                           r.found.states);
      });
  m.def(
      "roughness",
      [](const Program& program) {
        if (!program.concrete())
          fail<VerifyError>("derive", "roughness is counted of a program at one valuation: at() gives it");
        return derive::roughness(program);
      },
      "program"_a,
      "About how many times the rounding errors of a plain sum of products a concrete program makes, by the "
      "constant matrices in it: 1 without any.");
  m.def("search_derivations", &search, "program"_a, "machine"_a, py::kw_only(),
        "rules"_a = std::vector<std::string>{}, "constants"_a = std::vector<std::string>{},
        "reassociating"_a = true, "depth"_a = 0, "seconds"_a = 2.0, "states"_a = 0, "growth"_a = 4.0,
        "roughness"_a = 0.0, "keep"_a = 16, "element_bytes"_a = 4, "workers"_a = 1, "watch"_a = py::none(),
        R"doc(
    Search programs equal to a concrete one; Ctrl-C returns what there is.

    Args:
        rules: names of rewrites; default all.
        constants: inputs that stay the same over calls.
        reassociating: rewrites that are equal over the reals only, too.
        depth: most steps; 0: any number.
        seconds: 0: until nothing is left.
        states: most different programs; 0: any number.
        growth: most bytes of constants, times those given.
        roughness: most times the rounding errors of a plain sum of products; 0: any.
        keep: most programs that come back, beside some of every accuracy.
        workers: threads of the search; what is found is the same for any number of them.
        watch: called with (states, seconds, guessed seconds of the best); False stops the search.
)doc");
}
