// construct/gensor.hpp — schedules constructed without measuring: Gensor's walk over the construction graph
// (paper §IV), and the policies beside it. A construction depends on program, machine model and
// options only.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "construct/construct.hpp"
#include "machine/machine.hpp"
#include "machine/predict.hpp"
#include "program/program.hpp"
#include "schedule/schedule.hpp"

namespace syno::construct {

struct ConstructOptions {
  std::string policy = "graph";  ///< a row of policies()
  /// Asked instead of a policy, and what it answers is taken: no ranking, no counted schedule beside it.
  Chooser chooser;
  std::uint64_t seed = 0;
  int iterations = 100;    ///< T0 / threshold = 2^iterations: the temperature halves at each
  int walks = 2;           ///< restarts for each sketch, of policies that walk at random
  bool annealing = true;   ///< the benefit of caching grows with the iteration
  bool vthreads = true;    ///< register interleaving
  bool printed = false;    ///< formula (1) as the paper prints it
  bool record_all = true;  ///< otherwise with the paper's probability, a falling logistic of the temperature
  bool counted = true;     ///< the counted schedule is a finalist, too, and stays where nothing is better
  std::size_t finalists = 5;     ///< states of a scope, best by count, that are built and predicted
  std::size_t refinements = 24;  ///< states next to the best finalists that are built and predicted
  int threads = 1;
  Strides strides;                     ///< of arguments that are not row-major
  std::vector<std::string> constants;  ///< inputs whose copies are prepacked; predictions are of calls
  int spare_registers = 0;      ///< that tiles leave to the code generator, beside those they always do
  std::size_t budget = 10'000;  ///< states of a sketch that an enumeration counts
  bool fusions = true;          ///< scopes may be computed tile by tile of one that reads them
  bool cold = false;            ///< arguments come from main memory
  /// An index of the machine's levels: `constants` come from there at each call, as weights of a network do
  /// that no nearer one holds. 0: from the nearest level that holds the arguments.
  std::size_t constants_from = 0;
  bool explain = true;  ///< remember walks and rankings; the schedule is the same without
};

/// One step of a walk.
struct Step {
  double t = 0;
  std::string action;
  double benefit = 0, probability = 0;
  std::string state;  ///< after it
};

/// What was considered for one scope.
struct ScopeChoice {
  std::string scope, sketch;
  std::vector<std::string> sketches;
  /// Tiles of caches that stand in the loop nest, along loops of the scope's facts, whose extents are:
  std::vector<CacheTiles> blocks;
  std::vector<std::int64_t> extents;
  bool counted = false;    ///< the counted choice stayed: nothing is predicted to be faster
  std::size_t states = 0;  ///< distinct ones recorded
  std::vector<Step> walk;  ///< that led to the chosen state, or to the best one where no walk reached it
  bool reached = false;    ///< the walk led to the choice itself
  std::size_t led = 0;     ///< steps of it until that state
  std::vector<std::pair<std::string, double>> ranking;  ///< finalists and their predicted seconds, best first
};

struct Constructed {
  schedule::Schedule schedule;
  Prediction prediction;  ///< of the chosen schedule
  double counted_s = 0;   ///< predicted for the counted one
  double construct_ms = 0;
  std::vector<ScopeChoice> scopes;
};

/// Throws as default_schedule does; UnknownName for a policy that is none.
Constructed construct(const program::Program& concrete, nest::Dtype dtype, const Machine& machine,
                      const ConstructOptions& options = {});

/// What limits the kernel, and by scope: what was near, and the steps that led to the choice with their
/// benefits, the first, the last and the best between them; or, with `whole_walk`, every step.
std::string to_text(const Constructed& made, bool whole_walk = false);
nlohmann::json to_json(const Constructed& made);

}  // namespace syno::construct
