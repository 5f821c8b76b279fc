// One form for states that differ in numbering alone, and its bytes.
#include <algorithm>
#include <cstring>

#include "derive/packed.hpp"

namespace syno::derive::packed {

namespace {

bool before(const Term& a, const Term& b) {
  if (a.iterator != b.iterator) return a.iterator < b.iterator;
  if (a.over != b.over) return a.over < b.over;
  if (a.modulo != b.modulo) return a.modulo < b.modulo;
  return a.coefficient < b.coefficient;
}

/// Simplifies the terms of one index, `count` of them; sorted afterwards. `exact`: the iterator is inside of
/// its range wherever anyone looks, so that digits above the range are 0.
int simplified(Term* terms, int count, const State& state, const bool* exact) {
  int kept = 0;
  for (int t = 0; t < count; ++t) {
    Term term = terms[t];
    if (exact[term.iterator]) {
      const std::int64_t extent = state.extent[static_cast<std::size_t>(term.iterator)];
      if (term.over >= extent) continue;
      if (term.modulo != 0 && static_cast<std::int64_t>(term.over) * term.modulo >= extent) term.modulo = 0;
    }
    if (term.modulo == 1 || term.coefficient == 0) continue;
    terms[kept++] = term;
  }
  if (kept < 2) return kept;
  std::sort(terms, terms + kept, before);
  bool again = true;
  while (again) {
    again = false;
    for (int i = 0; i + 1 < kept && !again; ++i)
      for (int j = i + 1; j < kept && terms[j].iterator == terms[i].iterator; ++j) {
        Term &low = terms[i], &high = terms[j];
        if (low.over == high.over && low.modulo == high.modulo) {
          low.coefficient += high.coefficient;
        } else if (low.modulo != 0 && high.over == static_cast<std::int64_t>(low.over) * low.modulo &&
                   high.coefficient == static_cast<std::int64_t>(low.coefficient) * low.modulo) {
          low.modulo = high.modulo == 0 ? 0 : low.modulo * high.modulo;
          const std::int64_t extent = state.extent[static_cast<std::size_t>(low.iterator)];
          if (exact[low.iterator] && static_cast<std::int64_t>(low.over) * low.modulo >= extent)
            low.modulo = 0;
        } else {
          continue;
        }
        std::copy(terms + j + 1, terms + kept, terms + j);
        --kept;
        if (low.coefficient == 0) {
          std::copy(terms + i + 1, terms + kept, terms + i);
          --kept;
        }
        again = true;
        break;
      }
    if (again) std::sort(terms, terms + kept, before);
  }
  return kept;
}

}  // namespace

void canonicalise(State& state, const Places& places) {
  bool exact[kIterators];
  std::uint64_t colour[kIterators];
  const int all = state.iterators;
  for (int i = 0; i < all; ++i) {
    const auto at = static_cast<std::size_t>(i);
    exact[i] = state.sum(i) || places.inside(state.place[at], state.extent[at]);
    colour[i] = mixed(places[state.place[at]].hash, static_cast<std::uint64_t>(state.extent[at]));
  }
  Term fresh[kTerms];
  int terms = 0;
  for (int d = 0; d < state.dims; ++d) {
    Dim& dim = state.dim[static_cast<std::size_t>(d)];
    std::copy_n(state.term.data() + dim.first, dim.count, fresh + terms);
    const int count = simplified(fresh + terms, dim.count, state, exact);
    dim.first = static_cast<std::int16_t>(terms);
    dim.count = static_cast<std::int16_t>(count);
    terms += count;
  }
  state.terms = terms;
  int order[kIterators], number[kIterators];
  int kept = 0, traversals = 0;
  for (int i = 0; i < all; ++i) {
    number[i] = -1;
    const bool one = state.extent[static_cast<std::size_t>(i)] == 1 && exact[i];
    if (!one) order[kept++] = i;
    if (!one && !state.sum(i)) ++traversals;
  }
  const auto by_colour = [&](int a, int b) { return colour[a] != colour[b] ? colour[a] < colour[b] : a < b; };
  std::sort(order, order + traversals, by_colour);
  std::sort(order + traversals, order + kept, by_colour);
  const auto extent = state.extent;
  const auto place = state.place;
  for (int i = 0; i < kept; ++i) {
    const auto to = static_cast<std::size_t>(i), from = static_cast<std::size_t>(order[i]);
    number[order[i]] = i;
    state.extent[to] = extent[from];
    state.place[to] = place[from];
  }
  state.traversals = traversals;
  state.iterators = kept;
  for (int t = 0; t < terms; ++t) {
    state.term[static_cast<std::size_t>(t)] = fresh[t];
    state.term[static_cast<std::size_t>(t)].iterator = number[fresh[t].iterator];
  }
  for (int d = 0; d < state.dims; ++d) {
    const Dim& dim = state.dim[static_cast<std::size_t>(d)];
    std::sort(state.term.begin() + dim.first, state.term.begin() + dim.first + dim.count, before);
  }
  const auto sort = [&](auto& of, auto& extent_of, int count) {
    const auto key = [&](int i) {
      return std::pair(places[of[static_cast<std::size_t>(i)]].hash, extent_of[static_cast<std::size_t>(i)]);
    };
    for (int g = 1; g < count; ++g)
      for (int h = g; h > 0 && key(h) < key(h - 1); --h) {
        std::swap(of[static_cast<std::size_t>(h)], of[static_cast<std::size_t>(h - 1)]);
        std::swap(extent_of[static_cast<std::size_t>(h)], extent_of[static_cast<std::size_t>(h - 1)]);
      }
  };
  sort(state.outer_place, state.outer_extent, state.outer);
  // Guards are a set; those that always hold say nothing.
  int guards = 0;
  for (int g = 0; g < state.guards; ++g) {
    const auto at = static_cast<std::size_t>(g);
    if (places.inside(state.guard[at], state.guard_extent[at])) continue;
    state.guard[static_cast<std::size_t>(guards)] = state.guard[at];
    state.guard_extent[static_cast<std::size_t>(guards++)] = state.guard_extent[at];
  }
  state.guards = guards;
  sort(state.guard, state.guard_extent, guards);
}

namespace {

/// Small numbers, also negative ones, in few bytes.
void put(std::vector<std::uint8_t>& bytes, std::int64_t value) {
  auto left = (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
  for (; left >= 128; left >>= 7) bytes.push_back(static_cast<std::uint8_t>(left | 128));
  bytes.push_back(static_cast<std::uint8_t>(left));
}

std::int32_t get(const std::uint8_t*& at) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const std::uint64_t byte = *at++;
    value |= (byte & 127) << shift;
    if (byte < 128) break;
  }
  return static_cast<std::int32_t>(static_cast<std::int64_t>(value >> 1) ^
                                   -static_cast<std::int64_t>(value & 1));
}

}  // namespace

void write(const State& state, std::vector<std::uint8_t>& bytes) {
  bytes.clear();
  for (const int count : {state.traversals, state.iterators, state.dims, state.outer, state.guards})
    put(bytes, count);
  for (int i = 0; i < state.iterators; ++i) {
    put(bytes, state.extent[static_cast<std::size_t>(i)]);
    put(bytes, state.place[static_cast<std::size_t>(i)]);
  }
  for (int o = 0; o < state.outer; ++o) {
    put(bytes, state.outer_place[static_cast<std::size_t>(o)]);
    put(bytes, state.outer_extent[static_cast<std::size_t>(o)]);
  }
  for (int g = 0; g < state.guards; ++g) {
    put(bytes, state.guard[static_cast<std::size_t>(g)]);
    put(bytes, state.guard_extent[static_cast<std::size_t>(g)]);
  }
  for (int d = 0; d < state.dims; ++d) {
    const Dim& dim = state.dim[static_cast<std::size_t>(d)];
    for (const std::int32_t value :
         {dim.extent, dim.constant, dim.radix, static_cast<std::int32_t>(dim.operand),
          static_cast<std::int32_t>(dim.source), static_cast<std::int32_t>(dim.count)})
      put(bytes, value);
    for (int t = dim.first; t < dim.first + dim.count; ++t) {
      const Term& term = state.term[static_cast<std::size_t>(t)];
      const bool plain = term.over == 1 && term.modulo == 0;
      put(bytes, 2 * term.iterator + (plain ? 0 : 1));
      put(bytes, term.coefficient);
      if (plain) continue;
      put(bytes, term.over);
      put(bytes, term.modulo);
    }
  }
}

State read(const std::uint8_t* at) {
  State state;
  state.traversals = get(at);
  state.iterators = get(at);
  state.dims = get(at);
  state.outer = get(at);
  state.guards = get(at);
  for (int i = 0; i < state.iterators; ++i) {
    state.extent[static_cast<std::size_t>(i)] = get(at);
    state.place[static_cast<std::size_t>(i)] = static_cast<std::uint32_t>(get(at));
  }
  for (int o = 0; o < state.outer; ++o) {
    state.outer_place[static_cast<std::size_t>(o)] = static_cast<std::uint32_t>(get(at));
    state.outer_extent[static_cast<std::size_t>(o)] = get(at);
  }
  for (int g = 0; g < state.guards; ++g) {
    state.guard[static_cast<std::size_t>(g)] = static_cast<std::uint32_t>(get(at));
    state.guard_extent[static_cast<std::size_t>(g)] = get(at);
  }
  for (int d = 0; d < state.dims; ++d) {
    Dim& dim = state.dim[static_cast<std::size_t>(d)];
    dim.extent = get(at);
    dim.constant = get(at);
    dim.radix = get(at);
    dim.operand = static_cast<std::int16_t>(get(at));
    dim.source = static_cast<std::int16_t>(get(at));
    dim.count = static_cast<std::int16_t>(get(at));
    dim.first = static_cast<std::int16_t>(state.terms);
    for (int t = 0; t < dim.count; ++t) {
      Term& term = state.term[static_cast<std::size_t>(state.terms++)];
      const std::int32_t iterator = get(at);
      term.iterator = iterator / 2;
      term.coefficient = get(at);
      if (iterator % 2 == 0) continue;
      term.over = get(at);
      term.modulo = get(at);
    }
  }
  return state;
}

}  // namespace syno::derive::packed
