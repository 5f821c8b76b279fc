// Scopes that compute the same, or the same of other operands: once, and as one.
#include <algorithm>

#include "derive/correspondence.hpp"
#include "derive/tools.hpp"
#include "support/error.hpp"

namespace syno::derive {

namespace {

bool reuses(const Program& program, std::size_t at, std::size_t earlier) {
  const Scope &here = program.scopes[at], &there = program.scopes[earlier];
  Correspondence pairs(program, here, there);
  return pairs.same(here.body, there.body) && pairs.complete();
}

}  // namespace

std::vector<Site> find_reuses(const Program& program, std::size_t at) {
  std::vector<Site> found;
  for (std::size_t earlier = 0; earlier < at; ++earlier)
    if (reuses(program, at, earlier))
      found.push_back(
          {name_of(program, program.scopes[at]), {}, name_of(program, program.scopes[earlier]), {}});
  return found;
}

void reuse(Program& program, const Site& site) {
  const std::size_t at = place_of(program, rewrite_named("reuse"), site);
  const std::size_t earlier = scope_named(program, site.other);
  std::vector<ExprId> places;
  for (const Iterator& iterator : program.scopes[at].traversal)
    places.push_back(program.arena.iterator(iterator.slot));
  read_instead(program, at, program.scopes[earlier].output, std::move(places));
}

namespace {

/// Two scopes as one: factors that both have, and those of which each has its own.
struct Pair {
  std::size_t first = 0, second = 0;  ///< places
  std::optional<std::size_t> along;   ///< the traversal that gets longer; none: a new one, of 2
  std::map<std::uint32_t, std::uint32_t> iterators;  ///< of the second by those of the first
  std::vector<std::pair<ScalarId, std::optional<ScalarId>>>
      factors;        ///< of the first, of the second if another
  bool late = false;  ///< stands at the place of the second
};

bool reads_any(const Program& program, const Scope& reader, std::size_t begin, std::size_t end) {
  for (std::size_t s = begin; s < end; ++s)
    if (program::reads_tensor(program, reader.body, program.scopes[s].output)) return true;
  return false;
}

std::optional<Pair> pair_of(const Program& program, std::size_t first, std::size_t second,
                            std::optional<std::size_t> along) {
  const Scope &a = program.scopes[first], &b = program.scopes[second];
  if (a.sums.empty() || a.reduction != program::Reduction::Sum) return std::nullopt;
  Pair made{first, second, along, {}, {}, false};
  Correspondence iterators(program, a, b, along);
  const auto mine = program::factors_of(program, a.body), theirs = program::factors_of(program, b.body);
  if (!iterators.possible() || mine.size() != theirs.size()) return std::nullopt;
  const auto moves = [&](ScalarId factor) {
    return along && depends_on(program, factor, a.traversal[*along].slot);
  };
  bool shared = false, longer = false;
  for (std::size_t k = 0; k < mine.size(); ++k) {
    const bool same = !moves(mine[k]) && iterators.same(mine[k], theirs[k]);
    if (!same && !iterators.alike(mine[k], theirs[k])) return std::nullopt;
    shared = shared || same;
    longer = longer || moves(mine[k]);
    made.factors.emplace_back(mine[k], same ? std::nullopt : std::optional(theirs[k]));
  }
  // What shares an operand is one product with more rows or columns; other products are a batch of two.
  if (shared != along.has_value() || (along && !longer) || !iterators.complete()) return std::nullopt;
  made.iterators = iterators.pairs();
  if (reads_any(program, b, first, second)) {
    if (is_output(program, a.output)) return std::nullopt;  // a copy of it would stand before
    made.late = true;
    for (std::size_t s = first + 1; s <= second; ++s)
      if (reads_any(program, program.scopes[s], first, first + 1)) return std::nullopt;
  }
  return made;
}

}  // namespace

std::vector<Site> find_scope_merges(const Program& program, std::size_t first) {
  std::vector<Site> found;
  const Scope& scope = program.scopes[first];
  for (std::size_t second = first + 1; second < program.scopes.size(); ++second) {
    const auto add = [&](const std::string& iterator) {
      found.push_back({name_of(program, scope), iterator, name_of(program, program.scopes[second]), {}});
    };
    if (pair_of(program, first, second, {})) add("");
    for (std::size_t d = 0; d < scope.traversal.size(); ++d)
      if (named_once(scope, scope.traversal[d]) && pair_of(program, first, second, d))
        add(scope.traversal[d].name);
  }
  return found;
}

namespace {

/// Builds the scope in the place of two.
class Merger {
 public:
  Merger(Program& program, const Pair& pair, const std::string& name)
      : program_(program),
        pair_(pair),
        name_(name),
        a_(program.scopes[pair.first]),
        b_(program.scopes[pair.second]) {}

  void run() {
    auto& arena = program_.arena;
    made_ = a_;
    made_.traversal.clear();
    made_.sums.clear();
    if (!pair_.along)
      made_.traversal.push_back(
          z_ = program_.new_iterator(fresh_iterator_name(a_, "b"), make_range(program_, 0, 2)));
    for (std::size_t d = 0; d < a_.traversal.size(); ++d) {
      const Iterator& iterator = a_.traversal[d];
      if (pair_.along != d) {
        add(made_.traversal, iterator);
        continue;
      }
      const auto [a_begin, a_end] = range_of(program_, iterator.range);
      const auto [b_begin, b_end] = range_of(program_, b_.traversal[d].range);
      first_extent_ = a_end - a_begin;
      z_ = program_.new_iterator(iterator.name, make_range(program_, 0, first_extent_ + b_end - b_begin));
      made_.traversal.push_back(z_);
      const ExprId z = arena.iterator(z_.slot);
      of_first_.emplace_back(iterator.slot, arena.add(z, arena.constant(a_begin)));
      of_second_.emplace_back(b_.traversal[d].slot, arena.add(z, arena.constant(b_begin - first_extent_)));
    }
    for (const Iterator& sum : a_.sums) add(made_.sums, sum);

    std::vector<Scope> scopes;
    std::optional<ScalarId> body;
    for (const auto& [first, second] : pair_.factors) {
      const ScalarId factor =
          second ? operand(first, *second, scopes) : program::with_iterators(program_, first, of_first_);
      body = body ? program_.binary(Function::Multiply, *body, factor) : factor;
    }
    made_.body = *body;
    made_.output = add_computed(program_, name_, made_.traversal);
    const std::size_t operands = scopes.size();
    scopes.push_back(made_);
    const std::size_t at = pair_.late ? pair_.second : pair_.first;
    program_.scopes.insert(program_.scopes.begin() + static_cast<std::ptrdiff_t>(at), scopes.begin(),
                           scopes.end());
    for (std::size_t s = at; s <= at + operands; ++s) simplify_scope(program_, s);
    // The second one first: the place of the other one stays.
    instead(b_, 1);
    instead(a_, 0);
  }

 private:
  void add(Iterators& list, const Iterator& iterator) {
    list.push_back(program_.new_iterator(iterator.name, iterator.range));
    const ExprId own = program_.arena.iterator(list.back().slot);
    of_first_.emplace_back(iterator.slot, own);
    of_second_.emplace_back(pair_.iterators.at(iterator.slot), own);
  }

  /// What the one has or the other, over the iterators that either depends on.
  ScalarId operand(ScalarId first, ScalarId second, std::vector<Scope>& scopes) {
    const ScalarId one = program::with_iterators(program_, first, of_first_),
                   two = program::with_iterators(program_, second, of_second_);
    Iterators points;
    for (const Iterators* list : {&made_.traversal, &made_.sums})
      for (const Iterator& iterator : *list)
        if (iterator.slot == z_.slot || depends_on(program_, one, iterator.slot) ||
            depends_on(program_, two, iterator.slot))
          points.push_back(iterator);
    const ScalarId test =
        program_.binary(Function::Less, program_.index_value(program_.arena.iterator(z_.slot)),
                        program_.literal(pair_.along ? first_extent_ : 1));
    const ScalarId chosen = program_.select(test, one, two);
    std::vector<ExprId> places;
    for (const Iterator& point : points) places.push_back(program_.arena.iterator(point.slot));
    std::vector<std::pair<std::uint32_t, ExprId>> moved;
    Scope scope;
    scope.traversal = copies_of(program_, points, moved);
    scope.body = program::with_iterators(program_, chosen, moved);
    scope.output =
        add_computed(program_, program::fresh_tensor_name(program_, name_ + "_operand"), scope.traversal);
    scopes.push_back(scope);
    return program_.read(scope.output, std::move(places));
  }

  void instead(const Scope& was, std::int64_t which) {
    auto& arena = program_.arena;
    std::vector<ExprId> places;
    if (!pair_.along) places.push_back(arena.constant(which));
    for (std::size_t d = 0; d < was.traversal.size(); ++d) {
      const auto [begin, end] = range_of(program_, was.traversal[d].range);
      ExprId place = arena.iterator(was.traversal[d].slot);
      if (pair_.along == d)
        place = arena.add(place, arena.constant((which == 1 ? first_extent_ : 0) - begin));
      places.push_back(place);
    }
    read_instead(program_, scope_named(program_, name_of(program_, was)), made_.output, std::move(places));
  }

  Program& program_;
  const Pair& pair_;
  std::string name_;
  const Scope a_, b_;
  Scope made_;
  Iterator z_;
  std::int64_t first_extent_ = 0;
  std::vector<std::pair<std::uint32_t, ExprId>> of_first_, of_second_;
};

}  // namespace

void merge_scopes(Program& program, const Site& site) {
  const std::size_t first = place_of(program, rewrite_named("merge_scopes"), site);
  const std::size_t second = scope_named(program, site.other);
  std::optional<std::size_t> along;
  const Iterators& traversal = program.scopes[first].traversal;
  for (std::size_t d = 0; d < traversal.size(); ++d)
    if (!site.iterator.empty() && traversal[d].name == site.iterator) along = d;
  const Pair pair = *pair_of(program, first, second, along);
  Merger(program, pair, name_for(program, site, site.scope + "_" + site.other)).run();
}

}  // namespace syno::derive
