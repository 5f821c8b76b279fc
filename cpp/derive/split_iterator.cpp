// Iterators in two, i = f*q + p, and two in one: what makes dense convolutions of strided, dilated and
// transposed ones, and products of matrices of what has more dimensions.
#include <algorithm>
#include <array>

#include "derive/forms.hpp"
#include "derive/moved.hpp"
#include "derive/tools.hpp"
#include "support/error.hpp"
#include "symbolic/affine.hpp"

namespace syno::derive {

namespace {

constexpr std::int64_t kSmallSum = 16;               ///< extent up to which factors need not divide
constexpr std::array<std::int64_t, 2> kRows{8, 16};  ///< of register tiles

bool is_sum(const Scope& scope, const Iterator& i) {
  return std::any_of(scope.sums.begin(), scope.sums.end(),
                     [&](const Iterator& sum) { return sum.slot == i.slot; });
}

std::vector<std::int64_t> factors_for(const Program& program, const Scope& scope,
                                      const std::vector<DividedForm>& indices, const Iterator& i) {
  const auto [begin, end] = range_of(program, i.range);
  const std::int64_t extent = end - begin;
  const bool sum = is_sum(scope, i), slides = meets(program, indices, i, scope.traversal);
  std::vector<std::int64_t> factors = suggested_factors(program, indices, i);
  // Windows become shorter ones, which fewer products suffice for, whatever their length.
  const bool window = sum && (extent <= kSmallSum || slides);
  static const std::vector<std::int64_t> kTraversal{2, 3, 4}, kWindow{2, 3, 4, 6}, kDividing{5, 7},
      kLong{4, 6};
  for (const std::int64_t f : !sum ? kTraversal : window ? kWindow : kLong)
    if (extent % f == 0 || window) factors.push_back(f);
  for (const std::int64_t f : kDividing)
    if (window && slides && extent % f == 0) factors.push_back(f);
  // Parts as long as a register tile has rows turn a band of sums into blocks, by `substitute`, whose rows
  // share what they read.
  if (!sum && !scope.sums.empty() && slides) factors.insert(factors.end(), kRows.begin(), kRows.end());
  std::sort(factors.begin(), factors.end());
  factors.erase(std::unique(factors.begin(), factors.end()), factors.end());
  // Where a factor does not divide, there are points past the end: nobody reads them, or they add 0.
  const bool past_end = sum ? scope.reduction == program::Reduction::Sum : total(program, scope.body);
  std::erase_if(factors,
                [&](std::int64_t f) { return f < 2 || f >= extent || (extent % f != 0 && !past_end); });
  return factors;
}

}  // namespace

std::vector<Site> find_splits(const Program& program, std::size_t at) {
  const Scope& scope = program.scopes[at];
  if (!scope.target.empty()) return {};
  std::vector<Site> found;
  const std::vector<DividedForm> indices = forms_in(program, scope.body);
  for (const Iterators* list : {&scope.traversal, &scope.sums})
    for (const Iterator& i : *list)
      if (named_once(scope, i))
        for (const std::int64_t f : factors_for(program, scope, indices, i))
          found.push_back({name_of(program, scope), i.name, {}, {}, {f}});
  return found;
}

void split_iterator(Program& program, const Site& site) {
  const std::size_t at = place_of(program, rewrite_named("split_iterator"), site);
  auto& arena = program.arena;
  const Scope scope = program.scopes[at];
  const Iterator i = *iterator_named(scope, site.iterator);
  const auto [begin, end] = range_of(program, i.range);
  const std::int64_t extent = end - begin, f = site.numbers[0];
  const std::string name = is_sum(scope, i) ? std::string() : derived_name(program, site, "split");
  const Iterator q = program.new_iterator(i.name, make_range(program, 0, (extent + f - 1) / f));
  Scope named = scope;
  std::erase_if(named.sums, [&](const Iterator& sum) { return sum.slot == i.slot; });
  const Iterator p =
      program.new_iterator(fresh_iterator_name(named, i.name + "m"), make_range(program, 0, f));
  const ExprId within = arena.add(arena.multiply(arena.iterator(q.slot), f), arena.iterator(p.slot));
  const ExprId value = arena.add(within, arena.constant(begin));
  const ScalarId body = program::with_iterators(program, scope.body, {{i.slot, value}});
  if (is_sum(scope, i)) {
    Iterators sums;
    for (const Iterator& sum : scope.sums) {
      sums.push_back(sum.slot == i.slot ? q : sum);
      if (sum.slot == i.slot) sums.push_back(p);
    }
    program.scopes[at].sums = std::move(sums);
    program.scopes[at].body = where(program, body, {{within, 0, extent}});
    simplify_scope(program, at);
    return;
  }
  Moved moved{{}, body, {}};
  for (const Iterator& iterator : scope.traversal) {
    const ExprId place = arena.iterator(iterator.slot);
    if (iterator.slot != i.slot) {
      moved.traversal.push_back(iterator);
      moved.places.push_back(place);
      continue;
    }
    const ExprId from_begin = arena.subtract(place, arena.constant(begin));
    moved.traversal.push_back(q);
    moved.traversal.push_back(p);
    moved.places.push_back(arena.divide(from_begin, symbolic::Size(f)));
    moved.places.push_back(arena.modulo(from_begin, symbolic::Size(f)));
  }
  move_scope(program, at, std::move(moved), name);
}

namespace {

/// Whether i is read as the high and p as the low digit of one number.
bool digits(const Program& program, const std::vector<DividedForm>& indices, const Iterator& i,
            const Iterator& p) {
  const auto [begin, end] = range_of(program, p.range);
  return std::any_of(indices.begin(), indices.end(), [&, extent = end - begin](const DividedForm& index) {
    const std::int64_t high = coefficient_in(program.arena, index.form, i.slot),
                       low = coefficient_in(program.arena, index.form, p.slot);
    return low != 0 && high % low == 0 && high / low == extent;
  });
}

}  // namespace

std::vector<Site> find_merges(const Program& program, std::size_t at) {
  const Scope& scope = program.scopes[at];
  if (!scope.target.empty()) return {};
  std::vector<Site> found;
  const std::vector<DividedForm> indices = forms_in(program, scope.body);
  for (const Iterators* list : {&scope.traversal, &scope.sums})
    for (std::size_t a = 0; a < list->size(); ++a)
      for (std::size_t b = 0; b < list->size(); ++b) {
        const Iterator &i = (*list)[a], &p = (*list)[b];
        if (a == b || !named_once(scope, i) || !named_once(scope, p)) continue;
        if (b == a + 1 || digits(program, indices, i, p))
          found.push_back({name_of(program, scope), i.name, p.name, {}});
      }
  return found;
}

void merge_iterators(Program& program, const Site& site) {
  const std::size_t at = place_of(program, rewrite_named("merge_iterators"), site);
  auto& arena = program.arena;
  const Scope scope = program.scopes[at];
  const Iterator i = *iterator_named(scope, site.iterator), p = *iterator_named(scope, site.other);
  const auto [i_begin, i_end] = range_of(program, i.range);
  const auto [p_begin, p_end] = range_of(program, p.range);
  const std::int64_t f = p_end - p_begin;
  const std::string name = is_sum(scope, i) ? std::string() : derived_name(program, site, "merged");
  const Iterator z =
      program.new_iterator(i.name, make_range(program, 0, checked_multiply(i_end - i_begin, f)));
  const ExprId whole = arena.iterator(z.slot);
  const ScalarId body = program::with_iterators(
      program, scope.body,
      {{i.slot, arena.add(arena.divide(whole, symbolic::Size(f)), arena.constant(i_begin))},
       {p.slot, arena.add(arena.modulo(whole, symbolic::Size(f)), arena.constant(p_begin))}});
  if (is_sum(scope, i)) {
    Iterators& sums = program.scopes[at].sums;
    for (Iterator& sum : sums)
      if (sum.slot == i.slot) sum = z;
    std::erase_if(sums, [&](const Iterator& sum) { return sum.slot == p.slot; });
    program.scopes[at].body = body;
    simplify_scope(program, at);
    return;
  }
  const auto from = [&](const Iterator& iterator, std::int64_t begin) {
    return arena.subtract(arena.iterator(iterator.slot), arena.constant(begin));
  };
  Moved moved{{}, body, {}};
  for (const Iterator& iterator : scope.traversal) {
    if (iterator.slot == p.slot) continue;
    const bool merged = iterator.slot == i.slot;
    moved.traversal.push_back(merged ? z : iterator);
    moved.places.push_back(merged ? arena.add(arena.multiply(from(i, i_begin), f), from(p, p_begin))
                                  : arena.iterator(iterator.slot));
  }
  move_scope(program, at, std::move(moved), name);
}

}  // namespace syno::derive
