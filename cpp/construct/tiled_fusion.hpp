// construct/tiled_fusion.hpp — chains of scopes computed tile by tile: loops over tiles of the last one are
// around all others, whose results lie in small buffers that stay in a near cache.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "construct/construct.hpp"
#include "machine/predict.hpp"

namespace syno::construct {

/// Loops over tiles of these scopes, for a construction: reductions among them write a tile of their own,
/// which a copy puts in its place. Before anything else is decided about scopes.
[[nodiscard]] Refused stage_tiles(Construction& c, const TiledFusions& fusions);

/// Writes the loops of a scope that is computed tile by tile, others inside.
[[nodiscard]] Refused write_tiles(Construction& c, const TiledFusion& fusion);

/// Where in the tiles of a construction a scope can be computed: a compute_at. What neighbouring tiles share
/// of it is computed in each of them, as far as the fusion says.
std::optional<Decision> placement_in_tiles(Construction& c, const std::string& scope);
/// Whether by this decision it is computed in a scope that is computed in a tile itself.
bool in_tiles(const Construction& c, const Decision& compute_at);

/// Fusions that may pay for the scope of that name: of the iterators that cut what others compute for it into
/// parts, tiles whose intermediate results fit the caches. Those of one list cut the same iterators in the
/// same order, the largest tiles first.
std::vector<TiledFusions> tiled_fusions_of(const Construction& c, const std::string& scope);

/// Bytes of the intermediate results of a call.
std::int64_t intermediate_bytes(const LoopNest& nest);
/// The time of a schedule with whole stages over that of one with fusions, from which on it is worth one:
/// more than predictions err, unless the caches cannot hold what the stages leave to each other.
double least_gain(std::int64_t intermediate_bytes, const Machine& machine);

/// Of several ways to cut iterators, each with tiles of several sizes: all of them, or, of many scopes, other
/// sizes than the middle one for the best way alone, which takes half the time.
enum class Tiles : std::uint8_t { All, Few };
/// Fusions, and what the counted schedule is predicted to take with them.
struct PredictedFusions {
  TiledFusions fusions;
  double seconds = 0;
};
/// The fusions that are predicted to make the counted schedule faster, chosen scope by scope, the last one
/// first; none where whole stages are as fast, or their intermediate results fit the first cache.
PredictedFusions predicted_fusions(const Construction& prepared, const Machine& machine,
                                   const machine::PredictOptions& options, Tiles tiles = Tiles::All);

}  // namespace syno::construct
