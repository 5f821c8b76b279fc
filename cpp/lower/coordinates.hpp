// lower/coordinates.hpp — what lowering asks of a pGraph: where each coordinate comes from, where it ends,
// and which factors it indexes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pgraph/pgraph.hpp"

namespace syno::lower {

/// A set of coordinates, weights or steps of one pGraph, one flag each.
using Flags = std::vector<bool>;

/// Where a coordinate ends towards the input.
enum class Top : std::uint8_t {
  Input,    ///< it indexes a dimension of the data
  View,     ///< a view consumes it
  Weights,  ///< it leaves the data (Match, or Share below an Expand): weights alone depend on it
  Nothing,  ///< it leaves the data and nothing depends on it: the result repeats along it
};

struct CoordinateInfo {
  std::string name;  ///< of an iterator that walks it; not unique
  symbolic::Size extent;
  std::optional<std::size_t> origin;  ///< the Reduce or view that yields it; none: an output dimension
  Top top = Top::Nothing;
  std::size_t consumer = 0;          ///< Input: the dimension; View: the step
  std::vector<std::size_t> factors;  ///< that it indexes, ascending
};

/// What multiplies the data: a weight, a further input, or a clip. An Unfold whose result nothing indexes
/// still clips: it is one where its result lies inside [0, extent) and zero outside.
struct Factor {
  bool clip = false;
  std::size_t step = 0;                  ///< the Contraction, or the Unfold
  std::vector<std::size_t> coordinates;  ///< tensor: in dimension order; clip: the Unfold's operands
};

struct Coordinates {
  explicit Coordinates(const pgraph::CompleteGraph& graph);

  const pgraph::CompleteGraph* graph;
  std::vector<CoordinateInfo> all;                 ///< by CoordinateId
  std::vector<std::vector<std::size_t>> operands;  ///< by step; Contraction: empty
  std::vector<std::vector<std::size_t>> results;   ///< by step; Contraction: empty
  std::vector<Factor> factors;                     ///< weights and further inputs in order, and clips
  std::vector<std::size_t> reduces;                ///< steps
  std::vector<std::size_t> outputs;                ///< coordinates, by output dimension
  std::vector<std::size_t> inputs;                 ///< coordinates, by input dimension

  const pgraph::Step& step(std::size_t index) const { return graph->graph.steps()[index]; }
};

}  // namespace syno::lower
