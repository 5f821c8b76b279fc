#include "synth/state.hpp"

#include <algorithm>

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
