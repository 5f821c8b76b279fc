// Windows scheduled where they lie: random pooling and depthwise programs keep their meaning, and the
// interior has no guards.
#include <gtest/gtest.h>

#include <algorithm>

#include "fixture.hpp"
#include "schedule/construct.hpp"
#include "support/error.hpp"

namespace syno::schedule {
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

class EveryWindow : public testing::TestWithParam<Window> {};

TEST_P(EveryWindow, KeepsTheMeaning) {
  Random random(53);
  int used = 0;
  for (int trial = 0; trial < 30; ++trial) {
    const std::map<std::string, std::int64_t> drawn{{"c", draw(random, 1, 3)},
                                                    {"h", draw(random, 7, 10)},
                                                    {"w", draw(random, 7, 40)},
                                                    {"r", draw(random, 1, 4)},
                                                    {"s", draw(random, 1, 4)}};
    const std::int64_t dilation = draw(random, 1, 2);
    const std::int64_t most = (std::min(drawn.at("r"), drawn.at("s")) - 1) * dilation;
    program::ParseOptions options;
    for (const char name : std::string(GetParam().iterators))
      options.sizes.emplace(std::string(1, name), drawn.at(std::string(1, name)));
    const auto p =
        program::parse(written(GetParam(), draw(random, 1, 3), dilation, draw(random, 0, most)), options);
    for (const Target target : {Target{}, Target{256, 16, 2}, Target{128, 16, 1}}) {
      Construction c(p, trial % 4 == 3 ? Dtype::F64 : Dtype::F32, target);
      Sketches sketches;
      along_window(c, "y", sketches);
      if (sketches.empty()) continue;
      EXPECT_GT(sketches[0].cycles, 0);
      Numbers numbers = sketches[0].counted;
      if (trial % 2 == 1) {  // others than the counted ones, too
        numbers.rows = draw(random, 1, sketches[0].choices[0].values.back());
        numbers.vectors = draw(random, 1, sketches[0].choices[1].values.back());
      }
      sketches[0].write(c, numbers);
      const LoopNest nest = emit(c.plan);
      ASSERT_NO_THROW(verify(nest)) << to_text(c.schedule) << to_text(nest);
      expect_same(p, nest, random_arguments(p, random), to_text(c.schedule));
      if (HasFatalFailure()) return;
      ++used;
    }
  }
  EXPECT_GT(used, 20);
}

INSTANTIATE_TEST_SUITE_P(
    Programs, EveryWindow,
    testing::Values(
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
  along_window(c, "y", sketches);
  ASSERT_EQ(sketches.size(), 1U);
  sketches[0].write(c, sketches[0].counted);
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
    along_window(c, "y", sketches);
    EXPECT_TRUE(sketches.empty()) << text;
  }
}

}  // namespace
}  // namespace syno::schedule
