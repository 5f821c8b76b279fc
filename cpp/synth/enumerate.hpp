// synth/enumerate.hpp — all operators of a spec, each once, the same for any number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "pgraph/pgraph.hpp"
#include "synth/work.hpp"

namespace syno::synth {

/// An operator that the search found.
struct Found {
  pgraph::CompleteGraph graph;
  Work work;  ///< summed over the valuations
  int steps = 0;
};

struct SearchStatistics {
  std::uint64_t children = 0;                     ///< steps looked at
  std::uint64_t states = 0;                       ///< partial operators kept
  std::uint64_t finished = 0;                     ///< operators met, duplicates included
  std::map<std::string, std::uint64_t> rejected;  ///< by rule, budget, `distance` or `order`
  std::vector<std::uint64_t> by_steps;            ///< operators kept, by number of steps
  double seconds = 0;
  bool truncated = false;  ///< there are, or may be, more than a limit let through
};

struct EnumerationOptions {
  int max_steps = 0;  ///< 0: the spec's
  int threads = 1;
  /// Keep at most this many operators, the first in the order of the search; all are searched for.
  std::optional<std::size_t> limit;
  /// Recognise duplicates by what operators compute, not only by how they are built.
  bool operator_keys = true;
  bool shape_distance = true;  ///< false: an ablation
  /// Look at about this many steps, then end with what was found (`truncated`); 0: no limit. With one thread
  /// the same every time.
  std::uint64_t most_children = 0;
  std::size_t memory_limit = 0;  ///< bytes for the search and what it found; 0: no limit
  /// A file that keeps what is finished: an enumeration that was interrupted, however it was, goes on from
  /// there and gives what it would have given (see Checkpoint). Empty: none.
  std::string checkpoint = {};
  /// Called now and then by the calling thread; what it throws ends the search.
  std::function<void()> poll = {};
};

struct Enumeration {
  std::vector<Found> operators;  ///< by steps, then in the order of the search
  SearchStatistics statistics;
};

/// Every operator with at most `max_steps` steps that rules and budgets allow. SpecError with the depth that
/// may work where the memory limit does not suffice; FormatError or SpecError where the
/// checkpoint does not fit.
Enumeration enumerate(const Spec& spec, const EnumerationOptions& options = {});

struct Counters;
SearchStatistics statistics_of(const Counters& counters, const std::vector<Found>& operators);

}  // namespace syno::synth
