#include "equality/term_counts.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <tuple>

#include "support/error.hpp"

namespace syno::equality {
namespace {

using Values = std::vector<std::uint64_t>;

/// Numbers pairs (a, b) in the order they are first seen. b < columns.
class PairNumbers {
 public:
  PairNumbers(std::size_t rows, std::size_t columns, std::size_t pairs) : columns_(columns) {
    if (rows <= 8 * pairs / std::max<std::size_t>(columns, 1)) {
      direct_.assign(rows * columns, 0);
      return;
    }
    std::size_t wanted = 16;
    while (wanted < 2 * pairs) wanted *= 2;
    slots_.assign(wanted, {~std::uint64_t{0}, 0});
  }
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b) {
    const std::uint64_t key = a * columns_ + b;
    if (slots_.empty()) {
      std::uint32_t& number = direct_[key];
      if (number == 0) number = ++count_;
      return number - 1;
    }
    std::size_t at = static_cast<std::size_t>((key * 0x9e3779b97f4a7c15ULL) >> 32) & (slots_.size() - 1);
    for (; slots_[at].first != ~std::uint64_t{0}; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at].first == key) return slots_[at].second;
    }
    slots_[at] = {key, count_};
    return count_++;
  }
  std::uint32_t count() const { return count_; }

 private:
  std::size_t columns_;
  std::vector<std::uint32_t> direct_;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> slots_;
  std::uint32_t count_ = 0;
};

/// A square or oblong matrix modulo the prime.
struct Matrix {
  std::size_t rows = 0, columns = 0;
  Values at;
  Matrix(std::size_t r, std::size_t c) : rows(r), columns(c), at(r * c, 0) {}
  std::uint64_t* row(std::size_t r) { return at.data() + r * columns; }
  const std::uint64_t* row(std::size_t r) const { return at.data() + r * columns; }
};

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix result(a.rows, b.columns);
  for (std::size_t i = 0; i < a.rows; ++i) {
    for (std::size_t k = 0; k < a.columns; ++k) {
      const std::uint64_t factor = a.row(i)[k];
      if (factor == 0) continue;
      std::uint64_t* out = result.row(i);
      const std::uint64_t* from = b.row(k);
      for (std::size_t j = 0; j < b.columns; ++j) {
        if (from[j] != 0) out[j] = add_mod(out[j], multiply_mod(factor, from[j]));
      }
    }
  }
  return result;
}

/// trace(a * b)
std::uint64_t trace(const Matrix& a, const Matrix& b) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < a.rows; ++i) {
    for (std::size_t j = 0; j < a.columns; ++j) {
      if (a.row(i)[j] != 0) sum = add_mod(sum, multiply_mod(a.row(i)[j], b.row(j)[i]));
    }
  }
  return sum;
}

class Counter {
 public:
  explicit Counter(const TermTable& terms) : terms_(terms) {}

  std::uint64_t label(std::size_t which, std::size_t term) const {
    const Values& label = terms_.labels[which];
    return label.empty() ? 1 : label[term];
  }
  bool plain() const { return terms_.labels[0].empty(); }

  std::uint64_t single() const { return total(labels(0)); }

  Values labels(std::size_t which) const {
    return terms_.labels[which].empty() ? Values(terms_.size, 1) : terms_.labels[which];
  }
  static std::uint64_t total(const Values& values) {
    std::uint64_t sum = 0;
    for (const std::uint64_t value : values) sum = add_mod(sum, value);
    return sum;
  }

  /// Sums of `values` by element.
  static Values gathered(const std::vector<std::uint32_t>& element, std::uint32_t count,
                         const Values& values) {
    Values sums(count, 0);
    for (std::size_t t = 0; t < values.size(); ++t) sums[element[t]] = add_mod(sums[element[t]], values[t]);
    return sums;
  }

  /// out *= sum of `values` over the terms t' whose element of `from` is t's of `to`.
  void spread(Values& out, const Values& values, const TermTable::Role& from,
              const TermTable::Role& to) const {
    if (to.absent()) {
      const std::uint64_t sum = total(values);
      for (std::uint64_t& value : out) value = multiply_mod(value, sum);
      return;
    }
    const Values sums = gathered(from.element, from.count, values);
    for (std::size_t t = 0; t < out.size(); ++t) out[t] = multiply_mod(out[t], sums[to.element[t]]);
  }

  /// The elements of several roles at once; absent roles change nothing.
  const TermTable::Role& joint(std::uint32_t set) {
    const auto known = joints_.find(set);
    if (known != joints_.end()) return known->second;
    const auto top = static_cast<std::uint32_t>(std::bit_width(set) - 1);
    const std::uint32_t rest = set & ~(1u << top);
    const TermTable::Role& one = terms_.roles[top];
    if (rest == 0) return joints_.emplace(set, one).first->second;
    const TermTable::Role& others = joint(rest);
    if (others.absent()) return joints_.emplace(set, one).first->second;
    TermTable::Role both;
    if (one.count == terms_.size || others.count == terms_.size) {  // every term has its own already
      both = one.count == terms_.size ? one : others;
      return joints_.emplace(set, std::move(both)).first->second;
    }
    both.element.resize(terms_.size);
    PairNumbers numbers(one.count, others.count, terms_.size);
    for (std::size_t t = 0; t < terms_.size; ++t)
      both.element[t] = numbers(one.element[t], others.element[t]);
    both.count = numbers.count();
    return joints_.emplace(set, std::move(both)).first->second;
  }

  std::uint64_t pair(std::uint32_t set) {
    std::uint32_t present = 0;
    for (std::uint32_t r = 0; r < terms_.roles.size(); ++r) {
      if ((set >> r & 1) && !terms_.roles[r].absent()) present |= 1u << r;
    }
    const auto known = pairs_.find(present);
    if (known != pairs_.end()) return known->second;
    const Values first = labels(0), second = plain() ? Values{} : labels(1);
    return pairs_[present] =
               joined(first, plain() ? first : second, present == 0 ? TermTable::Role{} : joint(present));
  }

  std::uint64_t path(std::uint32_t r, std::uint32_t s) {
    const TermTable::Role &one = terms_.roles[r], &other = terms_.roles[s];
    const std::pair<int, int> id{one.absent() ? -1 : static_cast<int>(r),
                                 other.absent() ? -1 : static_cast<int>(s)};
    const auto known = paths_.find(id);
    if (known != paths_.end()) return known->second;
    const auto [half, is_new] = half_paths_.try_emplace(id.first);
    auto& [left, right] = half->second;
    if (is_new) {  // both halves of t0 ~r t1 ~s t2 ~r t3, at t1 and t2
      left = labels(1);
      spread(left, labels(0), one, one);
      if (!plain()) {
        right = labels(2);
        spread(right, labels(3), one, one);
      }
    }
    return paths_[id] = joined(left, plain() ? left : right, other);
  }

  /// Sum over the pairs of terms that share their element.
  static std::uint64_t joined(const Values& left, const Values& right, const TermTable::Role& role) {
    if (role.absent()) return multiply_mod(total(left), total(right));
    const Values first = gathered(role.element, role.count, left);
    const Values second = &left == &right ? Values{} : gathered(role.element, role.count, right);
    std::uint64_t sum = 0;
    for (std::size_t e = 0; e < first.size(); ++e)
      sum = add_mod(sum, multiply_mod(first[e], second.empty() ? first[e] : second[e]));
    return sum;
  }

  /// Of depth 1 .. depth.
  std::vector<std::uint64_t> trees(const RoleKinds& kinds, std::size_t depth) const {
    std::vector<std::uint64_t> result;
    Values values = labels(0);
    for (std::size_t level = 1; level <= depth; ++level) {
      Values next = labels(level % TermTable::kLabels);
      for (const TermTable::Role& role : terms_.roles) spread(next, values, role, role);
      for (const auto& [r, s] : kinds.crossed) spread(next, values, terms_.roles[r], terms_.roles[s]);
      values = std::move(next);
      result.push_back(total(values));
    }
    return result;
  }

  /// (4 terms, 24 terms)
  std::pair<std::uint64_t, std::uint64_t> closed(std::uint32_t u, std::uint32_t s) {
    const TermTable::Role *small = &terms_.roles[u], *large = &terms_.roles[s];
    if (small->count > large->count) std::swap(small, large);
    const std::pair<const void*, const void*> id{small->absent() ? nullptr : small,
                                                 large->absent() ? nullptr : large};
    // Around the cycle the labels take turns, so that it reads the same from either role.
    const auto known = cycles_.find(id);
    if (known != cycles_.end()) return known->second;
    const Matrix once = to_and_fro(*small, *large);
    const Matrix twice = product(once, once);
    const Matrix four = product(twice, twice);
    const Matrix eight = product(four, four);
    return cycles_[id] = {trace(once, once), trace(eight, four)};
  }

  /// From an element to another: the pairs of terms, labelled 0 and 1, that share an element of `over`.
  Matrix to_and_fro(const TermTable::Role& role, const TermTable::Role& over) const {
    const auto element = [](const TermTable::Role& of, std::size_t t) {
      return of.absent() ? std::size_t{0} : of.element[t];
    };
    std::vector<std::uint32_t> begin(over.count + 1, 0);
    for (std::size_t t = 0; t < terms_.size; ++t) ++begin[element(over, t) + 1];
    std::uint64_t pairs = 0;
    for (std::size_t e = 0; e < over.count; ++e) pairs += std::uint64_t{begin[e + 1]} * begin[e + 1];
    if (pairs > std::uint64_t{role.count} * role.count * over.count) {
      Matrix there(role.count, over.count), back(over.count, role.count);
      for (std::size_t t = 0; t < terms_.size; ++t) {
        const std::size_t i = element(role, t), j = element(over, t);
        there.row(i)[j] = add_mod(there.row(i)[j], label(0, t));
        back.row(j)[i] = add_mod(back.row(j)[i], label(1, t));
      }
      return product(there, back);
    }
    std::partial_sum(begin.begin(), begin.end(), begin.begin());
    std::vector<std::uint32_t> terms(terms_.size), next(begin.begin(), begin.end() - 1);
    for (std::uint32_t t = 0; t < terms_.size; ++t) terms[next[element(over, t)]++] = t;
    Matrix result(role.count, role.count);
    for (std::size_t e = 0; e < over.count; ++e) {
      for (std::uint32_t a = begin[e]; a < begin[e + 1]; ++a) {
        std::uint64_t* const row = result.row(element(role, terms[a]));
        for (std::uint32_t b = begin[e]; b < begin[e + 1]; ++b) {
          std::uint64_t& at = row[element(role, terms[b])];
          at = add_mod(at, multiply_mod(label(0, terms[a]), label(1, terms[b])));
        }
      }
    }
    return result;
  }

  std::uint64_t cross(std::uint32_t r, std::uint32_t s) const {
    const TermTable::Role &one = terms_.roles[r], &other = terms_.roles[s];
    Values values = labels(1);
    spread(values, labels(0), one, other);
    return total(values);
  }
  std::uint64_t loop(std::uint32_t r, std::uint32_t s) const {
    const TermTable::Role &one = terms_.roles[r], &other = terms_.roles[s];
    std::uint64_t sum = 0;
    for (std::size_t t = 0; t < terms_.size; ++t) {
      if (one.absent() || one.element[t] == other.element[t]) sum = add_mod(sum, label(0, t));
    }
    return sum;
  }

 private:
  const TermTable& terms_;
  std::map<std::uint32_t, TermTable::Role> joints_;
  std::map<std::uint32_t, std::uint64_t> pairs_;
  std::map<std::pair<int, int>, std::uint64_t> paths_;
  std::map<int, std::pair<Values, Values>> half_paths_;
  std::map<std::pair<const void*, const void*>, std::pair<std::uint64_t, std::uint64_t>> cycles_;
};

}  // namespace

std::uint64_t power_mod(std::uint64_t base, std::uint64_t exponent) {
  std::uint64_t result = 1;
  for (; exponent != 0; exponent >>= 1) {
    if (exponent & 1) result = multiply_mod(result, base);
    base = multiply_mod(base, base);
  }
  return result;
}

std::uint64_t from_integer(std::int64_t value) {
  return static_cast<std::uint64_t>(floor_modulo(value, static_cast<std::int64_t>(kPrime)));
}

PatternTable::PatternTable(const RoleKinds& kinds) : kinds_(kinds) {
  using Kind = Pattern::Kind;
  const auto n = static_cast<std::uint32_t>(kinds.count);
  patterns_.push_back({Kind::Single, 0, 0, 1});
  for (std::uint32_t set = 1; set < 1u << n; ++set) {
    const int size = std::popcount(set);
    if (n > 6 && size > 2 && size + 1 < static_cast<int>(n)) continue;
    patterns_.push_back({Kind::Pair, set, 0, 2});
  }
  for (std::uint32_t r = 0; r < n; ++r) {
    for (std::uint32_t s = 0; s < n; ++s) {
      if (r != s) patterns_.push_back({Kind::Path, r, s, 4});
    }
  }
  std::uint64_t nodes = 1;
  for (std::uint32_t depth = 1; depth <= kDepth; ++depth) {
    nodes = 1 + (kinds.count + kinds.crossed.size()) * nodes;
    patterns_.push_back({Kind::Tree, depth, 0, nodes});
  }
  for (std::uint32_t u = 0; u < n; ++u) {
    for (std::uint32_t s = 0; s < n; ++s) {
      if (u == s || !(kinds.cyclic >> u & 1)) continue;
      if ((kinds.cyclic >> s & 1) && s < u) continue;
      patterns_.push_back({Kind::Closed, u, s, 4});
      patterns_.push_back({Kind::Closed, u, s, 24});
    }
  }
  for (const auto& [r, s] : kinds.crossed) {
    patterns_.push_back({Kind::Cross, r, s, 2});
    patterns_.push_back({Kind::Loop, r, s, 1});
  }
}

std::vector<std::uint32_t> PatternTable::renamed(std::span<const std::uint32_t> order) const {
  const auto id = [](const Pattern& p) { return std::tuple{p.kind, p.a, p.b, p.terms}; };
  std::map<std::tuple<Pattern::Kind, std::uint32_t, std::uint32_t, std::uint64_t>, std::uint32_t> place;
  for (std::uint32_t i = 0; i < patterns_.size(); ++i) place[id(patterns_[i])] = i;
  std::vector<std::uint32_t> result;
  for (Pattern pattern : patterns_) {
    if (pattern.kind == Pattern::Kind::Pair) {
      std::uint32_t set = 0;
      for (std::uint32_t r = 0; r < order.size(); ++r) {
        if (pattern.a >> r & 1) set |= 1u << order[r];
      }
      pattern.a = set;
    } else if (pattern.kind != Pattern::Kind::Single && pattern.kind != Pattern::Kind::Tree) {
      pattern.a = order[pattern.a];
      pattern.b = order[pattern.b];
    }
    auto found = place.find(id(pattern));
    if (found == place.end()) {  // a cycle through two cyclic roles is listed once
      std::swap(pattern.a, pattern.b);
      found = place.find(id(pattern));
    }
    SYNO_ASSERT(found != place.end(), "patterns are closed under renaming roles of one kind");
    result.push_back(found->second);
  }
  return result;
}

void PatternTable::count(const TermTable& terms, std::vector<std::uint64_t>& out) const {
  using Kind = Pattern::Kind;
  SYNO_ASSERT(terms.roles.size() == kinds_.count, "every role is listed or absent");
  if (terms.size == 0) {
    out.insert(out.end(), patterns_.size(), 0);
    return;
  }
  Counter counter(terms);
  const auto trees = counter.trees(kinds_, kDepth);
  for (const Pattern& pattern : patterns_) {
    switch (pattern.kind) {
      case Kind::Single:
        out.push_back(counter.single());
        break;
      case Kind::Pair:
        out.push_back(counter.pair(pattern.a));
        break;
      case Kind::Path:
        out.push_back(counter.path(pattern.a, pattern.b));
        break;
      case Kind::Tree:
        out.push_back(trees[pattern.a - 1]);
        break;
      case Kind::Closed: {
        const auto [four, more] = counter.closed(pattern.a, pattern.b);
        out.push_back(pattern.terms == 4 ? four : more);
        break;
      }
      case Kind::Cross:
        out.push_back(counter.cross(pattern.a, pattern.b));
        break;
      case Kind::Loop:
        out.push_back(counter.loop(pattern.a, pattern.b));
        break;
    }
  }
}

}  // namespace syno::equality
