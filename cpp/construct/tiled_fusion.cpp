#include "construct/tiled_fusion.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "support/error.hpp"

namespace syno::construct {

namespace {

constexpr double kCut = 0.5;        ///< of a scope's work that one tile of a single element may need at most
constexpr double kNoRepeat = 1.02;  ///< work over work without tiles that counts as none done again
constexpr double kMostRepeated = 2;
constexpr double kClearGain = 1.03;  ///< times as fast as predicted without, that is worth a change
constexpr std::size_t kMostScopes = 24;
/// Beyond so many, each try takes its time.
constexpr std::size_t kFewScopes = 6;
/// Where tiles of medium size take so many times what whole stages do, no others are tried.
constexpr double kNearEnough = 1.1;
/// Parts of the second cache that intermediate results of a tile may take.
constexpr std::array kShares = {0.7, 0.35, 0.15, 0.05};

const std::string& name_of(const Construction& c, std::size_t scope) {
  return c.plan.program.tensor(c.plan.program.scopes[scope].output).name;
}

double points(const ScopePlan& plan) {
  double product = 1;
  for (const int loop : plan.order)
    product *= static_cast<double>(plan.loops[static_cast<std::size_t>(loop)].extent);
  return product;
}

double points(const Construction& c, std::size_t scope) {
  double product = 1;
  for (std::size_t i = 0; i < c.plan.iterator_count(scope); ++i) {
    const auto [begin, end] = c.plan.range(c.plan.iterator(scope, i).range);
    product *= static_cast<double>(end - begin);
  }
  return product;
}

bool reduces(const Construction& c, std::size_t scope) { return !c.plan.program.scopes[scope].sums.empty(); }

/// Whether it depends on constants alone: it may be computed before calls.
bool constant(const Construction& c, std::size_t scope) {
  const auto reads = c.plan.all_reads(scope);
  return std::all_of(reads.begin(), reads.end(), [&](program::ScalarId id) {
    const auto tensor = c.plan.program.scalar(id).tensor;
    if (const auto made_by = c.plan.producer(tensor)) return constant(c, *made_by);
    return c.plan.program.tensor(tensor).role == program::Role::Constant || c.constant(tensor);
  });
}

/// The scopes that are read by this one and by each other alone, in the program's order.
std::vector<std::size_t> computed_for(const Construction& c, std::size_t last) {
  std::set<std::size_t> inside{last};
  std::vector<std::size_t> found;
  for (std::size_t s = last; s-- > 0;) {
    const auto readers = c.plan.consumers(c.plan.program.scopes[s].output);
    if (c.plan.makes_all(s) || readers.empty() || constant(c, s)) continue;
    if (!std::all_of(readers.begin(), readers.end(), [&](std::size_t r) { return inside.contains(r); }))
      continue;
    inside.insert(s);
    found.insert(found.begin(), s);
  }
  return found;
}

/// What tiles would need of each scope.
struct Tile {
  double count = 1;              ///< of tiles
  std::vector<double> points;    ///< of a tile, by scope
  std::vector<double> elements;  ///< of its result
};

}  // namespace

Refused stage_tiles(Construction& c, const TiledFusions& fusions) {
  for (const TiledFusion& fusion : fusions)
    if (reduces(c, c.index(fusion.last))) {
      const std::string name = program::fresh_tensor_name(c.plan.program, fusion.last + "_part");
      SYNO_ACCEPT(c.add({"stage", fusion.last, {}, {}, fusion.last, {name}}));
    }
  return {};
}

Refused write_tiles(Construction& c, const TiledFusion& fusion) {
  std::vector<std::string> around, inside = c.leaves(fusion.last);
  double all = 0;
  for (std::size_t s = 0; s < c.plan.scopes.size(); ++s) all += points(c, s);
  for (const auto& [iterator, size] : fusion.tiles) {
    const auto at = std::find(inside.begin(), inside.end(), iterator);
    if (at == inside.end())
      return refuse("construct", "'{}' has no iterator '{}' to cut into tiles", fusion.last, iterator);
    if (size > 1 && size < c.extent(fusion.last, iterator)) {
      SYNO_TAKE(parts, c.split(fusion.last, iterator, size));
      around.push_back(parts.first);
      *at = parts.second;
    } else if (size == 1) {
      around.push_back(iterator);
      inside.erase(at);
    }
  }
  if (around.empty()) return refuse("construct", "'{}' would be one tile", fusion.last);
  std::vector<std::string> order = around;
  order.insert(order.end(), inside.begin(), inside.end());
  SYNO_ACCEPT(c.add({"reorder", fusion.last, order, {}, "", {}}));
  if (!inside.empty()) SYNO_ACCEPT(c.vectorize_copy(fusion.last));
  c.tile_loops.push_back({fusion.last, around.back(), fusion.repeated});
  c.parallel_outermost(fusion.last, static_cast<std::int64_t>(all));
  return {};
}

namespace {

/// The parts of these scopes that one tile needs, where all are computed in it; nothing where they cannot be.
std::optional<Tile> tile_of(Construction& c, const TiledFusion& fusion,
                            const std::vector<std::string>& scopes) {
  const Draft draft(c);
  const std::size_t before = c.plan.program.scopes.size();
  if (stage_tiles(c, {fusion}) || write_tiles(c, fusion)) return std::nullopt;
  const std::size_t last = c.index(fusion.last);
  Tile tile;
  const TileLoop host = c.tile_loops.back();
  for (const int loop : c.plan.scopes[last].order) {
    const PlannedLoop& around = c.plan.scopes[last].loops[static_cast<std::size_t>(loop)];
    tile.count *= static_cast<double>(around.extent);
    if (around.name == host.loop) break;
  }
  for (std::size_t s = c.plan.program.scopes.size(); s-- > 0;) {
    const std::string name = name_of(c, s);
    const bool staged = s + 1 == last && c.plan.program.scopes.size() > before;
    if (!staged && std::find(scopes.begin(), scopes.end(), name) == scopes.end()) continue;
    if (c.add({"compute_at", name, {host.loop}, {}, fusion.last, {}}) || c.plan.try_domain(s))
      return std::nullopt;
    const ScopePlan& plan = c.plan.scopes[s];
    double elements = 1;
    for (std::size_t i = 0; i < c.plan.program.scopes[s].traversal.size(); ++i)
      elements *= static_cast<double>(plan.loops[i].extent);
    if (!staged) tile.points.insert(tile.points.begin(), points(plan));
    tile.elements.push_back(elements);
  }
  return tile;
}

/// Sizes of the tiles a loop can be cut into: what divides it, and else the least that make so many tiles.
std::vector<std::int64_t> sizes_of(std::int64_t extent) {
  std::set<std::int64_t> sizes;
  for (std::int64_t size = 1; size < extent; ++size)
    if (extent % size == 0) sizes.insert(size);
  if (sizes.size() < 3)
    for (std::int64_t count = 2; count <= extent; count *= 2) sizes.insert((extent + count - 1) / count);
  return {sizes.begin(), sizes.end()};
}

}  // namespace

bool in_tiles(const Construction& c, const Decision& compute_at) {
  if (c.tile_loops.empty()) return true;
  const auto is_host = [&](std::size_t scope) {
    return std::any_of(c.tile_loops.begin(), c.tile_loops.end(),
                       [&](const TileLoop& tile) { return tile.scope == name_of(c, scope); });
  };
  std::size_t at = c.index(compute_at.tensor);
  if (is_host(at)) return false;
  while (c.plan.scopes[at].attach_scope >= 0) {
    at = static_cast<std::size_t>(c.plan.scopes[at].attach_scope);
    if (is_host(at)) return true;
  }
  return false;
}

std::optional<Decision> placement_in_tiles(Construction& c, const std::string& name) {
  const std::size_t s = c.index(name);
  if (c.tile_loops.empty() || c.plan.scopes[s].has_domain || c.plan.scopes[s].attach_scope >= 0 ||
      c.plan.makes_all(s))
    return std::nullopt;
  double whole = points(c, s);
  if (c.plan.scopes[s].total) {  // how much of a copy there is, its readers say
    const schedule::Attempt alone(c.plan);
    c.plan.need_domain(s);
    whole = points(c.plan.scopes[s]);
  }
  for (const TileLoop& tile : c.tile_loops) {
    const Decision decision{"compute_at", name, {tile.loop}, {}, tile.scope, {}};
    const schedule::Attempt trial(c.plan);
    if (try_decide(c.plan, decision) || c.plan.try_domain(s)) continue;  // it is not read in this tile alone
    const std::size_t host = c.index(tile.scope);
    double count = 1;
    const int last = c.plan.position(host, c.plan.leaf_named(host, tile.loop));
    for (int p = 0; p <= last; ++p)
      count *= static_cast<double>(
          c.plan.scopes[host]
              .loops[static_cast<std::size_t>(c.plan.scopes[host].order[static_cast<std::size_t>(p)])]
              .extent);
    if (points(c.plan.scopes[s]) * count <= tile.repeated * whole) return decision;
  }
  return std::nullopt;
}

std::vector<TiledFusions> tiled_fusions_of(const Construction& prepared, const std::string& scope) {
  Construction c = prepared;  // what tiles are tried on
  const std::size_t last = c.index(scope);
  std::vector<TiledFusions> found;
  if (!c.plan.program.scopes[last].target.empty() || c.plan.scopes[last].attach_scope >= 0) return found;
  const std::vector<std::size_t> others = computed_for(c, last);
  if (others.empty()) return found;
  std::vector<std::string> names;
  std::vector<double> whole;
  for (const std::size_t s : others) {
    names.push_back(name_of(c, s));
    whole.push_back(points(c, s));
  }
  // Which iterators cut which scopes into parts.
  const auto traversal = c.plan.program.scopes[last].traversal;  // a copy: scopes move while tiles are tried
  std::vector<std::set<std::size_t>> cut(traversal.size());
  std::set<std::set<std::size_t>> sets;
  for (std::size_t i = 0; i < traversal.size(); ++i) {
    const auto [begin, end] = c.plan.range(traversal[i].range);
    if (end - begin < 2) continue;
    const auto tile = tile_of(c, {scope, {{traversal[i].name, 1}}}, names);
    if (!tile) continue;
    for (std::size_t p = 0; p < others.size(); ++p)
      if (tile->points[p] <= kCut * whole[p]) cut[i].insert(p);
    if (!cut[i].empty()) sets.insert(cut[i]);
  }
  const double cache = static_cast<double>(c.target.l2_bytes) / static_cast<double>(byte_size(c.plan.dtype));
  for (const auto& set : sets) {
    std::vector<std::string> inside;
    std::vector<double> before;
    for (const std::size_t p : set) {
      inside.push_back(names[p]);
      before.push_back(whole[p]);
    }
    std::vector<std::size_t> cutting;  // iterators that cut all of these
    for (std::size_t i = 0; i < traversal.size(); ++i)
      if (std::includes(cut[i].begin(), cut[i].end(), set.begin(), set.end())) cutting.push_back(i);
    for (std::size_t first = 0; first < cutting.size(); ++first) {
      std::vector<std::pair<std::string, std::int64_t>> around;  // each element of these a tile
      std::size_t share = 0;
      TiledFusions alike;
      for (std::size_t at = first; at < cutting.size() && share < kShares.size(); ++at) {
        const program::Iterator& iterator = traversal[cutting[at]];
        const auto [begin, end] = c.plan.range(iterator.range);
        auto sizes = sizes_of(end - begin);
        for (auto size = sizes.rbegin(); size != sizes.rend() && share < kShares.size(); ++size) {
          TiledFusion fusion{scope, around, kNoRepeat};
          fusion.tiles.emplace_back(iterator.name, *size);
          const auto tile = tile_of(c, fusion, inside);
          if (!tile) continue;
          double elements = 0, repeated = 1;
          for (const double each : tile->elements) elements += each;
          for (std::size_t p = 0; p < inside.size(); ++p)
            repeated = std::max(repeated, tile->points[p] * tile->count / before[p]);
          if (elements > kShares[share] * cache) continue;
          while (share < kShares.size() && elements <= kShares[share] * cache) ++share;
          alike.push_back(fusion);
          if (repeated <= kNoRepeat || repeated > kMostRepeated) continue;
          fusion.repeated = kMostRepeated;
          alike.push_back(fusion);
        }
        around.emplace_back(iterator.name, 1);
      }
      if (!alike.empty()) found.push_back(std::move(alike));
    }
  }
  return found;
}

std::int64_t intermediate_bytes(const LoopNest& nest) {
  std::int64_t all = 0;
  for (const auto& buffer : nest.buffers) {
    if (buffer.kind != nest::BufferKind::Temporary) continue;
    auto bytes = static_cast<std::int64_t>(byte_size(buffer.dtype));
    for (const std::int64_t extent : buffer.extents) bytes *= extent;
    all += bytes;
  }
  return all;
}

double least_gain(std::int64_t intermediate_bytes, const Machine& machine) {
  const std::size_t levels = machine.levels.size();  // the last one is main memory
  if (levels < 2) return kClearGain;
  const MemoryLevel& last = machine.levels[levels - 2];
  return intermediate_bytes > last.usable() / std::max(1, last.shared_by) ? 1 : kClearGain;
}

PredictedFusions predicted_fusions(const Construction& c, const Machine& machine,
                                   const machine::PredictOptions& options, Tiles tiles) {
  PredictedFusions made;
  const std::size_t count = c.plan.program.scopes.size();
  const bool all = tiles == Tiles::All || count <= kFewScopes;
  if (count < 2 || count > kMostScopes) return made;
  const auto predicted = [&](const LoopNest& nest) { return machine::predict(nest, machine, options); };
  const Finished whole = counted_unverified(c);
  const std::int64_t kept = intermediate_bytes(whole.nest);
  if (kept <= c.target.l1_bytes) return made;
  const double gain = least_gain(kept, machine);
  const machine::Prediction without = predicted(whole.nest);
  made.seconds = without.seconds;
  // Tiles save moving data, never work.
  if ((without.compute_s + without.overhead_s) * kClearGain >= without.seconds) return made;
  for (std::size_t s = count; s-- > 0;) {
    std::optional<TiledFusion> better;
    const double before = made.seconds;
    const auto tried = [&](const TiledFusion& fusion) {
      TiledFusions with = made.fusions;
      with.push_back(fusion);
      const double now = predicted(counted_unverified(c, with).nest).seconds;
      if (now * gain < made.seconds) {
        made.seconds = now;
        better = fusion;
      }
      return now;
    };
    // Which iterators are cut says most.
    const std::vector<TiledFusions> ways = tiled_fusions_of(c, name_of(c, s));
    double least = std::numeric_limits<double>::infinity();
    std::size_t best = 0;
    for (std::size_t w = 0; w < ways.size(); ++w) {
      const double now = tried(ways[w][ways[w].size() / 2]);
      if (now < least) std::tie(least, best) = std::pair(now, w);
    }
    for (std::size_t w = 0; w < ways.size(); ++w) {
      if (!all && (w != best || least > before * kNearEnough)) continue;
      for (std::size_t k = 0; k < ways[w].size(); ++k)
        if (k != ways[w].size() / 2) tried(ways[w][k]);
    }
    if (better) made.fusions.push_back(*better);
  }
  return made;
}

}  // namespace syno::construct
