// machine/nest_facts.hpp — a loop nest as a tree of loops over innermost blocks, with what each block
// executes and how each access moves with each loop. What predictions and features are counted from.
#pragma once

#include <cstdint>
#include <vector>

#include "nest/loop_nest.hpp"

namespace syno::machine {

/// A summand of an address: an integer times a loop variable, or times a quotient or remainder of several.
struct AddressTerm {
  std::int64_t coefficient = 0;  ///< elements
  double repeats = 1;  ///< values it takes in one execution of the block (unrolled and vector loops)
  std::vector<std::pair<std::uint32_t, double>> loops;  ///< slots and trips of the loops around it moves with
  double width = 1;                                     ///< distinct values over all of them
  bool linear = true;                                   ///< no quotient or remainder
};

/// One place in the nest that reads or writes memory (not registers).
struct Access {
  nest::BufferId buffer{};
  std::int64_t element_bytes = 4;
  bool write = false;
  bool guarded = false;
  double least = 0;  ///< of all addresses over all loops, in elements
  std::vector<AddressTerm> terms;
};

/// How often each kind of instruction is executed in one execution of a block; vectors count once.
struct Work {
  double fma = 0;     ///< multiply-adds and other arithmetic of one instruction
  double maxima = 0;  ///< and minima, of numbers that may be none; not among those
  double costly = 0;  ///< what divisions and roots take beyond one instruction, in others'
  double vector_loads = 0, scalar_loads = 0, gathers = 0;  ///< gathers: elements
  double vector_stores = 0, scatters = 0;                  ///< scatters: elements
  double narrow_stores = 0;  ///< of half a vector or less, numbers among them; not among the vectors
  /// Vectors that several rows and terms of a window read, loaded once where registers hold so many of them
  /// from one use to the next; else so many loads more.
  double held = 0, loaded_again = 0;
  double crossing_loads = 0, crossing_stores = 0;  ///< of the vectors: those that cross lines
  double picks = 0;                                ///< vectors whose lanes are picked from two others
  double masks = 0;                                ///< that are computed
  double known_masks = 0;                          ///< of loads whose masks are known when code is made
  double conditions = 0;                           ///< that are computed and all lanes share
  double flops = 0;
  double chain = 0;      ///< dependent additions to the same register
  bool carried = false;  ///< and one execution's wait for those of the one before
  double registers = 0;  ///< vectors live at once: sums and operands
};

struct NestNode {
  enum class Kind : std::uint8_t { Loop, Sequence, Block } kind = Kind::Block;
  double trips = 1;  ///< Loop
  std::uint32_t slot = 0;
  bool parallel = false;
  std::vector<std::size_t> children;  ///< indices into NestFacts::nodes; Loop: one
  Work work;                          ///< Block
  std::vector<std::size_t> accesses;  ///< Block: indices into NestFacts::accesses
};

struct NestFacts {
  std::vector<NestNode> nodes;  ///< children before parents; the last one is the root
  std::vector<Access> accesses;
  std::uint32_t slot_count = 0;
  std::size_t root() const { return nodes.size() - 1; }
};

/// Of the type a nest computes in.
std::int64_t computed_bytes(const nest::LoopNest& nest);

/// `vector_bytes`: of a vector register.
NestFacts facts_of(const nest::LoopNest& nest, std::int64_t vector_bytes);

}  // namespace syno::machine
