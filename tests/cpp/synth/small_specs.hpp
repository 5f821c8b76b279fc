// Specs small enough to search exhaustively in a test, with sizes at which every rule and primitive has work
// to do.
#pragma once

#include "synth/spec.hpp"

namespace syno::synth::testing {

/// A 1-D convolution's site: [C_out*, H] from [C_in*, H], two valuations.
inline Spec line_spec(int max_steps) {
  using symbolic::VariableKind;
  Spec spec;
  spec.name = "line";
  spec.signature.sizes = Sizes({{"C_in", VariableKind::Primary},
                                {"C_out", VariableKind::Primary},
                                {"H", VariableKind::Primary},
                                {"k", VariableKind::Coefficient},
                                {"s", VariableKind::Coefficient}},
                               {{4, 8, 12, 3, 2}, {8, 8, 6, 3, 2}});
  spec.occurrences = {2, 3, 1, 2, 2};
  const auto size = [&](const char* text) { return spec.signature.sizes.parse(text); };
  spec.signature.output = {{"c", size("C_out"), true}, {"h", size("H")}};
  spec.signature.input = {{"c", size("C_in"), true}, {"h", size("H")}};
  spec.budgets.max_steps = max_steps;
  spec.budgets.max_reductions = 3;
  spec.budgets.min_weight_params = 1;
  spec.thresholds.min_matched_reduce = 2;
  return spec;
}

/// The same with everything that is off by default.
inline Spec rich_line_spec(int max_steps) {
  Spec spec = line_spec(max_steps);
  spec.name = "rich line";
  spec.budgets.max_strides = 1;
  spec.budgets.max_expands = 1;
  spec.thresholds.max_repeat = 4;
  for (const std::string_view name : extension_names()) spec.extensions.emplace(name);
  return spec;
}

}  // namespace syno::synth::testing
