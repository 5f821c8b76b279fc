// derive/packed.hpp — one sum of products in the space of EINNET's rules: numbers in one block, so that
// millions of them can be made, compared and kept a second's work.
//
// A state is two scopes: y[x] = sum[s] t[places(x, s)], with t[z] = sum[r] product of operands over z and r.
// All ranges begin at 0; a place or an index outside of its range reads 0. What holds for every state: where
// y reads t outside of its ranges, the product, taken beyond them by its formula, is 0. So a range of t may
// grow freely.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "derive/places.hpp"
#include "derive/rewrite.hpp"

namespace syno::derive::packed {

/// coefficient * (iterator / over % modulo); modulo 0: not reduced.
struct Term {
  std::int32_t coefficient = 0, over = 1, modulo = 0;
  std::int32_t iterator = 0;
  bool operator==(const Term&) const = default;
};

/// One index of an operand. An operand's dimension may have been cut: index = sum of radix * (index of a
/// part), all parts but the one with the greatest radix inside of their extents at every point.
struct Dim {
  std::int32_t extent = 1, constant = 0, radix = 1;
  std::int16_t operand = 0, source = 0;  ///< which dimension of which operand
  std::int16_t first = 0, count = 0;     ///< of terms
};

inline constexpr std::int64_t kGreatest = std::int64_t{1} << 30;  ///< of coefficients and divisors

inline std::size_t at(int i) { return static_cast<std::size_t>(i); }

inline constexpr int kIterators = 20, kDims = 28, kTerms = 72, kOuter = 8, kGuards = 4;

struct State {
  int traversals = 0, iterators = 0, dims = 0, terms = 0, outer = 0, guards = 0;
  std::array<std::int32_t, kIterators> extent{};  ///< traversals first, then sums
  /// Of a traversal: what y reads there. Of a sum: where it comes from, over the sums of the given program,
  /// so that sums have one order whatever led to them.
  std::array<std::uint32_t, kIterators> place{};
  std::array<Dim, kDims> dim{};  ///< by operand and source, the greatest radix first
  std::array<Term, kTerms> term{};
  std::array<std::uint32_t, kOuter> outer_place{};  ///< of y's sums: where they come from
  std::array<std::int32_t, kOuter> outer_extent{};
  /// y reads 0 unless each form is in [0, extent).
  std::array<std::uint32_t, kGuards> guard{};
  std::array<std::int32_t, kGuards> guard_extent{};

  bool sum(int iterator) const { return iterator >= traversals; }
};

/// A space: where it is in a program, and what its states share.
struct Space {
  std::vector<std::string> operand_names;
  std::vector<TensorId> operands;
  std::vector<std::vector<std::int64_t>> begins, shapes;  ///< of the operands
  std::vector<std::string> names;                         ///< y's traversal
  std::vector<std::int64_t> strides;                      ///< greater than 1, that iterators have in indices
  Places places;
  State given;
};

/// A reason, where a scope is no sum of products of reads at indices that these states can hold.
struct Packed {
  std::optional<Space> space;
  std::string reason;
};
Packed pack(const Program& program, std::size_t scope);

/// Numbers iterators and orders dimensions and terms by what they are, not by how they came to be.
void canonicalise(State& state, const Places& places);
/// The same bytes for equal states that canonicalise() made, others for others.
void write(const State& state, std::vector<std::uint8_t>& bytes);
State read(const std::uint8_t* bytes);

/// The steps: EINNET's rules (§4.1). Every other one follows by merging traversals, which is done at once.
enum class Rule : std::uint8_t { SumSplit, Substitute, Merge, SplitIterator, Tighten, Relax, Relayout };
inline constexpr int kRules = 7;
std::string_view name_of(Rule rule);

struct Move {
  Rule rule{};
  std::uint8_t a = 0, b = 0;  ///< iterators, or dimensions
  std::int32_t number = 0;    ///< sums that stay outside as bits; a factor
  bool operator==(const Move&) const = default;
};

/// How often, and with which numbers: EINNET's (§6 and its published runs), and the strides of the program.
struct Amounts {
  int sum_splits = 1;                                ///< reductions that may follow one another
  int more_iterators = 3;                            ///< than the given program has, by splitting
  std::vector<std::int32_t> sum_factors{2, 3};       ///< of sums not longer than `short_sum`
  std::vector<std::int32_t> traversal_factors{4};    ///< and the program's strides
  std::vector<std::int32_t> relayout_factors{3, 4};  ///< and the program's strides
  std::int32_t short_sum = 10;
  std::int32_t taps = 3;  ///< sums are lengthened to multiples of it
};

/// The steps from a state, in order; not all need succeed.
void moves(const Space& space, const State& state, const Amounts& amounts, std::vector<Move>& found);
/// false, with `state` in any condition, where the step does not apply. Canonical otherwise.
bool apply(Space& space, State& state, const Move& move);

/// The program with the scope at `scope` computed as the state says. Operands whose dimensions are cut are
/// copied first; t is y itself where y would only copy it.
Program program_of(const Program& program, std::size_t scope, const Space& space, const State& state);

}  // namespace syno::derive::packed
