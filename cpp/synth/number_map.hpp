// synth/number_map.hpp — 64-bit keys to small numbers, in one array.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace syno::synth {

/// Open addressing, at most half full, grows by doubling; nothing is ever removed. The key 0 is taken.
class NumberMap {
 public:
  NumberMap() : slots_(64) {}

  /// The number of `key`, 0 when it is new; valid until the next call.
  std::uint32_t& operator[](std::uint64_t key) {
    if (2 * used_ >= slots_.size()) grow();
    Slot& slot = slots_[place(key)];
    if (slot.key == 0) {
      slot.key = key;
      ++used_;
    }
    return slot.number;
  }
  /// The number of `key`, 0 when there is none.
  std::uint32_t find(std::uint64_t key) const { return slots_[place(key)].number; }
  std::size_t size() const { return used_; }
  std::size_t bytes() const { return slots_.size() * sizeof(Slot); }

 private:
  struct Slot {
    std::uint64_t key = 0;
    std::uint32_t number = 0;
  };
  std::size_t place(std::uint64_t key) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = ((key ^ key >> 29) * 0x9e3779b97f4a7c15ULL >> 32) & mask;
    while (slots_[at].key != 0 && slots_[at].key != key) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key != 0) slots_[place(slot.key)] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t used_ = 0;
};

}  // namespace syno::synth
