#include "equality/small_sizes.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <span>

#include "support/error.hpp"
#include "support/rational.hpp"

namespace syno::equality {
namespace {

using symbolic::Sizes;
using symbolic::VariableKind;

using Row = std::vector<std::int64_t>;
using Exponents = std::vector<int>;

constexpr std::int64_t kKept = 7;    ///< values that never change stay, up to this
constexpr std::int64_t kSmall = 12;  ///< sizes with no greater value are used as they are
constexpr int kMostExponents = 3;    ///< sum of |exponents| of the monomials that are kept in mind

/// Calls `visit` with every vector of `count` exponents within [-most, most] of at most kMostExponents in
/// all.
void every_monomial(std::size_t count, int most, const std::function<void(const Exponents&)>& visit) {
  Exponents exponents(count, 0);
  const auto fill = [&](auto&& self, std::size_t at, int left) -> void {
    if (at == count) {
      visit(exponents);
      return;
    }
    for (int e = -std::min(most, left); e <= std::min(most, left); ++e) {
      exponents[at] = e;
      self(self, at + 1, left - std::abs(e));
    }
    exponents[at] = 0;
  };
  fill(fill, 0, kMostExponents);
}

Rational value(const Row& row, std::span<const std::size_t> variables, const Exponents& exponents) {
  Rational result = 1;
  for (std::size_t i = 0; i < variables.size(); ++i) {
    for (int e = 0; e < std::abs(exponents[i]); ++e) {
      const Rational factor(row[variables[i]]);
      result = exponents[i] > 0 ? result * factor : result / factor;
    }
  }
  return result;
}

class Shrinking {
 public:
  explicit Shrinking(const Sizes& sizes) : sizes_(sizes) {
    for (std::size_t v = 0; v < sizes.valuation_count(); ++v) {
      const auto row = sizes.valuation(v);
      real_.emplace_back(row.begin(), row.end());
    }
    std::sort(real_.begin(), real_.end());
    real_.erase(std::unique(real_.begin(), real_.end()), real_.end());
    for (std::size_t i = 0; i < sizes.variables().size(); ++i) {
      (sizes.variables()[i].kind == VariableKind::Coefficient ? coefficients_ : primaries_).push_back(i);
    }
    std::stable_sort(primaries_.begin(), primaries_.end(),
                     [&](std::size_t a, std::size_t b) { return real_.front()[a] < real_.front()[b]; });
  }

  bool is_small() const {
    return std::all_of(real_.begin(), real_.end(), [](const Row& row) {
      return std::all_of(row.begin(), row.end(), [](std::int64_t v) { return v <= kSmall; });
    });
  }

  std::vector<Row> rows() {
    if (is_small()) {
      std::vector<Row> result{real_.front()};
      if (real_.size() > 1) result.push_back(real_.back());
      return result;
    }
    std::vector<Row> result;
    for (const std::size_t number : {0u, 1u}) {
      Row row(sizes_.variables().size(), 1);
      choose_coefficients(row, number);
      choose_primaries(row, number == 0 ? nullptr : &result.front());
      if (std::find(result.begin(), result.end(), row) == result.end()) result.push_back(std::move(row));
    }
    return result;
  }

 private:
  bool never_changes(std::size_t variable) const {
    return std::all_of(real_.begin(), real_.end(),
                       [&](const Row& row) { return row[variable] == real_.front()[variable]; });
  }
  template <class Predicate>
  bool everywhere(Predicate holds) const {
    return std::all_of(real_.begin(), real_.end(), holds);
  }

  /// Large ones become small ones of the same parity that keep every relation; those of the second valuation
  /// are others where there are.
  void choose_coefficients(Row& row, std::size_t number) const {
    const Row& like = number == 0 ? real_.front() : real_.back();
    std::vector<std::size_t> order = coefficients_;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return like[a] < like[b]; });
    for (const std::size_t c : coefficients_) row[c] = like[c];
    const auto large = static_cast<std::size_t>(
        std::find_if(order.begin(), order.end(), [&](std::size_t c) { return like[c] > kKept; }) -
        order.begin());
    if (large == order.size()) return;
    int effort = 2000;
    const Row* other = nullptr;
    const auto assign = [&](auto&& self, std::size_t at, std::int64_t least) -> bool {
      if (at == order.size()) return true;
      const std::size_t c = order[at];
      for (std::int64_t candidate = least + (least + like[c]) % 2; candidate <= like[c]; candidate += 2) {
        // Each is another one: what two coefficients happen to be to each other in one valuation they are not
        // in both.
        if (other != nullptr && (*other)[c] == candidate) continue;
        row[c] = candidate;
        if (--effort < 0) return false;
        if (keeps_relations(row, std::span(order).first(at + 1)) && self(self, at + 1, 4)) return true;
      }
      return false;
    };
    if (!assign(assign, large, 4)) {
      for (const std::size_t c : coefficients_) row[c] = like[c];
      return;
    }
    if (number == 0) return;
    const Row first = row;
    other = &first;
    if (!assign(assign, large, row[order[large]] + 1)) row = first;
  }

  bool keeps_relations(const Row& row, std::span<const std::size_t> variables) const {
    bool kept = true;
    every_monomial(variables.size(), kMostExponents, [&](const Exponents& exponents) {
      if (!kept || exponents.back() == 0) return;
      const Rational here = value(row, variables, exponents);
      const auto real = [&](auto holds) {
        return everywhere([&](const Row& r) { return holds(value(r, variables, exponents)); });
      };
      if (!here.integral() && real([](Rational v) { return v.integral(); })) kept = false;
      const int powers = std::accumulate(exponents.begin(), exponents.end(), 0,
                                         [](int sum, int e) { return sum + std::abs(e); });
      if (powers < kMostExponents && here == Rational(1) &&
          real([](Rational v) { return v != Rational(1); })) {
        kept = false;
      }
      if (here != Rational(1) && real([](Rational v) { return v == Rational(1); })) kept = false;
    });
    return kept;
  }

  /// Small multiples of what divides them, different from each other. Those beside `other` come the other way
  /// round, so that ratios differ, and grow until nothing is one at both that is not one everywhere.
  void choose_primaries(Row& row, const Row* other) const {
    std::vector<std::int64_t> base(row.size(), 1);
    std::vector<std::size_t> order = primaries_;
    if (other) std::reverse(order.begin(), order.end());
    for (auto at = order.begin(); at != order.end(); ++at) {
      const std::size_t p = *at;
      const auto equal = std::find_if(order.begin(), at, [&](std::size_t q) {
        return everywhere([&](const Row& r) { return r[p] == r[q]; });
      });
      if (equal != at) {
        row[p] = row[*equal];
        base[p] = base[*equal];
        continue;
      }
      if (never_changes(p) && real_.front()[p] <= kKept) {
        row[p] = real_.front()[p];
        continue;
      }
      every_monomial(coefficients_.size(), kMostExponents, [&](const Exponents& exponents) {
        const bool divides = everywhere(
            [&](const Row& r) { return (Rational(r[p]) / value(r, coefficients_, exponents)).integral(); });
        if (divides) base[p] = std::lcm(base[p], value(row, coefficients_, exponents).num());
      });
      std::int64_t least = 4;
      for (const std::size_t c : coefficients_) {
        if (everywhere([&](const Row& r) { return r[p] >= 2 * r[c]; })) least = std::max(least, 2 * row[c]);
      }
      row[p] = (least + base[p] - 1) / base[p] * base[p];
      while (std::any_of(order.begin(), at, [&](std::size_t q) { return row[q] == row[p]; }))
        row[p] += base[p];
    }
    for (int growth = 0; growth < 64; ++growth) {
      std::optional<std::size_t> wanting = indivisible(row);
      if (!wanting && other) wanting = coincident(row, *other);
      if (!wanting) return;
      const std::size_t grown = *wanting;
      for (const std::size_t p : primaries_) {
        if (p != grown && everywhere([&](const Row& r) { return r[p] == r[grown]; })) row[p] += base[grown];
      }
      row[grown] += base[grown];
    }
  }

  /// A primary variable to enlarge, where a product of two has divisors that it has at every valuation but
  /// not at `row`.
  std::optional<std::size_t> indivisible(const Row& row) const {
    std::optional<std::size_t> result;
    for (const std::size_t p : primaries_) {
      for (const std::size_t q : primaries_) {
        if (p >= q || result) continue;
        every_monomial(coefficients_.size(), kMostExponents, [&](const Exponents& exponents) {
          const auto product = [&](const Row& r) {
            return Rational(r[p]) * Rational(r[q]) / value(r, coefficients_, exponents);
          };
          if (result || product(row).integral()) return;
          if (everywhere([&](const Row& r) { return product(r).integral(); })) result = smaller(row, p, q);
        });
      }
    }
    return result;
  }
  static std::size_t smaller(const Row& row, std::size_t p, std::size_t q) { return row[q] < row[p] ? q : p; }

  /// A primary variable to change, where a quotient of two, or one, times coefficients is one at both rows
  /// but not at every valuation.
  std::optional<std::size_t> coincident(const Row& row, const Row& other) const {
    std::optional<std::size_t> result;
    const auto look = [&](std::size_t p, std::optional<std::size_t> q) {
      every_monomial(coefficients_.size(), kMostExponents, [&](const Exponents& exponents) {
        if (result) return;
        const auto is_one = [&](const Row& r) {
          return Rational(r[p]) == Rational(q ? r[*q] : 1) * value(r, coefficients_, exponents);
        };
        if (is_one(row) && is_one(other) && !everywhere(is_one)) result = q ? smaller(row, p, *q) : p;
      });
    };
    for (const std::size_t p : primaries_) {
      if (never_changes(p) && real_.front()[p] <= kKept) continue;
      look(p, std::nullopt);
      for (const std::size_t q : primaries_) {
        // Where both are always equal, to grow them leaves their quotient as it is.
        if (p != q && !everywhere([&](const Row& r) { return r[p] == r[q]; })) look(p, q);
      }
    }
    return result;
  }

  const Sizes& sizes_;
  std::vector<Row> real_;  ///< different ones
  std::vector<std::size_t> coefficients_, primaries_;
};

}  // namespace

Sizes small_sizes(const Sizes& sizes) {
  if (sizes.valuation_count() == 0) {
    fail<SpecError>("operator_key",
                    "the program's sizes have no valuation yet; give its variables values first");
  }
  if (sizes.variables().empty()) return sizes;
  return Sizes(sizes.variables(), Shrinking(sizes).rows());
}

}  // namespace syno::equality
