#include "construct/gensor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <tuple>

#include "construct/etir.hpp"
#include "support/error.hpp"
#include "support/random.hpp"
#include "support/significant.hpp"

namespace syno::construct {

namespace {

/// Predictions of a scope closer than this say nothing: the counted schedule stays.
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

/// A step before it is put into words.
struct Taken {
  Action action;
  double benefit = 0, probability = 0;
  Etir state;
};

struct Walked {
  struct Found {
    Etir state;
    std::size_t steps = 0;  ///< that led to it
  };
  std::vector<Found> states;
  std::vector<Taken> taken;
};

std::size_t roulette(const std::vector<EtirGraph::Edge>& edges, double total, Random& random) {
  double ball = random.unit() * total;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    ball -= edges[i].benefit;
    if (ball < 0) return i;
  }
  return edges.size() - 1;
}

Walked walk_graph(const EtirGraph& graph, const ConstructOptions& options, Random random) {
  Walked made;
  Etir state = graph.start();
  for (int t = 0; t < options.iterations; ++t) {
    const auto edges = graph.edges(state, t, options.annealing);
    double total = 0;
    for (const auto& edge : edges) total += edge.benefit;
    if (edges.empty() || !(total > 0)) break;
    const auto& edge = edges[roulette(edges, total, random)];
    state = graph.apply(state, edge.action);
    if (options.explain) made.taken.push_back({edge.action, edge.benefit, edge.benefit / total, state});
    const bool recorded = options.record_all || random.unit() < record_probability(t);
    if (recorded && state.level == 0 && graph.fits(state, 0))
      made.states.push_back({state, static_cast<std::size_t>(t) + 1});
  }
  return made;
}

/// Roller's order: registers first, then each cache outwards; the action that saves most traffic, until
/// nothing that fits saves any; what was decided stays.
Walked walk_tree(const EtirGraph& graph) {
  Walked made;
  Etir state = graph.start();
  std::size_t t = 0;
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
      made.taken.push_back({best->action, best_saving, 1, state});
    }
  }
  state.level = 0;
  if (graph.fits(state, 0)) made.states.push_back({state, t});
  return made;
}

std::vector<Step> in_words(const EtirGraph& graph, const std::vector<Taken>& taken) {
  std::vector<Step> steps;
  for (std::size_t t = 0; t < taken.size(); ++t)
    steps.push_back({static_cast<double>(t), graph.to_text(taken[t].action), taken[t].benefit,
                     taken[t].probability, graph.to_text(taken[t].state)});
  return steps;
}

std::string to_text(const Sketch& sketch, const Numbers& numbers) {
  std::string text = sketch.name;
  for (const auto& choice : sketch.choices)
    text += fmt::format(" {}={}", choice.name, numbers.*choice.number);
  return text;
}

class Constructor {
 public:
  Constructor(const program::Program& concrete, nest::Dtype dtype, const Machine& machine,
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
    auto [made, separable] = constructed(Phases::Together);
    if (separable) {
      auto [apart, again] = constructed(Phases::Apart);
      apart.counted_s = std::min(apart.counted_s, made.counted_s);
      if (apart.prediction.seconds < made.prediction.seconds) made = std::move(apart);
    }
    made.construct_ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    return std::move(made);
  }

 private:
  static constexpr std::size_t kNoWalk = SIZE_MAX;
  /// Each finalist of each scope is judged by the whole program: beyond so many scopes counting has to do.
  static constexpr std::size_t kMostScopes = 32;
  struct Candidate {
    Choosing choice;
    double cycles = 0;
    std::size_t walk = kNoWalk, led = 0;  ///< which walk found it, after how many steps
  };
  struct Walk {
    std::size_t sketch = 0;
    std::vector<Taken> taken;
  };

  /// And whether phases can be separated in it.
  std::pair<Constructed, bool> constructed(Phases phases) const {
    Constructed made;
    const auto chooser = [&](const Question& question) {
      const bool many = question.construction.plan.scopes.size() > kMostScopes;
      return options_.method == Method::Counted || many ? counted(question) : choose(question, made);
    };
    Finished finished =
        construct_with(program_, dtype_, target_, chooser, options_.constants, options_.strides, phases);
    made.prediction = predict(finished.nest, machine_, {options_.threads, options_.cold});
    made.schedule = std::move(finished.schedule);
    if (made.scopes.empty() || !std::isfinite(made.counted_s)) made.counted_s = made.prediction.seconds;
    return {std::move(made), finished.separable};
  }

  static Choosing counted(const Question& question) {
    return fewest_cycles(question.construction, question.scope, question.sketches);
  }

  /// Infinite where the choice cannot be built.
  double seconds(const Question& question, const Choosing& choice) const {
    const auto finished = question.finish(choice);
    return finished ? predict(finished->nest, machine_, {options_.threads, options_.cold}).seconds
                    : std::numeric_limits<double>::infinity();
  }

  /// The part of a program's time that a scope takes, by iterations.
  static double share(const Question& question) {
    const schedule::Plan& plan = question.construction.plan;
    double all = 0;
    for (const program::Scope& scope : plan.program.scopes) {
      double points = 1;
      for (const auto* list : {&scope.traversal, &scope.sums})
        for (const auto& iterator : *list) {
          const auto [begin, end] = plan.range(iterator.range);
          points *= static_cast<double>(end - begin);
        }
      all += points;
    }
    return static_cast<double>(question.facts.points()) / std::max(all, 1.0);
  }

  Choosing choose(const Question& question, Constructed& made) const {
    const bool asked_again =
        std::any_of(made.scopes.begin(), made.scopes.end(),
                    [&](const ScopeChoice& earlier) { return earlier.scope == question.scope; });
    if (asked_again) made.scopes.clear();  // of an attempt that came to nothing
    const Choosing fewest = counted(question);
    const double counted_s = seconds(question, fewest);
    if (made.scopes.empty()) made.counted_s = counted_s;
    ScopeChoice choice;
    choice.scope = question.scope;
    choice.counted = true;
    std::vector<Walk> walks;
    const std::vector<Candidate> candidates = explore(question, fewest, choice, walks);
    Choosing best = fewest;
    double best_s = options_.counted ? counted_s * (1 - kMargin * share(question))
                                     : std::numeric_limits<double>::infinity();
    std::vector<std::pair<double, std::size_t>> ranking;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const Candidate& candidate = candidates[i];
      const bool same =
          candidate.choice.sketch == fewest.sketch && candidate.choice.numbers == fewest.numbers;
      ranking.emplace_back(same ? counted_s : seconds(question, candidate.choice), i);
      if (ranking.back().first >= best_s) continue;
      best_s = ranking.back().first;
      best = candidate.choice;
      choice.counted = false;
    }
    std::stable_sort(ranking.begin(), ranking.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    if (options_.explain) explain(question, best, candidates, ranking, walks, choice);
    made.scopes.push_back(std::move(choice));
    return best;
  }

  /// The words of a choice.
  void explain(const Question& question, const Choosing& best, const std::vector<Candidate>& candidates,
               const std::vector<std::pair<double, std::size_t>>& ranking, const std::vector<Walk>& walks,
               ScopeChoice& choice) const {
    const Sketches& sketches = question.sketches;
    for (const Sketch& sketch : sketches)
      choice.sketches.push_back(fmt::format("{} ({:.3g} cycles counted)", sketch.name, sketch.cycles));
    choice.sketch = to_text(sketches[best.sketch], best.numbers);
    const Candidate* chosen = nullptr;
    for (const auto& [time, i] : ranking) {
      const Candidate& candidate = candidates[i];
      choice.ranking.emplace_back(to_text(sketches[candidate.choice.sketch], candidate.choice.numbers), time);
      const bool same = candidate.choice.sketch == best.sketch && candidate.choice.numbers == best.numbers;
      if (candidate.walk != kNoWalk && (chosen == nullptr || same)) chosen = &candidate;
    }
    if (chosen == nullptr) return;
    choice.reached = chosen->choice.sketch == best.sketch && chosen->choice.numbers == best.numbers;
    const Walk& walk = walks[chosen->walk];
    choice.walk = in_words(graph_of(question, walk.sketch), walk.taken);
    choice.led = chosen->led;
  }

  EtirGraph graph_of(const Question& question, std::size_t sketch) const {
    const bool tree = options_.method == Method::Tree;
    return {question.facts,
            question.sketches[sketch],
            machine_,
            static_cast<std::int64_t>(nest::byte_size(dtype_)),
            {options_.printed, options_.vthreads && !tree, !tree}};
  }

  std::vector<Candidate> explore(const Question& question, const Choosing& fewest, ScopeChoice& choice,
                                 std::vector<Walk>& walks) const {
    const Sketches& sketches = question.sketches;
    const double least = sketches[fewest.sketch].cycles;
    std::vector<Candidate> all;
    const Random stream = Random(options_.seed).fork(question.scope);
    for (std::size_t s = 0; s < sketches.size(); ++s) {
      if (sketches[s].cycles > least * kFarWorse) continue;
      if (options_.counted && s != fewest.sketch)  // no walk leads past what counts least of another way
        all.push_back({{s, sketches[s].counted}, sketches[s].cycles});
      const bool tree = options_.method == Method::Tree;
      const EtirGraph graph = graph_of(question, s);
      for (int w = 0; w < (tree ? 1 : options_.walks); ++w) {
        Walked walked = tree
                            ? walk_tree(graph)
                            : walk_graph(graph, options_, stream.fork(s).fork(static_cast<std::uint64_t>(w)));
        walks.push_back({s, std::move(walked.taken)});
        for (const auto& [state, steps] : walked.states) {
          Candidate candidate;
          candidate.choice = {s, graph.numbers(state)};
          candidate.walk = walks.size() - 1;
          candidate.led = steps;
          const auto known = std::find_if(all.begin(), all.end(), [&](const Candidate& other) {
            return other.choice.sketch == s && other.choice.numbers == candidate.choice.numbers;
          });
          if (known != all.end()) {
            if (known->walk == kNoWalk)
              std::tie(known->walk, known->led) = std::tie(candidate.walk, candidate.led);
            continue;
          }
          candidate.cycles = sketches[s].estimate(candidate.choice.numbers);
          all.push_back(std::move(candidate));
        }
      }
    }
    choice.states = all.size();
    return finalists(all);
  }

  /// The best by count, and of every sketch the best two: counts of different ways compare worse than those
  /// of one.
  std::vector<Candidate> finalists(std::vector<Candidate>& all) const {
    constexpr std::size_t kOfEach = 2;
    std::stable_sort(all.begin(), all.end(),
                     [](const Candidate& a, const Candidate& b) { return a.cycles < b.cycles; });
    std::vector<Candidate> chosen;
    std::map<std::size_t, std::size_t> of_sketch;
    for (const Candidate& candidate : all) {
      const bool near = candidate.cycles <= all.front().cycles * kFarBehind;
      const bool first = ++of_sketch[candidate.choice.sketch] <= kOfEach;
      if (first || (near && chosen.size() < options_.finalists)) chosen.push_back(candidate);
    }
    return chosen;
  }

  const program::Program& program_;
  nest::Dtype dtype_;
  const Machine& machine_;
  ConstructOptions options_;
  Target target_;
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

Constructed construct(const program::Program& concrete, nest::Dtype dtype, const Machine& machine,
                      const ConstructOptions& options) {
  return Constructor(concrete, dtype, machine, options).run();
}

namespace {

std::string to_text(const Step& step) {
  return fmt::format("    {:3.0f}  {:22} benefit {:6.3f}  p {:5.3f}  {}\n", step.t, step.action, step.benefit,
                     step.probability, step.state);
}

/// The first steps, the last ones, and those of the greatest benefit between them.
std::vector<bool> telling(const std::vector<Step>& walk, std::size_t led) {
  constexpr std::size_t kFirst = 2, kBest = 3, kLast = 3;
  std::vector<bool> shown(led, false);
  std::vector<std::size_t> between;
  for (std::size_t i = 0; i < led; ++i) {
    shown[i] = i < kFirst || i + kLast >= led;
    if (!shown[i]) between.push_back(i);
  }
  std::stable_sort(between.begin(), between.end(),
                   [&](std::size_t a, std::size_t b) { return walk[a].benefit > walk[b].benefit; });
  for (std::size_t i = 0; i < std::min(kBest, between.size()); ++i) shown[between[i]] = true;
  return shown;
}

}  // namespace

std::string to_text(const Constructed& made, bool whole_walk) {
  constexpr std::size_t kNear = 6;
  const Prediction& limits = made.prediction;
  std::string text =
      fmt::format("{} us predicted, limited by {}; the counted schedule: {} us; constructed in {} ms\n",
                  significant(limits.seconds * 1e6), limits.bottleneck, significant(made.counted_s * 1e6),
                  significant(made.construct_ms));
  text += fmt::format("computing {} us, loops {} us, moving", significant(limits.compute_s * 1e6),
                      significant(limits.overhead_s * 1e6));
  for (std::size_t l = 1; l < limits.memory_s.size(); ++l)
    text += fmt::format(" {} us", significant(limits.memory_s[l] * 1e6));
  text += " (from each level beyond the first cache)\n";
  for (const ScopeChoice& scope : made.scopes) {
    text += fmt::format("\nscope {}: {}{}\n", scope.scope, scope.sketch,
                        scope.counted ? "; the counted choice" : "");
    text += fmt::format("  sketches: {}\n", fmt::join(scope.sketches, ", "));
    const std::size_t near = whole_walk ? scope.ranking.size() : std::min(kNear, scope.ranking.size());
    if (near > 0) text += "  predicted, of the states that count least:\n";
    for (const auto& [name, seconds] : std::span(scope.ranking).first(near))
      text += fmt::format("    {:>9} us  {:5.3f}  {}\n", significant(seconds * 1e6),
                          seconds / scope.ranking[0].second, name);
    if (scope.walk.empty()) continue;
    text +=
        fmt::format("  {} steps of a walk led to {}, {} more followed; {} states can be built:\n", scope.led,
                    scope.reached ? "it" : "the best of them", scope.walk.size() - scope.led, scope.states);
    const std::vector<bool> shown =
        whole_walk ? std::vector<bool>(scope.walk.size(), true) : telling(scope.walk, scope.led);
    for (std::size_t i = 0; i < shown.size(); ++i) {
      if (shown[i])
        text += to_text(scope.walk[i]);
      else if (i > 0 && shown[i - 1])
        text += "    ...\n";
    }
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
                      {"counted", scope.counted},
                      {"walk", std::move(walk)},
                      {"led", scope.led},
                      {"ranking", std::move(ranking)}});
  }
  return {{"predicted_s", made.prediction.seconds},
          {"counted_s", made.counted_s},
          {"bottleneck", made.prediction.bottleneck},
          {"construct_ms", made.construct_ms},
          {"scopes", std::move(scopes)}};
}

}  // namespace syno::construct
