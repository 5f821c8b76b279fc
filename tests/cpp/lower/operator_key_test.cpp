// The key of a pGraph against the key of its program.
#include "lower/operator_key.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "lower/lower.hpp"
#include "pgraph/named.hpp"
#include "random_graph.hpp"
#include "support/error.hpp"

namespace syno::lower {
namespace {

Hash128 key_of_program(const pgraph::CompleteGraph& graph) {
  const program::Program program = one_scope(graph);
  std::vector<equality::UnorderedDim> unordered;
  const auto add = [&](std::string_view tensor, const std::vector<pgraph::Dim>& dims) {
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (dims[i].unordered) unordered.push_back({*program.find_tensor(tensor), i});
    }
  };
  add("y", graph.graph.signature().output);
  add("x", graph.graph.signature().input);
  for (std::size_t k = 0; k < graph.further.size(); ++k)
    add(fmt::format("x{}", k + 2), graph.graph.signature().further[k].dims);
  return equality::operator_key(program, unordered);
}

TEST(OperatorKeyOfAGraph, IsThatOfItsProgram) {
  Random random(11);
  equality::OperatorKeyCache cache;
  std::set<Hash128> keys;
  for (int i = 0; i < 400; ++i) {
    const pgraph::CompleteGraph drawn = test::random_graph(random, 7, 1000);
    pgraph::Signature signature = drawn.graph.signature();
    for (auto* dims : {&signature.output, &signature.input}) {
      for (pgraph::Dim& dim : *dims) dim.unordered = random.below(3) == 0;
    }
    for (pgraph::FurtherInput& input : signature.further) {
      for (pgraph::Dim& dim : input.dims) dim.unordered = random.below(3) == 0;
    }
    const pgraph::CompleteGraph graph{pgraph::apply_all(pgraph::PGraph(signature), drawn.graph.steps()),
                                      drawn.input, drawn.further};
    const Hash128 key = operator_key(graph, cache);
    try {
      EXPECT_EQ(key, key_of_program(graph)) << pgraph::to_text(graph);
      keys.insert(key);
    } catch (const VerifyError&) {
      // The program of an Unfold that nothing reads clips by a select, which has no key.
    }
  }
  EXPECT_GT(keys.size(), 200U);
}

TEST(OperatorKeyOfAGraph, IsThatOfItsProgramAtSymbolicSizes) {
  pgraph::Signature signature;
  signature.sizes = symbolic::Sizes({{"C", symbolic::VariableKind::Primary},
                                     {"H", symbolic::VariableKind::Primary},
                                     {"k", symbolic::VariableKind::Coefficient},
                                     {"g", symbolic::VariableKind::Coefficient}},
                                    {{64, 56, 3, 32}, {128, 28, 3, 32}});
  const auto dim = [&](const char* name, const char* extent, bool unordered) {
    return pgraph::Dim{name, signature.sizes.parse(extent), unordered};
  };
  signature.output = {dim("c", "C", true), dim("h", "H", false)};
  signature.input = signature.output;
  pgraph::NamedParameters parameters;
  parameters.kernel = signature.sizes.parse("k");
  parameters.groups = signature.sizes.parse("g");
  equality::OperatorKeyCache cache;
  std::set<Hash128> keys;
  for (const char* name : {"conv", "conv1x1", "grouped_conv", "depthwise_conv"}) {
    const pgraph::CompleteGraph graph = pgraph::named_operator(name).build(signature, parameters);
    EXPECT_EQ(operator_key(graph, cache), key_of_program(graph)) << name;
    keys.insert(operator_key(graph, cache));
  }
  EXPECT_EQ(keys.size(), 4U);
}

}  // namespace
}  // namespace syno::lower
