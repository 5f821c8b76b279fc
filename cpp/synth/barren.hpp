// synth/barren.hpp — partial operators known to lead to nothing new, never searched twice.
#pragma once

#include <cstdint>

#include "synth/number_map.hpp"

namespace syno::synth {

/// Nothing new stands above the partial operator that `key` names; the search for it looked at `states`.
struct Barren {
  std::uint64_t key = 0;
  std::uint32_t states = 0;
};

/// Barren partial operators by key. Holds at most kMost and then learns no more: what it does not know costs
/// a search again, never an answer.
class BarrenTable {
 public:
  static constexpr std::size_t kMost = 1U << 20;  ///< 32 MB

  /// How many states stand above `key`; 0: not known to be barren.
  std::uint32_t states(std::uint64_t key) const { return states_.find(key); }
  void add(Barren fact) {
    if (fact.key != 0 && size() < kMost) states_[fact.key] = fact.states;
  }
  std::size_t size() const { return states_.size(); }
  std::size_t bytes() const { return states_.bytes(); }

 private:
  NumberMap states_;
};

}  // namespace syno::synth
