// pGraphs of several data inputs: signatures, legality, completions, hashes, text.
#include <gtest/gtest.h>

#include "pgraph/pgraph.hpp"
#include "support/error.hpp"

namespace syno::pgraph {
namespace {

using symbolic::VariableKind;

/// y[b,h,i,j] of q[b,h,i,d] and k[b,h,j,d].
Signature scores_signature() {
  Signature signature;
  signature.sizes = Sizes({{"B", VariableKind::Primary},
                           {"H", VariableKind::Primary},
                           {"L", VariableKind::Primary},
                           {"D", VariableKind::Primary}},
                          {{2, 4, 8, 16}});
  const auto size = [&](const char* text) { return signature.sizes.parse(text); };
  signature.output = {{"b", size("B")}, {"h", size("H")}, {"i", size("L")}, {"j", size("L")}};
  signature.input = {{"b", size("B")}, {"h", size("H")}, {"i", size("L")}, {"d", size("D")}};
  signature.fixed = {{0, 0}};
  signature.further = {{{{"b", size("B")}, {"h", size("H")}, {"j", size("L")}, {"d", size("D")}}, {{0, 0}}}};
  return signature;
}

CoordinateId c(std::uint32_t id) { return static_cast<CoordinateId>(id); }

CompleteGraph scores() {
  const Signature signature = scores_signature();
  return complete(apply_all(PGraph(signature), {Step::reduce(signature.sizes.parse("D")),
                                                Step::contraction({c(1), c(4)}, {c(3)}, 1)}),
                  {c(0), c(1), c(2), c(4)}, {{c(0), c(1), c(3), c(4)}});
}

std::string reason(const PGraph& graph, const Step& step) {
  const auto result = graph.apply(step);
  const auto* illegal = std::get_if<Illegal>(&result);
  return illegal == nullptr ? "" : illegal->reason;
}

TEST(FurtherInputs, AreNoWeights) {
  const CompleteGraph graph = scores();
  EXPECT_TRUE(graph.graph.weights().empty());
  const PGraph with_weight =
      apply_all(PGraph(scores_signature()),
                {Step::contraction({c(1)}, {}), Step::reduce(Size(3)), Step::contraction({c(1), c(2)}, {})});
  EXPECT_EQ(with_weight.weights().size(), 2U);
}

TEST(FurtherInputs, IllegalContractionsSayWhy) {
  const Signature signature = scores_signature();
  const PGraph graph = apply_all(PGraph(signature), {Step::reduce(signature.sizes.parse("D"))});
  EXPECT_NE(reason(graph, Step::contraction({c(4)}, {c(3)}, 1)).find("have extents"), std::string::npos);
  EXPECT_NE(reason(graph, Step::contraction({c(1), c(2), c(3)}, {}, 1)).find("have extents"),
            std::string::npos);
  EXPECT_NE(reason(graph, Step::contraction({c(1), c(4)}, {c(3)}, 2)).find("no input x3"), std::string::npos);
  Step shift = Step::shift(c(1), 1);
  shift.source = 1;
  EXPECT_NE(reason(graph, shift).find("Only a contraction"), std::string::npos);
  const PGraph bound = apply_all(graph, {Step::contraction({c(1), c(4), c(2)}, {}, 1)});
  EXPECT_NE(reason(bound, Step::contraction({c(1), c(4)}, {c(3)}, 1)).find("brought in before"),
            std::string::npos);
}

TEST(FurtherInputs, CompletionsGiveEachDimensionItsCoordinate) {
  Signature signature = scores_signature();
  const CompleteGraph graph = scores();
  const auto completions = graph.graph.completions();
  ASSERT_EQ(completions.size(), 1U);
  EXPECT_EQ(completions[0].further, graph.further);
  EXPECT_TRUE(apply_all(PGraph(signature), {Step::reduce(signature.sizes.parse("D")), Step::expand(c(3))})
                  .completions()
                  .empty());  // q is met, k was never read
  EXPECT_THROW(complete(graph.graph, graph.input, {}), VerifyError);
  EXPECT_THROW(complete(graph.graph, graph.input, {{c(0), c(1), c(4), c(3)}}), VerifyError);
  // A square further input may be read either way round.
  signature.further[0] = {{{"i", signature.sizes.parse("L")}, {"j", signature.sizes.parse("L")}}, {}};
  signature.input = {{"b", signature.sizes.parse("B")}, {"h", signature.sizes.parse("H")}};
  const PGraph square = apply_all(PGraph(signature), {Step::contraction({}, {c(2), c(3)}, 1)});
  ASSERT_EQ(square.completions().size(), 2U);
  EXPECT_EQ(square.completions()[0].further[0], (std::vector{c(2), c(3)}));
  EXPECT_EQ(square.completions()[1].further[0], (std::vector{c(3), c(2)}));
  EXPECT_NE(hash_of(complete(square, {c(0), c(1)}, {{c(2), c(3)}})),
            hash_of(complete(square, {c(0), c(1)}, {{c(3), c(2)}})));
}

TEST(FurtherInputs, AreNotExchanged) {
  Signature signature = scores_signature();
  signature.further.push_back(signature.further[0]);
  const auto d = signature.sizes.parse("D");
  const auto with = [&](std::size_t first, std::size_t second) {
    return apply_all(PGraph(signature), {Step::reduce(d), Step::contraction({c(1), c(2), c(4)}, {}, first),
                                         Step::contraction({c(1), c(4)}, {c(3)}, second)});
  };
  EXPECT_NE(with(1, 2).hash(), with(2, 1).hash());
  EXPECT_NE(with(1, 2).hash(),
            apply_all(PGraph(signature), {Step::reduce(d), Step::contraction({c(1), c(2), c(4)}, {}),
                                          Step::contraction({c(1), c(4)}, {c(3)}, 1)})
                .hash());
}

TEST(FurtherInputs, ReadBackFromTheirText) {
  const CompleteGraph graph = scores();
  const std::string text = to_text(graph);
  EXPECT_NE(text.find("\ndata x2 = share c1 c4 match c3\ninput = c0 c1 c2 c4\nx2 = c0 c1 c3 c4\n"),
            std::string::npos);
  const CompleteGraph again = parse(text);
  EXPECT_EQ(again, graph);
  EXPECT_EQ(to_text(again), text);
  EXPECT_EQ(hash_of(again), hash_of(graph));
  EXPECT_EQ(parse_partial(to_text(graph.graph)), graph.graph);
  EXPECT_NE(to_svg(graph).find("x2 [B, H, L, D]"), std::string::npos);
  EXPECT_NE(to_graphviz(graph).find("x2 [B, H, L, D]"), std::string::npos);
}

TEST(FurtherInputs, TextComplaintsNameTheLine) {
  const std::string text = to_text(scores());
  const auto complaint = [&](const std::string& from, const std::string& to) -> std::string {
    std::string copy = text;
    copy.replace(copy.find(from), from.size(), to);
    try {
      parse(copy);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(complaint("data x2", "data x1").find("number from 2"), std::string::npos);
  EXPECT_NE(complaint("data x2", "data x3").find("no input x3"), std::string::npos);
  EXPECT_NE(complaint("\nx2 =", "\nx3 =").find("expected 'x2 = ...'"), std::string::npos);
  EXPECT_NE(complaint("x2 = c0 c1 c3 c4\n", "").find("do not complete"), std::string::npos);
  EXPECT_NE(complaint("x2 = c0 c1 c3 c4\n", "x2 = c0 c1 c3 c4\nexpand c2\n").find("no step may follow"),
            std::string::npos);
}

TEST(FurtherInputs, SignaturesThatDoNotFitAreRefused) {
  Signature signature = scores_signature();
  signature.further[0].fixed = {{1, 1}};  // heads are open in the first input
  EXPECT_THROW(PGraph{signature}, SpecError);
  signature.further[0].fixed = {{0, 1}};
  EXPECT_THROW(PGraph{signature}, SpecError);
  signature.further[0] = {{{"b", signature.sizes.parse("B")}}, {{0, 0}}};
  EXPECT_THROW(PGraph{signature}, SpecError);
  signature.further[0] = {{{"b", signature.sizes.parse("B^-1")}}, {}};
  EXPECT_THROW(PGraph{signature}, SpecError);
}

}  // namespace
}  // namespace syno::pgraph
