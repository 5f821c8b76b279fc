#include "tune/space.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "construct/tiled_fusion.hpp"
#include "machine/features.hpp"
#include "machine/predict.hpp"
#include "support/error.hpp"

namespace syno::tune {

namespace {

using construct::Choosing;
using construct::Sketch;
using construct::Sketches;
using schedule::Decision;

/// Multiply-adds of one block beyond which code takes seconds to compile.
constexpr double kLargestBlock = 2048;
constexpr int kAttempts = 12;

std::vector<std::size_t> decisions_named(const std::vector<Decision>& trace, std::string_view name) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < trace.size(); ++i)
    if (trace[i].name == name) found.push_back(i);
  return found;
}
std::optional<std::size_t> any_of(const std::vector<std::size_t>& places, Random& random) {
  if (places.empty()) return std::nullopt;
  return places[random.below(places.size())];
}

bool change_factor(std::vector<Decision>& trace, Random& random) {
  const auto at = any_of(decisions_named(trace, "split"), random);
  if (!at || trace[*at].numbers.empty()) return false;
  std::int64_t& factor = trace[*at].numbers[0];
  const std::int64_t before = factor;
  const std::array<std::int64_t, 6> changed{factor * 2, factor / 2, factor + 1,
                                            factor - 1, factor + 4, factor * 3};
  factor = std::clamp<std::int64_t>(changed[random.below(changed.size())], 1, 4096);
  return factor != before;
}

bool swap_loops(std::vector<Decision>& trace, Random& random) {
  const auto at = any_of(decisions_named(trace, "reorder"), random);
  if (!at || trace[*at].loops.size() < 2) return false;
  auto& loops = trace[*at].loops;
  const std::size_t first = random.below(loops.size() - 1);
  std::swap(loops[first], loops[first + 1]);
  return true;
}

bool unroll_loop(std::vector<Decision>& trace, Random& random) {
  const auto at = any_of(decisions_named(trace, "register_tile"), random);
  if (!at) return false;
  const std::string scope = trace[*at].scope;
  // The loop just outside the register tile: the innermost one that stays a loop.
  for (std::size_t i = trace.size(); i-- > 0;) {
    if (trace[i].name != "reorder" || trace[i].scope != scope) continue;
    const auto& loops = trace[i].loops;
    const auto& tile = trace[*at].loops;
    const std::size_t outside = loops.size() > tile.size() ? loops.size() - tile.size() : 0;
    if (outside == 0) return false;
    trace.insert(trace.begin() + static_cast<std::ptrdiff_t>(*at) + 1,
                 {"unroll", scope, {loops[outside - 1]}, {}, "", {}});
    return true;
  }
  return false;
}

bool drop_decision(std::vector<Decision>& trace, Random& random) {
  std::vector<std::size_t> places;
  for (const char* name : {"unroll", "peel", "parallel"})
    for (const std::size_t place : decisions_named(trace, name)) places.push_back(place);
  const auto at = any_of(places, random);
  if (!at) return false;
  trace.erase(trace.begin() + static_cast<std::ptrdiff_t>(*at));
  return true;
}

bool move_parallel(std::vector<Decision>& trace, Random& random) {
  const auto at = any_of(decisions_named(trace, "parallel"), random);
  if (!at) return false;
  for (const Decision& decision : trace) {
    if (decision.name != "reorder" || decision.scope != trace[*at].scope || decision.loops.empty()) continue;
    const std::string& loop = decision.loops[random.below(std::min<std::size_t>(3, decision.loops.size()))];
    if (trace[*at].loops == std::vector<std::string>{loop}) return false;
    trace[*at].loops = {loop};
    return true;
  }
  return false;
}

bool move_computation(std::vector<Decision>& trace, Random& random) {
  const auto at = any_of(decisions_named(trace, "compute_at"), random);
  if (!at) return false;
  for (const Decision& decision : trace) {
    if (decision.name != "reorder" || decision.scope != trace[*at].tensor || decision.loops.empty()) continue;
    const std::string& loop = decision.loops[random.below(decision.loops.size())];
    if (trace[*at].loops == std::vector<std::string>{loop}) return false;
    trace[*at].loops = {loop};
    return true;
  }
  return false;
}

bool split_reduction(std::vector<Decision>& trace, Random& random) {
  const auto at = any_of(decisions_named(trace, "register_tile"), random);
  if (!at) return false;
  const std::string scope = trace[*at].scope;
  for (std::size_t i = *at; i-- > 0;) {
    if (trace[i].name != "reorder" || trace[i].scope != scope) continue;
    auto& loops = trace[i].loops;
    const std::size_t tile = trace[*at].loops.size();
    if (loops.size() <= tile) return false;
    // The innermost reduction in pieces of a few iterations, which are unrolled.
    const std::size_t place = loops.size() - tile - 1;
    const std::string loop = loops[place];
    const std::int64_t factor = std::int64_t{2} << random.below(3);
    const std::string outer = loop + "_uo", inner = loop + "_ui";
    loops[place] = outer;
    loops.insert(loops.begin() + static_cast<std::ptrdiff_t>(place) + 1, inner);
    trace.insert(trace.begin() + static_cast<std::ptrdiff_t>(*at) + 1,
                 {"unroll", scope, {inner}, {}, "", {}});
    trace.insert(trace.begin() + static_cast<std::ptrdiff_t>(i),
                 {"split", scope, {loop}, {factor}, "", {outer, inner}});
    return true;
  }
  return false;
}

constexpr std::array kMutations = {
    TraceMutation{"factor", "another factor of a split", change_factor},
    TraceMutation{"swap", "two neighbouring loops change places", swap_loops},
    TraceMutation{"unroll", "the loop around a register tile is unrolled", unroll_loop},
    TraceMutation{"unroll-part", "a few iterations of the loop around a register tile are unrolled",
                  split_reduction},
    TraceMutation{"drop", "an unroll, peel or parallel is left out", drop_decision},
    TraceMutation{"parallel", "another loop becomes parallel", move_parallel},
    TraceMutation{"compute-at", "a producer is computed at another loop", move_computation},
};

}  // namespace

std::span<const TraceMutation> trace_mutations() { return kMutations; }

ScheduleSpace::ScheduleSpace(program::Program concrete, nest::Dtype dtype, const Machine& machine,
                             int threads, std::vector<std::string> constants, bool laid_out)
    : program_(std::move(concrete)),
      dtype_(dtype),
      machine_(machine),
      threads_(threads),
      prepared_(construct::prepared(program_, dtype_, machine_.target(threads), constants, {},
                                    construct::Phases::Together)) {
  const auto predicted_s = [&](const construct::Finished& finished) {
    return machine::predict(finished.nest, machine_, {.threads = threads_}).seconds;
  };
  const auto can_move = [&] { return prepared_.movable && !laid_out; };
  double least_s = prepared_.separable || can_move() ? predicted_s(counted(prepared_)) : 0;
  auto phases = construct::Phases::Together;
  const auto take_if_faster = [&](construct::Phases places, construct::Innermost innermost) {
    construct::Construction other =
        construct::prepared(program_, dtype_, machine_.target(threads), constants, {}, places, innermost);
    const double other_s = predicted_s(counted(other));
    if (!(other_s < least_s)) return;
    prepared_ = std::move(other);
    least_s = other_s;
    phases = places;
  };
  if (prepared_.separable) take_if_faster(construct::Phases::Apart, construct::Innermost::AsGiven);
  if (can_move()) take_if_faster(phases, construct::Innermost::Moved);
  fusions_ = construct::predicted_fusions(prepared_, machine_, {.threads = threads_}).fusions;
}

construct::Finished ScheduleSpace::counted(const construct::Construction& prepared) const {
  return construct::construct_from(prepared, [](const construct::Question& question) {
    return construct::fewest_cycles(question.construction, question.scope, question.sketches);
  });
}

std::optional<Candidate> ScheduleSpace::candidate(schedule::Schedule schedule, Choices choices) const {
  auto nest = schedule::try_apply_call(program_, schedule);
  if (!nest) return std::nullopt;  // expected: most random traces do not apply
  nest::verify(*nest);
  return candidate(construct::Finished{std::move(schedule), std::move(*nest)}, std::move(choices));
}

std::optional<Candidate> ScheduleSpace::candidate(construct::Finished finished, Choices choices) const {
  const machine::Prediction predicted = predict(finished.nest, machine_, {.threads = threads_});
  if (predicted.largest_block > kLargestBlock) return std::nullopt;
  Candidate made;
  made.features = machine::features_of(predicted);
  made.predicted_s = predicted.seconds;
  made.schedule = std::move(finished.schedule);
  made.choices = std::move(choices);
  return made;
}

std::optional<Choosing> ScheduleSpace::random_choice(const Sketches& sketches, Random& random) const {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Choosing choice;
    choice.sketch = random.below(sketches.size());
    const Sketch& sketch = sketches[choice.sketch];
    choice.numbers = sketch.counted;
    for (const auto& number : sketch.choices)
      if (!number.values.empty())
        choice.numbers.*number.number = number.values[random.below(number.values.size())];
    if (sketch.fits(choice.numbers)) return choice;
  }
  return std::nullopt;
}

std::optional<Candidate> ScheduleSpace::build(Choices choices, const Choose& choose) const {
  construct::Finished finished = construct::construct_from(
      prepared_,
      [&](const construct::Question& question) {
        const Choosing counted =
            construct::fewest_cycles(question.construction, question.scope, question.sketches);
        Choosing& choice = choices.try_emplace(question.scope, counted).first->second;
        if (choice.sketch >= question.sketches.size()) choice = counted;
        choose(question.scope, question.sketches, choice);
        return choice;
      },
      fusions_);
  return candidate(std::move(finished), std::move(choices));
}

std::vector<Candidate> ScheduleSpace::starts() const {
  std::vector<std::pair<std::string, std::size_t>> others;
  std::vector<Candidate> made;
  const auto keep = [&](std::optional<Candidate> candidate) {
    if (!candidate) return;
    const auto same = [&](const Candidate& other) { return other.schedule == candidate->schedule; };
    if (std::none_of(made.begin(), made.end(), same)) made.push_back(std::move(*candidate));
  };
  keep(build({}, [&](const std::string& scope, const Sketches& sketches, Choosing& choice) {
    for (std::size_t s = 0; s < sketches.size(); ++s)
      if (s != choice.sketch) others.emplace_back(scope, s);
  }));
  if (!fusions_.empty()) keep(candidate(counted(prepared_), {}));
  for (const auto& [named, sketch] : others)
    keep(build({}, [&, at = sketch, &name = named](const std::string& scope, const Sketches& sketches,
                                                   Choosing& choice) {
      if (scope == name && at < sketches.size()) choice = {at, sketches[at].counted};
    }));
  std::stable_sort(made.begin(), made.end(),
                   [](const Candidate& a, const Candidate& b) { return a.predicted_s < b.predicted_s; });
  return made;
}

std::optional<Candidate> ScheduleSpace::sample(Random& random) const {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    auto made = build({}, [&](const std::string&, const Sketches& sketches, Choosing& choice) {
      if (const auto other = random_choice(sketches, random)) choice = *other;
    });
    if (made) return made;
  }
  return std::nullopt;
}

/// One number of a choice; its neighbours are more likely to be as good.
void ScheduleSpace::change(const Sketches& sketches, Choosing& choice, Random& random) const {
  const Sketch& sketch = sketches[choice.sketch];
  if (sketch.choices.empty() || random.below(6) == 0) {
    if (const auto other = random_choice(sketches, random)) choice = *other;
    return;
  }
  const auto& number = sketch.choices[random.below(sketch.choices.size())];
  if (number.values.empty()) return;
  Choosing changed = choice;
  std::int64_t& value = changed.numbers.*number.number;
  const auto at = std::find(number.values.begin(), number.values.end(), value) - number.values.begin();
  const auto step = static_cast<std::ptrdiff_t>(1 + random.below(3)) * (random.below(2) ? 1 : -1);
  const auto to =
      std::clamp<std::ptrdiff_t>(at + step, 0, static_cast<std::ptrdiff_t>(number.values.size()) - 1);
  value = number.values[static_cast<std::size_t>(to)];
  if (sketch.fits(changed.numbers)) choice = changed;
}

std::optional<Candidate> ScheduleSpace::mutate(const Candidate& parent, Random& random) const {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (!parent.choices.empty() && random.below(2) == 0) {
      const auto which =
          std::next(parent.choices.begin(), static_cast<std::ptrdiff_t>(random.below(parent.choices.size())));
      auto made =
          build(parent.choices, [&](const std::string& scope, const Sketches& sketches, Choosing& choice) {
            if (scope == which->first) change(sketches, choice, random);
          });
      if (made && !(made->schedule == parent.schedule)) return made;
      continue;
    }
    schedule::Schedule changed = parent.schedule;
    if (!kMutations[random.below(kMutations.size())].change(changed.trace, random)) continue;
    if (auto made = candidate(std::move(changed), parent.choices)) return made;
  }
  return std::nullopt;
}

std::optional<Candidate> ScheduleSpace::cross(const Candidate& a, const Candidate& b, Random& random) const {
  if (a.choices.empty() || a.choices.size() != b.choices.size()) return std::nullopt;
  Choices choices = a.choices;
  for (const auto& [scope, choice] : b.choices)
    if (random.below(2) != 0) choices[scope] = choice;
  return build(std::move(choices), [](const std::string&, const Sketches&, Choosing&) {});
}

}  // namespace syno::tune
