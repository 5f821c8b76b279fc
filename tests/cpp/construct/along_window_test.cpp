// Windows scheduled where they lie: random pooling and depthwise programs keep their meaning, and the
// interior has no guards.
#include <gtest/gtest.h>

#include <algorithm>

#include "construct/construct.hpp"
#include "schedule/fixture.hpp"
#include "support/error.hpp"

namespace syno::construct {

using namespace schedule;
namespace {

struct Window {
  const char* name;
  const char* text;       ///< with {stride}, {dilation} and {pad}
  const char* iterators;  ///< one letter each
};
void PrintTo(const Window& w, std::ostream* out) { *out << w.name; }

std::string written(const Window& w, std::int64_t stride, std::int64_t dilation, std::int64_t pad) {
  return fmt::format(fmt::runtime(w.text), fmt::arg("stride", stride), fmt::arg("dilation", dilation),
                     fmt::arg("pad", pad));
}

class EveryWindow : public ::testing::TestWithParam<Window> {};

TEST_P(EveryWindow, KeepsTheMeaning) {
  Random random(53);
  int used = 0, by_rows = 0, sliding = 0, padded = 0;
  for (int trial = 0; trial < 40; ++trial) {
    const bool large = trial % 8 == 7;
    const std::map<std::string, std::int64_t> drawn{
        {"c", draw(random, 1, 3)},
        {"h", draw(random, 7, 10)},
        {"w", draw(random, 7, 40)},
        {"r", large ? draw(random, 9, 14) : draw(random, 1, trial % 2 ? 5 : 3)},
        {"s", large ? draw(random, 9, 14) : draw(random, trial % 2 ? 3 : 1, trial % 2 ? 5 : 3)}};
    const std::int64_t dilation = draw(random, 1, 2), stride = trial % 2 && !large ? 1 : draw(random, 1, 3);
    const std::int64_t most = (std::min(drawn.at("r"), drawn.at("s")) - 1) * dilation;
    program::ParseOptions options;
    for (const char name : std::string(GetParam().iterators))
      options.sizes.emplace(std::string(1, name), drawn.at(std::string(1, name)));
    const auto p = program::parse(written(GetParam(), stride, dilation, draw(random, 0, most)), options);
    for (const Target target : {Target{}, Target{256, 16, 2}, Target{128, 16, 1}}) {
      Construction c(p, trial % 4 == 3 ? Dtype::F64 : Dtype::F32, target);
      Sketches sketches;
      along_window(c, "y", facts_of(c, "y"), sketches);
      if (sketches.empty()) continue;
      const Sketch& sketch = sketches[random.below(sketches.size())];
      EXPECT_GT(sketch.cycles, 0);
      Numbers numbers = sketch.counted;
      if (random.below(2) == 1) {  // others than the counted ones, too
        numbers.rows = draw(random, 1, sketch.choices[0].values.back());
        numbers.vectors = draw(random, 1, sketch.choices[1].values.back());
      }
      by_rows += sketch.name.starts_with("along_window/rows");
      sliding += sketch.name.ends_with("/sliding");
      padded += sketch.name == "along_window/padded";
      ASSERT_FALSE(sketch.write(c, numbers));
      const LoopNest nest = emit(c.plan);
      ASSERT_NO_THROW(verify(nest)) << to_text(c.schedule) << to_text(nest);
      expect_same(p, nest, random_arguments(p, random), to_text(c.schedule));
      if (HasFatalFailure()) return;
      ++used;
    }
  }
  EXPECT_GT(used, 20);
  // Rows overlap along taps of their own in all but the one that has no rows.
  const std::string iterators = GetParam().iterators;
  if (iterators.starts_with("chw") && iterators.size() == 5) EXPECT_GT(by_rows, 2);
  if (iterators.starts_with("chw") && iterators.size() == 5) EXPECT_GT(sliding, 2);
  if (iterators.starts_with("chw") && iterators.size() == 5) EXPECT_GT(padded, 2);
}

/// With all taps unrolled a block holds one row; with a column of taps, several share what they read.
TEST(AlongWindow, LargeWindowsKeepSeveralRowsInABlock) {
  for (const std::int64_t taps : {5, 7}) {
    const auto p = program::parse("y[c,h,w] = sum[r,s] x[c,h+r-2,w+s-2] * k[c,r,s]",
                                  {.sizes = {{"c", 8}, {"h", 56}, {"w", 64}, {"r", taps}, {"s", taps}}});
    Construction c(p, Dtype::F32, Target{});
    Sketches sketches;
    along_window(c, "y", facts_of(c, "y"), sketches);
    const auto named = [&](std::string_view name) {
      return *std::find_if(sketches.begin(), sketches.end(), [&](const Sketch& s) { return s.name == name; });
    };
    ASSERT_EQ(sketches.size(), 4U);
    const Sketch by_rows = named("along_window/rows"), sliding = named("along_window/rows/sliding");
    EXPECT_LT(by_rows.cycles, named("along_window").cycles);
    EXPECT_GE(by_rows.counted.rows, 4) << taps;
    EXPECT_GE(sliding.counted.rows, 8) << taps;
    ASSERT_FALSE(by_rows.write(c, by_rows.counted));
    EXPECT_NE(to_text(c.schedule).find("unroll y loops=r\n"), std::string::npos) << to_text(c.schedule);
    EXPECT_EQ(to_text(c.schedule).find("unroll y loops=s\n"), std::string::npos) << to_text(c.schedule);
  }
}

/// Most of a large window's reads lie at a border: a padded copy needs no guards, and rows share what they
/// read.
TEST(AlongWindow, LargestWindowsReadAPaddedCopy) {
  const auto p = program::parse("y[c,h,w] = sum[r,s] x[c,h+r-15,w+s-15] * k[c,r,s]",
                                {.sizes = {{"c", 8}, {"h", 32}, {"w", 32}, {"r", 31}, {"s", 31}}});
  const Schedule schedule = default_schedule(p, Dtype::F32, Target{});
  EXPECT_NE(to_text(schedule).find("words=x_pad\n"), std::string::npos) << to_text(schedule);
  const LoopNest nest = apply(p, schedule);
  for (const auto& statement : nest.statements) {
    if (statement.kind != StatementKind::Store || statement.mode != StoreMode::Add) continue;
    const Value& product = nest.value(statement.value);
    EXPECT_TRUE(nest.value(product.a).guards.empty()) << to_text(nest);
  }
  EXPECT_NE(to_text(schedule).find("unroll y loops=r_i\n"), std::string::npos) << to_text(schedule);
}

INSTANTIATE_TEST_SUITE_P(
    Programs, EveryWindow,
    ::testing::Values(
        Window{
            "depthwise",
            "y[c,h,w] = sum[r,s] x[c,{stride}*h+{dilation}*r-{pad},{stride}*w+{dilation}*s-{pad}] * k[c,r,s]",
            "chwrs"},
        Window{
            "max_pool",
            "y[c,h,w] = max[r,s] x[c,{stride}*h+{dilation}*r-{pad},{stride}*w+{dilation}*s-{pad}] fill -inf",
            "chwrs"},
        Window{"average_pool",
               "y[c,h,w] = mean[r,s] x[c,{stride}*h+{dilation}*r-{pad},{stride}*w+{dilation}*s-{pad}]",
               "chwrs"},
        Window{"channels_last",
               "y[h,c,w] = sum[r,s] x[{stride}*h+{dilation}*r-{pad},{stride}*c+s,w] * k[r,s,w]", "chwrs"},
        Window{"rows_only", "y[h,w] = sum[r,s,c] x[{stride}*h+{dilation}*r-{pad},w] * k[r,s,c]", "chwrs"},
        Window{"one_dimension", "y[w] = sum[s,r] x[{stride}*w+{dilation}*s-{pad},r] * k[s]", "wrs"},
        Window{"guard_in_the_index", "y[c,h,w] = sum[r,s] x[c,h+r,inside({stride}*w+{dilation}*s-{pad}, 30)]",
               "chwrs"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(AlongWindow, LeavesTheInteriorWithoutGuards) {
  const auto p = program::parse("y[c,h,w] = sum[r,s] x[c,h+r-1,w+s-1] * k[c,r,s]",
                                {.sizes = {{"c", 8}, {"h", 56}, {"w", 56}, {"r", 3}, {"s", 3}}});
  Construction c(p, Dtype::F32, Target{});
  Sketches sketches;
  along_window(c, "y", facts_of(c, "y"), sketches);
  ASSERT_FALSE(sketches.empty());
  ASSERT_FALSE(sketches[0].write(c, sketches[0].counted));
  const LoopNest nest = emit(c.plan);
  int plain = 0, guarded = 0;
  for (const auto& statement : nest.statements) {
    if (statement.kind != StatementKind::Store || statement.mode != StoreMode::Add) continue;
    const Value& product = nest.value(statement.value);
    ASSERT_EQ(product.kind, ValueKind::Binary);
    const bool bare = nest.value(product.a).guards.empty() && nest.value(product.b).guards.empty();
    ++(bare ? plain : guarded);
  }
  EXPECT_EQ(plain, 1) << to_text(nest);
  EXPECT_EQ(guarded, 8) << "four edges and four corners";
  EXPECT_TRUE(std::none_of(nest.buffers.begin(), nest.buffers.end(),
                           [](const Buffer& buffer) { return buffer.kind == BufferKind::Temporary; }));
}

struct Cuts {
  const char* text;
  std::int64_t extent;
  std::vector<std::int64_t> wanted;
};

TEST(BorderCuts, AreWhereGuardsBeginAndEnd) {
  for (const Cuts& test : std::vector<Cuts>{{"y[w] = sum[s] x[w+s-1]", 20, {1, 19}},
                                            {"y[w] = sum[s] x[2*w+s-1]", 20, {1, 19}},
                                            {"y[w] = sum[s] x[w+4*s-4]", 20, {4, 16}},
                                            {"y[w] = sum[s] x[19-w+s-1]", 20, {1, 19}},
                                            {"y[w] = sum[s] x[w+s]", 20, {}},
                                            {"y[w] = sum[s] x[w+8*s-8]", 10, {}},  // no iteration is inside
                                            {"y[w] = sum[s] x[w+s-1]", 2, {1}}}) {
    const auto p = program::parse(test.text, {.sizes = {{"w", test.extent}, {"s", 3}}});
    Plan plan(p, Dtype::F32);
    EXPECT_EQ(border_cuts(plan, 0, "w"), test.wanted) << test.text;
  }
}

TEST(WrapCuts, LeaveMostIterationsWithoutAWrap) {
  for (const Cuts& test : std::vector<Cuts>{{"y[w] = x[(w+1)%56]", 56, {6}},
                                            {"y[w] = x[(w+8)%56]", 56, {}},       // whole blocks
                                            {"y[w] = x[(w+20)%56]", 56, {4, 5}},  // one in the middle
                                            {"y[w] = x[w/9]", 72, {}},            // too many
                                            {"y[w] = x[w]", 56, {}}}) {
    const auto p = program::parse(test.text, {.sizes = {{"w", test.extent}}});
    Plan plan(p, Dtype::F32);
    decide(plan, {"split", "y", {"w"}, {8}, "", {}});
    EXPECT_EQ(wrap_cuts(plan, 0, "w_o", "w_i"), test.wanted) << test.text;
  }
}

/// What a strategy of windows must leave to others.
TEST(AlongWindow, RefusesWhatIsNoWindow) {
  for (const auto& [text, k] : std::vector<std::pair<const char*, std::int64_t>>{
           {"y[m,n] = sum[k] a[m,k] * b[k,n]", 200},   // too many taps
           {"y[m,n] = sum[k] a[k,m / 3 + n % 2]", 4},  // not linear
           {"y[m,n] = sum[k] a[n,m + k * 40]", 3},     // so do these
           {"y[m,n] = sum[k] a[n,m,k]", 9}}) {         // lanes lie far apart
    const auto p = program::parse(text, {.sizes = {{"m", 20}, {"n", 20}, {"k", k}}});
    Construction c(p, Dtype::F32, Target{});
    Sketches sketches;
    along_window(c, "y", facts_of(c, "y"), sketches);
    EXPECT_TRUE(sketches.empty()) << text;
  }
}

}  // namespace
}  // namespace syno::construct
