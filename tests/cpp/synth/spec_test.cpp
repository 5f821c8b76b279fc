// Specs: JSON both ways, strictness, contradictions.
#include "synth/spec.hpp"

#include <gtest/gtest.h>

#include "small_specs.hpp"
#include "support/error.hpp"

namespace syno::synth {
namespace {

std::string complaint(const std::string& json) {
  try {
    spec_from_json(json);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string changed(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Spec, EveryNamedSpecReadsBackFromItsJson) {
  for (const std::string_view name : spec_names()) {
    const Spec spec = spec_named(name);
    EXPECT_EQ(spec_from_json(spec_to_json(spec)), spec) << name;
  }
}

TEST(Spec, Resnet18HoldsAllNineteenLayers) {
  const Spec spec = spec_named("resnet18");
  ASSERT_EQ(spec.signature.sizes.valuation_count(), 19U);
  // The dense 3x3 convolution's multiply-adds of the layers, at batch 128.
  double dense = 0;
  for (std::size_t v = 0; v < 19; ++v) {
    dense += spec.signature.sizes.value(spec.signature.sizes.parse("N*C_in*C_out*H^2*k_1^2"), v).to_double();
  }
  EXPECT_EQ(dense, 128 * 1'849'688'064.0);
}

TEST(Spec, ComplaintsNameThePath) {
  const std::string json = spec_to_json(testing::line_spec(4));
  EXPECT_NE(complaint("{").find("not a JSON document"), std::string::npos);
  EXPECT_NE(complaint(changed(json, "\"max_steps\"", "\"max_step\"")).find("budgets"), std::string::npos);
  EXPECT_NE(complaint(changed(json, "\"max_steps\": 4", "\"max_steps\": \"4\"")).find("budgets.max_steps"),
            std::string::npos);
  EXPECT_NE(
      complaint(changed(json, "\"kind\": \"primary\"", "\"kind\": \"large\"")).find("variables[0].kind"),
      std::string::npos);
  EXPECT_NE(complaint(changed(json, "\"C_in\": 4", "\"C_in\": 0")).find("valuations[0].C_in"),
            std::string::npos);
  EXPECT_NE(
      complaint(changed(json, "\"extent\": \"C_out\"", "\"extent\": \"C_aut\"")).find("output[0].extent"),
      std::string::npos);
  EXPECT_NE(complaint(changed(json, "\"format\": 1", "\"format\": 2")).find("format"), std::string::npos);
  EXPECT_NE(complaint(changed(json, "\"output\"", "\"outputs\"")).find("outputs"), std::string::npos);
}

TEST(Spec, NullMeansNoLimit) {
  const std::string json = spec_to_json(testing::line_spec(4));
  const Spec spec =
      spec_from_json(changed(json, "\"max_reduction_ratio\": 4.0", "\"max_reduction_ratio\": null"));
  EXPECT_EQ(spec.budgets.max_reduction_ratio, kUnbounded);
  EXPECT_EQ(spec.budgets.max_merges, kNoLimit);
}

TEST(Spec, ContradictionsAreRefused) {
  const auto refused = [](auto change) {
    Spec spec = testing::line_spec(4);
    change(spec);
    EXPECT_THROW(check(spec), SpecError);
  };
  refused([](Spec& s) { s.budgets.max_steps = 0; });
  refused([](Spec& s) { s.budgets.max_weights = 9; });
  refused([](Spec& s) { s.budgets.min_flops = 10, s.budgets.max_flops = 5; });
  refused(
      [](Spec& s) { s.budgets.max_flops = 8 * 12; });  // less than writing the output once at each valuation
  refused([](Spec& s) { s.budgets.max_merges = -2; });
  refused([](Spec& s) { s.occurrences.pop_back(); });
  refused([](Spec& s) { s.occurrences[0] = -1; });
  refused([](Spec& s) { s.signature.input[0].extent = s.signature.sizes.parse("k/s"); });
  refused([](Spec& s) { s.occurrences[0] = 0; });          // C_in is only in the input
  refused([](Spec& s) { s.budgets.max_reductions = 0; });  // and has to be summed over
  refused([](Spec& s) { s.budgets.max_weights = 0; });
  Spec spec = testing::line_spec(4);
  spec.extensions.insert("depthwize");
  EXPECT_THROW(check(spec), UnknownName);
  spec = testing::line_spec(4);
  spec.disabled_rules.insert("no-such-rule");
  EXPECT_THROW(check(spec), UnknownName);
  EXPECT_THROW(spec_named("resnet19"), UnknownName);
}

}  // namespace
}  // namespace syno::synth
