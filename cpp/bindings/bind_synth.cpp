// bindings/bind_synth.cpp — synthesis in Python: specs, rules, enumeration, sampling.
#include <fmt/format.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bindings/unlocked.hpp"
#include "support/error.hpp"
#include "synth/empty.hpp"
#include "synth/enumerate.hpp"
#include "synth/explain.hpp"
#include "synth/rules.hpp"
#include "synth/sample.hpp"
#include "synth/spec.hpp"
#include "synth/state.hpp"
#include "synth/tree.hpp"

namespace py = pybind11;
using namespace pybind11::literals;

namespace {

using namespace syno;
using bindings::unlocked;
using namespace syno::synth;

std::vector<pgraph::CompleteGraph> graphs_of(const Enumeration& result) {
  std::vector<pgraph::CompleteGraph> graphs;
  graphs.reserve(result.operators.size());
  for (const Found& found : result.operators) graphs.push_back(found.graph);
  return graphs;
}

py::dict stats_of(const Enumeration& result) {
  const SearchStatistics& s = result.statistics;
  py::dict by_steps;
  for (std::size_t i = 0; i < s.by_steps.size(); ++i) {
    if (s.by_steps[i] > 0) by_steps[py::int_(i)] = s.by_steps[i];
  }
  return py::dict("operators"_a = result.operators.size(), "by_steps"_a = by_steps, "children"_a = s.children,
                  "states"_a = s.states, "finished"_a = s.finished, "rejected"_a = s.rejected,
                  "seconds"_a = s.seconds, "truncated"_a = s.truncated);
}

/// Lets Ctrl-C end a search: KeyboardInterrupt, or whatever a signal's handler raises.
template <class Field>
py::object each(const Enumeration& result, Field field) {
  py::list list;
  for (const Found& found : result.operators) list.append(field(found));
  return list;
}

}  // namespace

void bind_synth(py::module_& m) {
  m.attr("MOST_STEPS") = synth::kMaxSteps;  // of any operator that is searched for
  py::class_<Spec>(m, "Spec", R"doc(
    What to synthesise: signature, occurrence limits, budgets, thresholds, extensions, disabled rules.

    FLOPs (one multiply-add counts as one), parameters and bytes are summed over all valuations.
)doc")
      .def_static(
          "from_json", [](const std::string& text) { return spec_from_json(text); }, "text"_a, R"doc(
    Read a spec, strictly.

    The keys are those that :meth:`to_json` writes. ``further_inputs`` (none unless given, at most 3) names data
    inputs beside the first, such as the keys of an attention: a list of ``{"dims": [...], "fixed": [...]}``, each as
    for ``input``. Each is read once and whole, in the order of its dimensions, at coordinates that one Contraction
    gives it. The first input is the one whose coordinates go on being transformed after that: put first what
    windows slide over.

    Args:
        text: a JSON object.
    Raises:
        FormatError: a key is unknown or a value has the wrong type, with the path of the value.
        SpecError: the spec contradicts itself, with the values and what would work.
        UnknownName: an extension or rule that does not exist.
)doc")
      .def("to_json", &spec_to_json, "The spec as JSON that :meth:`from_json` reads; every field is written.")
      .def_property_readonly("name", [](const Spec& spec) { return spec.name; })
      .def_property_readonly("valuation_count",
                             [](const Spec& spec) { return spec.signature.sizes.valuation_count(); })
      .def_property_readonly("max_steps", [](const Spec& spec) { return spec.budgets.max_steps; })
      .def(
          "__eq__", [](const Spec& a, const Spec& b) { return a == b; }, py::is_operator())
      .def("__repr__", [](const Spec& spec) {
        return fmt::format("<Spec '{}': at most {} steps, {} valuation(s)>", spec.name,
                           spec.budgets.max_steps, spec.signature.sizes.valuation_count());
      });
  m.def("spec_named", [](const std::string& name) { return spec_named(name); }, "name"_a, R"doc(
    A spec of the paper's experiments (``resnet18``, ``test``, ``simple``, ``vit``, ``resnext``, ``gpt2``) or ``conv``,
    the 3x3 convolutions of a small residual network for 28x28 images.

    Args:
        name: one of ``spec_names()``.
    Raises:
        UnknownName: no such spec.
)doc");
  m.def(
      "spec_names",
      [] {
        const auto names = spec_names();
        return std::vector<std::string>(names.begin(), names.end());
      },
      "The names :func:`spec_named` knows.");
  m.def(
      "extension_names",
      [] {
        const auto names = extension_names();
        return std::vector<std::string>(names.begin(), names.end());
      },
      "Named extensions of the space; each is off unless a spec lists it.");
  m.def(
      "rules",
      [] {
        py::list list;
        for (const Rule& rule : rules()) {
          list.append(py::dict("name"_a = std::string(rule.name), "class"_a = std::string(name_of(rule.kind)),
                               "statement"_a = std::string(rule.statement),
                               "looks_at"_a = rule.removes != nullptr
                                                  ? std::string(pgraph::name_of(rule.primitive))
                                                  : "finished"));
        }
        return list;
      },
      R"doc(
    The canonicality rules (Syno, section 6), each a dict of ``name``, ``class`` (``exact``, ``similar``, ``futile`` or ``limit``),
    ``statement`` and ``looks_at`` (a primitive, or ``finished``). A spec's ``disabled_rules`` switches them off by name.
)doc");

  py::class_<Enumeration>(m, "EnumerationResult", "Operators that a search found, and what it looked at.")
      .def_property_readonly("operators", &graphs_of, "The operators as PGraphs, each once.")
      .def_property_readonly(
          "flops", [](const Enumeration& r) { return each(r, [](const Found& f) { return f.work.flops; }); },
          "Multiply-adds of each operator's best stage plan, summed over the valuations.")
      .def_property_readonly(
          "params",
          [](const Enumeration& r) { return each(r, [](const Found& f) { return f.work.params; }); },
          "Elements of each operator's weights, summed over the valuations.")
      .def_property_readonly(
          "steps", [](const Enumeration& r) { return each(r, [](const Found& f) { return f.steps; }); },
          "Steps of each operator.")
      .def_property_readonly("stats", &stats_of, R"doc(
    ``operators, by_steps, children`` (steps looked at), ``states`` (partial operators kept), ``finished`` (operators met,
    duplicates included), ``rejected`` (counts by rule, budget, ``distance`` and ``order``), ``seconds``, ``truncated``.
)doc")
      .def("__repr__",
           [](const Enumeration& r) {
             const SearchStatistics& s = r.statistics;
             return fmt::format(
                 "EnumerationResult({} operators{}; {} steps looked at, {} partial operators kept)",
                 r.operators.size(), s.truncated ? ", not all" : "", s.children, s.states);
           })
      .def("__len__", [](const Enumeration& r) { return r.operators.size(); });

  m.def(
      "enumerate_operators",
      [](const Spec& spec, int max_steps, int threads, std::optional<std::size_t> limit, bool operator_keys,
         bool shape_distance, double memory_mb, const std::optional<std::string>& checkpoint,
         std::uint64_t most_children) {
        if (!(memory_mb >= 0 && memory_mb <= 1e12))
          fail<SpecError>("spec", "memory_mb is {}; give 0 for no limit, or a number up to 1e12", memory_mb);
        return unlocked([&] {
          return enumerate(spec, {.max_steps = max_steps,
                                  .threads = threads,
                                  .limit = limit,
                                  .operator_keys = operator_keys,
                                  .shape_distance = shape_distance,
                                  .most_children = most_children,
                                  .memory_limit = static_cast<std::size_t>(memory_mb * 1e6),
                                  .checkpoint = checkpoint.value_or(""),
                                  .poll = &bindings::check_signals});
        });
      },
      "spec"_a, py::kw_only(), "max_steps"_a, "threads"_a = 1, "limit"_a = py::none(),
      "operator_keys"_a = true, "shape_distance"_a = true, "memory_mb"_a = 0.0, "checkpoint"_a = py::none(),
      "most_children"_a = 0, R"doc(
    All operators of a spec with at most ``max_steps`` steps, none twice, the same for any number of threads.

    Ctrl-C ends it within moments.

    Args:
        spec: what the operators are for, and what they may be.
        threads: that search.
        limit: keep at most this many, in the order of the search; ``stats["truncated"]`` tells.
        operator_keys: false keeps operators that compute the same but are built in another way.
        shape_distance: false searches without the distance's bound, for ablations.
        memory_mb: what the search and its operators may hold; 0 for no limit.
        checkpoint: path of a file that keeps what is finished. After an interruption of any kind the same call goes on from
            there and returns what it would have returned; a finished one is read back. Remove it to begin anew.
        most_children: end after about so many steps looked at, ``stats["children"]``; 0 for no limit. An enumeration that
            looks at no more is whole; of one that was ended what was found is a part, ``stats["truncated"]``.
    Raises:
        SpecError: the spec contradicts itself; the memory limit does not suffice, with the depth that may work; or the
            checkpoint is of another enumeration, in use, or cannot be written.
        FormatError: the checkpoint is damaged, of another version, or another kind of file.
)doc");
  m.def(
      "why_empty",
      [](const Spec& spec, int max_steps, std::uint64_t most_children) {
        return unlocked([&] { return why_empty(spec, max_steps, most_children, &bindings::check_signals); });
      },
      "spec"_a, py::kw_only(), "max_steps"_a = 0, "most_children"_a = 20'000'000, R"doc(
    Why a spec has no operator of at most ``max_steps`` steps (0: its own limit), or None where it has one.

    Names every limit whose change alone lets operators in, with its value and the nearest one that works. About
    ``most_children`` steps are looked at; the sentence says how far that went. Ctrl-C ends it within moments.

    Raises:
        SpecError: the spec contradicts itself.
)doc");
  m.def(
      "sample_operators",
      [](const Spec& spec, std::size_t n, std::uint64_t seed, int threads, int max_steps, int min_steps,
         double seconds, std::size_t patience, std::size_t effort, std::size_t least) {
        if (!(seconds >= 0)) fail<SpecError>("sample", "seconds is {}; give 0 or more", seconds);
        const Enumeration result = unlocked([&] {
          SampleOptions options;
          options.min_steps = min_steps;
          options.max_steps = max_steps;
          options.seed = seed;
          options.threads = threads;
          options.seconds = seconds;
          options.patience = patience;
          options.effort = effort;
          options.least = least;
          options.poll = &bindings::check_signals;
          return sample(spec, n, options);
        });
        return graphs_of(result);
      },
      "spec"_a, py::kw_only(), "n"_a, "seed"_a, "threads"_a = 1, "max_steps"_a = 0, "min_steps"_a = 0,
      "seconds"_a = 0.0, "patience"_a = SampleOptions().patience, "effort"_a = 0, "least"_a = 1, R"doc(
    Up to ``n`` different random operators of a spec; fewer when there are no more, when none was met for long, or when
    time is up.

    Operators of few steps are enumerated first; random walks then start from the first steps of a known operator and
    go on to one of ``min_steps`` to ``max_steps`` steps. None comes twice, and all come in the end. The sample is not
    uniform: each number of steps gets the same effort, not the same number of operators, and operators that begin
    like many known ones are likelier to come early.

    Args:
        spec: what the operators are for, and what they may be.
        seed: the same seed gives the same operators, whatever ``threads`` is.
        max_steps: 0 for the spec's own limit.
        min_steps: least number of steps.
        seconds: draw no further after so many; 0 for no limit. What came until then is the beginning of the sample
            without a limit.
        patience: partial operators to look at without meeting a new operator before giving up.
        effort: partial operators to look at in all before no further one is drawn; 0 for no limit. Unlike ``seconds`` it
            gives the same operators on every machine.
        least: operators that are drawn whatever effort that takes.
    Raises:
        SpecError: ``min_steps`` exceeds ``max_steps``, or ``seconds`` is negative.
)doc");

  m.def(
      "explain",
      [](const Spec& spec, const pgraph::CompleteGraph& graph, std::size_t examples) {
        return unlocked([&] { return to_text(derivation(spec, graph, examples)); });
      },
      "spec"_a, "pgraph"_a, "examples"_a = 0, R"doc(
    How an operator comes about in the search: step by step, with the frontier's sizes, the distance left, how many
    steps could follow and why the others are pruned (rule, budget, ``distance``, ``order``).

    Args:
        spec: whose rules, budgets and limits are asked.
        pgraph: the operator.
        examples: list at most this many neighbours of each kind beside every step, each with the reason.
    Raises:
        SpecError: the operator's signature is not the spec's.
)doc");
  m.def(
      "derivation",
      [](const Spec& spec, const pgraph::CompleteGraph& graph, std::size_t examples) {
        const Derivation way = unlocked([&] { return derivation(spec, graph, examples); });
        py::list steps;
        for (const DerivationStep& here : way.steps) {
          py::list neighbours;
          for (const Neighbour& other : here.neighbours) {
            neighbours.append(py::dict("step"_a = other.step, "pruned_by"_a = other.pruned_by,
                                       "why"_a = other.why, "distance"_a = other.distance,
                                       "taken"_a = other.taken));
          }
          steps.append(py::dict("step"_a = here.step, "removed_by"_a = here.removed_by,
                                "frontier"_a = here.frontier, "distance"_a = here.distance,
                                "steps_left"_a = here.steps_left, "kept"_a = here.kept,
                                "pruned"_a = here.pruned, "neighbours"_a = neighbours));
        }
        return py::dict("steps"_a = steps, "finished_by"_a = way.finished_by, "legal"_a = way.legal);
      },
      "spec"_a, "pgraph"_a, "examples"_a = 0, R"doc(
    What :func:`explain` says, as data: ``{"steps", "finished_by", "legal"}``.

    A step is a dict of ``step`` (its text; empty at the output), ``removed_by``, ``frontier`` (extents), ``distance``
    (-1: out of reach), ``steps_left``, ``kept`` (steps that may follow), ``pruned`` (counts by reason) and
    ``neighbours``: dicts of ``step``, ``pruned_by``, ``why``, ``distance`` and ``taken``.

    Raises:
        SpecError: the operator's signature is not the spec's.
)doc");
  m.def(
      "allowed",
      [](const Spec& spec, const pgraph::CompleteGraph& graph) { return derivation(spec, graph).legal; },
      "spec"_a, "pgraph"_a,
      "Whether rules, budgets and shape distance allow every prefix of an operator and the whole.");

  py::class_<Tree>(m, "Tree", R"doc(
    Monte Carlo tree search over a spec's operators (Syno, section 7.2), asked and told in batches.

    Nodes have two levels (primitive, then step), children appear by progressive widening in the order of RAVE,
    UCB1-tuned chooses. Rewards lie in [0, 1]; a failed candidate is told 0. They fold in the order of tickets, so
    that the same seed, batch sizes and rewards give the same search, however many workers evaluate.

    Args:
        spec: whose operators are searched.
        seed: of all that is drawn.
        exploration: factor of the width of UCB1-tuned's bound.
        widening: exponent of a node's visits to which as many children are looked at.
        rave_random: share of new children that are drawn at random, not by RAVE.
)doc")
      .def(py::init([](const Spec& spec, std::uint64_t seed, double exploration, double widening,
                       double rave_random) {
             TreeOptions options;
             options.exploration = exploration;
             options.widening = widening;
             options.rave_random = rave_random;
             return Tree(spec, seed, options);
           }),
           "spec"_a, py::kw_only(), "seed"_a, "exploration"_a = TreeOptions().exploration,
           "widening"_a = TreeOptions().widening, "rave_random"_a = TreeOptions().rave_random)
      .def(
          "ask",
          [](Tree& tree, std::size_t k) {
            std::vector<std::pair<std::uint64_t, pgraph::CompleteGraph>> result;
            for (auto& ticket : unlocked([&] { return tree.ask(k); }))
              result.emplace_back(ticket.number, std::move(ticket.graph));
            return result;
          },
          "k"_a, R"doc(
    Up to ``k`` pairs ``(ticket, PGraph)`` of operators never handed out before; fewer when the space is exhausted.
)doc")
      .def("tell", &Tree::tell, "ticket"_a, "reward"_a, R"doc(
    Give a ticket's reward. Order does not matter: rewards take effect in the order of tickets.

    Args:
        ticket: a number that ``ask`` gave.
        reward: from 0 to 1; 0 for what failed.
    Raises:
        SpecError: the ticket was never handed out or told before, or the reward is outside [0, 1].
)doc")
      .def(
          "pending",
          [](const Tree& tree) {
            std::vector<std::pair<std::uint64_t, pgraph::CompleteGraph>> result;
            for (auto& ticket : tree.pending()) result.emplace_back(ticket.number, std::move(ticket.graph));
            return result;
          },
          "Pairs ``(ticket, PGraph)`` handed out and not yet told.")
      .def(
          "results",
          [](const Tree& tree) {
            std::vector<std::tuple<std::uint64_t, pgraph::CompleteGraph, double>> result;
            for (auto& r : tree.results())
              result.emplace_back(r.ticket.number, std::move(r.ticket.graph), r.reward);
            return result;
          },
          "Triples ``(ticket, PGraph, reward)`` told so far, in the order of tickets.")
      .def_property_readonly("node_count", &Tree::node_count)
      .def("to_json", &Tree::to_json, "The whole search as JSON; :meth:`from_json` continues it exactly.")
      .def_static(
          "from_json",
          [](const Spec& spec, const std::string& text) {
            return unlocked([&] { return Tree::from_json(spec, text); });
          },
          "spec"_a, "text"_a, R"doc(
    A search that goes on exactly as the one that was written.

    Args:
        spec: of that search.
        text: what ``to_json`` gave.
    Raises:
        FormatError: the text is damaged or of another version.
        SpecError: the tree was grown for another spec.
)doc");
}
