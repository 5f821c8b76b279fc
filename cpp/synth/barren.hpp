// synth/barren.hpp — partial operators known to lead to nothing new, never searched twice.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

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
  static constexpr std::size_t kMost = 1U << 20;  ///< 24 MB or less

  /// How many states stand above `key`; 0: not known to be barren.
  std::uint32_t states(std::uint64_t key) const {
    if (slots_.empty()) return 0;
    const Barren& slot = slots_[place(key)];
    return slot.key == key ? slot.states : 0;
  }
  void add(Barren fact) {
    if (used_ >= kMost) return;
    if (4 * (used_ + 1) > 3 * slots_.size()) grow();
    Barren& slot = slots_[place(fact.key)];
    if (slot.states == 0) ++used_;
    slot = fact;
  }
  std::size_t bytes() const { return slots_.capacity() * sizeof(Barren); }

 private:
  std::size_t place(std::uint64_t key) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = (key ^ key >> 32) & mask;
    while (slots_[at].states != 0 && slots_[at].key != key) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    std::vector<Barren> old(std::max<std::size_t>(256, 2 * slots_.size()));
    old.swap(slots_);
    for (const Barren& fact : old) {
      if (fact.states != 0) slots_[place(fact.key)] = fact;
    }
  }

  std::vector<Barren> slots_;  ///< a power of two of them; open addressing
  std::size_t used_ = 0;
};

}  // namespace syno::synth
