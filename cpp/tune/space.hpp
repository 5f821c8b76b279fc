// tune/space.hpp — the space that a search draws schedules from: sketches with numbers, and traces changed in
// place. Every candidate applies to the program and keeps its meaning; what would not is never returned.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "construct/construct.hpp"
#include "machine/machine.hpp"
#include "program/program.hpp"
#include "schedule/schedule.hpp"
#include "support/random.hpp"

namespace syno::tune {

using machine::Machine;

/// What the sketches of a program's scopes were given, by scope.
using Choices = std::map<std::string, construct::Choosing>;

/// A schedule, the choices that led to it, and what a cost model sees of it.
struct Candidate {
  schedule::Schedule schedule;
  Choices choices;
  std::vector<double> features;  ///< in the order of feature_names()
  double predicted_s = 0;
};

/// One way to change a trace in place. False where there is nothing to change.
struct TraceMutation {
  std::string_view name, meaning;
  bool (*change)(std::vector<schedule::Decision>& trace, Random& random);
};
std::span<const TraceMutation> trace_mutations();

class ScheduleSpace {
 public:
  /// `constants`, names of inputs, are prepacked: candidates are of calls. `laid_out`: the program says where
  /// intermediate results lie, and no schedule says otherwise. Throws as construct::construct does.
  ScheduleSpace(program::Program concrete, nest::Dtype dtype, const Machine& machine, int threads,
                std::vector<std::string> constants = {}, bool laid_out = false);

  /// Where a search begins: every scope as counted, then one scope at a time by each of its other sketches,
  /// as counted for that one; whole stages, where they are fused by tiles otherwise; what is predicted to be
  /// fastest first.
  std::vector<Candidate> starts() const;
  /// A random sketch with random numbers for every reduction.
  std::optional<Candidate> sample(Random& random) const;
  /// One number, one sketch or one decision of the trace changed.
  std::optional<Candidate> mutate(const Candidate& parent, Random& random) const;
  /// Each scope's choice from one of two parents.
  std::optional<Candidate> cross(const Candidate& a, const Candidate& b, Random& random) const;
  /// The candidate of a schedule from elsewhere; nothing where it does not apply or is beyond reason.
  std::optional<Candidate> candidate(schedule::Schedule schedule, Choices choices = {}) const;

 private:
  /// Asks about each scope with sketches and its choice so far (the counted one at first), which may change.
  using Choose =
      std::function<void(const std::string& scope, const construct::Sketches&, construct::Choosing&)>;
  /// Whole stages, every scope as counted.
  construct::Finished counted(const construct::Construction& prepared) const;
  std::optional<Candidate> build(Choices choices, const Choose& choose) const;
  std::optional<Candidate> candidate(construct::Finished finished, Choices choices) const;
  void change(const construct::Sketches& sketches, construct::Choosing& choice, Random& random) const;
  std::optional<construct::Choosing> random_choice(const construct::Sketches& sketches, Random& random) const;

  program::Program program_;
  nest::Dtype dtype_;
  Machine machine_;
  int threads_;
  // What is predicted to take less time.
  construct::Construction prepared_;
  construct::TiledFusions fusions_;
};

}  // namespace syno::tune
