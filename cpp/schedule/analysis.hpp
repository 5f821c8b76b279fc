// schedule/analysis.hpp — what a constructor of schedules asks about a scope: how its reads move with its loops.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/plan.hpp"

namespace syno::schedule {

/// A loop and the factor it is split by.
using Splits = std::vector<std::pair<std::string, std::int64_t>>;

/// One read of a scope's body.
struct ReadFacts {
  program::ScalarId id{};
  program::TensorId tensor{};
  bool guarded = false;  ///< some iteration reads the fill
  bool linear = false;   ///< every index is a sum of iterators times integers
  /// coefficients[d][i]: how dimension d moves with loop i; meaningful where `linear`.
  std::vector<std::vector<std::int64_t>> coefficients;
  std::vector<bool> depends;          ///< by loop
  std::vector<std::int64_t> extents;  ///< of the box that is read, by dimension
  std::vector<std::int64_t> address;  ///< how the address moves with each loop, the tensor being row-major
  std::int64_t elements = 1;          ///< of the box
};

struct ScopeFacts {
  Splits splits;                      ///< exact ones that make `c / 16` and `c % 16` loops of their own
  std::size_t traversal = 0;          ///< the first so many loops are the traversal
  std::vector<std::int64_t> extents;  ///< by loop, after the splits
  std::vector<ReadFacts> reads;
  bool reduces = false;
  std::int64_t points() const;  ///< of the whole iteration space
};

/// Facts about a scope nothing was decided about yet, as it is after `splits`.
ScopeFacts analyse(Plan& plan, std::size_t scope);

}  // namespace syno::schedule
