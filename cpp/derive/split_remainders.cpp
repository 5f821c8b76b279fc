// A sum that runs with a stride, in parts: of a window of three taps at every other place, the first and the
// last tap read one half of the data and the tap between them the other half. So a strided convolution is a
// sum of dense ones, each over as many taps as it has, with none that are 0 beside them.
#include <algorithm>

#include "derive/forms.hpp"
#include "derive/moved.hpp"
#include "derive/tools.hpp"
#include "support/error.hpp"

namespace syno::derive {

namespace {

constexpr std::int64_t kMostParts = 16;  ///< of one scope: four by four

/// The sum at a position, in `factor` parts: r = factor * q + remainder.
struct Cut {
  std::size_t sum = 0;
  std::int64_t factor = 1;
};

Site site_of(const Program& program, const Scope& scope, const std::vector<Cut>& cuts) {
  Site site{name_of(program, scope), {}, {}, {}};
  for (const Cut& cut : cuts) {
    site.iterator += (site.iterator.empty() ? "" : ",") + scope.sums[cut.sum].name;
    site.numbers.insert(site.numbers.end(), {static_cast<std::int64_t>(cut.sum), cut.factor});
  }
  return site;
}

}  // namespace

std::vector<Site> find_remainders(const Program& program, std::size_t at) {
  const Scope& scope = program.scopes[at];
  if (scope.reduction != program::Reduction::Sum || !scope.target.empty()) return {};
  std::vector<Site> found;
  std::vector<Cut> all;
  std::int64_t parts = 1;
  const std::vector<DividedForm> indices = forms_in(program, scope.body);
  for (std::size_t k = 0; k < scope.sums.size(); ++k) {
    const Iterator& r = scope.sums[k];
    if (!named_once(scope, r) || !meets(program, indices, r, scope.traversal)) continue;
    const auto [begin, end] = range_of(program, r.range);
    std::vector<std::int64_t> factors = suggested_factors(program, indices, r);
    std::sort(factors.begin(), factors.end());
    factors.erase(std::unique(factors.begin(), factors.end()), factors.end());
    // Where all remainders have as many terms they are one iterator, which `split_iterator` makes.
    std::erase_if(factors, [extent = end - begin](std::int64_t f) {
      return f < 2 || f >= extent || extent % f == 0 || f > kMostParts;
    });
    for (const std::int64_t f : factors) found.push_back(site_of(program, scope, {{k, f}}));
    if (factors.empty() || parts * factors[0] > kMostParts) continue;
    parts *= factors[0];
    all.push_back({k, factors[0]});
  }
  if (all.size() > 1) found.push_back(site_of(program, scope, all));
  return found;
}

void split_remainders(Program& program, const Site& site) {
  std::size_t at = place_of(program, rewrite_named("split_remainders"), site);
  auto& arena = program.arena;
  const Scope scope = program.scopes[at];
  std::vector<Cut> cuts;
  std::int64_t parts = 1;
  for (std::size_t n = 0; n + 1 < site.numbers.size(); n += 2) {
    cuts.push_back({static_cast<std::size_t>(site.numbers[n]), site.numbers[n + 1]});
    parts *= site.numbers[n + 1];
  }
  std::vector<ExprId> places;
  for (const Iterator& i : scope.traversal) places.push_back(arena.iterator(i.slot));
  ScalarId whole{};
  for (std::int64_t part = 0; part < parts; ++part) {
    Scope made = scope;
    std::vector<std::pair<std::uint32_t, ExprId>> values;
    made.traversal = copies_of(program, scope.traversal, values);
    std::int64_t left = part;
    std::vector<std::int64_t> remainders(scope.sums.size(), 0), factors(scope.sums.size(), 1);
    for (auto cut = cuts.rbegin(); cut != cuts.rend(); ++cut) {
      factors[cut->sum] = cut->factor;
      remainders[cut->sum] = left % cut->factor;
      left /= cut->factor;
    }
    made.sums.clear();
    for (std::size_t k = 0; k < scope.sums.size(); ++k) {
      const Iterator& r = scope.sums[k];
      const auto [begin, end] = range_of(program, r.range);
      const std::int64_t f = factors[k], first = begin + remainders[k];
      if (f == 1) {
        made.sums.push_back(copies_of(program, {r}, values)[0]);
        continue;
      }
      ExprId value = arena.constant(first);
      if (const std::int64_t count = (end - first + f - 1) / f; count > 1) {
        made.sums.push_back(program.new_iterator(r.name, make_range(program, 0, count)));
        value = arena.add(arena.multiply(arena.iterator(made.sums.back().slot), f), value);
      }
      values.emplace_back(r.slot, value);
    }
    if (made.sums.empty()) made.reduction = program::Reduction::None;
    made.body = program::with_iterators(program, scope.body, values);
    made.output =
        add_computed(program, derived_name(program, {site.scope, {}, {}, {}}, "part"), made.traversal);
    const ScalarId read = program.read(made.output, places);
    whole = part == 0 ? read : program.binary(Function::Add, whole, read);
    program.scopes.insert(program.scopes.begin() + static_cast<std::ptrdiff_t>(at), std::move(made));
    simplify_scope(program, at++);
  }
  program.scopes[at].sums.clear();
  program.scopes[at].reduction = program::Reduction::None;
  program.scopes[at].body = whole;
}

}  // namespace syno::derive
