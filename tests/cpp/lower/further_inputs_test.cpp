// Operators of several data inputs lowered: roles, values, and which of them are equal.
#include <gtest/gtest.h>

#include "lower/lower.hpp"
#include "lower/operator_key.hpp"
#include "program/text.hpp"
#include "program/verify.hpp"
#include "random_graph.hpp"

namespace syno::lower {
namespace {

using pgraph::Step;
using symbolic::Size;

pgraph::CoordinateId c(std::uint32_t id) { return static_cast<pgraph::CoordinateId>(id); }

/// y[b,i,j] of q[b,i,d] and k[j,b,d], the batch of k in the middle.
pgraph::Signature signature() {
  pgraph::Signature result;
  result.output = {{"b", Size(2)}, {"i", Size(3)}, {"j", Size(4)}};
  result.input = {{"b", Size(2)}, {"i", Size(3)}, {"d", Size(5)}};
  result.fixed = {{0, 0}};
  result.further = {{{{"j", Size(4)}, {"b", Size(2)}, {"d", Size(5)}}, {{0, 1}}}};
  return result;
}

pgraph::CompleteGraph scores(const pgraph::Signature& of = signature()) {
  return pgraph::complete(
      pgraph::apply_all(pgraph::PGraph(of), {Step::reduce(Size(5)), Step::contraction({c(3)}, {c(2)}, 1)}),
      {c(0), c(1), c(3)}, {{c(2), c(0), c(3)}});
}

TEST(FurtherInputs, AreDataOfTheProgram) {
  for (const program::Program& program : {one_scope(scores()), staged(scores())}) {
    program::verify(program);
    ASSERT_EQ(program.inputs().size(), 2U);
    const program::Tensor& second = program.tensor(program.inputs()[1]);
    EXPECT_EQ(second.name, "x2");
    EXPECT_EQ(second.role, program::Role::Input);
    EXPECT_EQ(program::shape_of(program, program.inputs()[1]), (std::vector<std::int64_t>{4, 2, 5}));
    EXPECT_EQ(program::cost(program, 0).params, 0);
    EXPECT_EQ(program::cost(program, 0).flops, 2 * 3 * 4 * 5);
  }
}

TEST(FurtherInputs, AreReadAtTheirFixedAndOpenDimensions) {
  Random random(5);
  const program::Program program = one_scope(scores());
  const auto inputs = test::random_inputs(program, random);
  const auto y = program::interpret(program, inputs).at("y");
  std::size_t at = 0;
  for (std::size_t b = 0; b < 2; ++b) {
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t j = 0; j < 4; ++j, ++at) {
        double sum = 0;
        for (std::size_t d = 0; d < 5; ++d)
          sum += inputs.at("x").data[(b * 3 + i) * 5 + d] * inputs.at("x2").data[(j * 2 + b) * 5 + d];
        EXPECT_EQ(y.data[at], sum);
      }
    }
  }
}

TEST(FurtherInputs, ComeBeforeWeightsWhateverTheirOrder) {
  pgraph::Signature of = signature();
  const auto graph = pgraph::complete(
      pgraph::apply_all(pgraph::PGraph(of), {Step::reduce(Size(5)), Step::contraction({c(3)}, {}),
                                             Step::contraction({c(3)}, {c(2)}, 1)}),
      {c(0), c(1), c(3)}, {{c(2), c(0), c(3)}});
  std::vector<std::string> names;
  const program::Program program = staged(graph);
  for (const auto id : program.inputs()) names.push_back(program.tensor(id).name);
  EXPECT_EQ(names, (std::vector<std::string>{"x", "x2", "w1"}));
}

/// Only a weight's elements may be permuted: sum_r w[r, i] x[r] is one operator whichever way w is stored,
/// sum_r k[r, i] x[r] and sum_r k[i, r] x[r] are two.
TEST(OperatorKeyOfFurtherInputs, PermutesNoElements) {
  pgraph::Signature of;
  of.output = {{"i", Size(4)}};
  of.input = {{"r", Size(4)}};
  equality::OperatorKeyCache cache;
  const std::vector<Step> weight = {Step::reduce(Size(4)), Step::contraction({c(1)}, {c(0)})};
  const std::vector<Step> rotated = {Step::reduce(Size(4)), Step::shift(c(0), 1),
                                     Step::contraction({c(1)}, {c(2)})};
  const auto key = [&](const pgraph::Signature& s, const std::vector<Step>& steps,
                       std::vector<std::vector<pgraph::CoordinateId>> further) {
    return operator_key(pgraph::complete(pgraph::apply_all(pgraph::PGraph(s), steps), {c(1)}, further),
                        cache);
  };
  EXPECT_EQ(key(of, weight, {}), key(of, rotated, {}));
  const Hash128 of_weight = key(of, weight, {});
  of.further = {{{{"a", Size(4)}, {"b", Size(4)}}, {}}};
  std::vector<Step> data = weight, data_rotated = rotated;
  data.back().source = data_rotated.back().source = 1;
  EXPECT_NE(key(of, data, {{c(0), c(1)}}), key(of, data, {{c(1), c(0)}}));
  EXPECT_NE(key(of, data, {{c(0), c(1)}}), key(of, data_rotated, {{c(2), c(1)}}));
  EXPECT_NE(key(of, data, {{c(0), c(1)}}), of_weight);
  // ... unless the signature says that its order has no meaning.
  of.further[0].dims[0].unordered = true;
  EXPECT_EQ(key(of, data, {{c(0), c(1)}}), key(of, data_rotated, {{c(2), c(1)}}));
  EXPECT_NE(key(of, data, {{c(0), c(1)}}), key(of, data, {{c(1), c(0)}}));
}

TEST(OperatorKeyOfFurtherInputs, TellsThemApart) {
  pgraph::Signature of;
  of.output = {{"i", Size(4)}, {"j", Size(4)}};
  of.input = {{"i", Size(4)}};
  of.further = {{{{"i", Size(4)}}, {}}, {{{"j", Size(4)}}, {}}};
  equality::OperatorKeyCache cache;
  const auto key = [&](std::size_t shares, std::size_t matches) {
    std::vector<std::vector<pgraph::CoordinateId>> further(2);
    further[shares - 1] = {c(0)};
    further[matches - 1] = {c(1)};
    return operator_key(
        pgraph::complete(pgraph::apply_all(pgraph::PGraph(of), {Step::contraction({c(0)}, {}, shares),
                                                                Step::contraction({}, {c(1)}, matches)}),
                         {c(0)}, further),
        cache);
  };
  EXPECT_NE(key(1, 2), key(2, 1));
}

}  // namespace
}  // namespace syno::lower
