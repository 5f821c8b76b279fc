#include "program/permute.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "naive.hpp"
#include "program/text.hpp"
#include "program/verify.hpp"
#include "random_program.hpp"
#include "support/error.hpp"

namespace syno::program {
namespace {

using testing::random_inputs;
using testing::same;

std::vector<std::size_t> random_order(std::size_t rank, Random& random) {
  std::vector<std::size_t> order(rank);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t d = rank; d > 1; --d) std::swap(order[d - 1], order[random.below(d)]);
  return order;
}

Values<double> permuted(const Values<double>& from, const std::vector<std::size_t>& order) {
  Values<double> to{{}, std::vector<double>(from.data.size())};
  for (const std::size_t d : order) to.shape.push_back(from.shape[d]);
  std::vector<std::int64_t> at(order.size(), 0);
  for (std::size_t i = 0; i < to.data.size(); ++i) {
    std::vector<std::int64_t> source(order.size());
    for (std::size_t d = 0; d < order.size(); ++d) source[order[d]] = at[d];
    std::int64_t address = 0;
    for (std::size_t d = 0; d < order.size(); ++d) address = address * from.shape[d] + source[d];
    to.data[i] = from.data[static_cast<std::size_t>(address)];
    for (std::size_t d = order.size(); d-- > 0;) {
      if (++at[d] < to.shape[d]) break;
      at[d] = 0;
    }
  }
  return to;
}

TEST(Permuted, ComputesTheSameOfAndToPermutedTensors) {
  int moved_inputs = 0, moved_outputs = 0;
  EXPECT_TRUE(rc::check("any order of any input and output", [&](std::uint64_t start) {
    for (std::uint64_t i = 0; i < 20; ++i) {
      Random random = Random(start).fork(i);
      const Program p = at(testing::ProgramGenerator(random())(), 0);
      auto inputs = random_inputs(p, start);
      auto expected = interpret(p, inputs);
      Program q = p;
      const auto move = [&](const std::vector<TensorId>& ids, std::map<std::string, Values<double>>& values,
                            int& moved) {
        const TensorId id = ids[random.below(ids.size())];
        const std::string name = p.tensor(id).name;
        const auto order = random_order(p.tensor(id).dims.size(), random);
        q = with_permuted(std::move(q), name, order);
        verify(q);
        moved += !std::is_sorted(order.begin(), order.end());
        values.at(name) = permuted(values.at(name), order);
        RC_ASSERT(shape_of(q, id) == values.at(name).shape);
      };
      move(p.inputs(), inputs, moved_inputs);
      move(p.outputs, expected, moved_outputs);
      const auto got = interpret(q, inputs);
      for (const auto& [output, values] : expected)
        for (std::size_t v = 0; v < values.data.size(); ++v)
          RC_ASSERT(same(got.at(output).data[v], values.data[v]));
    }
  }));
  EXPECT_GT(std::min(moved_inputs, moved_outputs), 200) << "hardly any order was another one";
}

TEST(Permuted, MovesWhereAnAccumulatingScopeWrites) {
  ParseOptions options;
  options.sizes = {{"n", 2}, {"h", 4}, {"r", 3}};
  const Program p = parse("y[n,h + r] += x[n,h] * w[r]", options);
  const Program q = with_permuted(p, "y", {1, 0});
  verify(q);
  auto inputs = random_inputs(p, 7);
  const auto expected = permuted(interpret(p, inputs).at("y"), {1, 0});
  const auto got = interpret(q, inputs).at("y");
  EXPECT_EQ(got.shape, expected.shape);
  for (std::size_t v = 0; v < expected.data.size(); ++v) EXPECT_TRUE(same(got.data[v], expected.data[v]));
}

TEST(Permuted, ReadsAsWritten) {
  ParseOptions options;
  options.sizes = {{"n", 2}, {"c", 3}, {"h", 4}, {"w", 5}, {"o", 6}};
  const Program p = parse("y[n,o,h,w] = sum[c] x[n,c,h,w] * k[o,c]", options);
  const Program q = with_permuted(p, "x", {0, 2, 3, 1});
  EXPECT_NE(to_short_text(q).find("x[n,h,w,c]"), std::string::npos) << to_short_text(q);
  EXPECT_EQ(to_text(with_permuted(q, "x", {0, 3, 1, 2})), to_text(p));
  const Program r = with_permuted(q, "y", {0, 2, 3, 1});
  EXPECT_EQ(to_short_text(r).find("y[n,h,w,o] = "), 0) << to_short_text(r);
  EXPECT_EQ(to_text(with_permuted(r, "y", {0, 3, 1, 2})), to_text(q));
}

TEST(Permuted, NamesWhatIsWrong) {
  ParseOptions options;
  options.sizes = {{"n", 2}, {"c", 3}};
  const Program p = parse("y[n] = sum[c] x[n,c]", options);
  EXPECT_THROW(with_permuted(p, "y", {0, 1}), ShapeError);
  EXPECT_THROW(with_permuted(p, "z", {0, 1}), UnknownName);
  EXPECT_THROW(with_permuted(p, "x", {0}), ShapeError);
  EXPECT_THROW(with_permuted(p, "x", {0, 0}), ShapeError);
  EXPECT_THROW(with_permuted(p, "x", {0, 2}), ShapeError);
}

}  // namespace
}  // namespace syno::program
