// derive/einnet.hpp — EINNET's search (§6): its rules in its amounts, every program up to a depth, those that
// are an operator of a library found among them. Programs are packed states; each is looked at once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "derive/match.hpp"
#include "derive/search.hpp"

namespace syno::derive {

struct EinnetOptions {
  std::string target = "any";  ///< see parse_target()
  int depth = 7;               ///< most steps of any kind
  int converging = 0;          ///< then steps that come nearer, from where so many iterators are wrong
  double seconds = 0;          ///< 0: as long as it takes
  std::int64_t states = 0;     ///< most states; 0: any number
  std::int64_t bytes = std::int64_t{8} << 30;  ///< of memory for states, at most
  bool key = true;                             ///< false: a program is looked at each time it is made
  int keep = 16;                               ///< programs that are given back
  std::vector<std::string> constants;          ///< inputs that stay the same over calls
  Rates rates;
  packed::Amounts amounts;
};

/// What the states of one depth were.
struct EinnetLevel {
  std::int64_t states = 0;      ///< new ones
  std::int64_t candidates = 0;  ///< of them that are the target
  double seconds = 0;           ///< since the search began, once all of them were made
};

struct EinnetFound {
  Found found;  ///< the given program first, then candidates by what they are guessed to cost
  std::vector<std::string> labels;  ///< of each of the derivations: which operator its product is
  std::vector<EinnetLevel> levels;  ///< by depth, complete ones
  std::int64_t candidates = 0;
  int target_depth = -1;       ///< the least number of steps to the target; -1: it is nowhere
  std::int64_t converged = 0;  ///< of the states, those that the converging stage made
  int nearest = 0;             ///< how many iterators the nearest state is away from the target
  std::string missing;         ///< what they are, where it was not found
  std::int64_t bytes = 0;      ///< of memory for states, in the end
  bool memory = false;         ///< that is why it ended
};

/// All states up to the depth, those with the fewest steps first: more depth never loses one. Then the
/// converging stage (§5.2): states of the last depth are followed by steps that each leave fewer iterators
/// apart from the target; from states before it every step has been taken anyway. The same for the same
/// program and options while `seconds` does not end it. ScheduleError, saying why, where no scope is
/// a sum of products of reads; VerifyError where the program is not concrete; UnknownName for a target there
/// is not.
EinnetFound search_einnet(const Program& program, const EinnetOptions& options, const Watch& watch = {});

/// The step of such a derivation: the moves of `site.numbers`, four numbers each, from the scope that is
/// named.
inline constexpr std::string_view kEinnetStep = "einnet";
/// ScheduleError where a move does not apply.
void apply_einnet(Program& program, const Site& site);
/// What such a step says of itself: a line for each move, and what operator the product is in the end.
struct EinnetStep {
  std::vector<std::string> moves;
  std::string label;  ///< empty: none of the target's
};
EinnetStep einnet_step(const Program& program, const Site& site, const std::string& target = "any");

}  // namespace syno::derive
