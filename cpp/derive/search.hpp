// derive/search.hpp — the search among equivalent programs: rows of rewrites applied again and again, each
// program once (EINNET §5 without its target table). In turns the program guessed fastest is next, the one
// from which most can be hoped for, and the best one that the least effort leads to; kinds of programs take
// turns, too.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "derive/estimate.hpp"
#include "derive/rewrite.hpp"
#include "support/hash.hpp"

namespace syno::derive {

struct SearchOptions {
  std::vector<std::string> rows;       ///< names; empty: all rows
  std::vector<std::string> constants;  ///< inputs that stay the same over calls; what depends on them is free
  bool reassociating = true;           ///< also rows that are equal over the reals only
  int depth = 0;                       ///< most steps; 0: any number
  double seconds = 2;                  ///< 0: until nothing is left
  std::int64_t states = 0;             ///< programs seen, at most; 0: any number. Repeatable, unlike seconds
  double growth = 4;                   ///< of the constants' bytes, at most
  double cost_growth = 4;              ///< no program on the way costs more than this times the first one
  double roughness = 0;  ///< of programs that are looked at, at most; 0: any (derive/roughness.hpp)
  int keep =
      16;  ///< programs that are given back, the given one and what is kept for its accuracy not counted
  int threads = 1;  ///< results are the same for any number of them
  Rates rates;
};

struct Step {
  std::string row;
  Site site;
};

struct Derivation {
  Program program;
  std::vector<Step> steps;  ///< from the given program on
  Estimate estimate;
  bool exact = true;     ///< every step is; else it is equal for finite data, up to rounding
  double roughness = 1;  ///< derive/roughness.hpp
  Hash128 key;           ///< the structural key of `program`
};

enum class Ended : std::uint8_t { Exhausted, Seconds, States, Stopped };
std::string_view name_of(Ended ended);

struct Found {
  std::vector<Derivation> derivations;  ///< the given program first, then by what they are guessed to cost
  std::int64_t states = 0;              ///< different programs
  std::int64_t applications = 0;        ///< of rows
  std::int64_t repeats = 0;             ///< that came to a program seen before
  std::int64_t costly = 0;              ///< that were left out for their cost, constants or number of scopes
  std::int64_t rough = 0;               ///< that were left out for their roughness
  int deepest = 0;
  double seconds = 0;
  Ended ended = Ended::Exhausted;
};

/// How far a search is; false stops it, and what there is comes back.
struct Progress {
  std::int64_t states = 0;
  double seconds = 0;
  double best = 0;  ///< seconds of a call, guessed
};
using Watch = std::function<bool(const Progress&)>;

/// The same for the same program and options while `seconds` does not end it. Of programs that the same rows
/// with the same numbers make, in whatever order and place, the one guessed fastest is kept. Beside the
/// `keep` fastest there are some of every accuracy, as nobody knows yet which ones are accurate enough.
/// VerifyError where the program is not concrete; UnknownName for rows and inputs there are not.
Found search(const Program& program, const SearchOptions& options, const Watch& watch = {});

}  // namespace syno::derive
