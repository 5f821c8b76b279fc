#include "synth/state.hpp"

#include "support/error.hpp"

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

double pooled(const State& state, const CoordinatePool& pool, const SizePool& sizes, Coordinate coordinate,
              std::size_t valuation) {
  if (weights_sharing(state, coordinate) != 0) return 1;
  const CoordinateNode& node = pool[coordinate];
  if (node.kind == Kind::Reduce) return sizes.value(node.extent, valuation);
  return (node.a == 0 ? 1 : pooled(state, pool, sizes, node.a, valuation)) *
         (node.b == 0 ? 1 : pooled(state, pool, sizes, node.b, valuation));
}

}  // namespace syno::synth
