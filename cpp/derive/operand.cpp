// What a scope reads, laid out as the scope reads it: the windows of a convolution, the phases of a strided
// or dilated one.
#include <algorithm>

#include "derive/moved.hpp"
#include "derive/tools.hpp"
#include "support/error.hpp"
#include "symbolic/affine.hpp"

namespace syno::derive {

namespace {

constexpr std::int64_t kMostCopies = 64;  ///< of an element, at most

/// Iterators of a scope that move a read, in the order in which its indices name them.
Iterators movers(const Program& program, const Scope& scope, const Scalar& read) {
  Iterators found;
  for (const ExprId index : read.indices)
    for (const Iterators* list : {&scope.traversal, &scope.sums})
      for (const Iterator& iterator : *list) {
        const bool known = std::any_of(found.begin(), found.end(),
                                       [&](const Iterator& other) { return other.slot == iterator.slot; });
        if (!known && depends_on(program, index, iterator.slot)) found.push_back(iterator);
      }
  return found;
}

std::int64_t count_of(const Program& program, const Iterators& iterators) {
  std::int64_t points = 1;
  for (const Iterator& iterator : iterators) {
    const auto [begin, end] = range_of(program, iterator.range);
    points *= end - begin;
    if (points > std::int64_t{1} << 40) return points;
  }
  return points;
}

/// Whether a read is more than an iterator a dimension.
bool rearranges(const Program& program, const Scalar& read) {
  return std::any_of(read.indices.begin(), read.indices.end(), [&](ExprId index) {
    return symbolic::slot_of(program.arena, index) == symbolic::kNoSlot;
  });
}

}  // namespace

std::vector<Site> find_operands(const Program& program, std::size_t at) {
  const Scope& scope = program.scopes[at];
  std::vector<Site> found;
  const auto reads = program::reads_in(program, scope.body);
  for (std::size_t k = 0; k < reads.size(); ++k) {
    const Scalar& read = program.scalar(reads[k]);
    if (reads[k] == scope.body || !rearranges(program, read)) continue;
    const Iterators iterators = movers(program, scope, read);
    const std::int64_t elements = program::checked_product(kWhere, program::shape_of(program, read.tensor));
    if (iterators.empty() || count_of(program, iterators) > kMostCopies * elements) continue;
    found.push_back(
        {name_of(program, scope), {}, program.tensor(read.tensor).name, {}, {static_cast<std::int64_t>(k)}});
  }
  return found;
}

void lay_out_operand(Program& program, const Site& site) {
  const std::size_t at = place_of(program, rewrite_named("operand"), site);
  const std::string name = derived_name(program, site, "operand");
  const Scope& scope = program.scopes[at];
  const ScalarId read = program::reads_in(program, scope.body)[static_cast<std::size_t>(site.numbers[0])];
  const Iterators iterators = movers(program, scope, program.scalar(read));
  Scope made;
  std::vector<std::pair<std::uint32_t, ExprId>> moved;
  made.traversal = copies_of(program, iterators, moved);
  made.body = program::with_iterators(program, read, moved);
  made.output = add_computed(program, name, made.traversal);
  std::vector<ExprId> places;
  for (const Iterator& iterator : iterators) places.push_back(program.arena.iterator(iterator.slot));
  const ScalarId instead = program.read(made.output, std::move(places));
  program.scopes[at].body = program::rebuild(program, program.scopes[at].body, [&](ScalarId id) {
    return id == read ? std::optional(instead) : std::nullopt;
  });
  program.scopes.insert(program.scopes.begin() + static_cast<std::ptrdiff_t>(at), std::move(made));
}

}  // namespace syno::derive
