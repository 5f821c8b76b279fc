// support/intern_table.hpp — finds the values of a vector by their content.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace syno {

/// Positions in a vector, which its owner keeps, by the hashes of the values there. Holds nothing but
/// numbers, so that what is copied with it is copied as fast as an array.
class InternTable {
 public:
  /// Where the value with this hash is, and whether it was added: then the owner puts it at position `count`,
  /// how many there are so far. `same(position)` compares it with one there, `hash_of(position)` is that
  /// one's hash.
  template <class Same, class HashOf>
  std::pair<std::uint32_t, bool> find_or_add(std::uint64_t hash, std::size_t count, const Same& same,
                                             const HashOf& hash_of) {
    if (2 * (count + 1) > places_.size()) grow(count, hash_of);
    const std::size_t mask = places_.size() - 1;
    std::size_t at = hash & mask;
    for (; places_[at] != 0; at = (at + 1) & mask)
      if (same(places_[at] - 1)) return {places_[at] - 1, false};
    places_[at] = static_cast<std::uint32_t>(count) + 1;
    return {static_cast<std::uint32_t>(count), true};
  }

  /// Forgets the value that was added last: its hash, and its position.
  void forget_last(std::uint64_t hash, std::uint32_t position) {
    const std::size_t mask = places_.size() - 1;
    std::size_t at = hash & mask;
    while (places_[at] != position + 1) at = (at + 1) & mask;
    places_[at] = 0;  // nothing was put behind it
  }

 private:
  template <class HashOf>
  void grow(std::size_t count, const HashOf& hash_of) {
    places_.assign(places_.empty() ? 16 : 2 * places_.size(), 0);
    const std::size_t mask = places_.size() - 1;
    for (std::uint32_t i = 0; i < count; ++i) {
      std::size_t at = hash_of(i) & mask;
      while (places_[at] != 0) at = (at + 1) & mask;
      places_[at] = i + 1;
    }
  }

  std::vector<std::uint32_t> places_;  ///< a power of two of them; position + 1, or 0: none
};

}  // namespace syno
