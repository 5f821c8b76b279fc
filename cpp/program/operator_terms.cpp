#include "program/operator_terms.hpp"

#include <algorithm>
#include <unordered_map>

#include "program/operator_forms.hpp"
#include "support/checked.hpp"
#include "support/error.hpp"

namespace syno::program::detail {
namespace {

std::uint64_t word(const Name& name) { return static_cast<std::uint64_t>(name.tensor) << 32 | name.read; }

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

TermSet terms_at(const Space& space, const Factor& factor, std::size_t row) {
  Grid grid(space, factor.slots, row);
  const std::size_t points = grid.size();
  std::vector<std::vector<std::int64_t>> values;
  std::vector<std::pair<std::int64_t, std::int64_t>> legal;
  for (const Place& place : factor.places) {
    values.push_back(grid.values(place.index));
    legal.emplace_back(grid.constant(place.legal.begin), grid.constant(place.legal.end));
    for (std::size_t p = 0; p < points; ++p) {
      if (values.back()[p] < legal.back().first || values.back()[p] >= legal.back().second)
        grid.alive()[p] = false;
    }
  }
  TermSet terms;
  for (std::size_t p = 0; p < points; ++p) {
    if (grid.alive()[p]) terms.multiplicity.push_back(1);
  }
  const auto add = [&](const Place& first, std::span<const Place* const> places) {
    Column column{
        first.kind, first.read, first.kind == PlaceKind::Weight ? 0 : first.dim + 1, first.family, {}};
    for (std::size_t p = 0; p < points; ++p) {
      if (!grid.alive()[p]) continue;
      std::int64_t index = 0;
      for (const Place* place : places) {
        const auto at = static_cast<std::size_t>(place - factor.places.data());
        index = checked_add(checked_multiply(index, legal[at].second - legal[at].first),
                            values[at][p] - legal[at].first);
      }
      column.values.push_back(index);
    }
    terms.columns.push_back(std::move(column));
  };
  for (const Place& place : factor.places) {
    const Place* const self = &place;
    if (place.kind == PlaceKind::Ordered) add(place, {&self, 1});
  }
  for (const Role& role : roles_of(factor)) add(role.first(), role.places);
  return terms;
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
  Fingerprint result;
  std::size_t listed = 0;
  for (std::size_t row = 0; row < space.rows.size(); ++row) {
    const std::size_t points = space.points(factor.slots, row);
    if (row == 0 ? points > kMostPoints : listed + points > kPoints) break;
    listed += points;
    TermSet terms = terms_at(space, factor, row);
    Fingerprint::Row& out = result.rows.emplace_back();
    if (terms.size() == 0) {  // nothing is ever read: the operator is zero
      out.multiplicity = 0;
      out.parts.resize(namings.size());
      continue;
    }
    out.multiplicity = normalize(terms);
    out.free = divide_copies(terms);
    const std::vector<TermSet> parts = parts_of(std::move(terms));
    for (const Naming& naming : namings) {
      std::vector<Hash128>& forms = out.parts.emplace_back();
      for (const TermSet& part : parts) forms.push_back(form_of(part, naming));
    }
  }
  if (result.rows.empty()) {
    for (const Naming& naming : namings) result.written.push_back(written_form(space, factor, naming));
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
