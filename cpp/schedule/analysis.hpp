// schedule/analysis.hpp — what a constructor of schedules asks about a scope: how its reads move with its
// iterators.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/plan.hpp"

namespace syno::schedule {

/// One read of a scope's body.
struct ReadFacts {
  program::ScalarId id{};
  program::TensorId tensor{};
  bool guarded = false;  ///< some iteration reads the fill
  bool linear = false;   ///< every index is a sum of iterators times integers
  /// coefficients[d][i]: how dimension d moves with iterator i; meaningful where `linear`.
  std::vector<std::vector<std::int64_t>> coefficients;
  std::vector<bool> depends;          ///< by iterator
  std::vector<std::int64_t> extents;  ///< of the box that is read, by dimension
  std::vector<std::int64_t>
      address;                ///< how the address moves with each iterator, the tensor being row-major
  std::int64_t elements = 1;  ///< of the box
};

struct ScopeFacts {
  std::size_t traversal = 0;          ///< the first so many iterators are the traversal
  std::vector<std::int64_t> extents;  ///< by iterator
  std::vector<std::string> names;     ///< of the iterators' loops
  std::vector<ReadFacts> reads;
  bool reduces = false;
  std::int64_t points() const;  ///< of the whole iteration space
};

/// Needs the domain of the scope; its loops must not have been split yet.
ScopeFacts analyse(Plan& plan, std::size_t scope);

}  // namespace syno::schedule
