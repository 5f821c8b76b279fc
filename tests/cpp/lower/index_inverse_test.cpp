// The inverse of an index map names every point that reads an element, each once, and no other.
#include "lower/index_inverse.hpp"

#include <gtest/gtest.h>

#include <set>

#include "program/program.hpp"
#include "support/random.hpp"

namespace syno {
namespace {

using lower::ExprId;
using lower::Slot;
using symbolic::Size;
using Point = std::vector<std::int64_t>;

/// Visits all values of the slots.
template <class Visit>
void walk(lower::Iterators& iterators, const std::vector<Slot>& slots, std::vector<std::int64_t>& values,
          Visit visit, std::size_t at = 0) {
  if (at == slots.size()) return visit();
  const std::int64_t begin = iterators.begin(slots[at]);
  for (std::int64_t v = begin; v < begin + iterators.extent(slots[at]); ++v) {
    values[slots[at]] = v;
    walk(iterators, slots, values, visit, at + 1);
  }
}

class Map {
 public:
  explicit Map(std::uint64_t seed) : random_(seed), iterators_(program_) {}
  symbolic::Arena& arena() { return program_.arena; }
  lower::Iterators& iterators() { return iterators_; }
  std::size_t pick(std::size_t n) { return static_cast<std::size_t>(random_.below(n)); }

  Slot slot(std::int64_t begin, std::int64_t extent) {
    space.push_back(iterators_.add("i", begin, begin + extent));
    return space.back();
  }
  ExprId it(Slot s) { return arena().iterator(s); }

  /// A random index over the space, of the kinds that operators make.
  ExprId random_index(int depth) {
    if (depth == 0 || pick(3) == 0) return it(space[pick(space.size())]);
    const ExprId a = random_index(depth - 1);
    const auto size = static_cast<std::int64_t>(2 + pick(4));
    switch (pick(6)) {
      case 0:
        return arena().divide(a, Size(size));
      case 1:
        return arena().modulo(arena().add(a, arena().constant(static_cast<std::int64_t>(pick(3)))),
                              Size(size));
      case 2:
        return arena().inside(arena().add(a, arena().constant(-1)), Size(size));
      case 3:
        return arena().multiply(
            a, static_cast<std::int64_t>(pick(5)) - 2 == 0 ? 3 : static_cast<std::int64_t>(pick(5)) - 2);
      default:
        return arena().add(arena().multiply(a, static_cast<std::int64_t>(1 + pick(3))),
                           arena().multiply(random_index(depth - 1), static_cast<std::int64_t>(1 + pick(3))));
    }
  }

  /// Compares invert() with a search of the whole space; false where it does not invert.
  bool check(const std::vector<ExprId>& indices, const std::string& what) {
    std::vector<Slot> element;
    std::vector<ExprId> at;
    for (const ExprId index : indices) {
      const auto reach = iterators_.bounds(index);
      element.push_back(iterators_.add("p", reach.least, reach.greatest + 1));
      at.push_back(it(element.back()));
    }
    const auto inverse = lower::invert(iterators_, space, indices, at);
    if (!inverse) return false;
    std::vector<std::int64_t> values(program_.next_slot);
    const auto value = [&](ExprId e) { return symbolic::evaluate(arena(), e, program_.sizes, 0, values); };
    std::map<Point, std::multiset<Point>> expected, actual;
    walk(iterators_, space, values, [&] {
      Point p, from;
      for (const ExprId index : indices) {
        const auto v = value(index);
        if (!v) return;
        p.push_back(*v);
      }
      for (const Slot s : space) from.push_back(values[s]);
      expected[p].insert(from);
    });
    std::vector<Slot> loops = element;
    loops.insert(loops.end(), inverse->free.begin(), inverse->free.end());
    walk(iterators_, loops, values, [&] {
      for (const auto& condition : inverse->conditions) {
        const auto range = program::extent_of(program_, condition.range, 0);
        const auto v = value(condition.value);
        if (!v || *v < range.begin || *v >= range.end) return;
      }
      Point p, from;
      for (const Slot s : element) p.push_back(values[s]);
      for (const Slot s : space) from.push_back(value(inverse->points.at(s)).value());
      actual[p].insert(from);
    });
    EXPECT_EQ(expected, actual) << what;
    return true;
  }

  std::vector<Slot> space;

 private:
  Random random_;
  program::Program program_;
  lower::Iterators iterators_;
};

TEST(IndexInverse, VisitsExactlyThePointsOfRandomMaps) {
  int inverted = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Map map(seed);
    for (std::size_t i = 0, n = 1 + map.pick(3); i < n; ++i) {
      map.slot(static_cast<std::int64_t>(map.pick(3)) - 1, static_cast<std::int64_t>(1 + map.pick(5)));
    }
    std::vector<ExprId> indices;
    for (std::size_t d = 0, rank = 1 + map.pick(2); d < rank; ++d) indices.push_back(map.random_index(3));
    inverted += map.check(indices, "seed " + std::to_string(seed));
  }
  EXPECT_GT(inverted, 2000) << "most maps were left to accumulation";
}

TEST(IndexInverse, GathersStridedAndDilatedWindowsWithoutSpareWork) {
  struct InverseCase {
    std::int64_t stride, dilation, taps;
    std::size_t free;
    std::int64_t turns;
  };
  for (const InverseCase& c :
       {InverseCase{1, 1, 3, 1, 3}, {2, 1, 3, 1, 2}, {3, 2, 5, 1, 2}, {2, 1, 2, 0, 1}, {4, 1, 3, 0, 1}}) {
    Map map(1);
    const Slot h = map.slot(0, 8), r = map.slot(0, c.taps);
    const ExprId index = map.arena().add(map.arena().add(map.arena().multiply(map.it(h), c.stride),
                                                         map.arena().multiply(map.it(r), c.dilation)),
                                         map.arena().constant(-1));
    EXPECT_TRUE(map.check({index}, "strided"));
    const Slot p = map.iterators().add("p", 0, 8 * c.stride);
    const auto inverse = lower::invert(map.iterators(), map.space, {index}, {map.it(p)});
    ASSERT_TRUE(inverse);
    ASSERT_EQ(inverse->free.size(), c.free) << c.stride << " " << c.taps;
    if (c.free == 1) {
      EXPECT_EQ(map.iterators().extent(inverse->free[0]), c.turns);
    }
  }
}

TEST(IndexInverse, PutsTurnedBlocksTogetherWithoutSpareWork) {
  // B*(i/B) + (i + c)%B and i/B + N*((i + c)%B): every element is of one point, whatever the rotation.
  for (const std::int64_t block : {2, 3, 4}) {
    for (const std::int64_t turn : {0, 1, 2}) {
      for (const bool blocks_outside : {true, false}) {
        Map map(3);
        const Slot i = map.slot(0, 5 * block);
        const auto major = map.arena().divide(map.it(i), Size(block));
        const auto minor =
            map.arena().modulo(map.arena().add(map.it(i), map.arena().constant(turn)), Size(block));
        const auto index = blocks_outside ? map.arena().add(map.arena().multiply(major, block), minor)
                                          : map.arena().add(major, map.arena().multiply(minor, 5));
        EXPECT_TRUE(map.check({index}, "turned blocks"));
        const Slot p = map.iterators().add("p", 0, 5 * block);
        const auto inverse = lower::invert(map.iterators(), map.space, {index}, {map.it(p)});
        ASSERT_TRUE(inverse);
        EXPECT_TRUE(inverse->free.empty()) << block << " " << turn;
        EXPECT_TRUE(inverse->conditions.empty()) << block << " " << turn;
      }
    }
  }
  // The same of a window: only its taps stay free.
  Map map(4);
  const Slot i = map.slot(0, 14), k = map.slot(0, 3);
  const auto at = map.arena().inside(
      map.arena().add(map.arena().add(map.it(i), map.it(k)), map.arena().constant(-1)), Size(14));
  const auto index = map.arena().add(map.arena().divide(at, Size(2)),
                                     map.arena().multiply(map.arena().modulo(at, Size(2)), 7));
  EXPECT_TRUE(map.check({index}, "shuffled window"));
  const Slot p = map.iterators().add("p", 0, 14);
  const auto inverse = lower::invert(map.iterators(), map.space, {index}, {map.it(p)});
  ASSERT_TRUE(inverse);
  ASSERT_EQ(inverse->free.size(), 1U);
  EXPECT_EQ(map.iterators().extent(inverse->free[0]), 3);
}

TEST(IndexInverse, KnowsARotatedWindowByItsGuard) {
  // (inside(i + k - 1, 14) + 1) % 14: the guard leaves as many values as there are remainders, so that no
  // further turn is to be tried.
  Map map(5);
  auto& arena = map.arena();
  const Slot i = map.slot(0, 14), k = map.slot(0, 3);
  const auto window = arena.inside(arena.add(arena.add(map.it(i), map.it(k)), arena.constant(-1)), Size(14));
  const auto index = arena.modulo(arena.add(window, arena.constant(1)), Size(14));
  EXPECT_TRUE(map.check({index}, "rotated window"));
  const Slot p = map.iterators().add("p", 0, 14);
  const auto inverse = lower::invert(map.iterators(), map.space, {index}, {map.it(p)});
  ASSERT_TRUE(inverse);
  ASSERT_EQ(inverse->free.size(), 1U);
  EXPECT_EQ(map.iterators().extent(inverse->free[0]), 3);
}

TEST(IndexInverse, RecombinesBlocksAndRotations) {
  Map map(2);
  const Slot i = map.slot(0, 12);
  const auto rotated = map.arena().modulo(map.arena().add(map.it(i), map.arena().constant(5)), Size(12));
  EXPECT_TRUE(map.check({map.arena().divide(rotated, Size(3)), map.arena().modulo(rotated, Size(3))},
                        "merge of a shift"));
  const Slot p = map.iterators().add("p", 0, 4), q = map.iterators().add("q", 0, 3);
  const auto inverse = lower::invert(
      map.iterators(), map.space,
      {map.arena().divide(rotated, Size(3)), map.arena().modulo(rotated, Size(3))}, {map.it(p), map.it(q)});
  ASSERT_TRUE(inverse);
  EXPECT_TRUE(inverse->free.empty());
  EXPECT_TRUE(inverse->conditions.empty());
}

}  // namespace
}  // namespace syno
