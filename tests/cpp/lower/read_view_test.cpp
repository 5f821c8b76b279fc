// What a read sees: the same elements at the same points, over coordinates of its own.
#include "lower/read_view.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "program/program.hpp"
#include "support/random.hpp"

namespace syno {
namespace {

using lower::ExprId;
using lower::Slot;
using symbolic::Size;

class ViewMap {
 public:
  explicit ViewMap(std::uint64_t seed = 0) : iterators(program), random_(seed) {}

  symbolic::Arena& arena() { return program.arena; }
  std::int64_t pick(std::int64_t n) {
    return static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(n)));
  }
  ExprId slot(std::int64_t begin, std::int64_t extent) {
    space.push_back(iterators.add("i", begin, begin + extent));
    return arena().iterator(space.back());
  }
  ExprId any() { return arena().iterator(space[static_cast<std::size_t>(pick(std::ssize(space)))]); }
  ExprId random_index(int depth) {
    if (depth == 0 || pick(4) == 0) return any();
    const ExprId a = random_index(depth - 1);
    const std::int64_t size = 2 + pick(5);
    switch (pick(6)) {
      case 0:
        return arena().divide(a, Size(size));
      case 1:
        return arena().modulo(arena().add(a, arena().constant(pick(3))), Size(size));
      case 2:
        return arena().inside(arena().add(a, arena().constant(-1)), Size(size));
      default:
        return arena().add(arena().multiply(a, 1 + pick(4)), random_index(depth - 1));
    }
  }

  /// Every point of the space is one of coordinates and rest, and reads the same.
  lower::ReadView check(const std::vector<ExprId>& indices, const std::string& what) {
    lower::ReadView view = lower::view_of_read(iterators, space, indices);
    std::vector<Slot> loops = view.coordinates;
    loops.insert(loops.end(), view.rest.begin(), view.rest.end());
    std::int64_t points = 1, expected = 1;
    for (const Slot s : loops) points *= iterators.extent(s);
    for (const Slot s : space) expected *= iterators.extent(s);
    EXPECT_EQ(points, expected) << what;
    std::set<std::vector<std::int64_t>> visited;
    std::vector<std::int64_t> values(program.next_slot);
    const auto value = [&](ExprId e) { return symbolic::evaluate(arena(), e, program.sizes, 0, values); };
    for (std::int64_t n = 0; n < points; ++n) {
      std::int64_t left = n;
      for (const Slot s : loops) {
        values[s] = iterators.begin(s) + left % iterators.extent(s);
        left /= iterators.extent(s);
      }
      std::vector<std::int64_t> point;
      for (const Slot s : space) point.push_back(value(view.points.at(s)).value());
      EXPECT_TRUE(visited.insert(point).second) << what;
      for (std::size_t i = 0; i < space.size(); ++i) {
        EXPECT_GE(point[i], iterators.begin(space[i])) << what;
        EXPECT_LT(point[i], iterators.begin(space[i]) + iterators.extent(space[i])) << what;
        values[space[i]] = point[i];
      }
      for (std::size_t d = 0; d < indices.size(); ++d)
        EXPECT_EQ(value(indices[d]), value(view.indices[d])) << what;
    }
    for (const ExprId index : view.indices)
      for (const Slot s : arena().iterators(index))
        EXPECT_EQ(std::count(view.rest.begin(), view.rest.end(), s), 0) << what;
    return view;
  }

  program::Program program;
  lower::Iterators iterators;
  std::vector<Slot> space;

 private:
  Random random_;
};

TEST(ReadView, ReadsTheSameAtEveryPointOfRandomMaps) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    ViewMap map(seed);
    for (std::int64_t i = 0, n = 1 + map.pick(4); i < n; ++i)
      map.slot(map.pick(4) == 0 ? -1 : 0, std::vector<std::int64_t>{1, 2, 3, 4, 6, 8}[map.pick(6)]);
    std::vector<ExprId> indices;
    for (std::int64_t d = 0, rank = 1 + map.pick(2); d < rank; ++d) indices.push_back(map.random_index(3));
    map.check(indices, "seed " + std::to_string(seed));
  }
}

TEST(ReadView, LeavesOutWhatTheReadStandsStillForAndJoinsBlocks) {
  ViewMap map;  // x[k + c2 + 4 * (c / 4)], c over [0, 8): c % 4 is the rest, c2 and c / 4 one coordinate
  const ExprId c = map.slot(0, 8), k = map.slot(0, 3), c2 = map.slot(0, 4);
  auto& arena = map.arena();
  const ExprId block = arena.multiply(arena.divide(c, Size(4)), 4);
  const auto view = map.check({arena.add(arena.add(k, c2), block)}, "blocks");
  ASSERT_EQ(view.rest.size(), 1U);
  EXPECT_EQ(map.iterators.extent(view.rest[0]), 4);
  std::multiset<std::int64_t> extents;
  for (const Slot s : view.coordinates) extents.insert(map.iterators.extent(s));
  EXPECT_EQ(extents, (std::multiset<std::int64_t>{3, 8}));
}

TEST(ReadView, TurnsARotationUnderAGuardIntoACoordinate) {
  ViewMap map;  // x[inside(k + (h + 1) % 7 - 1, 7)]
  const ExprId h = map.slot(0, 7), k = map.slot(0, 3);
  auto& arena = map.arena();
  const ExprId turned = arena.modulo(arena.add(h, arena.constant(1)), Size(7));
  const auto view =
      map.check({arena.inside(arena.add(arena.add(k, turned), arena.constant(-1)), Size(7))}, "rotation");
  EXPECT_EQ(view.coordinates.size(), 2U);
  const auto form = symbolic::affine_form(arena, view.indices.at(0));
  ASSERT_EQ(form.terms.size(), 1U);  // a guard around a plain sum
  EXPECT_EQ(symbolic::affine_form(arena, arena[form.terms[0].first].a).terms.size(), 2U);
  for (const auto& [atom, factor] : symbolic::affine_form(arena, arena[form.terms[0].first].a).terms)
    EXPECT_NE(symbolic::slot_of(arena, atom), symbolic::kNoSlot);
}

}  // namespace
}  // namespace syno
