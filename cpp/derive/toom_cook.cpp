// Windows that slide, with fewer products: Toom–Cook's algorithm, which in two dimensions is Winograd's for
// convolutions.
#include <algorithm>

#include "derive/bilinear.hpp"
#include "derive/finite.hpp"
#include "derive/forms.hpp"
#include "derive/tools.hpp"
#include "support/error.hpp"

namespace syno::derive {

namespace {

/// The body of a scope as data(i + r) * window(r) * rest, or data(i - r) where `reversed`.
struct Sliding {
  std::vector<ScalarId> data, window, rest;
  bool reversed = false;
};

/// Whether all indices of a factor hold i and r as multiples of i + r (of i - r where `reversed`).
bool slides(const Program& program, ScalarId factor, std::uint32_t i, std::uint32_t r, bool reversed) {
  bool all = true;
  over_forms(program, factor, [&](const Affine& form, std::int64_t) {
    const std::int64_t a = coefficient_in(program.arena, form, i), b = coefficient_in(program.arena, form, r);
    all = all && a == (reversed ? -b : b);
  });
  return all;
}

/// The factors of a body, and which iterators each depends on.
class Factors {
 public:
  Factors(const Program& program, const Scope& scope) : factors_(program::factors_of(program, scope.body)) {
    for (const Iterators* list : {&scope.traversal, &scope.sums})
      for (const Iterator& i : *list) {
        slots_.push_back(i.slot);
        for (const ScalarId factor : factors_) depends_.push_back(depends_on(program, factor, i.slot));
      }
  }

  /// Nothing where a factor moves with i alone, or none with both, or none with r alone.
  std::optional<Sliding> by(std::uint32_t i, std::uint32_t r) const {
    Sliding found;
    const std::size_t first = row_of(i), second = row_of(r);
    for (std::size_t f = 0; f < factors_.size(); ++f) {
      const bool by_i = depends_[first + f], by_r = depends_[second + f];
      if (by_i && !by_r) return std::nullopt;
      (by_i ? found.data : by_r ? found.window : found.rest).push_back(factors_[f]);
    }
    if (found.data.empty() || found.window.empty()) return std::nullopt;
    return found;
  }

 private:
  std::size_t row_of(std::uint32_t slot) const {
    const auto at = std::find(slots_.begin(), slots_.end(), slot);
    return static_cast<std::size_t>(at - slots_.begin()) * factors_.size();
  }

  std::vector<ScalarId> factors_;
  std::vector<std::uint32_t> slots_;
  std::vector<bool> depends_;  // by iterator and factor
};

std::optional<Sliding> sliding(const Program& program, const Factors& factors, std::uint32_t i,
                               std::uint32_t r) {
  std::optional<Sliding> found = factors.by(i, r);
  if (!found) return std::nullopt;
  for (const bool reversed : {false, true}) {
    found->reversed = reversed;
    if (std::all_of(found->data.begin(), found->data.end(),
                    [&](ScalarId factor) { return slides(program, factor, i, r, reversed); }))
      return found;
  }
  return std::nullopt;
}

std::vector<std::int64_t> tiles_for(std::int64_t extent, std::int64_t window) {
  std::vector<std::int64_t> tiles;
  for (const std::int64_t m : {2, 3, 4, 5, 6}) {
    const bool fits = m <= extent && m + window - 1 <= kMostPoints;
    if (fits && (m % 2 == 0 || extent % m == 0)) tiles.push_back(m);
  }
  return tiles;
}

}  // namespace

std::vector<Site> find_toom_cook(const Program& program, std::size_t at) {
  const Scope& scope = program.scopes[at];
  if (scope.reduction != program::Reduction::Sum || !scope.target.empty() || !finite(program, scope.body))
    return {};
  std::vector<Site> found;
  const Factors factors(program, scope);
  for (const Iterator& i : scope.traversal)
    for (const Iterator& r : scope.sums) {
      const auto [r_begin, r_end] = range_of(program, r.range);
      const std::int64_t window = r_end - r_begin;
      if (window < 2 || window >= kMostPoints || !named_once(scope, i) || !named_once(scope, r)) continue;
      if (!sliding(program, factors, i.slot, r.slot)) continue;
      const auto [begin, end] = range_of(program, i.range);
      for (const std::int64_t m : tiles_for(end - begin, window))
        found.push_back({name_of(program, scope), i.name, r.name, {}, {m, window}});
    }
  return found;
}

double toom_cook_leaves(const Program& program, std::size_t at, const Site& site) {
  const auto [begin, end] = range_of(program, iterator_named(program.scopes[at], site.iterator)->range);
  const std::int64_t m = site.numbers[0], n = site.numbers[1], tiles = (end - begin + m - 1) / m;
  return static_cast<double>(tiles * (m + n - 1)) / static_cast<double>((end - begin) * n);
}

void toom_cook(Program& program, const Site& site) {
  // A third number says which points; the sites that are found leave it to us.
  Site found = site;
  const std::int64_t set = found.numbers.size() > 2 ? found.numbers[2] : 0;
  if (found.numbers.size() > 2) found.numbers.resize(2);
  if (site.numbers.size() > 3 || set < 0 || set > 1)
    fail<ScheduleError>(kWhere,
                        "toom_cook of '{}' takes a tile, a window and 0 (balanced points) or 1 "
                        "(integers)",
                        site.scope);
  std::size_t at = place_of(program, rewrite_named("toom_cook"), found);
  auto& arena = program.arena;
  const Scope scope = program.scopes[at];
  const Iterator i = *iterator_named(scope, site.iterator), r = *iterator_named(scope, site.other);
  const Sliding parts = *sliding(program, Factors(program, scope), i.slot, r.slot);
  const auto [i_begin, i_end] = range_of(program, i.range);
  const auto [r_begin, r_end] = range_of(program, r.range);
  const std::int64_t m = site.numbers[0], n = site.numbers[1], products = m + n - 1;
  const std::string name = derived_name(program, site, "products");
  const ToomCook matrices = toom_cook_matrices(m, n, static_cast<PointSet>(set));
  const std::string size = fmt::format("{}x{}{}", m, n, set == 0 ? "" : "i");
  const auto constant = [&](const char* letter, const Matrix& matrix) {
    return constant_matrix(program, letter + size, matrix);
  };

  const auto part_name = [&](const char* part) {
    return derived_name(program, {site.scope, {}, {}, {}}, part);
  };

  // i = i_begin + m * t + j. Data at i + r does not tell r from j: it is taken at r's end and at j + r.
  const Iterator p = program.new_iterator(fresh_iterator_name(scope, "p"), make_range(program, 0, products));
  const Iterator t = program.new_iterator(i.name, make_range(program, 0, (i_end - i_begin + m - 1) / m));
  const Iterator a = program.new_iterator("a", make_range(program, 0, products));
  const Iterator q = program.new_iterator("a", make_range(program, 0, n));
  const ExprId taken = arena.add(arena.add(arena.multiply(arena.iterator(t.slot), m), arena.iterator(a.slot)),
                                 arena.constant(i_begin));
  const ExprId end = arena.constant(parts.reversed ? r_end - 1 : r_begin);
  const ExprId weighed = arena.add(end, arena.multiply(arena.iterator(q.slot), parts.reversed ? -1 : 1));
  const ScalarId data = transform(program, at, part_name("data"),
                                  {product_of(program, parts.data),
                                   constant("B", matrices.input),
                                   p,
                                   {t},
                                   {a},
                                   {{i.slot, taken}, {r.slot, end}}});
  const ScalarId window = transform(
      program, at, part_name("window"),
      {product_of(program, parts.window), constant("G", matrices.weights), p, {}, {q}, {{r.slot, weighed}}});

  Scope whole = scope, made = scope;
  made.traversal = {p};
  std::vector<std::pair<std::uint32_t, ExprId>> own;
  Iterators kept = scope.traversal;
  for (const Iterator& iterator : kept) {
    if (iterator.slot == i.slot) {
      made.traversal.push_back(t);
      continue;
    }
    made.traversal.push_back(copies_of(program, {iterator}, own)[0]);
  }
  std::erase_if(made.sums, [&](const Iterator& sum) { return sum.slot == r.slot; });
  if (made.sums.empty()) made.reduction = program::Reduction::None;
  std::vector<ScalarId> factors{window, data};
  factors.insert(factors.end(), parts.rest.begin(), parts.rest.end());
  made.body = program::with_iterators(program, product_of(program, factors), own);
  made.output = add_computed(program, name, made.traversal);

  const Iterator sum = program.new_iterator(p.name, p.range);
  const ExprId from_begin = arena.subtract(arena.iterator(i.slot), arena.constant(i_begin));
  const symbolic::Size tile(m);
  std::vector<ExprId> places{arena.iterator(sum.slot)};
  for (const Iterator& iterator : scope.traversal)
    places.push_back(iterator.slot == i.slot ? arena.divide(from_begin, tile)
                                             : arena.iterator(iterator.slot));
  whole.sums = {sum};
  whole.body = program.binary(
      Function::Multiply,
      program.read(constant("A", matrices.output), {arena.modulo(from_begin, tile), places[0]}),
      program.read(made.output, places));
  program.scopes[at] = std::move(whole);
  program.scopes.insert(program.scopes.begin() + static_cast<std::ptrdiff_t>(at), std::move(made));
  simplify_scope(program, at);
  simplify_scope(program, at + 1);
}

}  // namespace syno::derive
