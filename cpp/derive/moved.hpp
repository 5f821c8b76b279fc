// derive/moved.hpp — scopes that are computed over other iterators: what the rows that change a traversal
// share.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "derive/rewrite.hpp"
#include "symbolic/condition.hpp"

namespace syno::derive {

using Iterators = std::vector<Iterator>;

/// ScheduleError, naming the row, unless find() gives the site (whatever it calls what comes into being);
/// the place of its scope otherwise.
std::size_t place_of(const Program& program, const Rewrite& row, const Site& site);

/// The slots of the iterators that a body or an index depends on.
std::set<std::uint32_t> slots_of(const Program& program, ScalarId body);
bool depends_on(const Program& program, ScalarId body, std::uint32_t slot);
bool depends_on(const Program& program, ExprId index, std::uint32_t slot);

/// Whether a body has a value at every point, so that it may be computed where nobody reads it: nothing in it
/// divides by what may be 0, and no function in it has a smaller domain than all numbers.
bool total(const Program& program, ScalarId body);

/// The iterator of a scope with this name, the traversal's first.
const Iterator* iterator_named(const Scope& scope, const std::string& name);
/// Whether no other iterator of its scope has its name: what a site can tell.
bool named_once(const Scope& scope, const Iterator& iterator);
/// `wanted`, or with the least number from 2 on behind it that makes it the name of no iterator of `scope`.
std::string fresh_iterator_name(const Scope& scope, const std::string& wanted);
/// [begin, end) as a range of a concrete program.
program::Range make_range(Program& program, std::int64_t begin, std::int64_t end);
/// Of `tensor`, or of what was made of it before, and told apart by a number.
std::string derived_name(const Program& program, const Site& site, std::string_view suffix);

/// Copies of iterators with slots of their own; `moved` gets the pairs that with_iterators() wants.
Iterators copies_of(Program& program, const Iterators& iterators,
                    std::vector<std::pair<std::uint32_t, ExprId>>& moved);

/// A new tensor that runs over `traversal`.
TensorId add_computed(Program& program, std::string name, const Iterators& traversal);

void simplify_scope(Program& program, std::size_t scope);

/// `body` where all conditions hold that may fail, 0 elsewhere: guards in an index of a factor that is a read
/// with fill 0, if there is one, or else a choice.
ScalarId where(Program& program, ScalarId body, const std::vector<symbolic::Condition>& conditions);
/// What a producer writes at the place that `read` reads, its fill outside.
ScalarId in_place_of(Program& program, const Scope& producer, const Scalar& read);

/// The scope y at `at` has been computed elsewhere: y[X] = made[places], `places` over y's iterators X, at
/// least one. Who reads y reads that, guarded where it may read outside y; y is left, as a copy, where it is
/// an output, and goes otherwise. `made` is written before who reads y.
void read_instead(Program& program, std::size_t at, TensorId made, std::vector<ExprId> places);

/// What takes the place of the scope y at `at`: a scope over `traversal`, which may hold y's iterators, with
/// `body`, and y[X] = made[places], as for read_instead().
struct Moved {
  Iterators traversal;
  ScalarId body{};
  std::vector<ExprId> places;
};
void move_scope(Program& program, std::size_t at, Moved moved, const std::string& name);

}  // namespace syno::derive
