// Every rule, by name: it fires; an exact one removes only what something kept equals; a similar one only
// what something kept nearly equals; a futile one only what lacks the property it names.
#include "synth/rules.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "lower/lower.hpp"
#include "program/interpret.hpp"
#include "similar_share.hpp"
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
/// what these rules keep is a primitive with another parameter, which NearEqual below compares with. Two
/// weights and the one that they are have different keys.
bool compared_elsewhere(const std::string& rule) {
  return rule == "weights-without-bottleneck" || rule == "shift-above-shift" ||
         rule == "stride-above-stride" || rule == "merge-unordered-chain" || rule == "input-unordered-shift";
}

TEST_P(ExactRule, RemovesOnlyWhatEqualsSomethingKept) {
  if (compared_elsewhere(GetParam())) GTEST_SKIP() << "compared in NearEqual or AsOneWeight";
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

/// Two weights that meet in a Reduce as one that indexes all that they index; nothing where a view stands
/// between them, or where the one weight exceeds what the spec allows.
std::optional<CompleteGraph> as_one_weight(const CompleteGraph& complete) {
  using pgraph::Primitive;
  const pgraph::PGraph& graph = complete.graph;
  std::vector<std::size_t> weights;
  for (std::size_t t = 0; t < graph.steps().size(); ++t) {
    if (graph.steps()[t].primitive == Primitive::Contraction) weights.push_back(t);
  }
  if (weights.size() != 2) return std::nullopt;
  const pgraph::Step& first = graph.steps()[weights[0]];
  pgraph::Step one = graph.steps()[weights[1]];
  const auto has = [](const auto& ids, pgraph::CoordinateId id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  std::set<std::size_t> dropped = {weights[0]};
  std::vector<pgraph::CoordinateId> matched;
  for (const auto id : one.matched) {
    const auto step = graph.coordinate(id).step;
    const bool sum = step && graph.steps()[*step].primitive == Primitive::Reduce && has(first.operands, id);
    if (sum) dropped.insert(*step);
    if (!sum) matched.push_back(id);
  }
  if (dropped.size() == 1) return std::nullopt;
  one.matched = matched;
  for (const auto id : first.operands) {
    const auto step = graph.coordinate(id).step;
    if (!(step && dropped.contains(*step)) && !has(one.operands, id) && !has(one.matched, id))
      one.operands.push_back(id);
  }
  one.matched.insert(one.matched.end(), first.matched.begin(), first.matched.end());
  pgraph::PGraph result(graph.signature());
  std::map<pgraph::CoordinateId, pgraph::CoordinateId> ids;
  for (std::uint32_t c = 0; c < graph.signature().output.size(); ++c)
    ids[pgraph::CoordinateId{c}] = pgraph::CoordinateId{c};
  try {
    for (std::size_t t = 0; t < graph.steps().size(); ++t) {
      if (dropped.contains(t)) continue;
      pgraph::Step step = t == weights[1] ? one : graph.steps()[t];
      for (auto* list : {&step.operands, &step.matched})
        for (auto& id : *list) id = ids.at(id);
      const auto next = static_cast<std::uint32_t>(result.coordinate_count());
      result = pgraph::apply_all(std::move(result), {step});
      std::uint32_t n = next;
      for (const auto id : graph.results_of(t)) ids[id] = pgraph::CoordinateId{n++};
    }
    std::vector<pgraph::CoordinateId> input;
    for (const auto id : complete.input) input.push_back(ids.at(id));
    return pgraph::complete(std::move(result), input, {});
  } catch (const Error&) {
    return std::nullopt;  // a view of what the first weight shares came before the second one
  }
}

/// Operators of a spec that only this rule refuses, and the keys of all that are kept.
struct Removed {
  std::vector<Found> operators;
  std::set<Hash128> kept;
};
Removed removed_by(const std::string& rule, Spec spec) {
  Removed result;
  OperatorKeys key_of;
  for (const Found& found : enumerate(spec).operators) result.kept.insert(key_of(found.graph));
  spec.disabled_rules.insert(rule);
  for (Found& found : enumerate(spec).operators)
    if (!result.kept.contains(key_of(found.graph))) result.operators.push_back(std::move(found));
  return result;
}

TEST(AsOneWeight, IsKeptForAllThatWeightsWithoutBottleneckRemoves) {
  std::size_t compared = 0;
  for (Spec spec : {testing::line_spec(6), testing::rich_line_spec(5)}) {
    spec.disabled_rules = {"weights-larger-than-product"};
    spec.thresholds.min_matched_reduce = 1;
    const Removed removed = removed_by("weights-without-bottleneck", spec);
    OperatorKeys key_of;
    for (const Found& found : removed.operators) {
      const std::optional<CompleteGraph> one = as_one_weight(found.graph);
      if (!one) continue;
      ++compared;
      ASSERT_TRUE(removed.kept.contains(key_of(*one))) << spec.name << ": not kept, though equal to\n"
                                                       << pgraph::to_text(found.graph);
    }
  }
  EXPECT_GT(compared, 500U);
}

TEST(AsOneWeight, HasNoMoreElementsThanWhatWeightsLargerThanProductRemoves) {
  Spec spec = testing::line_spec(6);
  spec.signature.sizes =
      Sizes(spec.signature.sizes.variables(), {{6, 8, 12, 5, 2}});  // k between half and all
  const Removed removed = removed_by("weights-larger-than-product", spec);
  OperatorKeys key_of;
  const auto elements = [&](const CompleteGraph& graph) {
    double sum = 0;
    for (const pgraph::Step& step : graph.graph.steps()) {
      double weight = step.primitive == pgraph::Primitive::Contraction ? 1 : 0;
      for (const auto* list : {&step.operands, &step.matched})
        for (const auto id : *list)
          weight *= spec.signature.sizes.value(graph.graph.coordinate(id).extent, 0).to_double();
      sum += weight;
    }
    return sum;
  };
  std::size_t compared = 0;
  for (const Found& found : removed.operators) {
    const std::optional<CompleteGraph> one = as_one_weight(found.graph);
    if (!one) continue;
    ++compared;
    ASSERT_TRUE(removed.kept.contains(key_of(*one))) << pgraph::to_text(found.graph);
    EXPECT_LE(elements(*one), elements(found.graph)) << pgraph::to_text(found.graph);
  }
  EXPECT_GT(compared, 20U);
}

TEST(WeightsMatchAdjacent, RemovesOnlyPartsOfWhichNoWeightSeesTwo) {
  // Chains of Merges give parts that one weight shares while another one matches them.
  Spec spec = testing::line_spec(6);
  spec.budgets.max_merges = 2;
  const Removed removed = removed_by("weights-match-adjacent", spec);
  for (const Found& found : removed.operators) {
    const pgraph::PGraph& graph = found.graph.graph;
    bool apart =
        false;  // two parts of one Merge, each matched by a weight of its own that does not see the other
    for (std::size_t t = 0; t < graph.steps().size() && !apart; ++t) {
      if (graph.steps()[t].primitive != pgraph::Primitive::Merge) continue;
      const auto parts_of =
          [&](pgraph::CoordinateId id) {  // the last ones of the major, the first of the minor
            std::vector<pgraph::CoordinateId> parts = {id};
            for (std::size_t k = 0; k < parts.size(); ++k) {
              for (std::size_t u = 0; u < graph.steps().size(); ++u) {
                const pgraph::Step& step = graph.steps()[u];
                if (step.primitive != pgraph::Primitive::Merge || step.operands[0] != parts[k]) continue;
                for (const auto part : graph.results_of(u)) parts.push_back(part);
              }
            }
            return parts;
          };
      const auto results = graph.results_of(t);
      for (const auto major : parts_of(results[0])) {
        for (const auto minor : parts_of(results[1])) {
          const auto sees = [](const pgraph::Step& step, pgraph::CoordinateId id) {
            return std::count(step.operands.begin(), step.operands.end(), id) +
                   std::count(step.matched.begin(), step.matched.end(), id);
          };
          bool matched[2] = {false, false}, together = false;
          for (const pgraph::Step& step : graph.steps()) {
            if (step.primitive != pgraph::Primitive::Contraction) continue;
            together = together || (sees(step, major) != 0 && sees(step, minor) != 0);
            matched[0] = matched[0] || std::count(step.matched.begin(), step.matched.end(), major) != 0;
            matched[1] = matched[1] || std::count(step.matched.begin(), step.matched.end(), minor) != 0;
          }
          apart = apart || (matched[0] && matched[1] && !together);
        }
      }
    }
    EXPECT_TRUE(apart) << pgraph::to_text(found.graph);
    if (HasFailure()) return;
  }
  EXPECT_GT(removed.operators.size(), 200U);
}

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
    {"merge-within-window", "N k*q", "N/k k",
     "c2 = unfold c0 window c1\nc3 c4 = merge c2 block k\ninput = c3 c4",
     "c2 c3 = merge c1 block k\nc4 c5 = merge c0 block k\nc6 = unfold c4 window c2\nc7 = unfold c5 window "
     "c3\n"
     "input = c6 c7",
     0.23},
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
  if (std::string_view(pair.rule) == "merge-within-window")
    spec.thresholds.unfold_ratio = 1;  // one fills a block
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

struct Similar {
  const char* rule;
  pgraph::Primitive upper, lower;
};
constexpr Similar kSimilar[] = {
    {"shift-above-split", pgraph::Primitive::Shift, pgraph::Primitive::Split},
    {"merge-above-shift", pgraph::Primitive::Merge, pgraph::Primitive::Shift},
    {"merge-above-unfold", pgraph::Primitive::Merge, pgraph::Primitive::Unfold},
    {"unfold-above-split", pgraph::Primitive::Unfold, pgraph::Primitive::Split},
    {"unfold-above-shift", pgraph::Primitive::Unfold, pgraph::Primitive::Shift},
    {"unfold-window-order", pgraph::Primitive::Unfold, pgraph::Primitive::Unfold},
};
class SimilarRule : public ::testing::TestWithParam<Similar> {};

/// Layers of two sizes, the smaller with the nearer borders: what fits the rule's pattern is removed only
/// where it differs at no more than the share that the spec states, at both.
TEST_P(SimilarRule, RemovesOnlyWhatDiffersAtNoMoreThanTheShareEverywhere) {
  const Similar& rule = GetParam();
  const Pair& pair = *std::find_if(std::begin(kPairs), std::end(kPairs),
                                   [&](const Pair& p) { return std::string_view(p.rule) == rule.rule; });
  Spec spec = pair_spec(pair);
  for (const std::int64_t size : {48, 24, 12}) {  // a layer with more room comes beside, and changes nothing
    const auto row = [](std::int64_t n) { return std::vector<std::int64_t>{n, n / 3, 3, 5, 2}; };
    spec.signature.sizes = Sizes(spec.signature.sizes.variables(), {row(size), row(96)});
    const CompleteGraph graph = graph_of(spec, pair.removed);
    const std::vector<double> shares = testing::shares_of(graph, rule.upper, rule.lower);
    ASSERT_EQ(shares.size(), 1U);
    const auto refused_at = [&](double share) {
      spec.thresholds.similar_share = share;
      return refusal(spec, graph) == rule.rule;
    };
    EXPECT_FALSE(refused_at(0.99 * shares[0])) << size;
    EXPECT_TRUE(refused_at(std::min(1.0, 3 * shares[0]))) << size;
  }
}
INSTANTIATE_TEST_SUITE_P(Table, SimilarRule, ::testing::ValuesIn(kSimilar), [](const auto& info) {
  std::string name = info.param.rule;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// --- futile
// ------------------------------------------------------------------------------------------------------

/// An operator the rule removes and a neighbour it keeps.
struct RuleCase {
  const char* rule;
  const char* output;
  const char* input;
  const char* removed;
  const char* kept;
  const char* without = "";  ///< an extension to take away, so that the rule holds
};

constexpr RuleCase kCases[] = {
    {"merge-above-uneven-split", "N B", "q*B N/q",
     "c2 = split c0 c1\nc3 c4 = merge c2 block N/q\ninput = c3 c4", "", "uneven_blocks"},
    {"unfold-window-unshared", "N", "N", "c1 = reduce k\nc2 = unfold c0 window c1\ninput = c2",
     "c1 = reduce k\nweight w1 = share c1\nc2 = unfold c0 window c1\ninput = c2", "weightless"},
    {"unfold-of-reduces", "k", "N", "c1 = reduce N\nc2 = unfold c1 window c0\ninput = c2", "", ""},
    {"merge-of-strided-sum", "B N", "N s*N/k",
     "c2 = reduce N\nweight w1 = share c2 match c0\nc3 = stride c2 by s\nc4 c5 = merge c3 block k\n"
     "weight w2 = share c1 match c5\ninput = c1 c4",
     "", "strided_inputs"},
    {"unfold-of-strided-sum", "B", "s*N",
     "c1 = reduce N\nc2 = reduce k\nweight w1 = share c1 match c0\nweight w2 = share c2\n"
     "c3 = stride c1 by s\nc4 = unfold c3 window c2\ninput = c4",
     "", "strided_inputs"},
    {"unfold-shifts-weights", "N k", "N N",
     "c2 = reduce N\nweight w1 = share c2\nc3 = unfold c2 window c1\ninput = c0 c3", "", "shifted_weights"},
    {"unfold-even-window", "N s", "N", "c2 = unfold c0 window c1\ninput = c2", "", "even_windows"},
    {"unfold-large-window", "N B*k", "N", "c2 = unfold c0 window c1\ninput = c2", "", ""},
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
     "c2 c3 = merge c0 block B\nweight w1 = share c1 c2 match c3\nweight w2 = share c1 match c2\ninput = c1",
     ""},
    {"weights-larger-than-product", "B", "B",
     "c1 = reduce q\nc2 = reduce B\nweight w1 = share c1 match c0\nweight w2 = share c2 match c1\ninput = c2",
     "c1 = reduce k\nc2 = reduce B\nweight w1 = share c1 match c0\nweight w2 = share c2 match c1\ninput = c2",
     ""},
    // N/B/k is one point: alone it is all that passes; beside a window or a group it is not.
    {"weight-only-scales", "N", "N k",
     "c1 = reduce N/B/k\nc2 = reduce N\nc3 = reduce k\nweight w1 = share c1 match c0\n"
     "weight w2 = share c2 c3 match c1\ninput = c2 c3",
     "c1 = reduce N/B/k\nc2 = reduce N\nc3 = reduce k\nweight w1 = share c1 c3 match c0\n"
     "weight w2 = share c2 c3 match c1\ninput = c2 c3",
     ""},
    {"weight-shares-gaps", "N k", "s*N",
     "c2 = stride c0 by s\nweight w1 = share c1 c2\nc3 = unfold c2 window c1\ninput = c3",
     "weight w1 = share c0 c1\nc2 = stride c0 by s\nc3 = unfold c2 window c1\ninput = c3", ""},
    {"pools-too-much", "B", "B N", "c1 = reduce N\nweight w1 = share c0\ninput = c0 c1",
     "c1 = reduce N\nweight w1 = share c0 c1\ninput = c0 c1", ""},
    {"discards-data", "N", "s*N", "weight w1 = share c0\nc1 = stride c0 by s\ninput = c1", "", ""},
    {"has-no-weight", "N", "N", "c1 = shift c0 by 1\ninput = c1", "", "weightless"},
};

class FutileRule : public ::testing::TestWithParam<RuleCase> {
 protected:
  Spec spec(const char* output, const char* input) const {
    Spec result = pair_spec({GetParam().rule, output, input, "", "", 0});
    result.budgets.min_weight_params = 1;
    result.budgets.max_reduction_ratio = kUnbounded;
    result.thresholds.max_repeat = 4;
    result.occurrences[0] = 6;
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
    if (std::string_view(GetParam().rule) == "merge-above-uneven-split") {
      with.signature.sizes = Sizes(with.signature.sizes.variables(), {{30, 8, 3, 5, 2}});
    }
    if (std::string_view(GetParam().rule) == "weight-without-matched") with.extensions.insert("depthwise");
    EXPECT_EQ(refusal(with, graph_of(with, GetParam().removed)), "");
  } else {
    // Switched off by name, the rule no longer stands in the way.
    with.disabled_rules.insert(GetParam().rule);
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
  for (const RuleCase& test : kCases) tested.insert(test.rule);
  for (const RuleClass kind : {RuleClass::Futile, RuleClass::Limit})
    for (const std::string& rule : names_of(kind)) EXPECT_TRUE(tested.contains(rule)) << rule;
}

/// Layers of two sizes: what judges promise holds where most of the work is done, what is legal holds
/// everywhere.
TEST(Promise, IsJudgedWhereMostOfTheWorkIs) {
  struct Limited {
    const char *output, *input, *steps, *reason;
    void (*tighten)(Spec&);
  };
  // At N = 24, B = 8 within the limit, at N = 8 or B = 4 beyond it.
  const Limited cases[] = {
      {"N k", "N", "c2 = unfold c0 window c1\ninput = c2", "unfold-large-window",
       [](Spec& s) { s.thresholds.unfold_ratio = 4; }},
      {"N k", "k", "weight w1 = share c1 match c0\ninput = c1", "min_weight_params",
       [](Spec& s) { s.budgets.min_weight_params = 50; }},
      {"N", "N",
       "c1 = reduce B\nc2 = reduce N\nweight w1 = share c1 match c0\nweight w2 = share c2 match c1\ninput = "
       "c2",
       "matched_reduce", [](Spec& s) { s.thresholds.max_matched_reduce = 7; }},
      {"N", "N",
       "c1 = reduce B\nc2 = reduce N\nweight w1 = share c1 match c0\nweight w2 = share c2 match c1\ninput = "
       "c2",
       "max_reduction_ratio", [](Spec& s) { s.budgets.max_reduction_ratio = 7; }},
  };
  for (const Limited& limited : cases) {
    Spec spec = pair_spec({"promise", limited.output, limited.input, "", "", 0});
    spec.budgets.max_reduction_ratio = kUnbounded;
    spec.budgets.min_weight_params = 1;
    limited.tighten(spec);
    const std::string_view reason = limited.reason;
    const bool grows = reason == "max_reduction_ratio" || reason == "matched_reduce";
    const auto refused = [&](std::vector<double> weights) {
      Spec layers = spec;
      const auto& variables = spec.signature.sizes.variables();
      layers.signature.sizes = grows ? Sizes(variables, {{24, 8, 3, 5, 2}, {24, 4, 3, 5, 2}})
                                     : Sizes(variables, {{24, 8, 3, 5, 2}, {8, 8, 3, 5, 2}});
      layers.weights = std::move(weights);
      return refusal(layers, graph_of(layers, limited.steps));
    };
    // Sums are the longer the larger B is; everything else is the more promising.
    EXPECT_NE(refused({9, 1}) == limited.reason, !grows) << limited.reason;
    EXPECT_NE(refused({1, 9}) == limited.reason, grows) << limited.reason;
    EXPECT_NE(refused({1, 1}), limited.reason) << limited.reason << ": half is enough";
  }
}

TEST(Promise, NeedsAPositiveWeightForEachValuation) {
  Spec spec = testing::line_spec(2);
  for (std::vector<double> weights : {std::vector<double>{1}, {1, 2, 3}, {1, 0}, {1, -1}, {1, kUnbounded}}) {
    spec.weights = std::move(weights);
    EXPECT_THROW(check(spec), SpecError);
  }
  spec.weights = {1, 2.5};
  check(spec);
  EXPECT_EQ(spec_from_json(spec_to_json(spec)).weights, spec.weights);
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
