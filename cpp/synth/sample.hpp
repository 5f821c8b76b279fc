// synth/sample.hpp — random operators of a spec.
#pragma once

#include "synth/enumerate.hpp"

namespace syno::synth {

struct SampleOptions {
  int max_steps = 0;  ///< 0: the spec's
  std::uint64_t seed = 0;
  int threads = 1;
  bool operator_keys = true;     ///< as in EnumerationOptions
  std::size_t max_attempts = 0;  ///< walks before giving up; 0: 200 for each operator wanted, at least 2000
};

/// Up to `count` different operators. Each attempt draws a number of steps, then walks from the output
/// choosing a primitive, then one of its steps, uniformly among those that rules, budgets and shape distance
/// keep, and turns back at dead ends. Attempt i depends on the seed and i only, results fold in the order of
/// attempts: the same operators for any number of threads. Fewer come back when the space seems exhausted.
Enumeration sample(const Spec& spec, std::size_t count, const SampleOptions& options = {});

}  // namespace syno::synth
