// pGraphs: steps, legality, completions, hashes, text.
#include "pgraph/pgraph.hpp"

#include <gtest/gtest.h>

#include "pgraph/named.hpp"
#include "support/error.hpp"

namespace syno::pgraph {
namespace {

using symbolic::VariableKind;

Signature conv_signature(bool strided = false) {
  Signature signature;
  signature.sizes = Sizes({{"N", VariableKind::Primary},
                           {"C_in", VariableKind::Primary},
                           {"C_out", VariableKind::Primary},
                           {"H", VariableKind::Primary},
                           {"W", VariableKind::Primary},
                           {"k", VariableKind::Coefficient},
                           {"g", VariableKind::Coefficient},
                           {"s", VariableKind::Coefficient}},
                          {{2, 16, 32, 28, 28, 3, 4, 2}, {2, 32, 32, 14, 14, 3, 4, 2}});
  const auto size = [&](const char* text) { return signature.sizes.parse(text); };
  signature.output = {{"n", size("N")}, {"c", size("C_out"), true}, {"h", size("H")}, {"w", size("W")}};
  signature.input = {{"n", size("N")},
                     {"c", size("C_in"), true},
                     {"h", size(strided ? "s*H" : "H")},
                     {"w", size(strided ? "s*W" : "W")}};
  signature.fixed = {{0, 0}};
  return signature;
}

/// y[b,h,i,j] of x[b,h,i,d] and x2[b,h,j,d], or x2[b,h,s*j,d].
Signature scores_signature(bool pooled) {
  Signature signature = conv_signature();
  const auto size = [&](const char* text) { return signature.sizes.parse(text); };
  signature.output = {{"b", size("N")}, {"h", size("g")}, {"i", size("H")}, {"j", size("W")}};
  signature.input = {{"b", size("N")}, {"h", size("g")}, {"i", size("H")}, {"d", size("C_in")}};
  const Size keys = size(pooled ? "s*W" : "W");
  signature.further = {{{{"b", size("N")}, {"h", size("g")}, {"j", keys}, {"d", size("C_in")}}, {{0, 0}}}};
  return signature;
}

CoordinateId coordinate(std::uint32_t id) { return static_cast<CoordinateId>(id); }

std::string refusal_of(const PGraph& graph, const Step& step) {
  const auto result = graph.apply(step);
  const auto* illegal = std::get_if<Illegal>(&result);
  return illegal == nullptr ? "" : illegal->reason;
}

TEST(PGraph, FixedDimensionsAreNotInTheFrontier) {
  const PGraph graph(conv_signature());
  EXPECT_EQ(graph.frontier(), (std::vector{coordinate(1), coordinate(2), coordinate(3)}));
}

TEST(PGraph, AMergeYieldsGroupAndBlock) {
  const Signature signature = conv_signature();
  const PGraph graph =
      apply_all(PGraph(signature), {Step::merge(coordinate(1), signature.sizes.parse("C_out/g"))});
  ASSERT_EQ(graph.frontier(), (std::vector{coordinate(2), coordinate(3), coordinate(4), coordinate(5)}));
  EXPECT_EQ(graph.coordinate(coordinate(4)).extent, signature.sizes.parse("g"));
  EXPECT_EQ(graph.coordinate(coordinate(5)).extent, signature.sizes.parse("C_out*g^-1"));
}

TEST(PGraph, IllegalStepsSayWhy) {
  const Signature signature = conv_signature();
  const PGraph graph(signature);
  EXPECT_NE(refusal_of(graph, Step::merge(coordinate(2), signature.sizes.parse("k"))).find("does not divide"),
            std::string::npos);
  EXPECT_NE(
      refusal_of(graph, Step::merge(coordinate(2), signature.sizes.parse("k^-1"))).find("not an integer"),
      std::string::npos);
  EXPECT_NE(refusal_of(graph, Step::split(coordinate(1), coordinate(1))).find("named twice"),
            std::string::npos);
  EXPECT_NE(refusal_of(graph, Step::split(coordinate(0), coordinate(1))).find("not in the frontier"),
            std::string::npos);
  EXPECT_NE(refusal_of(graph, Step::shift(coordinate(2), 0)).find("does nothing"), std::string::npos);
  EXPECT_NE(refusal_of(graph, Step::contraction({}, {})).find("at least one coordinate"), std::string::npos);
  EXPECT_NE(refusal_of(graph, Step::reduce(signature.sizes.parse("k/s"))).find("not over an integer"),
            std::string::npos);
  const PGraph wide = apply_all(graph, {Step::reduce(signature.sizes.parse("k*H"))});
  EXPECT_NE(refusal_of(wide, Step::unfold(coordinate(2), coordinate(4))).find("larger than the dimension"),
            std::string::npos);
  Step lonely = Step::split(coordinate(1), coordinate(2));
  lonely.operands.pop_back();
  EXPECT_NE(refusal_of(graph, lonely).find("takes 2"), std::string::npos);
}

TEST(PGraph, CompletionsAreAllAssignmentsOfEqualExtents) {
  Signature signature = conv_signature();
  signature.output[3].extent = signature.input[3].extent = signature.sizes.parse("H");
  const PGraph graph = apply_all(PGraph(signature), {Step::reduce(signature.sizes.parse("C_in")),
                                                     Step::contraction({coordinate(4)}, {coordinate(1)})});
  const auto completions = graph.completions();
  ASSERT_EQ(completions.size(), 2U);
  EXPECT_EQ(completions[0].input, (std::vector{coordinate(0), coordinate(4), coordinate(2), coordinate(3)}));
  EXPECT_EQ(completions[1].input, (std::vector{coordinate(0), coordinate(4), coordinate(3), coordinate(2)}));
  EXPECT_TRUE(PGraph(signature).completions().empty());
}

TEST(PGraph, HashIgnoresTheOrderOfCommutingSteps) {
  const Signature signature = conv_signature();
  const auto k = signature.sizes.parse("k");
  const auto channels = signature.sizes.parse("C_in");
  // Reduces in another order, unfold before shift, and the windows' roles exchanged.
  const PGraph a =
      apply_all(PGraph(signature),
                {Step::reduce(channels), Step::reduce(k), Step::reduce(k),
                 Step::contraction({coordinate(4), coordinate(5), coordinate(6)}, {coordinate(1)}),
                 Step::unfold(coordinate(2), coordinate(5)), Step::unfold(coordinate(3), coordinate(6))});
  const PGraph b =
      apply_all(PGraph(signature),
                {Step::reduce(k), Step::reduce(channels), Step::reduce(k),
                 Step::contraction({coordinate(6), coordinate(5), coordinate(4)}, {coordinate(1)}),
                 Step::unfold(coordinate(3), coordinate(4)), Step::unfold(coordinate(2), coordinate(6))});
  EXPECT_EQ(a.hash(), b.hash());
  const PGraph other = apply_all(
      PGraph(signature), {Step::reduce(k), Step::reduce(channels), Step::reduce(k),
                          Step::contraction({coordinate(6), coordinate(5), coordinate(4)}, {coordinate(1)}),
                          Step::unfold(coordinate(3), coordinate(4)), Step::shift(coordinate(2), 1)});
  EXPECT_NE(a.hash(), other.hash());
}

TEST(Signature, AFixedPairOfDifferentExtentsIsRefused) {
  Signature signature = conv_signature();
  signature.fixed = {{1, 2}};
  EXPECT_THROW(PGraph{signature}, SpecError);
  signature.fixed = {{0, 0}, {0, 1}};
  EXPECT_THROW(PGraph{signature}, SpecError);
  signature.fixed = {{7, 0}};
  EXPECT_THROW(PGraph{signature}, SpecError);
}

class EveryNamedOperator : public ::testing::TestWithParam<std::string> {
 protected:
  bool of_several_inputs() const { return GetParam().ends_with("scores"); }
  CompleteGraph build(Signature signature) const {
    if (of_several_inputs()) signature = scores_signature(GetParam() == "pooled_scores");
    if (GetParam() == "average_pool" || GetParam() == "pixel_shuffle" || GetParam() == "depthwise_conv") {
      signature.output[1].extent = signature.input[1].extent;
    }
    return named_operator(GetParam()).build(signature, {});
  }
};

TEST_P(EveryNamedOperator, ReadsBackFromItsText) {
  const CompleteGraph graph = build(conv_signature());
  const std::string text = to_text(graph);
  const CompleteGraph again = parse(text);
  EXPECT_EQ(again, graph);
  EXPECT_EQ(to_text(again), text);
  EXPECT_EQ(hash_of(again), hash_of(graph));
}

TEST_P(EveryNamedOperator, FitsAStridedSignature) {
  if (GetParam() == "pixel_shuffle") {
    EXPECT_THROW(build(conv_signature(true)), SpecError);
    return;
  }
  if (of_several_inputs()) GTEST_SKIP() << "has no spatial dimensions";
  const CompleteGraph graph = build(conv_signature(true));
  EXPECT_EQ(graph.graph.coordinate(graph.input[2]).extent, conv_signature(true).input[2].extent);
}

TEST_P(EveryNamedOperator, HasNoWindowWhereTheKernelIsOne) {
  Signature signature = conv_signature();
  signature.output[1].extent = signature.input[1].extent;
  if (of_several_inputs()) GTEST_SKIP() << "has no kernel";
  NamedParameters parameters;
  parameters.kernel = Size(1);
  const CompleteGraph graph = named_operator(GetParam()).build(signature, parameters);
  for (const Step& step : graph.graph.steps()) EXPECT_NE(step.primitive, Primitive::Unfold);
}

/// conv_signature() with a dimension of depth before its height.
Signature volume_signature() {
  Signature signature = conv_signature();
  const Dim depth{"d", signature.sizes.parse("H"), false};
  signature.output.insert(signature.output.begin() + 2, depth);
  signature.input.insert(signature.input.begin() + 2, depth);
  return signature;
}

TEST_P(EveryNamedOperator, PassesDimensionsThroughThatHaveNoWindow) {
  if (of_several_inputs()) GTEST_SKIP() << "has no spatial dimensions";
  NamedParameters parameters;
  parameters.windowed = 0b110;
  Signature flat = conv_signature(), volume = volume_signature();
  flat.output[1].extent = flat.input[1].extent;
  volume.output[1].extent = volume.input[1].extent;
  const CompleteGraph plane = named_operator(GetParam()).build(flat, {});
  if (std::none_of(plane.graph.steps().begin(), plane.graph.steps().end(),
                   [](const Step& step) { return step.primitive == Primitive::Unfold; }))
    GTEST_SKIP() << "has no window";
  const CompleteGraph graph = named_operator(GetParam()).build(volume, parameters);
  EXPECT_EQ(graph.input[2], coordinate(2)) << "depth is read where it is written";
  EXPECT_EQ(graph.graph.steps().size(), plane.graph.steps().size()) << "nothing but what the plane needs";
  for (const auto& weight : graph.graph.weights())
    EXPECT_EQ(std::find(weight.begin(), weight.end(), coordinate(2)), weight.end());
}

TEST_P(EveryNamedOperator, IsDrawn) {
  const CompleteGraph graph = build(conv_signature());
  const std::string svg = to_svg(graph);
  EXPECT_TRUE(svg.starts_with("<svg"));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_EQ(svg.find("href"), std::string::npos);  // self-contained
  const std::string dot = to_graphviz(graph);
  for (std::size_t w = 1; w <= graph.graph.weights().size(); ++w) {
    EXPECT_NE(svg.find(fmt::format("w{} [", w)), std::string::npos);
    EXPECT_NE(dot.find(fmt::format("w{} [", w)), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, EveryNamedOperator, ::testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const NamedOperator& row : named_operators()) names.emplace_back(row.name);
                           return names;
                         }()),
                         [](const auto& info) { return info.param; });

TEST(NamedOperator, Operator1HasTheStepsAndWeightsOfItsListing) {
  const Signature signature = conv_signature();
  NamedParameters parameters;
  parameters.kernel = signature.sizes.parse("k");
  parameters.groups = signature.sizes.parse("g");
  parameters.shrink = signature.sizes.parse("s");
  const CompleteGraph graph = named_operator("operator1").build(signature, parameters);
  EXPECT_EQ(graph.graph.steps().size(), 10U);
  const auto elements = [&](std::size_t w) {
    Size product;
    for (const CoordinateId id : graph.graph.weights()[w])
      product = product * graph.graph.coordinate(id).extent;
    return product;
  };
  // w2 [C_out, k*k*C_out/s] is introduced first, w1 [C_out/g/s, C_in, k] above it.
  EXPECT_EQ(elements(0), signature.sizes.parse("C_out*k^2*C_out/s"));
  EXPECT_EQ(elements(1), signature.sizes.parse("C_out/g/s*C_in*k"));
}

TEST(NamedOperator, ScoresNeedNamesThatFit) {
  const auto complaint = [](Signature signature) -> std::string {
    try {
      named_operator("scores").build(signature, {});
    } catch (const SpecError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(complaint(scores_signature(false)), "");
  EXPECT_NE(complaint(conv_signature()).find("name a further one"), std::string::npos);
  Signature signature = scores_signature(false);
  signature.further[0].dims[2].name = "m";
  EXPECT_NE(complaint(signature).find("'m' of a further input is neither"), std::string::npos);
  signature = scores_signature(false);
  signature.input[2].name = "j";
  EXPECT_NE(complaint(signature).find("'j' has extent"), std::string::npos);
  signature = scores_signature(false);
  signature.output[2].name = "j";
  EXPECT_NE(complaint(signature).find("two output dimensions"), std::string::npos);
  EXPECT_NE(complaint(scores_signature(true)).find("'j' has extent"), std::string::npos);
}

TEST(NamedOperator, UnknownNamesListTheKnown) {
  try {
    named_operator("conv1x2");
    FAIL();
  } catch (const UnknownName& error) {
    EXPECT_NE(std::string(error.what()).find("conv1x1"), std::string::npos);
  }
}

TEST(PGraphText, ComplaintsNameTheLine) {
  const std::string text = to_text(named_operator("conv1x1").build(conv_signature(), {}));
  const auto broken = [&](const std::string& from, const std::string& to) {
    std::string copy = text;
    copy.replace(copy.find(from), from.size(), to);
    return copy;
  };
  const auto complaint = [](const std::string& bad) -> std::string {
    try {
      parse(bad);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(complaint(broken("syno-pgraph 1", "syno-pgraph 9")).find("line 1"), std::string::npos);
  EXPECT_NE(complaint(broken("reduce", "reduse")).find("unknown primitive 'reduse'"), std::string::npos);
  EXPECT_NE(complaint(broken("share c4", "share c9")).find("not in the frontier"), std::string::npos);
  EXPECT_NE(complaint(broken("c4 = reduce", "c5 = reduce")).find("numbered in order"), std::string::npos);
  EXPECT_NE(complaint(broken("input = c0 c4 c2 c3", "input = c0 c4 c2")).find("do not complete"),
            std::string::npos);
  EXPECT_NE(complaint(text.substr(0, text.rfind("input ="))).find("ends without"), std::string::npos);
  EXPECT_NE(complaint(broken("C_out*", "C_aut*")).find("C_aut"), std::string::npos);
}

}  // namespace
}  // namespace syno::pgraph
