// The space as a whole: known counts, nothing missed, nothing twice, the same for any number of threads.
#include "synth/enumerate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>

#include "equality/operators_small.hpp"
#include "lower/lower.hpp"
#include "pgraph/named.hpp"
#include "program/verify.hpp"
#include "small_specs.hpp"
#include "support/error.hpp"
#include "support/random.hpp"
#include "synth/duplicates.hpp"
#include "synth/engine.hpp"
#include "synth/explain.hpp"

namespace syno::synth {
namespace {

std::set<Hash128> keys_of(const Enumeration& result) {
  OperatorKeys key_of;
  std::set<Hash128> keys;
  for (const Found& found : result.operators) keys.insert(key_of(found.graph));
  return keys;
}

std::set<Hash128> built(const Enumeration& result) {
  std::set<Hash128> hashes;
  for (const Found& found : result.operators) hashes.insert(pgraph::hash_of(found.graph));
  return hashes;
}

using equality::testing::OperatorText;

/// Two weights that meet in a sum as the one weight of their product; nothing when they do not meet, or when
/// the sum is shorter than both sides, so that the product is not any weight.
std::optional<OperatorText> as_one_weight(const OperatorText& text, const Sizes& sizes) {
  if (text.reads.size() != 3 || text.reads[0].tensor != "x") return std::nullopt;
  const auto& w1 = text.reads[1].dims;
  const auto& w2 = text.reads[2].dims;
  const auto indexes = [](const equality::testing::Named& dims, const std::string& index) {
    return std::any_of(dims.begin(), dims.end(), [&](const auto& dim) { return dim.first == index; });
  };
  const auto used = [](const equality::testing::Named& dims, const std::string& index) {
    return std::any_of(dims.begin(), dims.end(),
                       [&](const auto& dim) { return dim.first.find(index) != std::string::npos; });
  };
  for (std::size_t r = 0; r < text.sums.size(); ++r) {
    const auto& [sum, extent] = text.sums[r];
    if (used(text.reads[0].dims, sum) || !indexes(w1, sum) || !indexes(w2, sum)) continue;
    const auto side = [&](const auto& mine, const auto& other, std::size_t v) {
      double points = 1;
      for (const auto& [index, size] : mine)
        if (!indexes(other, index)) points *= sizes.value(sizes.parse(size), v).to_double();
      return points;
    };
    for (std::size_t v = 0; v < sizes.valuation_count(); ++v) {
      if (sizes.value(sizes.parse(extent), v).to_double() < std::min(side(w1, w2, v), side(w2, w1, v)))
        return std::nullopt;
    }
    OperatorText one = text;
    one.sums.erase(one.sums.begin() + static_cast<std::ptrdiff_t>(r));
    one.reads.pop_back();
    auto& dims = one.reads[1].dims;
    for (const auto& dim : w2)
      if (!indexes(w1, dim.first)) dims.push_back(dim);
    std::erase_if(dims, [&](const auto& dim) { return dim.first == sum; });
    return one;
  }
  return std::nullopt;
}

TEST(Enumerate, FindsEachOfTheAuthorsOperatorsOnResnet18OrItsEqual) {
  const Spec spec = spec_named("resnet18");
  const Enumeration result = enumerate(
      spec, {.max_steps = 7, .threads = 2, .limit = {}, .operator_keys = true, .shape_distance = true});
  EXPECT_EQ(result.statistics.by_steps, (std::vector<std::uint64_t>{0, 0, 2, 4, 30, 96, 332, 624}));
  const std::set<Hash128> found = keys_of(result);
  equality::OperatorKeyCache cache;
  const auto has = [&](const OperatorText& text) {
    const program::Program program = text.program();
    return found.contains(equality::operator_key(program, equality::testing::channels(program), &cache));
  };
  std::vector<OperatorText> theirs = equality::testing::operators_small();
  const std::vector<OperatorText> deeper = equality::testing::operators_deeper();
  theirs.insert(theirs.end(), deeper.begin(), deeper.end());
  EXPECT_EQ(theirs.size(), 196U);
  std::size_t as_one = 0;
  for (const OperatorText& text : theirs) {
    if (has(text)) continue;
    const auto one = as_one_weight(text, spec.signature.sizes);
    ASSERT_TRUE(one.has_value()) << text.text();
    EXPECT_TRUE(has(*one)) << one->text();
    ++as_one;
  }
  EXPECT_EQ(as_one, 4U) << "refused by weights-without-bottleneck";
}

TEST(Enumerate, ShapeDistanceLosesNothing) {
  Spec repeats = testing::line_spec(4);  // above joined dimensions too
  repeats.name = "repeats";
  repeats.budgets.max_expands = 1;
  repeats.thresholds.max_repeat = 100;
  repeats.disabled_rules.emplace("expand-not-above-merge");
  Spec dilated = testing::line_spec(6);
  dilated.name = "dilated";
  dilated.budgets.max_strides = 2;
  dilated.extensions = {"dilated_windows"};
  // The layer strides: what a stride changes are coefficients, never primary variables.
  Spec strided = testing::line_spec(5);
  strided.name = "strided";
  strided.signature.input[1].extent = strided.signature.sizes.parse("s*H");
  strided.budgets.max_strides = 2;
  strided.extensions = {"dilated_windows", "strided_inputs", "depthwise"};
  Spec alike = testing::line_spec(4);  // nothing is similar
  alike.name = "alike";
  alike.thresholds.similar_share = 0.01;
  alike.thresholds.shift_ratio = 1;
  alike.budgets.max_pooling = kUnbounded;
  alike.extensions = {"weightless"};
  std::vector<Spec> specs = {
      testing::line_spec(5), testing::rich_line_spec(4), repeats, dilated, strided, alike};
  for (const char* name : {"resnet18", "test", "simple"}) {
    specs.push_back(spec_named(name));
    specs.back().budgets.max_steps = 4;
  }
  for (const Spec& spec : specs) {
    EnumerationOptions options{
        .max_steps = 0, .threads = 1, .limit = {}, .operator_keys = false, .shape_distance = true};
    const Enumeration with = enumerate(spec, options);
    options.shape_distance = false;
    const Enumeration without = enumerate(spec, options);
    EXPECT_EQ(built(with), built(without)) << spec.name;
    EXPECT_LT(with.statistics.states, without.statistics.states) << spec.name;
    EXPECT_GT(with.operators.size(), 10U) << spec.name;
  }
}

TEST(ShapeDistance, IsWithinALimitWhereItIsNoGreater) {
  for (Spec spec : {testing::rich_line_spec(6), testing::strided_spec(9), spec_named("attention")}) {
    Engine once(spec);  // is asked for the distance first
    Engine twice(spec);
    Random random(7);
    std::size_t near = 0, far = 0;
    for (int walk = 0; walk < 60; ++walk) {
      State state = once.root(), other = twice.root();
      std::vector<Move> moves, others;
      for (int steps = 0; steps < 5; ++steps) {
        const int limit = static_cast<int>(random.below(7));
        const int distance = once.distance(state, 8);
        EXPECT_EQ(once.within_distance(state, limit), distance <= limit) << spec.name;
        EXPECT_EQ(twice.within_distance(other, limit), distance <= limit) << spec.name;
        EXPECT_EQ(twice.distance(other, 8), distance) << spec.name;
        ++(distance <= limit ? near : far);
        once.moves(state, moves);
        twice.moves(other, others);
        ASSERT_EQ(moves.size(), others.size());
        if (moves.empty()) break;
        const std::size_t chosen = random.below(moves.size());
        State next;
        once.apply(state, moves[chosen], next);
        state = next;
        twice.apply(other, others[chosen], next);
        other = next;
      }
    }
    EXPECT_GT(near, 10U) << spec.name;
    EXPECT_GT(far, 10U) << spec.name;
  }
}

TEST(Enumerate, EndsAfterAsManyStepsAsItMayLookAt) {
  const Spec spec = testing::line_spec(6);
  const Enumeration all = enumerate(spec);
  for (const std::uint64_t most : {1ULL, 500ULL, 5'000ULL}) {
    EnumerationOptions options;
    options.most_children = most;
    const Enumeration some = enumerate(spec, options);
    EXPECT_TRUE(some.statistics.truncated);
    EXPECT_LT(some.statistics.children, most + 500) << "branches that are left are not begun";
    EXPECT_LT(some.operators.size(), all.operators.size());
    EXPECT_EQ(built(some), built(enumerate(spec, options)));
  }
  EnumerationOptions enough;
  for (const int threads : {1, 3}) {
    enough.threads = threads;
    enough.most_children = all.statistics.children;
    EXPECT_FALSE(enumerate(spec, enough).statistics.truncated);
    EXPECT_EQ(built(enumerate(spec, enough)), built(all));
    --enough.most_children;
    EXPECT_GT(enumerate(spec, enough).statistics.children, enough.most_children) << "which tells a part";
  }
}

TEST(Enumerate, EveryOperatorIsLegalWhereWindowsMayBeLarge) {
  Spec spec = spec_named("test");
  spec.disabled_rules = {"unfold-large-window", "unfold-of-reduces"};  // k_1^2 exceeds C_in
  for (const bool distance : {true, false}) {  // which itself keeps most such windows away
    const Enumeration result = enumerate(
        spec, {.max_steps = 4, .threads = 2, .limit = {}, .operator_keys = true, .shape_distance = distance});
    EXPECT_GT(result.operators.size(), 0U);
    for (const Found& found : result.operators)
      EXPECT_NO_THROW(program::verify(lower::one_scope(found.graph))) << pgraph::to_text(found.graph);
  }
}

TEST(Enumerate, TheOrderOfCommutingStepsLosesNothing) {
  // Every operator a random walk without the order rule could build is also reached in the one order that is
  // kept: the named operators, whose steps stand in other orders, are found.
  Spec spec = testing::line_spec(5);
  const std::set<Hash128> found = [&] {
    std::set<Hash128> hashes;
    for (const Found& f :
         enumerate(
             spec,
             {.max_steps = 5, .threads = 1, .limit = {}, .operator_keys = false, .shape_distance = true})
             .operators)
      hashes.insert(pgraph::hash_of(f.graph));
    return hashes;
  }();
  pgraph::NamedParameters parameters;
  parameters.kernel = spec.signature.sizes.parse("k");
  parameters.groups = spec.signature.sizes.parse("s");
  for (const char* name : {"conv1x1", "conv"}) {
    EXPECT_TRUE(
        found.contains(pgraph::hash_of(pgraph::named_operator(name).build(spec.signature, parameters))))
        << name;
  }
}

TEST(Enumerate, IsTheSameForAnyNumberOfThreads) {
  const Spec spec = testing::rich_line_spec(4);
  const Enumeration one = enumerate(
      spec, {.max_steps = 4, .threads = 1, .limit = {}, .operator_keys = true, .shape_distance = true});
  const Enumeration four = enumerate(
      spec, {.max_steps = 4, .threads = 4, .limit = {}, .operator_keys = true, .shape_distance = true});
  ASSERT_EQ(one.operators.size(), four.operators.size());
  for (std::size_t i = 0; i < one.operators.size(); ++i)
    EXPECT_EQ(one.operators[i].graph, four.operators[i].graph);
  EXPECT_EQ(one.statistics.rejected, four.statistics.rejected);
}

TEST(Enumerate, SaysWhichDepthMayFitTheMemoryLimit) {
  EnumerationOptions options;
  options.memory_limit = 1'000;
  try {
    enumerate(testing::line_spec(4), options);
    FAIL() << "a kilobyte sufficed";
  } catch (const SpecError& error) {
    EXPECT_NE(std::string(error.what()).find("at most 3 steps"), std::string::npos) << error.what();
  }
  options.memory_limit = 500'000'000;
  EXPECT_FALSE(enumerate(testing::line_spec(4), options).operators.empty());
}

TEST(Enumerate, EmitsNoOperatorTwice) {
  const Enumeration result = enumerate(testing::line_spec(5));
  EXPECT_EQ(keys_of(result).size(), result.operators.size());
}

TEST(Enumerate, FlopsAndParametersAreThoseOfTheStagedProgram) {
  // Lowering may also multiply weights with each other first, so that it may take less where there are two.
  const Spec spec = testing::line_spec(5);
  std::size_t with_one = 0;
  for (const Found& found : enumerate(spec).operators) {
    const program::Program staged = lower::staged(found.graph);
    double flops = 0;
    double params = 0;
    for (std::size_t v = 0; v < spec.signature.sizes.valuation_count(); ++v) {
      const program::Cost cost = program::cost(staged, v);
      flops += static_cast<double>(cost.flops);
      params += static_cast<double>(cost.params);
    }
    EXPECT_EQ(found.work.params, params) << pgraph::to_text(found.graph);
    if (found.graph.graph.weights().size() == 1) {
      EXPECT_EQ(found.work.flops, flops) << pgraph::to_text(found.graph);
      ++with_one;
    } else {
      EXPECT_GE(found.work.flops, flops) << pgraph::to_text(found.graph);
    }
  }
  EXPECT_GT(with_one, 20U);
}

TEST(Budgets, PruneInsideTheSearchExactlyWhatTheyForbid) {
  const EnumerationOptions options{
      .max_steps = 5, .threads = 1, .limit = {}, .operator_keys = false, .shape_distance = true};
  const Enumeration all = enumerate(testing::line_spec(5), options);
  std::vector<double> flops;
  for (const Found& found : all.operators) flops.push_back(found.work.flops);
  std::sort(flops.begin(), flops.end());
  const double median = flops[flops.size() / 2];
  Spec limited = testing::line_spec(5);
  limited.budgets.max_flops = median;
  std::set<Hash128> wanted;
  for (const Found& found : all.operators) {
    if (found.work.flops <= median) wanted.insert(pgraph::hash_of(found.graph));
  }
  const Enumeration kept = enumerate(limited, options);
  EXPECT_EQ(built(kept), wanted);
  EXPECT_LT(kept.statistics.states, all.statistics.states);
}

class NamedOnResnet18 : public ::testing::TestWithParam<const char*> {};

TEST_P(NamedOnResnet18, IsAllowedAlongEveryPrefix) {
  Spec spec = spec_named("resnet18");
  const auto& sizes = spec.signature.sizes;
  pgraph::NamedParameters parameters;
  parameters.kernel = sizes.parse("k_1");
  parameters.groups = sizes.parse(std::string(GetParam()) == "operator1" ? "g" : "s");
  parameters.shrink = sizes.parse("s");
  if (std::string(GetParam()) == "conv")
    spec.budgets.max_flops = kUnbounded;  // the spec asks for less than a convolution
  const Derivation way =
      derivation(spec, pgraph::named_operator(GetParam()).build(spec.signature, parameters));
  EXPECT_TRUE(way.legal) << to_text(way);
}
INSTANTIATE_TEST_SUITE_P(Paper, NamedOnResnet18,
                         ::testing::Values("conv1x1", "grouped_conv", "operator1", "conv"));

class NamedElsewhere : public ::testing::TestWithParam<std::tuple<const char*, bool>> {};

TEST_P(NamedElsewhere, IsAllowedWithBudgetsOffAndTheExtensionsItNeeds) {
  const auto [name, strided] = GetParam();
  Spec spec = spec_named("conv");
  const auto& sizes = spec.signature.sizes;
  if (strided) {
    spec.signature.input[2].extent = sizes.parse("s*H");
    spec.signature.input[3].extent = sizes.parse("s*W");
    spec.occurrences[6] = 8;
  }
  if (std::string_view(name) == "average_pool" || std::string_view(name) == "pixel_shuffle" ||
      std::string_view(name) == "depthwise_conv") {
    spec.signature.output[1].extent = spec.signature.input[1].extent;
  }
  for (const std::string_view extension : extension_names()) spec.extensions.emplace(extension);
  const Budgets defaults;
  spec.budgets = defaults;
  spec.budgets.max_strides = kNoLimit;
  spec.budgets.min_weight_params = 1;
  spec.thresholds.max_window = 60;
  spec.thresholds.unfold_ratio = 1;
  for (int& occurrences : spec.occurrences) occurrences = std::max(occurrences, 4);
  pgraph::NamedParameters parameters;
  parameters.kernel = sizes.parse("k");
  parameters.groups = sizes.parse("g");
  parameters.dilation = sizes.parse("s");
  parameters.shrink = sizes.parse("s");
  parameters.block = sizes.parse("s");
  if (std::string_view(name) == "pixel_shuffle") {
    // 7x7 has no blocks of 2.
    spec.signature.sizes = Sizes(sizes.variables(), {{1, 16, 16, 28, 28, 3, 2, 4}});
  }
  const Derivation way = derivation(spec, pgraph::named_operator(name).build(spec.signature, parameters));
  EXPECT_TRUE(way.legal) << to_text(way);
}
INSTANTIATE_TEST_SUITE_P(
    Paper, NamedElsewhere,
    ::testing::Values(std::tuple{"matmul", false}, std::tuple{"conv", false}, std::tuple{"conv", true},
                      std::tuple{"dilated_conv", false}, std::tuple{"depthwise_conv", false},
                      std::tuple{"separable_conv", false}, std::tuple{"separable_conv", true},
                      std::tuple{"average_pool", true}, std::tuple{"pixel_shuffle", false},
                      std::tuple{"grouped_conv", false}, std::tuple{"grouped_conv", true},
                      std::tuple{"operator1", false}, std::tuple{"operator1", true},
                      std::tuple{"operator2", false}));

}  // namespace
}  // namespace syno::synth
