// What is counted of rounding errors, against errors that were made.
#include "derive/roughness.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "derive/search.hpp"
#include "derive/tools.hpp"
#include "program/text.hpp"
#include "support/random.hpp"

namespace syno::derive {
namespace {

std::vector<double> times(const Matrix& matrix, const std::vector<double>& vector, bool rounded) {
  std::vector<double> product;
  for (const auto& row : matrix) {
    double sum = 0;
    for (std::size_t a = 0; a < row.size(); ++a) {
      sum += row[a].to_double() * vector[a];
      if (rounded) sum = static_cast<double>(static_cast<float>(sum));
    }
    product.push_back(sum);
  }
  return product;
}

/// Root mean square of the errors of sums over 64 channels, each window of n at m places by the algorithm in
/// single precision, over that of the results, at the worst of these places; in units of half the last place.
double measured(const ToomCook& made, std::int64_t n, Random random) {
  constexpr int kSums = 60, kChannels = 64;
  std::vector<double> errors(made.output.size(), 0), results = errors;
  for (int s = 0; s < kSums; ++s) {
    std::vector<double> sum(made.input.size(), 0), exact(made.input.size(), 0);
    for (int c = 0; c < kChannels; ++c) {
      std::vector<double> x, k;
      for (std::size_t a = 0; a < made.input.size(); ++a)
        x.push_back(static_cast<double>(static_cast<float>(2 * random.unit() - 1)));
      for (std::int64_t r = 0; r < n; ++r)
        k.push_back(static_cast<double>(static_cast<float>(2 * random.unit() - 1)));
      const auto left = times(made.input, x, true), right = times(made.weights, k, true);
      const auto left_exact = times(made.input, x, false), right_exact = times(made.weights, k, false);
      for (std::size_t p = 0; p < sum.size(); ++p) {
        sum[p] = static_cast<double>(static_cast<float>(sum[p] + left[p] * right[p]));
        exact[p] += left_exact[p] * right_exact[p];
      }
    }
    const auto y = times(made.output, sum, true), wanted = times(made.output, exact, false);
    for (std::size_t j = 0; j < y.size(); ++j) {
      errors[j] += (y[j] - wanted[j]) * (y[j] - wanted[j]);
      results[j] += wanted[j] * wanted[j];
    }
  }
  double worst = 0;
  for (std::size_t j = 0; j < errors.size(); ++j) worst = std::max(worst, errors[j] / results[j]);
  return std::sqrt(worst) * 0x1p24;
}

TEST(Roughness, OfEachTileGrowsAsErrorsDo) {
  const double plain = measured(toom_cook_matrices(1, 3), 3, Random(1));
  int compared = 0;
  for (const PointSet set : {PointSet::Balanced, PointSet::Integers})
    for (std::int64_t m = 2; m < kMostPoints; ++m)
      for (std::int64_t n = 2; m + n - 1 <= kMostPoints; ++n) {
        const ToomCook made = toom_cook_matrices(m, n, set);
        const double counted = growth(made.output, made.weights, made.input, n);
        const double grown = measured(made, n, Random(static_cast<std::uint64_t>(10 * m + n))) / plain;
        EXPECT_GE(counted, 1) << m << " " << n;
        EXPECT_LE(grown, 2.5 * counted) << m << " " << n;
        EXPECT_GE(grown, counted / 4) << m << " " << n;
        ++compared;
      }
  EXPECT_EQ(compared, 72);
}

constexpr const char* kPaddedConvolution =
    "input x[8, 20, 20]\nweight k[4, 8, 3, 3]\n"
    "y[o: 4, h: 20, w: 20] = sum[c: 8, r: 3, s: 3] x[c, h+r-1, w+s-1] * k[o, c, r, s]\nreturn y\n";

Site site_of(const Program& program, const char* row, const std::string& scope, const std::string& iterator,
             std::int64_t number) {
  for (const Site& site : sites(rewrite_named(row), program))
    if (site.scope == scope && site.iterator == iterator && site.numbers[0] == number) return site;
  ADD_FAILURE() << "no site of " << row << " in " << scope << "[" << iterator << "]\n"
                << program::to_text(program);
  return {};
}

double growth_of(std::int64_t m, std::int64_t n) {
  const ToomCook made = toom_cook_matrices(m, n);
  return growth(made.output, made.weights, made.input, n);
}

TEST(Roughness, IsAProductOfWhatIsNestedAndTheWorseOfWhatIsNot) {
  const Program given = program::parse(kPaddedConvolution);
  EXPECT_EQ(roughness(given), 1);
  Program one = given;
  apply(rewrite_named("toom_cook"), one, site_of(one, "toom_cook", "y", "h", 4));
  EXPECT_DOUBLE_EQ(roughness(one), growth_of(4, 3));
  Program both = one;
  apply(rewrite_named("toom_cook"), both, site_of(both, "toom_cook", "y_products", "w", 6));
  EXPECT_DOUBLE_EQ(roughness(both), growth_of(4, 3) * growth_of(6, 3));
  // A range of its own for each tile: the rougher one counts.
  Program pieces = given;
  apply(rewrite_named("split_range"), pieces, sites(rewrite_named("split_range"), pieces)[0]);
  std::vector<std::string> parts;
  for (const Site& site : sites(rewrite_named("toom_cook"), pieces))
    if (site.iterator == "w" && (parts.empty() || parts.back() != site.scope)) parts.push_back(site.scope);
  ASSERT_EQ(parts.size(), 2u) << program::to_text(pieces);
  apply(rewrite_named("toom_cook"), pieces, site_of(pieces, "toom_cook", parts[0], "w", 2));
  EXPECT_DOUBLE_EQ(roughness(pieces), growth_of(2, 3));
  apply(rewrite_named("toom_cook"), pieces, site_of(pieces, "toom_cook", parts[1], "w", 4));
  EXPECT_DOUBLE_EQ(roughness(pieces), growth_of(4, 3));
}

// Steps that are exact change no rounding, as where a matrix is laid out for its reader.
TEST(Roughness, StaysAsItIsByExactSteps) {
  Program both = program::parse(kPaddedConvolution);
  apply(rewrite_named("toom_cook"), both, site_of(both, "toom_cook", "y", "h", 4));
  apply(rewrite_named("toom_cook"), both, site_of(both, "toom_cook", "y_products", "w", 4));
  const double wanted = growth_of(4, 3) * growth_of(4, 3);
  std::size_t tried = 0;
  std::set<std::string_view> rows;
  for (const Rewrite& row : rewrites())
    for (const Site& site : sites(row, both)) {
      if (!row.exact) continue;
      Program made = both;
      apply(row, made, site);
      EXPECT_DOUBLE_EQ(roughness(made), wanted) << row.name << "\n" << program::to_text(made);
      rows.insert(row.name);
      ++tried;
    }
  EXPECT_GE(tried, 20u);
  EXPECT_TRUE(rows.contains("operand"));
}

TEST(Roughness, OfStrassensProducts) {
  Program product = program::parse(
      "input a[16, 16]\ninput b[16, 16]\ny[i: 16, j: 16] = sum[k: 16] a[i,k] * b[k,j]\nreturn y\n");
  const std::vector<Site> found = sites(rewrite_named("strassen"), product);
  ASSERT_FALSE(found.empty());
  apply(rewrite_named("strassen"), product, found[0]);
  EXPECT_NEAR(roughness(product), std::sqrt(6.0), 1e-12);
}

TEST(Roughness, LimitsWhatASearchLooksAtAndEveryAccuracyIsGivenBack) {
  SearchOptions options;
  options.seconds = 0;
  options.states = 3000;
  options.keep = 4;
  options.constants = {"k"};
  options.growth = 8;
  const Found all = search(program::parse(kPaddedConvolution), options);
  double roughest = 1;
  std::map<double, int> by_accuracy;
  for (const Derivation& each : all.derivations) {
    EXPECT_DOUBLE_EQ(each.roughness, roughness(each.program));
    roughest = std::max(roughest, each.roughness);
    ++by_accuracy[std::floor(std::log2(each.roughness))];
  }
  EXPECT_EQ(all.rough, 0);
  EXPECT_GT(roughest, 4);
  EXPECT_GE(by_accuracy.size(), 3u);
  options.roughness = 4;
  const Found smooth = search(program::parse(kPaddedConvolution), options);
  EXPECT_GT(smooth.rough, 0);
  EXPECT_GT(smooth.derivations.size(), 4u);
  for (const Derivation& each : smooth.derivations) EXPECT_LE(roughness(each.program), 4);
}

// What a row says of a site before it is applied is what the program has then.
TEST(Roughness, OfSitesIsWhatTheyMake) {
  const Program given = program::parse(kPaddedConvolution);
  int compared = 0;
  for (const Rewrite& row : rewrites()) {
    EXPECT_EQ(row.exact || row.finishes, row.roughens == nullptr) << row.name;
    for (const Site& site : sites(row, given)) {
      Program made = given;
      apply(row, made, site);
      EXPECT_DOUBLE_EQ(roughness(made), row.roughens ? row.roughens(site) : 1) << row.name;
      ++compared;
    }
  }
  EXPECT_GE(compared, 20);
}

/// The least multiply-adds, over those given, of programs no rougher than that.
double least(const std::string& text, const std::vector<std::string>& constants, double roughness) {
  SearchOptions options;
  options.seconds = 0;
  options.states = 4000;
  options.keep = 24;
  options.constants = constants;
  options.roughness = 84;
  const Found found = search(program::parse(text), options);
  double least = 1;
  for (const Derivation& each : found.derivations)
    if (each.roughness <= roughness)
      least = std::min(least, each.estimate.multiply_adds / found.derivations.front().estimate.multiply_adds);
  return least;
}

// Windows as long as an image, of which seven taps at a time are cheapest and hopelessly inaccurate; and
// windows of more taps than there are points.
TEST(Roughness, KeepsNoSearchFromWhatIsAccurate) {
  EXPECT_LT(
      least("input x[4,64,14,14]\ninput g[4,64,14,14]\n"
            "y[o: 64,c: 64,r: 3,s: 3] = sum[n: 4,h: 14,w: 14] x[n,c,h+r-1,w+s-1] * g[n,o,h,w]\nreturn y",
            {}, 14),
      0.46);
  EXPECT_LT(least("input x[32,200]\nweight k[32,32,21]\n"
                  "y[o: 32,w: 200] = sum[c: 32,s: 21] x[c,w+s-10] * k[o,c,s]\nreturn y",
                  {"k"}, 30),
            0.5);
}

}  // namespace
}  // namespace syno::derive
