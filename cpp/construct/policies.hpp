// construct/policies.hpp — the policies that choose among the states of a construction graph: a table of
// named rows. All of them propose states; how these are ranked, and how many are built, is the same for all.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "construct/etir.hpp"
#include "support/random.hpp"

namespace syno::construct {

struct WalkOptions {
  int iterations = 100;    ///< T0 / threshold = 2^iterations: the temperature halves at each
  bool annealing = true;   ///< the benefit of caching grows with the iteration
  bool record_all = true;  ///< otherwise with the paper's probability, a falling logistic of the temperature
  bool explain = true;     ///< remember the steps
  std::size_t budget = 10'000;  ///< states that an enumeration counts
};

/// A step before it is put into words.
struct Taken {
  Action action;
  double benefit = 0, probability = 0;
  Etir state;
};

/// What a policy proposes for one sketch: states that can be built, in the order they were met.
struct Walked {
  struct Found {
    Etir state;
    std::size_t steps = 0;  ///< that led to it
  };
  std::vector<Found> states;
  std::vector<Taken> taken;
};

struct PolicyRow {
  std::string_view name;
  std::string_view meaning;
  bool inverse = true;   ///< it may take the way back; without, the graph is a tree
  bool vthreads = true;  ///< it may interleave
  bool random = false;   ///< it depends on the stream: worth repeating
  /// None: no state is proposed, the strategies' own count decides.
  Walked (*walk)(const EtirGraph& graph, const WalkOptions& options, Random random) = nullptr;
};

std::span<const PolicyRow> policies();
const PolicyRow& policy_named(std::string_view name);  ///< UnknownName lists them

}  // namespace syno::construct
