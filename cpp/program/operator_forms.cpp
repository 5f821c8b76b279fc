#include "program/operator_forms.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "support/checked.hpp"
#include "support/error.hpp"

namespace syno::program::detail {
namespace {

constexpr std::size_t kMostWork = std::size_t{1} << 20;  ///< elements times terms looked at to single one out

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  const UInt128 product = static_cast<UInt128>(a ^ 0x9e3779b97f4a7c15ULL) * (b ^ 0xd6e8feb86659fd93ULL);
  std::uint64_t z =
      static_cast<std::uint64_t>(product >> 64) ^ static_cast<std::uint64_t>(product) ^ (a + (b << 1));
  z = (z ^ (z >> 32)) * 0xbf58476d1ce4e5b9ULL;
  return z ^ (z >> 29);
}
std::uint64_t word(const Name& name) { return static_cast<std::uint64_t>(name.tensor) << 32 | name.read; }

/// A number for the values of some columns of each term; equal exactly when the values are.
std::vector<std::uint32_t> projection(const TermSet& terms, std::span<const std::size_t> columns,
                                      std::size_t* count) {
  std::vector<std::uint32_t> ids(terms.size(), 0);
  std::size_t classes = terms.size() == 0 ? 0 : 1;
  std::unordered_map<std::uint64_t, std::uint32_t> next;
  for (const std::size_t c : columns) {
    std::vector<std::int64_t> dense(terms.columns[c].values);
    std::sort(dense.begin(), dense.end());
    dense.erase(std::unique(dense.begin(), dense.end()), dense.end());
    next.clear();
    for (std::size_t t = 0; t < terms.size(); ++t) {
      const auto value = static_cast<std::uint64_t>(
          std::lower_bound(dense.begin(), dense.end(), terms.columns[c].values[t]) - dense.begin());
      ids[t] = next.try_emplace(static_cast<std::uint64_t>(ids[t]) << 32 | value,
                                static_cast<std::uint32_t>(next.size()))
                   .first->second;
    }
    classes = next.size();
  }
  if (count) *count = classes;
  return ids;
}

std::vector<std::size_t> all_but(const TermSet& terms, std::size_t left_out) {
  std::vector<std::size_t> columns;
  for (std::size_t c = 0; c < terms.columns.size(); ++c) {
    if (c != left_out) columns.push_back(c);
  }
  return columns;
}

/// Whether no other column shares this one's elements.
bool alone(const TermSet& terms, std::size_t column) {
  return std::count_if(terms.columns.begin(), terms.columns.end(), [&](const Column& other) {
           return other.kind != PlaceKind::Ordered && other.family == terms.columns[column].family;
         }) == 1;
}

void keep_terms(TermSet& terms, const std::vector<bool>& kept) {
  std::size_t out = 0;
  for (std::size_t t = 0; t < kept.size(); ++t) {
    if (!kept[t]) continue;
    for (Column& column : terms.columns) column.values[out] = column.values[t];
    terms.multiplicity[out++] = terms.multiplicity[t];
  }
  for (Column& column : terms.columns) column.values.resize(out);
  terms.multiplicity.resize(out);
}

void drop_trivial_weights(TermSet& terms) {
  for (std::size_t c = terms.columns.size(); c-- > 0;) {
    const Column& column = terms.columns[c];
    const bool constant = std::all_of(column.values.begin(), column.values.end(),
                                      [&](std::int64_t value) { return value == column.values[0]; });
    if (column.kind == PlaceKind::Weight && constant && alone(terms, c)) {
      terms.columns.erase(terms.columns.begin() + static_cast<std::ptrdiff_t>(c));
    }
  }
}

TermSet with_columns(const TermSet& terms, std::span<const std::size_t> columns) {
  TermSet result;
  for (const std::size_t c : columns) result.columns.push_back(terms.columns[c]);
  result.multiplicity.assign(terms.size(), 1);
  normalize(result);
  return result;
}

/// Splits off the smallest set of whole columns, the first among them, that is independent of the others.
bool split_columns(const TermSet& terms, TermSet& first, TermSet& others) {
  const std::size_t n = terms.columns.size();
  if (n < 2 || n > 12) return false;
  std::vector<std::size_t> subsets((std::size_t{1} << (n - 1)) - 1);
  std::iota(subsets.begin(), subsets.end(), std::size_t{0});
  std::stable_sort(subsets.begin(), subsets.end(),
                   [](std::size_t a, std::size_t b) { return std::popcount(a) < std::popcount(b); });
  for (const std::size_t subset : subsets) {
    std::vector<std::size_t> with{0}, without;
    for (std::size_t c = 1; c < n; ++c) (subset >> (c - 1) & 1 ? with : without).push_back(c);
    const bool tied = std::any_of(with.begin(), with.end(), [&](std::size_t a) {
      return std::any_of(without.begin(), without.end(), [&](std::size_t b) {
        const Column &left = terms.columns[a], &right = terms.columns[b];
        return left.kind != PlaceKind::Ordered && right.kind != PlaceKind::Ordered &&
               left.family == right.family;
      });
    });
    if (tied) continue;
    std::size_t left = 0, right = 0;
    projection(terms, with, &left);
    if (terms.size() % left != 0) continue;
    projection(terms, without, &right);
    if (left * right != terms.size()) continue;
    first = with_columns(terms, with);
    others = with_columns(terms, without);
    return true;
  }
  return false;
}

/// Numbers values in the order they are first seen.
std::vector<std::uint32_t> dense(std::span<const std::int64_t> values, std::size_t* count) {
  std::unordered_map<std::int64_t, std::uint32_t> ids;
  std::vector<std::uint32_t> result;
  for (const std::int64_t value : values) {
    result.push_back(ids.try_emplace(value, static_cast<std::uint32_t>(ids.size())).first->second);
  }
  *count = ids.size();
  return result;
}

/// The same where some weights have a part on either side: needs terms that their other columns tell apart.
bool split_sharing(const TermSet& terms, std::span<const std::size_t> weights, TermSet& first,
                   TermSet& others) {
  std::vector<std::size_t> plain;
  for (std::size_t c = 0; c < terms.columns.size(); ++c) {
    if (std::find(weights.begin(), weights.end(), c) == weights.end()) plain.push_back(c);
    if (terms.columns[c].kind != PlaceKind::Ordered && !alone(terms, c)) return false;
  }
  if (plain.size() < 2 || plain.size() > 12) return false;
  std::size_t told_apart = 0;
  projection(terms, plain, &told_apart);
  if (told_apart != terms.size()) return false;
  for (std::size_t subset = 0; subset + 1 < (std::size_t{1} << (plain.size() - 1)); ++subset) {
    std::vector<std::size_t> with{plain[0]}, without;
    for (std::size_t i = 1; i < plain.size(); ++i)
      (subset >> (i - 1) & 1 ? with : without).push_back(plain[i]);
    std::size_t rows = 0, columns = 0;
    const auto row = projection(terms, with, &rows);
    const auto column = projection(terms, without, &columns);
    if (rows * columns != terms.size()) continue;
    bool product = true;
    std::vector<std::vector<std::int64_t>> row_part, column_part;  // by weight
    for (const std::size_t w : weights) {
      std::vector<std::int64_t> table(terms.size());
      for (std::size_t t = 0; t < terms.size(); ++t)
        table[row[t] * columns + column[t]] = terms.columns[w].values[t];
      std::vector<std::uint32_t> by_row, by_column;
      std::size_t row_classes = 0, column_classes = 0, classes = 0;
      for (std::size_t c = 0; c < columns && product; ++c) {
        std::vector<std::int64_t> line(rows);
        for (std::size_t r = 0; r < rows; ++r) line[r] = table[r * columns + c];
        const auto ids = dense(line, &row_classes);
        if (c == 0) by_row = ids;
        product = ids == by_row;
      }
      for (std::size_t r = 0; r < rows && product; ++r) {
        const auto ids = dense(std::span(table).subspan(r * columns, columns), &column_classes);
        if (r == 0) by_column = ids;
        product = ids == by_column;
      }
      dense(table, &classes);
      if (!product || classes != row_classes * column_classes) {
        product = false;
        break;
      }
      row_part.emplace_back(by_row.begin(), by_row.end());
      column_part.emplace_back(by_column.begin(), by_column.end());
    }
    if (!product) continue;
    TermSet left = terms, right = terms;
    for (std::size_t w = 0; w < weights.size(); ++w) {
      for (std::size_t t = 0; t < terms.size(); ++t) {
        left.columns[weights[w]].values[t] = row_part[w][row[t]];
        right.columns[weights[w]].values[t] = column_part[w][column[t]];
      }
    }
    with.insert(with.end(), weights.begin(), weights.end());
    without.insert(without.end(), weights.begin(), weights.end());
    first = with_columns(left, with);
    others = with_columns(right, without);
    return true;
  }
  return false;
}

bool split_weights(const TermSet& terms, TermSet& first, TermSet& others) {
  std::vector<std::size_t> weights;
  for (std::size_t c = 0; c < terms.columns.size(); ++c) {
    if (terms.columns[c].kind == PlaceKind::Weight) weights.push_back(c);
  }
  if (weights.size() > 6) return false;
  std::vector<std::size_t> subsets((std::size_t{1} << weights.size()) - 1);
  std::iota(subsets.begin(), subsets.end(), std::size_t{1});
  std::stable_sort(subsets.begin(), subsets.end(),
                   [](std::size_t a, std::size_t b) { return std::popcount(a) < std::popcount(b); });
  return std::any_of(subsets.begin(), subsets.end(), [&](std::size_t subset) {
    std::vector<std::size_t> shared;
    for (std::size_t w = 0; w < weights.size(); ++w) {
      if (subset >> w & 1) shared.push_back(weights[w]);
    }
    return split_sharing(terms, shared, first, others);
  });
}

/// Terms with coloured elements, numbered from 0: what is canonised.
struct Problem {
  std::size_t arity = 0;
  std::vector<std::uint64_t> fixed;     ///< by term: everything but its elements
  std::vector<std::uint32_t> elements;  ///< by term, then position
  std::vector<std::uint64_t> colors;    ///< by element
  std::size_t size() const { return fixed.size(); }
};

class Canonizer {
 public:
  explicit Canonizer(std::vector<std::uint64_t> roles) : roles_(std::move(roles)) {}

  Hash128 operator()(Problem problem) const {
    refine(problem);
    const std::vector<bool> open = open_elements(problem);
    if (std::find(open.begin(), open.end(), true) == open.end()) return summary(problem);
    std::vector<Problem> pieces = fall_apart(problem, open);
    if (pieces.size() > 1) {
      Hash128 sum{pieces.size(), 0x91};
      for (Problem& piece : pieces) {
        const Hash128 form = (*this)(std::move(piece));
        sum.high += mix(form.high, form.low);
        sum.low += mix(form.low, form.high + 1);
      }
      return sum;
    }
    const std::vector<std::uint32_t> choices = smallest_class(problem);
    const Hash128 here = summary(problem);
    if (choices.size() * problem.size() > kMostWork) return here;
    std::optional<Hash128> least;
    Problem chosen;
    Hash128 looks;
    for (const std::uint32_t element : choices) {
      Problem singled = problem;
      singled.colors[element] = mix(singled.colors[element], 0x51);
      refine(singled);
      const Hash128 look = summary(singled);
      looks.high += mix(look.high, look.low);
      if (least && !(look < *least)) continue;
      least = look;
      chosen = std::move(singled);
    }
    return Hasher().add(here).add(looks).add((*this)(std::move(chosen))).finish();
  }

 private:
  std::uint64_t term_color(const Problem& p, std::size_t t) const {
    std::uint64_t sum = 0;  // commutative: roles, not positions, say which element is which
    for (std::size_t r = 0; r < p.arity; ++r) sum += mix(roles_[r], p.colors[p.elements[t * p.arity + r]]);
    return mix(p.fixed[t], sum);
  }

  static std::size_t classes(const Problem& p) {
    std::vector<std::uint64_t> sorted = p.colors;
    std::sort(sorted.begin(), sorted.end());
    return static_cast<std::size_t>(std::unique(sorted.begin(), sorted.end()) - sorted.begin());
  }

  void refine(Problem& p) const {
    std::vector<std::uint64_t> sums;
    for (std::size_t before = classes(p);;) {
      sums.assign(p.colors.size(), 0);
      for (std::size_t t = 0; t < p.size(); ++t) {
        const std::uint64_t color = term_color(p, t);
        for (std::size_t r = 0; r < p.arity; ++r) sums[p.elements[t * p.arity + r]] += mix(color, roles_[r]);
      }
      for (std::size_t e = 0; e < sums.size(); ++e) p.colors[e] = mix(p.colors[e], sums[e]);
      const std::size_t now = classes(p);
      if (now == before) return;
      before = now;
    }
  }

  /// Independent of the order of terms and elements.
  Hash128 summary(const Problem& p) const {
    Hash128 sum{p.size(), p.colors.size()};
    for (std::size_t t = 0; t < p.size(); ++t) {
      const std::uint64_t color = term_color(p, t);
      sum.high += mix(color, 0x71);
      sum.low += mix(color, 0x72);
    }
    for (const std::uint64_t role : roles_) sum.low += mix(role, 0x74);
    return sum;
  }

  /// Elements whose colour others have too.
  static std::vector<bool> open_elements(const Problem& p) {
    std::vector<std::uint64_t> sorted = p.colors;
    std::sort(sorted.begin(), sorted.end());
    std::vector<bool> open;
    for (const std::uint64_t color : p.colors) {
      const auto [begin, end] = std::equal_range(sorted.begin(), sorted.end(), color);
      open.push_back(end - begin > 1);
    }
    return open;
  }

  /// Terms that no open element connects are independent: an element with a colour of its own is as good as
  /// named.
  static std::vector<Problem> fall_apart(const Problem& p, const std::vector<bool>& open) {
    std::vector<std::uint32_t> parent(p.size());
    std::iota(parent.begin(), parent.end(), 0u);
    const auto root = [&](std::uint32_t t) {
      while (parent[t] != t) t = parent[t] = parent[parent[t]];
      return t;
    };
    std::vector<std::uint32_t> first(p.colors.size(), 0xffffffff);
    for (std::uint32_t t = 0; t < p.size(); ++t) {
      for (std::size_t r = 0; r < p.arity; ++r) {
        const std::uint32_t e = p.elements[t * p.arity + r];
        if (!open[e]) continue;
        if (first[e] == 0xffffffff) first[e] = t;
        parent[root(t)] = root(first[e]);
      }
    }
    std::vector<std::uint32_t> piece_of(p.size(), 0xffffffff);
    std::vector<Problem> pieces;
    std::vector<std::unordered_map<std::uint32_t, std::uint32_t>> local;
    for (std::uint32_t t = 0; t < p.size(); ++t) {
      std::uint32_t& piece = piece_of[root(t)];
      if (piece == 0xffffffff) {
        piece = static_cast<std::uint32_t>(pieces.size());
        pieces.emplace_back().arity = p.arity;
        local.emplace_back();
      }
      Problem& out = pieces[piece];
      out.fixed.push_back(p.fixed[t]);
      for (std::size_t r = 0; r < p.arity; ++r) {
        const std::uint32_t e = p.elements[t * p.arity + r];
        const auto [place, is_new] =
            local[piece].try_emplace(e, static_cast<std::uint32_t>(out.colors.size()));
        if (is_new) out.colors.push_back(p.colors[e]);
        out.elements.push_back(place->second);
      }
    }
    return pieces;
  }

  /// Of the classes with several elements, a smallest; of those, the one whose colour is least.
  static std::vector<std::uint32_t> smallest_class(const Problem& p) {
    std::vector<std::pair<std::uint64_t, std::uint32_t>> order;
    for (std::uint32_t e = 0; e < p.colors.size(); ++e) order.emplace_back(p.colors[e], e);
    std::sort(order.begin(), order.end());
    std::size_t begin = 0, size = 0;
    for (std::size_t i = 0, j = 0; i < order.size(); i = j) {
      while (j < order.size() && order[j].first == order[i].first) ++j;
      if (j - i > 1 && (size == 0 || j - i < size)) begin = i, size = j - i;
    }
    std::vector<std::uint32_t> elements;
    for (std::size_t i = 0; i < size; ++i) elements.push_back(order[begin + i].second);
    return elements;
  }

  std::vector<std::uint64_t> roles_;
};

}  // namespace

std::int64_t normalize(TermSet& terms) {
  std::vector<std::size_t> columns(terms.columns.size());
  std::iota(columns.begin(), columns.end(), std::size_t{0});
  std::size_t count = 0;
  const auto ids = projection(terms, columns, &count);
  std::vector<std::size_t> first(count, terms.size());
  std::vector<bool> kept(terms.size(), false);
  for (std::size_t t = 0; t < terms.size(); ++t) {
    std::size_t& place = first[ids[t]];
    if (place == terms.size()) {
      place = t;
      kept[t] = true;
    } else {
      terms.multiplicity[place] += terms.multiplicity[t];
    }
  }
  keep_terms(terms, kept);
  std::int64_t divisor = 0;
  for (const std::int64_t m : terms.multiplicity) divisor = std::gcd(divisor, m);
  for (std::int64_t& m : terms.multiplicity) m /= divisor;
  drop_trivial_weights(terms);
  return std::max<std::int64_t>(divisor, 1);
}

std::vector<std::pair<std::uint32_t, std::int64_t>> divide_copies(TermSet& terms) {
  std::vector<std::pair<std::uint32_t, std::int64_t>> result;
  for (std::size_t c = 0; c < terms.columns.size(); ++c) {
    if (terms.columns[c].kind != PlaceKind::Weight || !alone(terms, c)) continue;
    std::size_t count = 0;
    const auto others = all_but(terms, c);
    const auto surroundings = projection(terms, others, &count);
    std::map<std::int64_t, std::vector<std::pair<std::uint32_t, std::int64_t>>> seen;  // by element
    for (std::size_t t = 0; t < terms.size(); ++t) {
      seen[terms.columns[c].values[t]].emplace_back(surroundings[t], terms.multiplicity[t]);
    }
    std::map<std::vector<std::pair<std::uint32_t, std::int64_t>>, std::vector<std::int64_t>> copies;
    for (auto& [element, places] : seen) {
      std::sort(places.begin(), places.end());
      copies[places].push_back(element);
    }
    std::size_t divisor = 0;
    for (const auto& [places, elements] : copies) divisor = std::gcd(divisor, elements.size());
    if (divisor <= 1) continue;
    std::unordered_map<std::int64_t, bool> stays;
    for (const auto& [places, elements] : copies) {
      for (std::size_t i = 0; i < elements.size(); ++i) stays[elements[i]] = i < elements.size() / divisor;
    }
    std::vector<bool> kept;
    for (const std::int64_t element : terms.columns[c].values) kept.push_back(stays[element]);
    keep_terms(terms, kept);
    result.emplace_back(terms.columns[c].read, static_cast<std::int64_t>(divisor));
  }
  drop_trivial_weights(terms);
  return result;
}

std::vector<TermSet> parts_of(TermSet terms) {
  const bool plain = std::all_of(terms.multiplicity.begin(), terms.multiplicity.end(),
                                 [](std::int64_t m) { return m == 1; });
  TermSet first, others;
  if (!plain || !(split_columns(terms, first, others) || split_weights(terms, first, others))) {
    std::vector<TermSet> whole;
    if (!terms.columns.empty()) whole.push_back(std::move(terms));
    return whole;
  }
  std::vector<TermSet> parts = parts_of(std::move(first));
  for (TermSet& part : parts_of(std::move(others))) parts.push_back(std::move(part));
  return parts;
}

Hash128 form_of(const TermSet& terms, const Naming& naming) {
  std::vector<std::uint64_t> roles;
  Problem problem;
  problem.fixed.assign(terms.size(), 0);
  std::uint64_t named = 0;
  std::map<std::pair<std::uint32_t, std::int64_t>, std::uint32_t> element;
  std::vector<const Column*> anonymous;
  for (const Column& column : terms.columns) {
    const std::uint64_t role =
        mix(mix(word(naming[column.read]), column.dim), static_cast<std::uint64_t>(column.kind));
    if (column.kind != PlaceKind::Ordered) {
      roles.push_back(role);
      anonymous.push_back(&column);
      continue;
    }
    named += mix(role, 0x73);
    for (std::size_t t = 0; t < terms.size(); ++t) {
      problem.fixed[t] += mix(role, static_cast<std::uint64_t>(column.values[t]));
    }
  }
  problem.arity = roles.size();
  for (std::size_t t = 0; t < terms.size(); ++t) {
    problem.fixed[t] = mix(problem.fixed[t] + named, static_cast<std::uint64_t>(terms.multiplicity[t]));
    for (const Column* column : anonymous) {
      const auto [place, is_new] = element.try_emplace({column->family, column->values[t]},
                                                       static_cast<std::uint32_t>(problem.colors.size()));
      if (is_new)
        problem.colors.push_back(
            mix(naming[column->read].tensor, column->kind == PlaceKind::Weight ? 0 : column->dim));
      problem.elements.push_back(place->second);
    }
  }
  return Canonizer(std::move(roles))(std::move(problem));
}

}  // namespace syno::program::detail
