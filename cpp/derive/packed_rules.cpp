// EINNET's rules over packed states. Each says why what it makes computes the same, borders included.
#include <algorithm>
#include <bit>

#include "derive/packed.hpp"
#include "support/checked.hpp"

namespace syno::derive::packed {

namespace {

struct Interval {
  std::int64_t least = 0, greatest = 0;
};

/// What a term is within the ranges of a state.
Interval interval_of(const State& state, const Term& term) {
  std::int64_t most = (state.extent[at(term.iterator)] - 1) / term.over;
  if (term.modulo != 0) most = std::min<std::int64_t>(most, term.modulo - 1);
  const std::int64_t end = term.coefficient * most;
  return {std::min<std::int64_t>(end, 0), std::max<std::int64_t>(end, 0)};
}

const Term* begin(const State& state, const Dim& dim) { return state.term.data() + dim.first; }
const Term* end(const State& state, const Dim& dim) { return state.term.data() + dim.first + dim.count; }

bool linear(const Term& term) { return term.over == 1 && term.modulo == 0; }

/// The coefficient of an iterator that stands in an index by itself, once; 0 otherwise.
std::int64_t coefficient_in(const State& state, const Dim& dim, int iterator) {
  std::int64_t found = 0;
  for (const Term* t = begin(state, dim); t != end(state, dim); ++t) {
    if (t->iterator != iterator) continue;
    if (!linear(*t) || found != 0) return 0;
    found = t->coefficient;
  }
  return found;
}

bool linear_everywhere(const State& state, int iterator) {
  return std::all_of(state.term.begin(), state.term.begin() + state.terms,
                     [&](const Term& t) { return t.iterator != iterator || linear(t); });
}

/// Writes the terms of a state anew: `change(term, dim, add)` calls add() for what takes a term's place.
template <class Change>
bool rewritten(State& state, const Change& change) {
  std::array<Term, kTerms> fresh;
  int count = 0;
  bool fits = true;
  for (int d = 0; d < state.dims; ++d) {
    Dim& dim = state.dim[at(d)];
    const int first = count;
    const auto add = [&](std::int64_t coefficient, std::int64_t over, std::int64_t modulo, int iterator) {
      if (count == kTerms || std::abs(coefficient) >= kGreatest || over >= kGreatest) {
        fits = false;
        return;
      }
      fresh[at(count++)] = {static_cast<std::int32_t>(coefficient), static_cast<std::int32_t>(over),
                            static_cast<std::int32_t>(modulo), iterator};
    };
    for (int t = dim.first; t < dim.first + dim.count; ++t)
      if (!change(state.term[at(t)], dim, add)) return false;
    dim.first = static_cast<std::int16_t>(first);
    dim.count = static_cast<std::int16_t>(count - first);
  }
  std::copy_n(fresh.begin(), count, state.term.begin());
  state.terms = count;
  return fits;
}

/// Iterators in another order: old number -> new one.
void renumber(State& state, const std::array<int, kIterators>& to) {
  const auto extent = state.extent;
  const auto place = state.place;
  for (int i = 0; i < state.iterators; ++i) {
    state.extent[at(to[at(i)])] = extent[at(i)];
    state.place[at(to[at(i)])] = place[at(i)];
  }
  for (int t = 0; t < state.terms; ++t) state.term[at(t)].iterator = to[at(state.term[at(t)].iterator)];
}

// y = sum[s, r] f is y = sum[s] t[s], t[s] = sum[r] f: a traversal of t for each sum that y keeps.
bool split_sum(Space& space, State& state, std::uint32_t outside) {
  const int moved = std::popcount(outside), sums = state.iterators - state.traversals;
  if (moved == 0 || moved >= sums || (outside >> sums) != 0 || state.outer + moved > kOuter) return false;
  std::array<int, kIterators> to{};
  int first = state.traversals, last = state.traversals + moved;
  for (int i = 0; i < state.iterators; ++i) {
    const bool goes = state.sum(i) && ((outside >> (i - state.traversals)) & 1) != 0;
    to[at(i)] = !state.sum(i) ? i : goes ? first++ : last++;
    if (!goes) continue;
    state.outer_place[at(state.outer)] = state.place[at(i)];
    state.outer_extent[at(state.outer++)] = state.extent[at(i)];
    state.place[at(i)] = space.places.sum_variable(state.place[at(i)], state.extent[at(i)]);
  }
  renumber(state, to);
  state.traversals += moved;
  return true;
}

// t[i, k] = f(i, k) is t'[j, k] = f(j - s*k, k), read at j = i + s*k, over all j there are: where f is read
// outside of t's ranges it is 0 by its formula, and the formula stays.
bool substitute(Space& space, State& state, int a, int b, std::int64_t s) {
  if (a == b || a >= state.traversals || b >= state.traversals || s == 0 || std::abs(s) > 4096) return false;
  if (!linear_everywhere(state, a)) return false;
  const std::int64_t reach = std::abs(s) * (state.extent[at(b)] - 1);
  const std::int64_t least = s < 0 ? -reach : 0;
  if (state.extent[at(a)] + reach >= kGreatest) return false;
  const bool fits = rewritten(state, [&](const Term& term, Dim& dim, const auto& add) {
    add(term.coefficient, term.over, term.modulo, term.iterator);
    if (term.iterator != a) return true;
    add(-s * term.coefficient, 1, 0, b);
    dim.constant += static_cast<std::int32_t>(term.coefficient * least);
    return true;
  });
  if (!fits) return false;
  state.extent[at(a)] += static_cast<std::int32_t>(reach);
  state.place[at(a)] = space.places.sum(state.place[at(a)], s, state.place[at(b)], -least);
  return true;
}

// t[i, k] = f(i, k) is t'[z] = f(z % n, z / n), read at i + n*k where i is in [0, n): elsewhere t was outside
// of its range, hence 0.
bool merge(Space& space, State& state, int a, int b) {
  if (a == b || a >= state.traversals || b >= state.traversals) return false;
  const std::int64_t n = state.extent[at(a)];
  if (n * state.extent[at(b)] >= kGreatest) return false;
  const bool fits = rewritten(state, [&](const Term& term, const Dim&, const auto& add) {
    if (term.iterator == b) {
      add(term.coefficient, term.over * n, term.modulo, a);
    } else if (term.iterator != a) {
      add(term.coefficient, term.over, term.modulo, term.iterator);
    } else if (term.modulo != 0) {
      if (n % (static_cast<std::int64_t>(term.over) * term.modulo) != 0) return false;
      add(term.coefficient, term.over, term.modulo, a);
    } else {
      if (n % term.over != 0) return false;
      add(term.coefficient, term.over, n / term.over, a);
    }
    return true;
  });
  if (!fits) return false;
  if (!space.places.inside(state.place[at(a)], n)) {
    if (state.guards == kGuards) return false;
    state.guard[at(state.guards)] = state.place[at(a)];
    state.guard_extent[at(state.guards++)] = static_cast<std::int32_t>(n);
  }
  state.place[at(a)] = space.places.sum(state.place[at(a)], n, state.place[at(b)]);
  state.extent[at(a)] = static_cast<std::int32_t>(n * state.extent[at(b)]);
  // b ends: its number goes to the last of the iterators, which is cut off.
  std::array<int, kIterators> to{};
  for (int i = 0; i < state.iterators; ++i) to[at(i)] = i < b ? i : i == b ? state.iterators - 1 : i - 1;
  renumber(state, to);
  --state.iterators;
  --state.traversals;
  return true;
}

// i = k*p + q with q in [0, k). A traversal may be lengthened to a multiple of k; a sum may not.
bool split_iterator(Space& space, State& state, int a, std::int64_t k) {
  if (a >= state.iterators || k < 2 || k >= state.extent[at(a)] || state.iterators == kIterators)
    return false;
  const bool sum = state.sum(a);
  if (sum && state.extent[at(a)] % k != 0) return false;
  const int q = state.iterators;
  const bool fits = rewritten(state, [&](const Term& term, const Dim&, const auto& add) {
    const std::int64_t c = term.coefficient, over = term.over, m = term.modulo;
    if (term.iterator != a) {
      add(c, over, m, term.iterator);
    } else if (over % k == 0) {
      add(c, over / k, m, a);
    } else if (k % over != 0) {
      return false;
    } else if (const std::int64_t upper = k / over; m == 0 || m % upper == 0) {
      add(c * upper, 1, m == 0 ? 0 : m / upper, a);
      add(c, over, 0, q);
    } else if (upper % m == 0) {
      add(c, over, m, q);
    } else {
      return false;
    }
    return true;
  });
  if (!fits) return false;
  state.extent[at(q)] = static_cast<std::int32_t>(k);
  state.extent[at(a)] = static_cast<std::int32_t>((state.extent[at(a)] + k - 1) / k);
  ++state.iterators;
  const PlaceId whole = state.place[at(a)];
  state.place[at(a)] = space.places.divide(whole, k);
  state.place[at(q)] = space.places.modulo(whole, k);
  if (sum) return true;
  std::array<int, kIterators> to{};
  for (int i = 0; i < q; ++i) to[at(i)] = i < state.traversals ? i : i + 1;
  to[at(q)] = state.traversals;
  renumber(state, to);
  ++state.traversals;
  return true;
}

/// Where in its range an iterator has to be for the product to be something else than 0.
Interval needed(const State& state, int iterator) {
  Interval all{0, state.extent[at(iterator)] - 1};
  for (int d = 0; d < state.dims; ++d) {
    const Dim& dim = state.dim[at(d)];
    const std::int64_t c = coefficient_in(state, dim, iterator);
    if (c == 0) continue;
    Interval rest{dim.constant, dim.constant};
    for (const Term* t = begin(state, dim); t != end(state, dim); ++t) {
      if (t->iterator == iterator) continue;
      const Interval own = interval_of(state, *t);
      rest.least += own.least;
      rest.greatest += own.greatest;
    }
    // 0 <= c * i + r < extent for an r of `rest`
    const std::int64_t low = -rest.greatest, high = dim.extent - 1 - rest.least;
    const std::int64_t first = c > 0 ? -floor_divide(-low, c) : -floor_divide(high, -c);
    const std::int64_t last = c > 0 ? floor_divide(high, c) : floor_divide(-low, -c);
    all.least = std::max(all.least, first);
    all.greatest = std::min(all.greatest, last);
  }
  return all;
}

// Where an operand is read outside the product is 0, and t, read outside of its range, is 0, too.
bool tighten(Space& space, State& state) {
  bool changed = false;
  std::array<Interval, kIterators> range;
  for (int i = 0; i < state.traversals; ++i) {
    range[at(i)] = needed(state, i);
    if (range[at(i)].least > range[at(i)].greatest) return false;  // all of it is 0
    if (range[at(i)].least > 0 && !linear_everywhere(state, i)) range[at(i)].least = 0;
    changed = changed || range[at(i)].least > 0 || range[at(i)].greatest + 1 < state.extent[at(i)];
  }
  if (!changed) return false;
  for (int d = 0; d < state.dims; ++d) {
    Dim& dim = state.dim[at(d)];
    for (const Term* t = begin(state, dim); t != end(state, dim); ++t)
      if (!state.sum(t->iterator))
        dim.constant += static_cast<std::int32_t>(t->coefficient * range[at(t->iterator)].least);
  }
  for (int i = 0; i < state.traversals; ++i) {
    const auto [least, greatest] = range[at(i)];
    state.extent[at(i)] = static_cast<std::int32_t>(greatest - least + 1);
    if (least != 0) state.place[at(i)] = space.places.plus(state.place[at(i)], -least);
  }
  return true;
}

// Terms that read an operand outside are 0: they may come to a sum.
bool relax(State& state, int sum, std::int32_t extent) {
  if (sum >= state.iterators || !state.sum(sum) || extent <= state.extent[at(sum)] || extent > 4096)
    return false;
  State longer = state;
  longer.extent[at(sum)] = extent;
  // Nothing beside the sum in the index that leaves its range: the whole of the new terms is outside.
  const auto zero = [&](const Dim& dim) {
    const std::int64_t c = coefficient_in(state, dim, sum);
    if (c == 0) return false;
    Interval all{dim.constant, dim.constant};
    for (const Term* t = begin(state, dim); t != end(state, dim); ++t) {
      if (t->iterator == sum) continue;
      // A traversal's formula holds beyond its range, too, so no traversal may stand there.
      if (!state.sum(t->iterator)) return false;
      const Interval own = interval_of(state, *t);
      all.least += own.least;
      all.greatest += own.greatest;
    }
    const std::int64_t one = c * state.extent[at(sum)], other = c * (extent - 1);
    return all.least + std::min(one, other) >= dim.extent || all.greatest + std::max(one, other) < 0;
  };
  if (!std::any_of(state.dim.begin(), state.dim.begin() + state.dims, zero)) return false;
  state = longer;
  return true;
}

// T[k*q + r] with r in [0, k) is T'[q, r].
bool relayout(State& state, int d, std::int32_t k) {
  if (d >= state.dims || state.dims == kDims || k < 2) return false;
  const Dim whole = state.dim[at(d)];
  if (whole.extent <= k) return false;
  const bool first =
      d == 0 || state.dim[at(d - 1)].operand != whole.operand || state.dim[at(d - 1)].source != whole.source;
  if (whole.extent % k != 0 && !first) return false;
  if (static_cast<std::int64_t>(whole.radix) * k >= kGreatest) return false;
  std::array<Term, kTerms> quotient, rest;
  int quotients = 0, rests = 0;
  Interval reach;
  for (const Term* t = begin(state, whole); t != end(state, whole); ++t) {
    if (t->coefficient % k == 0) {
      quotient[at(quotients)] = *t;
      quotient[at(quotients++)].coefficient /= k;
      continue;
    }
    const Interval own = interval_of(state, *t);
    reach.least += own.least;
    reach.greatest += own.greatest;
    rest[at(rests++)] = *t;
  }
  if (quotients == 0 || rests == 0) return false;
  std::int64_t constant = whole.constant - k * floor_divide(whole.constant, k);
  if (constant + reach.least < 0) constant += k;
  if (constant + reach.least < 0 || constant + reach.greatest >= k) return false;
  for (int e = state.dims; e > d + 1; --e) state.dim[at(e)] = state.dim[at(e - 1)];
  ++state.dims;
  Dim &high = state.dim[at(d)], &low = state.dim[at(d + 1)];
  low = high;
  high.extent = (whole.extent + k - 1) / k;
  high.radix = whole.radix * k;
  high.constant = static_cast<std::int32_t>((whole.constant - constant) / k);
  high.count = static_cast<std::int16_t>(quotients);
  low.extent = k;
  low.constant = static_cast<std::int32_t>(constant);
  low.first = static_cast<std::int16_t>(high.first + quotients);
  low.count = static_cast<std::int16_t>(rests);
  std::copy_n(quotient.begin(), quotients, state.term.begin() + high.first);
  std::copy_n(rest.begin(), rests, state.term.begin() + low.first);
  return true;
}

template <class Numbers>
void each_factor(const Numbers& numbers, const std::vector<std::int64_t>& strides, auto&& visit) {
  for (const std::int32_t number : numbers) visit(number, false);
  for (const std::int64_t stride : strides)
    if (std::find(numbers.begin(), numbers.end(), stride) == numbers.end())
      visit(static_cast<std::int32_t>(stride), true);
}

}  // namespace

bool apply(Space& space, State& state, const Move& move) {
  const auto made = [&] {
    switch (move.rule) {
      case Rule::SumSplit:
        return split_sum(space, state, static_cast<std::uint32_t>(move.number));
      case Rule::Substitute:
        return substitute(space, state, move.a, move.b, move.number);
      case Rule::Merge:
        return merge(space, state, move.a, move.b);
      case Rule::SplitIterator:
        return split_iterator(space, state, move.a, move.number);
      case Rule::Tighten:
        return tighten(space, state);
      case Rule::Relax:
        return relax(state, move.a, move.number);
      case Rule::Relayout:
        return relayout(state, move.a, move.number);
    }
    return false;
  };
  if (!made()) return false;
  canonicalise(state, space.places);
  return true;
}

void moves(const Space& space, const State& state, const Amounts& amounts, std::vector<Move>& found) {
  found.clear();
  const auto add = [&](Rule rule, int a, int b, std::int64_t number) {
    const Move move{rule, static_cast<std::uint8_t>(a), static_cast<std::uint8_t>(b),
                    static_cast<std::int32_t>(number)};
    if (std::find(found.begin(), found.end(), move) == found.end()) found.push_back(move);
  };
  const int sums = state.iterators - state.traversals;
  if (state.outer == 0 && amounts.sum_splits > 0 && sums < 16)
    for (std::uint32_t outside = 1; outside + 1 < (1U << sums); ++outside) add(Rule::SumSplit, 0, 0, outside);
  for (int d = 0; d < state.dims; ++d) {
    const Dim& dim = state.dim[at(d)];
    for (const Term* s = begin(state, dim); s != end(state, dim); ++s)
      for (const Term* t = begin(state, dim); t != end(state, dim); ++t) {
        if (s->iterator == t->iterator || state.sum(s->iterator) || state.sum(t->iterator)) continue;
        if (!linear(*s) || !linear(*t)) continue;
        if (t->coefficient % s->coefficient != 0) continue;
        const std::int64_t times = t->coefficient / s->coefficient;
        add(Rule::Substitute, s->iterator, t->iterator, times);
        if (times == state.extent[at(s->iterator)]) add(Rule::Merge, s->iterator, t->iterator, 0);
      }
  }
  if (state.iterators + state.outer < space.given.iterators + amounts.more_iterators)
    for (int i = 0; i < state.iterators; ++i) {
      const std::int32_t extent = state.extent[at(i)];
      if (state.sum(i)) {
        if (extent > amounts.short_sum) continue;
        for (const std::int32_t k : amounts.sum_factors)
          if (k < extent && extent % k == 0) add(Rule::SplitIterator, i, 0, k);
        continue;
      }
      each_factor(amounts.traversal_factors, space.strides, [&](std::int32_t k, bool stride) {
        if (k < extent && (stride || extent % k == 0)) add(Rule::SplitIterator, i, 0, k);
      });
    }
  add(Rule::Tighten, 0, 0, 0);
  for (int i = state.traversals; i < state.iterators; ++i) {
    const std::int32_t extent = state.extent[at(i)], taps = amounts.taps;
    if (extent > taps && extent <= amounts.short_sum && extent % taps != 0)
      add(Rule::Relax, i, 0, (extent + taps - 1) / taps * taps);
  }
  for (int d = 0; d < state.dims; ++d)
    each_factor(amounts.relayout_factors, space.strides, [&](std::int32_t k, bool stride) {
      if (stride || state.dim[at(d)].extent % k == 0) add(Rule::Relayout, d, 0, k);
    });
}

}  // namespace syno::derive::packed
