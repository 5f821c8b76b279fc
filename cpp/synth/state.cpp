#include "synth/state.hpp"

#include <algorithm>
#include <numeric>

#include "support/error.hpp"
#include "support/mix.hpp"

namespace syno::synth {
namespace {

std::uint64_t mix(std::uint64_t h, std::uint64_t word) {
  h ^= word + 0x9e3779b97f4a7c15ULL + (h << 6) + (h >> 2);
  h *= 0xff51afd7ed558ccdULL;
  h ^= h >> 32;
  h *= 0xc4ceb9fe1a85ec53ULL;
  return h ^ (h >> 29);
}

}  // namespace

Coordinate CoordinatePool::make(CoordinateNode node, const SizePool& sizes) {
  std::uint64_t h = mix(0x5e17c0deULL, static_cast<std::uint64_t>(node.kind));
  h = mix(h, static_cast<std::uint64_t>(static_cast<std::int64_t>(node.amount)));
  h = mix(h, sizes[node.extent].hash);
  h = mix(h, sizes[node.parameter].hash);
  h = mix(h, nodes_[node.a].hash);
  h = mix(h, nodes_[node.b].hash);
  node.hash = h;
  Coordinate& known = ids_[h | 1];
  if (known == 0) {
    known = static_cast<Coordinate>(nodes_.size());
    nodes_.push_back(node);
    return known;
  }
  const CoordinateNode& old = nodes_[known];
  SYNO_ASSERT(old.kind == node.kind && old.a == node.a && old.b == node.b && old.extent == node.extent &&
                  old.amount == node.amount && old.parameter == node.parameter,
              "coordinate hashes do not collide");
  return known;
}

std::uint8_t weights_sharing(const State& state, Coordinate coordinate) {
  std::uint8_t mask = 0;
  for (std::size_t w = 0; w < state.weight_count; ++w) {
    const WeightRecord& weight = state.weights[w];
    for (std::size_t i = 0; i < weight.inner_count; ++i) {
      if (weight.inner[i] == coordinate) mask = static_cast<std::uint8_t>(mask | 1U << w);
    }
  }
  return mask;
}

Coordinate first_part(const CoordinatePool& pool, Coordinate coordinate) {
  while (pool[coordinate].kind == Kind::Split) coordinate = pool[coordinate].a;
  return coordinate;
}

Coordinate last_part(const CoordinatePool& pool, Coordinate coordinate) {
  while (pool[coordinate].kind == Kind::Split) coordinate = pool[coordinate].b;
  return coordinate;
}

bool adjacent(const CoordinatePool& pool, Coordinate left, Coordinate right) {
  // Chains of Merges grow to the right only: q0, (q1, (q2, r)). The part after a major is the major of the
  // minor beside it, or that minor itself.
  const CoordinateNode& l = pool[left];
  const CoordinateNode& r = pool[right];
  if (l.kind != Kind::MergeMajor) return false;
  if (r.kind == Kind::MergeMinor && r.a == l.a && r.parameter == l.parameter) return true;
  if (r.kind != Kind::MergeMajor) return false;
  const CoordinateNode& minor = pool[r.a];
  return minor.kind == Kind::MergeMinor && minor.a == l.a && minor.parameter == l.parameter;
}

bool only_reduces(const CoordinatePool& pool, Coordinate coordinate) {
  const CoordinateNode& node = pool[coordinate];
  if (node.kind == Kind::Output) return false;
  if (node.kind == Kind::Reduce) return true;
  return only_reduces(pool, node.a) && (node.b == 0 || only_reduces(pool, node.b));
}

namespace {

/// Output dimensions and Reduces that a coordinate is made of, each once.
void add_points(const CoordinatePool& pool, Coordinate coordinate, std::vector<Coordinate>& points) {
  const CoordinateNode& node = pool[coordinate];
  if (node.a == 0) {
    if (std::find(points.begin(), points.end(), coordinate) == points.end()) points.push_back(coordinate);
    return;
  }
  add_points(pool, node.a, points);
  if (node.b != 0) add_points(pool, node.b, points);
}

/// A coordinate's place; -1 beside the border.
std::int64_t place_of(const CoordinatePool& pool, const SizePool& sizes, Coordinate coordinate, std::size_t v,
                      std::span<const Coordinate> points, std::span<const std::int64_t> at) {
  const CoordinateNode& node = pool[coordinate];
  if (node.a == 0)
    return at[static_cast<std::size_t>(std::find(points.begin(), points.end(), coordinate) - points.begin())];
  const auto value = [&](SizeNumber size) { return static_cast<std::int64_t>(sizes.value(size, v)); };
  const std::int64_t a = place_of(pool, sizes, node.a, v, points, at);
  const std::int64_t b = node.b == 0 ? 0 : place_of(pool, sizes, node.b, v, points, at);
  if (a < 0 || b < 0) return -1;
  const std::int64_t extent = value(node.extent);
  switch (node.kind) {
    case Kind::MergeMajor:
      return a / value(node.parameter);
    case Kind::MergeMinor:
      return a % value(node.parameter);
    case Kind::Split:
      return a * value(pool[node.b].extent) + b;
    case Kind::Shift:
      return (a + node.amount + extent) % extent;
    case Kind::Stride:
      return a * value(node.parameter);
    case Kind::Unfold: {
      const std::int64_t place = a + b - value(pool[node.b].extent) / 2;
      return place < extent ? std::max<std::int64_t>(place, -1) : -1;
    }
    default:
      return a;
  }
}

}  // namespace

namespace {

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

bool takes_every_place(const CoordinatePool& pool, const SizePool& sizes,
                       std::span<const Coordinate> coordinates, std::size_t valuation) {
  for (const Coordinate c : coordinates) {
    if (sizes.value(pool[c].extent, valuation) > 1 && congruent_modulo(pool, sizes, c, valuation) != 1)
      return false;
  }
  // Those that are made of nothing in common take their places apart.
  std::vector<std::vector<Coordinate>> points(coordinates.size());
  for (std::size_t k = 0; k < coordinates.size(); ++k) add_points(pool, coordinates[k], points[k]);
  std::vector<bool> looked(coordinates.size());
  for (std::size_t first = 0; first < coordinates.size(); ++first) {
    if (looked[first]) continue;
    std::vector<Coordinate> together, all;
    for (bool grew = true; grew;) {
      grew = false;
      for (std::size_t k = first; k < coordinates.size(); ++k) {
        const bool shares = k == first || std::any_of(points[k].begin(), points[k].end(), [&](Coordinate p) {
                              return std::find(all.begin(), all.end(), p) != all.end();
                            });
        if (looked[k] || !shares) continue;
        looked[k] = grew = true;
        together.push_back(coordinates[k]);
        for (const Coordinate p : points[k])
          if (std::find(all.begin(), all.end(), p) == all.end()) all.push_back(p);
      }
    }
    double places = 1, tuples = 1;
    for (const Coordinate c : together) places *= sizes.value(pool[c].extent, valuation);
    for (const Coordinate p : all) tuples *= sizes.value(pool[p].extent, valuation);
    if (tuples < places) return false;
    std::vector<bool> taken(static_cast<std::size_t>(places));
    std::size_t left = taken.size();
    std::vector<std::int64_t> at(all.size());
    for (double t = 0; t < tuples && left > 0; ++t) {
      std::int64_t place = 0;
      for (const Coordinate c : together) {
        const std::int64_t one = place_of(pool, sizes, c, valuation, all, at);
        place = one < 0 || place < 0
                    ? -1
                    : place * static_cast<std::int64_t>(sizes.value(pool[c].extent, valuation)) + one;
      }
      if (place >= 0 && !taken[static_cast<std::size_t>(place)]) {
        taken[static_cast<std::size_t>(place)] = true;
        --left;
      }
      for (std::size_t p = 0; p < at.size(); ++p) {
        if (++at[p] < static_cast<std::int64_t>(sizes.value(pool[all[p]].extent, valuation))) break;
        at[p] = 0;
      }
    }
    if (left > 0) return false;
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

void Pooled::add(const State& state, const CoordinatePool& pool, Coordinate coordinate) {
  const CoordinateNode& node = pool[coordinate];
  if (node.kind == Kind::Output || weights_sharing(state, coordinate) != 0) return;
  if (node.kind == Kind::Reduce) {
    SYNO_ASSERT(count_ < extents_.size(), "a state has few Reduces");
    extents_[count_++] = node.extent;
    return;
  }
  if (node.a != 0) add(state, pool, node.a);
  if (node.b != 0) add(state, pool, node.b);
}

double Pooled::product(const SizePool& sizes, std::size_t valuation) const {
  double product = 1;
  for (std::size_t k = 0; k < count_; ++k) product *= sizes.value(extents_[k], valuation);
  return product;
}

}  // namespace syno::synth
