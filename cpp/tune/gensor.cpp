#include "tune/gensor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "support/error.hpp"
#include "support/random.hpp"
#include "tune/etir.hpp"
#include "tune/predict.hpp"

namespace syno::tune {

namespace {

using schedule::Choosing;
using schedule::Numbers;
using schedule::Sketch;
using schedule::Sketches;

/// Predictions closer than this say nothing: the counted schedule stays.
constexpr double kMargin = 0.03;
/// A sketch that counts this many times the cycles of the best one is not walked.
constexpr double kFarWorse = 1.6;
/// A state that counts this many times the cycles of the best one is not built.
constexpr double kFarBehind = 1.2;

/// Recording probability, with T0 = 1 (paper, Algorithm 1).
double record_probability(int iteration) {
  const double log_temperature = -static_cast<double>(iteration) * std::log(2.0);
  return 1 - 1 / (1 + std::exp(-0.5 * (-log_temperature - 10)));
}

struct Walked {
  std::vector<Etir> states;
  std::vector<Step> steps;
};

std::size_t roulette(const std::vector<EtirGraph::Edge>& edges, double total, Random& random) {
  double ball = random.unit() * total;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    ball -= edges[i].benefit;
    if (ball < 0) return i;
  }
  return edges.size() - 1;
}

Walked walk_graph(const EtirGraph& graph, const ConstructOptions& options, Random random, bool explain) {
  Walked made;
  Etir state = graph.start();
  for (int t = 0; t < options.iterations; ++t) {
    const auto edges = graph.edges(state, t, options.annealing);
    double total = 0;
    for (const auto& edge : edges) total += edge.benefit;
    if (edges.empty() || !(total > 0)) break;
    const auto& edge = edges[roulette(edges, total, random)];
    state = graph.apply(state, edge.action);
    if (explain)
      made.steps.push_back({static_cast<double>(t), graph.to_text(edge.action), edge.benefit,
                            edge.benefit / total, graph.to_text(state)});
    const bool recorded = options.record_all || random.unit() < record_probability(t);
    if (recorded && state.level == 0 && graph.fits(state, 0)) made.states.push_back(state);
  }
  return made;
}

/// Roller's order: registers first, then each cache outwards; the action that saves most traffic, until
/// nothing that fits saves any; what was decided stays.
Walked walk_tree(const EtirGraph& graph, bool explain) {
  Walked made;
  Etir state = graph.start();
  int t = 0;
  for (std::size_t level = 0; level < graph.levels(); ++level) {
    state.level = level;
    for (; t < 1000; ++t) {
      const auto edges = graph.edges(state, 0, false);
      const EtirGraph::Edge* best = nullptr;
      double best_saving = 1 + 1e-9;
      for (const auto& edge : edges) {
        if (edge.action.kind != ActionKind::Tile) continue;
        const double saving =
            graph.traffic(state, level) / graph.traffic(graph.apply(state, edge.action), level);
        if (saving <= best_saving) continue;
        best = &edge;
        best_saving = saving;
      }
      if (best == nullptr) break;
      state = graph.apply(state, best->action);
      if (explain)
        made.steps.push_back(
            {static_cast<double>(t), graph.to_text(best->action), best_saving, 1, graph.to_text(state)});
    }
  }
  state.level = 0;
  if (graph.fits(state, 0)) made.states.push_back(state);
  return made;
}

std::string to_text(const Sketch& sketch, const Numbers& numbers) {
  std::string text = sketch.name;
  for (const auto& choice : sketch.choices)
    text += fmt::format(" {}={}", choice.name, numbers.*choice.number);
  return text;
}

class Constructor {
 public:
  Constructor(const program::Program& concrete, schedule::Dtype dtype, const Machine& machine,
              const ConstructOptions& options)
      : program_(concrete),
        dtype_(dtype),
        machine_(machine),
        options_(options),
        target_(machine.target(options.threads)) {
    target_.vector_registers = std::max(4, target_.vector_registers - options.spare_registers);
  }

  Constructed run() {
    const auto start = std::chrono::steady_clock::now();
    Constructed made;
    const auto chooser = [&](const schedule::Question& question) {
      return options_.method == Method::Counted ? counted(question) : choose(question, made);
    };
    schedule::Finished finished =
        schedule::construct_with(program_, dtype_, target_, chooser, options_.constants, options_.strides);
    const Prediction predicted = predict(finished.nest, machine_, {options_.threads, options_.cold});
    made.schedule = std::move(finished.schedule);
    made.predicted_s = predicted.seconds;
    made.bottleneck = predicted.bottleneck;
    if (made.scopes.empty() || !std::isfinite(made.counted_s)) made.counted_s = made.predicted_s;
    made.construct_ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    return made;
  }

 private:
  struct Candidate {
    Choosing choice;
    double cycles = 0;
    std::string text;
  };

  static Choosing counted(const schedule::Question& question) {
    return schedule::fewest_cycles(question.construction, question.scope, question.sketches);
  }

  /// Infinite where the choice cannot be built.
  double seconds(const schedule::Question& question, const Choosing& choice) const {
    const auto finished = question.finish(choice);
    return finished ? predict(finished->nest, machine_, {options_.threads, options_.cold}).seconds
                    : std::numeric_limits<double>::infinity();
  }

  Choosing choose(const schedule::Question& question, Constructed& made) const {
    const bool asked_again =
        std::any_of(made.scopes.begin(), made.scopes.end(),
                    [&](const ScopeChoice& earlier) { return earlier.scope == question.scope; });
    if (asked_again) made.scopes.clear();  // of an attempt that came to nothing
    const Choosing fewest = counted(question);
    const double counted_s = seconds(question, fewest);
    if (made.scopes.empty()) made.counted_s = counted_s;
    ScopeChoice choice;
    choice.scope = question.scope;
    std::map<std::size_t, std::vector<Step>> walks;
    const std::vector<Candidate> candidates = explore(question, fewest, choice, walks);
    Choosing best = fewest;
    double best_s = options_.counted ? counted_s * (1 - kMargin) : std::numeric_limits<double>::infinity();
    std::vector<std::pair<double, std::size_t>> ranking;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const Candidate& candidate = candidates[i];
      const bool same =
          candidate.choice.sketch == fewest.sketch && candidate.choice.numbers == fewest.numbers;
      ranking.emplace_back(same ? counted_s : seconds(question, candidate.choice), i);
      if (ranking.back().first >= best_s) continue;
      best_s = ranking.back().first;
      best = candidate.choice;
    }
    std::stable_sort(ranking.begin(), ranking.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [time, i] : ranking) choice.ranking.emplace_back(candidates[i].text, time);
    choice.sketch = to_text(question.sketches[best.sketch], best.numbers);
    choice.walk = std::move(walks[best.sketch]);
    made.scopes.push_back(std::move(choice));
    return best;
  }

  std::vector<Candidate> explore(const schedule::Question& question, const Choosing& fewest,
                                 ScopeChoice& choice,
                                 std::map<std::size_t, std::vector<Step>>& walks) const {
    const Sketches& sketches = question.sketches;
    const double least = sketches[fewest.sketch].cycles;
    const auto bytes = static_cast<std::int64_t>(schedule::byte_size(dtype_));
    std::vector<Candidate> all;
    const Random stream = Random(options_.seed).fork(question.scope);
    for (std::size_t s = 0; s < sketches.size(); ++s) {
      choice.sketches.push_back(
          fmt::format("{} ({:.3g} cycles counted)", sketches[s].name, sketches[s].cycles));
      if (sketches[s].cycles > least * kFarWorse) continue;
      const bool tree = options_.method == Method::Tree;
      const EtirGraph graph(question.facts, sketches[s], machine_, bytes,
                            {options_.printed, options_.vthreads && !tree, !tree});
      for (int w = 0; w < (tree ? 1 : options_.walks); ++w) {
        Walked walked =
            tree ? walk_tree(graph, true)
                 : walk_graph(graph, options_, stream.fork(s).fork(static_cast<std::uint64_t>(w)), w == 0);
        if (w == 0) walks[s] = std::move(walked.steps);
        for (const Etir& state : walked.states) {
          Candidate candidate;
          candidate.choice = {s, graph.numbers(state)};
          const bool known = std::any_of(all.begin(), all.end(), [&](const Candidate& other) {
            return other.choice.sketch == s && other.choice.numbers == candidate.choice.numbers;
          });
          if (known) continue;
          candidate.cycles = sketches[s].estimate(candidate.choice.numbers);
          candidate.text = to_text(sketches[s], candidate.choice.numbers);
          all.push_back(std::move(candidate));
        }
      }
    }
    choice.states = all.size();
    std::stable_sort(all.begin(), all.end(),
                     [](const Candidate& a, const Candidate& b) { return a.cycles < b.cycles; });
    while (!all.empty() && all.back().cycles > all.front().cycles * kFarBehind) all.pop_back();
    if (all.size() > options_.finalists) all.resize(options_.finalists);
    return all;
  }

  const program::Program& program_;
  schedule::Dtype dtype_;
  const Machine& machine_;
  ConstructOptions options_;
  schedule::Target target_;
};

}  // namespace

std::string_view name_of(Method method) {
  return method == Method::Graph ? "graph" : method == Method::Tree ? "tree" : "counted";
}

Method method_named(std::string_view name) {
  for (const Method method : {Method::Graph, Method::Tree, Method::Counted})
    if (name_of(method) == name) return method;
  fail<UnknownName>("construct", "{}",
                    unknown_name("construction method", std::string(name), {"graph", "tree", "counted"}));
}

Constructed construct(const program::Program& concrete, schedule::Dtype dtype, const Machine& machine,
                      const ConstructOptions& options) {
  return Constructor(concrete, dtype, machine, options).run();
}

std::string to_text(const Constructed& made) {
  std::string text = fmt::format(
      "{:.1f} us predicted, limited by {}; the counted schedule: {:.1f} us; constructed in {:.1f} ms\n",
      made.predicted_s * 1e6, made.bottleneck, made.counted_s * 1e6, made.construct_ms);
  for (const ScopeChoice& scope : made.scopes) {
    text += fmt::format("\nscope {}: {}\n", scope.scope, scope.sketch);
    text += fmt::format("  sketches: {}\n", fmt::join(scope.sketches, ", "));
    text += fmt::format("  walk ({} states that can be built):\n", scope.states);
    for (const Step& step : scope.walk)
      text += fmt::format("    {:3.0f}  {:22} benefit {:6.3f}  p {:5.3f}  {}\n", step.t, step.action,
                          step.benefit, step.probability, step.state);
    text += "  predicted:\n";
    for (const auto& [name, seconds] : scope.ranking)
      text += fmt::format("    {:9.1f} us  {}\n", seconds * 1e6, name);
  }
  return text;
}

nlohmann::json to_json(const Constructed& made) {
  nlohmann::json scopes = nlohmann::json::array();
  for (const ScopeChoice& scope : made.scopes) {
    nlohmann::json walk = nlohmann::json::array(), ranking = nlohmann::json::array();
    for (const Step& step : scope.walk)
      walk.push_back({{"t", step.t},
                      {"action", step.action},
                      {"benefit", step.benefit},
                      {"probability", step.probability},
                      {"state", step.state}});
    for (const auto& [name, seconds] : scope.ranking)
      ranking.push_back({{"choice", name}, {"seconds", seconds}});
    scopes.push_back({{"scope", scope.scope},
                      {"choice", scope.sketch},
                      {"sketches", scope.sketches},
                      {"states", scope.states},
                      {"walk", std::move(walk)},
                      {"ranking", std::move(ranking)}});
  }
  return {{"predicted_s", made.predicted_s},
          {"counted_s", made.counted_s},
          {"bottleneck", made.bottleneck},
          {"construct_ms", made.construct_ms},
          {"scopes", std::move(scopes)}};
}

}  // namespace syno::tune
