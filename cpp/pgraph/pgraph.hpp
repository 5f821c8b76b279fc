// pgraph/pgraph.hpp — pGraphs: operators grown bottom-up, from the output's coordinates to the input's (Syno
// §5).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "support/hash.hpp"
#include "symbolic/size.hpp"

namespace syno::pgraph {

using symbolic::Size;
using symbolic::Sizes;

/// A dimension of the wanted input or output. Unordered dimensions (channels) may be permuted freely.
struct Dim {
  std::string name;  ///< for people: "n", "c", "h"; the iterator's name in formulas
  Size extent;
  bool unordered = false;
  bool operator==(const Dim&) const = default;
};

/// (output dim, input dim) passed through untouched: batch.
using FixedPairs = std::vector<std::pair<std::size_t, std::size_t>>;

/// A data input beside the first, such as the keys of an attention.
struct FurtherInput {
  std::vector<Dim> dims;
  FixedPairs fixed;  ///< their output dimensions are fixed in the first input too
  bool operator==(const FurtherInput&) const = default;
};

/// What an operator has to look like: its signature at all valuations at once.
struct Signature {
  Sizes sizes;
  std::vector<Dim> output;
  std::vector<Dim> input;
  FixedPairs fixed;
  std::vector<FurtherInput> further;  ///< each read once, at coordinates that a Contraction gives it
  bool operator==(const Signature&) const = default;
};
/// SpecError unless every extent is an integer at every valuation, the fixed pairs exist, are distinct and
/// join dimensions of one extent, and every further input has a dimension that is not fixed.
void check(const Signature& signature);
/// Dimensions of an input that no pair fixes, ascending.
std::vector<std::size_t> open_dims(const std::vector<Dim>& dims, const FixedPairs& fixed);

enum class CoordinateId : std::uint32_t {};  ///< an edge: a coordinate expression with its extent

/// The primitives of Table 1. A Contraction is every Share, Match and Expand that brings in one new factor: a
/// weight, or a further input, which differs from a weight in that its shape is given and its values are not
/// learnt.
enum class Primitive : std::uint8_t { Reduce, Merge, Split, Shift, Stride, Unfold, Expand, Contraction };
inline constexpr std::size_t kPrimitiveCount = 8;
std::string_view name_of(Primitive primitive);
std::optional<Primitive> primitive_named(std::string_view name);

/// One step: consumes bottom coordinates of the frontier, yields top ones. (bottom -> top)
///
///     Reduce(N)          []                ->  [i] : [N], summed over
///     Merge(B)           [i]    : [N]      ->  [i / B, i % B] : [N/B, B]
///     Split              [i, j] : [G, B]   ->  [B*i + j] : [G*B]
///     Shift(a)           [i]    : [N]      ->  [(i + a) % N] : [N]
///     Stride(S)          [i]    : [K]      ->  [S*i] : [S*K]
///     Unfold             [i, j] : [N, K]   ->  [i + j - K/2] : [N], zero outside
///     Expand             [i]    : [C]      ->  []
///     Contraction        shares coordinates that stay, matches coordinates that leave -> no new coordinate;
///                        with those of its fixed pairs they are the dimensions of a further input
struct Step {
  Primitive primitive = Primitive::Reduce;
  /// Reduce: none. Merge, Shift, Stride, Expand: [i]. Split: [i: G, j: B]. Unfold: [i: N, j: K].
  /// Contraction: the coordinates the new weight shares with the data (Share); they stay in the frontier.
  std::vector<CoordinateId> operands;
  /// Contraction only: coordinates that index the new weight alone and leave the data (Match: Share +
  /// Expand).
  std::vector<CoordinateId> matched;
  Size size;               ///< Reduce: extent. Merge: block B. Stride: factor S.
  int amount = 0;          ///< Shift: places, not 0
  std::size_t source = 0;  ///< Contraction: 0 brings in a weight, k the k-th further input

  static Step reduce(Size extent) { return {Primitive::Reduce, {}, {}, extent, 0}; }
  static Step merge(CoordinateId i, Size block) { return {Primitive::Merge, {i}, {}, block, 0}; }
  static Step split(CoordinateId i, CoordinateId j) { return {Primitive::Split, {i, j}, {}, {}, 0}; }
  static Step shift(CoordinateId i, int amount) { return {Primitive::Shift, {i}, {}, {}, amount}; }
  static Step stride(CoordinateId i, Size factor) { return {Primitive::Stride, {i}, {}, factor, 0}; }
  static Step unfold(CoordinateId i, CoordinateId window) {
    return {Primitive::Unfold, {i, window}, {}, {}, 0};
  }
  static Step expand(CoordinateId i) { return {Primitive::Expand, {i}, {}, {}, 0}; }
  static Step contraction(std::vector<CoordinateId> shared, std::vector<CoordinateId> matched,
                          std::size_t source = 0) {
    return {Primitive::Contraction, std::move(shared), std::move(matched), {}, 0, source};
  }
  bool operator==(const Step&) const = default;
};

/// Why a step cannot be taken: a value, not an exception. `reason` is a full sentence for people.
struct Illegal {
  std::string reason;
};

struct Coordinate {
  Size extent;
  std::optional<std::size_t> step;  ///< the step that yields it; none: an iterator of the output
  std::size_t position = 0;         ///< which of the step's results, or which output dimension
  bool operator==(const Coordinate&) const = default;
};

/// Which coordinate indexes which dimension of the input and of every further input.
struct Assignment {
  std::vector<CoordinateId> input;
  std::vector<std::vector<CoordinateId>> further = {};
  bool operator==(const Assignment&) const = default;
};

/// A partial or complete pGraph: a value. Coordinates 0..n-1 are the output's dimensions; each step appends
/// its results in order, so that ids follow from the steps alone.
class PGraph {
 public:
  explicit PGraph(Signature signature);  ///< checks the signature: SpecError

  const Signature& signature() const { return signature_; }
  const std::vector<Step>& steps() const { return steps_; }
  /// Data coordinates not yet consumed, without the fixed output dimensions, ascending by id.
  const std::vector<CoordinateId>& frontier() const { return frontier_; }
  const Coordinate& coordinate(CoordinateId id) const { return coordinates_[static_cast<std::uint32_t>(id)]; }
  std::size_t coordinate_count() const { return coordinates_.size(); }
  /// Coordinates that index each weight, in the weight's dimension order: matched first, then shared.
  const std::vector<std::vector<CoordinateId>>& weights() const { return weights_; }
  /// The ids a step yields: [first, first + results).
  std::vector<CoordinateId> results_of(std::size_t step) const;

  /// Structural legality only (operands in the frontier, exact divisions, extents); canonicality is synth's.
  std::variant<PGraph, Illegal> apply(const Step& step) const;

  /// For every input dimension the coordinate that indexes it, when the frontier is exactly the input up to
  /// a permutation of equal dimensions and every further input was brought in (several assignments may
  /// exist; these are all of them, in order).
  std::vector<Assignment> completions() const;

  /// Equal for pGraphs that differ only in the order of commuting steps, in the order of weights, or in which
  /// of several Reduces of one extent is which; the same on every machine.
  Hash128 hash() const;

  /// The steps, signature and therefore every coordinate are equal; hash() is the coarser equality.
  bool operator==(const PGraph& other) const {
    return steps_ == other.steps_ && signature_ == other.signature_;
  }

 private:
  Signature signature_;
  std::vector<Step> steps_;
  std::vector<std::size_t> first_result_;  ///< per step
  std::vector<Coordinate> coordinates_;
  std::vector<CoordinateId> frontier_;
  std::vector<std::vector<CoordinateId>> weights_;
};

/// apply() for steps known to be legal (named operators, replayed traces): VerifyError with the reason if
/// not.
PGraph apply_all(PGraph graph, const std::vector<Step>& steps);

/// A finished operator: a pGraph and which coordinate indexes which dimension of its inputs.
struct CompleteGraph {
  PGraph graph;
  std::vector<CoordinateId> input;                      ///< one per input dimension
  std::vector<std::vector<CoordinateId>> further = {};  ///< the same for every further input
  bool operator==(const CompleteGraph&) const = default;
};
/// VerifyError unless the assignment is one of the graph's completions().
CompleteGraph complete(PGraph graph, std::vector<CoordinateId> input,
                       std::vector<std::vector<CoordinateId>> further = {});
Hash128 hash_of(const CompleteGraph& graph);  ///< as PGraph::hash, with the assignment to the input

/// Text form, one step a line; parse(to_text(g)) equals g. ParseError with line and reason.
std::string to_text(const CompleteGraph& graph);
std::string to_text(const PGraph& graph);
std::string to_text(const PGraph& graph,
                    const Step& step);  ///< one line: `c4 = merge ...`; step not yet applied
CompleteGraph parse(std::string_view text);
PGraph parse_partial(std::string_view text);  ///< a text without its `input` line

std::string to_graphviz(const CompleteGraph& graph);  ///< dot language
std::string to_svg(const CompleteGraph& graph);       ///< self-contained; needs no Graphviz

}  // namespace syno::pgraph
