#include "construct/gensor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <tuple>

#include "construct/etir.hpp"
#include "construct/policies.hpp"
#include "construct/tiled_fusion.hpp"
#include "support/error.hpp"
#include "support/random.hpp"
#include "support/significant.hpp"

namespace syno::construct {

namespace {

/// A sketch whose counted numbers are predicted to take this many times the least time is not walked, nor is
/// another form of the program.
constexpr double kFarWorse = 1.6;
/// A state that counts this many times the cycles of the best one is not built.
constexpr double kFarBehind = 1.2;
/// Predictions of ways closer than this say little: that without copies is taken, which has less that no
/// model knows, as stores whose places loads may have to wait for.
constexpr double kWorthCopying = 1.03;
/// A finalist that is predicted this many times the time of the best one is not descended from.
constexpr double kNearEnough = 1.15;
constexpr std::size_t kDescents = 2;
/// From this fraction of the multiply-add peak on, other orders of dimensions are not tried: gathers are what
/// they save, and whoever gathers is far from it.
constexpr double kNearPeak = 0.9;
/// They are walked where counting alone leads to less than so much of what was constructed before: gathers
/// and half empty vectors cost more than walks gain.
constexpr double kHopeful = 0.95;
/// Their tiles are looked at where counting alone leads to less than so many times that.
constexpr double kTiledToo = 1.2;
/// Of the program's time, a scope that counts less than this part of it is not walked.
constexpr double kSmallShare = 0.02;

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
  for (const CacheTiles& block : numbers.blocks)
    text += fmt::format(" [{}]<{}", fmt::join(block.loops, ","), fmt::join(block.tiles, ","));
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
        policy_(policy_named(options.policy)),
        target_(machine.target(options.threads)) {
    target_.vector_registers = std::max(4, target_.vector_registers - options.spare_registers);
    predicting_ = {options.threads, options.cold};
    if (options.constants_from == 0) return;
    predicting_.far = options.constants_from;
    predicting_.near.emplace();
    const auto& constants = options.constants;
    for (const program::TensorId id : concrete.inputs())
      if (const std::string& name = concrete.tensor(id).name;
          std::find(constants.begin(), constants.end(), name) == constants.end())
        predicting_.near->push_back(name);
  }

  Constructed run() {
    const auto start = std::chrono::steady_clock::now();
    Phases phases = Phases::Together;
    const auto prepared_with = [&](Phases places, Innermost innermost) {
      return prepared(program_, dtype_, target_, options_.constants, options_.strides, places, innermost);
    };
    Construction chosen = prepared_with(phases, Innermost::AsGiven);
    Built built = constructed(chosen, {});
    const auto take_if_faster = [&](Built other, double gain) {
      const double counted_s = std::min(other.made.counted_s, built.made.counted_s);
      const bool faster = other.made.prediction.seconds * gain < built.made.prediction.seconds;
      if (faster) built = std::move(other);
      if (faster) built.made.counted_s = counted_s;
      return faster;
    };
    if (chosen.separable) {
      Construction apart = prepared_with(Phases::Apart, Innermost::AsGiven);
      const Prediction counted = predict(counted_unverified(apart).nest, machine_, predicting_);
      if (counted.seconds <= built.made.counted_s * kFarWorse && take_if_faster(constructed(apart, {}), 1)) {
        chosen = std::move(apart);
        phases = Phases::Apart;
      }
    }
    std::vector<Form> tiled;
    add_tiled(chosen, policy_.walk == nullptr ? Tiles::Few : Tiles::All, tiled);
    if (chosen.movable && built.made.prediction.fraction_of_peak < kNearPeak) {
      Construction moved = prepared_with(phases, Innermost::Moved);
      const Prediction counted = predict(counted_unverified(moved).nest, machine_, predicting_);
      if (counted.seconds < built.made.prediction.seconds * kTiledToo) add_tiled(moved, Tiles::Few, tiled);
      if (counted.seconds < built.made.prediction.seconds * kHopeful)
        take_if_faster(constructed(moved, {}), 1);
    }
    // Of two forms, tiles are worth a walk that count less than all this came to.
    if (tiled.size() > 1)
      std::erase_if(tiled, [&](const Form& form) { return form.counted_s >= built.made.prediction.seconds; });
    for (const Form& form : tiled)
      take_if_faster(constructed(form.prepared, form.tiles),
                     built.tiled ? 1 : least_gain(built.intermediate_bytes, machine_));
    Constructed& made = built.made;
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
    /// Of the states with these numbers, the tiles of caches that take the least time to fill.
    std::vector<CacheTiles> blocks;
    double moving = std::numeric_limits<double>::infinity();
    std::size_t blocks_walk = kNoWalk, blocks_led = 0;
  };
  struct Walk {
    std::size_t sketch = 0;
    std::vector<Taken> taken;
  };

  using Ranking = std::vector<std::pair<double, std::size_t>>;  // predicted seconds of a candidate

  /// A way to prepare the program, with these scopes computed tile by tile.
  struct Form {
    Construction prepared;
    TiledFusions tiles;
    double counted_s = 0;
  };
  void add_tiled(const Construction& prepared, Tiles tiles, std::vector<Form>& forms) const {
    if (options_.chooser || !options_.fusions)
      return;  // who is asked about each scope of the program as it is
    PredictedFusions found = predicted_fusions(prepared, machine_, predicting_, tiles);
    if (!found.fusions.empty()) forms.push_back({prepared, std::move(found.fusions), found.seconds});
  }

  struct Built {
    Constructed made;
    std::int64_t intermediate_bytes = 0;
    bool tiled = false;
  };
  Built constructed(const Construction& from, const TiledFusions& fusions) const {
    Constructed made;
    const auto chooser = [&](const Question& question) {
      const bool many = question.construction.plan.scopes.size() > kMostScopes;
      if (options_.chooser) return asked(question, made);
      return policy_.walk == nullptr || many ? counted(question) : choose(question, made);
    };
    const bool by_count = policy_.walk == nullptr && !options_.chooser;
    Finished finished = by_count ? construct_counted(from, fusions) : construct_from(from, chooser, fusions);
    made.prediction = predict(finished.nest, machine_, predicting_);
    made.schedule = std::move(finished.schedule);
    if (made.scopes.empty() || !std::isfinite(made.counted_s)) made.counted_s = made.prediction.seconds;
    return {std::move(made), intermediate_bytes(finished.nest), !fusions.empty()};
  }

  static Choosing counted(const Question& question) {
    return fewest_cycles(question.construction, question.scope, question.sketches);
  }

  struct Judged {
    double seconds = std::numeric_limits<double>::infinity();  ///< predicted; infinite: it cannot be built
    double cost = std::numeric_limits<double>::infinity();     ///< more where anything is copied
  };
  Judged judge(const Question& question, const Choosing& choice) const {
    const auto finished = question.finish(choice);
    if (!finished) return {};
    const double seconds = predict(finished->nest, machine_, predicting_).seconds;
    return {seconds, intermediate_bytes(finished->nest) > 0 ? seconds * kWorthCopying : seconds};
  }

  /// Costs of the whole program, by how one scope is written: each way is built once.
  class Predictions {
   public:
    Predictions(const Constructor& constructor, const Question& question)
        : constructor_(constructor), question_(question) {}
    double operator()(const Choosing& choice) { return of(choice).cost; }
    double seconds(const Choosing& choice) { return of(choice).seconds; }
    std::size_t built() const { return known_.size(); }

   private:
    Judged of(const Choosing& choice) {
      for (const auto& [known, judged] : known_)
        if (known == choice) return judged;
      known_.emplace_back(choice, constructor_.judge(question_, choice));
      return known_.back().second;
    }
    const Constructor& constructor_;
    const Question& question_;
    std::vector<std::pair<Choosing, Judged>> known_;
  };

  Choosing choose(const Question& question, Constructed& made) const {
    forget_attempt(question, made);
    Predictions predicted(*this, question);
    const Choosing fewest = counted(question);
    if (made.scopes.empty()) made.counted_s = predicted.seconds(fewest);
    ScopeChoice choice;
    choice.scope = question.scope;
    std::vector<Walk> walks;
    const bool walks_pay =
        !options_.counted || most_s(question, fewest) > kSmallShare * predicted.seconds(fewest);
    const std::vector<Candidate> candidates = explore(question, fewest, walks_pay, predicted, choice, walks);
    Choosing best = fewest;
    double best_s = options_.counted ? predicted(fewest) : std::numeric_limits<double>::infinity();
    choice.counted = true;
    const auto take_if_faster = [&](const Choosing& other, double other_s) {
      if (other_s >= best_s) return;
      std::tie(best, best_s) = std::tie(other, other_s);
      choice.counted = false;
    };
    Ranking ranking;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      ranking.emplace_back(predicted(candidates[i].choice), i);
      take_if_faster(candidates[i].choice, ranking.back().first);
    }
    std::stable_sort(ranking.begin(), ranking.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    if (walks_pay)
      for (const Choosing& end : descended(question, candidates, ranking, predicted))
        take_if_faster(end, predicted(end));
    choice.blocks = best.numbers.blocks;
    if (choice.blocks.empty() && best.numbers.steps > 0)
      choice.blocks = graph_of(question, best.sketch).parts(best.numbers.steps);
    choice.extents = question.facts.extents;
    if (options_.explain) explain(question, best, candidates, ranking, walks, choice);
    made.scopes.push_back(std::move(choice));
    return best;
  }

  /// What a scope takes at most, by count: its cycles, or all that it touches from main memory.
  double most_s(const Question& question, const Choosing& fewest) const {
    const schedule::Plan& plan = question.construction.plan;
    const std::size_t scope = plan.scope_named(question.scope);
    std::set<program::TensorId> touched{plan.program.scopes[scope].output};
    for (const program::ScalarId read : plan.all_reads(scope))
      touched.insert(plan.program.scalar(read).tensor);
    double bytes = 0;
    for (const program::TensorId tensor : touched) {
      double elements = static_cast<double>(nest::byte_size(dtype_));
      for (const program::Range& dim : plan.program.tensor(tensor).dims) {
        const auto [begin, end] = plan.range(dim);
        elements *= static_cast<double>(end - begin);
      }
      bytes += elements;
    }
    const double moving = bytes * 1e-9 / machine_.levels.back().read_gbs;
    return std::max(moving, question.sketches[fewest.sketch].cycles * 1e-9 / machine_.ghz);
  }

  /// From the best finalists of different sketches on, one number after the other is moved as long as the
  /// prediction falls: counts find the right sketch more surely than the right numbers.
  std::vector<Choosing> descended(const Question& question, const std::vector<Candidate>& candidates,
                                  const Ranking& ranking, Predictions& predicted) const {
    std::vector<Choosing> ends;
    const std::size_t before = predicted.built();
    for (const auto& [start_s, i] : ranking) {
      const Choosing& start = candidates[i].choice;
      if (!(start_s <= ranking.front().first * kNearEnough) || ends.size() == kDescents) break;
      const bool begun = std::any_of(ends.begin(), ends.end(),
                                     [&](const Choosing& end) { return end.sketch == start.sketch; });
      if (begun || !start.numbers.blocks.empty()) continue;  // tiles of caches go with those of registers
      const std::size_t until = before + options_.refinements * (ends.size() + 1) / kDescents;
      ends.push_back(descend(question.sketches[start.sketch], start, predicted, until));
    }
    return ends;
  }

  /// Where the descent from one choice ends, or is when so many were built.
  static Choosing descend(const Sketch& sketch, Choosing here, Predictions& predicted, std::size_t until) {
    const auto step = [&](const Choice& number, std::ptrdiff_t by) {
      const auto& values = number.values;
      const auto at = std::find(values.begin(), values.end(), here.numbers.*number.number);
      const auto to = at - values.begin() + by;
      if (at == values.end() || to < 0 || to >= static_cast<std::ptrdiff_t>(values.size())) return false;
      Choosing next = here;
      next.numbers.*number.number = values[static_cast<std::size_t>(to)];
      if (predicted.built() >= until || !sketch.fits(next.numbers)) return false;
      if (!(predicted(next) < predicted(here))) return false;
      here = next;
      return true;
    };
    for (bool moved = true; moved;) {
      moved = false;
      for (const Choice& number : sketch.choices)
        for (const std::ptrdiff_t direction : {1, -1})
          for (std::ptrdiff_t by = direction; step(number, by); by *= 2) moved = true;
    }
    return here;
  }

  /// What the caller's chooser answers.
  Choosing asked(const Question& question, Constructed& made) const {
    forget_attempt(question, made);
    if (made.scopes.empty()) made.counted_s = judge(question, counted(question)).seconds;
    const Choosing answer = options_.chooser(question);
    if (!question.finish(answer) && question.finish(counted(question)))
      fail<ScheduleError>("construct", "'{}' as the policy answered, {}, cannot be built", question.scope,
                          to_text(question.sketches[answer.sketch], answer.numbers));
    ScopeChoice choice;
    choice.scope = question.scope;
    if (options_.explain) explain(question, answer, {}, {}, {}, choice);
    made.scopes.push_back(std::move(choice));
    return answer;
  }

  /// Drops what was said of an attempt that came to nothing, in which this scope was asked about, too.
  static void forget_attempt(const Question& question, Constructed& made) {
    if (std::any_of(made.scopes.begin(), made.scopes.end(),
                    [&](const ScopeChoice& earlier) { return earlier.scope == question.scope; }))
      made.scopes.clear();
  }

  /// The words of a choice.
  void explain(const Question& question, const Choosing& best, const std::vector<Candidate>& candidates,
               const Ranking& ranking, const std::vector<Walk>& walks, ScopeChoice& choice) const {
    const Sketches& sketches = question.sketches;
    for (const Sketch& sketch : sketches)
      choice.sketches.push_back(fmt::format("{} ({:.3g} cycles counted)", sketch.name, sketch.cycles));
    choice.sketch = to_text(sketches[best.sketch], best.numbers);
    const Candidate* chosen = nullptr;
    for (const auto& [time, i] : ranking) {
      const Candidate& candidate = candidates[i];
      choice.ranking.emplace_back(to_text(sketches[candidate.choice.sketch], candidate.choice.numbers), time);
      const bool same = candidate.choice == best;
      if (candidate.walk != kNoWalk && (chosen == nullptr || same)) chosen = &candidate;
    }
    if (chosen == nullptr) return;
    choice.reached = chosen->choice == best;
    const Walk& walk = walks[chosen->walk];
    choice.walk = in_words(graph_of(question, walk.sketch), walk.taken);
    choice.led = chosen->led;
  }

  EtirGraph graph_of(const Question& question, std::size_t sketch) const {
    return {question.facts,
            question.sketches[sketch],
            machine_,
            static_cast<std::int64_t>(nest::byte_size(dtype_)),
            {options_.printed, options_.vthreads && policy_.vthreads, policy_.inverse}};
  }

  std::vector<Candidate> explore(const Question& question, const Choosing& fewest, bool walks_pay,
                                 Predictions& predicted, ScopeChoice& choice,
                                 std::vector<Walk>& walks) const {
    const Sketches& sketches = question.sketches;
    std::vector<double> counted_s;
    for (std::size_t s = 0; s < sketches.size(); ++s)
      counted_s.push_back(predicted({s, sketches[s].counted}));
    const auto least =
        static_cast<std::size_t>(std::min_element(counted_s.begin(), counted_s.end()) - counted_s.begin());
    std::vector<Candidate> all;
    const Random stream = Random(options_.seed).fork(question.scope);
    for (std::size_t s = 0; s < sketches.size(); ++s) {
      if (counted_s[s] > counted_s[least] * kFarWorse && s != fewest.sketch) continue;
      // Counts of one sketch compare well with each other, those of different ones by way of a prediction.
      const std::size_t like = std::isfinite(counted_s[s]) ? s : least;
      const double scale = std::isfinite(counted_s[like]) ? counted_s[like] / sketches[like].cycles : 1;
      if (options_.counted && s != fewest.sketch) {  // no walk leads past what counts least of another way
        all.emplace_back();
        all.back().choice = {s, sketches[s].counted};
        all.back().cycles = sketches[s].cycles * scale;
      }
      if (!walks_pay) continue;
      const EtirGraph graph = graph_of(question, s);
      const bool cuts = !sketches[s].blocks.empty();
      const WalkOptions walk{options_.iterations, options_.annealing, options_.record_all, options_.explain,
                             options_.budget};
      for (int w = 0; w < (policy_.random ? options_.walks : 1); ++w) {
        Walked walked = policy_.walk(graph, walk, stream.fork(s).fork(static_cast<std::uint64_t>(w)));
        walks.push_back({s, std::move(walked.taken)});
        const bool cut = cuts && (!options_.counted || graph.overflows());
        for (const auto& [state, steps] : walked.states) {
          Candidate candidate;
          candidate.choice = {s, graph.numbers(state)};
          candidate.walk = walks.size() - 1;
          candidate.led = steps;
          Etir settled;
          double moving = std::numeric_limits<double>::infinity();
          const auto known = std::find_if(all.begin(), all.end(), [&](const Candidate& other) {
            return other.choice.sketch == s && other.choice.numbers == candidate.choice.numbers;
          });
          if (cut) {
            settled = graph.settled(state);
            moving = graph.moving(settled);
          }
          if (known != all.end()) {
            if (moving < known->moving) {
              known->blocks = graph.blocks(settled);
              known->moving = moving;
              std::tie(known->blocks_walk, known->blocks_led) = std::tie(candidate.walk, candidate.led);
            }
            if (known->walk == kNoWalk)
              std::tie(known->walk, known->led) = std::tie(candidate.walk, candidate.led);
            continue;
          }
          if (std::isfinite(moving)) {
            candidate.blocks = graph.blocks(settled);
            candidate.moving = moving;
            std::tie(candidate.blocks_walk, candidate.blocks_led) = std::tie(candidate.walk, candidate.led);
          }
          candidate.cycles = sketches[s].estimate(candidate.choice.numbers) * scale;
          all.push_back(std::move(candidate));
        }
      }
    }
    choice.states = all.size();
    std::vector<Candidate> chosen = finalists(all);
    add_blocked(chosen);
    return chosen;
  }

  /// What a state says of caches becomes loops. Beside the counted schedule, which has none, the finalists
  /// stay as they are, and some are tried with them as well.
  void add_blocked(std::vector<Candidate>& chosen) const {
    constexpr std::size_t kTried = 2;
    std::size_t tried = 0;
    for (std::size_t i = 0, count = chosen.size(); i < count; ++i) {
      if (chosen[i].blocks.empty() || (options_.counted && tried == kTried)) continue;
      Candidate blocked = chosen[i];
      blocked.choice.numbers.blocks = std::move(chosen[i].blocks);
      blocked.choice.numbers.steps = 0;  // parts of the reduction are among the tiles
      std::tie(blocked.walk, blocked.led) = std::tie(blocked.blocks_walk, blocked.blocks_led);
      ++tried;
      if (options_.counted)
        chosen.push_back(std::move(blocked));
      else
        chosen[i] = std::move(blocked);
    }
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
  const PolicyRow& policy_;
  Target target_;
  machine::PredictOptions predicting_;
};

}  // namespace

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
  text += fmt::format(
      "computing {} us, loops {} us, waiting for short pieces {} us, walking through page "
      "tables {} us, moving",
      significant(limits.compute_s * 1e6), significant(limits.overhead_s * 1e6),
      significant(limits.waiting_s * 1e6), significant(limits.walking_s * 1e6));
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
    nlohmann::json walk = nlohmann::json::array(), ranking = nlohmann::json::array(),
                   blocks = nlohmann::json::array();
    for (const CacheTiles& block : scope.blocks)
      blocks.push_back({{"loops", block.loops}, {"tiles", block.tiles}});
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
                      {"extents", scope.extents},
                      {"blocks", std::move(blocks)},
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
