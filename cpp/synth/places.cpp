#include "synth/places.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <vector>

#include "support/mix.hpp"

namespace syno::synth {
namespace {

/// Places of one extent, a bit each.
class Places {
 public:
  explicit Places(std::int64_t extent, bool all = false)
      : extent_(extent), words_(static_cast<std::size_t>(extent + 63) / 64, all ? ~0ULL : 0) {
    if (all && extent % 64 != 0) words_.back() = (1ULL << (extent % 64)) - 1;
  }
  void add(std::int64_t place) { words_[static_cast<std::size_t>(place) / 64] |= 1ULL << (place % 64); }
  /// All places of another one, so far on; what is beside the extent is none.
  void add(const Places& other, std::int64_t on) {
    const auto words = static_cast<std::int64_t>(words_.size());
    const auto given = static_cast<std::int64_t>(other.words_.size());
    const std::int64_t whole = on >= 0 ? on / 64 : -((63 - on) / 64);
    const auto bits = static_cast<unsigned>(on - 64 * whole);
    for (std::int64_t w = std::max<std::int64_t>(0, -whole); w < given && w + whole <= words; ++w) {
      const std::uint64_t word = other.words_[static_cast<std::size_t>(w)];
      if (w + whole < words) words_[static_cast<std::size_t>(w + whole)] |= word << bits;
      if (bits != 0 && w + whole + 1 < words)
        words_[static_cast<std::size_t>(w + whole + 1)] |= word >> (64 - bits);
    }
    if (whole < 0 && bits != 0 && -whole - 1 < given)
      words_[0] |= other.words_[static_cast<std::size_t>(-whole - 1)] >> (64 - bits);
    if (extent_ % 64 != 0) words_.back() &= (1ULL << (extent_ % 64)) - 1;
  }
  template <class Visit>
  void each(Visit&& visit) const {
    for (std::size_t w = 0; w < words_.size(); ++w) {
      for (std::uint64_t word = words_[w]; word != 0; word &= word - 1)
        visit(static_cast<std::int64_t>(64 * w) + std::countr_zero(word));
    }
  }
  std::vector<std::int64_t> list() const {
    std::vector<std::int64_t> places;
    each([&](std::int64_t place) { places.push_back(place); });
    return places;
  }

 private:
  std::int64_t extent_;
  std::vector<std::uint64_t> words_;
};

/// All places of a coordinate are congruent modulo this; 0: there is one place only.
std::int64_t congruent_modulo(const CoordinatePool& pool, const SizePool& sizes, Coordinate coordinate,
                              std::size_t v) {
  const CoordinateNode& node = pool[coordinate];
  const auto value = [&](SizeNumber size) { return static_cast<std::int64_t>(sizes.value(size, v)); };
  if (node.a == 0) return value(node.extent) == 1 ? 0 : 1;
  const std::int64_t a = congruent_modulo(pool, sizes, node.a, v);
  const std::int64_t b = node.b == 0 ? 0 : congruent_modulo(pool, sizes, node.b, v);
  switch (node.kind) {
    case Kind::MergeMajor:
      return a % value(node.parameter) == 0 ? a / value(node.parameter) : 1;
    case Kind::MergeMinor:
      return std::gcd(a, value(node.parameter));
    case Kind::Split:
      return std::gcd(a * value(pool[node.b].extent), b);
    case Kind::Shift:
      return std::gcd(a, value(node.extent));
    case Kind::Stride:
      return a * value(node.parameter);
    default:
      return std::gcd(a, b);
  }
}

/// Work on bits beyond which an answer is not looked for: what is not known to leave gaps is kept.
constexpr double kMostWork = 1 << 20;

/// How often a coordinate occurs in a list of them, and in what they are made of.
struct Count {
  Coordinate coordinate = 0;
  int times = 0;
};
using Counts = std::vector<Count>;

int times(const Counts& counts, Coordinate coordinate) {
  const auto found = std::find_if(counts.begin(), counts.end(),
                                  [&](const Count& count) { return count.coordinate == coordinate; });
  return found == counts.end() ? 0 : found->times;
}

void count(const CoordinatePool& pool, Coordinate coordinate, Counts& counts) {
  const auto found = std::find_if(counts.begin(), counts.end(),
                                  [&](const Count& count) { return count.coordinate == coordinate; });
  if (found == counts.end()) {
    counts.push_back({coordinate, 1});
  } else {
    ++found->times;
  }
  const CoordinateNode& node = pool[coordinate];
  if (node.a != 0) count(pool, node.a, counts);
  if (node.b != 0) count(pool, node.b, counts);
}

/// Coordinates that are made of something in common, at one valuation. What occurs in several places, and
/// what it is made of nowhere else, is a part: for each choice of the parts' places the coordinates take
/// theirs independently, each a set that follows from the sets of what it is made of.
class Joint {
 public:
  Joint(const CoordinatePool& pool, const SizePool& sizes, std::size_t valuation,
        std::span<const Coordinate> coordinates)
      : pool_(pool), sizes_(sizes), valuation_(valuation), coordinates_(coordinates) {
    for (const Coordinate one : coordinates) count(pool, one, counts_);
    for (const Coordinate one : coordinates) find_parts(one);
    for (const Coordinate part : parts_) at_.push_back(places_of(part).list());
    fixed_.resize(parts_.size());
  }

  /// Words of bits to look at in all.
  double work() const {
    double words = 0;
    for (const Count& one : counts_) words += 1 + sizes_.value(pool_[one.coordinate].extent, valuation_) / 64;
    for (const auto& places : at_) words *= static_cast<double>(places.size());
    return words;
  }

  /// Calls back with the sets of places of all coordinates for each choice of the parts' places, until the
  /// answer is true.
  template <class Enough>
  void each(Enough&& enough) {
    if (std::any_of(at_.begin(), at_.end(), [](const auto& places) { return places.empty(); })) return;
    std::vector<std::size_t> chosen(parts_.size());
    std::vector<Places> sets;
    for (;;) {
      for (std::size_t p = 0; p < parts_.size(); ++p) fixed_[p] = at_[p][chosen[p]];
      sets.clear();
      for (const Coordinate one : coordinates_) sets.push_back(evaluate(one));
      if (enough(sets)) return;
      std::size_t p = 0;
      for (; p < chosen.size(); ++p) {
        if (++chosen[p] < at_[p].size()) break;
        chosen[p] = 0;
      }
      if (p == chosen.size()) return;
    }
  }

 private:
  std::int64_t extent_of(Coordinate coordinate) const {
    return static_cast<std::int64_t>(sizes_.value(pool_[coordinate].extent, valuation_));
  }
  void find_parts(Coordinate coordinate) {
    if (std::find(parts_.begin(), parts_.end(), coordinate) != parts_.end()) return;
    const int here = times(counts_, coordinate);
    if (here > 1) {
      Counts within;
      count(pool_, coordinate, within);
      if (std::all_of(within.begin(), within.end(),
                      [&](const Count& one) { return times(counts_, one.coordinate) == here * one.times; })) {
        parts_.push_back(coordinate);
        return;
      }
    }
    const CoordinateNode& node = pool_[coordinate];
    if (node.a != 0) find_parts(node.a);
    if (node.b != 0) find_parts(node.b);
  }
  Places places_of(Coordinate part) const {
    if (pool_[part].a == 0) return Places(extent_of(part), true);
    Places taken(extent_of(part));
    Joint alone(pool_, sizes_, valuation_, {&part, 1});
    alone.each([&](const std::vector<Places>& sets) {
      taken.add(sets[0], 0);
      return false;
    });
    return taken;
  }
  /// The places that a coordinate takes while the parts stay where they are; those beside the border are
  /// none.
  Places evaluate(Coordinate coordinate) const {
    const CoordinateNode& node = pool_[coordinate];
    const std::int64_t extent = extent_of(coordinate);
    const auto part = std::find(parts_.begin(), parts_.end(), coordinate);
    if (part == parts_.end() && node.a == 0) return Places(extent, true);
    Places places(extent);
    if (part != parts_.end()) {
      places.add(fixed_[static_cast<std::size_t>(part - parts_.begin())]);
      return places;
    }
    const Places a = evaluate(node.a);
    const auto parameter = static_cast<std::int64_t>(sizes_.value(node.parameter, valuation_));
    switch (node.kind) {
      case Kind::MergeMajor:
        a.each([&](std::int64_t i) { places.add(i / parameter); });
        break;
      case Kind::MergeMinor:
        a.each([&](std::int64_t i) { places.add(i % parameter); });
        break;
      case Kind::Split: {
        const Places b = evaluate(node.b);
        a.each([&](std::int64_t i) { places.add(b, i * extent_of(node.b)); });
        break;
      }
      case Kind::Shift:
        places.add(a, node.amount);
        places.add(a, node.amount - extent);
        places.add(a, node.amount + extent);
        break;
      case Kind::Stride:
        a.each([&](std::int64_t i) { places.add(i * parameter); });
        break;
      case Kind::Unfold:
        evaluate(node.b).each([&](std::int64_t j) { places.add(a, j - extent_of(node.b) / 2); });
        break;
      default:
        places.add(a, 0);
        break;
    }
    return places;
  }

  const CoordinatePool& pool_;
  const SizePool& sizes_;
  std::size_t valuation_;
  std::span<const Coordinate> coordinates_;
  Counts counts_;
  std::vector<Coordinate> parts_;
  std::vector<std::vector<std::int64_t>> at_;  ///< the places of each part
  std::vector<std::int64_t> fixed_;            ///< ... where it is now
};

bool takes_every_place_together(const CoordinatePool& pool, const SizePool& sizes,
                                std::span<const Coordinate> together, std::size_t valuation) {
  Counts counts;
  for (const Coordinate one : together) count(pool, one, counts);
  double places = 1;
  double points = 1;
  for (const Coordinate one : together) places *= sizes.value(pool[one].extent, valuation);
  for (const Count& one : counts) {
    if (pool[one.coordinate].a == 0) points *= sizes.value(pool[one.coordinate].extent, valuation);
  }
  if (points < places) return false;
  const auto large = [&](const Count& one) {
    return sizes.value(pool[one.coordinate].extent, valuation) > 64 * kMostWork;
  };
  if (places > 64 * kMostWork || std::any_of(counts.begin(), counts.end(), large)) return true;
  Joint joint(pool, sizes, valuation, together);
  if (joint.work() > kMostWork) return true;
  std::vector<bool> taken(static_cast<std::size_t>(places));
  std::size_t left = taken.size();
  joint.each([&](const std::vector<Places>& sets) {
    const auto mark = [&](const auto& self, std::size_t k, std::size_t place) -> void {
      if (k == sets.size()) {
        left -= taken[place] ? 0 : 1;
        taken[place] = true;
        return;
      }
      const auto extent = static_cast<std::size_t>(sizes.value(pool[together[k]].extent, valuation));
      sets[k].each(
          [&](std::int64_t one) { self(self, k + 1, place * extent + static_cast<std::size_t>(one)); });
    };
    mark(mark, 0, 0);
    return left == 0;
  });
  return left == 0;
}

/// Coordinates that take every place exactly where the given ones do: the parts of a Split in the place of
/// the whole, what is shifted, and what is merged in the place of both parts.
std::vector<Coordinate> taken_apart(const CoordinatePool& pool, std::span<const Coordinate> coordinates) {
  std::vector<Coordinate> apart(coordinates.begin(), coordinates.end());
  for (std::size_t k = 0; k < apart.size();) {
    const CoordinateNode& node = pool[apart[k]];
    const auto merged = std::find_if(apart.begin(), apart.end(), [&](Coordinate other) {
      return node.kind == Kind::MergeMajor && pool[other].kind == Kind::MergeMinor &&
             pool[other].a == node.a && pool[other].parameter == node.parameter;
    });
    if (node.kind == Kind::Split) {
      apart[k] = node.a;
      apart.push_back(node.b);
    } else if (node.kind == Kind::Shift) {
      apart[k] = node.a;
    } else if (merged != apart.end()) {
      *merged = node.a;
      apart.erase(apart.begin() + static_cast<std::ptrdiff_t>(k));
    } else {
      ++k;
      continue;
    }
    k = 0;  // what is new may be one of two parts
  }
  return apart;
}

bool takes_every_place(const CoordinatePool& pool, const SizePool& sizes, std::span<const Coordinate> given,
                       std::size_t valuation) {
  const std::vector<Coordinate> coordinates = taken_apart(pool, given);
  for (const Coordinate c : coordinates) {
    if (sizes.value(pool[c].extent, valuation) > 1 && congruent_modulo(pool, sizes, c, valuation) != 1)
      return false;
  }
  // Those that are made of nothing in common take their places apart.
  std::vector<Counts> made_of(coordinates.size());
  for (std::size_t k = 0; k < coordinates.size(); ++k) count(pool, coordinates[k], made_of[k]);
  std::vector<bool> looked(coordinates.size());
  for (std::size_t first = 0; first < coordinates.size(); ++first) {
    if (looked[first]) continue;
    std::vector<Coordinate> together;
    Counts all = made_of[first];
    for (bool grew = true; grew;) {
      grew = false;
      for (std::size_t k = first; k < coordinates.size(); ++k) {
        const bool shares = std::any_of(made_of[k].begin(), made_of[k].end(),
                                        [&](const Count& one) { return times(all, one.coordinate) > 0; });
        if (looked[k] || !shares) continue;
        looked[k] = grew = true;
        together.push_back(coordinates[k]);
        all.insert(all.end(), made_of[k].begin(), made_of[k].end());
      }
    }
    if (!takes_every_place_together(pool, sizes, together, valuation)) return false;
  }
  return true;
}

}  // namespace

bool take_every_place(const CoordinatePool& pool, const SizePool& sizes,
                      std::span<const Coordinate> coordinates, std::size_t valuation) {
  std::uint64_t key = split_mix(valuation + 1);
  for (const Coordinate coordinate : coordinates) key += split_mix(pool[coordinate].hash);
  constexpr std::uint32_t kNo = 1, kYes = 2;
  if (const std::uint32_t known = pool.every_place_.find(key | 1); known != 0) return known == kYes;
  const bool answer = takes_every_place(pool, sizes, coordinates, valuation);
  pool.every_place_[key | 1] = answer ? kYes : kNo;
  return answer;
}

}  // namespace syno::synth
