// derive/places.hpp — integers over the outer iterators of a packed state, each once: sums of multiples of
// iterators, quotients and remainders.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "support/intern_table.hpp"

namespace syno::derive::packed {

inline std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  std::uint64_t h = (a ^ (b + 0x9e3779b97f4a7c15ULL)) * 0xff51afd7ed558ccdULL;
  h ^= h >> 32;
  h *= 0xc4ceb9fe1a85ec53ULL;
  return h ^ (h >> 29);
}

using PlaceId = std::uint32_t;

class Places {
 public:
  struct Interval {
    std::int64_t least = 0, greatest = 0;
  };
  enum class Kind : std::uint8_t { Variable, Divide, Modulo };
  struct Atom {
    Kind kind{};
    std::uint32_t of =
        0;  ///< a variable's number, from kSums on a sum's origin; or the place that is divided
    std::int64_t number = 0;  ///< its extent, or the divisor
    auto operator<=>(const Atom&) const = default;
  };
  using Terms = std::vector<std::pair<std::uint32_t, std::int64_t>>;  ///< atoms, ascending, and coefficients
  struct Place {
    Terms terms;
    std::int64_t constant = 0;
    Interval interval;
    std::uint64_t hash = 0;  ///< of what it is, whatever else there is
  };

  PlaceId variable(std::uint32_t number, std::int64_t extent);
  /// An iterator of a sum that stays outside, by where it comes from (see State::place).
  PlaceId sum_variable(PlaceId origin, std::int64_t extent) { return variable(kSums + origin, extent); }
  static constexpr std::uint32_t kSums = 1 << 16;
  PlaceId constant(std::int64_t value) { return made({}, value); }
  /// a + factor * b + constant
  PlaceId sum(PlaceId a, std::int64_t factor, PlaceId b, std::int64_t constant = 0);
  PlaceId plus(PlaceId a, std::int64_t constant) { return sum(a, 0, a, constant); }
  PlaceId divide(PlaceId a, std::int64_t by);
  PlaceId modulo(PlaceId a, std::int64_t by);

  bool inside(PlaceId a, std::int64_t extent) const {
    return places_[a].interval.least >= 0 && places_[a].interval.greatest < extent;
  }
  const Place& operator[](PlaceId id) const { return places_[id]; }
  const Atom& atom(std::uint32_t id) const { return atoms_[id]; }
  std::size_t size() const { return places_.size(); }

 private:
  enum class Op : std::uint8_t { Sum, Divide, Modulo };
  /// What has been computed before.
  class Known {
   public:
    struct Key {
      std::int64_t factor = 0, constant = 0;
      PlaceId a = 0, b = 0;
      Op op{};
      bool operator==(const Key&) const = default;
    };
    /// Where the result is, and whether it has to be put there.
    std::pair<PlaceId*, bool> find_or_add(const Key& key);

   private:
    InternTable table_;
    std::vector<Key> keys_;
    std::vector<PlaceId> results_;
  };
  template <class Make>
  PlaceId known(const Known::Key& key, const Make& make);
  PlaceId made(Terms terms, std::int64_t constant);
  PlaceId interned(Terms terms, std::int64_t constant);
  std::uint32_t atom_of(const Atom& atom);
  Interval interval_of(const Terms& terms, std::int64_t constant) const;
  PlaceId sum_of(PlaceId a, std::int64_t factor, PlaceId b, std::int64_t constant);
  PlaceId divided(PlaceId a, std::int64_t by, bool remainder);

  std::vector<Place> places_;
  std::vector<Atom> atoms_;
  std::vector<std::uint64_t> hashes_;  ///< of atoms_
  std::map<Atom, std::uint32_t> atom_ids_;
  InternTable ids_;
  Known known_;
};

}  // namespace syno::derive::packed
