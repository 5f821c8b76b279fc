// Vectors along pixels: weights that are broadcast, in groups, by stages and in pieces, are copied into the
// blocks they are read in where they lie badly; with any numbers they keep their meaning.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "construct/construct.hpp"
#include "schedule/fixture.hpp"

namespace syno::construct {

using namespace schedule;
namespace {

struct Pixels {
  const char* name;
  const char* text;
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> sizes;  ///< least, greatest
};
void PrintTo(const Pixels& p, std::ostream* out) { *out << p.name; }

bool packs(const LoopNest& nest) {
  return std::any_of(nest.buffers.begin(), nest.buffers.end(),
                     [](const Buffer& buffer) { return buffer.name.ends_with("_pack"); });
}

class EveryPixel : public ::testing::TestWithParam<Pixels> {};

TEST_P(EveryPixel, KeepsTheMeaning) {
  Random random(97);
  int packed = 0, prepacked = 0;
  for (int trial = 0; trial < 24; ++trial) {
    program::ParseOptions options;
    for (const auto& [name, range] : GetParam().sizes)
      options.sizes.emplace(name, draw(random, range.first, range.second));
    const auto p = program::parse(GetParam().text, options);
    constexpr Dtype kDtypes[] = {Dtype::F32, Dtype::F64, Dtype::F32, Dtype::BF16};
    Target target = trial % 3 == 2 ? Target{128, 16, 1} : trial % 3 == 1 ? Target{256, 16, 2} : Target{};
    target.l1_bytes = 256;  // so that small weights are worth a copy
    target.l2_bytes = 4096;
    std::vector<std::string> constants;
    if (trial % 2) constants.push_back("k");
    const Schedule schedule =
        construct(p, kDtypes[trial % 4], target, by_lot(random, "along_output"), constants);
    const Arguments arguments = random_arguments(p, random);
    const LoopNest nest = apply(p, schedule);
    ASSERT_NO_THROW(verify(nest)) << to_text(schedule) << to_text(nest);
    expect_same(p, nest, arguments, to_text(schedule));
    packed += packs(nest);
    if (const auto parts = apply_prepacked(p, schedule)) {
      expect_same_prepacked(p, *parts, arguments, to_text(schedule));
      ++prepacked;
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(packed, 5);
  EXPECT_GT(prepacked, 3);
}

INSTANTIATE_TEST_SUITE_P(
    Programs, EveryPixel,
    ::testing::Values(
        Pixels{"window",
               "y[n,c,h,w] = sum[r,s,d] x[n,d,h+r-1,w+s-1] * k[c,d,r,s]",
               {{"n", {1, 2}},
                {"c", {4, 23}},
                {"d", {2, 5}},
                {"h", {1, 7}},
                {"w", {2, 20}},
                {"r", {3, 3}},
                {"s", {3, 3}}}},
        Pixels{"groups",
               "y[n,c,h,w] = sum[r,d] x[n,c/8*4+d,h+r-2,w] * k[c,d,r]",
               {{"n", {1, 2}}, {"c", {16, 16}}, {"d", {4, 4}}, {"h", {1, 7}}, {"w", {2, 20}}, {"r", {5, 5}}}},
        Pixels{"three_groups_with_borders",
               "y[c,h,w] = sum[s,d] x[c/6*4+d,h,w+s-2] * k[c,d,s]",
               {{"c", {18, 18}}, {"d", {4, 4}}, {"h", {2, 9}}, {"w", {2, 20}}, {"s", {5, 5}}}},
        Pixels{"two_stages",
               "t[c,h,w] = sum[s,d] x[d,h,w+s-2] * k[c,d,s]; y[e,h,w] = sum[c] t[c,h,w] * v[e,c]",
               {{"c", {4, 9}}, {"d", {4, 9}}, {"e", {2, 9}}, {"h", {2, 7}}, {"w", {2, 20}}, {"s", {5, 5}}}},
        Pixels{"panels_of_turned_pixels",
               "y[c,h,w] = sum[r,d] k[d,r,w,h] * x[c,d,r]",
               {{"c", {4, 6}}, {"d", {4, 5}}, {"h", {20, 36}}, {"w", {22, 24}}, {"r", {5, 5}}}},
        Pixels{"panels_of_turned_columns",
               "y[c,w] = sum[r,d] x[d,w,r] * k[c,d,r]",
               {{"c", {4, 9}}, {"d", {4, 9}}, {"w", {500, 600}}, {"r", {5, 5}}}},
        Pixels{"stage_in_pieces",
               "t[b,c,s,h,w] = sum[d] x[b*4+d,h,w+s-1] * k[c,b*4+d,s]; "
               "y[e,h,w] = sum[r,s,b,c] t[b,c,s,h+r-1,w] * v[e,r,s,b,c]",
               {{"b", {2, 2}},
                {"c", {2, 9}},
                {"d", {4, 4}},
                {"e", {2, 9}},
                {"h", {3, 7}},
                {"w", {3, 20}},
                {"r", {3, 3}},
                {"s", {3, 3}}}}),
    [](const auto& info) { return std::string(info.param.name); });

std::int64_t elements(const LoopNest& nest, const std::string& name) {
  for (const auto& buffer : nest.buffers) {
    if (buffer.name != name) continue;
    std::int64_t product = 1;
    for (const auto extent : buffer.extents) product *= extent;
    return product;
  }
  return 0;
}

program::Program grouped_convolution(std::int64_t channels, std::int64_t size) {
  return program::parse(
      "y[n,o,h,w] = sum[c,r,s] x[n,o/32*32+c,h+r-1,w+s-1] * k[o,c,r,s]",
      {.sizes = {{"n", 1}, {"o", channels}, {"c", 32}, {"h", size}, {"w", size}, {"r", 3}, {"s", 3}}});
}

/// A row tile that does not divide a group, and rows counted in tiles around it, once let the copy of a group
/// hold what the next one reads.
TEST(AlongOutput, CopiesOfAGroupHoldThatGroup) {
  for (const std::int64_t rows : {5, 8, 13}) {
    const auto p = grouped_convolution(64, 14);
    const Policy policy = [&](const Construction& c, const std::string& scope, const Sketches& sketches) {
      Choosing choice = fewest_cycles(c, scope, sketches);
      for (std::size_t i = 0; i < sketches.size(); ++i)
        if (sketches[i].name == "along_output/2") choice = {i, sketches[i].counted};
      choice.numbers.rows = rows;
      choice.numbers.vectors = 2;
      return choice;
    };
    const Schedule schedule = construct(p, Dtype::F32, Target{}, policy);
    const LoopNest nest = apply(p, schedule);
    EXPECT_GT(elements(nest, "x_pad"), 0) << to_text(schedule);
    EXPECT_LE(elements(nest, "x_pad"), 32 * 17 * 17) << rows << " rows\n" << to_text(schedule);
  }
}

/// A stage that is computed for one tap at a time reads rows of the copy that was made for all taps.
TEST(AlongOutput, RowsRunOverThePitchOfTheCopyTheyRead) {
  const auto p = program::parse(
      "t[s,c,h,w] = sum[d] x[d,h,w+s-1] * k[c,s,d]; y[e,h,w] = sum[r,s,c] t[s,c,h+r-1,w] * v[e,r,s,c]",
      {.sizes = {{"c", 32}, {"d", 64}, {"e", 128}, {"h", 28}, {"w", 28}, {"r", 3}, {"s", 3}}});
  const Schedule schedule = default_schedule(p, Dtype::F32, Target{});
  const std::string text = to_text(apply(p, schedule));
  for (std::size_t at = text.find("x_pad["); at != std::string::npos; at = text.find("x_pad[", at + 1)) {
    const std::string line = text.substr(at, text.find('\n', at) - at);
    EXPECT_EQ(line.substr(0, line.find(" * k")).find('%'), std::string::npos) << line << to_text(schedule);
  }
}

/// Rows of constant weights far apart: a tile's vectors of all of them follow each other in a copy.
TEST(AlongOutput, StagedVectorsLieInPanels) {
  const auto p =
      program::parse("y[m,n] = sum[k] x[m,k] * k_[n,k]", {.sizes = {{"m", 128}, {"n", 1024}, {"k", 64}}});
  const Policy policy = [](const Construction&, const std::string&, const Sketches& sketches) {
    Choosing choice;
    for (std::size_t i = 0; i < sketches.size(); ++i)
      if (sketches[i].name == "along_output/1") choice = {i, sketches[i].counted};
    choice.numbers.vectors = 2;
    return choice;
  };
  const LoopNest nest = apply(p, construct(p, Dtype::F32, Target{}, policy, {"k_"}));
  const auto packed = std::find_if(nest.buffers.begin(), nest.buffers.end(),
                                   [](const Buffer& buffer) { return buffer.name == "k__pad"; });
  ASSERT_NE(packed, nest.buffers.end()) << to_text(nest);
  EXPECT_EQ(packed->extents, (std::vector<std::int64_t>{32, 64, 32})) << to_text(nest);
}

TEST(AlongOutput, BroadcastWeightsAreCopiedWhereTheyLieBadly) {
  const auto text = [](const char* program, std::vector<std::string> constants) {
    const auto p = program::parse(
        program, {.sizes = {{"c", 64}, {"d", 128}, {"h", 28}, {"w", 28}, {"r", 9}, {"e", 16}}});
    return to_text(default_schedule(p, Dtype::F32, Target{}, std::move(constants)));
  };
  const char* const window =
      "t[c,h,w] = sum[r,d] x[d,h+r-4,w] * k[c,d,r]; y[e,h,w] = sum[c] t[c,h,w] * v[e,c]";
  EXPECT_NE(text(window, {"k"}).find("prepack k_pack"), std::string::npos);
  EXPECT_NE(text(window, {}).find("words=k_pack"), std::string::npos) << "each weight is read 25 times";
  const char* const along_lines =
      "t[c,h,w] = sum[r,d] x[d,h+r-4,w] * k[c,r,d]; y[e,h,w] = sum[c] t[c,h,w] * v[e,c]";
  EXPECT_EQ(text(along_lines, {"k"}).find("k_pack"), std::string::npos)
      << "rows that are read along their lines stay where they are";
}

/// What lies two or three apart is taken apart in one block; wider steps are too many places for one.
TEST(AlongOutput, TakesPhasesApartTogether) {
  Random random(41);
  for (const std::int64_t stride : {2, 3, 4})
    for (const std::int64_t width : {5, 9, 17, 33}) {
      const auto p =
          program::parse(fmt::format("y[o,h,w] = sum[c,r,s] x[c,{0}*h+r-1,{0}*w+s-1] * k[o,c,r,s]", stride),
                         {.sizes = {{"o", 16}, {"h", 4}, {"w", width}, {"c", 3}, {"r", 5}, {"s", 5}}});
      const Schedule schedule = construct(p, Dtype::F32, Target{}, by_lot(random, "along_output"));
      expect_same(p, apply(p, schedule), random_arguments(p, random), to_text(schedule));
      const auto of_copy = [](const char* name) {
        return [name](const Decision& d) { return d.name == name && d.scope == "x_pad"; };
      };
      const auto& trace = schedule.trace;
      const bool apart = std::any_of(trace.begin(), trace.end(), of_copy("layout")),
                 unrolled = std::any_of(trace.begin(), trace.end(), of_copy("unroll"));
      EXPECT_EQ(unrolled, apart && stride <= 3) << to_text(schedule);
    }
}

}  // namespace
}  // namespace syno::construct
