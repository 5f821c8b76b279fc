// synth/rules.hpp — canonicality rules as a table of named rows (Syno §6).
#pragma once

#include <span>
#include <string_view>

#include "synth/state.hpp"

namespace syno::synth {

/// What justifies a rule, and what its test checks.
///   Exact    what it removes equals something kept
///   Similar  what it removes differs from something kept at no more than a stated share of points
///   Futile   a named property fails: pooling, data discarded, only a multiplier changes
///   Limit    a threshold or an extension of the spec leaves it out; with another one it is kept
enum class RuleClass : std::uint8_t { Exact, Similar, Futile, Limit };
std::string_view name_of(RuleClass kind);

/// Where the rules look: one move on one partial operator.
struct Candidate {
  const Spec& spec;
  const SizePool& sizes;
  const CoordinatePool& pool;
  const State& state;
  Move move;

  const FrontierDim& i() const { return state.dims[move.i]; }
  const FrontierDim& j() const { return state.dims[move.j]; }
  const CoordinateNode& node_i() const { return pool[i().coordinate]; }
  const CoordinateNode& node_j() const { return pool[j().coordinate]; }
  /// The weights that share a coordinate. What holds because a weight can be rearranged offline holds of
  /// them, not of further inputs.
  std::uint8_t weights(const FrontierDim& dim) const {
    return static_cast<std::uint8_t>(dim.shared & ~state.data);
  }
  /// A further input reads the coordinate: what stands below it cannot be undone above it.
  bool read(const FrontierDim& dim) const { return (dim.shared & state.data) != 0; }
  /// ... or anything it is made of.
  bool read_below(const FrontierDim& dim) const { return (dim.history & state.data) != 0; }
  bool extension(std::string_view name) const { return spec.extensions.contains(name); }
};

/// A finished operator: which frontier position indexes which input dimension (fixed ones are no frontier).
struct Finished {
  const Spec& spec;
  const SizePool& sizes;
  const CoordinatePool& pool;
  const State& state;
  std::span<const std::uint8_t> position;  ///< per open input dimension
  std::span<const std::size_t> input_dim;  ///< its number in the signature
};

struct Rule {
  std::string_view name;
  RuleClass kind;
  pgraph::Primitive primitive;  ///< which moves it looks at; unused by rules of finished operators
  std::string_view statement;
  bool (*removes)(const Candidate&);  ///< null: the rule looks at finished operators
  bool (*removes_finished)(const Finished&);
};

/// "X above Y": X would be applied to a coordinate that Y makes, nearer to the input.
std::span<const Rule> rules();

}  // namespace syno::synth
