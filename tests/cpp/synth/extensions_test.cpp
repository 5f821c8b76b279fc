// What each extension of the space adds: a known operator that the search finds with it and not without it.
#include <gtest/gtest.h>

#include <algorithm>

#include "lower/lower.hpp"
#include "lower/operator_key.hpp"
#include "pgraph/named.hpp"
#include "program/interpret.hpp"
#include "program/text.hpp"
#include "small_specs.hpp"
#include "support/random.hpp"
#include "synth/enumerate.hpp"
#include "synth/explain.hpp"

namespace syno::synth {
namespace {

using symbolic::VariableKind;

/// A site along lines, and one operator of it as a formula.
struct Site {
  const char* name;
  std::vector<const char*> extensions;
  const char* output;  ///< `c*:C_out h:H`; a `*` marks an unordered dimension
  const char* input;
  const char* formula;  ///< over x, w1, w2, with y's iterators named as in `output`
  int steps;
};
void PrintTo(const Site& site, std::ostream* out) { *out << site.name; }

const std::vector<Site> kSites = {
    {"depthwise",
     {"depthwise"},
     "c*:C h:H",
     "c*:C h:H",
     "input x[C, H]\nweight w1[C, k]\ny[c: C, h: H] = sum[r: k] x[c, h + r - (k/2)] * w1[c, r]",
     3},
    {"even_windows",
     {"even_windows"},
     "o*:D h:H",
     "c*:C h:H",
     "input x[C, H]\nweight w1[D, C, s]\n"
     "y[o: D, h: H] = sum[c: C, r: s] x[c, h + r - (s/2)] * w1[o, c, r]",
     4},
    {"dilated_windows",
     {"dilated_windows"},
     "o*:D h:H",
     "c*:C h:H",
     "input x[C, H]\nweight w1[D, C, k]\n"
     "y[o: D, h: H] = sum[c: C, r: k] x[c, h + g*r - (g*k/2)] * w1[o, c, r]",
     5},
    {"negative_shifts",
     {"negative_shifts"},
     "o*:D h:H",
     "c*:C h:H",
     "input x[C, H]\nweight w1[D, C]\ny[o: D, h: H] = sum[c: C] x[c, (h - 1) % H] * w1[o, c]",
     3},
    {"repeat",
     {"repeat"},
     "o*:D h:s*H",
     "c*:C h:H",
     "input x[C, H]\nweight w1[D, C]\ny[o: D, h: s*H] = sum[c: C] x[c, h / s] * w1[o, c]",
     4},
    {"tile",
     {"tile"},
     "o*:D h:s*H",
     "c*:C h:H",
     "input x[C, H]\nweight w1[D, C]\ny[o: D, h: s*H] = sum[c: C] x[c, h % H] * w1[o, c]",
     4},
    {"weightless_pooling",
     {"weightless"},
     "c*:C h:H",
     "c*:C h:s*H",
     "input x[C, s*H]\ny[c: C, h: H] = sum[r: s] x[c, s*h + r]",
     2},
    {"strided_inputs",
     {"strided_inputs"},
     "o*:D h:H",
     "c*:C h:s*H",
     "input x[C, s*H]\nweight w1[D, C, k]\n"
     "y[o: D, h: H] = sum[c: C, r: k] x[c, s*h + r - (k/2)] * w1[o, c, r]",
     5},
    {"shifted_weights",
     {"shifted_weights"},
     "o*:D h:H r:k",
     "c*:C h:H",
     "input x[C, H]\nweight w1[D, C]\n"
     "y[o: D, h: H, r: k] = sum[c: C] x[c + r - (k/2), h] * w1[o, c]",
     3},
    {"uneven_blocks",
     {"uneven_blocks"},
     "o*:D h:W w:H",
     "c*:C h:H w:W",
     "input x[C, H, W]\nweight w1[D, C]\n"
     "y[o: D, h: W, w: H] = sum[c: C] x[c, (H*h + w) / W, (H*h + w) % W] * w1[o, c]",
     4},
    // No extension is needed for these.
    {"convolution_1d",
     {},
     "o*:D h:H",
     "c*:C h:H",
     "input x[C, H]\nweight w1[D, C, k]\n"
     "y[o: D, h: H] = sum[c: C, r: k] x[c, h + r - (k/2)] * w1[o, c, r]",
     4},
    {"height_is_not_width",
     {},
     "o*:D h:H w:W",
     "c*:C h:H w:W",
     "input x[C, H, W]\nweight w1[D, C, k]\n"
     "y[o: D, h: H, w: W] = sum[c: C, r: k] x[c, h, w + r - (k/2)] * w1[o, c, r]",
     4},
    {"input_dimension_is_a_product",
     {},
     "o*:D h:H w:W",
     "c*:C p:H*W",
     "input x[C, H*W]\nweight w1[D, C]\ny[o: D, h: H, w: W] = sum[c: C] x[c, W*h + w] * w1[o, c]",
     3},
    {"output_dimension_is_a_product",
     {},
     "o*:D p:H*W",
     "c*:C h:H w:W",
     "input x[C, H, W]\nweight w1[D, C]\ny[o: D, p: H*W] = sum[c: C] x[c, p / W, p % W] * w1[o, c]",
     3},
};

constexpr const char* kSizes =
    "size C, D, H, W : primary = (8, 12, 12, 20), (8, 8, 12, 28)\n"
    "size k, s, g : coefficient = (3, 2, 3), (3, 2, 3)\n";

std::vector<pgraph::Dim> dims(const Sizes& sizes, std::string_view text) {
  std::vector<pgraph::Dim> result;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    const std::size_t colon = word.find(':');
    std::string_view name = word.substr(0, colon);
    const bool unordered = name.ends_with('*');
    if (unordered) name.remove_suffix(1);
    result.push_back({std::string(name), sizes.parse(word.substr(colon + 1)), unordered});
  }
  return result;
}

Spec spec_of(const Site& site, bool extended) {
  Spec spec;
  spec.name = site.name;
  spec.signature.sizes = Sizes({{"C", VariableKind::Primary},
                                {"D", VariableKind::Primary},
                                {"H", VariableKind::Primary},
                                {"W", VariableKind::Primary},
                                {"k", VariableKind::Coefficient},
                                {"s", VariableKind::Coefficient},
                                {"g", VariableKind::Coefficient}},
                               {{8, 12, 12, 20, 3, 2, 3}, {8, 8, 12, 28, 3, 2, 3}});
  spec.occurrences = {2, 2, 0, 1, 1, 1, 1};
  spec.signature.output = dims(spec.signature.sizes, site.output);
  spec.signature.input = dims(spec.signature.sizes, site.input);
  spec.budgets.max_steps = site.steps;
  spec.budgets.max_weights = 1;
  spec.budgets.max_reductions = 2;
  spec.budgets.min_weight_params = 1;
  spec.budgets.max_strides = 1;
  spec.budgets.max_expands = 1;
  spec.thresholds.max_repeat = 4;
  spec.thresholds.unfold_ratio = 1;
  if (extended) {
    for (const char* extension : site.extensions) spec.extensions.emplace(extension);
  }
  return spec;
}

class EverySite : public ::testing::TestWithParam<Site> {};

TEST_P(EverySite, FindsItsOperatorAndLowersIt) {
  const Site& site = GetParam();
  const program::Program wanted = program::parse(std::string(kSizes) + site.formula + "\nreturn y\n");
  const Spec spec = spec_of(site, true);
  std::vector<equality::UnorderedDim> unordered;
  for (const auto& [tensor, dims] : {std::pair{"y", &spec.signature.output}, {"x", &spec.signature.input}}) {
    for (std::size_t i = 0; i < dims->size(); ++i) {
      if ((*dims)[i].unordered) unordered.push_back({*wanted.find_tensor(tensor), i});
    }
  }
  equality::OperatorKeyCache cache;
  const Hash128 key = equality::operator_key(wanted, unordered, &cache);
  const auto found_in = [&](const Spec& searched) -> std::optional<pgraph::CompleteGraph> {
    for (const Found& found : enumerate(searched).operators) {
      if (lower::operator_key(found.graph, cache) == key) return found.graph;
    }
    return std::nullopt;
  };
  const auto found = found_in(spec);
  ASSERT_TRUE(found.has_value()) << site.formula;
  EXPECT_EQ(found_in(spec_of(site, false)).has_value(), site.extensions.empty());

  Random random(3);
  const program::Program scope = program::at(lower::one_scope(*found), 0);
  const program::Program staged = program::at(lower::staged(*found), 0);
  std::map<std::string, program::Values<double>> inputs;
  for (const program::TensorId id : scope.inputs()) {
    program::Values<double> values;
    values.shape = program::shape_of(scope, id);
    std::int64_t count = 1;
    for (const std::int64_t extent : values.shape) count *= extent;
    for (std::int64_t i = 0; i < count; ++i) values.data.push_back(static_cast<double>(random.below(7)) - 3);
    inputs[scope.tensor(id).name] = std::move(values);
  }
  EXPECT_EQ(program::interpret(scope, inputs).at("y").data, program::interpret(staged, inputs).at("y").data);
}

INSTANTIATE_TEST_SUITE_P(Table, EverySite, ::testing::ValuesIn(kSites),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(Extensions, EveryOneHasASite) {
  for (const std::string_view name : extension_names()) {
    EXPECT_TRUE(std::any_of(kSites.begin(), kSites.end(), [&](const Site& site) {
      return std::find(site.extensions.begin(), site.extensions.end(), name) != site.extensions.end();
    })) << name;
  }
}

TEST(Sites, AConvolutionOfThreeDimensionsIsAllowed) {
  Site site{"convolution_3d", {}, "o*:D h:H w:W d:H", "c*:C h:H w:W d:H", "", 8};
  Spec spec = spec_of(site, false);
  spec.occurrences = {2, 2, 0, 0, 3, 0, 0};
  spec.budgets.max_reductions = 4;
  pgraph::NamedParameters parameters;
  parameters.kernel = spec.signature.sizes.parse("k");
  const pgraph::CompleteGraph graph = pgraph::named_operator("conv").build(spec.signature, parameters);
  const Derivation way = derivation(spec, graph);
  EXPECT_TRUE(way.legal) << to_text(way);
}

}  // namespace
}  // namespace syno::synth
