#include "machine/block_access.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "machine/tile_cost.hpp"

namespace syno::machine {

using namespace syno::nest;

namespace {

/// Vectors of few lanes are put together by insertions, which take this part of a gather.
constexpr std::int64_t kFewLanes = 4;
constexpr double kInserted = 0.4;
/// Computing anew where each lane's element lies takes as long as gathering so many more: places by quotients
/// and remainders, which a loop of many sums moves. Convolutions over blocks of 16 on a Zen 5 (AVX-512).
constexpr double kPlaces = 12;
/// Reads that step by no more than this are shuffled out of whole vectors.
constexpr std::int64_t kShuffled = 4;

/// What is held from one use of a vector to the next one, by parts from the outermost on: all that is read
/// inside the innermost of them that comes back to the same places.
double held(const std::vector<Part>& parts) {
  for (std::size_t first = parts.size(); first-- > 0;) {
    const std::vector<Part> inside(parts.begin() + static_cast<std::ptrdiff_t>(first), parts.end());
    double all = 1;
    for (const Part& part : inside) all *= part.count;
    if (distinct(inside) < all) return distinct({inside.begin() + 1, inside.end()});
  }
  return 0;
}
/// Whether code has the iterations of the loop around a block behind one another, so that each knows which
/// it is: few, of few sums.
bool written_whole(std::uint32_t slot, const Place& place) {
  if (place.path.empty() || place.path.back() != slot || place.target == nullptr) return false;
  double sums = 1;
  for (const Repeat& repeat : place.repeats)
    if (place.target->moves(repeat.slot)) sums *= place.vectors(repeat);
  return sums <= kFewSums && sums * place.trips[slot] <= kShortLoop;
}
/// How far each lane's element is from the first one's, by the values of what else moves what is no plain
/// multiple of the lane: positions of several rows in one vector, one row again and again, a block and the
/// next one. Nothing where that has too many values.
std::vector<std::vector<std::int64_t>> offsets(const Address& at, const Repeat& lane, const Place& place) {
  constexpr std::int64_t kMostTrips = 8, kMostValues = 32;
  std::vector<std::pair<std::uint32_t, std::int64_t>> others;  // and their iterations
  std::int64_t values = 1;
  for (std::size_t t = 0; t < at.terms.size(); ++t) {
    const auto& slots = at.slots[t];
    if (std::find(slots.begin(), slots.end(), lane.slot) == slots.end()) continue;
    for (const std::uint32_t slot : slots) {
      const auto known = [&](const auto& other) { return other.first == slot; };
      if (slot == lane.slot || std::find_if(others.begin(), others.end(), known) != others.end()) continue;
      const Repeat* repeat = place.repeat(slot);
      if (repeat == nullptr && !written_whole(slot, place)) return {};
      const auto trips =
          repeat != nullptr ? repeat->trips : static_cast<std::int64_t>(std::ceil(place.trips[slot]));
      values *= std::max<std::int64_t>(1, trips);
      if (trips > kMostTrips || values > kMostValues) return {};
      others.emplace_back(slot, std::max<std::int64_t>(1, trips));
    }
  }
  std::vector<std::vector<std::int64_t>> found;
  for (std::int64_t value = 0; value < values; ++value) {
    std::vector<std::int64_t> made(static_cast<std::size_t>(lane.trips), 0);
    for (std::size_t t = 0; t < at.terms.size(); ++t) {
      const auto& slots = at.slots[t];
      if (std::find(slots.begin(), slots.end(), lane.slot) == slots.end()) continue;
      AffineForm fixed;
      fixed.terms.emplace_back(at.atoms[t], at.terms[t].coefficient);
      std::int64_t rest = value;
      for (const auto& [slot, trips] : others) {
        fixed = place.forms.substitute(fixed, slot, rest % trips);
        rest /= trips;
      }
      for (std::size_t l = 0; l < made.size(); ++l)
        made[l] += place.forms.substitute(fixed, lane.slot, static_cast<std::int64_t>(l)).constant;
    }
    for (std::size_t l = made.size(); l-- > 0;) made[l] -= made[0];
    found.push_back(std::move(made));
  }
  return found;
}
/// Whole vectors that hold the elements at these offsets; 0 where there are nearly as many as elements.
double covers(std::vector<std::int64_t> wanted, std::int64_t lanes) {
  std::sort(wanted.begin(), wanted.end());
  double vectors = 0;
  for (std::size_t i = 0; i < wanted.size(); ++vectors)
    for (const std::int64_t first = wanted[i]; i < wanted.size() && wanted[i] - first < lanes;) ++i;
  return vectors <= std::max(2.0, static_cast<double>(lanes) / 2) ? vectors : 0;
}
bool consecutive(const std::vector<std::int64_t>& offsets) {
  for (std::size_t l = 0; l < offsets.size(); ++l)
    if (offsets[l] != static_cast<std::int64_t>(l)) return false;
  return true;
}

/// Whether vectors begin at multiples of their size: what does not, crosses lines of the cache.
bool aligned(const Address& at, const Place& place) {
  const std::int64_t vector = place.lanes;
  if (at.constant % vector != 0) return false;
  for (std::size_t t = 0; t < at.terms.size(); ++t) {
    const bool lane = std::any_of(place.repeats.begin(), place.repeats.end(), [&](const Repeat& repeat) {
      return repeat.vector &&
             std::find(at.slots[t].begin(), at.slots[t].end(), repeat.slot) != at.slots[t].end();
    });
    if (!lane && at.terms[t].coefficient % vector != 0) return false;
  }
  return true;
}

/// What part of a whole vector lanes are: a shorter one crosses lines as seldom.
double share_of_vector(const Place& place) {
  for (const Repeat& repeat : place.repeats)
    if (repeat.vector)
      return std::min(1.0, static_cast<double>(repeat.trips) / static_cast<double>(place.lanes));
  return 1;
}

}  // namespace

bool Address::moves(std::uint32_t slot) const {
  return std::any_of(slots.begin(), slots.end(),
                     [&](const auto& of) { return std::find(of.begin(), of.end(), slot) != of.end(); });
}

const Repeat* Place::repeat(std::uint32_t slot) const {
  const auto found =
      std::find_if(repeats.begin(), repeats.end(), [&](const Repeat& r) { return r.slot == slot; });
  return found == repeats.end() ? nullptr : &*found;
}

void slots_of(const AffineForms& forms, std::uint32_t atom, std::vector<std::uint32_t>& slots) {
  const Atom& a = forms.atom(atom);
  if (a.kind == Atom::Kind::Slot) {
    if (std::find(slots.begin(), slots.end(), a.slot) == slots.end()) slots.push_back(a.slot);
    return;
  }
  for (const auto& [inner, coefficient] : a.inner.terms) slots_of(forms, inner, slots);
}

Address address_of(const LoopNest& nest, const Buffer& buffer, const std::vector<ExprId>& indices,
                   const Place& place) {
  AffineForms& forms = place.forms;
  AffineForm whole;
  for (std::size_t d = 0; d < indices.size(); ++d)
    whole = nest::add(whole, multiply(forms.form(nest.arena, indices[d]), buffer.strides[d]));
  whole = forms.joined(std::move(whole));
  Address made;
  made.constant = whole.constant;
  made.least = static_cast<double>(whole.constant);
  for (std::size_t d = 0; d < buffer.strides_of_calls; ++d)
    for (const auto& [atom, coefficient] : forms.form(nest.arena, indices[d]).terms) {
      std::vector<std::uint32_t> slots;
      slots_of(forms, atom, slots);
      made.spread =
          made.spread || std::any_of(place.repeats.begin(), place.repeats.end(), [&](const Repeat& r) {
            return r.vector && std::find(slots.begin(), slots.end(), r.slot) != slots.end();
          });
    }
  for (const auto& [atom, coefficient] : whole.terms) {
    AddressTerm term;
    std::vector<std::uint32_t> slots;
    slots_of(forms, atom, slots);
    term.coefficient = coefficient;
    for (const std::uint32_t slot : slots) {
      if (const Repeat* repeat = place.repeat(slot))
        term.repeats *= static_cast<double>(repeat->trips);
      else
        term.loops.emplace_back(slot, place.trips[slot]);
    }
    AffineForm alone;
    alone.terms.emplace_back(atom, 1);
    const Interval width = forms.bounds(alone);
    term.width = static_cast<double>(width.greatest) - static_cast<double>(width.least) + 1;
    made.least += static_cast<double>(coefficient) *
                  static_cast<double>(coefficient > 0 ? width.least : width.greatest);
    term.linear = forms.atom(atom).kind == Atom::Kind::Slot;
    made.terms.push_back(std::move(term));
    made.slots.push_back(std::move(slots));
    made.atoms.push_back(atom);
  }
  return made;
}

double distinct(std::vector<Part> parts) {
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.step < b.step; });
  double runs = 1, length = 1;
  std::int64_t step = 0;
  for (const Part& part : parts) {
    const bool joins = step > 0 && part.step % step == 0 && static_cast<double>(part.step / step) <= length;
    if (joins) {
      length += (part.count - 1) * static_cast<double>(part.step / step);
    } else {
      runs *= length;
      step = part.step;
      length = part.count;
    }
  }
  return runs * length;
}

double Moved::most() const { return std::max({vectors, scalars, elements}); }

Moved moved(const Address& at, const Place& place) {
  const Repeat* lane = nullptr;
  for (const Repeat& repeat : place.repeats)
    if (repeat.vector && at.moves(repeat.slot)) lane = &repeat;
  std::vector<Part> parts;
  double others = 1;  // of repeats in quotients and remainders, which have their values together
  std::int64_t step = 0;
  bool linear = true;
  for (const Repeat& repeat : place.repeats) {
    if (&repeat == lane) continue;
    std::int64_t coefficient = 0;
    bool joins = true;
    for (std::size_t t = 0; t < at.terms.size(); ++t) {
      if (std::find(at.slots[t].begin(), at.slots[t].end(), repeat.slot) == at.slots[t].end()) continue;
      joins = joins && at.terms[t].linear;
      coefficient = std::abs(at.terms[t].coefficient);
    }
    if (!joins)
      others *= static_cast<double>(repeat.trips);
    else if (coefficient != 0)
      parts.push_back({coefficient, static_cast<double>(repeat.trips)});
  }
  for (std::size_t t = 0; lane != nullptr && t < at.terms.size(); ++t) {
    if (std::find(at.slots[t].begin(), at.slots[t].end(), lane->slot) == at.slots[t].end()) continue;
    step += at.terms[t].coefficient;
    linear = linear && at.terms[t].linear;
  }
  const double repeats = others * distinct(parts);
  Moved made;
  if (lane == nullptr) {
    made.scalars = repeats;
  } else if (at.spread) {
    made.elements = repeats * static_cast<double>(lane->trips);
  } else if (linear && step == 1) {
    made.vectors = repeats * place.vectors(*lane);
    made.held = held(parts) * place.vectors(*lane);
    double all = others;
    for (const Part& part : parts) all *= part.count;
    made.again = all * place.vectors(*lane) - made.vectors;
  } else if (linear && step > 1 && step <= kShuffled) {  // whole vectors, of which lanes are picked
    double span = static_cast<double>(step * (lane->trips - 1) + 1);  // that neighbours overlap in
    std::vector<Part> apart;
    for (const Part& part : parts)
      if (static_cast<double>(part.step) <= span)
        span += (part.count - 1) * static_cast<double>(part.step);
      else
        apart.push_back(part);
    made.vectors = others * distinct(apart) * std::ceil(span / static_cast<double>(place.lanes));
    made.shuffles = repeats * place.vectors(*lane) * static_cast<double>(step - 1);
  } else if (const double held = std::ceil(static_cast<double>(step * (lane->trips - 1) + 1) /
                                           static_cast<double>(place.lanes));
             linear && step > 0 && lane->trips <= place.lanes &&
             held <= static_cast<double>(place.lanes) / 2) {
    made.vectors = made.shuffles = repeats * held;
  } else {
    const auto apart =
        lane->trips <= place.lanes ? offsets(at, *lane, place) : std::vector<std::vector<std::int64_t>>{};
    const double share = repeats / std::max<double>(1, static_cast<double>(apart.size()));
    const double gathered = static_cast<double>(lane->trips) * (lane->trips <= kFewLanes ? kInserted : 1);
    for (const auto& each : apart) {
      const double whole = consecutive(each) ? 0 : covers(each, place.lanes);
      if (consecutive(each)) made.vectors += share;
      made.vectors += share * whole;
      made.shuffles += share * whole;
      if (!consecutive(each) && whole == 0) made.elements += share * gathered;
    }
    if (apart.empty()) made.elements = repeats * (gathered + (linear ? 0 : kPlaces));
  }
  return made;
}

double live(const Address& at, const Place& place) {
  double product = 1;
  bool shared = false;
  for (const Repeat& repeat : place.repeats) {
    if (place.target == nullptr || !place.target->moves(repeat.slot)) continue;
    if (at.moves(repeat.slot))
      product *= place.vectors(repeat);
    else
      shared = shared || place.vectors(repeat) > 1;
  }
  return shared ? product : 1;
}

double crossing(const Address& at, const Place& place) {
  return aligned(at, place) ? 0 : share_of_vector(place);
}

}  // namespace syno::machine
