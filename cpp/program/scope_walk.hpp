// program/scope_walk.hpp — a compiled scope's iterators at one point, and where its accesses go there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "program/scope_code.hpp"
#include "support/random.hpp"

namespace syno::program::detail {

/// Holds the iterators' state, so one per thread.
class ScopeWalk {
 public:
  explicit ScopeWalk(ScopeCode code)
      : code_(std::move(code)), iterators_(code_.begin), lanes_(code_.lanes.size()) {}

  const ScopeCode& code() const { return code_; }
  const std::vector<std::int64_t>& iterators() const { return iterators_; }
  const std::vector<std::int64_t>& lanes() const { return lanes_; }

  /// To a point of the traversal (logical values of its iterators). The terms of sums stay where they are.
  void move_to(const std::int64_t* traversal) {
    std::copy(traversal, traversal + code_.traversal_count, iterators_.begin());
    update_lanes();
  }
  /// To the next term of the sums; false after the last one, when it is at the first one again.
  bool next_term() {
    for (std::size_t i = iterators_.size(); i-- > code_.traversal_count;) {
      if (++iterators_[i] < code_.begin[i] + code_.extent[i]) {
        for (const auto& [lane, coefficient] : code_.lanes_of[i]) lanes_[lane] += coefficient;
        return true;
      }
      iterators_[i] = code_.begin[i];
      for (const auto& [lane, coefficient] : code_.lanes_of[i])
        lanes_[lane] -= coefficient * (code_.extent[i] - 1);
    }
    return false;
  }
  /// To a term drawn at random, each iterator of the sums from [begin, begin + extent).
  void move_to_term(Random& random, const std::int64_t* begin, const std::int64_t* extent) {
    std::int64_t* sums = iterators_.data() + code_.traversal_count;
    for (std::size_t i = 0; i + code_.traversal_count < iterators_.size(); ++i)
      sums[i] = begin[i] + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(extent[i])));
    update_lanes();
  }
  void move_sums_to(const std::int64_t* sums) {
    std::copy(sums, sums + (iterators_.size() - code_.traversal_count),
              iterators_.begin() + static_cast<std::ptrdiff_t>(code_.traversal_count));
    update_lanes();
  }
  /// Terms begin with the first one where it moves next.
  void to_first_term() {
    const auto first = static_cast<std::ptrdiff_t>(code_.traversal_count);
    std::copy(code_.begin.begin() + first, code_.begin.end(), iterators_.begin() + first);
  }

  /// Offset in its tensor of an access here; false where it is outside.
  bool locate(const Access& access, std::int64_t& offset) const {
    for (const CheckedLane& check : access.lanes)
      if (static_cast<std::uint64_t>(lanes_[check.lane] - check.begin) >=
          static_cast<std::uint64_t>(check.extent))
        return false;
    offset = lanes_[access.offset_lane];
    for (const CheckedSteps& check : access.steps) {
      std::int64_t value = 0;
      if (!run(check.steps, iterators_.data(), value)) return false;
      value -= check.begin;
      if (value < 0 || value >= check.extent) return false;
      offset += value * check.stride;
    }
    return true;
  }
  /// The integer of an Index here.
  std::int64_t index(const Instruction& instruction) const {
    std::int64_t value = 0;
    run(code_.indices[instruction.a], iterators_.data(), value);
    return value;
  }

 private:
  void update_lanes() {
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      const Affine& affine = code_.lanes[i];
      std::int64_t value = affine.constant;
      for (const auto& [position, coefficient] : affine.terms) value += coefficient * iterators_[position];
      lanes_[i] = value;
    }
  }

  ScopeCode code_;
  std::vector<std::int64_t> iterators_;
  std::vector<std::int64_t> lanes_;
};

}  // namespace syno::program::detail
