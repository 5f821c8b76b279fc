// synth/sample.hpp — random operators of a spec.
#pragma once

#include <functional>

#include "synth/enumerate.hpp"

namespace syno::synth {

struct SampleOptions {
  int min_steps = 0;
  int max_steps = 0;  ///< 0: the spec's
  std::uint64_t seed = 0;
  int threads = 1;
  bool operator_keys = true;  ///< as in EnumerationOptions
  double seconds = 0;         ///< draw no further after so many; 0: no limit
  /// Partial operators to look at without meeting a new operator before giving up.
  std::size_t patience = 300'000;
  /// Partial operators to look at in all, in draws, before no further one is drawn; 0: no limit. A count, not
  /// a time: the same operators on every machine.
  std::size_t effort = 0;
  std::size_t least = 1;  ///< operators that are drawn whatever effort that takes
  /// Called between draws by the calling thread; what it throws ends the search.
  std::function<void()> poll = {};
};

/// Up to `count` different operators of `min_steps` to `max_steps` steps; fewer when there are no more, when
/// patience ends, or time.
///
/// A draw takes a number of steps and a partial operator to start from: the first few steps of an operator
/// drawn from those known (all with few steps, see scout(), and those drawn before): first which primitives
/// it has, uniformly, so that those are often begun that few operators have; then one of these. It walks on
/// (see Walker) to an operator of exactly so many steps that was not drawn before. How many steps to keep,
/// for which number of steps, is random so that every such pair gets the same share of the search; each
/// pair's walks give up after as many partial operators as Luby's sequence says.
///
/// Every operator comes at some time and none twice. The sample is not uniform: numbers of steps get the same
/// effort, not the same number of operators; and operators that begin like many others already known are
/// likelier to come early.
///
/// Draw i depends on the seed, on i and on what the draws of earlier batches found; results fold in the order
/// of draws: the same operators for any number of threads, and with a time limit the first of them.
/// SpecError where min_steps exceeds max_steps.
Enumeration sample(const Spec& spec, std::size_t count, const SampleOptions& options = {});

}  // namespace syno::synth
