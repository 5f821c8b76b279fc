// Programs whose tensors lie otherwise: the same values at other places, for every primitive, and back.
#include "schedule/laid_out.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "../program/random_program.hpp"
#include "program/interpret.hpp"
#include "program/text.hpp"
#include "program/verify.hpp"
#include "random_layout.hpp"
#include "support/error.hpp"

namespace syno::schedule {
namespace {

using program::Program;
using program::Role;
using program::TensorId;
using Values = program::Values<double>;
using testing::draw;

std::map<std::string, Values> random_inputs(const Program& program, Random& random) {
  std::map<std::string, Values> inputs;
  for (const TensorId id : program.inputs()) {
    Values values{program::shape_of(program, id), {}};
    const std::int64_t count = program::checked_product("test", values.shape);
    for (std::int64_t i = 0; i < count; ++i)
      values.data.push_back(static_cast<double>(draw(random, -16, 16)) / 8);
    inputs.emplace(program.tensor(id).name, std::move(values));
  }
  return inputs;
}

bool same(const Values& a, const Values& b) {
  if (a.shape != b.shape || a.data.size() != b.data.size()) return false;
  for (std::size_t i = 0; i < a.data.size(); ++i)
    if (!(a.data[i] == b.data[i] || (std::isnan(a.data[i]) && std::isnan(b.data[i])))) return false;
  return true;
}

void lay(std::map<std::string, Values>& values, const std::string& name, const Layout& layout) {
  const auto found = values.find(name);
  if (found == values.end()) return;
  Values& was = found->second;
  was = Values{shape_after(layout, was.shape), testing::laid(layout, was.shape, was.data)};
}

bool starts_at_0(const Program& program, TensorId id) {
  for (const auto& dim : program.tensor(id).dims)
    if (program::extent_of(program, dim, 0).begin != 0) return false;
  return true;
}

/// Nothing where indices become too long to be written.
template <class Make>
std::optional<Program> unless_too_long(Make&& make) {
  try {
    return make();
  } catch (const ScheduleError& error) {
    EXPECT_NE(std::string(error.what()).find("take fewer steps"), std::string::npos) << error.what();
    return std::nullopt;
  }
}

TEST(LaidOut, ComputesTheSameAtOtherPlacesAndBack) {
  std::map<std::pair<LayoutKind, Role>, int> seen;
  int back = 0, too_long = 0;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    Random random(seed);
    const Program before = program::at(program::testing::ProgramGenerator(seed)(), 0);
    const auto id = static_cast<TensorId>(random.below(before.tensors.size()));
    const Shape shape = program::shape_of(before, id);
    if (shape.empty()) continue;
    const Layout layout = testing::random_layout(random, shape, random.below(2) == 0);
    const std::string name = before.tensor(id).name, what = std::to_string(seed) + " " + name + " " +
                                                            to_text(layout) + "\n" + program::to_text(before);
    auto inputs = random_inputs(before, random);
    auto expected = program::interpret(before, inputs);
    const auto plain_inputs = inputs;
    const auto plain = expected;
    const auto made = unless_too_long([&] { return laid_out(before, id, layout); });
    too_long += !made;
    if (!made) continue;
    const Program& after = *made;
    program::verify(after);
    ASSERT_EQ(program::to_text(program::parse(program::to_text(after))), program::to_text(after)) << what;
    lay(inputs, name, layout);
    lay(expected, name, layout);
    const auto got = program::interpret(after, inputs);
    for (const auto& [output, values] : expected)
      ASSERT_TRUE(same(values, got.at(output))) << output << " of " << what << program::to_text(after);
    for (const LayoutStep& step : layout) ++seen[{step.kind, before.tensor(id).role}];

    if (!starts_at_0(before, id)) continue;
    const auto made_again = unless_too_long([&] { return without_layout(after, id, layout, shape); });
    too_long += !made_again;
    if (!made_again) continue;
    const Program& again = *made_again;
    program::verify(again);
    ASSERT_EQ(program::shape_of(again, id), shape);
    const auto got_back = program::interpret(again, plain_inputs);
    for (const auto& [output, values] : plain)
      ASSERT_TRUE(same(values, got_back.at(output)))
          << output << " back from " << what << program::to_text(again);
    ++back;
  }
  for (const auto& row : layout_primitives())
    for (const Role role : {Role::Input, Role::Weight, Role::Constant, Role::Computed})
      EXPECT_GT((seen[{row.kind, role}]), role == Role::Constant ? 5 : 15) << row.name;
  EXPECT_GT(back, 400);
  EXPECT_LT(too_long, 80);
}

TEST(LaidOut, CopiesLieOtherwiseAndArgumentsDoNot) {
  std::map<Role, int> seen;
  int outputs = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    Random random(seed);
    const Program before = program::at(program::testing::ProgramGenerator(seed)(), 0);
    const auto id = static_cast<TensorId>(random.below(before.tensors.size()));
    const Shape shape = program::shape_of(before, id);
    const bool output = std::count(before.outputs.begin(), before.outputs.end(), id) > 0;
    if (shape.empty()) continue;
    const Layout layout = testing::random_layout(random, shape, random.below(2) == 0);
    const auto made = unless_too_long([&] { return laid_out_copied(before, id, layout, "lies"); });
    if (!made) continue;
    program::verify(*made);
    const std::string what = std::to_string(seed) + " " + before.tensor(id).name + " " + to_text(layout) +
                             "\n" + program::to_text(before) + program::to_text(*made);
    const bool copied =
        output || before.tensor(id).role == Role::Input || before.tensor(id).role == Role::Weight;
    ASSERT_EQ(made->find_tensor("lies").has_value(), copied) << what;
    if (copied) {
      ASSERT_EQ(program::shape_of(*made, id), shape) << what;
      ASSERT_EQ(program::shape_of(*made, *made->find_tensor("lies")), shape_after(layout, shape)) << what;
    }
    auto inputs = random_inputs(before, random);
    const auto expected = program::interpret(before, inputs);
    if (!copied) lay(inputs, before.tensor(id).name, layout);
    const auto got = program::interpret(*made, inputs);
    for (const auto& [name, values] : expected)
      ASSERT_TRUE(same(values, got.at(name))) << name << " of " << what;
    ++seen[before.tensor(id).role];
    outputs += output;
  }
  for (const Role role : {Role::Input, Role::Weight, Role::Computed}) EXPECT_GT(seen[role], 30);
  EXPECT_GT(outputs, 30);
  const Program p = program::parse("input x[4]\ny[i: 4] = x[i]\n");
  for (const char* taken : {"x", "y", ""})
    EXPECT_THROW(laid_out_copied(p, *p.find_tensor("x"), parse_layout("pad(0, 1, 1)"), taken), ScheduleError);
  EXPECT_THROW(laid_out_copied(p, TensorId{99}, {}, "lies"), ShapeError);
}

std::string laid_text(const std::string& program, const std::string& tensor, const std::string& layout) {
  const Program p = program::parse(program);
  return program::to_short_text(laid_out(p, *p.find_tensor(tensor), parse_layout(layout)));
}

const std::string kConvolution =
    "input x[1, 16, 8, 8]; weight k[32, 16, 3, 3]\n"
    "y[n: 1, o: 32, h: 8, w: 8] = sum[c: 16, r: 3, s: 3] x[n, c, h + r - 1, w + s - 1] * k[o, c, r, s]\n";

TEST(LaidOut, BlocksOfChannelsLeaveNoQuotients) {
  EXPECT_EQ(laid_text(kConvolution, "x", "split(1, 2, 8) reorder(0, 1, 3, 4, 2)"),
            "y[n,o,h,w] = sum[c,cm,r,s] x[n,c,h+r-1,w+s-1,cm] * k[o,8*c+cm,r,s]");
  EXPECT_EQ(laid_text(kConvolution, "y", "split(1, 4, 8) reorder(0, 1, 3, 4, 2)"),
            "y[n,o,h,w,om] = sum[c,r,s] x[n,c,r+h-1,s+w-1] * k[8*o+om,c,r,s]");
  EXPECT_EQ(laid_text(kConvolution, "x", "split(1, 2, 2, 4)"),
            "y[n,o,h,w] = sum[c,cm2,cm,r,s] x[n,c,cm2,cm,h+r-1,w+s-1] * k[o,cm+8*c+4*cm2,r,s]");
}

TEST(LaidOut, PaddingWith0TakesTheGuardsAway) {
  EXPECT_EQ(laid_text(kConvolution, "x", "pad(2, 1, 1) pad(3, 1, 1)"),
            "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r,w+s] * k[o,c,r,s]");
  // What is outside of x is -inf, and the padding is 0.
  const Program pool = program::parse("input x[4]\ny[i: 4] = max[r: 3] x[i + r - 1] fill -inf\n");
  const Program padded = laid_out(pool, *pool.find_tensor("x"), parse_layout("pad(0, 1, 1)"));
  const auto made = program::interpret<double>(padded, {{"x", {{6}, {0, -4, -3, -2, -1, 0}}}});
  EXPECT_EQ(made.at("y").data, (std::vector<double>{-3, -2, -1, -1}));
}

TEST(LaidOut, WindowsLieInOneTile) {
  // Tiles of 4 outputs of a window of 3: 6 elements every 4 (the paper's h_t + (KH - 1), h_t).
  EXPECT_EQ(
      laid_text("input x[18]; weight k[3]\ny[i: 16] = sum[r: 3] x[i + r] * k[r]\n", "x", "unfold(0, 6, 4)"),
      "y[i] = sum[r] x[i/4,r+i%4] * k[r]");
  // A stride of 2: 2 outputs a tile, 2*(2-1)+3 elements every 4.
  EXPECT_EQ(
      laid_text("input x[17]; weight k[3]\ny[i: 8] = sum[r: 3] x[2*i + r] * k[r]\n", "x", "unfold(0, 5, 4)"),
      "y[i] = sum[r] x[i/2,r+2*(i%2)] * k[r]");
}

TEST(LaidOut, RefusesWhatDoesNotFit) {
  const Program p = program::parse(kConvolution);
  const TensorId x = *p.find_tensor("x");
  EXPECT_THROW(laid_out(p, x, parse_layout("split(1, 3, 5)")), ScheduleError);
  EXPECT_THROW(laid_out(p, x, parse_layout("reorder(0, 1)")), ScheduleError);
  EXPECT_THROW(laid_out(p, TensorId{99}, {}), ShapeError);
  EXPECT_THROW(laid_out(p, x, parse_layout("pad(0, 4611686018427387904, 0) pad(1, 4611686018427387904, 0)")),
               ShapeError);
  EXPECT_THROW(without_layout(p, x, parse_layout("reorder(1, 0)"), {8, 2}), ShapeError);
  const Program open = program::parse("size N : primary = 4\ninput x[N]\ny[i: N] = x[i]\n");
  EXPECT_THROW(laid_out(open, TensorId{0}, {}), ShapeError);
}

TEST(LaidOut, SplitReorderAndFuseAreOneToOne) {
  EXPECT_TRUE(is_bijective(parse_layout("split(0, 2, 2) reorder(1, 0) fuse(0, 2)"), {4}));
  EXPECT_TRUE(is_bijective(parse_layout("unfold(0, 2, 2) pad(0, 0, 0)"), {4}));
  for (const char* advanced : {"pad(0, 0, 1)", "unfold(0, 3, 2)", "unfold(0, 3, 3)", "store_at(0, 1)"})
    EXPECT_FALSE(is_bijective(parse_layout(advanced), {4})) << advanced;
}

}  // namespace
}  // namespace syno::schedule
