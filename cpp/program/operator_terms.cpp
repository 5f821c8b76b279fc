#include "program/operator_terms.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "support/checked.hpp"
#include "support/error.hpp"

namespace syno::program::detail {
namespace {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  const UInt128 product = static_cast<UInt128>(a ^ 0x9e3779b97f4a7c15ULL) * (b ^ 0xd6e8feb86659fd93ULL);
  std::uint64_t z =
      static_cast<std::uint64_t>(product >> 64) ^ static_cast<std::uint64_t>(product) ^ (a + (b << 1));
  z = (z ^ (z >> 32)) * 0xbf58476d1ce4e5b9ULL;
  return z ^ (z >> 29);
}

std::uint64_t word(const Name& name) { return static_cast<std::uint64_t>(name.tensor) << 32 | name.read; }

/// Terms of a factor at one row: the values of its ordered coordinates, and its elements.
struct Terms {
  std::vector<const Place*> ordered;  ///< by position among a term's values
  std::vector<std::int64_t> values;   ///< by term, then position
  std::size_t arity = 0;              ///< elements of a term
  std::vector<std::uint32_t> read;    ///< by position among a term's elements: whose name tells its role
  std::vector<std::uint32_t> dim;
  std::vector<std::uint64_t> multiplicity;  ///< by term
  std::vector<std::uint32_t> elements;      ///< by term, then position
  std::vector<std::uint64_t> kind;          ///< by element: what it is an element of, without names
  std::vector<std::uint32_t> first_read;    ///< by element: a read of its tensor
  std::vector<bool> channel;                ///< by element: of an unordered dimension
  std::int64_t divided = 1;                 ///< the multiplicity divided out
  std::size_t size() const { return multiplicity.size(); }
};

/// Numbers values in the order they are first seen.
class Dense {
 public:
  std::uint32_t operator()(std::int64_t value) {
    return ids_.try_emplace(value, static_cast<std::uint32_t>(ids_.size())).first->second;
  }
  std::size_t size() const { return ids_.size(); }

 private:
  std::unordered_map<std::int64_t, std::uint32_t> ids_;
};

/// The places of one element: an unordered dimension, or all dimensions of a weight that are in the factor.
struct Role {
  std::vector<const Place*> places;
  const Place& first() const { return *places.front(); }
};

std::vector<Role> roles_of(const Factor& factor) {
  std::vector<Role> roles;
  for (const Place& place : factor.places) {
    if (place.kind == PlaceKind::Ordered) continue;
    const auto same = [&](const Role& role) {
      return place.kind == PlaceKind::Weight && role.first().kind == PlaceKind::Weight &&
             role.first().read == place.read;
    };
    const auto role = std::find_if(roles.begin(), roles.end(), same);
    if (role == roles.end()) {
      roles.push_back({{&place}});
    } else {
      role->places.push_back(&place);
    }
  }
  return roles;
}

Terms terms_at(const Space& space, const Factor& factor, std::size_t row) {
  Grid grid(space, factor.slots, row);
  const std::size_t points = grid.size();
  std::vector<std::vector<std::int64_t>> values;
  for (const Place& place : factor.places) {
    values.push_back(grid.values(place.index));
    const std::int64_t begin = grid.constant(place.legal.begin), end = grid.constant(place.legal.end);
    for (std::size_t p = 0; p < points; ++p) {
      if (values.back()[p] < begin || values.back()[p] >= end) grid.alive()[p] = false;
    }
  }
  const auto values_of = [&](const Place* place) -> const std::vector<std::int64_t>& {
    return values[static_cast<std::size_t>(place - factor.places.data())];
  };

  std::vector<Role> roles = roles_of(factor);
  std::vector<std::vector<std::uint32_t>> element(roles.size());
  std::unordered_map<std::uint32_t, Dense> families;
  std::unordered_map<std::uint32_t, std::uint32_t> offset;  // of a family's first element
  for (std::size_t r = 0; r < roles.size(); ++r) {
    Dense& dense = families[roles[r].first().family];
    element[r].resize(points);
    for (std::size_t p = 0; p < points; ++p) {
      if (!grid.alive()[p]) continue;
      std::int64_t index = 0;
      for (const Place* place : roles[r].places) {
        const std::int64_t begin = grid.constant(place->legal.begin), end = grid.constant(place->legal.end);
        index = checked_add(checked_multiply(index, end - begin), values_of(place)[p] - begin);
      }
      element[r][p] = dense(index);
    }
  }
  for (std::size_t r = roles.size(); r-- > 0;) {  // one weight element for all terms tells nothing
    const Place& first = roles[r].first();
    if (first.kind != PlaceKind::Weight || families[first.family].size() > 1) continue;
    roles.erase(roles.begin() + static_cast<std::ptrdiff_t>(r));
    element.erase(element.begin() + static_cast<std::ptrdiff_t>(r));
  }
  Terms all;
  all.arity = roles.size();
  for (const Role& role : roles) {
    all.read.push_back(role.first().read);
    all.dim.push_back(role.first().kind == PlaceKind::Weight ? 0 : role.first().dim + 1);
  }
  for (const Role& role : roles) {
    const Place& first = role.first();
    const auto next = static_cast<std::uint32_t>(all.kind.size());
    if (!offset.try_emplace(first.family, next).second) continue;
    const std::size_t count = families[first.family].size();
    const bool channel = first.kind == PlaceKind::Unordered;
    all.kind.insert(all.kind.end(), count, channel ? first.dim + 1 : 0);
    all.first_read.insert(all.first_read.end(), count, first.read);
    all.channel.insert(all.channel.end(), count, channel);
  }

  for (const Place& place : factor.places) {
    if (place.kind == PlaceKind::Ordered) all.ordered.push_back(&place);
  }
  struct Point {
    std::uint64_t identity;
    std::size_t point;
  };
  std::vector<Point> order;
  for (std::size_t p = 0; p < points; ++p) {
    if (!grid.alive()[p]) continue;
    std::uint64_t identity = 1;
    for (const Place* place : all.ordered)
      identity = mix(identity, static_cast<std::uint64_t>(values_of(place)[p]));
    for (std::size_t r = 0; r < roles.size(); ++r) identity = mix(identity, element[r][p]);
    order.push_back({identity, p});
  }
  std::sort(order.begin(), order.end(), [](const Point& a, const Point& b) {
    return a.identity != b.identity ? a.identity < b.identity : a.point < b.point;
  });
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && order[i].identity == order[i - 1].identity) {
      ++all.multiplicity.back();
      continue;
    }
    for (const Place* place : all.ordered) all.values.push_back(values_of(place)[order[i].point]);
    all.multiplicity.push_back(1);
    for (std::size_t r = 0; r < roles.size(); ++r) {
      all.elements.push_back(offset[roles[r].first().family] + element[r][order[i].point]);
    }
  }
  std::uint64_t divisor = 0;
  for (const std::uint64_t m : all.multiplicity) divisor = std::gcd(divisor, m);
  if (divisor > 1) {
    for (std::uint64_t& m : all.multiplicity) m /= divisor;
    all.divided = static_cast<std::int64_t>(divisor);
  }
  return all;
}

/// Colour refinement of the elements of a term set.
class Refinement {
 public:
  Refinement(const Terms& terms, const Naming& naming) : terms_(terms), naming_(naming) {
    for (std::size_t r = 0; r < terms.arity; ++r)
      roles_.push_back(mix(word(naming[terms.read[r]]), terms.dim[r]));
    for (std::size_t e = 0; e < terms.kind.size(); ++e) {
      colors_.push_back(mix(naming[terms.first_read[e]].tensor, terms.kind[e]));
    }
    fixed_.resize(terms.size());
    const std::size_t width = terms.ordered.size();
    for (std::size_t t = 0; t < terms.size(); ++t) {
      std::uint64_t sum = 0;  // commutative: names, not places in a list, say which coordinate is which
      for (std::size_t i = 0; i < width; ++i) {
        const Place& place = *terms.ordered[i];
        sum += mix(mix(word(naming[place.read]), place.dim),
                   static_cast<std::uint64_t>(terms.values[t * width + i]));
      }
      fixed_[t] = mix(sum, terms.multiplicity[t]);
    }
    classes_ = count();
  }

  void refine() {
    while (round()) {
    }
  }
  void single_out(std::size_t element) { colors_[element] = mix(colors_[element], 0x51); }

  /// Independent of the order of terms and elements.
  Hash128 summary() const {
    Hash128 sum{terms_.size(), terms_.kind.size()};
    for (const Place* place : terms_.ordered)
      sum.high += mix(mix(word(naming_[place->read]), place->dim), 0x73);
    for (const std::uint64_t role : roles_) sum.low += mix(role, 0x74);
    for (std::size_t t = 0; t < terms_.size(); ++t) {
      const std::uint64_t color = term_color(t);
      sum.high += mix(color, 0x71);
      sum.low += mix(color, 0x72);
    }
    return sum;
  }

  /// The elements of the smallest class with more than one element, channels before weights.
  std::vector<std::size_t> smallest_open_class() const {
    for (const bool channels : {true, false}) {
      std::vector<std::pair<std::uint64_t, std::size_t>> by_color;
      for (std::size_t e = 0; e < colors_.size(); ++e) {
        if (terms_.channel[e] == channels) by_color.emplace_back(colors_[e], e);
      }
      std::sort(by_color.begin(), by_color.end());
      std::size_t best_begin = 0, best = 0;
      for (std::size_t i = 0, j = 0; i < by_color.size(); i = j) {
        while (j < by_color.size() && by_color[j].first == by_color[i].first) ++j;
        if (j - i > 1 && (best == 0 || j - i < best)) best_begin = i, best = j - i;
      }
      std::vector<std::size_t> elements;
      for (std::size_t i = 0; i < best; ++i) elements.push_back(by_color[best_begin + i].second);
      if (!elements.empty()) return elements;
    }
    return {};
  }

 private:
  std::uint64_t term_color(std::size_t t) const {
    std::uint64_t elements = 0;
    for (std::size_t r = 0; r < terms_.arity; ++r) {
      elements += mix(roles_[r], colors_[terms_.elements[t * terms_.arity + r]]);
    }
    return mix(fixed_[t], elements);
  }

  bool round() {
    sums_.assign(colors_.size(), 0);
    for (std::size_t t = 0; t < terms_.size(); ++t) {
      const std::uint64_t color = term_color(t);
      for (std::size_t r = 0; r < terms_.arity; ++r) {
        sums_[terms_.elements[t * terms_.arity + r]] += mix(color, roles_[r]);
      }
    }
    for (std::size_t e = 0; e < colors_.size(); ++e) colors_[e] = mix(colors_[e], sums_[e]);
    const std::size_t before = classes_;
    classes_ = count();
    return classes_ != before;
  }

  std::size_t count() {
    sorted_ = colors_;
    std::sort(sorted_.begin(), sorted_.end());
    return static_cast<std::size_t>(std::unique(sorted_.begin(), sorted_.end()) - sorted_.begin());
  }

  const Terms& terms_;
  const Naming& naming_;
  std::vector<std::uint64_t> roles_, fixed_, colors_, sums_, sorted_;
  std::size_t classes_ = 0;
};

Hash128 up_to_renaming(const Terms& terms, const Naming& naming, std::size_t most_work) {
  Refinement refinement(terms, naming);
  refinement.refine();
  const Hash128 whole = refinement.summary();
  Hash128 singled;
  const auto open = refinement.smallest_open_class();
  if (open.size() * terms.size() <= most_work) {
    for (const std::size_t element : open) {
      Refinement one = refinement;
      one.single_out(element);
      one.refine();
      const Hash128 summary = one.summary();
      singled.high += mix(summary.high, 0x81);
      singled.low += mix(summary.low, 0x82);
    }
  }
  return Hasher().add(whole).add(singled).add(static_cast<std::uint64_t>(terms.size())).finish();
}

void describe(Hasher& out, const Space& space, ExprId id, std::span<const std::uint32_t> slots) {
  const symbolic::Expr& node = space.arena[id];
  out.add(node.op).add(node.value);
  const Size& size = space.arena[node.size];
  out.add(size.factor().num()).add(size.factor().den());
  for (std::size_t v = 0; v < symbolic::kMaxVariables; ++v)
    out.add(static_cast<std::int8_t>(size.exponent(v)));
  switch (node.op) {
    case symbolic::Op::Iterator: {
      const auto slot = static_cast<std::uint32_t>(node.a);
      out.add(static_cast<std::uint64_t>(std::find(slots.begin(), slots.end(), slot) - slots.begin()));
      return;
    }
    case symbolic::Op::Constant:
    case symbolic::Op::SizeValue:
      return;
    case symbolic::Op::Add:
      describe(out, space, node.b, slots);
      [[fallthrough]];
    default:
      describe(out, space, node.a, slots);
  }
}

/// The simplified expressions themselves: the last resort for a factor too large to list.
Hash128 written_form(const Space& space, const Factor& factor, const Naming& naming) {
  Hasher form;
  for (const std::uint32_t slot : factor.slots) {
    for (const std::int64_t extent : space.extent[slot]) form.add(extent);
  }
  for (const Place& place : factor.places) {
    form.add(place.kind).add(word(naming[place.read])).add(place.dim);
    describe(form, space, place.index, factor.slots);
  }
  return form.finish();
}

}  // namespace

std::size_t Space::points(std::span<const std::uint32_t> slots, std::size_t row) const {
  constexpr std::size_t most = std::size_t{1} << 62;
  std::size_t result = 1;
  for (const std::uint32_t slot : slots) {
    const auto extent_here = static_cast<std::size_t>(extent[slot][row]);
    if (extent_here != 0 && result > most / extent_here) return most;
    result *= extent_here;
  }
  return result;
}

Grid::Grid(const Space& space, std::span<const std::uint32_t> slots, std::size_t row)
    : space_(space), slots_(slots), row_(row), size_(space.points(slots, row)), alive_(size_, true) {}

std::int64_t Grid::constant(ExprId id) const {
  const auto value = evaluate(space_.arena, id, space_.sizes, space_.rows[row_], {});
  SYNO_ASSERT(value.has_value(), "a bound holds no inside()");
  return *value;
}

std::vector<std::int64_t> Grid::values(ExprId id) {
  using symbolic::Op;
  const symbolic::Expr node = space_.arena[id];
  const auto size = [&] { return space_.sizes.integer_value(space_.arena[node.size], space_.rows[row_]); };
  switch (node.op) {
    case Op::Constant:
      return std::vector<std::int64_t>(size_, node.value);
    case Op::SizeValue:
      return std::vector<std::int64_t>(size_, size());
    case Op::Iterator: {
      const auto slot = static_cast<std::uint32_t>(node.a);
      const std::int64_t begin = space_.begin[slot][row_];
      std::vector<std::int64_t> result(size_, begin);
      std::size_t inner = size_;
      for (const std::uint32_t other : slots_) {  // the first is the slowest
        const auto extent = static_cast<std::size_t>(space_.extent[other][row_]);
        if (extent == 0) break;
        inner /= extent;
        if (other != slot) continue;
        for (std::size_t p = 0; p < size_; ++p)
          result[p] = begin + static_cast<std::int64_t>(p / inner % extent);
      }
      return result;
    }
    default:
      break;
  }
  std::vector<std::int64_t> a = values(node.a);
  switch (node.op) {
    case Op::Add: {
      const std::vector<std::int64_t> b = values(node.b);
      for (std::size_t p = 0; p < size_; ++p) a[p] += b[p];
      return a;
    }
    case Op::Multiply: {
      const Rational factor =
          space_.sizes.value(space_.arena[node.size], space_.rows[row_]) * Rational(node.value);
      for (std::int64_t& value : a) value = checked_multiply(value, factor.num()) / factor.den();
      return a;
    }
    case Op::Divide: {
      const std::int64_t divisor = size();
      for (std::int64_t& value : a) value = floor_divide(value, divisor);
      return a;
    }
    case Op::Modulo: {
      const std::int64_t divisor = size();
      for (std::int64_t& value : a) value = floor_modulo(value, divisor);
      return a;
    }
    case Op::Inside: {
      const std::int64_t extent = size();
      for (std::size_t p = 0; p < size_; ++p) {
        if (a[p] < 0 || a[p] >= extent) alive_[p] = false;
      }
      return a;
    }
    default:
      SYNO_ASSERT(false, "an index expression has a known operation");
  }
  return a;
}

Fingerprint fingerprint(const Space& space, const Factor& factor, std::span<const Naming> namings) {
  std::vector<Hasher> hashers(namings.size());
  Fingerprint result;
  std::size_t listed = 0;
  for (std::size_t row = 0; row < space.rows.size(); ++row) {
    const std::size_t points = space.points(factor.slots, row);
    if (row == 0 ? points > kMostPoints : listed + points > kPoints) break;
    listed += points;
    const Terms terms = terms_at(space, factor, row);
    result.multiplicity.push_back(terms.divided);
    // Singling out costs elements times terms; at the least valuation it may cost more than at the others.
    const std::size_t most_work = row == 0 ? std::size_t{1} << 19 : std::size_t{1} << 16;
    for (std::size_t n = 0; n < namings.size(); ++n)
      hashers[n].add(up_to_renaming(terms, namings[n], most_work));
  }
  for (std::size_t n = 0; n < namings.size(); ++n) {
    if (listed == 0) hashers[n].add(written_form(space, factor, namings[n]));
    result.by_naming.push_back(hashers[n].finish());
  }
  return result;
}

bool is_product(const Space& space, std::span<const Place> weight, std::span<const std::uint32_t> left,
                std::span<const std::uint32_t> right) {
  std::vector<std::uint32_t> slots(left.begin(), left.end());
  slots.insert(slots.end(), right.begin(), right.end());
  std::size_t listed = 0;
  for (std::size_t row = 0; row < space.rows.size(); ++row) {
    const std::size_t points = space.points(slots, row);
    if (row == 0 ? points > kMostPoints : listed + points > kPoints) break;
    listed += points;
    Grid grid(space, slots, row);
    std::vector<std::int64_t> index(points, 0);
    for (const Place& place : weight) {
      const auto values = grid.values(place.index);
      const std::int64_t begin = grid.constant(place.legal.begin), end = grid.constant(place.legal.end);
      for (std::size_t p = 0; p < points; ++p) {
        if (values[p] < begin || values[p] >= end || !grid.alive()[p])
          return false;  // absent terms couple both
        index[p] = checked_add(checked_multiply(index[p], end - begin), values[p] - begin);
      }
    }
    const std::size_t columns = space.points(right, row);
    const std::size_t count = points / std::max<std::size_t>(columns, 1);
    // Rows (points of left) and columns must each be partitioned alike whatever the other is.
    const auto partition_is_the_same = [&](std::size_t outer, std::size_t inner, auto at) -> std::size_t {
      std::vector<std::uint32_t> first;
      std::size_t classes = 0;
      for (std::size_t o = 0; o < outer; ++o) {
        Dense dense;
        std::vector<std::uint32_t> ids(inner);
        for (std::size_t i = 0; i < inner; ++i) ids[i] = dense(at(o, i));
        if (o == 0) first = ids, classes = dense.size();
        if (ids != first) return 0;
      }
      return classes;
    };
    const std::size_t by_left = partition_is_the_same(
        columns, count, [&](std::size_t b, std::size_t a) { return index[a * columns + b]; });
    if (by_left == 0) return false;
    const std::size_t by_right = partition_is_the_same(
        count, columns, [&](std::size_t a, std::size_t b) { return index[a * columns + b]; });
    if (by_right == 0) return false;
    Dense all;
    for (const std::int64_t value : index) all(value);
    if (all.size() != by_left * by_right) return false;
  }
  return listed > 0;
}

}  // namespace syno::program::detail
