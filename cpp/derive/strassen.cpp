// Products of matrices in blocks, two by two, with seven products of blocks in the place of eight.
#include <algorithm>
#include <array>

#include "derive/bilinear.hpp"
#include "derive/finite.hpp"
#include "derive/tools.hpp"
#include "support/error.hpp"

namespace syno::derive {

namespace {

constexpr std::int64_t kLeast = 8;  ///< extent of what is worth halves

using Coefficients = std::array<std::array<std::int64_t, 4>, 7>;  ///< by product, of blocks 11, 12, 21, 22

// V. Strassen, Gaussian Elimination is not Optimal, 1969.
constexpr Coefficients kLeft{
    {{1, 0, 0, 1}, {0, 0, 1, 1}, {1, 0, 0, 0}, {0, 0, 0, 1}, {1, 1, 0, 0}, {-1, 0, 1, 0}, {0, 1, 0, -1}}};
constexpr Coefficients kRight{
    {{1, 0, 0, 1}, {1, 0, 0, 0}, {0, 1, 0, -1}, {-1, 0, 1, 0}, {0, 0, 0, 1}, {1, 1, 0, 0}, {0, 0, 1, 1}}};
constexpr Coefficients kResult{
    {{1, 0, 0, 1}, {0, 0, 1, -1}, {0, 1, 0, 1}, {1, 0, 1, 0}, {-1, 1, 0, 0}, {0, 0, 0, 1}, {1, 0, 0, 0}}};

/// The body of a scope as left(i, k) * right(k, j) * rest.
struct Matrices {
  std::vector<ScalarId> left, right, rest;
};

/// Whether indices that an iterator moves are moved by none but these two.
bool alone(const Program& program, const Scope& scope, ScalarId factor, std::uint32_t one,
           std::uint32_t two) {
  return !program::any_scalar(program, factor, [&](const Scalar& scalar) {
    bool mixed = false;
    program::over_indices(scalar, [&](ExprId index) {
      if (!depends_on(program, index, one) && !depends_on(program, index, two)) return;
      for (const Iterators* list : {&scope.traversal, &scope.sums})
        for (const Iterator& other : *list)
          mixed = mixed || (other.slot != one && other.slot != two && depends_on(program, index, other.slot));
    });
    return mixed;
  });
}

std::optional<Matrices> matrices(const Program& program, const Scope& scope, const Iterator& i,
                                 const Iterator& j, const Iterator& k) {
  Matrices found;
  bool left = false, right = false;
  for (const ScalarId factor : program::factors_of(program, scope.body)) {
    const bool by_i = depends_on(program, factor, i.slot), by_j = depends_on(program, factor, j.slot),
               by_k = depends_on(program, factor, k.slot);
    if (by_i && by_j) return std::nullopt;
    left = left || (by_i && by_k), right = right || (by_j && by_k);
    if (by_j && !alone(program, scope, factor, j.slot, k.slot)) return std::nullopt;
    if ((by_i || by_k) && !by_j && !alone(program, scope, factor, i.slot, k.slot)) return std::nullopt;
    (by_j ? found.right : by_i || by_k ? found.left : found.rest).push_back(factor);
  }
  if (!left || !right) return std::nullopt;
  return found;
}

bool even(const Program& program, const Scope& scope, const Iterator& i) {
  const auto [begin, end] = range_of(program, i.range);
  return end - begin >= kLeast && (end - begin) % 2 == 0 && named_once(scope, i);
}

}  // namespace

Strassen strassen_matrices() {
  Strassen made;
  for (const Coefficients* side : {&kLeft, &kRight})
    for (const auto& row : *side)
      (side == &kLeft ? made.left : made.right).emplace_back(row.begin(), row.end());
  for (std::size_t block = 0; block < 4; ++block) {
    made.result.emplace_back();
    for (const auto& row : kResult) made.result.back().emplace_back(row[block]);
  }
  return made;
}

std::vector<Site> find_strassen(const Program& program, std::size_t at) {
  const Scope& scope = program.scopes[at];
  if (scope.reduction != program::Reduction::Sum || !scope.target.empty() || !finite(program, scope.body))
    return {};
  std::vector<Site> found;
  for (const Iterator& i : scope.traversal)
    for (const Iterator& j : scope.traversal)
      for (std::size_t k = 0; k < scope.sums.size(); ++k) {
        const Iterator& sum = scope.sums[k];
        if (i.slot == j.slot || !even(program, scope, i) || !even(program, scope, j) ||
            !even(program, scope, sum) || !matrices(program, scope, i, j, sum))
          continue;
        found.push_back({name_of(program, scope), i.name, j.name, {}, {static_cast<std::int64_t>(k)}});
      }
  return found;
}

void strassen(Program& program, const Site& site) {
  std::size_t at = place_of(program, rewrite_named("strassen"), site);
  auto& arena = program.arena;
  const Scope scope = program.scopes[at];
  const Iterator i = *iterator_named(scope, site.iterator), j = *iterator_named(scope, site.other),
                 k = scope.sums[static_cast<std::size_t>(site.numbers[0])];
  const Matrices parts = *matrices(program, scope, i, j, k);
  const Strassen matrices_of = strassen_matrices();
  const std::string name = derived_name(program, site, "products");
  const Iterator p = program.new_iterator(fresh_iterator_name(scope, "p"), make_range(program, 0, 7));

  // i = begin + half * block + within.
  struct Halves {
    Iterator within;
    std::int64_t begin = 0, half = 0;
  };
  const auto halves = [&](const Iterator& whole) {
    const auto [begin, end] = range_of(program, whole.range);
    const std::int64_t half = (end - begin) / 2;
    return Halves{program.new_iterator(whole.name, make_range(program, 0, half)), begin, half};
  };
  const Halves rows = halves(i), columns = halves(j), inner = halves(k);
  const auto block = [&] { return program.new_iterator("b", make_range(program, 0, 2)); };
  const auto value = [&](const Halves& of, const Iterator& b) {
    return arena.add(
        arena.add(arena.multiply(arena.iterator(b.slot), of.half), arena.iterator(of.within.slot)),
        arena.constant(of.begin));
  };
  const auto operand = [&](const char* part, const std::vector<ScalarId>& factors, const char* letter,
                           const Matrix& matrix, std::pair<Iterator, Halves> one,
                           std::pair<Iterator, Halves> two) {
    const Iterator high = block();
    Iterator low = block();
    low.name += "2";
    return transform(program, at, derived_name(program, {site.scope, {}, {}, {}}, part),
                     {product_of(program, factors),
                      constant_tensor(program, letter, {7, 2, 2}, values_of(matrix)),
                      p,
                      {one.second.within, two.second.within},
                      {high, low},
                      {{one.first.slot, value(one.second, high)}, {two.first.slot, value(two.second, low)}}});
  };
  const ScalarId left = operand("left", parts.left, "strassen_left", matrices_of.left, {i, rows}, {k, inner});
  const ScalarId right =
      operand("right", parts.right, "strassen_right", matrices_of.right, {k, inner}, {j, columns});

  Scope whole = scope, made = scope;
  std::vector<std::pair<std::uint32_t, ExprId>> own;
  made.traversal = {p};
  for (const Iterator& iterator : scope.traversal)
    made.traversal.push_back(iterator.slot == i.slot   ? rows.within
                             : iterator.slot == j.slot ? columns.within
                                                       : copies_of(program, {iterator}, own)[0]);
  for (Iterator& sum : made.sums)
    if (sum.slot == k.slot) sum = inner.within;
  std::vector<ScalarId> factors{left, right};
  factors.insert(factors.end(), parts.rest.begin(), parts.rest.end());
  made.body = program::with_iterators(program, product_of(program, factors), own);
  made.output = add_computed(program, name, made.traversal);

  const Iterator sum = program.new_iterator(p.name, p.range);
  const auto from_begin = [&](const Iterator& iterator, const Halves& of) {
    return arena.subtract(arena.iterator(iterator.slot), arena.constant(of.begin));
  };
  std::vector<ExprId> places{arena.iterator(sum.slot)};
  for (const Iterator& iterator : scope.traversal) {
    const bool row = iterator.slot == i.slot;
    const Halves& of = row ? rows : columns;
    places.push_back(row || iterator.slot == j.slot
                         ? arena.modulo(from_begin(iterator, of), symbolic::Size(of.half))
                         : arena.iterator(iterator.slot));
  }
  const TensorId result =
      constant_tensor(program, "strassen_result", {2, 2, 7}, values_of(matrices_of.result));
  const ScalarId entry =
      program.read(result, {arena.divide(from_begin(i, rows), symbolic::Size(rows.half)),
                            arena.divide(from_begin(j, columns), symbolic::Size(columns.half)), places[0]});
  whole.sums = {sum};
  whole.body = program.binary(Function::Multiply, entry, program.read(made.output, places));
  program.scopes[at] = std::move(whole);
  program.scopes.insert(program.scopes.begin() + static_cast<std::ptrdiff_t>(at), std::move(made));
  simplify_scope(program, at);
  simplify_scope(program, at + 1);
}

}  // namespace syno::derive
