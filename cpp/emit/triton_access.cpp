#include "emit/triton_access.hpp"

#include <algorithm>
#include <cstddef>
#include <set>

#include "support/checked.hpp"
#include "support/random.hpp"

namespace syno::emit {
namespace {

constexpr std::int64_t kSector = 32;  // bytes that memory moves at a time
constexpr std::int64_t kLanes = 32;   // of a warp
constexpr std::size_t kLoaded = 16;   // bytes of a lane's widest load
constexpr int kSomeWarps = 8;         // that tell how much memory is touched
constexpr int kManyWarps = 64;        // that tell whether some lane is apart from its neighbour
constexpr std::uint64_t kSeed = 1;

}  // namespace

void Accesses::over_warps(const Access& access, const std::vector<Slot>& along, int warps,
                          const std::function<void(const Places&)>& use) {
  symbolic::Arena& arena = indices_.arena();
  ExprId place = arena.constant(0);
  std::int64_t stride = access.element;
  for (std::size_t d = access.dims.size(); d-- > 0;) {
    place = arena.add(place, arena.multiply(access.at[d], stride));
    stride = checked_multiply(stride, std::max<std::int64_t>(1, access.dims[d].end - access.dims[d].begin));
  }
  const auto extent = [&](Slot slot) { return std::max<std::int64_t>(1, indices_.extent(slot)); };
  std::int64_t positions = 1;
  for (const Slot slot : along) positions = checked_multiply(positions, extent(slot));
  const std::int64_t lanes = std::min(kLanes, positions);
  Random random(kSeed);
  const auto below = [&](std::int64_t limit) {
    return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(limit)));
  };
  std::vector<std::int64_t> at(program_.next_slot, 0);
  for (int warp = 0; warp < warps; ++warp) {
    for (const Slot slot : iterators_) at[slot] = indices_.range(slot).begin + below(extent(slot));
    const std::int64_t first = below(positions / lanes) * lanes;
    Places places;
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      std::int64_t position = first + lane;
      for (std::size_t s = along.size(); s-- > 0;) {
        at[along[s]] = indices_.range(along[s]).begin + position % extent(along[s]);
        position /= extent(along[s]);
      }
      places.push_back(symbolic::evaluate(arena, place, program_.sizes, 0, at));
    }
    use(places);
  }
}

double Accesses::fetched(const Access& access, const std::vector<Slot>& along) {
  const auto key = std::make_pair(access, along);
  if (const auto found = fetched_.find(key); found != fetched_.end()) return found->second;
  double touched = 0, lanes = 0;
  over_warps(access, along, kSomeWarps, [&](const Places& places) {
    std::set<std::int64_t> sectors;
    for (const auto& place : places)
      if (place) sectors.insert(*place / kSector);
    touched += static_cast<double>(sectors.size());
    lanes += static_cast<double>(places.size());
  });
  return fetched_[key] = touched / lanes * static_cast<double>(kSector);
}

int Accesses::side_by_side(const Access& access, const std::vector<Slot>& along) {
  std::size_t together = std::max<std::size_t>(1, kLoaded / static_cast<std::size_t>(access.element));
  double neighbours = 0, pairs = 0;
  over_warps(access, along, kManyWarps, [&](const Places& places) {
    for (std::size_t lane = 1; lane < places.size(); ++lane) {
      if (!places[lane] || !places[lane - 1]) continue;
      const bool next = *places[lane] - *places[lane - 1] == access.element;
      ++pairs;
      neighbours += next ? 1 : 0;
      while (!next && lane % together != 0) together /= 2;
    }
  });
  if (pairs == 0) return 1;
  return together > 1 ? static_cast<int>(together) : neighbours > 0.5 * pairs ? 2 : 1;
}

}  // namespace syno::emit
