// Specs small enough to search exhaustively in a test, with sizes at which every rule and primitive has work
// to do.
#pragma once

#include <algorithm>

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

/// A coordinate made from a Reduce that only a weight indexes, or nothing: that part of the sum only changes
/// a multiplier, whichever steps made it. No rule has to name that, since it does not occur while all rules
/// hold.
inline bool sums_a_weight_alone(const pgraph::PGraph& graph) {
  const auto reduced = [&](const auto& self, pgraph::CoordinateId id) -> bool {
    const auto& coordinate = graph.coordinate(id);
    if (!coordinate.step) return false;
    const pgraph::Step& step = graph.steps()[*coordinate.step];
    return step.primitive == pgraph::Primitive::Reduce ||
           std::any_of(step.operands.begin(), step.operands.end(),
                       [&](auto operand) { return self(self, operand); });
  };
  const auto made_from_reduce = [&](pgraph::CoordinateId id) {
    const auto& step = graph.coordinate(id).step;
    return step && graph.steps()[*step].primitive != pgraph::Primitive::Reduce && reduced(reduced, id);
  };
  const auto of_a_weight_alone = [&](pgraph::CoordinateId id) {
    const bool read = std::any_of(graph.steps().begin(), graph.steps().end(), [&](const pgraph::Step& step) {
      return step.source != 0 &&
             std::find(step.operands.begin(), step.operands.end(), id) != step.operands.end();
    });
    return !read && made_from_reduce(id);
  };
  for (const pgraph::Step& step : graph.steps()) {
    if (step.source == 0 && std::any_of(step.matched.begin(), step.matched.end(), of_a_weight_alone))
      return true;
    if (step.primitive == pgraph::Primitive::Expand && made_from_reduce(step.operands[0])) return true;
  }
  return false;
}

/// 3x3 convolutions of stride 2: [N, C_in*, s*H, s*W] to [N, C_out*, H, W]. Its first operators have six
/// steps, and few of the steps from the output lead to any.
inline Spec strided_spec(int max_steps) {
  Spec spec = spec_named("conv");
  const auto& sizes = spec.signature.sizes;
  spec.signature.input[2].extent = sizes.parse("s*H");
  spec.signature.input[3].extent = sizes.parse("s*W");
  spec.occurrences[6] = 4;
  spec.budgets.max_strides = 2;
  spec.budgets.max_steps = max_steps;
  spec.extensions.insert("strided_inputs");
  return spec;
}

}  // namespace syno::synth::testing
