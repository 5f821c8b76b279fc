// Vectors along positions that all operands have: weights by place, by blocks, shifted, their gradients, and
// batches; any numbers keep the meaning.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "construct/construct.hpp"
#include "schedule/fixture.hpp"

namespace syno::construct {

using namespace schedule;
namespace {

struct Places {
  const char* name;
  const char* text;
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> sizes;  ///< least, greatest
  bool fills = true;                                                   ///< vectors with a second loop
};
void PrintTo(const Places& p, std::ostream* out) { *out << p.name; }

class EveryPlace : public ::testing::TestWithParam<Places> {};

TEST_P(EveryPlace, KeepsTheMeaning) {
  Random random(97);
  int written = 0, filled = 0;
  for (int trial = 0; trial < 16; ++trial) {
    program::ParseOptions options;
    for (const auto& [name, range] : GetParam().sizes)
      options.sizes.emplace(name, draw(random, range.first, range.second));
    const auto p = program::parse(GetParam().text, options);
    constexpr Dtype kDtypes[] = {Dtype::F32, Dtype::F64, Dtype::F32, Dtype::BF16};
    const Dtype dtype = kDtypes[trial % 4];
    const Target target = trial % 3 == 2   ? Target{128, 16, 1}
                          : trial % 3 == 1 ? Target{256, 16, 2}
                                           : Target{};
    Construction c(p, dtype, target);
    if (p.scopes.size() > 1) ASSERT_FALSE(c.add({"epilogue", "y", {}, {}, "t", {}}));
    const std::string scope = p.tensor(p.scopes.back().output).name;
    Sketches sketches;
    along_places(c, scope, facts_of(c, scope), sketches);
    const Arguments arguments = random_arguments(p, random);
    for (const Sketch& sketch : sketches) {
      Numbers numbers = sketch.counted;
      if (random.below(2))
        for (const Choice& open : sketch.choices)
          numbers.*open.number = open.values[random.below(open.values.size())];
      Construction to = c;
      ASSERT_FALSE(sketch.write(to, numbers)) << sketch.name;
      const LoopNest nest = emit(to.plan);
      ASSERT_NO_THROW(verify(nest)) << to_text(to.schedule) << to_text(nest);
      expect_same(p, nest, arguments, sketch.name + "\n" + to_text(to.schedule));
      if (HasFatalFailure()) return;
      ++written;
      filled += std::count(sketch.name.begin(), sketch.name.end(), '/') == 2;
    }
  }
  EXPECT_GT(written, 15);
  if (GetParam().fills) EXPECT_GT(filled, 0) << "no vector took positions of several rows";
}

INSTANTIATE_TEST_SUITE_P(
    Programs, EveryPlace,
    ::testing::Values(
        Places{"by_column",
               "y[c,h,w] = sum[d,r] x[d,h+r-1,w] * k[c,r,d,w]",
               {{"c", {2, 20}}, {"d", {1, 5}}, {"h", {2, 9}}, {"w", {2, 9}}, {"r", {3, 3}}}},
        Places{"by_row",
               "y[n,c,h,w] = sum[d,r] x[n,d,w,h+r-1] * k[c,r,d,w]",
               {{"n", {1, 3}}, {"c", {2, 20}}, {"d", {1, 5}}, {"h", {2, 9}}, {"w", {2, 9}}, {"r", {3, 3}}}},
        Places{"to_the_input",
               "dx[d,w,h] = sum[c,r] g[c,h-r+1,w] * k[c,r,d,w]",
               {{"c", {1, 5}}, {"d", {2, 20}}, {"h", {2, 9}}, {"w", {2, 9}}, {"r", {3, 3}}}},
        Places{"to_the_weights",
               "dk[c,r,d,w] = sum[h] g[c,h,w] * x[d,w,h+r-1]",
               {{"c", {2, 9}}, {"d", {2, 9}}, {"h", {1, 7}}, {"w", {2, 9}}, {"r", {3, 3}}}},
        Places{"by_place_in_a_block",
               "y[c,h,w] = sum[d,r] x[d,w/4+3*inside(r+w%4-1,4),h] * k[c,r,d,w%4]",
               {{"c", {2, 20}}, {"d", {1, 5}}, {"h", {2, 9}}, {"w", {12, 12}}, {"r", {3, 3}}}},
        Places{"by_shifted_place",
               "y[c,h,w] = sum[d] x[d,h,(w+1)%6] * k[c,d,(w+1)%6]",
               {{"c", {2, 20}}, {"d", {1, 5}}, {"h", {2, 9}}, {"w", {6, 6}}}},
        Places{"of_a_batch",
               "y[i,j,b] = sum[d] a[i,d,b] * e[j,d,b]",
               {{"i", {5, 14}}, {"j", {2, 9}}, {"d", {1, 5}}, {"b", {2, 40}}},
               false},
        Places{"with_a_bias_and_a_third_operand",
               "t[c,h,w] = sum[d] x[d,h,w] * k[c,d,w] * s[d]; y[c,h,w] = max(t[c,h,w] + b[c], 0)",
               {{"c", {2, 9}}, {"d", {1, 5}}, {"h", {2, 9}}, {"w", {2, 9}}}}),
    [](const auto& info) { return std::string(info.param.name); });

/// Nothing as large as weights that are used a few times is copied, forward and backward.
TEST(AlongPlaces, ReadsWeightsWhereTheyLie) {
  for (const char* text :
       {"y[c,h,w] = sum[d] x[d,h,w] * k[c,d,w]", "y[d,w,h] = sum[c] x[c,h,w] * k[c,d,w]"}) {
    const auto p = program::parse(text, {.sizes = {{"c", 512}, {"h", 7}, {"w", 7}, {"d", 512}}});
    const LoopNest nest = apply(p, default_schedule(p, Dtype::F32, Target{}));
    for (const Buffer& buffer : nest.buffers) {
      std::int64_t elements = 1;
      for (const std::int64_t extent : buffer.extents) elements *= extent;
      if (buffer.kind == BufferKind::Temporary) EXPECT_LT(elements, 100'000) << text << to_text(nest);
    }
  }
}

/// Lanes run along what two operands have in common and nothing else tiles.
TEST(AlongPlaces, LeavesTheRestToOthers) {
  for (const char* text :
       {"y[c: 8,h: 8] = sum[d: 4] x[d,h] * k[c,d]", "y[h: 8,w: 8] = sum[d: 4] x[d,h,w] * k[d,w]",
        "y[h: 8,w: 8] = sum[r: 3] x[h+r,w]"}) {
    const auto p = program::parse(text);
    Construction c(p, Dtype::F32, Target{});
    Sketches sketches;
    along_places(c, "y", facts_of(c, "y"), sketches);
    EXPECT_TRUE(sketches.empty()) << text << " " << (sketches.empty() ? "" : sketches[0].name);
  }
}

}  // namespace
}  // namespace syno::construct
