// The search in EINNET's space: what it finds, that more depth loses nothing, that each program it gives back
// computes what the given one does; which operator a product is, and which it is not.
#include "derive/einnet.hpp"

#include <gtest/gtest.h>

#include <set>

#include "derive/checking.hpp"
#include "program/builders.hpp"

namespace syno::derive {
namespace {

using namespace testing;

program::ConvAttributes convolution(std::int64_t channels, std::int64_t out, std::int64_t size,
                                    std::int64_t taps) {
  program::ConvAttributes a;
  a.in_channels = channels;
  a.out_channels = out;
  a.in_size = {size, size};
  a.kernel = {taps, taps};
  a.pad_begin = a.pad_end = {taps / 2, taps / 2};
  return a;
}

Program transposed(std::int64_t batch, std::int64_t channels, std::int64_t out, std::int64_t size) {
  program::ConvAttributes a = convolution(channels, out, size, 4);
  a.batch = batch;
  a.stride = {2, 2};
  a.pad_begin = a.pad_end = {1, 1};
  return program::conv_transposed(a);
}

EinnetFound found(const Program& p, const std::string& target, int depth) {
  EinnetOptions options;
  options.target = target;
  options.depth = depth;
  return search_einnet(p, options);
}

/// Whether every program given back computes what `p` does, is what its steps make, and is labelled.
void expect_equal_programs(const Program& p, const EinnetFound& result) {
  ASSERT_EQ(result.found.derivations.size(), result.labels.size());
  for (std::size_t i = 1; i < result.labels.size(); ++i) {
    const Derivation& each = result.found.derivations[i];
    EXPECT_EQ(difference(p, each.program, Random(i)), "") << program::to_text(each.program);
    EXPECT_NE(result.labels[i], "");
    Program again = tidy(p);
    for (const Step& step : each.steps)
      if (step.row == kEinnetStep)
        apply_einnet(again, step.site);
      else
        again = tidy(applied(rewrite_named(step.row), again, step.site));
    EXPECT_EQ(program::to_text(again), program::to_text(each.program));
  }
}

TEST(Einnet, FindsThePapersTargetsAtSmallSizes) {
  struct Case {
    Program program;
    const char* target;
    const char* label;
    int depth;
  };
  const Case cases[] = {
      {program::conv(convolution(4, 4, 5, 3)), "matmul", "matmul m 25", 4},
      {transposed(2, 3, 4, 2), "matmul", "matmul m 8", 4},
      {program::conv(convolution(2, 1, 6, 5)), "conv:kernel=3,dilation=1", "conv, kernel 3x3", 7},
      {program::g2bmm(2, 16, 3, 2, 4), "g2bmm:dilation=1", "g2bmm, b 8, m 4", 4},
  };
  for (const Case& each : cases) {
    const EinnetFound result = found(each.program, each.target, each.depth);
    EXPECT_GE(result.target_depth, 1) << each.target << " " << result.missing;
    EXPECT_LE(result.target_depth, each.depth);
    EXPECT_EQ(result.nearest, 0);
    ASSERT_GE(result.labels.size(), 2U) << each.target;
    EXPECT_EQ(result.labels[1].rfind(each.label, 0), 0U) << result.labels[1];
    expect_equal_programs(each.program, result);
  }
}

TEST(Einnet, FindsThePapersTargetsAtThePapersSizes) {
  const auto expect = [](const Program& p, const std::string& target, int depth) {
    const EinnetFound result = found(p, target, depth);
    EXPECT_GE(result.target_depth, 1) << target << " " << result.missing;
    EXPECT_EQ(result.found.ended, Ended::Exhausted);
    EXPECT_EQ(result.levels.size(), static_cast<std::size_t>(depth) + 1);
  };
  expect(program::conv(convolution(512, 512, 7, 3)), "matmul", 7);
  expect(transposed(16, 448, 256, 2), "matmul", 5);
  program::ConvAttributes five = convolution(32, 1, 224, 5);
  five.batch = 16;
  expect(program::conv(five), "conv:kernel=3,dilation=1", 7);
  expect(program::g2bmm(8, 10000, 64, 1000, 4), "g2bmm:dilation=1", 5);
}

TEST(Einnet, LosesNothingWithMoreDepth) {
  const Program p = program::conv(convolution(4, 4, 5, 3));
  EinnetFound last;
  for (int depth = 0; depth <= 6; ++depth) {
    EinnetFound next = found(p, "any", depth);
    ASSERT_EQ(next.levels.size(), static_cast<std::size_t>(depth) + 1);
    for (std::size_t d = 0; d < last.levels.size(); ++d) {
      EXPECT_EQ(next.levels[d].states, last.levels[d].states);
      EXPECT_EQ(next.levels[d].candidates, last.levels[d].candidates);
    }
    EXPECT_GT(next.found.states, last.found.states);
    last = std::move(next);
  }
}

TEST(Einnet, ConvergesWhereExploringEnds) {
  const struct {
    Program program;
    const char* target;
    int depth;  // the least that explores the target
  } cases[] = {{program::conv(convolution(4, 4, 5, 3)), "matmul", 3},
               {transposed(2, 3, 4, 2), "matmul", 3},
               {program::conv(convolution(2, 1, 6, 5)), "conv:kernel=3,dilation=1", 5},
               {program::g2bmm(2, 16, 3, 2, 4), "g2bmm:dilation=1", 2}};
  for (const auto& each : cases) {
    EinnetOptions options;
    options.target = each.target;
    options.depth = each.depth - 1;
    options.keep = 100000;
    const EinnetFound explored = search_einnet(each.program, options);
    EXPECT_EQ(explored.target_depth, -1) << each.target;
    EXPECT_EQ(explored.converged, 0);
    options.converging = 2;
    const EinnetFound converged = search_einnet(each.program, options);
    EXPECT_EQ(converged.target_depth, each.depth) << each.target;
    EXPECT_GT(converged.converged, 0);
    EXPECT_EQ(converged.found.states - converged.converged, explored.found.states);
    EXPECT_EQ(converged.levels.size(), explored.levels.size());
    expect_equal_programs(each.program, converged);
    // What it goes to is what more exploring sees, at a part of the states; exploring further loses none.
    options.converging = 0;
    options.depth = each.depth + 1;
    const EinnetFound all = search_einnet(each.program, options);
    EXPECT_LT(converged.found.states, all.found.states);
    std::set<Hash128> keys;
    for (const Derivation& one : all.found.derivations) keys.insert(one.key);
    for (const Derivation& one : converged.found.derivations)
      EXPECT_EQ(keys.count(one.key), 1U) << program::to_text(one.program);
  }
}

TEST(Einnet, ReachesWithTheKeyWhatItReachesWithout) {
  for (const char* text : {"y[o: 4,h: 5] = sum[c: 4,r: 3] x[c,h+r-1] * k[o,c,r]",
                           "y[b: 2,m: 8,w: 3] = sum[k: 4] p[b,m,k] * q[b,m+4*w-4,k]"}) {
    const Program p = program::parse(text);
    EinnetOptions options;
    options.depth = 4;
    options.keep = 100000;
    options.target = "any";
    const EinnetFound once = search_einnet(p, options);
    options.key = false;
    const EinnetFound often = search_einnet(p, options);
    EXPECT_GT(often.found.states, once.found.states);
    EXPECT_EQ(often.found.repeats, 0);
    std::set<Hash128> keys, all;
    for (const Derivation& each : once.found.derivations) keys.insert(each.key);
    for (const Derivation& each : often.found.derivations) all.insert(each.key);
    EXPECT_EQ(keys, all) << text;
  }
}

TEST(Einnet, TellsApartWhatTheAuthorsHashMistakes) {
  // The same ranges, the window turned: EINNET's fingerprint is the same for both.
  packed::Packed one =
      packed::pack(program::parse("y[h: 5,w: 5] = sum[r: 3,s: 3] x[h+r-1,w+s-1] * k[r,s]"), 0);
  packed::Packed other =
      packed::pack(program::parse("y[h: 5,w: 5] = sum[r: 3,s: 3] x[h+r-1,w+s-1] * k[s,r]"), 0);
  std::vector<std::uint8_t> a, b;
  packed::write(one.space->given, a);
  packed::write(other.space->given, b);
  EXPECT_NE(a, b);
  const packed::State again = packed::read(a.data());
  packed::write(again, b);
  EXPECT_EQ(a, b);
}

TEST(Einnet, SaysHowNearItCame) {
  const EinnetFound result = found(program::conv(convolution(4, 4, 5, 3)), "g2bmm", 3);
  EXPECT_EQ(result.target_depth, -1);
  EXPECT_EQ(result.candidates, 0);
  EXPECT_GT(result.nearest, 0);
  EXPECT_NE(result.missing.find("g2bmm: "), std::string::npos) << result.missing;
  EXPECT_EQ(result.found.derivations.size(), 1U);
}

TEST(Einnet, SaysWhyAProgramIsRefused) {
  const auto reason = [](const char* text) {
    try {
      found(program::parse(text), "any", 1);
    } catch (const ScheduleError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(reason("y[i: 4] = max[k: 3] a[i,k] * b[k]").find("'y': it does not add up"), std::string::npos);
  EXPECT_NE(reason("y[i: 4] = sum[k: 3] exp(a[i,k]) * b[k]").find("no element"), std::string::npos);
  EXPECT_NE(reason("y[i: 4] = sum[k: 3] a[i,k]").find("multiplies no two"), std::string::npos);
  EXPECT_THROW(found(program::matmul(3, 4, 5), "matmull", 1), UnknownName);
  EXPECT_THROW(found(program::matmul(3, 4, 5), "conv:kernels=3", 1), UnknownName);
  EXPECT_THROW(found(program::matmul(3, 4, 5), "conv:kernel=3y", 1), ParseError);
  EXPECT_THROW(found(program::matmul(3, 4, 5), "matmul:kernel=3", 1), ParseError);
}

TEST(Einnet, RefusesMovesThatDoNotApply) {
  Program p = program::conv(convolution(4, 4, 5, 3));
  for (const std::vector<std::int64_t>& numbers : std::vector<std::vector<std::int64_t>>{{9, 0, 0, 0},
                                                                                         {0, 0, 0},
                                                                                         {0, 0, 0, 0},
                                                                                         {0, 0, 0, 7},
                                                                                         {1, 0, 0, 1},
                                                                                         {1, 0, 9, 1},
                                                                                         {2, 60, 61, 0},
                                                                                         {3, 0, 0, 9},
                                                                                         {5, 0, 0, 9},
                                                                                         {6, 0, 0, 3},
                                                                                         {-1, 0, 0, 0},
                                                                                         {1, 0, 1, 1 << 30}})
    EXPECT_THROW(apply_einnet(p, {"y", "", "", "", numbers}), ScheduleError);
  EXPECT_THROW(apply_einnet(p, {"z", "", "", "", {}}), Error);
}

/// The labels of a program as it is given.
std::vector<packed::Label> labels(const std::string& text, const std::string& target = "any") {
  const packed::Packed made = packed::pack(program::parse(text), 0);
  EXPECT_TRUE(made.space) << made.reason;
  return packed::labels_of(*made.space, made.space->given, packed::parse_target(target));
}

std::string only(const std::string& text, const std::string& target = "any") {
  const auto found = labels(text, target);
  return found.size() == 1 ? found.front().text : std::to_string(found.size()) + " labels";
}

TEST(Labels, SayWhatAProductIs) {
  EXPECT_EQ(only("y[i: 3,j: 4] = sum[k: 5] a[i,k] * b[k,j]"),
            "matmul m 3 n 4 k 5, a as it lies, transposed a 0, leading dimension a 5, b as it lies, "
            "transposed b 0, "
            "leading dimension b 4");
  EXPECT_NE(only("y[i: 3,j: 4] = sum[k: 5] a[k,i] * b[j,k]").find("transposed b 1"), std::string::npos);
  EXPECT_NE(only("y[g: 2,i: 3,j: 4] = sum[k: 5] a[g,i,k] * b[g,k,j]").find("batch step a 15"),
            std::string::npos);
  // The first of a's rows and columns is left out: an offset, no copy.
  EXPECT_NE(only("input a[4,6]\ny[i: 3,j: 4] = sum[k: 5] a[i+1,k+1] * b[k,j]\nreturn y").find("offset a 7"),
            std::string::npos);
  EXPECT_EQ(only("y[o: 4,h: 5,w: 6] = sum[c: 2,r: 3,s: 3] x[c,2*h+r-1,2*w+2*s] * k[o,c,r,s]", "conv")
                .rfind("conv, kernel 3x3, stride 2x2, dilation", 0),
            0U);
  EXPECT_NE(only("y[g: 2,o: 3,h: 9] = sum[c: 4,r: 3] x[4*g+c,h+r] * k[g,o,c,r]", "conv").find("groups 2"),
            std::string::npos);
  EXPECT_NE(only("y[b: 2,m: 9,w: 5] = sum[k: 3] p[b,m,k] * q[b,m+2*w-4,k]")
                .find("g2bmm, b 2, m 9, w 5, k 3, dilation 2"),
            std::string::npos);
}

TEST(Labels, AreNotGivenToWhatIsSomethingElse) {
  EXPECT_TRUE(labels("y[i: 3,j: 4] = sum[k: 5] a[i,k] * b[k,j] * c[k]").empty());       // three tensors
  EXPECT_TRUE(labels("y[i: 3] = sum[k: 5] a[i,k] * b[i,k]").empty());                   // no columns
  EXPECT_TRUE(labels("y[i: 3,j: 4] = sum[k: 5] a[i+k] * b[k,j]", "matmul").empty());    // slides
  EXPECT_TRUE(labels("y[i: 3,j: 4] = sum[k: 6] a[i,k/2] * b[k,j]", "matmul").empty());  // read twice
  EXPECT_TRUE(labels("y[g: 2,i: 3,j: 4] = sum[k: 5] a[g,i,k] * b[g,k,j]", "matmul").empty());
  EXPECT_TRUE(labels("y[i: 3,j: 4] = sum[k: 5] a[i,k] * b[k,j]", "bmm").empty());
  EXPECT_TRUE(labels("y[i: 3,j: 4] = sum[k: 5] a[i,k] * b[k,j]", "conv").empty());
  EXPECT_TRUE(labels("y[o: 4,h: 5] = sum[c: 2,r: 3] x[c,h+r-1] * k[o,c,r]", "conv:kernel=5").empty());
  EXPECT_TRUE(labels("y[b: 2,m: 9,w: 5] = sum[k: 3] p[b,m,k] * q[b,m+2*w-4,k]", "g2bmm:dilation=1").empty());
}

}  // namespace
}  // namespace syno::derive
