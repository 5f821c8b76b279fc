// Connections against every sequence of steps on the sizes alone: no way is missed, none is invented.
#include "synth/connect.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "small_specs.hpp"

namespace syno::synth {
namespace {

constexpr Traits kEverything =
    ((Trait::Match | Trait::Merge) | Trait::Shift) | Trait::Window | Trait::Slide | Trait::Repeat;

Freedom any_rule_off() {
  Freedom freedom;
  freedom.merges = freedom.shifts = freedom.slides = freedom.windows = freedom.expands = true;
  freedom.even_windows = freedom.large_windows = freedom.gaps = freedom.any_match = true;
  return freedom;
}

using Multiset = std::vector<SizeNumber>;  ///< ascending

/// Merges, Splits, Unfolds, Expands.
using Counts = std::array<int, 4>;
bool no_more(const Counts& a, const Counts& b) {
  return a[0] <= b[0] && a[1] <= b[1] && a[2] <= b[2] && a[3] <= b[3];
}
Counts counts_of(StepCounts way) {
  return {way[StepCounts::Merges], way[StepCounts::Splits], way[StepCounts::Unfolds],
          way[StepCounts::Expands]};
}

/// All sequences of legal steps on extents, breadth first; parts of Merges are matched away nowhere.
class Sequences {
 public:
  Sequences(SizePool& sizes, int merges, int expands) : sizes_(sizes), merges_(merges), expands_(expands) {}

  std::set<Counts> to(const Multiset& from, const Multiset& wanted, int limit) {
    std::set<std::pair<Multiset, Counts>> level = {{from, {}}};
    std::set<Counts> found;
    for (int depth = 0; depth <= limit; ++depth) {
      std::set<std::pair<Multiset, Counts>> next;
      for (const auto& [extents, counts] : level) {
        if (extents == wanted) found.insert(counts);
        if (depth < limit) follow(extents, counts, next);
      }
      level.swap(next);
    }
    return found;
  }

 private:
  void follow(const Multiset& extents, const Counts& counts, std::set<std::pair<Multiset, Counts>>& next) {
    const auto with = [&](std::initializer_list<std::size_t> gone, std::initializer_list<SizeNumber> come,
                          std::size_t lane) {
      Multiset result(come);
      for (std::size_t k = 0; k < extents.size(); ++k) {
        if (std::find(gone.begin(), gone.end(), k) == gone.end()) result.push_back(extents[k]);
      }
      std::sort(result.begin(), result.end());
      Counts more = counts;
      ++more[lane];
      next.insert({std::move(result), more});
    };
    for (std::size_t i = 0; i < extents.size(); ++i) {
      if (counts[0] < merges_) {
        for (const BlockChoice& choice : sizes_.blocks(extents[i]))
          with({i}, {choice.block, choice.group}, 0);
      }
      if (counts[3] < expands_ && extents.size() > 1) with({i}, {}, 3);
      for (std::size_t j = 0; j < extents.size(); ++j) {
        if (i == j) continue;
        const SizeNumber product = sizes_.times(extents[i], extents[j]);
        if (i < j && sizes_[product].legal) with({i, j}, {product}, 1);
        bool fits = sizes_[extents[j]].coefficient;
        for (std::size_t v = 0; v < sizes_.valuation_count(); ++v)
          fits = fits && sizes_.value(extents[j], v) <= sizes_.value(extents[i], v);
        if (fits) with({i, j}, {extents[i]}, 2);
      }
    }
  }

  SizePool& sizes_;
  int merges_;
  int expands_;
};

class ConnectionsOfRandomSizes : public ::testing::Test {
 protected:
  ConnectionsOfRandomSizes() : spec_(testing::line_spec(6)), sizes_(spec_) {
    for (const char* text : {"C_in", "C_out", "H", "k", "s", "k*s", "H*k", "C_in*k", "C_out*s", "C_in*s^-1",
                             "C_out*s^-1", "H*s^-1"}) {
      const SizeNumber number = sizes_.intern(spec_.signature.sizes.parse(text));
      if (sizes_[number].legal) pool_.push_back(number);
    }
  }
  Multiset draw(std::size_t count) {
    Multiset result;
    for (std::size_t k = 0; k < count; ++k) result.push_back(pool_[random_() % pool_.size()]);
    std::sort(result.begin(), result.end());
    return result;
  }
  std::string text(const Multiset& extents) const {
    std::string result;
    for (const SizeNumber extent : extents) {
      if (!result.empty()) result += ", ";
      result += spec_.signature.sizes.to_text(sizes_[extent].size);
    }
    return result;
  }
  std::vector<Piece> pieces_of(const Multiset& extents, Traits traits) {
    std::vector<Piece> pieces;
    for (const SizeNumber extent : extents) pieces.push_back({extent, traits});
    return pieces;
  }
  /// Wanted sizes that some steps may make: a few Merges, joins and windows of what is there, else random.
  Multiset wanted_from(Multiset extents) {
    if (random_() % 4 == 0) return draw(1 + random_() % 2);
    for (int step = 0; step < 3; ++step) {
      const std::size_t i = random_() % extents.size();
      const auto& blocks = sizes_.blocks(extents[i]);
      if (random_() % 2 == 0 && !blocks.empty()) {
        const BlockChoice choice = blocks[random_() % blocks.size()];
        extents[i] = choice.block;
        extents.push_back(choice.group);
      } else if (extents.size() > 1) {
        const std::size_t j = (i + 1) % extents.size();
        const SizeNumber product = sizes_.times(extents[i], extents[j]);
        if (sizes_[product].legal && random_() % 2 == 0) extents[i] = product;
        if (sizes_[product].legal || sizes_[extents[j]].coefficient)
          extents.erase(extents.begin() + static_cast<std::ptrdiff_t>(j));
      }
    }
    std::sort(extents.begin(), extents.end());
    return extents;
  }

  Spec spec_;
  SizePool sizes_;
  std::vector<SizeNumber> pool_;
  std::mt19937 random_{11};
};

TEST_F(ConnectionsOfRandomSizes, AreEveryWayAndNoOtherWhereTheRulesAreOff) {
  Connections connections(sizes_, spec_, any_rule_off());
  int reached = 0;
  int beyond = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const Multiset from = draw(1 + random_() % 4);
    const Multiset wanted = wanted_from(from);
    const int merges = static_cast<int>(random_() % 3);
    const int expands = trial % 4 == 0 ? 1 : 0;
    const int limit = expands > 0 ? Connections::kDeepestOfMany : 3;
    if (wanted.size() > 3) continue;
    const std::set<Counts> all = Sequences(sizes_, merges, expands).to(from, wanted, limit);
    Connections::Around around;
    around.merges = merges;
    around.expands = expands;
    const std::vector<Piece> pieces = pieces_of(from, kEverything);
    const Ways ways = connections(pieces, wanted, around, limit);
    for (const Counts& counts : all) {
      EXPECT_TRUE(std::any_of(ways.way.begin(), ways.way.begin() + ways.count,
                              [&](StepCounts way) { return no_more(counts_of(way), counts); }))
          << "trial " << trial << ": of " << text(from) << " made " << text(wanted) << " by " << counts[0]
          << " Merges, " << counts[1] << " Splits, " << counts[2] << " Unfolds, " << counts[3] << " Expands";
    }
    if (ways.count < ways.way.size()) {  // a full set may hold one that stands for several
      for (std::uint8_t w = 0; w < ways.count; ++w) {
        EXPECT_TRUE(all.contains(counts_of(ways.way[w])))
            << "trial " << trial << ": no sequence takes " << ways.way[w].steps() << " such steps";
        EXPECT_LE(ways.way[w].steps(), limit);
      }
    }
    (all.empty() ? beyond : reached) += 1;
  }
  EXPECT_GT(reached, 100);
  EXPECT_GT(beyond, 30);
}

TEST_F(ConnectionsOfRandomSizes, AreNoMoreWhereTraitsAreMissing) {
  Connections connections(sizes_, spec_, Freedom());
  int fewer = 0;
  for (int trial = 0; trial < 600; ++trial) {
    const Multiset from = draw(1 + random_() % 4);
    const Multiset wanted = wanted_from(from);
    if (wanted.size() > 3) continue;
    Connections::Around around;
    around.contractions = static_cast<int>(random_() % 2);
    around.merges = static_cast<int>(random_() % 3);
    around.shifts = static_cast<int>(random_() % 2);
    around.left.fill(2);
    std::vector<Piece> pieces = pieces_of(from, kEverything);
    const Ways many = connections(pieces, wanted, around, 4);
    Piece& less = pieces[random_() % pieces.size()];
    less.traits = static_cast<Traits>(less.traits & random_());
    const Ways few = connections(pieces, wanted, around, 4);
    for (std::uint8_t w = 0; w < few.count; ++w) {
      EXPECT_TRUE(std::any_of(many.way.begin(), many.way.begin() + many.count,
                              [&](StepCounts way) { return way.within(few.way[w]); }))
          << "trial " << trial;
    }
    fewer += few.count != many.count ||
             !std::equal(few.way.begin(), few.way.begin() + few.count, many.way.begin());
  }
  EXPECT_GT(fewer, 20);
}

TEST_F(ConnectionsOfRandomSizes, DoNotDependOnWhatWasAskedBefore) {
  Connections warm(sizes_, spec_, Freedom());
  for (int trial = 0; trial < 300; ++trial) {
    const Multiset from = draw(2 + random_() % 3);
    const Multiset wanted = wanted_from(from);
    if (wanted.size() > 3) continue;
    Connections::Around around;
    around.contractions = 1;
    around.merges = static_cast<int>(random_() % 3);
    around.left.fill(2);
    const std::vector<Piece> pieces = pieces_of(from, kEverything);
    const int limit = static_cast<int>(random_() % 5);
    Connections cold(sizes_, spec_, Freedom());
    const Ways a = warm(pieces, wanted, around, limit);
    const Ways b = cold(pieces, wanted, around, limit);
    ASSERT_EQ(a.count, b.count) << "trial " << trial;
    for (std::uint8_t w = 0; w < a.count; ++w) EXPECT_EQ(a.way[w], b.way[w]) << "trial " << trial;
  }
}

TEST_F(ConnectionsOfRandomSizes, AStridesGapsAreFilledFirst) {
  const auto size = [&](const char* text) { return sizes_.intern(spec_.signature.sizes.parse(text)); };
  const Multiset wanted = {size("H*s")};
  const Piece gappy{size("H*s"), static_cast<Traits>(kEverything | Trait::Gaps)};
  const Piece window{size("k"), kEverything};
  const Connections::Around around;
  Connections connections(sizes_, spec_, Freedom());
  EXPECT_EQ(connections(std::vector{gappy}, wanted, around, 4).count, 0);
  const Ways ways = connections(std::vector{gappy, window}, wanted, around, 4);
  ASSERT_EQ(ways.count, 1);
  EXPECT_EQ(ways.way[0], StepCounts::of(StepCounts::Unfolds));
  Freedom freedom;
  freedom.gaps = true;
  EXPECT_EQ(Connections(sizes_, spec_, freedom)(std::vector{gappy}, wanted, around, 4).way[0], StepCounts());
}

TEST_F(ConnectionsOfRandomSizes, AWindowIsNoLargerThanWhatItSlidesOver) {
  const auto size = [&](const char* text) { return sizes_.intern(spec_.signature.sizes.parse(text)); };
  Connections connections(sizes_, spec_, any_rule_off());
  const std::vector<Piece> pieces = {{size("C_in"), kEverything}, {size("k*s"), kEverything}};
  const Connections::Around around;
  EXPECT_EQ(connections(pieces, Multiset{size("C_in")}, around, 3).count, 0);  // 6 places over 4
  const std::vector<Piece> fitting = {{size("C_out"), kEverything}, {size("k*s"), kEverything}};
  EXPECT_EQ(connections(fitting, Multiset{size("C_out")}, around, 3).count, 1);
}

}  // namespace
}  // namespace syno::synth
