// Vectors along channels: weights that differ from place to place, shifted, strided or by blocks, with any
// numbers, keep their meaning; constant weights are packed before calls.
#include <gtest/gtest.h>

#include <algorithm>

#include "construct/construct.hpp"
#include "schedule/fixture.hpp"
#include "support/error.hpp"

namespace syno::construct {

using namespace schedule;
namespace {

struct Channels {
  const char* name;
  const char* text;
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> sizes;  ///< beside c and d: least, greatest
};
void PrintTo(const Channels& c, std::ostream* out) { *out << c.name; }

class EveryChannels : public ::testing::TestWithParam<Channels> {};

TEST_P(EveryChannels, KeepsTheMeaning) {
  Random random(83);
  int taken = 0, written = 0, prepacked = 0;
  for (int trial = 0; trial < 24; ++trial) {
    program::ParseOptions options;
    options.sizes = {{"c", draw(random, 8, 40)}, {"d", draw(random, 1, 4)}};
    for (const auto& [name, range] : GetParam().sizes)
      options.sizes.insert_or_assign(name, draw(random, range.first, range.second));
    const auto p = program::parse(GetParam().text, options);
    constexpr Dtype kDtypes[] = {Dtype::F32, Dtype::F64, Dtype::F32, Dtype::BF16};
    const Target target = trial % 3 == 2   ? Target{128, 16, 1}
                          : trial % 3 == 1 ? Target{256, 16, 2}
                                           : Target{};
    std::vector<std::string> constants;
    if (trial % 2) constants.push_back("k");
    const Schedule schedule =
        construct(p, kDtypes[trial % 4], target, by_lot(random, "along_channels", &taken), constants);
    const Arguments arguments = random_arguments(p, random);
    const LoopNest nest = apply(p, schedule);
    ASSERT_NO_THROW(verify(nest)) << to_text(schedule) << to_text(nest);
    expect_same(p, nest, arguments, to_text(schedule));
    written += std::any_of(nest.buffers.begin(), nest.buffers.end(),
                           [](const Buffer& buffer) { return buffer.name == "y_tile"; });
    if (const auto parts = apply_prepacked(p, schedule)) {
      expect_same_prepacked(p, *parts, arguments, to_text(schedule));
      ++prepacked;
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(taken, 10);
  EXPECT_GT(written, 10) << "what was chosen could not be built";
  EXPECT_GT(prepacked, 3);
}

INSTANTIATE_TEST_SUITE_P(
    Programs, EveryChannels,
    ::testing::Values(
        Channels{"by_column",
                 "y[c,h,w] = sum[d,r] x[d,h+r-1,w] * k[c,r,d,w]",
                 {{"h", {2, 9}}, {"w", {1, 9}}, {"r", {3, 3}}}},
        Channels{"by_shifted_column",
                 "y[c,h,w] = sum[d] x[d,h,(w+4)%12] * k[c,d,(w/4+1)%3]",
                 {{"h", {2, 9}}, {"w", {12, 12}}}},
        Channels{"by_place_in_a_block",
                 "y[c,h,w] = sum[d,r] x[d,w/4+3*inside(r+w%4-1,4),h] * k[c,r,d,w%4]",
                 {{"h", {2, 9}}, {"w", {12, 12}}, {"r", {3, 3}}}},
        Channels{"by_row", "y[c,h,w] = sum[d] x[d,w,(h+1)%8] * k[c,d,h]", {{"h", {8, 8}}, {"w", {6, 30}}}},
        Channels{"by_block_of_rows",
                 "y[n,c,h,w] = sum[d] x[n,d,w,h] * k[d,c,h/4]",
                 {{"n", {1, 2}}, {"h", {8, 8}}, {"w", {2, 12}}}},
        Channels{"plain",
                 "y[c,h,w] = sum[d,r,s] x[d,h+r-1,w+s-1] * k[c,d,r,s]",
                 {{"h", {1, 6}}, {"w", {3, 14}}, {"r", {3, 3}}, {"s", {3, 3}}}},
        Channels{"transposed",
                 "y[c,h] = sum[d,r] x[d,(h+1-r)/2 + inside((h+1-r)%2,1)] * k[d,c,r]",
                 {{"h", {10, 16}}, {"r", {2, 4}}}},
        Channels{"transposed_image",
                 "y[c,h,w] = sum[d,r,s] x[d,(h+1-r)/2 + inside((h+1-r)%2,1),(w-s)/3 + inside((w-s)%3,1)] * "
                 "k[d,c,r,s]",
                 {{"h", {6, 9}}, {"r", {2, 5}}, {"w", {7, 13}}, {"s", {3, 7}}}},
        Channels{"small_images",
                 "y[n,c,h,w] = sum[d,r,s] x[n,d,h+r-1,w+s-1] * k[c,d,r,s]",
                 {{"n", {2, 9}}, {"h", {1, 3}}, {"w", {2, 4}}, {"r", {3, 3}}, {"s", {3, 3}}}},
        Channels{
            "transposed_small_images",
            "y[n,c,h,w] = sum[d,r,s] x[n,d,(h+1-r)/2 + inside((h+1-r)%2,1),(w-s)/3 + inside((w-s)%3,1)] * "
            "k[d,c,r,s]",
            {{"n", {2, 9}}, {"h", {2, 5}}, {"r", {2, 4}}, {"w", {7, 9}}, {"s", {3, 5}}}},
        Channels{"small_blocks_of_a_batch",
                 "y[m,n,c,h,w] = sum[d] x[n,d,w,h,m] * k[c,d,h/2]",
                 {{"m", {2, 3}}, {"n", {2, 5}}, {"h", {4, 4}}, {"w", {2, 3}}}},
        Channels{"of_a_group",
                 "y[c,e,r] = sum[h,d] x[e,h+r-1,d] * k[c+40*(e/4),h,d]",
                 {{"e", {8, 8}}, {"h", {5, 9}}, {"r", {3, 3}}, {"c", {40, 40}}}},
        Channels{"of_turns",
                 "y[c,e,r] = sum[h,d] x[e+r-1,h,d] * k[c+24*(e%2),h,d]",
                 {{"e", {12, 12}}, {"h", {5, 9}}, {"r", {3, 3}}, {"c", {24, 24}}}},
        Channels{"rows_outside", "y[h,c,w] = sum[d] x[w,h,d] * k[d,c]", {{"h", {2, 5}}, {"w", {2, 20}}}}),
    [](const auto& info) { return std::string(info.param.name); });

/// A panel of the packed weights is one run of memory, whatever the places are that pick it.
TEST(AlongChannels, PackedWeightsLieInTheOrderTheyAreReadIn) {
  const auto p = program::parse("y[c,h,w] = sum[d] x[d,h,w] * k[c,d,w]",
                                {.sizes = {{"c", 64}, {"h", 7}, {"w", 7}, {"d", 64}}});
  const Policy channels = [](const Construction&, const std::string&, const Sketches& sketches) {
    const auto found = std::find_if(sketches.begin(), sketches.end(), [](const Sketch& sketch) {
      return sketch.name.starts_with("along_channels/0");
    });
    return Choosing{static_cast<std::size_t>(found - sketches.begin()), found->counted};
  };
  const Schedule schedule = construct(p, Dtype::F32, Target{}, channels, {"k"});
  const auto parts = apply_prepacked(p, schedule);
  ASSERT_TRUE(parts.has_value()) << to_text(schedule);
  const auto packed = std::find_if(parts->call.buffers.begin(), parts->call.buffers.end(),
                                   [](const Buffer& buffer) { return buffer.name == "k_pack"; });
  ASSERT_NE(packed, parts->call.buffers.end()) << to_text(schedule);
  ASSERT_EQ(packed->extents.size(), 4U);
  EXPECT_EQ(packed->extents[0], 7) << "places outside";
  EXPECT_EQ(packed->extents[1], 64 / packed->extents[3]) << "blocks of channels for each of them";
  EXPECT_EQ(packed->extents[2], 64) << "the sum inside";
}

/// Taps that an outer loop chooses every second of are two dimensions: which, and the taps of each.
TEST(AlongChannels, PackedWeightsOfAPhaseLieTogether) {
  const auto packed = [](const std::string& index, std::int64_t taps) {
    const auto p = program::parse(fmt::format("y[c,h] = sum[d,r] x[d,{}] * k[d,c,r]", index),
                                  {.sizes = {{"c", 64}, {"h", 36}, {"d", 64}, {"r", taps}}});
    const Policy channels = [](const Construction&, const std::string&, const Sketches& sketches) {
      const auto found = std::find_if(sketches.begin(), sketches.end(), [](const Sketch& sketch) {
        return sketch.name.starts_with("along_channels");
      });
      if (found == sketches.end()) return Choosing{0, sketches[0].counted};
      return Choosing{static_cast<std::size_t>(found - sketches.begin()), found->counted};
    };
    const Schedule schedule = construct(p, Dtype::F32, Target{}, channels, {"k"});
    const auto parts = apply_prepacked(p, schedule);
    EXPECT_TRUE(parts.has_value()) << to_text(schedule);
    for (const Buffer& buffer : parts->call.buffers)
      if (buffer.name == "k_pack") {
        std::vector<std::int64_t> around(buffer.extents.begin(), buffer.extents.end() - 1);
        around.erase(std::find(around.begin(), around.end(), 64 / buffer.extents.back()));  // blocks
        return around;
      }
    return std::vector<std::int64_t>{};
  };
  using Extents = std::vector<std::int64_t>;
  const auto strided = [](std::int64_t pad, std::int64_t stride) {
    return fmt::format("(h+{0}-r)/{1} + inside((h+{0}-r)%{1},1)", pad, stride);
  };
  EXPECT_EQ(packed(strided(1, 2), 4), (Extents{2, 64, 2}));
  EXPECT_EQ(packed(strided(0, 2), 4), (Extents{2, 64, 2}));
  EXPECT_EQ(packed(strided(0, 2), 3), (Extents{2, 64, 2})) << "a tap that is not there";
  EXPECT_EQ(packed(strided(0, 3), 6), (Extents{3, 64, 2}));
  EXPECT_EQ(packed("h+1-r", 4), (Extents{64, 4})) << "all of them, one after the other";
}

/// Images of which a tile holds more than one share the weights it loads.
TEST(AlongChannels, SmallImagesOfABatchAreJoined) {
  struct Small {
    const char* text;
    std::int64_t size;   // of an image, each way
    std::string sketch;  // that has rows of several images
  };
  for (const Small& small :
       {Small{"y[n,c,h,w] = sum[d,r,s] x[n,d,h+r-1,w+s-1] * k[c,d,r,s]", 2, "along_channels/1/joined/2"},
        Small{"y[n,c,h,w] = sum[d,r,s] x[n,d,(h+1-r)/2+inside((h+1-r)%2,1),(w+1-s)/2+inside((w+1-s)%2,1)] * "
              "k[d,c,r,s]",
              4, "along_channels/1/joined"}}) {
    program::ParseOptions options{.sizes = {{"n", 8}, {"c", 64}, {"d", 32}, {"r", 4}, {"s", 4}}};
    for (const char* size : {"h", "w"}) options.sizes.emplace(size, small.size);
    const auto p = program::parse(small.text, options);
    std::string chosen;
    std::int64_t rows = 0;
    const Policy counted = [&](const Construction& c, const std::string& scope, const Sketches& sketches) {
      const Choosing choice = fewest_cycles(c, scope, sketches);
      chosen = sketches[choice.sketch].name;
      rows = choice.numbers.rows;
      return choice;
    };
    const Schedule schedule = construct(p, Dtype::F32, Target{}, counted, {"k"});
    EXPECT_EQ(chosen, small.sketch);
    EXPECT_GT(rows, 4) << "an image has four rows of channels, or four of each phase";
    const auto parts = apply_prepacked(p, schedule);
    ASSERT_TRUE(parts.has_value()) << to_text(schedule);
    Random random(11);
    expect_same_prepacked(p, *parts, random_arguments(p, random), to_text(schedule));
  }
}

/// Rows of a small image fill a tile together, whole rows at a time: where their parts lie is known.
TEST(AlongChannels, FewRowsAreJoinedWithTheLoopAroundThem) {
  for (const std::int64_t width : {5, 7, 11}) {
    const auto p =
        program::parse("y[c,h,w] = sum[d,r,s] x[d,h+r-1,w+s-1] * k[c,d,r,s]",
                       {.sizes = {{"c", 128}, {"h", 7}, {"w", width}, {"d", 64}, {"r", 3}, {"s", 3}}});
    bool found = false;
    const Policy joined = [&](const Construction& c, const std::string& scope, const Sketches& sketches) {
      for (std::size_t i = 0; i < sketches.size(); ++i) {
        if (sketches[i].name != "along_channels/0/joined") continue;
        found = true;
        for (const std::int64_t rows : sketches[i].choices[0].values)
          EXPECT_TRUE(rows % width == 0 || width % rows == 0) << rows << " rows of " << width;
        Choosing choice{i, sketches[i].counted};
        choice.numbers.rows = 2 * width;
        choice.numbers.vectors = 1;
        return choice;
      }
      return fewest_cycles(c, scope, sketches);
    };
    const Schedule schedule = construct(p, Dtype::F32, Target{}, joined, {"k"});
    EXPECT_TRUE(found);
    const auto parts = apply_prepacked(p, schedule);
    ASSERT_TRUE(parts.has_value()) << to_text(schedule);
    const std::string text = to_text(parts->call);
    EXPECT_NE(text.find(fmt::format("register y_tile_acc: f32[{}, 16]", 2 * width)), std::string::npos)
        << text;
    Random random(7);
    expect_same_prepacked(p, *parts, random_arguments(p, random), to_text(schedule));
  }
}

/// What is computed inside a loop counts: a small result of a long sum is worth several threads.
TEST(AlongChannels, BlocksOfChannelsRunOnSeveralThreads) {
  const auto parallel = [](std::int64_t channels, std::int64_t depth) {
    const auto p =
        program::parse("y[c,h,w] = sum[d,r,s] x[d,h+r-1,w+s-1] * k[c,d,r,s]",
                       {.sizes = {{"c", channels}, {"h", 14}, {"w", 14}, {"d", depth}, {"r", 3}, {"s", 3}}});
    const Schedule schedule = default_schedule(p, Dtype::F32, Target{}, {"k"});
    return std::any_of(schedule.trace.begin(), schedule.trace.end(), [](const Decision& decision) {
      return decision.name == "parallel" && decision.scope == "y";
    });
  };
  EXPECT_TRUE(parallel(256, 256));
  EXPECT_FALSE(parallel(16, 1));
}

/// Packing inside the loop over places would read one element of each run of them.
TEST(AlongChannels, PacksWhatLiesTogetherAtOnce) {
  const auto p = program::parse("y[c,h,w] = sum[d] x[d,h,w] * k[c,d,w]",
                                {.sizes = {{"c", 512}, {"h", 7}, {"w", 7}, {"d", 512}}});
  const Policy channels = [](const Construction& c, const std::string& scope, Sketches sketches) {
    for (Sketch& sketch : sketches)
      if (!sketch.name.starts_with("along_channels")) sketch.cycles *= 1e9;
    return fewest_cycles(c, scope, sketches);
  };
  const Schedule schedule = construct(p, Dtype::F32, Target{}, channels);
  bool packed = false;
  for (const Decision& decision : schedule.trace) {
    packed = packed || (decision.name == "stage" && decision.words == std::vector<std::string>{"k_pack"});
    EXPECT_FALSE(decision.name == "compute_at" && decision.scope == "k_pack" && decision.tensor == "y_tile")
        << to_text(schedule);
  }
  EXPECT_TRUE(packed) << to_text(schedule);
}

/// Weights that the second cache cannot hold pass by once, a panel for all rows; others go round for each
/// row.
TEST(AlongChannels, PanelsOfFarWeightsAreReadForAllRows) {
  const char* const text = "y[h,w,c] = sum[d,r,s] x[h+r-1,w+s-1,d] * k[c,d,r,s]";
  Random random(89);
  for (const bool far : {false, true})
    for (const std::int64_t size : {7, 20}) {
      const auto p = program::parse(
          text, {.sizes = {{"h", size}, {"w", size}, {"c", 48}, {"d", 16}, {"r", 3}, {"s", 3}}});
      Target target;
      target.l2_bytes = far ? 32 << 10 : 1 << 20;
      const Policy channels = [size](const Construction&, const std::string&, const Sketches& sketches) {
        Choosing choice;
        for (std::size_t i = 0; i < sketches.size(); ++i)
          if (sketches[i].name.starts_with("along_channels/2")) choice = {i, sketches[i].counted};
        choice.numbers.vectors = 1;
        if (size == 7) choice.numbers.rows = 14;  // two rows of the image
        choice.numbers.steps = 0;
        return choice;
      };
      const Schedule schedule = construct(p, Dtype::F32, target, channels, {"k"});
      const auto parts = apply_prepacked(p, schedule);
      ASSERT_TRUE(parts.has_value()) << to_text(schedule);
      const std::string nest = to_text(parts->call);
      const std::size_t panels = nest.find("for c_o"), rows = nest.find(size == 7 ? "for h_w_o" : "for h");
      ASSERT_NE(panels, std::string::npos) << nest;
      ASSERT_NE(rows, std::string::npos) << "few rows are joined\n" << nest;
      EXPECT_EQ(panels < rows, far || size == 7) << nest;
      expect_same_prepacked(p, *parts, random_arguments(p, random), to_text(schedule));
      // Weights that change are packed a panel at a time where panels pass by once.
      const Schedule changing = construct(p, Dtype::F32, target, channels);
      const bool apart = std::any_of(changing.trace.begin(), changing.trace.end(), [](const Decision& d) {
        return d.name == "compute_at" && d.scope == "k_pack";
      });
      EXPECT_EQ(apart, far) << to_text(changing);
      expect_same(p, apply(p, changing), random_arguments(p, random), to_text(changing));
    }
}

/// A part of a panel serves one row after the other, or all rows before the next part comes.
TEST(AlongChannels, PartsOfPanelsAreReadForAllRows) {
  const auto p = program::parse("y[c,h,w] = sum[d,r,s] x[d,h+r-1,w+s-1] * k[c,d,r,s]",
                                {.sizes = {{"c", 40}, {"h", 5}, {"w", 14}, {"d", 32}, {"r", 3}, {"s", 3}}});
  Random random(90);
  for (const std::int64_t all : {0, 1}) {
    const Policy channels = [&](const Construction&, const std::string&, const Sketches& sketches) {
      const auto found = std::find_if(sketches.begin(), sketches.end(),
                                      [](const Sketch& sketch) { return sketch.name == "along_channels/0"; });
      EXPECT_TRUE(std::any_of(found->choices.begin(), found->choices.end(),
                              [](const Choice& choice) { return choice.name == "vectors_outer"; }));
      Choosing choice{static_cast<std::size_t>(found - sketches.begin()), found->counted};
      choice.numbers.steps = 72;
      choice.numbers.vectors = 2;
      choice.numbers.vectors_outer = all;
      return choice;
    };
    const Schedule schedule = construct(p, Dtype::F32, Target{256, 16, 1}, channels, {"k"});
    const auto parts = apply_prepacked(p, schedule);
    ASSERT_TRUE(parts.has_value()) << to_text(schedule);
    const std::string nest = to_text(parts->call);
    const std::size_t rows = nest.find("for h"), part = nest.find("for d_o");
    ASSERT_NE(rows, std::string::npos) << nest;
    ASSERT_NE(part, std::string::npos) << nest;
    EXPECT_EQ(part < rows, all == 1) << nest;
    expect_same_prepacked(p, *parts, random_arguments(p, random), to_text(schedule));
  }
}

/// Channels of a group are cut into blocks, too: a panel serves all rows, not one row all panels. Blocks that
/// do not divide a group stay in it, and so do rows that are computed together while the panels of a group
/// are near.
TEST(AlongChannels, PanelsOfGroupsAreReadForAllRows) {
  struct ChannelsCase {
    const char* text;
    std::int64_t channels, size, l2_bytes;
    bool cut;
  };
  const char* const square = "y[c,h,w] = sum[d,r,s] x[16*(c/48)+d,h+r-1,w+s-1] * k[c,d,r,s]";
  const char* const strided = "y[c,h,w] = sum[d,r,s] x[16*(c/48)+d,2*h+r-1,2*w+s-1] * k[c,d,r,s]";
  const char* const upright = "y[c,h,w] = sum[r,d] x[16*(c/48)+d,w+r-1,h] * k[c,r,d]";
  const char* const uneven = "y[c,h,w] = sum[d,r,s] x[16*(c/40)+d,h+r-1,w+s-1] * k[c,d,r,s]";
  const std::int64_t large = 1 << 20;
  const Policy channels = [](const Construction&, const std::string&, const Sketches& sketches) {
    Choosing choice;
    for (std::size_t i = 0; i < sketches.size(); ++i)
      if (sketches[i].name == "along_channels/1") choice = {i, sketches[i].counted};
    choice.numbers.rows = std::min<std::int64_t>(choice.numbers.rows, 4);
    choice.numbers.vectors = 1;
    choice.numbers.steps = 0;
    return choice;
  };
  Random random(97);
  for (const ChannelsCase& each :
       {ChannelsCase{square, 96, 9, large, true}, ChannelsCase{strided, 96, 5, large, true},
        ChannelsCase{upright, 96, 7, large, false}, ChannelsCase{upright, 96, 7, 4 << 10, true},
        ChannelsCase{uneven, 80, 9, large, false}}) {
    program::ParseOptions options;
    options.sizes = {{"c", each.channels}, {"h", each.size}, {"w", each.size}, {"d", 16}, {"r", 3}};
    if (each.text != upright) options.sizes.insert_or_assign("s", 3);
    const auto p = program::parse(each.text, options);
    Target target;
    target.l2_bytes = each.l2_bytes;
    const Schedule schedule = construct(p, Dtype::F32, target, channels, {"k"});
    const auto parts = apply_prepacked(p, schedule);
    ASSERT_TRUE(parts.has_value()) << to_text(schedule);
    const std::string nest = to_text(parts->call);
    // What is computed before it is copied out: all channels, or those of a block.
    const auto tile = std::find_if(parts->call.buffers.begin(), parts->call.buffers.end(),
                                   [](const Buffer& buffer) { return buffer.name == "y_tile"; });
    ASSERT_NE(tile, parts->call.buffers.end()) << nest;
    EXPECT_EQ(tile->extents.back() == 16, each.cut) << each.text << "\n" << nest;
    expect_same_prepacked(p, *parts, random_arguments(p, random), to_text(schedule));
    const Schedule changing = construct(p, Dtype::F32, target, channels);
    expect_same(p, apply(p, changing), random_arguments(p, random), to_text(changing));
  }
}

/// Lanes need a dimension of the packed operand for themselves.
TEST(AlongChannels, RefusesChannelsThatShareTheirDimension) {
  for (const char* text : {"y[c,h] = sum[d] x[d,h] * k[c+h,d]", "y[c,h] = sum[d] x[d,h] * k[2*c+h,d]",
                           "y[c,h] = sum[d] x[d,c] * k[c,d]"}) {
    const auto p = program::parse(text, {.sizes = {{"c", 32}, {"h", 8}, {"d", 4}}});
    Construction c(p, Dtype::F32, Target{});
    Sketches sketches;
    along_channels(c, "y", facts_of(c, "y"), sketches);
    EXPECT_TRUE(std::none_of(sketches.begin(), sketches.end(), [](const Sketch& s) {
      return s.name == "along_channels/0";
    })) << text;
  }
}

}  // namespace
}  // namespace syno::construct
