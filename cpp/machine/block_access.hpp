// machine/block_access.hpp — what one access of an innermost block moves: whole vectors, vectors of which
// lanes are picked, single elements; and what of that registers hold from one use to the next.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "machine/nest_facts.hpp"
#include "nest/affine.hpp"

namespace syno::machine {

/// An unrolled or vector loop of a block.
struct Repeat {
  std::uint32_t slot;
  std::int64_t trips;
  bool vector;
};
/// Vectors where its iterations are lanes.
inline double vectors_of(const Repeat& repeat, std::int64_t lanes) {
  return static_cast<double>(repeat.vector ? (repeat.trips + lanes - 1) / lanes : repeat.trips);
}

/// An address as a sum; what moves with loops and what with repeats of the block is told apart.
struct Address {
  std::vector<AddressTerm> terms;
  std::vector<std::vector<std::uint32_t>> slots;  ///< by term, repeats included
  std::vector<std::uint32_t> atoms;               ///< by term
  std::int64_t constant = 0;
  double least = 0;     ///< over all loops and repeats
  bool spread = false;  ///< lanes lie at multiples of a stride that code does not know

  bool moves(std::uint32_t slot) const;
};

/// Where a block's access stands.
struct Place {
  nest::AffineForms& forms;
  std::int64_t lanes;                   ///< of a vector of the type that is computed in
  const std::vector<double>& trips;     ///< by slot, of the loops around the block
  std::span<const std::uint32_t> path;  ///< their slots, outermost first
  std::span<const Repeat> repeats;      ///< of the block, outermost first
  const Address* target;                ///< of the sum that is being added to, where registers hold it

  double vectors(const Repeat& repeat) const { return vectors_of(repeat, lanes); }
  const Repeat* repeat(std::uint32_t slot) const;  ///< null: a loop around the block
};

/// The slots that an atom of an affine form is made of.
void slots_of(const nest::AffineForms& forms, std::uint32_t atom, std::vector<std::uint32_t>& slots);

Address address_of(const nest::LoopNest& nest, const nest::Buffer& buffer,
                   const std::vector<nest::ExprId>& indices, const Place& place);

struct Part {  ///< of an address: a multiple of 0, 1, ..., count - 1
  std::int64_t step = 0;
  double count = 1;
};
/// Distinct sums of parts: what unrolled rows and the taps of a window both read is loaded once.
double distinct(std::vector<Part> parts);

/// Instructions of an access.
struct Moved {
  double vectors = 0, scalars = 0, elements = 0, shuffles = 0;
  double held = 0, again = 0;  ///< as Work has it
  double most() const;         ///< of vectors, scalars and elements
};
Moved moved(const Address& at, const Place& place);

/// Vectors of an operand that are held while a row of sums is added to: one where each sum has its own.
double live(const Address& at, const Place& place);

/// The part of what vectors move that crosses lines of the cache: none where they begin at multiples of
/// their size; a shorter one crosses them as seldom.
double crossing(const Address& at, const Place& place);

}  // namespace syno::machine
