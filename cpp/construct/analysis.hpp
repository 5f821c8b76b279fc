// construct/analysis.hpp — what a constructor of schedules asks about a scope: how its reads move with its
// loops.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "construct/names.hpp"

namespace syno::construct {

/// A loop and the factor it is split by.
using Splits = std::vector<std::pair<std::string, std::int64_t>>;

/// How a box of indices moves with the loops of a scope.
struct BoxFacts {
  /// coefficients[d][i]: how dimension d moves with loop i; 0 where it does so in another way.
  std::vector<std::vector<std::int64_t>> coefficients;
  std::vector<bool> linear;           ///< by dimension: a sum of loops times integers
  std::vector<std::int64_t> extents;  ///< by dimension, of what is read where the scope is computed
  std::vector<std::int64_t> whole;    ///< the same over all loops around that place
  std::int64_t elements = 1;
};

/// One read of a scope's body.
struct ReadFacts {
  program::ScalarId id{};
  program::TensorId tensor{};
  std::string name;                   ///< of that tensor
  bool constant = false;              ///< the same over calls: facts_of() says so
  bool guarded = false;               ///< some iteration reads the fill
  bool linear = false;                ///< every index is a sum of iterators times integers
  BoxFacts box;                       ///< of the tensor, where it is read itself
  BoxFacts copy;                      ///< of a staged copy
  std::vector<bool> depends;          ///< by loop
  std::vector<bool> guards;           ///< by loop: it decides whether the fill is read
  std::vector<std::int64_t> address;  ///< how the address moves with each loop, the tensor being row-major
};

struct ScopeFacts {
  bool blocks = true;                  ///< whether blocks were made loops where that is possible
  Splits splits;                       ///< exact ones that make `c / 16` and `c % 16` loops of their own
  std::size_t traversal = 0;           ///< the first so many loops are the traversal
  std::vector<std::string> names;      ///< by loop, after the splits
  std::vector<std::int64_t> extents;   ///< by loop
  std::vector<std::size_t> iterators;  ///< by loop: the iterator it is, or is a part of
  std::vector<ReadFacts> reads;
  bool reduces = false;
  double counted = 1;                  ///< part of the terms: the others are left out (construct/phases.hpp)
  std::int64_t points() const;         ///< of the whole iteration space
  bool split(std::size_t loop) const;  ///< the loop is a part of its iterator
};

/// Facts about a scope nothing was decided about yet, as it is after `splits`; without `blocks` there are
/// none.
ScopeFacts analyse(Plan& plan, std::size_t scope, bool blocks = true);

/// The dimension of a box that a loop moves step by step, alone among the traversal; none if there is not
/// just one.
std::optional<std::size_t> dimension_along(const ScopeFacts& facts, const BoxFacts& box, std::size_t loop);
/// The same where other loops of the traversal may move it by whole parts: multiples of the loop's extent.
std::optional<std::size_t> dimension_in_parts(const ScopeFacts& facts, const BoxFacts& box, std::size_t loop);

/// What a read touches while each loop runs so many iterations: lines, in pieces that lie apart. Of x[64, 56,
/// 56], three rows of 24 numbers in 8 channels are 24 pieces of two lines each, 224 bytes apart.
struct Touched {
  double lines = 0, pieces = 0;
  double apart = 0;  ///< bytes from one piece to the next one, the smallest; 0: there is one piece
};
Touched touched(const BoxFacts& box, std::span<const std::int64_t> iterations, double element_bytes);
/// Elements of dimension `d` between the first and the last one that is read then, and these.
std::int64_t span_of(const BoxFacts& box, std::size_t d, std::span<const std::int64_t> iterations);

/// Where to cut the range of a leaf loop so that the iterations between need none of the guards that it
/// decides: up to two places, none where every iteration is alike.
std::vector<std::int64_t> border_cuts(Plan& plan, std::size_t scope, const std::string& loop);

/// Where to cut the range of a leaf loop so that in each piece it is known what it alone decides: which way
/// selects by comparisons of indices go, what is read outside, where a remainder wraps around. With the loops
/// that it was split from there may be one iteration that does not know. None beyond `most`.
std::vector<std::int64_t> switch_cuts(Plan& plan, std::size_t scope, const std::string& loop,
                                      std::size_t most);

/// By leaf loop, outermost first: whether a select of the body is decided by it.
std::vector<bool> loops_that_switch(Plan& plan, std::size_t scope);

/// Where to cut the range of the outer loop of a split so that within most of its iterations nothing that the
/// inner loop moves wraps around in a remainder, or passes to the next quotient: `(8*o + i + 1) % 56` does so
/// for o = 6 alone. None where that would take many cuts.
std::vector<std::int64_t> wrap_cuts(Plan& plan, std::size_t scope, const std::string& outer,
                                    const std::string& inner);

}  // namespace syno::construct
