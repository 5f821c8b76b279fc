// A traversal in two ranges, each a scope of its own: tiles of one size for the most part and of another one
// for the rest, 7 = 4 + 3.
#include <algorithm>

#include "derive/forms.hpp"
#include "derive/moved.hpp"
#include "derive/tools.hpp"
#include "support/error.hpp"

namespace syno::derive {

namespace {

/// Where ranges may end: after the last whole tile.
std::vector<std::int64_t> ends_for(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> ends;
  for (const std::int64_t tile : {4, 6, 8}) {
    const std::int64_t at = begin + (end - begin) / tile * tile;
    if (at > begin && at < end && std::find(ends.begin(), ends.end(), at) == ends.end()) ends.push_back(at);
  }
  return ends;
}

}  // namespace

std::vector<Site> find_range_splits(const Program& program, std::size_t at) {
  const Scope& scope = program.scopes[at];
  if (scope.sums.empty() || !scope.target.empty()) return {};
  std::vector<Site> found;
  const std::vector<DividedForm> indices = forms_in(program, scope.body);
  for (const Iterator& i : scope.traversal) {
    if (!named_once(scope, i) || !meets(program, indices, i, scope.sums)) continue;  // tiles slide
    const auto [begin, end] = range_of(program, i.range);
    for (const std::int64_t middle : ends_for(begin, end))
      found.push_back({name_of(program, scope), i.name, {}, {}, {middle}});
  }
  return found;
}

void split_range(Program& program, const Site& site) {
  const std::size_t at = place_of(program, rewrite_named("split_range"), site);
  const Scope scope = program.scopes[at];
  const auto [begin, end] = range_of(program, iterator_named(scope, site.iterator)->range);
  const std::int64_t middle = site.numbers[0];
  const auto part = [&](const std::string& name, std::int64_t from, std::int64_t to) {
    Scope made = scope;
    std::vector<std::pair<std::uint32_t, ExprId>> moved;
    for (Iterators* list : {&made.traversal, &made.sums}) {
      *list = copies_of(program, *list, moved);
      for (Iterator& iterator : *list)
        if (iterator.name == site.iterator) iterator.range = make_range(program, from, to);
    }
    made.body = program::with_iterators(program, scope.body, moved);
    made.output = add_computed(program, name, made.traversal);
    return made;
  };
  Scope low = part(derived_name(program, site, "low"), begin, middle);
  Scope high = part(derived_name(program, {site.scope, {}, {}, {}}, "high"), middle, end);
  Scope& whole = program.scopes[at];
  std::vector<ExprId> places;
  for (const Iterator& iterator : whole.traversal) places.push_back(program.arena.iterator(iterator.slot));
  const ExprId place = program.arena.iterator(iterator_named(scope, site.iterator)->slot);
  whole.sums.clear();
  whole.reduction = program::Reduction::None;
  const ScalarId test = program.binary(Function::Less, program.index_value(place), program.literal(middle));
  const ScalarId lower = program.read(low.output, places), upper = program.read(high.output, places);
  whole.body = program.select(test, lower, upper);
  program.scopes.insert(program.scopes.begin() + static_cast<std::ptrdiff_t>(at), {low, high});
  simplify_scope(program, at);
  simplify_scope(program, at + 1);
}

}  // namespace syno::derive
