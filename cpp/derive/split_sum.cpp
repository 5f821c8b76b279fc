// Sums in two steps, and back: what a convolution needs to become a product of matrices whose results are
// added at offsets.
#include <algorithm>

#include "derive/moved.hpp"
#include "derive/tools.hpp"
#include "support/error.hpp"

namespace syno::derive {

namespace {

constexpr std::size_t kMostSums = 5;  ///< of which all subsets are tried; of more, single ones

/// By position, the sums that stay outside.
using Subset = std::vector<std::int64_t>;

std::vector<Subset> subsets(std::size_t sums) {
  std::vector<Subset> found;
  if (sums < 2) return found;
  const auto add = [&](std::uint64_t mask) {
    Subset subset;
    for (std::size_t k = 0; k < sums; ++k)
      if (mask >> k & 1) subset.push_back(static_cast<std::int64_t>(k));
    found.push_back(std::move(subset));
  };
  if (sums <= kMostSums) {
    for (std::uint64_t mask = 1; mask + 1 < std::uint64_t{1} << sums; ++mask) add(mask);
  } else if (sums < 64) {
    const std::uint64_t all = (std::uint64_t{1} << sums) - 1;
    for (std::size_t k = 0; k < sums; ++k) {
      add(std::uint64_t{1} << k);
      add(all ^ std::uint64_t{1} << k);
    }
  }
  return found;
}

std::string names_of(const Iterators& iterators, const Subset& subset) {
  std::vector<std::string> names;
  for (const std::int64_t k : subset) names.push_back(iterators[static_cast<std::size_t>(k)].name);
  return fmt::format("{}", fmt::join(names, ","));
}

}  // namespace

std::vector<Site> find_sum_splits(const Program& program, std::size_t at) {
  const Scope& scope = program.scopes[at];
  if (scope.reduction == program::Reduction::None || !scope.target.empty()) return {};
  std::vector<Site> found;
  for (Subset& subset : subsets(scope.sums.size())) {
    std::string names = names_of(scope.sums, subset);
    found.push_back({name_of(program, scope), std::move(names), {}, {}, std::move(subset)});
  }
  return found;
}

void split_sum(Program& program, const Site& site) {
  const std::size_t at = place_of(program, rewrite_named("split_sum"), site);
  const std::string name = derived_name(program, site, "terms");
  Scope terms = program.scopes[at];
  Iterators outer, inner;
  for (std::size_t k = 0; k < terms.sums.size(); ++k) {
    const bool stays = std::find(site.numbers.begin(), site.numbers.end(), static_cast<std::int64_t>(k)) !=
                       site.numbers.end();
    (stays ? outer : inner).push_back(terms.sums[k]);
  }
  // What the terms do not depend on is not one of their dimensions.
  Iterators points = outer;
  points.insert(points.end(), terms.traversal.begin(), terms.traversal.end());
  std::erase_if(points, [&](const Iterator& i) { return !depends_on(program, terms.body, i.slot); });
  std::vector<ExprId> places;
  for (const Iterator& point : points) places.push_back(program.arena.iterator(point.slot));
  std::vector<std::pair<std::uint32_t, ExprId>> moved;
  terms.traversal = copies_of(program, points, moved);
  terms.sums = std::move(inner);
  terms.body = program::with_iterators(program, terms.body, moved);
  terms.output = add_computed(program, name, terms.traversal);
  Scope& whole = program.scopes[at];
  whole.sums = std::move(outer);
  whole.body = program.read(terms.output, std::move(places));
  program.scopes.insert(program.scopes.begin() + static_cast<std::ptrdiff_t>(at), std::move(terms));
}

namespace {

/// The one read of a scope's result, in a product of its reader.
struct OnlyRead {
  std::size_t reader = 0;
  ScalarId read{};
};

std::optional<OnlyRead> only_read(const Program& program, TensorId tensor) {
  if (is_output(program, tensor)) return std::nullopt;
  std::optional<OnlyRead> found;
  for (std::size_t s = 0; s < program.scopes.size(); ++s) {
    const std::int64_t count = program::count_reads(program, program.scopes[s].body, tensor);
    if (count == 0) continue;
    if (count > 1 || found) return std::nullopt;
    for (const ScalarId factor : program::factors_of(program, program.scopes[s].body))
      if (program.scalar(factor).kind == ScalarKind::Read && program.scalar(factor).tensor == tensor)
        found = {s, factor};
    if (!found) return std::nullopt;
  }
  return found;
}

bool never_outside(const Program& program, const Scope& producer, const Scalar& read) {
  const auto context = program::context_of(program);
  for (std::size_t d = 0; d < read.indices.size(); ++d) {
    if (program.arena.has_inside(read.indices[d])) return false;
    const auto [begin, end] = range_of(program, producer.traversal[d].range);
    const symbolic::Interval reach = symbolic::bounds(program.arena, read.indices[d], context, 0);
    if (reach.least < begin || reach.greatest >= end) return false;
  }
  return true;
}

std::optional<OnlyRead> mergeable(const Program& program, std::size_t at) {
  const Scope& producer = program.scopes[at];
  if (producer.sums.empty() || !producer.target.empty()) return std::nullopt;
  const auto found = only_read(program, producer.output);
  if (!found) return std::nullopt;
  const Scope& reader = program.scopes[found->reader];
  if (!reader.target.empty()) return std::nullopt;
  const bool product = reader.body != found->read;
  const bool linear =
      producer.reduction == program::Reduction::Sum || producer.reduction == program::Reduction::Mean;
  const bool none = reader.reduction == program::Reduction::None;
  if (!none && reader.reduction != producer.reduction) return std::nullopt;
  if (product && !linear) return std::nullopt;
  // Outside the producer the reader takes its fill once, and would then take it a term.
  const Rational fill = program.scalar(found->read).fill;
  const bool harmless = producer.reduction != program::Reduction::Product &&
                        (producer.reduction != program::Reduction::Sum || fill == Rational(0));
  if (!harmless && !never_outside(program, producer, program.scalar(found->read))) return std::nullopt;
  return found;
}

}  // namespace

std::vector<Site> find_sum_merges(const Program& program, std::size_t at) {
  const auto found = mergeable(program, at);
  if (!found) return {};
  return {{name_of(program, program.scopes[at]), {}, name_of(program, program.scopes[found->reader]), {}}};
}

void merge_sum(Program& program, const Site& site) {
  const std::size_t at = place_of(program, rewrite_named("merge_sum"), site);
  const OnlyRead read = *mergeable(program, at);
  const Scope producer = program.scopes[at];
  const ScalarId value = in_place_of(program, producer, program.scalar(read.read));
  const ScalarId body = program::rebuild(program, program.scopes[read.reader].body, [&](ScalarId id) {
    return id == read.read ? std::optional(value) : std::nullopt;
  });
  Scope& reader = program.scopes[read.reader];
  reader.body = body;
  reader.reduction = producer.reduction;
  for (Iterator sum : producer.sums) {
    sum.name = fresh_iterator_name(reader, sum.name);
    reader.sums.push_back(std::move(sum));
  }
  program.scopes.erase(program.scopes.begin() + static_cast<std::ptrdiff_t>(at));
  simplify_scope(program, read.reader - 1);
}

}  // namespace syno::derive
