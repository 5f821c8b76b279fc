#include "nest/affine.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "support/checked.hpp"
#include "support/error.hpp"

namespace syno::nest {

void SmallCoefficients::fail_overflow(const char* operation, std::int64_t a, std::int64_t b) {
  fail<ScheduleError>("loop nest", "an index overflows: {} {} {} does not fit; use smaller tensors", a,
                      operation, b);
}

namespace {

constexpr std::int64_t kLargest = SmallCoefficients::kLargest;

/// Bounds may be wider than any index: they saturate.
std::int64_t saturated_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return (a < 0) == (b < 0) ? kLargest : -kLargest;
  return std::clamp(product, -kLargest, kLargest);
}

Interval intersect(Interval a, Interval b) {
  return {std::max(a.least, b.least), std::min(a.greatest, b.greatest)};
}

/// If a.terms == (numerator / denominator) * b.terms with denominator > 0, gives the ratio.
bool proportional(const AffineForm& a, const AffineForm& b, std::int64_t& numerator,
                  std::int64_t& denominator) {
  if (a.terms.size() != b.terms.size() || a.terms.empty()) return false;
  numerator = a.terms[0].second;
  denominator = b.terms[0].second;
  if (denominator < 0) {
    numerator = -numerator;
    denominator = -denominator;
  }
  for (std::size_t i = 0; i < a.terms.size(); ++i) {
    if (a.terms[i].first != b.terms[i].first) return false;
    if (static_cast<Int128>(a.terms[i].second) * denominator !=
        static_cast<Int128>(b.terms[i].second) * numerator)
      return false;
  }
  return true;
}

}  // namespace

void AffineForms::bind(std::uint32_t slot, Interval range) {
  if (slot >= bindings_.size()) bindings_.resize(slot + 1);
  Binding& binding = bindings_[slot];
  binding.bound = true;
  binding.aliased = false;
  binding.range = range;
}

void AffineForms::bind_parameter(std::uint32_t slot, Interval range) {
  bind(slot, range);
  parameters_.push_back(slot);
}

namespace {

/// `form` as an atom plus the rest, where the atom is its only quotient and occurs once.
std::optional<std::pair<Atom, AffineForm>> one_quotient(const AffineForms& forms, const AffineForm& form) {
  std::optional<std::pair<Atom, AffineForm>> found;
  for (std::size_t i = 0; i < form.terms.size(); ++i) {
    const Atom& atom = forms.atom(form.terms[i].first);
    if (atom.kind == Atom::Kind::Slot) continue;
    if (found || atom.kind != Atom::Kind::Quotient || form.terms[i].second != 1) return std::nullopt;
    AffineForm rest{{}, form.constant};
    for (std::size_t other = 0; other < form.terms.size(); ++other)
      if (other != i) rest.terms.push_back(form.terms[other]);
    found = {atom, std::move(rest)};
  }
  return found;
}

}  // namespace

void AffineForms::push_loop_facts(std::uint32_t slot, const AffineForm& begin, const AffineForm& end) {
  const AffineForm variable = slot_form(slot);
  const auto minus = [](const AffineForm& a, const AffineForm& b) { return add(a, multiply(b, -1)); };
  if (!end.is_constant()) {
    push_fact(minus(variable, end), {-kLargest, -1});
    // slot < rest + inner / F: F * (slot - rest) <= F * (inner / F) - F <= inner - F.
    if (const auto quotient_end = one_quotient(*this, end)) {
      const auto& [atom, rest] = *quotient_end;
      push_fact(minus(multiply(minus(variable, rest), atom.divisor), atom.inner), {-kLargest, -atom.divisor});
    }
  }
  if (!begin.is_constant()) {
    push_fact(minus(variable, begin), {0, kLargest});
    if (const auto quotient_begin = one_quotient(*this, begin)) {
      const auto& [atom, rest] = *quotient_begin;
      push_fact(minus(multiply(minus(variable, rest), atom.divisor), atom.inner),
                {1 - atom.divisor, kLargest});
    }
  }
}

void AffineForms::bind_constant(std::uint32_t slot, std::int64_t value) { bind_form(slot, {{}, value}); }

void AffineForms::bind_form(std::uint32_t slot, AffineForm form) {
  bind(slot, {});
  Binding& binding = bindings_[slot];
  binding.aliased = true;
  if (binding.alias == 0) {
    aliases_.push_back(std::move(form));
    binding.alias = static_cast<std::uint32_t>(aliases_.size());
  } else {
    aliases_[binding.alias - 1] = std::move(form);
  }
}

void AffineForms::unbind(std::uint32_t slot) {
  if (slot < bindings_.size()) bindings_[slot].bound = bindings_[slot].aliased = false;
}

std::uint32_t AffineForms::intern(Atom atom) {
  const auto [found, added] = ids_.try_emplace(atom, static_cast<std::uint32_t>(atoms_.size()));
  if (added) atoms_.push_back(std::move(atom));
  return found->second;
}

AffineForm AffineForms::slot_form(std::uint32_t slot) {
  if (bound(slot) && bindings_[slot].aliased) return aliases_[bindings_[slot].alias - 1];
  if (slot >= slot_atoms_.size()) slot_atoms_.resize(slot + 1);
  if (slot_atoms_[slot] == 0) {
    atoms_.push_back({Atom::Kind::Slot, slot, {}, 1});
    slot_atoms_[slot] = static_cast<std::uint32_t>(atoms_.size());
  }
  return {{{slot_atoms_[slot] - 1, 1}}, 0};
}

AffineForm AffineForms::form(const symbolic::Arena& arena, ExprId expr) {
  const symbolic::Expr& node = arena[expr];
  const auto size_of = [&] { return arena[node.size].factor().num(); };
  switch (node.op) {
    case symbolic::Op::Iterator:
      return slot_form(static_cast<std::uint32_t>(node.a));
    case symbolic::Op::Constant:
      return {{}, node.value};
    case symbolic::Op::SizeValue:
      return {{}, size_of()};
    case symbolic::Op::Add:
      return joined(add(form(arena, node.a), form(arena, node.b)));
    case symbolic::Op::Multiply:
      return multiply(form(arena, node.a), SmallCoefficients::multiply(node.value, size_of()));
    case symbolic::Op::Divide:
      return quotient(form(arena, node.a), size_of());
    case symbolic::Op::Modulo:
      return remainder(form(arena, node.a), size_of());
    case symbolic::Op::Inside:
      break;
  }
  fail<ScheduleError>("loop nest", "`inside` occurs in an index; write it as a guard");
}

std::optional<AffineForms::Blocks> AffineForms::whole_blocks(const AffineForm& form,
                                                             std::int64_t divisor) const {
  std::int64_t tried = divisor;
  for (std::size_t i = 0; i < form.terms.size(); ++i) {
    // The next smaller block that some term steps over.
    std::int64_t size = 1;
    for (const auto& term : form.terms) {
      const std::int64_t block = std::gcd(term.second, divisor);
      if (block < tried) size = std::max(size, block);
    }
    if (size == 1) return std::nullopt;
    tried = size;
    Blocks made{{}, {{}, floor_modulo(form.constant, size)}, size};
    made.form.constant = floor_divide(form.constant, size);
    for (const auto& term : form.terms) {
      if (term.second % size == 0)
        made.form.terms.emplace_back(term.first, term.second / size);
      else
        made.within.terms.push_back(term);
    }
    const Interval range = bounds(made.within);
    if (range.least >= 0 && range.greatest < size) return made;
  }
  return std::nullopt;
}

namespace {

/// Any function of what has two values is linear in it: `of` the values of a form as a form of its only atom,
/// (v + 1) / 2 as v for 0 <= v < 2.
template <class Function>
std::optional<AffineForm> through_two(const AffineForms& forms, const AffineForm& form, const Function& of) {
  if (form.terms.size() != 1) return std::nullopt;
  const auto [id, times] = form.terms[0];
  const Interval range = forms.bounds_without_facts({{{id, 1}}, 0});
  if (range.greatest != range.least + 1) return std::nullopt;
  const std::int64_t low = of(form.constant + times * range.least),
                     step = of(form.constant + times * range.greatest) - low;
  AffineForm made;
  if (step != 0) made.terms.emplace_back(id, step);
  made.constant = low - step * range.least;
  return made;
}

}  // namespace

AffineForm AffineForms::quotient(const AffineForm& dividend, std::int64_t divisor) {
  SYNO_ASSERT(divisor > 0, "divisors are sizes, hence positive");
  if (divisor == 1) return dividend;
  // Multiples of the divisor leave the quotient.
  AffineForm outside, rest;
  for (const auto& term : dividend.terms) {
    if (term.second % divisor == 0)
      outside.terms.emplace_back(term.first, term.second / divisor);
    else
      rest.terms.push_back(term);
  }
  outside.constant = floor_divide(dividend.constant, divisor);
  rest.constant = floor_modulo(dividend.constant, divisor);
  const Interval range = bounds(rest);
  const std::int64_t low = floor_divide(range.least, divisor), high = floor_divide(range.greatest, divisor);
  if (low == high) return with_constant(outside, low);
  if (const auto blocks = whole_blocks(rest, divisor))
    return add(outside, quotient(blocks->form, divisor / blocks->size));
  if (const auto linear = through_two(*this, rest, [&](std::int64_t v) { return floor_divide(v, divisor); }))
    return add(outside, *linear);
  Atom atom{Atom::Kind::Quotient, 0, rest, divisor};
  if (rest.terms.size() == 1 && rest.terms[0].second == 1 && rest.constant == 0) {
    const Atom& inner = atoms_[rest.terms[0].first];  // (x / a) / b is x / (a * b)
    if (inner.kind == Atom::Kind::Quotient)
      atom = Atom{Atom::Kind::Quotient, 0, inner.inner, SmallCoefficients::multiply(inner.divisor, divisor)};
  }
  AffineForm made;
  made.terms.emplace_back(intern(std::move(atom)), 1);
  return add(outside, made);
}

AffineForm AffineForms::remainder(const AffineForm& dividend, std::int64_t divisor) {
  SYNO_ASSERT(divisor > 0, "divisors are sizes, hence positive");
  if (divisor == 1) return {};
  AffineForm rest;
  for (const auto& term : dividend.terms)
    if (term.second % divisor != 0) rest.terms.push_back(term);
  rest.constant = floor_modulo(dividend.constant, divisor);
  const Interval range = bounds(rest);
  const std::int64_t low = floor_divide(range.least, divisor), high = floor_divide(range.greatest, divisor);
  if (low == high) return with_constant(rest, -low * divisor);
  if (const auto blocks = whole_blocks(rest, divisor))
    return add(multiply(remainder(blocks->form, divisor / blocks->size), blocks->size), blocks->within);
  if (const auto linear = through_two(*this, rest, [&](std::int64_t v) { return floor_modulo(v, divisor); }))
    return *linear;
  AffineForm made;
  made.terms.emplace_back(intern(Atom{Atom::Kind::Remainder, 0, rest, divisor}), 1);
  return made;
}

AffineForm AffineForms::times_slot(const AffineForm& form, std::uint32_t slot) {
  AffineForm made;
  if (form.constant != 0) made = multiply(slot_form(slot), form.constant);
  for (const auto& [id, times] : form.terms) {
    AffineForm product;
    product.terms.emplace_back(intern(Atom{Atom::Kind::Product, slot, {{{id, 1}}, 0}, 1}), times);
    made = add(made, product);
  }
  return made;
}

AffineForm AffineForms::joined(AffineForm form) {
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t r = 0; r < form.terms.size() && !changed; ++r) {
      const Atom& remainder_atom = atoms_[form.terms[r].first];
      if (remainder_atom.kind != Atom::Kind::Remainder) continue;
      const std::int64_t times = form.terms[r].second;
      for (std::size_t q = 0; q < form.terms.size(); ++q) {
        const Atom& quotient_atom = atoms_[form.terms[q].first];
        if (quotient_atom.kind != Atom::Kind::Quotient || quotient_atom.divisor != remainder_atom.divisor ||
            quotient_atom.inner != remainder_atom.inner ||
            form.terms[q].second != times * remainder_atom.divisor)
          continue;
        AffineForm without;
        without.constant = form.constant;
        for (std::size_t t = 0; t < form.terms.size(); ++t)
          if (t != r && t != q) without.terms.push_back(form.terms[t]);
        form = add(without, multiply(remainder_atom.inner, times));
        changed = true;
        break;
      }
    }
  }
  return form;
}

AffineForm AffineForms::substitute(const AffineForm& form, std::uint32_t slot, std::int64_t value) {
  AffineForm made{{}, form.constant};
  for (const auto& [id, coefficient] : form.terms) {
    AffineForm replaced;
    if (atoms_[id].kind == Atom::Kind::Slot) {
      if (atoms_[id].slot == slot)
        replaced.constant = value;
      else
        replaced.terms.emplace_back(id, 1);
    } else if (!depends_on(atoms_[id].inner, slot)) {
      replaced.terms.emplace_back(id, 1);
    } else {
      const Atom atom = atoms_[id];  // atoms_ grows meanwhile
      const AffineForm inner = substitute(atom.inner, slot, value);
      replaced = atom.kind == Atom::Kind::Quotient    ? quotient(inner, atom.divisor)
                 : atom.kind == Atom::Kind::Remainder ? remainder(inner, atom.divisor)
                                                      : times_slot(inner, atom.slot);
    }
    made = add(made, multiply(replaced, coefficient));
  }
  return joined(std::move(made));
}

bool AffineForms::depends_on(const AffineForm& form, std::uint32_t slot) const {
  return std::any_of(form.terms.begin(), form.terms.end(), [&](const auto& term) {
    const Atom& atom = atoms_[term.first];
    return atom.kind == Atom::Kind::Slot ? atom.slot == slot : depends_on(atom.inner, slot);
  });
}

bool AffineForms::share(const AffineForm& a, const AffineForm& b) const {
  return std::any_of(a.terms.begin(), a.terms.end(), [&](const auto& term) {
    const Atom& atom = atoms_[term.first];
    return atom.kind == Atom::Kind::Slot ? depends_on(b, atom.slot) : share(atom.inner, b);
  });
}

std::int64_t AffineForms::coefficient(const AffineForm& form, std::uint32_t slot, bool* linear) const {
  std::int64_t found = 0;
  *linear = true;
  for (const auto& [id, times] : form.terms) {
    const Atom& atom = atoms_[id];
    if (atom.kind == Atom::Kind::Slot) {
      if (atom.slot == slot) found = times;
    } else if (depends_on(atom.inner, slot)) {
      *linear = false;
    }
  }
  return found;
}

Interval AffineForms::sum_of_bounds(const AffineForm& form, bool use_facts) const {
  Interval total{form.constant, form.constant};
  for (const auto& [id, times] : form.terms) {
    const Atom& atom = atoms_[id];
    Interval range;
    if (atom.kind == Atom::Kind::Slot) {
      SYNO_ASSERT(bound(atom.slot), "a loop variable is used outside its loop");
      range = bindings_[atom.slot].range;
    } else if (atom.kind == Atom::Kind::Product) {
      const Interval inner = bounds(atom.inner, use_facts), factor = bindings_[atom.slot].range;
      range = {kLargest, -kLargest};
      for (const std::int64_t a : {inner.least, inner.greatest})
        for (const std::int64_t b : {factor.least, factor.greatest}) {
          range.least = std::min(range.least, saturated_multiply(a, b));
          range.greatest = std::max(range.greatest, saturated_multiply(a, b));
        }
    } else {
      const Interval inner = bounds(atom.inner, use_facts);
      range = atom.kind == Atom::Kind::Quotient ? Interval{floor_divide(inner.least, atom.divisor),
                                                           floor_divide(inner.greatest, atom.divisor)}
                                                : Interval{0, atom.divisor - 1};
    }
    // A fact about the atom alone narrows every form it occurs in.
    for (const Fact& fact : facts_) {
      if (!use_facts) break;
      if (fact.form.terms.size() != 1 || fact.form.terms[0].first != id) continue;
      const std::int64_t scale = fact.form.terms[0].second, shift = fact.form.constant;
      const std::int64_t low = fact.interval.least - shift, high = fact.interval.greatest - shift;
      const Interval clipped = scale > 0 ? Interval{-floor_divide(-low, scale), floor_divide(high, scale)}
                                         : Interval{-floor_divide(high, -scale), floor_divide(-low, -scale)};
      range = intersect(range, clipped);
    }
    const std::int64_t a = saturated_multiply(range.least, times),
                       b = saturated_multiply(range.greatest, times);
    total.least = std::max(-kLargest, total.least + std::min(a, b));
    total.greatest = std::min(kLargest, total.greatest + std::max(a, b));
  }
  return total;
}

bool AffineForms::contradictory() const {
  return std::any_of(facts_.begin(), facts_.end(), [&](const Fact& fact) {
    const Interval both = intersect(bounds(fact.form), fact.interval);
    return both.greatest < both.least;
  });
}

Interval AffineForms::bounds(const AffineForm& form) const { return bounds(form, true); }
Interval AffineForms::bounds_without_facts(const AffineForm& form) const { return bounds(form, false); }

Interval AffineForms::bounds(const AffineForm& form, bool use_facts) const {
  Interval range = sum_of_bounds(form, use_facts);
  if (!use_facts) return range;
  for (const Fact& fact : facts_) {
    std::int64_t numerator = 0, denominator = 1;
    if (!proportional(form, fact.form, numerator, denominator)) continue;
    // form - form.constant = (numerator / denominator) * (fact.form - fact.constant)
    const std::int64_t low = fact.interval.least - fact.form.constant;
    const std::int64_t high = fact.interval.greatest - fact.form.constant;
    std::int64_t a = saturated_multiply(low, numerator), b = saturated_multiply(high, numerator);
    if (a > b) std::swap(a, b);
    range = intersect(range, {-floor_divide(-a, denominator) + form.constant,
                              floor_divide(b, denominator) + form.constant});
  }
  return parameters_.empty() ? range : bounds_by_quotient(form, bounds_by_parts(form, range));
}

/// With one quotient in it, times that: x - n / 2 < 0 where 2 * x - n <= -2.
Interval AffineForms::bounds_by_quotient(const AffineForm& form, Interval range) const {
  std::size_t at = form.terms.size();
  for (std::size_t i = 0; i < form.terms.size(); ++i) {
    if (atoms_[form.terms[i].first].kind == Atom::Kind::Slot) continue;
    if (at != form.terms.size()) return range;
    at = i;
  }
  if (at == form.terms.size() || form.terms.size() == 1) return range;
  const Atom& atom = atoms_[form.terms[at].first];
  if (atom.kind != Atom::Kind::Quotient) return range;
  const std::int64_t times = form.terms[at].second, by = atom.divisor;
  AffineForm rest{{}, form.constant};
  for (std::size_t i = 0; i < form.terms.size(); ++i)
    if (i != at) rest.terms.push_back(form.terms[i]);
  // by * (inner / by) is from inner - (by - 1) to inner.
  const Interval whole = bounds(add(multiply(rest, by), multiply(atom.inner, times)), true);
  const std::int64_t least = whole.least - std::max<std::int64_t>(times, 0) * (by - 1);
  const std::int64_t greatest = whole.greatest - std::min<std::int64_t>(times, 0) * (by - 1);
  return intersect(range, {-floor_divide(-least, by), floor_divide(greatest, by)});
}

AffineForm AffineForms::settled(AffineForm form) const {
  for (const Fact& fact : facts_) {
    if (fact.interval.least != fact.interval.greatest || fact.form.terms.size() < 2) continue;
    std::int64_t ratio = 0;
    const bool fits = std::all_of(fact.form.terms.begin(), fact.form.terms.end(), [&](const auto& term) {
      const auto found = std::find_if(form.terms.begin(), form.terms.end(),
                                      [&](const auto& own) { return own.first == term.first; });
      if (found == form.terms.end() || found->second % term.second != 0) return false;
      if (ratio == 0) ratio = found->second / term.second;
      return ratio * term.second == found->second;
    });
    if (!fits) continue;
    form = add(form, multiply(fact.form, -ratio));
    form = with_constant(form, ratio * fact.interval.least);
  }
  return form;
}

/// A fact about some terms of a form, and the bounds of the others: 16 * i + v - n < 0 where
/// 16 * i - n <= -16 and v < 16; 16 * i + v < 100 where 16 * i + v - n < 0 and n <= 100.
Interval AffineForms::bounds_by_parts(const AffineForm& form, Interval range) const {
  for (const Fact& fact : facts_) {
    if (fact.form.terms.size() < 2) continue;
    std::int64_t ratio = 0;
    bool fits = true, whole = true;
    for (const auto& [id, times] : fact.form.terms) {
      const auto found = std::find_if(form.terms.begin(), form.terms.end(),
                                      [atom = id](const auto& term) { return term.first == atom; });
      if (found == form.terms.end()) {
        const Atom& missing = atoms_[id];
        whole = false;
        fits = fits && missing.kind == Atom::Kind::Slot &&
               std::find(parameters_.begin(), parameters_.end(), missing.slot) != parameters_.end();
        continue;
      }
      if (ratio == 0 && found->second % times == 0) ratio = found->second / times;
      fits = fits && ratio != 0 && ratio * times == found->second;
    }
    if (!fits || ratio == 0 || (whole && fact.form.terms.size() == form.terms.size())) continue;
    const AffineForm rest = add(form, multiply(fact.form, -ratio));
    const Interval others = whole ? bounds(rest, true) : sum_of_bounds(rest, true);
    std::int64_t low = saturated_multiply(fact.interval.least, ratio),
                 high = saturated_multiply(fact.interval.greatest, ratio);
    if (low > high) std::swap(low, high);
    range = intersect(range,
                      {std::max(-kLargest, low + others.least), std::min(kLargest, high + others.greatest)});
  }
  return range;
}

}  // namespace syno::nest
