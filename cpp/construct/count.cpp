// The numbers of a sketch: those with the fewest cycles by count.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>

#include "construct/tiling_cost.hpp"

namespace syno::construct {

namespace {

constexpr std::size_t kTiles = 8;      ///< that compute least, of which everything is counted
constexpr double kNearlyLeast = 1.25;  ///< so many times the least that they compute
constexpr double kBetter = 0.999;      ///< so much less it has to count than what was seen before

bool in_tile(const Choice& choice) {
  return choice.number == &Numbers::rows || choice.number == &Numbers::vectors ||
         choice.number == &Numbers::columns || choice.number == &Numbers::chains;
}

/// Finds the numbers of one sketch: first tiles by what they compute alone, then the rest of the numbers for
/// the best of these.
class Counting {
 public:
  explicit Counting(Sketch& sketch) : sketch_(sketch) {
    for (const Choice& choice : sketch.choices) {
      (in_tile(choice) ? tile_ : others_).push_back(&choice);
      first_.*choice.number = choice.values.front();
    }
  }

  void run() {
    sketch_.cycles = std::numeric_limits<double>::infinity();
    const TilingCost& cost = cost_of(first_);
    Numbers numbers = first_;
    add_tiles(cost, 0, numbers);
    std::stable_sort(tiles_.begin(), tiles_.end(),
                     [](const Tile& a, const Tile& b) { return a.cycles < b.cycles; });
    const bool near = cost.near();  // no order of loops moves anything
    for (std::size_t t = 0; t < tiles_.size() && t < kTiles; ++t) {
      if (tiles_[t].cycles > kNearlyLeast * tiles_.front().cycles) break;
      structures_.clear();
      numbers = tiles_[t].numbers;
      add_others(near ? others_.size() : 0, numbers);
    }
    if (std::isfinite(sketch_.cycles)) sketch_.cycles = sketch_.estimate(sketch_.counted);
  }

 private:
  struct Tile {
    Numbers numbers;
    double cycles = 0;
  };
  struct Structure {
    Numbers numbers;
    std::unique_ptr<TilingCost> cost;
  };

  TileSize size(const Numbers& n) const {
    TileSize size = size_of(tiling_, sketch_.lanes);
    if (tile_.empty()) return size;
    return {n.rows, n.columns, std::max(n.vectors, n.chains), n.steps > 0 ? n.steps : size.steps};
  }

  const TilingCost& cost_of(const Numbers& numbers) {
    tiling_ = sketch_.tiling(numbers);
    cost_.emplace(sketch_.target, sketch_.lanes, *sketch_.facts, tiling_);
    return *cost_;
  }

  void add_tiles(const TilingCost& cost, std::size_t choice, Numbers& numbers) {
    if (choice == tile_.size()) {
      if (!sketch_.fits(numbers)) return;
      const TilingCost& of = sketch_.restructured ? cost_of(numbers) : cost;
      tiles_.push_back({numbers, of.computing(size(numbers))});
      return;
    }
    for (const std::int64_t value : tile_[choice]->values) {
      numbers.*tile_[choice]->number = value;
      add_tiles(cost, choice + 1, numbers);
    }
  }

  /// Numbers that differ in the tile and in how much of the sum a part has are of one structure.
  double cycles(const Numbers& numbers) {
    Numbers key = numbers;
    for (const Choice* choice : tile_) key.*choice->number = first_.*choice->number;
    key.steps = numbers.steps > 0 ? 1 : 0;
    auto known = std::find_if(structures_.begin(), structures_.end(),
                              [&](const Structure& structure) { return structure.numbers == key; });
    if (known == structures_.end()) {
      tiling_ = sketch_.tiling(numbers);
      structures_.push_back(
          {key, std::make_unique<TilingCost>(sketch_.target, sketch_.lanes, *sketch_.facts, tiling_)});
      known = structures_.end() - 1;
    }
    return known->cost->count(size(numbers)).cycles;
  }

  void add_others(std::size_t choice, Numbers& numbers) {
    if (choice == others_.size()) {
      const double counted = cycles(numbers);
      if (!(counted < sketch_.cycles * (numbers.steps > 0 ? kWorthCutting : kBetter))) return;
      sketch_.counted = numbers;
      sketch_.cycles = counted;
      return;
    }
    for (const std::int64_t value : others_[choice]->values) {
      numbers.*others_[choice]->number = value;
      add_others(choice + 1, numbers);
    }
  }

  Sketch& sketch_;
  std::vector<const Choice*> tile_, others_;
  Numbers first_;
  Tiling tiling_;
  std::optional<TilingCost> cost_;
  std::vector<Tile> tiles_;
  std::vector<Structure> structures_;
};

}  // namespace

void count(const Construction& c, Sketch& sketch) {
  sketch.target = c.target;
  sketch.lanes = c.lanes;
  Counting(sketch).run();
}

CycleCount Sketch::count(const Numbers& numbers) const {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  if (!fits(numbers)) return {kNever, kNever, kNever, kNever, kNever};
  const Tiling made = tiling(numbers);
  return TilingCost(target, lanes, *facts, made).count(size_of(made, lanes));
}

}  // namespace syno::construct
