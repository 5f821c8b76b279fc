// synth/spec.hpp — what to synthesise: signature, occurrence limits, budgets, thresholds, extensions (Syno
// §4, §5.4).
#pragma once

#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "pgraph/pgraph.hpp"

namespace syno::synth {

using symbolic::Size;
using symbolic::Sizes;

inline constexpr int kNoLimit = -1;
inline constexpr double kUnbounded = std::numeric_limits<double>::infinity();

/// Hard limits; each prunes inside the search. FLOPs (multiply-adds), parameters and bytes are summed over
/// all valuations. Counts may be kNoLimit. A limit that holds `mostly` judges promise, not legality: it holds
/// at valuations that do most of the layers' work (Thresholds::promising_share, Spec::weights).
struct Budgets {
  int max_steps = 12;
  int max_chain = 6;    ///< steps in a row above any output or Reduce
  int max_weights = 2;  ///< with further inputs at most 4
  int max_reductions = 5;
  int max_merges = kNoLimit;
  int max_splits = kNoLimit;
  int max_shifts = kNoLimit;
  int max_strides = 0;
  int max_unfolds = kNoLimit;
  int max_expands = 0;  ///< Expands outside contractions
  double max_flops = kUnbounded;
  double min_flops = 0;
  double max_params = kUnbounded;
  double max_bytes = kUnbounded;   ///< input, weights, output and intermediates in float32
  double max_reduction_ratio = 4;  ///< product of all Reduces / elements of the input, mostly
  double max_pooling = 8;  ///< product of Reduces that meet no weight on their way to the input, mostly
  double min_weight_params = 100;  ///< elements of each weight, mostly
  int max_variables_in_size = 3;
  int max_powers_in_size = 16;  ///< sum of |exponents|
  /// Of no operator but of a Tree's nodes, in millions of bytes: a full tree grows no further, see Tree.
  double max_tree_mb = 512;
  bool operator==(const Budgets&) const = default;
};

/// Where "much larger" begins and how much difference counts as similar (Syno §6); read by rules().
struct Thresholds {
  double unfold_ratio = 2.0;  ///< dimension / window at least this, mostly
  double max_window = 30;     ///< window of an Unfold at most this, mostly
  double max_stride = 30;     ///< extent above a Stride at most this, mostly
  double shift_ratio = 2.0;   ///< a Shift and a block: similar when block / shift exceeds this at the largest
  double max_matched = 2048;  ///< product of the extents a weight matches from outputs, mostly
  /// Extent of a Reduce that one weight shares and a second one matches. What passes between two weights is
  /// all that they meet in, groups and windows besides: its width is bounded by the rules weight-only-scales,
  /// weights-without-bottleneck and weights-larger-than-product.
  double min_matched_reduce = 1;           ///< at the largest valuation
  double max_matched_reduce = kUnbounded;  ///< mostly
  double max_repeat = 1;                   ///< product of the extents of Expands
  double similar_share =
      1.0;  ///< a similar rule fires where at most this share of points differs, everywhere
  double promising_share = 0.5;  ///< `mostly`: where at least this share of the layers' work is done
  bool operator==(const Thresholds&) const = default;
};

/// Names of extensions of the authors' space; each off unless listed.
///  depthwise         weights without a matched coordinate
///  weightless        operators without any weight, and Reduces that no weight indexes under an Unfold
///  even_windows      windows of an even size at some valuation
///  dilated_windows   Stride under an Unfold's window
///  strided_inputs    Stride under an Unfold's dimension (strided convolution)
///  negative_shifts   Shift by -1 beside +1
///  repeat            Expand outside contractions, above the inner part of a Merge
///  tile              Expand outside contractions, above the outer part of a Merge
///  shifted_weights   Unfold over a sum that weights index, by a window that the output indexes
///  uneven_blocks     Merge above a Split by a block that neither divides nor is divided by the Split's
std::vector<std::string_view> extension_names();

struct Spec {
  std::string name;              ///< for people
  pgraph::Signature signature;   ///< further inputs are off unless named here; at most 3
  std::vector<int> occurrences;  ///< per variable of signature.sizes: how often steps may use it
  /// Per valuation: multiply-adds of the layers it stands for, in any unit. Empty: all the same.
  std::vector<double> weights;
  Budgets budgets;
  Thresholds thresholds;
  std::set<std::string, std::less<>> extensions;
  std::set<std::string, std::less<>> disabled_rules;
  bool operator==(const Spec&) const = default;
};

/// SpecError naming the constraint that fails, its values and the nearest that works; UnknownName for names.
void check(const Spec& spec);

/// Strict: unknown keys, wrong types and missing fields are FormatErrors with the path of the value
/// (`budgets.max_steps`); contradictions are SpecErrors. Numbers may be null for "no limit".
Spec spec_from_json(std::string_view json);
std::string spec_to_json(const Spec& spec);

/// resnet18, test, simple, vit, resnext, gpt2 (the authors' experiments); conv: a small residual network's
/// 3x3 convolutions, with every extension that suits images; and attention: scores of queries and keys, two
/// data inputs.
Spec spec_named(std::string_view name);
std::vector<std::string_view> spec_names();

}  // namespace syno::synth
