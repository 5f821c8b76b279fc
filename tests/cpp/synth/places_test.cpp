// Which places coordinates take together, against every point tried in turn.
#include "synth/places.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>

#include "small_specs.hpp"
#include "support/random.hpp"

namespace syno::synth {
namespace {

/// Steps at random on a few coordinates, each of which goes into one step only, as in an operator.
class Coordinates {
 public:
  Coordinates(SizePool& sizes, Random& random) : sizes_(sizes) {
    const symbolic::Size s = symbolic::Size::variable(4);
    const symbolic::Size k = symbolic::Size::variable(3);
    const std::vector<symbolic::Size> extents = {s, k, s * s, s * k, s * s * k};
    for (int i = 0; i < 3; ++i) {
      const SizeNumber extent = sizes_.intern(extents[random.below(extents.size())]);
      frontier_.push_back(pool.make({.kind = i == 0 ? Kind::Output : Kind::Reduce,
                                     .amount = static_cast<std::int8_t>(i),
                                     .extent = extent},
                                    sizes_));
    }
    points_ = frontier_;
    for (int step = 0; step < 7; ++step) take_step(random);
  }

  const std::vector<Coordinate>& frontier() const { return frontier_; }

  bool every_place(const std::vector<Coordinate>& coordinates) const {
    std::set<std::vector<std::int64_t>> taken;
    std::size_t places = 1;
    for (const Coordinate one : coordinates) places *= static_cast<std::size_t>(value(pool[one].extent));
    std::vector<std::int64_t> at(points_.size());
    for (;;) {
      std::vector<std::int64_t> place;
      for (const Coordinate one : coordinates) {
        if (const auto here = place_of(one, at)) place.push_back(*here);
      }
      if (place.size() == coordinates.size()) taken.insert(place);
      std::size_t p = 0;
      for (; p < at.size(); ++p) {
        if (++at[p] < value(pool[points_[p]].extent)) break;
        at[p] = 0;
      }
      if (p == at.size()) return taken.size() == places;
    }
  }

  CoordinatePool pool;

 private:
  std::int64_t value(SizeNumber size) const { return static_cast<std::int64_t>(sizes_.value(size, 0)); }

  void take_step(Random& random) {
    const std::size_t at = random.below(frontier_.size());
    const Coordinate a = frontier_[at];
    const SizeNumber extent = pool[a].extent;
    // s, which is 2, or k, which is 3.
    const SizeNumber factor = sizes_.intern(symbolic::Size::variable(3 + random.below(2)));
    const auto replace = [&](CoordinateNode node) { frontier_[at] = pool.make(node, sizes_); };
    switch (random.below(5)) {
      case 0:
        return replace({.kind = Kind::Shift, .amount = 1, .extent = extent, .a = a});
      case 1:
        return replace(
            {.kind = Kind::Stride, .extent = sizes_.times(extent, factor), .parameter = factor, .a = a});
      case 2: {
        const SizeNumber group = sizes_.over(extent, factor);
        if (!sizes_[group].integral) return;
        replace({.kind = Kind::MergeMajor, .extent = group, .parameter = factor, .a = a});
        frontier_.push_back(
            pool.make({.kind = Kind::MergeMinor, .extent = factor, .parameter = factor, .a = a}, sizes_));
        return;
      }
      default: {
        const std::size_t other = random.below(frontier_.size());
        if (other == at) return;
        const Coordinate b = frontier_[other];
        const bool joins = random.below(2) == 0 && value(extent) * value(pool[b].extent) <= 400;
        replace({.kind = joins ? Kind::Split : Kind::Unfold,
                 .extent = joins ? sizes_.times(extent, pool[b].extent) : extent,
                 .a = a,
                 .b = b});
        frontier_.erase(frontier_.begin() + static_cast<std::ptrdiff_t>(other));
      }
    }
  }

  std::optional<std::int64_t> place_of(Coordinate coordinate, const std::vector<std::int64_t>& at) const {
    const CoordinateNode& node = pool[coordinate];
    if (node.a == 0)
      return at[static_cast<std::size_t>(std::find(points_.begin(), points_.end(), coordinate) -
                                         points_.begin())];
    const auto a = place_of(node.a, at);
    const auto b = node.b == 0 ? std::optional<std::int64_t>(0) : place_of(node.b, at);
    if (!a || !b) return std::nullopt;
    const std::int64_t extent = value(node.extent);
    switch (node.kind) {
      case Kind::MergeMajor:
        return *a / value(node.parameter);
      case Kind::MergeMinor:
        return *a % value(node.parameter);
      case Kind::Split:
        return *a * value(pool[node.b].extent) + *b;
      case Kind::Shift:
        return (*a + node.amount) % extent;
      case Kind::Stride:
        return *a * value(node.parameter);
      default: {
        const std::int64_t place = *a + *b - value(pool[node.b].extent) / 2;
        return place < 0 || place >= extent ? std::nullopt : std::optional(place);
      }
    }
  }

  SizePool& sizes_;
  std::vector<Coordinate> points_;
  std::vector<Coordinate> frontier_;
};

TEST(Places, AreAllTakenWhereTryingEveryPointSaysSo) {
  const Spec spec = testing::line_spec(4);
  SizePool sizes(spec);
  int all = 0, some = 0;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    Random random = Random(seed).fork("places");
    const Coordinates coordinates(sizes, random);
    std::vector<Coordinate> chosen;
    double places = 1;
    for (const Coordinate one : coordinates.frontier()) {
      places *= sizes.value(coordinates.pool[one].extent, 0);
      if (chosen.size() < 3 && places <= 600) chosen.push_back(one);
    }
    const bool every = coordinates.every_place(chosen);
    EXPECT_EQ(take_every_place(coordinates.pool, sizes, chosen, 0), every) << seed;
    ++(every ? all : some);
  }
  EXPECT_GT(all, 100);
  EXPECT_GT(some, 100);
}

}  // namespace
}  // namespace syno::synth
