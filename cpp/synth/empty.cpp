#include "synth/empty.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "support/error.hpp"
#include "synth/enumerate.hpp"

namespace syno::synth {
namespace {

/// A spec with one constraint changed, and how to say what was changed once operators are known.
struct Change {
  Spec spec;
  std::function<std::string(const std::vector<Found>&)> words;
};

/// Times as many partial operators one step more may be expected to have.
constexpr std::uint64_t kMostGrowth = 16;

/// Ways to change one constraint, the nearest first.
using Ladder = std::vector<Change>;

std::string number(double value) {
  return value == kUnbounded ? std::string("unlimited") : fmt::format("{:.12g}", value);
}

/// A bound on the work: without it, then the operator that comes nearest tells the value.
Ladder bound(const Spec& spec, const char* name, double Budgets::* budget, double Work::* work, bool upper) {
  Change change{spec, {}};
  change.spec.budgets.*budget = upper ? kUnbounded : 0;
  const double now = spec.budgets.*budget;
  change.words = [=](const std::vector<Found>& found) {
    double nearest = found.front().work.*work;
    for (const Found& one : found)
      nearest = upper ? std::min(nearest, one.work.*work) : std::max(nearest, one.work.*work);
    return fmt::format("{} is at {} {} (now {})", name, upper ? "least" : "most", number(nearest),
                       number(now));
  };
  return {std::move(change)};
}

/// A count: one more each time, at last no limit.
Ladder count(const Spec& spec, const char* name, int Budgets::* budget, int most) {
  Ladder ladder;
  const int now = spec.budgets.*budget;
  if (now == kNoLimit) return ladder;
  for (int value = now + 1; value <= std::min(most, now + 3); ++value) {
    Change change{spec, [=](const auto&) { return fmt::format("{} is {} (now {})", name, value, now); }};
    change.spec.budgets.*budget = value;
    ladder.push_back(std::move(change));
  }
  return ladder;
}

Ladder limit(const Spec& spec, const char* name, double Budgets::* budget, std::vector<double> values) {
  Ladder ladder;
  const double now = spec.budgets.*budget;
  for (const double value : values) {
    Change change{spec, [=](const auto&) {
                    return fmt::format("{} is {} (now {})", name, number(value), number(now));
                  }};
    change.spec.budgets.*budget = value;
    ladder.push_back(std::move(change));
  }
  return ladder;
}

Ladder threshold(const Spec& spec, const char* name, double Thresholds::* which, double value) {
  const double now = spec.thresholds.*which;
  if (now == value) return {};
  Change change{
      spec, [=](const auto&) { return fmt::format("{} is {} (now {})", name, number(value), number(now)); }};
  change.spec.thresholds.*which = value;
  return {std::move(change)};
}

std::vector<Ladder> ladders(const Spec& spec) {
  const Budgets& b = spec.budgets;
  std::vector<Ladder> result = {
      bound(spec, "max_flops", &Budgets::max_flops, &Work::flops, true),
      bound(spec, "min_flops", &Budgets::min_flops, &Work::flops, false),
      bound(spec, "max_params", &Budgets::max_params, &Work::params, true),
      bound(spec, "max_bytes", &Budgets::max_bytes, &Work::bytes, true),
      count(spec, "max_weights", &Budgets::max_weights, 4),
      count(spec, "max_reductions", &Budgets::max_reductions, 8),
      count(spec, "max_merges", &Budgets::max_merges, 16),
      count(spec, "max_splits", &Budgets::max_splits, 16),
      count(spec, "max_strides", &Budgets::max_strides, 16),
      count(spec, "max_unfolds", &Budgets::max_unfolds, 16),
      count(spec, "max_chain", &Budgets::max_chain, 16),
      limit(spec, "max_reduction_ratio", &Budgets::max_reduction_ratio,
            {2 * b.max_reduction_ratio, 8 * b.max_reduction_ratio, kUnbounded}),
      limit(spec, "max_pooling", &Budgets::max_pooling, {2 * b.max_pooling, 8 * b.max_pooling, kUnbounded}),
      limit(spec, "min_weight_params", &Budgets::min_weight_params, {b.min_weight_params / 8, 1}),
      threshold(spec, "unfold_ratio", &Thresholds::unfold_ratio, 1),
      threshold(spec, "max_window", &Thresholds::max_window, kUnbounded),
      threshold(spec, "max_matched", &Thresholds::max_matched, kUnbounded),
  };
  for (std::size_t v = 0; v < spec.occurrences.size(); ++v) {
    Ladder ladder;
    const int now = spec.occurrences[v];
    for (int value = now + 1; value <= std::min(8, now + 3); ++value) {
      const std::string name = spec.signature.sizes.variables()[v].name;
      Change change{spec, [=](const auto&) {
                      return fmt::format("variable '{}' may occur {} times (now {})", name, value, now);
                    }};
      change.spec.occurrences[v] = value;
      ladder.push_back(std::move(change));
    }
    result.push_back(std::move(ladder));
  }
  for (const std::string_view name : extension_names()) {
    if (spec.extensions.contains(name)) continue;
    Change change{spec, [=](const auto&) { return fmt::format("extension '{}' is on", name); }};
    change.spec.extensions.emplace(name);
    result.push_back({std::move(change)});
  }
  return result;
}

}  // namespace

std::optional<std::string> why_empty(const Spec& spec, int max_steps, std::uint64_t most_children,
                                     const std::function<void()>& poll) {
  check(spec);
  const int asked = max_steps > 0 ? max_steps : spec.budgets.max_steps;
  std::uint64_t children = 0;
  const auto found_in = [&](const Spec& changed, int steps) {
    try {
      check(changed);
    } catch (const SpecError&) {
      return std::vector<Found>{};
    }
    EnumerationOptions options;
    options.max_steps = steps;
    // Those of one step are few, and looked at whole.
    if (steps > 1) options.most_children = most_children - std::min(children, most_children - 1);
    options.poll = poll;
    Enumeration found = enumerate(changed, options);
    children += found.statistics.children;
    if (found.statistics.truncated) children = std::max(children, most_children);
    return std::move(found.operators);
  };
  std::vector<std::string> remedies;
  const auto steps_in_words = [](int steps) {
    return fmt::format("{} step{}", steps, steps == 1 ? "" : "s");
  };
  int steps = 1;
  for (; steps <= asked && remedies.empty() && children < most_children; ++steps) {
    if (!found_in(spec, steps).empty()) return std::nullopt;
    if (steps > 1 && children >= most_children) break;  // in the middle of them
    for (const Ladder& ladder : ladders(spec)) {
      for (const Change& change : ladder) {
        if (change.spec == spec) continue;  // the limit is none already
        const std::vector<Found> found = found_in(change.spec, steps);
        if (found.empty()) continue;
        remedies.push_back(change.words(found));
        break;
      }
      if (children >= most_children) break;
    }
  }
  const int looked = steps - 1;
  for (int more = asked + 1; more <= std::min(asked + 3, 16) && children < most_children && looked == asked;
       ++more) {
    Spec longer = spec;
    longer.budgets.max_steps = more;
    if (found_in(longer, more).empty()) continue;
    remedies.push_back(fmt::format("max_steps is {} (now {})", more, asked));
    break;
  }
  // Advice is found at the first few steps; that there is nothing further on takes far longer, and may take
  // too long.
  int deep = looked;
  for (std::uint64_t last = 0, before = 0; deep < asked && children < most_children;) {
    const std::uint64_t growth = before == 0 ? 1 : std::clamp<std::uint64_t>(last / before, 1, kMostGrowth);
    if (children + last * growth > most_children) break;
    const std::uint64_t until = children;
    if (!found_in(spec, deep + 1).empty()) return std::nullopt;
    if (children >= most_children) break;
    ++deep;
    before = std::exchange(last, children - until);
  }
  const bool whole = deep == asked;
  const std::string start =
      whole ? fmt::format("The space of '{}' is empty: no operator of at most {} meets all its limits.",
                          spec.name, steps_in_words(asked))
            : fmt::format(
                  "The space of '{}' is empty as far as it was searched: no operator of at most {}, "
                  "of {} allowed, meets all its limits.",
                  spec.name, steps_in_words(deep), asked);
  if (!remedies.empty()) {
    return fmt::format("{} Each of these alone lets some in: {}.", start, fmt::join(remedies, "; "));
  }
  return fmt::format(
      "{} No single limit is to blame, as far as {} tell: compare output and input, and raise "
      "several limits at once.",
      start, steps_in_words(looked));
}

}  // namespace syno::synth
