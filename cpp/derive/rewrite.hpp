// derive/rewrite.hpp — rewrites of concrete programs: each a row that says where it applies and what it makes
// there. The program that comes out has the same inputs and the same outputs.
//
// x[i] summed with a factor that the sum does not move, y[i] = sum[r] x[i + r] * k[i], has one site of the
// row `factor`: y. Applied there, t[i] = sum[r] x[i + r] and y[i] = t[i] * k[i].
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "derive/names.hpp"

namespace syno::derive {

/// Where a row applies, by names, so that it can stand in a trace.
struct Site {
  std::string scope;     ///< the scope that changes, by its output
  std::string iterator;  ///< of that scope, where the row is about one
  std::string other;     ///< the output of another scope or another iterator, where the row is about two
  std::string made;      ///< the tensor that comes into being, if any; empty: a name nobody has
  std::vector<std::int64_t> numbers = {};  ///< what the row lets one choose: a factor, a size of tiles
  bool operator==(const Site&) const = default;
};

struct Rewrite {
  std::string_view name;
  std::string_view statement;  ///< what it makes of what, and why that is the same
  /// The sites in one scope, by its place in the program.
  std::vector<Site> (*find)(const Program& program, std::size_t scope);
  /// ScheduleError where find() does not give the site; the program computes what it did then, by the same
  /// scopes.
  void (*apply)(Program& program, const Site& site);
  bool exact = true;       ///< false: equal over the reals alone, for finite data
  bool schedules = false;  ///< schedules are constructed with it, too
  bool finishes = false;   ///< about where results lie: a search applies it to what it found, and last
  /// The part of its scope's points that a site leaves, what it adds elsewhere not counted: what a search may
  /// hope for before it is there. None: not known without applying it.
  double (*leaves)(const Program& program, std::size_t scope, const Site& site) = nullptr;
  /// How many times the rounding errors of its scope a site makes (derive/roughness.hpp). None: as they were.
  double (*roughens)(const Site& site) = nullptr;
};

/// The rows, by name. Those that schedules are constructed with: factor, inline, share, solve, tighten, turn,
/// polyphase, innermost.
std::span<const Rewrite> rewrites();
const Rewrite& rewrite_named(std::string_view name);  ///< UnknownName lists them

/// Applies a row, and simplifies the indices that it leaves: a step of a derivation.
void apply(const Rewrite& row, Program& program, const Site& site);

/// The sites in a whole program.
std::vector<Site> sites(const Rewrite& row, const Program& program);

/// The program with scopes that only copy in the place of their reads: `inline`, as long as there is one.
/// Windows that were laid out side by side are indices again.
Program without_copies(Program program);

/// What `innermost` moves at an output: for each intermediate result that it is made of, in the order of its
/// reads, the dimension to become the innermost one, or -1.
std::vector<std::int64_t> innermost_dims(const Program& program, std::size_t scope);
/// Moves those, or any others: which are best depends on sizes, what is done does not. ScheduleError where
/// the scope computes no output or the dimensions are others.
void move_innermost(Program& program, std::size_t scope, const std::vector<std::int64_t>& dims);

/// An elementary function of the same values in two scopes, over the same iterations.
struct Shared {
  ScalarId here{}, there{};      ///< in the one scope, in the other
  std::vector<Iterator> points;  ///< iterators of the other one that move it, in their order
  std::vector<ExprId> places;    ///< what they are over the iterators of the one
};
/// The first such function; what `share` makes a scope of its own.
std::optional<Shared> find_shared(const Program& program, std::size_t scope, std::size_t other);

/// How `inline` sees the scope that takes the place of its reads, and the one that reads it.
struct Inlined {
  const Scope& producer;
  ScalarId written{};    ///< what it writes, over its iterators
  bool total = false;    ///< it is defined wherever it is read
  bool guarded = false;  ///< ranges of the reader are not known yet: every place is checked
};
/// `body` with what the producer computes in place of its reads. ScheduleError, naming `reader`, where that
/// would have too many parts.
ScalarId with_inlined(Program& program, const Inlined& inlined, ScalarId body, const std::string& reader);

}  // namespace syno::derive
