#include "derive/places.hpp"

#include <algorithm>

#include "support/checked.hpp"

namespace syno::derive::packed {

namespace {

void add_term(Places::Terms& terms, std::uint32_t atom, std::int64_t coefficient) {
  const auto at = std::lower_bound(terms.begin(), terms.end(), atom,
                                   [](const auto& term, std::uint32_t id) { return term.first < id; });
  if (at == terms.end() || at->first != atom) {
    if (coefficient != 0) terms.insert(at, {atom, coefficient});
    return;
  }
  at->second += coefficient;
  if (at->second == 0) terms.erase(at);
}

}  // namespace

std::pair<PlaceId*, bool> Places::Known::find_or_add(const Key& key) {
  const auto hash_of = [](const Key& k) {
    const std::uint64_t ids = static_cast<std::uint64_t>(k.a) << 32 | k.b;
    return mixed(mixed(ids, static_cast<std::uint64_t>(k.factor)),
                 static_cast<std::uint64_t>(k.constant) * 4 + static_cast<std::uint64_t>(k.op));
  };
  const auto [at, added] = table_.find_or_add(
      hash_of(key), keys_.size(), [&](std::uint32_t id) { return keys_[id] == key; },
      [&](std::uint32_t id) { return hash_of(keys_[id]); });
  if (added) {
    keys_.push_back(key);
    results_.push_back(0);
  }
  return {&results_[at], added};
}

template <class Make>
PlaceId Places::known(const Known::Key& key, const Make& make) {
  const auto [result, added] = known_.find_or_add(key);
  if (!added) return *result;
  const PlaceId made = make();  // which may ask for others, so that results move
  return *known_.find_or_add(key).first = made;
}

PlaceId Places::variable(std::uint32_t number, std::int64_t extent) {
  if (extent == 1) return constant(0);
  return interned({{atom_of({Kind::Variable, number, extent}), 1}}, 0);
}

std::uint32_t Places::atom_of(const Atom& atom) {
  const auto [at, added] = atom_ids_.try_emplace(atom, static_cast<std::uint32_t>(atoms_.size()));
  if (!added) return at->second;
  atoms_.push_back(atom);
  const bool named = atom.kind == Kind::Variable && atom.of < kSums;
  const std::uint64_t of =
      named ? atom.of : places_[atom.kind == Kind::Variable ? atom.of - kSums : atom.of].hash;
  hashes_.push_back(
      mixed(mixed(static_cast<std::uint64_t>(atom.kind) + 2, of), static_cast<std::uint64_t>(atom.number)));
  return at->second;
}

Places::Interval Places::interval_of(const Terms& terms, std::int64_t constant) const {
  Interval all{constant, constant};
  for (const auto& [id, coefficient] : terms) {
    const Atom& atom = atoms_[id];
    Interval own{0, atom.number - 1};
    if (atom.kind != Kind::Variable) {
      const Interval& of = places_[atom.of].interval;
      if (atom.kind == Kind::Divide)
        own = {floor_divide(of.least, atom.number), floor_divide(of.greatest, atom.number)};
      else if (of.least >= 0 && of.greatest < atom.number)
        own = of;
    }
    all.least += coefficient * (coefficient > 0 ? own.least : own.greatest);
    all.greatest += coefficient * (coefficient > 0 ? own.greatest : own.least);
  }
  return all;
}

PlaceId Places::interned(Terms terms, std::int64_t constant) {
  const Interval interval = interval_of(terms, constant);
  std::uint64_t hash = mixed(1, static_cast<std::uint64_t>(constant));
  for (const auto& [id, coefficient] : terms)  // in an order that says nothing
    hash += mixed(hashes_[id], static_cast<std::uint64_t>(coefficient));
  const auto [at, added] = ids_.find_or_add(
      hash, places_.size(),
      [&](std::uint32_t id) { return places_[id].constant == constant && places_[id].terms == terms; },
      [&](std::uint32_t id) { return places_[id].hash; });
  if (added) places_.push_back({std::move(terms), constant, interval, hash});
  return at;
}

// k * (e / k) + e % k is e.
PlaceId Places::made(Terms terms, std::int64_t constant) {
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const Atom atom = atoms_[terms[i].first];
    if (atom.kind != Kind::Modulo) continue;
    const std::int64_t times = terms[i].second;
    const auto quotient = atom_ids_.find({Kind::Divide, atom.of, atom.number});
    if (quotient == atom_ids_.end()) continue;
    const auto other = std::find_if(terms.begin(), terms.end(), [&](const auto& term) {
      return term.first == quotient->second && term.second == times * atom.number;
    });
    if (other == terms.end()) continue;
    const std::uint32_t first = terms[i].first, second = other->first;
    std::erase_if(terms, [&](const auto& term) { return term.first == first || term.first == second; });
    const Place& whole = places_[atom.of];
    for (const auto& [id, coefficient] : whole.terms) add_term(terms, id, times * coefficient);
    return made(std::move(terms), constant + times * whole.constant);
  }
  return interned(std::move(terms), constant);
}

PlaceId Places::sum(PlaceId a, std::int64_t factor, PlaceId b, std::int64_t constant) {
  return known({factor, constant, a, b, Op::Sum}, [&] { return sum_of(a, factor, b, constant); });
}

PlaceId Places::sum_of(PlaceId a, std::int64_t factor, PlaceId b, std::int64_t constant) {
  Terms terms = places_[a].terms;
  if (factor != 0)
    for (const auto& [id, coefficient] : places_[b].terms) add_term(terms, id, factor * coefficient);
  return made(std::move(terms), places_[a].constant + factor * places_[b].constant + constant);
}

PlaceId Places::divide(PlaceId a, std::int64_t by) {
  return known({by, 0, a, 0, Op::Divide}, [&] { return divided(a, by, false); });
}

PlaceId Places::modulo(PlaceId a, std::int64_t by) {
  return known({by, 0, a, 0, Op::Modulo}, [&] { return divided(a, by, true); });
}

// Multiples of the divisor leave: (k * e + f) / k is e + f / k, and its remainder that of f.
PlaceId Places::divided(PlaceId a, std::int64_t by, bool remainder) {
  Terms whole, rest;
  for (const auto& [id, coefficient] : places_[a].terms)
    if (coefficient % by == 0)
      whole.emplace_back(id, coefficient / by);
    else
      rest.emplace_back(id, coefficient);
  const std::int64_t quotient = floor_divide(places_[a].constant, by);
  const PlaceId left = made(std::move(rest), places_[a].constant - quotient * by);
  const Interval interval = places_[left].interval;
  const bool small = floor_divide(interval.least, by) == floor_divide(interval.greatest, by);
  const std::int64_t moved = floor_divide(interval.least, by);
  if (remainder) {
    if (small) return plus(left, -moved * by);
    return interned({{atom_of({Kind::Modulo, left, by}), 1}}, 0);
  }
  if (small) return made(std::move(whole), quotient + moved);
  add_term(whole, atom_of({Kind::Divide, left, by}), 1);
  return made(std::move(whole), quotient);
}

}  // namespace syno::derive::packed
