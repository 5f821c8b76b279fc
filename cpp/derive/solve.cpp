// Sums of which a remainder lets only every m-th term in, as transposed convolutions and gradients of strided
// ones have: sum[r] x[inside((h+1-r) % 2, 1) + (h+1-r) / 2] * w[r] multiplies half of its terms with zero.
// The congruence is solved for the sum, r = 2*r' + (h+1) % 2, and r' runs over the terms that are left.
//
// Where what is read is one element long, sum[r] x[h-r] * w[r], one term is left: that of r = h. So begins a
// generator of images, by a transposed convolution of one place.
#include <algorithm>
#include <numeric>

#include "derive/forms.hpp"
#include "derive/moved.hpp"
#include "derive/tools.hpp"
#include "support/error.hpp"
#include "symbolic/affine.hpp"
#include "symbolic/congruence.hpp"

namespace syno::derive {

namespace {

/// whole % modulus is 0 wherever a term of the sum is not, or whole itself is where the modulus is 0; whole
/// is coefficient * sum + what the sum does not move.
struct Congruence {
  ExprId whole{};
  std::int64_t coefficient = 0, modulus = 1;
  std::int64_t extent = 1;  ///< of the sum, which begins at 0
  /// Terms that are left.
  std::int64_t left() const { return modulus == 0 ? 1 : (extent + modulus - 1) / modulus; }
};

bool moves(const Program& program, const Iterator& i, ExprId index) {
  const auto [begin, end] = range_of(program, i.range);
  return end - begin > 1 && depends_on(program, index, i.slot);
}

/// Of an index in a dimension of one element, at which alone a read is not zero. Where no result moves it,
/// the sum runs over less (`tighten`).
std::optional<Congruence> equation_of(const Program& program, const Scope& scope, ExprId index,
                                      std::uint32_t slot, std::int64_t extent) {
  const auto coefficient = symbolic::coefficient_of(program.arena, index, slot);
  if (!coefficient || std::abs(*coefficient) != 1) return std::nullopt;
  bool guarded = false;  // where a guard says no, no term is left at all
  over_nodes(program.arena, index,
             [&](const symbolic::Expr& node) { guarded = guarded || node.op == Op::Inside; });
  const bool moved = std::any_of(scope.traversal.begin(), scope.traversal.end(),
                                 [&](const Iterator& i) { return moves(program, i, index); });
  if (guarded || !moved) return std::nullopt;
  return Congruence{index, *coefficient, 0, extent};
}

/// The dimensions along which a factor is read at one place by a window, if it is so along all that windows
/// move in, and results share what the other factors read: a batch does, of which each image has its one
/// place. Results that have weights of their own are made where the weights lie, whatever is left of the sum.
std::vector<std::size_t> one_place(const Program& program, const Scope& scope, ScalarId deciding) {
  const Scalar& read = program.scalar(deciding);
  const std::vector<program::Range>& extents = program.tensor(read.tensor).dims;
  const auto of_one = [&](const program::Range& range) {
    return range_of(program, range) == std::pair(0L, 1L);
  };
  if (std::none_of(extents.begin(), extents.end(), of_one)) return {};
  std::vector<std::size_t> dims;
  for (std::size_t d = 0; d < read.indices.size(); ++d) {
    const auto any = [&](const Iterators& list) {
      return std::any_of(list.begin(), list.end(),
                         [&](const Iterator& i) { return moves(program, i, read.indices[d]); });
    };
    if (!any(scope.traversal) || !any(scope.sums)) continue;
    if (!of_one(extents[d])) return {};
    dims.push_back(d);
  }
  const auto factors = program::factors_of(program, scope.body);
  const bool shared = std::any_of(scope.traversal.begin(), scope.traversal.end(), [&](const Iterator& i) {
    const auto [begin, end] = range_of(program, i.range);
    bool moved = end - begin == 1;  // with i another factor is, now or when its sum is solved
    for (const ScalarId factor : factors)
      moved = moved || (factor != deciding && depends_on(program, factor, i.slot));
    for (const std::size_t d : dims) moved = moved || depends_on(program, read.indices[d], i.slot);
    return !moved;
  });
  return shared ? dims : std::vector<std::size_t>{};
}

std::optional<Congruence> congruence_of(const Program& program, std::size_t at, std::size_t sum) {
  const Scope& scope = program.scopes[at];
  const auto& arena = program.arena;
  const std::uint32_t slot = scope.sums[sum].slot;
  const auto [begin, end] = range_of(program, scope.sums[sum].range);
  if (scope.reduction != program::Reduction::Sum || begin != 0 || end < 2) return std::nullopt;
  std::optional<Congruence> found;
  for (const ScalarId factor : program::factors_of(program, scope.body)) {
    const Scalar& read = program.scalar(factor);
    if (read.kind != ScalarKind::Read || read.fill.num() != 0) continue;
    for (const ExprId index : read.indices)
      over_nodes(arena, index, [&](const symbolic::Expr& node) {
        if (found || node.op != Op::Inside || arena[node.size].factor().num() != 1) return;
        const symbolic::Expr& remainder = arena[node.a];
        if (remainder.op != Op::Modulo) return;
        const std::int64_t modulus = arena[remainder.size].factor().num();
        const auto coefficient = symbolic::coefficient_of(arena, remainder.a, slot);
        if (modulus < 2 || end <= modulus / 2 || !coefficient || std::gcd(*coefficient, modulus) != 1) return;
        found = Congruence{remainder.a, *coefficient, modulus, end};
      });
    if (found) continue;
    for (const std::size_t d : one_place(program, scope, factor))
      if (!found) found = equation_of(program, scope, read.indices[d], slot, end);
  }
  return found;
}

/// Of the factors that are 0 outside of what they read, the one that terms past the end of the sum are made
/// zero by: one that reads at the sum itself, as weights do, if there is one. Copies of it that are made
/// before calls hold those zeros; another factor, that which decides, would have to look at each term.
struct Guarded {
  ScalarId factor{};
  std::size_t index = 0;  ///< that holds the guard
};
std::optional<Guarded> factor_to_guard(const Program& program, ScalarId body, const Congruence& c,
                                       std::uint32_t slot) {
  const auto& arena = program.arena;
  std::optional<Guarded> deciding;
  for (const ScalarId factor : program::factors_of(program, body)) {
    const Scalar& read = program.scalar(factor);
    if (read.kind != ScalarKind::Read || read.fill.num() != 0) continue;
    for (std::size_t i = 0; i < read.indices.size(); ++i) {
      const symbolic::Expr& whole = arena[read.indices[i]];
      if (whole.op == Op::Iterator && static_cast<std::uint32_t>(whole.a) == slot) return Guarded{factor, i};
      if (!deciding && read.indices[i] == c.whole) deciding = Guarded{factor, i};
      over_nodes(arena, read.indices[i], [&](const symbolic::Expr& node) {
        if (!deciding && node.op == Op::Modulo && node.a == c.whole) deciding = Guarded{factor, i};
      });
    }
  }
  return deciding;
}

}  // namespace

std::vector<Site> find_solvable(const Program& program, std::size_t scope) {
  std::vector<Site> found;
  const auto& sums = program.scopes[scope].sums;
  for (std::size_t k = 0; k < sums.size(); ++k)
    if (congruence_of(program, scope, k))
      found.push_back({name_of(program, program.scopes[scope]), sums[k].name, {}, {}});
  return found;
}

void solve(Program& program, const Site& site) {
  auto& arena = program.arena;
  const std::size_t at = scope_named(program, site.scope);
  const auto& sums = program.scopes[at].sums;
  const auto sum =
      std::find_if(sums.begin(), sums.end(), [&](const Iterator& i) { return i.name == site.iterator; });
  if (sum == sums.end()) fail<ScheduleError>(kWhere, "'{}' has no sum '{}'", site.scope, site.iterator);
  const auto which = static_cast<std::size_t>(sum - sums.begin());
  const auto found = congruence_of(program, at, which);
  if (!found)
    fail<ScheduleError>(
        kWhere,
        "no factor of '{}' has an index with a remainder that decides about '{}', or reads one "
        "element along it",
        site.scope, site.iterator);
  const Congruence& c = *found;
  const std::uint32_t slot = sums[which].slot;
  const symbolic::Size modulus(std::max<std::int64_t>(c.modulus, 1));
  const auto zero = [&](std::uint32_t s) { return s == slot ? arena.constant(0) : arena.iterator(s); };
  const ExprId rest = arena.substitute(c.whole, zero);
  // 0 = coefficient * sum + rest, and the one element that is read is the first.
  const symbolic::CongruenceSolutions solution =
      c.modulus == 0
          ? symbolic::CongruenceSolutions{c.coefficient > 0 ? arena.multiply(rest, -1) : rest,
                                          arena.constant(0)}
          : symbolic::solve_congruence(arena, c.coefficient, rest, c.modulus, arena.iterator(slot));
  const ExprId value = solution.x, quotient = solution.quotient;
  const auto solved = [&](ExprId e) {
    return arena.rewrite(e, [&](ExprId part) -> std::optional<ExprId> {
      const symbolic::Expr& node = arena[part];
      if (c.modulus == 0 && part == c.whole) return quotient;
      if (node.op == Op::Iterator && static_cast<std::uint32_t>(node.a) == slot) return value;
      if (c.modulus == 0) return std::nullopt;
      const bool decided = (node.op == Op::Divide || node.op == Op::Modulo) && node.a == c.whole &&
                           arena[node.size] == modulus;
      if (!decided) return std::nullopt;
      return node.op == Op::Divide ? quotient : arena.constant(0);
    });
  };
  // The last round may be incomplete, and the one term that is left may be none of the sum's: terms past its
  // ends are zero by a guard of one factor.
  const ScalarId body = program.scopes[at].body;
  const auto leaves_sum = [&] {
    const symbolic::Interval term = symbolic::bounds(arena, value, program::context_of(program), 0);
    return term.least < 0 || term.greatest >= c.extent;
  };
  const bool incomplete = c.modulus == 0 ? leaves_sum() : c.extent % c.modulus != 0;
  const std::optional<Guarded> guarded = incomplete ? factor_to_guard(program, body, c, slot) : std::nullopt;
  const auto guard = [&](ExprId index) {
    const ExprId inside = arena.inside(value, symbolic::Size(c.extent));
    return index == value ? inside : arena.add(index, arena.subtract(inside, value));
  };
  program.scopes[at].body = program::rebuild(program, body, [&](ScalarId id) -> std::optional<ScalarId> {
    Scalar scalar = program.scalar(id);
    if (scalar.kind == ScalarKind::Index) {
      scalar.index = solved(scalar.index);
    } else if (scalar.kind == ScalarKind::Read) {
      for (auto& index : scalar.indices) index = solved(index);
      if (guarded && id == guarded->factor)
        scalar.indices[guarded->index] = guard(scalar.indices[guarded->index]);
    } else {
      return std::nullopt;
    }
    return program.add_scalar(std::move(scalar));
  });
  program.scopes[at].sums[which].range = {arena.constant(0), arena.constant(c.left())};
}

}  // namespace syno::derive
