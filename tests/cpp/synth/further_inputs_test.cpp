// Operators of several data inputs: found, none missed, none twice, and what rules and budgets make of them.
#include <gtest/gtest.h>

#include <set>

#include "lower/lower.hpp"
#include "lower/operator_key.hpp"
#include "lower/random_graph.hpp"
#include "program/text.hpp"
#include "program/verify.hpp"
#include "small_specs.hpp"
#include "support/error.hpp"
#include "synth/duplicates.hpp"
#include "synth/enumerate.hpp"
#include "synth/explain.hpp"
#include "synth/rules.hpp"
#include "synth/sample.hpp"
#include "synth/tree.hpp"

namespace syno::synth {
namespace {

using pgraph::CoordinateId;
using pgraph::Step;
using symbolic::VariableKind;

constexpr const char* kFurtherSizes =
    "size B, I, J, D : primary = (2, 12, 20, 8), (2, 20, 12, 8)\n"
    "size k, s : coefficient = (3, 2), (3, 2)\n";

std::vector<pgraph::Dim> dims_of(const Sizes& sizes, const std::vector<const char*>& extents) {
  std::vector<pgraph::Dim> result;
  for (const char* extent : extents)
    result.push_back({std::string(1, static_cast<char>('a' + result.size())), sizes.parse(extent), false});
  return result;
}

/// y of x and x2, their first dimensions the batch.
Spec attention_spec(const std::vector<const char*>& output, const std::vector<const char*>& input,
                    const std::vector<const char*>& further, int max_steps) {
  Spec spec;
  spec.name = "attention";
  spec.signature.sizes = Sizes({{"B", VariableKind::Primary},
                                {"I", VariableKind::Primary},
                                {"J", VariableKind::Primary},
                                {"D", VariableKind::Primary},
                                {"k", VariableKind::Coefficient},
                                {"s", VariableKind::Coefficient}},
                               {{2, 12, 20, 8, 3, 2}, {2, 20, 12, 8, 3, 2}});
  spec.occurrences = {0, 1, 1, 2, 1, 1};
  const Sizes& sizes = spec.signature.sizes;
  spec.signature.output = dims_of(sizes, output);
  spec.signature.input = dims_of(sizes, input);
  spec.signature.fixed = {{0, 0}};
  spec.signature.further = {{dims_of(sizes, further), {{0, 0}}}};
  spec.budgets.max_steps = max_steps;
  spec.budgets.max_weights = 0;
  spec.budgets.max_reductions = 2;
  spec.budgets.min_weight_params = 1;
  spec.thresholds.unfold_ratio = 1;
  return spec;
}

Spec scores_spec(int max_steps) {
  return attention_spec({"B", "I", "J"}, {"B", "I", "D"}, {"B", "J", "D"}, max_steps);
}

std::set<Hash128> further_keys(const Enumeration& result) {
  OperatorKeys key_of;
  std::set<Hash128> keys;
  for (const Found& found : result.operators) keys.insert(key_of(found.graph));
  return keys;
}

std::set<Hash128> built_further(const Enumeration& result) {
  std::set<Hash128> hashes;
  for (const Found& found : result.operators) hashes.insert(pgraph::hash_of(found.graph));
  return hashes;
}

EnumerationOptions all_ways(bool shape_distance = true) {
  EnumerationOptions options;
  options.operator_keys = false;
  options.shape_distance = shape_distance;
  return options;
}

/// An operator as a formula over x, x2 and w1 that some spec holds.
struct Wanted {
  const char* name;
  Spec spec;
  const char* formula;
};
void PrintTo(const Wanted& wanted, std::ostream* out) { *out << wanted.name; }

std::vector<Wanted> wanted() {
  Spec weighted = scores_spec(4);
  weighted.budgets.max_weights = 1;
  weighted.occurrences[3] = 4;
  Spec merged = attention_spec({"B", "I", "J"}, {"B", "I*J/k", "k"}, {"B", "I*J"}, 3);
  merged.occurrences = {0, 2, 2, 0, 2, 0};
  return {
      {"scores", scores_spec(2),
       "input x[B, I, D]; input x2[B, J, D]\n"
       "y[b: B, i: I, j: J] = sum[d: D] x[b, i, d] * x2[b, j, d]"},
      {"weighted_values", attention_spec({"B", "I", "D"}, {"B", "I", "J"}, {"B", "J", "D"}, 2),
       "input x[B, I, J]; input x2[B, J, D]\n"
       "y[b: B, i: I, d: D] = sum[j: J] x[b, i, j] * x2[b, j, d]"},
      {"gate", attention_spec({"B", "I"}, {"B", "I"}, {"B", "I"}, 1),
       "input x[B, I]; input x2[B, I]\ny[b: B, i: I] = x[b, i] * x2[b, i]"},
      {"outer_product", attention_spec({"B", "I", "J"}, {"B", "I"}, {"B", "J"}, 1),
       "input x[B, I]; input x2[B, J]\ny[b: B, i: I, j: J] = x[b, i] * x2[b, j]"},
      // Keys summed over blocks of s neighbours.
      {"pooled_keys", attention_spec({"B", "I", "J"}, {"B", "I", "D"}, {"B", "s*J", "D"}, 4),
       "input x[B, I, D]; input x2[B, s*J, D]\n"
       "y[b: B, i: I, j: J] = sum[d: D, r: s] x[b, i, d] * x2[b, s*j + r, d]"},
      // Each query reads the keys in a window around it.
      {"local_scores", attention_spec({"B", "I", "k"}, {"B", "I", "D"}, {"B", "I", "D"}, 3),
       "input x[B, I, D]; input x2[B, I, D]\n"
       "y[b: B, i: I, r: k] = sum[d: D] x[b, inside(i + r - (k/2), I), d] * x2[b, i, d]"},
      // A window as wide as x2 has taps.
      {"dynamic_convolution", attention_spec({"B", "I"}, {"B", "I"}, {"B", "I", "k"}, 3),
       "input x[B, I]; input x2[B, I, k]\n"
       "y[b: B, i: I] = sum[r: k] x[b, i + r - (k/2)] * x2[b, i, r]"},
      {"windows_on_the_second_input",
       attention_spec({"B", "I", "J", "k"}, {"B", "I", "D"}, {"B", "J", "D"}, 3),
       "input x[B, I, D]; input x2[B, J, D]\n"
       "y[b: B, i: I, j: J, r: k] = sum[d: D] x[b, i, d] * x2[b, inside(j + r - (k/2), J), d]"},
      // k divides I*J, but neither of them: the Merge has to stand above the Split that x2 reads.
      {"blocks_of_what_is_read", merged,
       "input x[B, I*J/k, k]; input x2[B, I*J]\n"
       "y[b: B, i: I, j: J] = x[b, (J*i + j) / k, (J*i + j) % k] * x2[b, J*i + j]"},
      {"bilinear_scores", weighted,
       "input x[B, I, D]; input x2[B, J, D]; weight w1[D, D]\n"
       "y[b: B, i: I, j: J] = sum[d: D, e: D] x[b, i, d] * w1[d, e] * x2[b, j, e]"},
  };
}

class EveryAttention : public ::testing::TestWithParam<Wanted> {};

TEST_P(EveryAttention, IsFoundVerifiedAndLowered) {
  const Wanted& one = GetParam();
  const program::Program formula = program::parse(std::string(kFurtherSizes) + one.formula + "\nreturn y\n");
  equality::OperatorKeyCache cache;
  const Hash128 key = equality::operator_key(formula, {}, &cache);
  std::optional<Found> met;
  for (Found& found : enumerate(one.spec).operators) {
    if (lower::operator_key(found.graph, cache) == key) met = std::move(found);
  }
  ASSERT_TRUE(met.has_value()) << one.formula;
  const pgraph::CompleteGraph& graph = met->graph;
  EXPECT_EQ(pgraph::parse(pgraph::to_text(graph)), graph);
  const Derivation way = derivation(one.spec, graph);
  EXPECT_TRUE(way.legal) << to_text(way);
  for (std::size_t v = 0; v < 2; ++v) {
    const program::Program meaning = program::at(formula, v);
    Random random(3);
    const auto inputs = test::random_inputs(meaning, random);
    // The weight may be stored another way: operators with one are compared by their key.
    if (inputs.contains("w1")) continue;
    const auto y = program::interpret(meaning, inputs).at("y").data;
    EXPECT_EQ(program::interpret(program::at(lower::one_scope(graph), v), inputs).at("y").data, y);
    EXPECT_EQ(program::interpret(program::at(lower::staged(graph), v), inputs).at("y").data, y);
  }
}
INSTANTIATE_TEST_SUITE_P(Table, EveryAttention, ::testing::ValuesIn(wanted()),
                         [](const auto& info) { return std::string(info.param.name); });

/// All sequences of steps of these kinds, taken one by one with nothing but PGraph::apply: no rules, no
/// order, no distance.
class BruteForce {
 public:
  BruteForce(std::vector<Size> reduces, bool splits) : reduces_(std::move(reduces)), splits_(splits) {}

  std::set<Hash128> keys(const pgraph::Signature& signature, int steps) {
    visit(pgraph::PGraph(signature), steps);
    return keys_;
  }

 private:
  void visit(const pgraph::PGraph& graph, int steps) {
    for (pgraph::Assignment& assignment : graph.completions()) {
      keys_.insert(lower::operator_key(
          pgraph::complete(graph, std::move(assignment.input), std::move(assignment.further)), cache_));
    }
    if (steps == 0) return;
    const auto take = [&](const Step& step) {
      auto next = graph.apply(step);
      if (auto* legal = std::get_if<pgraph::PGraph>(&next)) visit(*legal, steps - 1);
    };
    for (const Size& extent : reduces_) take(Step::reduce(extent));
    const auto& open = graph.frontier();
    for (const CoordinateId i : open) {
      for (const CoordinateId j : open) {
        if (splits_ && i != j) take(Step::split(i, j));
      }
    }
    std::size_t ways = 1;
    for (std::size_t k = 0; k < open.size(); ++k) ways *= 3;
    for (std::size_t way = 0; way < ways; ++way) {
      std::vector<CoordinateId> shared, matched;
      for (std::size_t k = 0, rest = way; k < open.size(); ++k, rest /= 3) {
        if (rest % 3 == 1) shared.push_back(open[k]);
        if (rest % 3 == 2) matched.push_back(open[k]);
      }
      for (std::size_t source = 1; source <= graph.signature().further.size(); ++source)
        take(Step::contraction(shared, matched, source));
    }
  }

  std::vector<Size> reduces_;
  bool splits_;
  equality::OperatorKeyCache cache_;
  std::set<Hash128> keys_;
};

/// Only sums, Splits and further inputs, without the limits that are about learning.
Spec plain(Spec spec) {
  spec.budgets.max_merges = spec.budgets.max_shifts = spec.budgets.max_unfolds = 0;
  spec.budgets.max_splits = kNoLimit;
  spec.budgets.max_chain = 16;
  spec.budgets.max_pooling = kUnbounded;
  spec.budgets.max_reduction_ratio = kUnbounded;
  spec.occurrences = {0, 0, 0, 2, 0, 2};  // sums over D, s and s*D
  return spec;
}

TEST(FurtherInputs, AreFoundInEveryWayThereIs) {
  struct Space {
    Spec spec;
    std::size_t operators;
  };
  Spec two = scores_spec(4);
  two.signature.further.push_back(two.signature.further[0]);
  two.signature.further.push_back({dims_of(two.signature.sizes, {"J"}), {}});
  for (const auto& [given, operators] : {
           Space{scores_spec(3), 2},
           Space{attention_spec({"B", "I", "J"}, {"B", "I", "D"}, {"B", "s*J", "D"}, 4), 2},
           Space{attention_spec({"B", "I", "J"}, {"B", "I*s", "D"}, {"B", "J", "D"}, 4), 2},
           Space{attention_spec({"B", "I", "I"}, {"B", "I", "D"}, {"B", "I", "D"}, 3), 4},
           Space{attention_spec({"B", "I", "I"}, {"B", "I"}, {"B", "I", "I"}, 2), 4},
           Space{two, 1},
       }) {
    const Spec spec = plain(given);
    const Size d = spec.signature.sizes.parse("D"), s = spec.signature.sizes.parse("s");
    const auto all = BruteForce({d, s, s * d}, true).keys(spec.signature, spec.budgets.max_steps);
    const Enumeration found = enumerate(spec);
    EXPECT_EQ(further_keys(found), all);
    EXPECT_EQ(found.operators.size(), all.size()) << "one twice";
    EXPECT_EQ(all.size(), operators);
  }
}

/// With every primitive that the specs of this file allow.
Spec rich(int max_steps, int max_weights) {
  Spec spec = scores_spec(max_steps);
  spec.budgets.max_weights = max_weights;
  spec.budgets.max_merges = spec.budgets.max_shifts = spec.budgets.max_unfolds = 1;
  spec.budgets.max_splits = 2;
  return spec;
}

/// Keys that are longer than J queries, so that Splits and Merges have work to do.
Spec rich_pooled(int max_steps, int max_weights) {
  Spec spec = rich(max_steps, max_weights);
  spec.occurrences[5] = 2;
  spec.signature.further[0].dims[1].extent = spec.signature.sizes.parse("s*J");
  return spec;
}

TEST(FurtherInputs, ShapeDistanceLosesNothing) {
  Spec two = rich(4, 0);
  two.signature.further.push_back({dims_of(two.signature.sizes, {"J"}), {}});
  for (const Spec& spec : {rich(5, 0), rich(5, 1), rich_pooled(5, 0), rich_pooled(5, 1), two}) {
    const Enumeration with = enumerate(spec, all_ways());
    const Enumeration without = enumerate(spec, all_ways(false));
    EXPECT_EQ(built_further(with), built_further(without));
    EXPECT_LT(10 * with.statistics.states, without.statistics.states);
    EXPECT_GT(with.operators.size(), 3U) << spec_to_json(spec);
  }
}

/// What holds of a weight because it can be rearranged offline does not hold of data: with every exact rule
/// off nothing appears that the rules do not keep in another form.
TEST(FurtherInputs, ExactRulesRemoveOnlyWhatEqualsSomethingKept) {
  for (const Spec& spec : {rich(4, 0), rich(3, 1), rich_pooled(5, 0)}) {
    Spec wide = spec;
    ++wide.budgets.max_steps;
    ++wide.budgets.max_reductions;
    wide.budgets.max_pooling = kUnbounded;
    wide.budgets.max_reduction_ratio = kUnbounded;
    wide.occurrences = {0, 1, 1, 3, 1, 2};
    wide.disabled_rules = {"unfold-window-unshared"};
    const std::set<Hash128> kept = further_keys(enumerate(wide));
    Spec free = spec;
    for (const Rule& rule : rules()) {
      if (rule.kind == RuleClass::Exact) free.disabled_rules.emplace(rule.name);
    }
    const Enumeration all = enumerate(free);
    EXPECT_GT(all.statistics.finished, enumerate(spec).statistics.finished);
    OperatorKeys key_of;
    std::size_t lost = 0;
    for (const Found& found : all.operators) {
      if (kept.contains(key_of(found.graph)) || testing::sums_a_weight_alone(found.graph.graph)) continue;
      if (lost++ < 3) ADD_FAILURE() << "nothing kept equals\n" << pgraph::to_text(found.graph);
    }
    EXPECT_EQ(lost, 0U) << "of " << all.operators.size();
  }
}

TEST(FurtherInputs, AreMetOnceAndTheSameForAnyNumberOfThreads) {
  const Spec spec = rich(5, 1);
  const Enumeration one = enumerate(spec);
  EXPECT_EQ(further_keys(one).size(), one.operators.size());
  EnumerationOptions options;
  options.threads = 3;
  const Enumeration three = enumerate(spec, options);
  ASSERT_EQ(one.operators.size(), three.operators.size());
  for (std::size_t i = 0; i < one.operators.size(); ++i)
    EXPECT_EQ(one.operators[i].graph, three.operators[i].graph);
  EXPECT_EQ(one.statistics.rejected, three.statistics.rejected);
}

TEST(FurtherInputs, AreDrawnBySamplesAndTrees) {
  const Spec spec = rich(4, 1);
  const std::set<Hash128> all = further_keys(enumerate(spec));
  SampleOptions options;
  options.seed = 2;
  const Enumeration one = sample(spec, 1000, options);
  EXPECT_EQ(further_keys(one), all);
  options.threads = 3;
  const Enumeration three = sample(spec, 1000, options);
  ASSERT_EQ(one.operators.size(), three.operators.size());
  for (std::size_t i = 0; i < one.operators.size(); ++i)
    EXPECT_EQ(one.operators[i].graph, three.operators[i].graph);

  Tree tree(spec, 5);
  OperatorKeys key_of;
  std::set<Hash128> asked;
  for (int round = 0; round < 3; ++round) {
    for (const Tree::Ticket& ticket : tree.ask(4)) {
      const Hash128 key = key_of(ticket.graph);
      EXPECT_TRUE(all.contains(key));
      EXPECT_TRUE(asked.insert(key).second);
      tree.tell(ticket.number, 0.5);
    }
  }
  EXPECT_EQ(asked.size(), 12U);
  Tree again = Tree::from_json(spec, tree.to_json());
  EXPECT_EQ(again.to_json(), tree.to_json());
}

TEST(FurtherInputs, CostWhatTheStagedProgramCosts) {
  for (const Spec& spec : {rich(5, 0), rich_pooled(5, 0)}) {
    for (const Found& found : enumerate(spec).operators) {
      const program::Program staged = lower::staged(found.graph);
      double flops = 0;
      for (std::size_t v = 0; v < 2; ++v) flops += static_cast<double>(program::cost(staged, v).flops);
      EXPECT_EQ(found.work.params, 0);
      EXPECT_EQ(found.work.flops, flops) << pgraph::to_text(found.graph);
    }
  }
  // q, k and y in float32, at both valuations.
  const Found scores = enumerate(scores_spec(2)).operators.at(0);
  EXPECT_EQ(scores.work.bytes, 4 * 2.0 * 2 * (12 * 8 + 20 * 8 + 12 * 20));
}

TEST(FurtherInputs, DropNoData) {
  // y[i, j] = x[i] x2[2 j]: every second key would never be read.
  Spec spec = attention_spec({"B", "I", "J"}, {"B", "I"}, {"B", "s*J"}, 3);
  spec.budgets.max_strides = 1;
  spec.extensions.emplace("strided_inputs");
  const pgraph::CompleteGraph graph = pgraph::parse(pgraph::to_text(pgraph::PGraph(spec.signature)) +
                                                    "c3 = stride c2 by s\ndata x2 = match c3\n"
                                                    "input = c0 c1\nx2 = c0 c3\n");
  EXPECT_EQ(derivation(spec, graph).steps.back().removed_by, "weight-shares-gaps");
  spec.disabled_rules.emplace("weight-shares-gaps");
  EXPECT_EQ(derivation(spec, graph).steps.back().removed_by, "");
}

TEST(FurtherInputs, ArePooledNoMoreThanTheSpecAllows) {
  Spec spec = attention_spec({"B", "I", "J"}, {"B", "I"}, {"B", "s*J"}, 3);
  EXPECT_FALSE(enumerate(spec).operators.empty());
  spec.budgets.max_pooling = 1;
  EXPECT_TRUE(enumerate(spec).operators.empty());
}

TEST(FurtherInputsOfASpec, ReadBackFromTheirText) {
  const Spec spec = rich_pooled(4, 1);
  const Spec again = spec_from_json(spec_to_json(spec));
  EXPECT_EQ(again, spec);
  EXPECT_EQ(spec_to_json(again), spec_to_json(spec));
  // Specs without any are written as they always were.
  EXPECT_EQ(spec_to_json(testing::line_spec(3)).find("further"), std::string::npos);
}

TEST(FurtherInputsOfASpec, ThatCannotBeAreRefusedWithTheReason) {
  const auto complaint = [](const Spec& spec) -> std::string {
    try {
      check(spec);
    } catch (const SpecError& error) {
      return error.what();
    }
    return "";
  };
  Spec spec = scores_spec(3);
  spec.budgets.max_weights = 4;
  EXPECT_NE(complaint(spec).find("must lie in 0 to 3"), std::string::npos);
  spec = attention_spec({"B", "I"}, {"B", "I"}, {"B", "I"}, 1);
  spec.signature.further[0].fixed = {{1, 1}};
  EXPECT_NE(complaint(spec).find("input x2"), std::string::npos);
  spec = scores_spec(3);
  spec.occurrences[3] = 0;
  EXPECT_NE(complaint(spec).find("'D'"), std::string::npos);
  spec = scores_spec(3);
  spec.signature.further.resize(4, spec.signature.further[0]);
  EXPECT_NE(complaint(spec).find("4 further inputs"), std::string::npos);
  std::string json = spec_to_json(scores_spec(3));
  json.replace(json.find("\"dims\""), 6, "\"dimz\"");
  EXPECT_THROW(spec_from_json(json), FormatError);
}

}  // namespace
}  // namespace syno::synth
