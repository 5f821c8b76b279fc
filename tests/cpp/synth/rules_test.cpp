// Every rule, by name: it fires; an exact one removes only what something kept equals; a similar one only
// what something kept nearly equals; a futile one only what lacks the property it names.
#include "synth/rules.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "lower/lower.hpp"
#include "program/interpret.hpp"
#include "small_specs.hpp"
#include "support/error.hpp"
#include "synth/duplicates.hpp"
#include "synth/enumerate.hpp"
#include "synth/explain.hpp"

namespace syno::synth {
namespace {

using pgraph::CompleteGraph;

std::vector<std::string> names_of(RuleClass kind) {
  std::vector<std::string> names;
  for (const Rule& rule : rules()) {
    if (rule.kind == kind) names.emplace_back(rule.name);
  }
  return names;
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

TEST(Rules, HaveDifferentNamesAndAStatementEach) {
  std::set<std::string_view> names;
  for (const Rule& rule : rules()) {
    EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
    EXPECT_FALSE(rule.statement.empty()) << rule.name;
    EXPECT_NE(rule.removes == nullptr, rule.removes_finished == nullptr) << rule.name;
  }
}

// --- exact
// ---------------------------------------------------------------------------------------------------

class ExactRule : public ::testing::TestWithParam<std::string> {};

/// Shifts by one and by minus one have no Shift by two among them, two Strides no Stride by their product:
/// what these rules keep is a primitive with another parameter, which EveryPair below compares with.
bool compared_in_pairs(const std::string& rule) {
  return rule == "shift-above-shift" || rule == "stride-above-stride" || rule == "merge-unordered-chain" ||
         rule == "input-unordered-shift";
}

TEST_P(ExactRule, RemovesOnlyWhatEqualsSomethingKept) {
  if (compared_in_pairs(GetParam())) GTEST_SKIP() << "compared in NearEqual";
  std::size_t fired = 0;
  for (Spec spec : {testing::line_spec(4), testing::rich_line_spec(4)}) {
    const Enumeration kept = enumerate(spec);
    const auto count = kept.statistics.rejected.find(GetParam());
    fired += count == kept.statistics.rejected.end() ? 0 : count->second;
    // What equals a removed operator may need one step or Reduce more than it, or a limit's slack.
    Spec wide = spec;
    ++wide.budgets.max_steps;
    ++wide.budgets.max_reductions;
    wide.budgets.max_pooling = kUnbounded;
    wide.budgets.max_reduction_ratio = kUnbounded;
    wide.thresholds.max_matched_reduce = 1e9;
    wide.thresholds.min_matched_reduce = 1;
    wide.occurrences = {3, 4, 1, 2, 4};  // C_in, C_out, H, k, s
    wide.disabled_rules = {
        "unfold-window-unshared"};  // part of a Reduce may be such a window; equality is what counts here
    wide.budgets.max_shifts = 1;
    wide.budgets.max_unfolds = 1;
    wide.extensions.clear();  // what they add is not what these rules remove
    if (GetParam().starts_with("stride") || GetParam() == "merge-above-stride")
      wide.extensions = spec.extensions;
    std::set<Hash128> wanted;
    spec.disabled_rules.insert(GetParam());
    const Enumeration all = enumerate(spec);
    std::set<Hash128> here;
    OperatorKeys key_of;
    for (const Found& found : kept.operators) here.insert(key_of(found.graph));
    std::vector<const Found*> removed;
    for (const Found& found : all.operators) {
      if (!here.contains(key_of(found.graph)) && !testing::sums_a_weight_alone(found.graph.graph))
        removed.push_back(&found);
    }
    if (removed.empty()) continue;
    std::set<Hash128> elsewhere;
    for (const Found& found :
         enumerate(wide,
                   {.max_steps = 0, .threads = 2, .limit = {}, .operator_keys = true, .shape_distance = true})
             .operators)
      elsewhere.insert(key_of(found.graph));
    std::size_t lost = 0;
    for (const Found* found : removed) {
      if (elsewhere.contains(key_of(found->graph))) continue;
      if (lost++ < 2)
        ADD_FAILURE() << spec.name << ": nothing kept equals\n" << pgraph::to_text(found->graph);
    }
    EXPECT_EQ(lost, 0U) << "of " << removed.size();
  }
  EXPECT_GT(fired, 0U) << "the rule never fired: the test shows nothing";
}
INSTANTIATE_TEST_SUITE_P(Table, ExactRule, ::testing::ValuesIn(names_of(RuleClass::Exact)), test_name);

// --- similar, and exact up to a parameter
// ------------------------------------------------------------------------

/// Two small operators without weights; the rule removes the first and keeps the second.
struct Pair {
  const char* rule;
  const char* output;  ///< extents
  const char* input;
  const char* removed;  ///< steps
  const char* kept;
  double share;  ///< of the output's points may differ, at most
};

// N = 24 in blocks of B = 8; windows of k = 3 and q = 5; s = 2.
constexpr Pair kPairs[] = {
    {"shift-above-shift", "N", "N", "c1 = shift c0 by 1\nc2 = shift c1 by 1\ninput = c2",
     "c1 = shift c0 by 2\ninput = c1", 0},
    {"stride-above-stride", "N", "s*s*N", "c1 = stride c0 by s\nc2 = stride c1 by s\ninput = c2",
     "c1 = stride c0 by s*s\ninput = c1", 0},
    {"merge-unordered-chain", "N~", "N/k/s k s",
     "c1 c2 = merge c0 block N/k\nc3 c4 = merge c2 block N/k/s\ninput = c4 c1 c3",
     "c1 c2 = merge c0 block N/s\nc3 c4 = merge c2 block N/s/k\ninput = c4 c3 c1", 0},
    {"input-unordered-shift", "N B", "N*B~", "c2 = shift c0 by 1\nc3 = split c1 c2\ninput = c3",
     "c2 = split c1 c0\ninput = c2", 0},
    {"shift-above-split", "N B", "N*B", "c2 = split c0 c1\nc3 = shift c2 by 1\ninput = c3",
     "c2 = shift c1 by 1\nc3 = split c0 c2\ninput = c3", 1.0 / 8},
    {"merge-above-shift", "N", "N/B B", "c1 = shift c0 by 1\nc2 c3 = merge c1 block B\ninput = c2 c3",
     "c1 c2 = merge c0 block B\nc3 = shift c2 by 1\ninput = c1 c3", 1.0 / 8},
    {"merge-above-unfold", "N k", "N/B B",
     "c2 = unfold c0 window c1\nc3 c4 = merge c2 block B\ninput = c3 c4",
     "c2 c3 = merge c0 block B\nc4 = unfold c3 window c1\ninput = c2 c4", 2.0 / 8},
    {"unfold-above-split", "N B k", "N*B", "c3 = split c0 c1\nc4 = unfold c3 window c2\ninput = c4",
     "c3 = unfold c1 window c2\nc4 = split c0 c3\ninput = c4", 2.0 / 8},
    {"unfold-above-shift", "N k", "N", "c2 = shift c0 by 1\nc3 = unfold c2 window c1\ninput = c3",
     "c2 = unfold c0 window c1\nc3 = shift c2 by 1\ninput = c3", 3.0 / 24},
    {"unfold-window-order", "N k q", "N", "c3 = unfold c0 window c2\nc4 = unfold c3 window c1\ninput = c4",
     "c3 = unfold c0 window c1\nc4 = unfold c3 window c2\ninput = c4", 4.0 / 24},
};

Spec pair_spec(const Pair& pair) {
  using symbolic::VariableKind;
  Spec spec;
  spec.name = pair.rule;
  spec.signature.sizes = Sizes({{"N", VariableKind::Primary},
                                {"B", VariableKind::Coefficient},
                                {"k", VariableKind::Coefficient},
                                {"q", VariableKind::Coefficient},
                                {"s", VariableKind::Coefficient}},
                               {{24, 8, 3, 5, 2}});
  spec.occurrences = {4, 4, 4, 4, 4};
  const auto dims = [&](std::string_view text) {
    std::vector<pgraph::Dim> result;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find(' ', at), text.size());
      std::string_view extent = text.substr(at, end - at);
      const bool unordered = extent.ends_with('~');
      if (unordered) extent.remove_suffix(1);
      result.push_back({std::string(1, static_cast<char>('a' + result.size())),
                        spec.signature.sizes.parse(extent), unordered});
      at = end + 1;
    }
    return result;
  };
  spec.signature.output = dims(pair.output);
  spec.signature.input = dims(pair.input);
  spec.budgets.max_strides = kNoLimit;
  spec.budgets.max_expands = kNoLimit;
  for (const std::string_view name : extension_names()) spec.extensions.emplace(name);
  spec.disabled_rules = {"discards-data"};  // Strides alone; of no matter here
  return spec;
}

CompleteGraph graph_of(const Spec& spec, const char* steps) {
  const std::string head = pgraph::to_text(pgraph::PGraph(spec.signature));
  return pgraph::parse(head + steps + "\n");
}

std::string refusal(const Spec& spec, const CompleteGraph& graph) {
  const Derivation way = derivation(spec, graph);
  for (const DerivationStep& step : way.steps) {
    if (!step.removed_by.empty()) return step.removed_by;
  }
  return way.finished_by;
}

std::vector<double> outputs(const CompleteGraph& graph) {
  const program::Program program = program::at(lower::one_scope(graph), 0);
  std::map<std::string, program::Values<double>> inputs;
  for (const auto id : program.inputs()) {
    program::Values<double> array{program::shape_of(program, id), {}};
    std::int64_t count = 1;
    for (const std::int64_t extent : array.shape) count *= extent;
    for (std::int64_t i = 0; i < count; ++i) array.data.push_back(1.0 + static_cast<double>(i));
    inputs.emplace(program.tensor(id).name, std::move(array));
  }
  return program::interpret(program, inputs).at("y").data;
}

class NearEqual : public ::testing::TestWithParam<Pair> {};

TEST_P(NearEqual, RemovesTheFirstKeepsTheSecondAndTheyDifferAtNoMoreThanTheStatedShare) {
  const Spec spec = pair_spec(GetParam());
  const CompleteGraph removed = graph_of(spec, GetParam().removed);
  const CompleteGraph kept = graph_of(spec, GetParam().kept);
  EXPECT_EQ(refusal(spec, removed), GetParam().rule);
  // The space itself holds Shifts by one place only; a longer one is the same primitive.
  if (std::string_view(GetParam().rule) != "shift-above-shift") EXPECT_EQ(refusal(spec, kept), "");
  if (GetParam().share == 0) {
    OperatorKeys keys;
    EXPECT_EQ(keys(removed), keys(kept));
    return;
  }
  const std::vector<double> a = outputs(removed);
  const std::vector<double> b = outputs(kept);
  ASSERT_EQ(a.size(), b.size());
  double different = 0;
  for (std::size_t i = 0; i < a.size(); ++i) different += a[i] != b[i];
  EXPECT_LE(different / static_cast<double>(a.size()), GetParam().share);
  EXPECT_EQ(different == 0, GetParam().share == 0)
      << "a similar pair that is equal belongs to the exact rules";
}
INSTANTIATE_TEST_SUITE_P(Table, NearEqual, ::testing::ValuesIn(kPairs), [](const auto& info) {
  std::string name = info.param.rule;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(SimilarRules, AllStandInTheTableOfPairs) {
  std::set<std::string> tested;
  for (const Pair& pair : kPairs) tested.insert(pair.rule);
  for (const std::string& rule : names_of(RuleClass::Similar)) EXPECT_TRUE(tested.contains(rule)) << rule;
}

TEST(SimilarRules, FireOnlyBelowTheShareTheSpecStates) {
  const Pair& pair = *std::find_if(std::begin(kPairs), std::end(kPairs), [](const Pair& p) {
    return std::string_view(p.rule) == "shift-above-split";  // one point of eight differs
  });
  Spec spec = pair_spec(pair);
  const CompleteGraph graph = graph_of(spec, pair.removed);
  spec.thresholds.similar_share = 0.2;
  EXPECT_EQ(refusal(spec, graph), pair.rule);
  spec.thresholds.similar_share = 0.1;
  EXPECT_EQ(refusal(spec, graph), "");
}

// --- futile
// ------------------------------------------------------------------------------------------------------

/// An operator the rule removes and a neighbour it keeps.
struct Case {
  const char* rule;
  const char* output;
  const char* input;
  const char* removed;
  const char* kept;
  const char* without = "";  ///< an extension to take away, so that the rule holds
};

constexpr Case kCases[] = {
    {"merge-above-uneven-split", "N B", "q*B N/q",
     "c2 = split c0 c1\nc3 c4 = merge c2 block N/q\ninput = c3 c4", "", ""},
    {"merge-within-window", "N s*k", "N/s s",
     "c2 = unfold c0 window c1\nc3 c4 = merge c2 block s\ninput = c3 c4", "", ""},
    {"unfold-window-unshared", "N", "N", "c1 = reduce k\nc2 = unfold c0 window c1\ninput = c2",
     "c1 = reduce k\nweight w1 = share c1\nc2 = unfold c0 window c1\ninput = c2", "weightless"},
    {"unfold-of-reduces", "k", "N", "c1 = reduce N\nc2 = unfold c1 window c0\ninput = c2", "", ""},
    {"unfold-even-window", "N s", "N", "c2 = unfold c0 window c1\ninput = c2", "", "even_windows"},
    {"unfold-large-window", "N B*k", "N", "c2 = unfold c0 window c1\ninput = c2", "", ""},
    {"stride-above-unfold", "N k", "s*N", "c2 = unfold c0 window c1\nc3 = stride c2 by s\ninput = c3",
     "c2 = stride c0 by s\nc3 = unfold c2 window c1\ninput = c3", ""},
    {"stride-large", "N", "B*B*N", "c1 = stride c0 by B*B\ninput = c1", "", ""},
    {"stride-without-use", "N k", "s*N", "c2 = stride c0 by s\nc3 = unfold c2 window c1\ninput = c3", "",
     "strided_inputs"},
    {"expand-not-above-merge", "N k", "N", "expand c1\ninput = c0", "", ""},
    {"expand-large", "N", "N/B", "c1 c2 = merge c0 block B\nexpand c2\ninput = c1", "", ""},
    {"weight-without-shared", "N k", "N", "weight w1 = match c1\ninput = c0",
     "weight w1 = share c0 match c1\ninput = c0", ""},
    {"weight-without-matched", "N", "N", "weight w1 = share c0\ninput = c0", "", "depthwise"},
    {"weights-match-adjacent", "N k", "k",
     "c2 c3 = merge c0 block B\nweight w1 = share c1 match c3\nweight w2 = share c1 match c2\ninput = c1",
     "weight w1 = share c1 match c0\ninput = c1", ""},
    {"weight-shares-gaps", "N k", "s*N",
     "c2 = stride c0 by s\nweight w1 = share c1 c2\nc3 = unfold c2 window c1\ninput = c3",
     "weight w1 = share c0 c1\nc2 = stride c0 by s\nc3 = unfold c2 window c1\ninput = c3", ""},
    {"pools-too-much", "B", "B N", "c1 = reduce N\nweight w1 = share c0\ninput = c0 c1",
     "c1 = reduce N\nweight w1 = share c0 c1\ninput = c0 c1", ""},
    {"discards-data", "N", "s*N", "weight w1 = share c0\nc1 = stride c0 by s\ninput = c1", "", ""},
    {"has-no-weight", "N", "N", "c1 = shift c0 by 1\ninput = c1", "", "weightless"},
};

class FutileRule : public ::testing::TestWithParam<Case> {
 protected:
  Spec spec(const char* output, const char* input) const {
    Spec result = pair_spec({GetParam().rule, output, input, "", "", 0});
    result.budgets.min_weight_params = 1;
    result.budgets.max_reduction_ratio = kUnbounded;
    result.thresholds.max_repeat = 4;
    if (std::string_view(GetParam().rule) == "discards-data") result.disabled_rules.clear();
    result.extensions.erase(std::string(GetParam().without));
    return result;
  }
};

TEST_P(FutileRule, RemovesWhatLacksTheProperty) {
  Spec with = spec(GetParam().output, GetParam().input);
  if (std::string_view(GetParam().rule) == "merge-above-uneven-split") {
    with.signature.sizes =
        Sizes(with.signature.sizes.variables(), {{30, 8, 3, 5, 2}});  // blocks of 6 over blocks of 8
  }
  EXPECT_EQ(refusal(with, graph_of(with, GetParam().removed)), GetParam().rule);
}

TEST_P(FutileRule, KeepsItsNeighbour) {
  const bool other = GetParam().kept[0] != '\0';
  Spec with = spec(GetParam().output, GetParam().input);
  if (other) {
    EXPECT_EQ(refusal(with, graph_of(with, GetParam().kept)), "");
  } else if (GetParam().without[0] != '\0') {
    with.extensions.insert(GetParam().without);
    if (std::string_view(GetParam().rule) == "weight-without-matched") with.extensions.insert("depthwise");
    EXPECT_EQ(refusal(with, graph_of(with, GetParam().removed)), "");
  } else {
    // Switched off by name, the rule no longer stands in the way.
    with.disabled_rules.insert(GetParam().rule);
    if (std::string_view(GetParam().rule) == "merge-above-uneven-split") {
      with.signature.sizes = Sizes(with.signature.sizes.variables(), {{30, 8, 3, 5, 2}});
    }
    EXPECT_NE(refusal(with, graph_of(with, GetParam().removed)), GetParam().rule);
  }
}
INSTANTIATE_TEST_SUITE_P(Table, FutileRule, ::testing::ValuesIn(kCases), [](const auto& info) {
  std::string name = info.param.rule;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(FutileRules, AllStandInTheTableOfCases) {
  std::set<std::string> tested;
  for (const Case& test : kCases) tested.insert(test.rule);
  for (const std::string& rule : names_of(RuleClass::Futile)) EXPECT_TRUE(tested.contains(rule)) << rule;
}

TEST(FutileRules, DiscardedDataIsNeverRead) {
  // The property behind discards-data: inputs at the Stride's gaps change nothing.
  const Spec spec = pair_spec({"discards-data", "N", "s*N", "", "", 0});
  const program::Program program =
      program::at(lower::one_scope(graph_of(spec, "c1 = stride c0 by s\ninput = c1")), 0);
  std::map<std::string, program::Values<double>> inputs;
  inputs["x"] = {{48}, std::vector<double>(48)};
  for (std::size_t i = 1; i < 48; i += 2) inputs["x"].data[i] = 7;
  const auto result = program::interpret(program, inputs);
  for (const double y : result.at("y").data) EXPECT_EQ(y, 0);
}

}  // namespace
}  // namespace syno::synth
