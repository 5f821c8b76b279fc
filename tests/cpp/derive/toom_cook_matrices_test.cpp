#include "derive/toom_cook_matrices.hpp"

#include <gtest/gtest.h>

namespace syno::derive {
namespace {

std::vector<Rational> times(const Matrix& matrix, const std::vector<Rational>& vector) {
  std::vector<Rational> product;
  for (const auto& row : matrix) {
    Rational sum = 0;
    for (std::size_t a = 0; a < row.size(); ++a) sum = sum + row[a] * vector[a];
    product.push_back(sum);
  }
  return product;
}

TEST(ToomCookMatrices, AreExactForEverySizeOfTileAndWindow) {
  for (const PointSet set : {PointSet::Balanced, PointSet::Integers})
    for (std::int64_t size = 0; size < kMostPoints * kMostPoints; ++size) {
      const std::int64_t m = 1 + size / kMostPoints, n = 1 + size % kMostPoints;
      if (m + n - 1 > kMostPoints) continue;
      const ToomCook made = toom_cook_matrices(m, n, set);
      std::vector<Rational> x, k;
      for (std::int64_t a = 0; a < m + n - 1; ++a) x.emplace_back((7 * a * a + 3 * a) % 11 - 5);
      for (std::int64_t r = 0; r < n; ++r) k.emplace_back((5 * r * r + r) % 7 - 2);
      std::vector<Rational> products = times(made.input, x);
      const std::vector<Rational> weights = times(made.weights, k);
      for (std::size_t p = 0; p < products.size(); ++p) products[p] = products[p] * weights[p];
      const std::vector<Rational> y = times(made.output, products);
      for (std::int64_t j = 0; j < m; ++j) {
        Rational wanted = 0;
        for (std::int64_t r = 0; r < n; ++r)
          wanted = wanted + x[static_cast<std::size_t>(j + r)] * k[static_cast<std::size_t>(r)];
        EXPECT_EQ(y[static_cast<std::size_t>(j)], wanted) << m << " " << n << " " << j;
      }
      for (const auto& row : made.input)
        for (const Rational& value : row) EXPECT_TRUE(value.integral());
    }
}

TEST(ToomCookMatrices, AreTheKnownOnesOfTheSmallestTile) {
  const ToomCook made = toom_cook_matrices(2, 3);
  EXPECT_EQ(made.input, (Matrix{{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, -1, 0, 1}}));
  EXPECT_EQ(made.weights,
            (Matrix{{1, 0, 0}, {{1, 2}, {1, 2}, {1, 2}}, {{1, 2}, {-1, 2}, {1, 2}}, {0, 0, 1}}));
  EXPECT_EQ(made.output, (Matrix{{1, 1, 1, 0}, {0, 1, -1, 1}}));
}

}  // namespace
}  // namespace syno::derive
