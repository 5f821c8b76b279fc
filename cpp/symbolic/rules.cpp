// The table of rewriting rules. Each function is one row; it may assume that everything below `id` is simple.
// Sizes are positive integers at every valuation. Rewriting ends: every row lowers, in this order of weight,
// (number of inside, / and %, counted with their operands; sum of divisors and moduli; size of coefficients).
#include <algorithm>
#include <array>
#include <numeric>

#include "support/checked.hpp"
#include "support/error.hpp"
#include "symbolic/simplify.hpp"

namespace syno::symbolic {
namespace {

/// The terms of `all` whose coefficient `block` divides, divided by it, and the others.
struct Parts {
  Terms multiples, rest;
};
Parts divided(Facts& facts, const Terms& all, const Size& block) {
  Parts parts;
  for (const Term& term : all) {
    const Size quotient = term.magnitude() / block;
    if (term.factor != Rational(0) && facts.integral(quotient)) {
      const Rational sign = term.factor < 0 ? -1 : 1;
      parts.multiples.push_back({term.atom, sign * quotient.factor(), quotient / Size(quotient.factor())});
    } else if (term.atom == facts.one() && term.factor.integral() && !term.monomial.has_variables() &&
               !block.has_variables()) {  // a number: 7 = 2 * 3 + 1
      const std::int64_t value = term.factor.num(), by = block.factor().num();
      parts.multiples.push_back({term.atom, floor_divide(value, by), Size()});
      parts.rest.push_back({term.atom, floor_modulo(value, by), Size()});
    } else {
      parts.rest.push_back(term);
    }
  }
  std::erase_if(parts.multiples, [](const Term& term) { return term.factor == Rational(0); });
  std::erase_if(parts.rest, [&](const Term& t) { return t.factor == Rational(0) && t.atom == facts.one(); });
  return parts;
}

/// Appends 0 * x for each x that may fail: what is dropped from a value is kept as a guard.
void keep_guards(Facts& facts, const Terms& dropped, Terms& kept) {
  for (const Term& term : dropped) {
    if (facts.arena().has_inside(term.atom)) kept.push_back({term.atom, 0, Size()});
  }
}

Terms scaled(const Terms& terms, Rational factor, const Size& monomial) {
  Terms result = terms;
  for (Term& term : result) {
    term.factor = term.factor * factor * monomial.factor();
    term.monomial = term.monomial * monomial / Size(monomial.factor());
  }
  return result;
}

/// Finds every one of `parts` in `sum` with just its coefficient and takes them out.
bool take_out(Terms& sum, const Terms& parts) {
  Terms rest = sum;
  for (const Term& part : parts) {
    const auto place = std::find(rest.begin(), rest.end(), part);
    if (place == rest.end()) return false;
    rest.erase(place);
  }
  sum = std::move(rest);
  return true;
}

/// Blocks to try to split a sum by: coefficients and their common factors with each other and the divisor.
std::vector<Size> blocks(Facts& facts, const Terms& terms, const Size& divisor) {
  std::vector<Size> result;
  const auto consider = [&](const Size& size) {
    if (facts.less_equal(size, Size()) || size == divisor ||
        std::find(result.begin(), result.end(), size) != result.end())
      return;
    if (facts.integral(size) && facts.divides(size, divisor)) result.push_back(size);
  };
  const auto common = [](const Size& a, const Size& b) {
    if (!a.factor().integral() || !b.factor().integral()) return Size();
    Size gcd(std::gcd(a.factor().num(), b.factor().num()));
    for (std::size_t i = 0; i < kMaxVariables; ++i) {
      const int exponent = std::min(a.exponent(i), b.exponent(i));
      if (exponent != 0) gcd = gcd * Size::variable(i, exponent);
    }
    return gcd;
  };
  for (const Term& term : terms) {
    if (term.factor == Rational(0) || term.atom == facts.one()) continue;
    consider(term.magnitude());
    consider(term.monomial);
  }
  for (std::size_t i = 0; i < terms.size(); ++i) {
    if (terms[i].factor == Rational(0) || terms[i].atom == facts.one()) continue;
    consider(common(terms[i].magnitude(), divisor));
    for (std::size_t j = 0; j < i; ++j) {
      if (terms[j].factor != Rational(0)) consider(common(terms[i].magnitude(), terms[j].magnitude()));
    }
  }
  return result;
}

/// x = c*u + r with 0 <= r < c and c one of blocks(): what lets / and % by a multiple of c look at u alone.
struct Split {
  Size block;
  Terms high;
  ExprId low{};
};
std::optional<Split> split(Facts& facts, ExprId x, const Size& divisor) {
  const Terms all = facts.terms(x);
  for (const Size& block : blocks(facts, all, divisor)) {
    Parts parts = divided(facts, all, block);
    if (parts.multiples.empty()) continue;
    const ExprId low = facts.sum(parts.rest);
    const auto quotient = facts.block_of(low, block);
    if (!quotient) continue;
    if (*quotient != 0) {
      parts.multiples.push_back({facts.one(), *quotient, Size()});
      parts.rest.push_back(
          {facts.one(), Rational(-*quotient) * block.factor(), block / Size(block.factor())});
    }
    return Split{block, std::move(parts.multiples), facts.sum(parts.rest)};
  }
  return std::nullopt;
}

bool is_sum(const Facts&, const Expr& node) { return node.op == Op::Add || node.op == Op::Multiply; }

ExprId collect_terms(Facts& facts, ExprId id) {
  return is_sum(facts, facts.arena()[id]) ? facts.sum(facts.terms(id)) : id;
}

/// The quotient x / B as the simplifier would write it, without rewriting in depth: what a sum is searched
/// for.
Terms quotient_terms(Facts& facts, ExprId x, const Size& divisor);

ExprId join_quotient_and_remainder(Facts& facts, ExprId id) {
  Arena& arena = facts.arena();
  if (arena[id].op != Op::Add) return id;
  const Terms all = facts.terms(id);
  for (const Term& term : all) {
    const Expr node = arena[term.atom];
    if (node.op != Op::Modulo || term.factor == Rational(0)) continue;
    const Size divisor = arena[node.size];
    Terms rest = all;
    Terms wanted = scaled(quotient_terms(facts, node.a, divisor), term.factor, divisor * term.monomial);
    wanted.push_back(term);
    if (!take_out(rest, wanted)) continue;
    for (const Term& part : scaled(facts.terms(node.a), term.factor, term.monomial)) rest.push_back(part);
    return facts.sum(std::move(rest));
  }
  return id;
}

ExprId join_digits(Facts& facts, ExprId id) {
  Arena& arena = facts.arena();
  if (arena[id].op != Op::Add) return id;
  const Terms all = facts.terms(id);
  for (const Term& low : all) {
    const Expr low_node = arena[low.atom];
    if (low_node.op != Op::Modulo || low.factor == Rational(0)) continue;
    const Size low_size = arena[low_node.size];
    const Terms quotient = quotient_terms(facts, low_node.a, low_size);
    for (const Term& high : all) {
      const Expr high_node = arena[high.atom];
      if (high_node.op != Op::Modulo || high.factor != low.factor * low_size.factor() ||
          high.monomial != low.monomial * low_size / Size(low_size.factor())) {
        continue;
      }
      Terms offset = facts.terms(high_node.a);
      if (!take_out(offset, quotient)) continue;
      const Size high_size = arena[high_node.size];
      Terms rest = all;
      take_out(rest, {low, high});
      Terms whole = facts.terms(low_node.a);
      for (const Term& part : scaled(offset, 1, low_size)) whole.push_back(part);
      const ExprId joined = arena.modulo(facts.sum(std::move(whole)), low_size * high_size);
      rest.push_back({joined, low.factor, low.monomial});
      return facts.sum(std::move(rest));
    }
  }
  return id;
}

ExprId remainder_from_quotient(Facts& facts, ExprId id) {
  Arena& arena = facts.arena();
  if (arena[id].op != Op::Add) return id;
  const Terms all = facts.terms(id);
  for (const Term& term : all) {
    const Expr node = arena[term.atom];
    if (node.op != Op::Divide || term.factor == Rational(0)) continue;
    const Size divisor = arena[node.size];
    const Size scale = term.monomial / divisor;
    const Rational factor = Rational(0) - term.factor * scale.factor();
    const Size monomial = scale / Size(scale.factor());
    Terms rest = all;
    Terms wanted = scaled(facts.terms(node.a), factor, monomial);
    wanted.push_back(term);
    if (!take_out(rest, wanted)) continue;
    rest.push_back({arena.modulo(node.a, divisor), factor, monomial});
    return facts.sum(std::move(rest));
  }
  return id;
}

ExprId quotient_from_remainder(Facts& facts, ExprId id) {
  Arena& arena = facts.arena();
  if (arena[id].op != Op::Add) return id;
  const Terms all = facts.terms(id);
  for (const Term& term : all) {
    const Expr node = arena[term.atom];
    if (node.op != Op::Modulo || term.factor == Rational(0)) continue;
    const Size divisor = arena[node.size];
    Terms rest = all;
    Terms wanted = scaled(facts.terms(node.a), Rational(0) - term.factor, term.monomial);
    wanted.push_back(term);
    if (!take_out(rest, wanted)) continue;
    rest.push_back({arena.divide(node.a, divisor), Rational(0) - term.factor * divisor.factor(),
                    term.monomial * divisor / Size(divisor.factor())});
    return facts.sum(std::move(rest));
  }
  return id;
}

/// k / 2 is left as it is even when k is 3 at every valuation: forms hold for more than today's valuations
/// where that costs nothing. What is smaller than its divisor is another matter: that is a legal size's
/// nature.
bool stays_symbolic(Facts& facts, ExprId x, std::int64_t block) {
  return block != 0 && !facts.arena().has_iterator(x);
}

ExprId divide_within_block(Facts& facts, ExprId id) {
  Arena& arena = facts.arena();
  const Expr node = arena[id];
  if (node.op != Op::Divide) return id;
  const auto block = facts.block_of(node.a, arena[node.size]);
  if (!block || stays_symbolic(facts, node.a, *block)) return id;
  Terms result{{facts.one(), *block, Size()}};
  keep_guards(facts, facts.terms(node.a), result);
  return facts.sum(std::move(result));
}

ExprId divide_multiples(Facts& facts, ExprId id) {
  Arena& arena = facts.arena();
  const Expr node = arena[id];
  if (node.op != Op::Divide) return id;
  const Size divisor = arena[node.size];
  Parts parts = divided(facts, facts.terms(node.a), divisor);
  if (parts.multiples.empty()) return id;
  parts.multiples.push_back({arena.divide(facts.sum(std::move(parts.rest)), divisor), 1, Size()});
  return facts.sum(std::move(parts.multiples));
}

ExprId divide_common_block(Facts& facts, ExprId id) {
  Arena& arena = facts.arena();
  const Expr node = arena[id];
  if (node.op != Op::Divide) return id;
  const Size divisor = arena[node.size];
  const auto parts = split(facts, node.a, divisor);
  if (!parts) return id;
  Terms result{{arena.divide(facts.sum(parts->high), divisor / parts->block), 1, Size()}};
  keep_guards(facts, facts.terms(parts->low), result);
  return facts.sum(std::move(result));
}

ExprId divide_nested(Facts& facts, ExprId id) {
  Arena& arena = facts.arena();
  const Expr node = arena[id];
  if (node.op != Op::Divide) return id;
  const Size divisor = arena[node.size];
  Terms all = facts.terms(node.a);
  const auto is_quotient = [&](const Term& term) {
    return arena[term.atom].op == Op::Divide && arena.has_iterator(term.atom) && term.factor == Rational(1) &&
           !term.monomial.has_variables();
  };
  if (std::count_if(all.begin(), all.end(), is_quotient) != 1) return id;
  const auto place = std::find_if(all.begin(), all.end(), is_quotient);
  const Expr inner = arena[place->atom];
  const Size inner_divisor = arena[inner.size];
  all.erase(place);
  Terms whole = scaled(all, 1, inner_divisor);
  for (const Term& term : facts.terms(inner.a)) whole.push_back(term);
  return arena.divide(facts.sum(std::move(whole)), inner_divisor * divisor);
}

ExprId divide_remainder(Facts& facts, ExprId id) {
  Arena& arena = facts.arena();
  const Expr node = arena[id];
  if (node.op != Op::Divide || arena[node.a].op != Op::Modulo) return id;
  const Expr inner = arena[node.a];
  const Size divisor = arena[node.size], modulus = arena[inner.size];
  if (!facts.divides(divisor, modulus)) return id;
  return arena.modulo(arena.divide(inner.a, divisor), modulus / divisor);
}

ExprId modulo_within_block(Facts& facts, ExprId id) {
  Arena& arena = facts.arena();
  const Expr node = arena[id];
  if (node.op != Op::Modulo) return id;
  const Size modulus = arena[node.size];
  const auto block = facts.block_of(node.a, modulus);
  if (!block || stays_symbolic(facts, node.a, *block)) return id;
  if (*block == 0) return node.a;
  Terms all = facts.terms(node.a);
  all.push_back({facts.one(), Rational(-*block) * modulus.factor(), modulus / Size(modulus.factor())});
  return facts.sum(std::move(all));
}

ExprId modulo_multiples(Facts& facts, ExprId id) {
  Arena& arena = facts.arena();
  const Expr node = arena[id];
  if (node.op != Op::Modulo) return id;
  const Size modulus = arena[node.size];
  const Terms all = facts.terms(node.a);
  Parts parts = divided(facts, all, modulus);
  if (parts.multiples.empty()) return id;
  keep_guards(facts, parts.multiples, parts.rest);
  return arena.modulo(facts.sum(std::move(parts.rest)), modulus);
}

ExprId modulo_of_modulo(Facts& facts, ExprId id) {
  Arena& arena = facts.arena();
  const Expr node = arena[id];
  if (node.op != Op::Modulo) return id;
  const Size modulus = arena[node.size];
  const Terms all = facts.terms(node.a);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Expr inner = arena[all[i].atom];
    if (inner.op != Op::Modulo || all[i].factor == Rational(0)) continue;
    if (!facts.divides(modulus, all[i].magnitude() * arena[inner.size])) continue;
    Terms rest = all;
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
    for (const Term& term : scaled(facts.terms(inner.a), all[i].factor, all[i].monomial))
      rest.push_back(term);
    return arena.modulo(facts.sum(std::move(rest)), modulus);
  }
  return id;
}

ExprId modulo_common_block(Facts& facts, ExprId id) {
  Arena& arena = facts.arena();
  const Expr node = arena[id];
  if (node.op != Op::Modulo) return id;
  const Size modulus = arena[node.size];
  auto parts = split(facts, node.a, modulus);
  if (!parts) return id;
  const ExprId high = arena.modulo(facts.sum(parts->high), modulus / parts->block);
  const Size& block = parts->block;
  return arena.add(facts.product({high, block.factor(), block / Size(block.factor())}), parts->low);
}

ExprId modulo_coefficients(Facts& facts, ExprId id) {
  Arena& arena = facts.arena();
  const Expr node = arena[id];
  if (node.op != Op::Modulo || arena[node.size].has_variables()) return id;
  const std::int64_t modulus = arena[node.size].factor().num();
  Terms all = facts.terms(node.a);
  bool changed = false;
  for (Term& term : all) {
    if (!term.factor.integral() || !facts.integral(term.monomial)) continue;
    const std::int64_t reduced = floor_modulo(term.factor.num(), modulus);
    changed |= reduced != term.factor.num();
    term.factor = reduced;
  }
  return changed ? arena.modulo(facts.sum(std::move(all)), Size(modulus)) : id;
}

ExprId inside_never_fails(Facts& facts, ExprId id) {
  Arena& arena = facts.arena();
  const Expr node = arena[id];
  if (node.op != Op::Inside) return id;
  return facts.block_of(node.a, arena[node.size]) == 0 ? node.a : id;
}

ExprId inside_nested(Facts& facts, ExprId id) {
  Arena& arena = facts.arena();
  const Expr outer = arena[id];
  if (outer.op != Op::Inside || arena[outer.a].op != Op::Inside) return id;
  const Expr inner = arena[outer.a];
  const Size large = arena[outer.size], small = arena[inner.size];
  if (facts.less_equal(small, large)) return outer.a;
  return facts.less_equal(large, small) ? arena.inside(inner.a, large) : id;
}

Terms quotient_terms(Facts& facts, ExprId x, const Size& divisor) {
  constexpr std::array steps = {divide_within_block, divide_multiples, divide_nested, divide_common_block,
                                divide_remainder};
  ExprId id = facts.arena().divide(x, divisor);
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto step : steps) {
      const ExprId next = step(facts, id);
      changed |= next != id;
      id = next;
    }
  }
  return facts.terms(id);
}

constexpr std::array kRules = {
    Rule{"collect-terms", "a*x + y + b*x -> (a + b)*x + y, in a fixed order", collect_terms},
    Rule{"join-quotient-and-remainder", "c*B*(x / B) + c*(x % B) -> c*x", join_quotient_and_remainder},
    Rule{"join-digits", "c*A*((x / A + t) % B) + c*(x % A) -> c*((x + A*t) % (A*B))", join_digits},
    Rule{"remainder-from-quotient", "c*x - c*B*(x / B) -> c*(x % B)", remainder_from_quotient},
    Rule{"quotient-from-remainder", "c*x - c*(x % B) -> c*B*(x / B)", quotient_from_remainder},
    Rule{"divide-within-block", "x / B -> q where q*B <= x < (q + 1)*B", divide_within_block},
    Rule{"divide-multiples", "(B*x + y) / B -> x + y / B", divide_multiples},
    Rule{"divide-nested", "(x / A + y) / B -> (x + A*y) / (A*B)", divide_nested},
    Rule{"divide-common-block", "(A*x + y) / (A*B) -> x / B where 0 <= y < A", divide_common_block},
    Rule{"divide-remainder", "(x % (A*B)) / A -> (x / A) % B", divide_remainder},
    Rule{"modulo-within-block", "x % B -> x - q*B where q*B <= x < (q + 1)*B", modulo_within_block},
    Rule{"modulo-multiples", "(B*x + y) % B -> y % B", modulo_multiples},
    Rule{"modulo-of-modulo", "(c*(x % (A*B)) + y) % B -> (c*x + y) % B, also where B divides c*A*B",
         modulo_of_modulo},
    Rule{"modulo-common-block", "(A*x + y) % (A*B) -> A*(x % B) + y where 0 <= y < A", modulo_common_block},
    Rule{"modulo-coefficients", "(c*x + y) % n -> ((c % n)*x + y) % n for a number n", modulo_coefficients},
    Rule{"inside-never-fails", "inside(x, S) -> x where 0 <= x < S", inside_never_fails},
    Rule{"inside-nested", "inside(inside(x, S), T) -> inside(x, min(S, T))", inside_nested},
};

}  // namespace

std::span<const Rule> rules() { return kRules; }

}  // namespace syno::symbolic
