// What is computed for each (i, r), but of tensors at i + r, is computed over the range of i + r: an
// intermediate result that is read at offsets.
#include <algorithm>
#include <numeric>

#include "derive/forms.hpp"
#include "derive/moved.hpp"
#include "derive/tools.hpp"
#include "support/checked.hpp"
#include "support/error.hpp"
#include "symbolic/affine.hpp"

namespace syno::derive {

namespace {

/// u = of * i + by * r + offset, of and by without a common divisor.
struct Form {
  std::int64_t of = 1, by = 1, offset = 0;
};

/// A term a * i of an affine form that also has b * r becomes (a / of) * u + (b - a / of * by) * r.
bool can_replace(std::int64_t a, const Form& form) { return a % form.of == 0; }

ExprId replaced(Program& program, ExprId e, std::uint32_t i, const Form& form, ExprId u, ExprId r) {
  auto& arena = program.arena;
  if (!depends_on(program, e, i)) return e;
  if (!symbolic::is_affine(arena, e)) {
    // Sums apart, so that each quotient, remainder or guard is looked at as a whole.
    const symbolic::Expr node = arena[e];
    if (node.op == Op::Divide || node.op == Op::Modulo || node.op == Op::Inside)
      return arena.over(e, [&](ExprId child) { return replaced(program, child, i, form, u, r); });
  }
  ExprId sum = arena.constant(0);
  const auto affine = symbolic::affine_form(arena, e);
  std::int64_t constant = affine.constant;
  for (const auto& [atom, coefficient] : affine.terms) {
    if (symbolic::slot_of(arena, atom) != i) {
      const ExprId other =
          symbolic::slot_of(arena, atom) == symbolic::kNoSlot ? replaced(program, atom, i, form, u, r) : atom;
      sum = arena.add(sum, arena.multiply(other, coefficient));
      continue;
    }
    const std::int64_t times = coefficient / form.of;
    sum = arena.add(sum, arena.multiply(u, times));
    sum = arena.add(sum, arena.multiply(r, checked_multiply(-times, form.by)));
    constant = checked_subtract(constant, checked_multiply(times, form.offset));
  }
  return symbolic::expression_of(arena,
                                 symbolic::affine_form(arena, arena.add(sum, arena.constant(constant))));
}

/// How two iterators occur together in indices, each way once, the first one in the body first. 2*i + 3*r
/// also suggests u = i + r, of which it is 2*u + r: so, by Euclid's algorithm, every map that is one to one
/// over the integers is made of such steps.
std::vector<Form> forms_of(const Program& program, const std::vector<DividedForm>& indices, std::uint32_t i,
                           std::uint32_t r) {
  std::vector<Form> found;
  for (const auto& [index, divided_by] : indices) {
    const std::int64_t a = coefficient_in(program.arena, index, i),
                       b = coefficient_in(program.arena, index, r);
    if (a == 0 || b == 0) continue;
    const std::int64_t divisor = std::gcd(a, b) * (a < 0 ? -1 : 1);
    const Form form{a / divisor, b / divisor, index.constant % divisor == 0 ? index.constant / divisor : 0};
    const auto same = [&](const Form& other) { return other.of == form.of && other.by == form.by; };
    if (std::none_of(found.begin(), found.end(), same)) found.push_back(form);
    const Form shorter{1, floor_divide(form.by, form.of), 0};
    const auto known = [&](const Form& other) { return other.of == 1 && other.by == shorter.by; };
    if (form.of > 1 && std::abs(form.by) > 1 && shorter.by != 0 &&
        std::none_of(found.begin(), found.end(), known))
      found.push_back(shorter);
  }
  std::erase_if(found, [&](const Form& form) {
    return !std::all_of(indices.begin(), indices.end(), [&](const DividedForm& index) {
      return can_replace(coefficient_in(program.arena, index.form, i), form);
    });
  });
  return found;
}

}  // namespace

std::vector<Site> find_substitutions(const Program& program, std::size_t at) {
  const Scope& scope = program.scopes[at];
  if (!scope.target.empty() || !total(program, scope.body)) return {};
  std::vector<Site> found;
  const std::vector<DividedForm> indices = forms_in(program, scope.body);
  for (const Iterator& i : scope.traversal)
    for (const Iterator& r : scope.traversal)
      if (i.slot != r.slot && named_once(scope, i) && named_once(scope, r))
        for (const Form& form : forms_of(program, indices, i.slot, r.slot))
          found.push_back({name_of(program, scope), i.name, r.name, {}, {form.of, form.by, form.offset}});
  return found;
}

void substitute(Program& program, const Site& site) {
  const std::size_t at = place_of(program, rewrite_named("substitute"), site);
  const std::string name = derived_name(program, site, "moved");
  auto& arena = program.arena;
  const Scope scope = program.scopes[at];
  const Iterator i = *iterator_named(scope, site.iterator), r = *iterator_named(scope, site.other);
  const Form form{site.numbers[0], site.numbers[1], site.numbers[2]};
  const ExprId value = arena.add(arena.add(arena.multiply(arena.iterator(i.slot), form.of),
                                           arena.multiply(arena.iterator(r.slot), form.by)),
                                 arena.constant(form.offset));
  const symbolic::Interval reach = symbolic::bounds(arena, value, program::context_of(program), 0);
  const Iterator u = program.new_iterator(i.name, make_range(program, reach.least, reach.greatest + 1));
  Moved moved;
  moved.body = program::rebuild(
      program, scope.body, [](ScalarId) { return std::optional<ScalarId>(); },
      [&](ExprId e) {
        return replaced(program, e, i.slot, form, arena.iterator(u.slot), arena.iterator(r.slot));
      });
  for (const Iterator& iterator : scope.traversal) {
    if (iterator.slot == i.slot) {
      moved.traversal.push_back(u);
      moved.places.push_back(value);
    } else if (iterator.slot != r.slot || depends_on(program, moved.body, r.slot)) {
      moved.traversal.push_back(iterator);
      moved.places.push_back(arena.iterator(iterator.slot));
    }
  }
  move_scope(program, at, std::move(moved), name);
}

}  // namespace syno::derive
