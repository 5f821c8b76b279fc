// Layout primitives: every element has a place of its own, and the inverse leads back to it.
#include "schedule/layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "random_layout.hpp"
#include "support/error.hpp"
#include "support/random.hpp"

namespace syno::schedule {
namespace {

using testing::draw;
using testing::for_each_index;
using testing::random_shape;
using testing::random_step;

std::vector<ExprId> variables(symbolic::Arena& arena, std::size_t rank) {
  std::vector<ExprId> out;
  for (std::uint32_t d = 0; d < rank; ++d) out.push_back(arena.iterator(d));
  return out;
}

std::vector<std::int64_t> values(const symbolic::Arena& arena, const std::vector<ExprId>& exprs,
                                 std::span<const std::int64_t> at) {
  std::vector<std::int64_t> out;
  for (const ExprId e : exprs) out.push_back(*symbolic::evaluate(arena, e, {}, 0, at));
  return out;
}

void expect_inverse(const Layout& layout, const Shape& shape) {
  symbolic::Arena arena;
  std::string text;
  for (const auto& step : layout) text += to_text(step) + " ";
  const Shape after = shape_after(layout, shape);
  const auto places = access(arena, layout, shape, variables(arena, shape.size()));
  std::vector<Condition> conditions;
  const auto back = inverse(arena, layout, shape, variables(arena, after.size()), conditions);
  std::set<std::vector<std::int64_t>> taken;
  for_each_index(shape, [&](const std::vector<std::int64_t>& index) {
    const auto place = values(arena, places, index);
    for (std::size_t d = 0; d < after.size(); ++d) {
      ASSERT_GE(place[d], 0) << text;
      ASSERT_LT(place[d], after[d]) << text;
    }
    ASSERT_TRUE(taken.insert(place).second) << text << "two elements lie in one place";
    ASSERT_EQ(values(arena, back, place), index) << text;
    for (const auto& condition : conditions) {
      const auto value = *symbolic::evaluate(arena, condition.expr, {}, 0, place);
      ASSERT_TRUE(condition.begin <= value && value < condition.end) << text;
    }
  });
  // A place whose conditions hold holds an element, and for data that is not doubled no other place holds it.
  const bool doubled =
      std::any_of(layout.begin(), layout.end(), [](const auto& s) { return s.kind == LayoutKind::Unfold; });
  std::size_t held = 0;
  for_each_index(after, [&](const std::vector<std::int64_t>& place) {
    for (const auto& condition : conditions) {
      const auto value = *symbolic::evaluate(arena, condition.expr, {}, 0, place);
      if (value < condition.begin || value >= condition.end) return;
    }
    const auto index = values(arena, back, place);
    for (std::size_t d = 0; d < shape.size(); ++d) ASSERT_TRUE(0 <= index[d] && index[d] < shape[d]) << text;
    ++held;
  });
  if (!doubled) EXPECT_EQ(held, taken.size()) << text;
}

class EveryLayoutPrimitive : public ::testing::TestWithParam<LayoutRow> {};

TEST_P(EveryLayoutPrimitive, InvertsItsAccess) {
  Random random(7);
  for (int trial = 0; trial < 200; ++trial) {
    const Shape shape = random_shape(random);
    expect_inverse({random_step(random, GetParam().kind, shape)}, shape);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Table, EveryLayoutPrimitive,
                         ::testing::ValuesIn(layout_primitives().begin(), layout_primitives().end()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Layout, SequencesInvertTheirAccess) {
  Random random(11);
  for (int trial = 0; trial < 200; ++trial) {
    const Shape shape = random_shape(random);
    Layout layout;
    Shape current = shape;
    for (int i = 0; i < 4; ++i) {
      // Guards of an unfold or a pad under a later split are not ranges of one dimension any more.
      const auto kind = static_cast<LayoutKind>(draw(random, 0, 2));
      layout.push_back(random_step(random, kind, current));
      current = shape_after({layout.back()}, current);
    }
    layout.push_back(random_step(random, LayoutKind::Pad, current));
    expect_inverse(layout, shape);
    if (HasFatalFailure()) return;
  }
}

TEST(Layout, TextsAreReadBack) {
  Random random(5);
  for (int i = 0; i < 200; ++i) {
    const Layout layout = testing::random_layout(random, random_shape(random), true);
    ASSERT_EQ(parse_layout(to_text(layout)), layout) << to_text(layout);
  }
  EXPECT_TRUE(parse_layout("  ").empty());
  EXPECT_EQ(to_text(parse_layout("split ( 1,4 , 8 )reorder(0,1,3,2)")), "split(1, 4, 8) reorder(0, 1, 3, 2)");
  for (const char* wrong : {"split", "split(", "split(1", "split(1,)", "split(1 4)", "4", "split(1, 4))",
                            "fuse(-1, 2)", "pad(0, 99999999999999999999, 0)"})
    EXPECT_THROW(parse_layout(wrong), ParseError) << wrong;
  EXPECT_THROW(parse_layout("spilt(1, 4)"), UnknownName);
}

TEST(Layout, RefusesWhatDoesNotFit) {
  EXPECT_THROW(shape_after({{LayoutKind::Split, 0, {2, 2}}}, {5}), ScheduleError);
  EXPECT_THROW(shape_after({{LayoutKind::Split, 3, {5}}}, {5}), ScheduleError);
  EXPECT_THROW(shape_after({{LayoutKind::Reorder, 0, {0, 0}}}, {5, 5}), ScheduleError);
  EXPECT_THROW(shape_after({{LayoutKind::Fuse, 1, {2}}}, {5, 5}), ScheduleError);
  EXPECT_THROW(shape_after({{LayoutKind::Unfold, 0, {2, 3}}}, {5}), ScheduleError);
  EXPECT_THROW(shape_after({{LayoutKind::Pad, 0, {-1, 0}}}, {5}), ScheduleError);
  EXPECT_THROW(shape_after({{LayoutKind::StoreAt, 0, {0}}}, {5}), ScheduleError);
  EXPECT_THROW(layout_primitive("splitt"), UnknownName);
}

}  // namespace
}  // namespace syno::schedule
