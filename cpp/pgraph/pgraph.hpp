// pgraph/pgraph.hpp — pGraphs: operators grown bottom-up, from the output's coordinates to the input's (Syno §5).
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

/// What an operator has to look like: its signature at all valuations at once.
struct Signature {
  Sizes sizes;
  std::vector<Dim> output;
  std::vector<Dim> input;
  std::vector<std::pair<std::size_t, std::size_t>> fixed;  ///< (output dim, input dim) passed through untouched: batch
  bool operator==(const Signature&) const = default;
};

enum class CoordinateId : std::uint32_t {};  ///< an edge: a coordinate expression with its extent

/// The primitives of Table 1. A Contraction is every Share, Match and Expand that brings in one new weight.
enum class Primitive : std::uint8_t { Reduce, Merge, Split, Shift, Stride, Unfold, Expand, Contraction };
std::string_view name_of(Primitive primitive);

/// One step: consumes bottom coordinates of the frontier, yields top ones. (bottom -> top)
struct Step {
  Primitive primitive = Primitive::Reduce;
  /// Reduce: none. Merge, Shift, Stride, Expand: [i]. Split: [i: G, j: B]. Unfold: [i: N, j: K].
  /// Contraction: the coordinates the new weight shares with the data (Share).
  std::vector<CoordinateId> operands;
  /// Contraction only: coordinates that index the new weight alone and leave the data (Match: Share + Expand).
  std::vector<CoordinateId> matched;
  Size size;       ///< Reduce: extent. Merge: block B. Stride: factor S.
  int amount = 0;  ///< Shift
  bool operator==(const Step&) const = default;
};

/// Why a step cannot be taken: a value, not an exception. `reason` is a full sentence for people.
struct Illegal { std::string reason; };

struct Coordinate {
  Size extent;
  std::optional<std::size_t> step;  ///< the step that yields it; none: an iterator of the output
  std::size_t position = 0;         ///< which of the step's results, or which output dimension
};

/// A partial or complete pGraph: a value. Coordinates 0..n-1 are the output's dimensions.
class PGraph {
 public:
  explicit PGraph(Signature signature);

  const Signature& signature() const { return signature_; }
  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<CoordinateId>& frontier() const { return frontier_; }  ///< data coordinates not yet consumed
  const Coordinate& coordinate(CoordinateId id) const { return coordinates_[static_cast<std::uint32_t>(id)]; }
  std::size_t coordinate_count() const { return coordinates_.size(); }
  /// Coordinates that index each weight, in the weight's dimension order.
  const std::vector<std::vector<CoordinateId>>& weights() const { return weights_; }

  /// Structural legality only (operands in the frontier, exact divisions, extents); canonicality is synth's.
  std::variant<PGraph, Illegal> apply(const Step& step) const;

  /// For every input dimension the frontier coordinate that indexes it, when the frontier is exactly the
  /// input up to a permutation of equal dimensions (several assignments may exist; these are all of them).
  std::vector<std::vector<CoordinateId>> completions() const;

  /// Equal for pGraphs that differ only in the order of commuting steps; the same on every machine.
  Hash128 hash() const;

 private:
  Signature signature_;
  std::vector<Step> steps_;
  std::vector<Coordinate> coordinates_;
  std::vector<CoordinateId> frontier_;
  std::vector<std::vector<CoordinateId>> weights_;
};

/// A finished operator: a pGraph and which frontier coordinate indexes which input dimension.
struct CompleteGraph {
  PGraph graph;
  std::vector<CoordinateId> input;  ///< one per input dimension
};

/// Text form, one step a line; parse(to_text(g)) equals g. ParseError with line and reason.
std::string to_text(const CompleteGraph& graph);
std::string to_text(const PGraph& graph);
CompleteGraph parse(std::string_view text);

std::string to_graphviz(const CompleteGraph& graph);  ///< dot language
std::string to_svg(const CompleteGraph& graph);       ///< self-contained; needs no Graphviz

}  // namespace syno::pgraph
