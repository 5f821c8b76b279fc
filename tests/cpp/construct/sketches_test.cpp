// Any sketch with any of its numbers keeps the meaning of a program: what policies may rely on.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "construct/construct.hpp"
#include "construct/tiling.hpp"
#include "schedule/fixture.hpp"
#include "support/error.hpp"

namespace syno::construct {

using namespace schedule;
namespace {

class EverySketch : public ::testing::TestWithParam<Template> {};

/// Sketches and numbers by lot; `seen` counts the sketches that were there to choose from.
Policy by_lot(Random& random, std::size_t& seen) {
  return [&](const Construction&, const std::string&, const Sketches& sketches) {
    Choosing choice;
    choice.sketch = random.below(sketches.size());
    const Sketch& sketch = sketches[choice.sketch];
    choice.numbers = sketch.counted;
    for (const Choice& open : sketch.choices)
      choice.numbers.*open.number = open.values[random.below(open.values.size())];
    seen += sketches.size();
    return choice;
  };
}

TEST_P(EverySketch, KeepsTheMeaning) {
  Random random(43);
  std::size_t seen = 0;
  for (int trial = 0; trial < 24; ++trial) {
    const auto p = instance(GetParam(), random);
    const Target target = trial % 3 == 2 ? Target{128, 16, 1} : Target{};
    const Schedule schedule = construct(p, Dtype::F32, target, by_lot(random, seen));
    const LoopNest nest = apply(p, schedule);
    ASSERT_NO_THROW(verify(nest)) << to_text(schedule) << to_text(nest);
    expect_same(p, nest, random_arguments(p, random), to_text(schedule));
    if (HasFatalFailure()) return;
  }
  const std::string name = GetParam().name;
  if (name.ends_with("conv") || name.ends_with("matmul"))
    EXPECT_GT(seen, 24U) << "hardly any sketch to choose from";
}

INSTANTIATE_TEST_SUITE_P(Programs, EverySketch, ::testing::ValuesIn(templates()),
                         [](const auto& info) { return std::string(info.param.name); });

/// Reads by quotients and remainders of a divisor about as long as the loop: whether a copy of them has a
/// dimension for each depends on how far a tile's loops run.
program::Program in_blocks_as_long_as_loops(Random& random) {
  const std::int64_t a = draw(random, 2, 40), m = std::max<std::int64_t>(1, a + draw(random, -2, 6));
  const std::int64_t rows = draw(random, 1, 8), sums = draw(random, 1, 9);
  const bool beside = random.below(2) == 0;
  const std::string sum = random.below(2) == 0 ? "max" : "sum";
  const std::string read = beside ? "x[i/{m},i%{m},j]" : "x[j,i%{m},i/{m}]";
  const std::string text = "input z[{a}]\nt[i: {a}, h: {h}] = " + sum + "[j: {j}] (" + read +
                           " fill -3)\ny[i: {a}, h: {h}] = 2 * (t[i,h] * z[i])\nreturn y";
  const std::int64_t blocks = (a + m - 1) / m;
  const auto shape =
      beside ? std::vector<std::int64_t>{blocks, m, sums} : std::vector<std::int64_t>{sums, m, blocks};
  return program::parse(fmt::format(fmt::runtime(text), fmt::arg("a", a), fmt::arg("m", m),
                                    fmt::arg("h", rows), fmt::arg("j", sums)),
                        {.shapes = {{"x", shape}}});
}

TEST(Sketches, KeepTheMeaningWhereTilesRunFurtherThanTheirBlocks) {
  Random random(45);
  std::size_t seen = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const auto p = in_blocks_as_long_as_loops(random);
    const Target target{128 << static_cast<int>(random.below(3)), 16, 1};
    const Schedule schedule = construct(p, Dtype::F32, target, by_lot(random, seen));
    const LoopNest nest = apply(p, schedule);
    ASSERT_NO_THROW(verify(nest)) << to_text(schedule) << to_text(nest);
    expect_same(p, nest, random_arguments(p, random), to_text(schedule));
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(seen, 500U);
}

program::Program square_product(std::int64_t size) {
  return program::parse("y[m,n] = sum[k] a[m,k] * b[k,n]",
                        {.sizes = {{"m", size}, {"n", size}, {"k", size}}});
}

TEST(Sketches, SayWhatTheyCountedAndWhatCannotBeBuilt) {
  Construction c(square_product(256), Dtype::F32, Target{});
  const Sketches sketches = sketches_of(c, "y");
  ASSERT_FALSE(sketches.empty());
  for (const Sketch& sketch : sketches) {
    EXPECT_NEAR(sketch.estimate(sketch.counted), sketch.cycles, sketch.cycles * 1e-3) << sketch.name;
    for (const Choice& choice : sketch.choices) {
      EXPECT_TRUE(std::is_sorted(choice.values.begin(), choice.values.end())) << sketch.name << choice.name;
      EXPECT_FALSE(choice.values.empty()) << sketch.name << choice.name;
    }
    Numbers many = sketch.counted;
    many.rows = many.vectors = many.columns = 20;
    EXPECT_TRUE(std::isinf(sketch.estimate(many))) << sketch.name << ": no machine has 400 registers";
  }
}

TEST(Sketches, TheDefaultTakesTheFewestCycles) {
  const auto p = square_product(100);
  EXPECT_EQ(default_schedule(p, Dtype::F32, Target{}), construct(p, Dtype::F32, Target{}, fewest_cycles));
}

TEST(Sketches, NumbersOfAPolicyAreWhatIsBuilt) {
  const auto p = square_product(64);
  const auto three_rows = [](const Construction& c, const std::string& scope, const Sketches& sketches) {
    Choosing choice = fewest_cycles(c, scope, sketches);
    choice.numbers.rows = 3;
    choice.numbers.vectors = 2;
    return choice;
  };
  const std::string text = to_text(construct(p, Dtype::F32, Target{}, three_rows));
  EXPECT_NE(text.find("numbers=3"), std::string::npos) << text;
  EXPECT_NE(text.find("numbers=32"), std::string::npos) << text;
}

/// Where an answer leads is what comes of it, when all later scopes are written by count.
TEST(Chooser, FinishesAsTheConstructionWould) {
  Random random(51);
  int finished = 0;
  for (const Template& each : templates()) {
    const auto p = instance(each, random);
    const auto answer = [&](std::map<std::string, Choosing>& given, const Question& question) {
      Choosing choice;
      choice.sketch = random.below(question.sketches.size());
      choice.numbers = question.sketches[choice.sketch].counted;
      for (const Choice& open : question.sketches[choice.sketch].choices)
        choice.numbers.*open.number = open.values[random.below(open.values.size())];
      return given[question.scope] = choice;
    };
    std::map<std::string, Choosing> given;
    std::string first;
    std::optional<Finished> foreseen;
    const Finished made = construct_with(p, Dtype::F32, Target{}, [&](const Question& question) {
      if (!first.empty() && question.scope != first)
        return fewest_cycles(question.construction, question.scope, question.sketches);
      first = question.scope;
      const Choosing choice = answer(given, question);
      foreseen = question.finish(choice);
      EXPECT_FALSE(question.finish({question.sketches.size(), {}})) << "there is no such sketch";
      return choice;
    });
    EXPECT_EQ(to_text(made.nest), to_text(apply(p, made.schedule))) << each.name;
    if (!foreseen) continue;
    ++finished;
    EXPECT_EQ(to_text(foreseen->schedule), to_text(made.schedule)) << each.name;
    EXPECT_EQ(to_text(foreseen->nest), to_text(made.nest)) << each.name;
  }
  EXPECT_GT(finished, 3);
}

/// Nothing can be staged behind what has its place: no sketch asks for it, and every counted one can be
/// written.
TEST(Sketches, OfAPieceNeedNoResultStaged) {
  const auto p =
      program::parse("t[i] = sum[k] x[i,k]\ns[i] = rsqrt(t[i] + 1)\ny[i,j] = s[i] * x[i,j]\nreturn y",
                     {.sizes = {{"i", 24}, {"k", 200}, {"j", 200}}, .shapes = {}, .weights = {}, .data = {}});
  Construction whole(p, Dtype::F32, Target{}), piece(p, Dtype::F32, Target{});
  for (Construction* c : {&whole, &piece}) {
    ASSERT_FALSE(c->add({"epilogue", "s", {}, {}, "t", {}}));
    c->plan.need_domain(c->index("y"));
  }
  ASSERT_FALSE(piece.add({"compute_at", "s", {"i"}, {}, "y", {}}));
  const auto staged = [](const Sketch& sketch) {
    return sketch.tiling(sketch.counted).result != Result::InPlace;
  };
  const Sketches of_whole = sketches_of(whole, "s"), of_piece = sketches_of(piece, "s");
  EXPECT_TRUE(std::any_of(of_whole.begin(), of_whole.end(), staged))
      << "a root of each row, vector by vector";
  EXPECT_TRUE(std::none_of(of_piece.begin(), of_piece.end(), staged));
  ASSERT_FALSE(of_piece.empty());
  for (const Sketch& sketch : of_piece) {
    const Draft draft(piece);
    const Refused refused = sketch.write(piece, sketch.counted);
    EXPECT_FALSE(refused) << sketch.name << ": " << (refused ? refused->reason() : "");
  }
}

TEST(Sketches, AChoiceOutOfRangeIsTheCallersMistake) {
  const auto absent = [](const Construction&, const std::string&, const Sketches&) {
    return Choosing{1000, {}};
  };
  EXPECT_THROW(construct(square_product(8), Dtype::F32, Target{}, absent), ScheduleError);
}

}  // namespace
}  // namespace syno::construct
