// derive/match.hpp — which operator of a library a packed product is (EINNET §5.1): its iterators by the
// tensors that they move, its indices by coefficients, and the operator's attributes solved for.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "derive/packed.hpp"

namespace syno::derive::packed {

enum class Operator : std::uint8_t { Matmul, BatchedMatmul, Conv, G2bmm };
inline constexpr int kOperators = 4;
std::string_view name_of(Operator op);  ///< matmul, bmm, conv, g2bmm

/// What is looked for: "conv" is any convolution, "conv:kernel=3x3,stride=1" one with these attributes, "any"
/// any operator. One number stands for all dimensions.
struct Target {
  std::string text;
  std::vector<Operator> operators;
  std::map<std::string, std::vector<std::int64_t>> attributes;
};
/// UnknownName lists the operators, or the attributes of the one that is named; ParseError for other words.
Target parse_target(std::string_view text);

/// How many iterators keep a state from being the operator: those that move other tensors than they may,
/// those that are missing, those that share an index with one that they may not, and those of a wrong
/// attribute. 0: it is the operator. What is above `limit` may be given as limit + 1.
int distance(const State& state, Operator op, const Target& target, int limit);
/// The least over the target's operators.
int distance(const State& state, const Target& target, int limit);

/// A matched product. `text` says it all in a line; nothing where the operator does not match.
struct Label {
  Operator op{};
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> attributes;
  /// Operands that have to be laid out anew (padded, transposed beyond what the operator can), by name.
  std::vector<std::string> copied;
  std::string text;
};
std::vector<Label> labels_of(const Space& space, const State& state, const Target& target);
/// Why the operator nearest to the state is not it, in a line.
std::string missing(const Space& space, const State& state, const Target& target);

}  // namespace syno::derive::packed
