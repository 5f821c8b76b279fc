#include "synth/spec.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "support/error.hpp"
#include "synth/rules.hpp"
#include "synth/state.hpp"

namespace syno::synth {
namespace {

constexpr std::array<std::string_view, 10> kExtensions = {
    "depthwise",       "weightless", "even_windows", "dilated_windows", "strided_inputs",
    "negative_shifts", "repeat",     "tile",         "shifted_weights", "uneven_blocks"};

void check_names(const Spec& spec) {
  for (const std::string& name : spec.extensions) {
    if (std::find(kExtensions.begin(), kExtensions.end(), name) == kExtensions.end()) {
      throw UnknownName("spec", unknown_name("extension", name, {kExtensions.begin(), kExtensions.end()}));
    }
  }
  for (const std::string& name : spec.disabled_rules) {
    std::vector<std::string> names;
    for (const Rule& rule : rules()) names.emplace_back(rule.name);
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw UnknownName("spec", unknown_name("rule", name, names));
    }
  }
}

void check_budgets(const Budgets& b, int further_inputs) {
  if (b.max_steps < 1 || b.max_steps > static_cast<int>(kMaxSteps)) {
    fail<SpecError>("spec", "max_steps is {}; it must lie in 1 to {}", b.max_steps, kMaxSteps);
  }
  if (b.max_weights < 0 || b.max_weights + further_inputs > 4) {
    fail<SpecError>("spec", "max_weights is {}; with {} further inputs it must lie in 0 to {}", b.max_weights,
                    further_inputs, 4 - further_inputs);
  }
  if (b.max_reductions < 0 || b.max_reductions > 8) {
    fail<SpecError>("spec", "max_reductions is {}; it must lie in 0 to 8", b.max_reductions);
  }
  for (const auto& [name, value] : {std::pair{"max_merges", b.max_merges},
                                    {"max_splits", b.max_splits},
                                    {"max_shifts", b.max_shifts},
                                    {"max_strides", b.max_strides},
                                    {"max_unfolds", b.max_unfolds},
                                    {"max_expands", b.max_expands}}) {
    if (value < kNoLimit)
      fail<SpecError>("spec", "{} is {}; give a count from 0, or null for no limit", name, value);
  }
  for (const auto& [name, value] : {std::pair{"max_flops", b.max_flops},
                                    {"max_params", b.max_params},
                                    {"max_bytes", b.max_bytes},
                                    {"max_reduction_ratio", b.max_reduction_ratio},
                                    {"max_pooling", b.max_pooling},
                                    {"max_tree_mb", b.max_tree_mb}}) {
    if (!(value > 0))
      fail<SpecError>("spec", "{} is {}; it must be positive, or null for no limit", name, value);
  }
  if (!(b.min_flops >= 0) || b.min_flops > b.max_flops) {
    fail<SpecError>("spec", "min_flops {} must lie between 0 and max_flops {}", b.min_flops, b.max_flops);
  }
}

/// The least work any operator of this signature does: each output element is written once.
void check_reachable(const Spec& spec) {
  const auto& sizes = spec.signature.sizes;
  double least = 0;
  for (std::size_t v = 0; v < sizes.valuation_count(); ++v) {
    double output = 1;
    for (const auto& dim : spec.signature.output) output *= sizes.value(dim.extent, v).to_double();
    least += output;
  }
  if (spec.budgets.max_flops < least) {
    fail<SpecError>("spec",
                    "max_flops is {}, but writing the output alone takes {} multiply-adds summed over the {} "
                    "valuation(s); raise it above that",
                    spec.budgets.max_flops, least, sizes.valuation_count());
  }
}

/// Each primary variable of an input has to come from somewhere: from the output or from a Reduce.
void check_input_from_output(const Spec& spec, const std::vector<pgraph::Dim>& input) {
  const auto& sizes = spec.signature.sizes;
  for (std::size_t v = 0; v < sizes.variables().size(); ++v) {
    if (sizes.variables()[v].kind != symbolic::VariableKind::Primary) continue;
    int wanted = 0, given = 0;
    for (const auto& dim : input) wanted += dim.extent.exponent(v);
    for (const auto& dim : spec.signature.output) given += dim.extent.exponent(v);
    const std::string& name = sizes.variables()[v].name;
    if (wanted <= given) continue;
    if (spec.occurrences[v] < wanted - given) {
      fail<SpecError>("spec",
                      "the input holds '{}' {} times and the output {} times, so that sums have to bring it "
                      "in {} times, but it may occur {} times; let it occur at least {} times",
                      name, wanted, given, wanted - given, spec.occurrences[v], wanted - given);
    }
    if (spec.budgets.max_reductions == 0) {
      fail<SpecError>("spec",
                      "the input holds '{}', which the output lacks, so that it has to be summed over, but "
                      "max_reductions is 0; raise it to at least 1",
                      name);
    }
  }
}

void check_weights(const Spec& spec) {
  if (spec.budgets.max_weights == 0 && spec.signature.further.empty() &&
      !spec.extensions.contains("weightless") && !spec.disabled_rules.contains("has-no-weight")) {
    fail<SpecError>("spec",
                    "max_weights is 0, but an operator needs a weight; set it to at least 1, or list the "
                    "extension 'weightless'");
  }
}

}  // namespace

std::vector<std::string_view> extension_names() { return {kExtensions.begin(), kExtensions.end()}; }

void check(const Spec& spec) {
  const Sizes& sizes = spec.signature.sizes;
  if (spec.occurrences.size() != sizes.variables().size()) {
    fail<SpecError>("spec", "{} occurrence limits for {} variables", spec.occurrences.size(),
                    sizes.variables().size());
  }
  if (!sizes.variables().empty() && sizes.valuation_count() == 0) {
    fail<SpecError>("spec", "there is no valuation; give every variable its values, one row for each layer");
  }
  if (!spec.weights.empty() && spec.weights.size() != sizes.valuation_count()) {
    fail<SpecError>("spec", "{} weights for {} valuations; give each valuation its multiply-adds, or none",
                    spec.weights.size(), sizes.valuation_count());
  }
  for (const double weight : spec.weights) {
    if (!(weight > 0) || std::isinf(weight))
      fail<SpecError>("spec", "a valuation weighs {}; give a positive number of multiply-adds", weight);
  }
  for (std::size_t i = 0; i < spec.occurrences.size(); ++i) {
    if (spec.occurrences[i] < 0 || spec.occurrences[i] > 8) {
      fail<SpecError>("spec", "variable '{}' may occur {} times; give a number from 0 to 8",
                      sizes.variables()[i].name, spec.occurrences[i]);
    }
  }
  pgraph::check(spec.signature);
  const auto check_input = [&](const std::vector<pgraph::Dim>& dims) {
    for (const auto& dim : dims) {
      for (std::size_t i = 0; i < sizes.variables().size(); ++i) {
        if (sizes.variables()[i].kind == symbolic::VariableKind::Primary && dim.extent.exponent(i) < 0) {
          fail<SpecError>("spec", "input dimension '{}' of extent {} divides by the primary variable '{}'",
                          dim.name, sizes.to_text(dim.extent), sizes.variables()[i].name);
        }
      }
    }
    if (dims.size() > 8 || spec.signature.output.size() > 8) {
      fail<SpecError>("spec", "output and input may have at most 8 dimensions, not {} and {}",
                      spec.signature.output.size(), dims.size());
    }
  };
  check_input(spec.signature.input);
  for (const pgraph::FurtherInput& input : spec.signature.further) check_input(input.dims);
  check_names(spec);
  if (spec.signature.further.size() > 3) {
    fail<SpecError>("spec", "there are {} further inputs; at most 3 can be searched for",
                    spec.signature.further.size());
  }
  const double share = spec.thresholds.promising_share;
  if (!(share > 0 && share <= 1))
    fail<SpecError>("spec", "promising_share is {}; it must lie above 0 and be at most 1", share);
  check_budgets(spec.budgets, static_cast<int>(spec.signature.further.size()));
  check_reachable(spec);
  check_input_from_output(spec, spec.signature.input);
  for (const pgraph::FurtherInput& input : spec.signature.further) check_input_from_output(spec, input.dims);
  check_weights(spec);
}

}  // namespace syno::synth
