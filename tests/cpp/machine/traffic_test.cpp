// What predictions say that moves between memory and caches, against caches that are simulated: loops cut in
// parts that share memory, lie beside each other, within each other, or apart.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "machine/cache_simulation.hpp"
#include "machine/footprint.hpp"
#include "machine/predict.hpp"
#include "support/random.hpp"

namespace syno::machine {
namespace {

/// Caches of 4 KiB, 32 KiB and 256 KiB, in sets large enough that lines do not push each other out.
Machine three_levels() {
  Machine machine;
  machine.vector_bits = 512;
  machine.levels = {{"L1", 4 << 10, 1, 64, 64, 1, 200, 100},
                    {"L2", 32 << 10, 1, 64, 512, 5, 100, 100},
                    {"L3", 256 << 10, 1, 64, 4096, 15, 80, 80},
                    {"memory", 1 << 30, 1, 64, 0, 100, 20, 20}};
  return machine;
}

/// Predicted lines that come into the cache of a level over those simulated.
double ratio(const nest::LoopNest& nest, std::size_t level) {
  const Machine machine = three_levels();
  const Prediction made = predict(nest, machine, {.threads = 1, .cold = true});
  double lines = 0;
  for (std::size_t l = level + 1; l < made.moved_bytes.size(); ++l) lines += made.moved_bytes[l] / 64;
  return lines / static_cast<double>(simulate_caches(nest, machine).misses[level]);
}

/// An image's places, flattened or not, cut into tiles and a rest, each part with accesses of its own; some
/// of them read windows, so that parts overlap.
std::string cut(Random& random) {
  const auto of = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(high - low + 1)));
  };
  const std::int64_t images = of(1, 12), channels = of(1, 12), taps = random.below(2) ? 1 : of(2, 3);
  const std::int64_t places = of(40, 400), parts = of(1, 4), stride = of(1, 2);
  const std::int64_t padded = places * stride + taps - 1;
  std::string text = fmt::format(
      "nest n\ninput x: f32[{0}, {1}, {3}]\noutput y: f32[{0}, {1}, {2}]\nfor n in 0..{0}\n  for c in "
      "0..{1}\n",
      images, channels, places, padded);
  std::int64_t begin = 0;
  for (std::int64_t part = 0; part < parts && begin < places; ++part) {
    const std::int64_t left = places - begin;
    const std::int64_t length = part + 1 == parts ? left : std::max<std::int64_t>(1, left / of(1, 3));
    text += fmt::format(
        "    for i in 0..{0}\n      y[n, c, i + {1}] = x[n, c, {2} * i + {3}]{4}\n", length, begin, stride,
        begin * stride,
        taps > 1 ? fmt::format(" + x[n, c, {} * i + {}]", stride, begin * stride + taps - 1) : "");
    begin += length;
  }
  return text;
}

TEST(PredictedTraffic, OfLoopsCutInPartsIsThatOfCaches) {
  Random random(7);
  std::vector<double> far;
  for (int i = 0; i < 300; ++i) {
    const std::string text = cut(random);
    const nest::LoopNest nest = nest::parse_loop_nest(text);
    for (const std::size_t level : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
      const double found = ratio(nest, level);
      EXPECT_GT(found, 0.85) << level << "\n" << text;
      EXPECT_LT(found, 1.6) << level << "\n" << text;
      if (level == 2) far.push_back(std::abs(std::log(found)));
    }
  }
  std::nth_element(far.begin(), far.begin() + static_cast<std::ptrdiff_t>(far.size() / 2), far.end());
  EXPECT_LT(far[far.size() / 2], 0.05);
}

/// Tiles of a product of matrices whose rows lie on pages of their own, or several on one, in any order of
/// its loops; a column of tiles is walked through again and again.
std::string tiles(Random& random) {
  const auto of = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(high - low + 1)));
  };
  const std::int64_t m = 4 * of(2, 30), n = 16 * of(1, 6), k = 8 * of(1, 14);
  const std::int64_t row = 128 * of(1, 4), rows = of(1, 2) * 2;
  std::vector<std::string> loops{fmt::format("m_o in 0..{}", m / rows), fmt::format("n_o in 0..{}", n / 16),
                                 fmt::format("k_o in 0..{}", k / 8)};
  for (std::size_t i = loops.size() - 1; i > 0; --i)
    std::swap(loops[i], loops[random.below(static_cast<std::uint64_t>(i + 1))]);
  std::string text =
      fmt::format("nest n\ninput a: f32[{0}, {3}]\ninput b: f32[{2}, {3}]\noutput y: f32[{0}, {3}]\n", m, n,
                  k, std::max({row, n, k}));
  std::string indent;
  for (const std::string& loop : loops) {
    text += fmt::format("{}for {}\n", indent, loop);
    indent += "  ";
  }
  return text +
         fmt::format(
             "{0}for k in 0..8\n{0}  for m in 0..{1} unroll\n{0}    for v in 0..16 vector\n{0}      "
             "y[{1} * m_o + m, 16 * n_o + v] += a[{1} * m_o + m, 8 * k_o + k] * b[8 * k_o + k, 16 * n_o "
             "+ v]\n",
             indent, rows);
}

TEST(PredictedTraffic, PageWalksAreThoseOfATlb) {
  Random random(11);
  std::vector<double> errors;
  int walked = 0;
  for (int i = 0; i < 120; ++i) {
    const std::string text = tiles(random);
    const nest::LoopNest nest = nest::parse_loop_nest(text);
    Machine machine = three_levels();
    machine.tlb = {static_cast<std::int64_t>(32 << random.below(2)), 512, 10};
    const Prediction made = predict(nest, machine, {.threads = 1, .cold = true});
    const auto simulated = [&](double share) {
      Machine less = machine;
      less.tlb.pages = static_cast<std::int64_t>(share * static_cast<double>(machine.tlb.pages));
      return static_cast<double>(simulate_caches(nest, less).page_walks);
    };
    if (made.page_walks == 0) {  // all fits, and stays
      double bytes = 0;
      for (const nest::Buffer& buffer : nest.buffers)
        bytes += static_cast<double>(4 * buffer.extents[0] * buffer.extents[1]);
      EXPECT_LT(bytes, 512.0 * static_cast<double>(machine.tlb.pages)) << text;
      continue;
    }
    ++walked;
    // Predictions take 0.8 of it for what it holds: no more walks than a smaller one has, no fewer than it
    // has.
    const double fewest = simulated(1), most = simulated(0.6);
    EXPECT_GT(made.page_walks, 0.7 * fewest) << most << "\n" << text;
    EXPECT_LT(made.page_walks, 1.6 * most) << fewest << "\n" << text;
    if (most < 1.1 * fewest) errors.push_back(std::abs(std::log(made.page_walks / fewest)));
    EXPECT_GT(made.walking_s, 0);
    Machine unknown = machine;
    unknown.tlb = {};
    EXPECT_NEAR(predict(nest, unknown, {.threads = 1, .cold = true}).seconds + made.walking_s, made.seconds,
                1e-9 * made.seconds);
  }
  EXPECT_GT(walked, 80);
  ASSERT_GT(errors.size(), 40);
  std::sort(errors.begin(), errors.end());
  EXPECT_LT(errors[errors.size() / 2], 0.1);
  EXPECT_LT(errors[errors.size() * 9 / 10], 0.2);
}

/// Halves of rows whose lines both touch, rows that overlap, a part within another one, parts apart.
TEST(PredictedTraffic, PartsAreToldApartByTheirLines) {
  const auto two = [](const char* first, const char* second) {
    return fmt::format(
        "nest n\ninput x: f32[512, 32]\noutput y: f32[512, 32]\nfor o in 0..512\n  for i in 0..8\n    y[o, "
        "i] = {}\n  for i in 0..8\n    y[o, i + 8] = {}\n",
        first, second);
  };
  for (const auto& [first, second] :
       std::vector<std::pair<const char*, const char*>>{{"x[o, i]", "x[o, i + 8]"},
                                                        {"x[o, i]", "x[o, i + 16]"},
                                                        {"x[o, i] + x[o, i + 1]", "x[o, i + 4]"},
                                                        {"x[o, 2 * i]", "x[o, i + 2]"},
                                                        {"x[o, i + 8]", "x[o, i]"},
                                                        {"x[511 - o, i]", "x[o, i + 20]"}}) {
    const nest::LoopNest nest = nest::parse_loop_nest(two(first, second));
    for (const std::size_t level : {std::size_t{1}, std::size_t{2}}) {
      EXPECT_GT(ratio(nest, level), 0.95) << first << "; " << second;
      EXPECT_LT(ratio(nest, level), 1.1) << first << "; " << second;
    }
  }
}

TEST(Footprints, StepsThatAreJoined) {
  const auto steps = [](std::vector<std::pair<double, double>> each) {
    Steps made;
    for (const auto& [step, width] : each) made.add(step, width);
    return made;
  };
  const auto lines = [&](Steps before, const Steps& own, double ahead) {
    EXPECT_TRUE(join(before, own, ahead));
    return lines_of(before, 16);
  };
  const Steps rows = steps({{1, 14}, {14, 8}, {196, 100}});
  EXPECT_NEAR(lines(rows, steps({{1, 14}, {14, 6}, {196, 100}}), 112), 100 * 196 / 16.0, 1);
  EXPECT_NEAR(lines_of(rows, 16), 100 * 7.5, 1);
  // Within it.
  EXPECT_EQ(lines(rows, steps({{1, 14}, {14, 3}}), 196 * 50 + 14 * 2), lines_of(rows, 16));
  // Beside it, apart.
  EXPECT_NEAR(lines(steps({{1, 160}}), steps({{1, 160}}), 1 << 20), 2 * lines_of(steps({{1, 160}}), 16), 1);
  Steps full;
  for (int i = 1; i <= 16; ++i) EXPECT_TRUE(full.add(i, 2));
  EXPECT_FALSE(full.add(100, 2));
  EXPECT_FALSE(join(full, steps({{50, 2}}), 0));
  EXPECT_TRUE(full.add(7, 5));
  EXPECT_EQ(full.find(7)->second, 6);
}

}  // namespace
}  // namespace syno::machine
