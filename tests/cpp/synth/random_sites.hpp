// Sites of random shapes, sizes, layers, extensions and limits, small enough to search exhaustively: what
// holds at one site only shows at another.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "support/random.hpp"
#include "synth/spec.hpp"

namespace syno::synth::testing {

template <class T>
T pick(Random& random, std::initializer_list<T> choices) {
  return *(choices.begin() + random.below(choices.size()));
}

/// Dimensions written as `C_out~ H`: a `~` marks channels that may be permuted.
inline std::vector<pgraph::Dim> dims_of(const Sizes& sizes, std::string_view text) {
  std::vector<pgraph::Dim> result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    std::string_view extent = text.substr(at, end - at);
    const bool unordered = extent.ends_with('~');
    if (unordered) extent.remove_suffix(1);
    result.push_back(
        {std::string(1, static_cast<char>('a' + result.size())), sizes.parse(extent), unordered});
    at = end + 1;
  }
  return result;
}

/// Output and input of kinds of sites: lines, planes, strided, upsampled, in blocks, without order, without
/// places, without channels.
struct SiteShape {
  const char *output, *input;
};
inline constexpr SiteShape kSiteShapes[] = {
    {"C_out~ H", "C_in~ H"},
    {"C_out~ H", "C_in~ s*H"},
    {"C_out~ s*H", "C_in~ H"},
    {"C_out H", "C_in H"},
    {"C_out~", "C_in~ H"},
    {"C_out~ H", "C_in~ H/s s"},
    {"C_out~ H/s s", "C_in~ H"},
    {"C_out~ H W", "C_in~ H W"},
    {"C_out~", "C_in~"},
    {"C_out~ H W", "C_in~ H*W"},
    {"C_out~ H*W", "C_in~ H W"},
    {"H W", "H W"},
    {"C_out~ H q", "C_in~ H"},
    {"C_out~ H", "C_in~ H q"},
    {"C_out q", "C_in H"},
    {"H s*q", "H"},
    {"C_out~ s", "C_in~ H/s"},
    {"C_in*C_out", "C_in*C_out"},
    {"C_out~ q*H", "C_in~ s*H"},
    {"H k q", "H"},
    {"H q k", "H*q"},
    {"H k*q", "H/k k"},
    {"H q^2", "H/q q"},
    {"H k*s", "H/s s"},
    {"H s k", "H*s"},
    {"H k", "H"},
};

/// At one to three layers. Limits and extensions are random, too, those of steps aside.
inline Spec random_site(Random& random) {
  using symbolic::VariableKind;
  Spec spec;
  const SiteShape& shape = kSiteShapes[random.below(std::size(kSiteShapes))];
  spec.name = std::string(shape.output) + " from " + shape.input;
  const auto s = pick<std::int64_t>(random, {2, 2, 3, 4});
  const auto q = pick<std::int64_t>(random, {2, 3, 3, 5});
  const auto k = pick<std::int64_t>(random, {3, 3, 5, 7});
  const auto layers = 1 + random.below(3);
  std::vector<std::vector<std::int64_t>> rows;
  for (std::uint64_t layer = 0; layer < layers; ++layer) {
    const auto times = [&](std::int64_t base, std::initializer_list<std::int64_t> by) {
      return base * pick(random, by);
    };
    rows.push_back({times(s, {2, 3, 4}), times(s, {1, 2, 4}), times(s, {2, 3, 6, 10, 15}),
                    pick<std::int64_t>(random, {3, 4, 6, 8}), k, q, s});
    spec.weights.push_back(1 + static_cast<double>(random.below(9)));
  }
  if (random.below(5) == 0) rows.assign(1, {s * s, 2 * s, s * s, s, k, q, s});  // some extents are one point
  spec.weights.resize(rows.size());
  spec.signature.sizes = Sizes({{"C_in", VariableKind::Primary},
                                {"C_out", VariableKind::Primary},
                                {"H", VariableKind::Primary},
                                {"W", VariableKind::Primary},
                                {"k", VariableKind::Coefficient},
                                {"q", VariableKind::Coefficient},
                                {"s", VariableKind::Coefficient}},
                               rows);
  const auto some = [&](int least, std::uint64_t more) {
    return least + static_cast<int>(random.below(more + 1));
  };
  spec.occurrences = {some(1, 1), some(1, 1), 1, 1, some(1, 1), 1, some(1, 1)};
  spec.signature.output = dims_of(spec.signature.sizes, shape.output);
  spec.signature.input = dims_of(spec.signature.sizes, shape.input);
  Budgets& budgets = spec.budgets;
  budgets.max_steps = some(4, 1);
  budgets.max_reductions = some(2, 1);
  budgets.max_merges = pick(random, {1, 1, 2});
  budgets.max_strides = some(0, 2);
  budgets.max_expands = some(0, 1);
  budgets.min_weight_params = 1;
  budgets.max_pooling = pick(random, {2.0, 8.0, kUnbounded});
  budgets.max_reduction_ratio = pick(random, {4.0, kUnbounded});
  Thresholds& thresholds = spec.thresholds;
  thresholds.similar_share = pick(random, {0.1, 0.25, 0.5, 1.0});
  thresholds.unfold_ratio = pick(random, {1.0, 1.5, 2.0});
  thresholds.max_window = pick(random, {3.0, 6.0, 30.0});
  thresholds.max_stride = pick(random, {2.0, 5.0, 30.0});
  thresholds.max_repeat = pick(random, {1.0, 2.0, 4.0});
  thresholds.shift_ratio = pick(random, {1.0, 2.0});
  thresholds.promising_share = pick(random, {0.5, 1.0});
  for (const std::string_view name : extension_names()) {
    if (random.below(2) == 0) spec.extensions.emplace(name);
  }
  return spec;
}

}  // namespace syno::synth::testing
