#include "program/permute.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
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

TEST(InputPermuted, ComputesTheSameOfThePermutedInput) {
  int moved = 0;
  EXPECT_TRUE(rc::check("any order of any input", [&](std::uint64_t start) {
    for (std::uint64_t i = 0; i < 20; ++i) {
      Random random = Random(start).fork(i);
      const Program p = at(testing::ProgramGenerator(random())(), 0);
      auto inputs = random_inputs(p, start);
      const auto expected = interpret(p, inputs);
      const TensorId id = p.inputs()[random.below(p.inputs().size())];
      const std::string name = p.tensor(id).name;
      const auto order = random_order(p.tensor(id).dims.size(), random);
      const Program q = with_input_permuted(p, name, order);
      verify(q);
      moved += !std::is_sorted(order.begin(), order.end());
      inputs.at(name) = permuted(inputs.at(name), order);
      RC_ASSERT(shape_of(q, id) == inputs.at(name).shape);
      const auto got = interpret(q, inputs);
      for (const auto& [output, values] : expected)
        for (std::size_t v = 0; v < values.data.size(); ++v)
          RC_ASSERT(same(got.at(output).data[v], values.data[v]));
    }
  }));
  EXPECT_GT(moved, 200) << "hardly any order was another one";
}

TEST(InputPermuted, ReadsAsWritten) {
  ParseOptions options;
  options.sizes = {{"n", 2}, {"c", 3}, {"h", 4}, {"w", 5}, {"o", 6}};
  const Program p = parse("y[n,o,h,w] = sum[c] x[n,c,h,w] * k[o,c]", options);
  const Program q = with_input_permuted(p, "x", {0, 2, 3, 1});
  EXPECT_NE(to_short_text(q).find("x[n,h,w,c]"), std::string::npos) << to_short_text(q);
  EXPECT_EQ(to_text(with_input_permuted(q, "x", {0, 3, 1, 2})), to_text(p));
}

TEST(InputPermuted, NamesWhatIsWrong) {
  ParseOptions options;
  options.sizes = {{"n", 2}, {"c", 3}};
  const Program p = parse("y[n] = sum[c] x[n,c]", options);
  EXPECT_THROW(with_input_permuted(p, "y", {0}), UnknownName);
  EXPECT_THROW(with_input_permuted(p, "z", {0, 1}), UnknownName);
  EXPECT_THROW(with_input_permuted(p, "x", {0}), ShapeError);
  EXPECT_THROW(with_input_permuted(p, "x", {0, 0}), ShapeError);
  EXPECT_THROW(with_input_permuted(p, "x", {0, 2}), ShapeError);
}

}  // namespace
}  // namespace syno::program
