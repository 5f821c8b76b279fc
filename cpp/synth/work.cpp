#include "synth/work.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <vector>

namespace syno::synth {
namespace {

using P = pgraph::Primitive;

constexpr std::size_t kMaxReduces = 8;

struct Plan {
  std::size_t letters = 0;
  std::array<std::uint32_t, kMaxSteps> above{};  ///< steps that must be undone before this one can be
  std::array<SizeNumber, kMaxSteps> increase{};  ///< factor by which undoing a step enlarges the data
  std::array<SizeNumber, kMaxSteps> decrease{};  ///< Stride: factor by which it shrinks
  std::uint32_t contractions = 0;
  std::uint32_t views =
      0;  ///< steps that only name elements anew or, as a Stride does, skip some; 0 without any
  std::array<std::uint8_t, kMaxReduces> reduce{};
  std::size_t reduces = 0;

  /// With the views that nothing above keeps from being undone: what a Stride skips is never computed.
  std::uint32_t with_free_views(std::uint32_t undone) const {
    for (std::size_t t = letters; views != 0 && t-- > 0;) {
      if ((views >> t & 1) != 0 && (above[t] & ~undone) == 0) undone |= 1U << t;
    }
    return undone;
  }
};

bool consumes(const Letter& letter, const State& state, Coordinate coordinate) {
  if (letter.primitive != P::Contraction)
    return letter.a == coordinate || (letter.b != 0 && letter.b == coordinate);
  const WeightRecord& weight = state.weights[letter.weight];
  return std::find(weight.outer.begin(), weight.outer.begin() + weight.outer_count, coordinate) !=
         weight.outer.begin() + weight.outer_count;
}

bool touches(const Letter& letter, const State& state, Coordinate coordinate) {
  if (consumes(letter, state, coordinate)) return true;
  if (letter.primitive != P::Contraction) return false;
  const WeightRecord& weight = state.weights[letter.weight];
  return std::find(weight.inner.begin(), weight.inner.begin() + weight.inner_count, coordinate) !=
         weight.inner.begin() + weight.inner_count;
}

Plan plan_of(const State& state, const CoordinatePool& pool, SizePool& sizes) {
  Plan plan;
  plan.letters = state.step_count;
  bool strides = false;
  for (std::size_t t = state.step_count; t-- > 0;) {
    const Letter& letter = state.path[t];
    std::uint32_t above = 0;
    for (std::size_t u = t + 1; u < state.step_count; ++u) {
      const Letter& later = state.path[u];
      bool on_top = false;
      if (letter.primitive == P::Contraction) {
        const WeightRecord& weight = state.weights[letter.weight];
        for (std::size_t k = 0; k < weight.inner_count; ++k)
          on_top = on_top || consumes(later, state, weight.inner[k]);
      } else {
        on_top = (letter.first != 0 && touches(later, state, letter.first)) ||
                 (letter.second != 0 && touches(later, state, letter.second));
      }
      if (on_top) above |= plan.above[u] | 1U << u;
    }
    plan.above[t] = above;
    switch (letter.primitive) {
      case P::Unfold:
        plan.increase[t] = pool[letter.b].extent;
        break;
      case P::Expand:
        plan.increase[t] = pool[letter.a].extent;
        break;
      case P::Stride:
        plan.decrease[t] = letter.parameter;
        break;
      case P::Contraction: {
        plan.contractions |= 1U << t;
        const WeightRecord& weight = state.weights[letter.weight];
        for (std::size_t k = 0; k < weight.outer_count; ++k) {
          plan.increase[t] = sizes.times(plan.increase[t], pool[weight.outer[k]].extent);
        }
        break;
      }
      default:
        break;
    }
    const bool view = letter.primitive != P::Reduce && letter.primitive != P::Contraction &&
                      letter.primitive != P::Unfold && letter.primitive != P::Expand;
    if (view) plan.views |= 1U << t;
    strides = strides || letter.primitive == P::Stride;
  }
  if (!strides) plan.views = 0;  // nothing to skip
  for (std::size_t t = 0; t < state.step_count && plan.reduces < kMaxReduces; ++t) {
    if (state.path[t].primitive == P::Reduce) plan.reduce[plan.reduces++] = static_cast<std::uint8_t>(t);
  }
  return plan;
}

}  // namespace

WorkModel::WorkModel(SizePool& sizes, SizeNumber input_elements, std::vector<SizeNumber> further_elements,
                     SizeNumber output_elements)
    : sizes_(sizes),
      input_(input_elements),
      further_(std::move(further_elements)),
      output_(output_elements) {}

double WorkModel::params(const State& state, const CoordinatePool& pool) {
  double total = 0;
  for (std::size_t w = 0; w < state.weight_count; ++w) {
    const WeightRecord& weight = state.weights[w];
    if (weight.source != 0) continue;
    SizeNumber product = kOne;
    for (std::size_t k = 0; k < weight.inner_count; ++k)
      product = sizes_.times(product, pool[weight.inner[k]].extent);
    for (std::size_t k = 0; k < weight.outer_count; ++k)
      product = sizes_.times(product, pool[weight.outer[k]].extent);
    for (std::size_t v = 0; v < sizes_.valuation_count(); ++v)
      total += sizes_.weight(v) * sizes_.value(product, v);
  }
  return total;
}

double WorkModel::weighted(SizeNumber size) {
  if (size >= weighted_.size()) weighted_.resize(size + 1, -1);
  double& sum = weighted_[size];
  if (sum < 0) {
    sum = 0;
    for (std::size_t v = 0; v < sizes_.valuation_count(); ++v)
      sum += sizes_.weight(v) * sizes_.value(size, v);
  }
  return sum;
}

/// Dynamic programme over (Reduces performed, contractions performed). A stage performs some Reduces with all
/// the steps above them, or one contraction alone.
double WorkModel::best_plan(const State& state, const CoordinatePool& pool, bool complete,
                            double* intermediates) {
  const Plan plan = plan_of(state, pool, sizes_);
  const auto elements = [&](std::uint32_t undone, std::uint32_t reduced_mask) {
    PackedSize size = sizes_[input_].packed;
    for (std::size_t t = 0; t < plan.letters; ++t) {
      if ((undone >> t & 1) != 0)
        size = size * sizes_[plan.increase[t]].packed / sizes_[plan.decrease[t]].packed;
    }
    for (std::size_t r = 0; r < plan.reduces; ++r) {
      if ((reduced_mask >> r & 1) != 0) size = size / sizes_[state.path[plan.reduce[r]].parameter].packed;
    }
    return weighted(sizes_.intern(size));
  };
  struct Entry {
    std::uint32_t reduced;
    std::uint32_t undone;
    double cost;
    double stored;
    double last;  ///< of what is stored: the result of the last stage so far
  };
  // States in the order of growing sets; few enough to scan (2^reduces * 2^weights at most).
  static thread_local std::vector<Entry> entries;
  entries.clear();
  entries.push_back({0, plan.with_free_views(0), 0, 0, 0});
  const std::uint32_t all_reduces = (1U << plan.reduces) - 1;
  double best = std::numeric_limits<double>::infinity();
  double best_stored = 0;
  const auto reach = [&](std::uint32_t reduced, std::uint32_t undone, double cost, double stored,
                         double last) {
    for (Entry& entry : entries) {
      if (entry.reduced == reduced && entry.undone == undone) {
        if (cost < entry.cost) {
          entry.cost = cost;
          entry.stored = stored;
          entry.last = last;
        }
        return;
      }
    }
    entries.push_back({reduced, undone, cost, stored, last});
  };
  const auto contractions_in = [&](std::uint32_t letters) {
    return std::popcount(letters & plan.contractions);
  };
  // Every transition performs more, so processing by (reduces, contractions) performed visits causes first.
  for (int level = 0; level <= static_cast<int>(kMaxReduces + kMaxWeights); ++level) {
    for (std::size_t e = 0; e < entries.size(); ++e) {
      const Entry from = entries[e];
      if (std::popcount(from.reduced) + contractions_in(from.undone) != level) continue;
      if (from.reduced == all_reduces) {
        double cost = from.cost;
        double stored = from.stored;
        if (complete) {
          const std::uint32_t everything = plan.letters == 0 ? 0 : (1U << plan.letters) - 1;
          std::uint32_t rest = everything & ~from.undone;
          for (const std::uint8_t r : plan.reduce) rest &= ~(plan.reduces > 0 ? 1U << r : 0U);
          if (contractions_in(rest) > 0)
            cost += elements(from.undone | rest, from.reduced) * contractions_in(rest);
          else
            stored -= from.last;  // the result of the last stage is the output
        }
        if (cost < best) {
          best = cost;
          best_stored = stored;
        }
      }
      for (std::uint32_t set = (all_reduces & ~from.reduced); set != 0;
           set = (set - 1) & (all_reduces & ~from.reduced)) {
        std::uint32_t undone = from.undone;
        for (std::size_t r = 0; r < plan.reduces; ++r) {
          if ((set >> r & 1) != 0) undone |= plan.above[plan.reduce[r]];
        }
        undone = plan.with_free_views(undone);
        const int tensors = std::max(contractions_in(undone & ~from.undone), 1);
        const std::uint32_t reduced = from.reduced | set;
        const double made = intermediates != nullptr ? elements(undone, reduced) : 0;
        reach(reduced, undone, from.cost + elements(undone, from.reduced) * tensors, from.stored + made,
              made);
      }
      for (std::size_t t = 0; t < plan.letters; ++t) {
        if ((plan.contractions >> t & 1) == 0 || (from.undone >> t & 1) != 0) continue;
        const std::uint32_t undone = plan.with_free_views(from.undone | plan.above[t] | 1U << t);
        const int tensors = std::max(contractions_in(undone & ~from.undone), 1);
        if (tensors > 1) continue;  // a smaller stage comes first
        const double size = elements(undone, from.reduced);
        reach(from.reduced, undone, from.cost + size, from.stored + size, size);
      }
    }
  }
  if (intermediates != nullptr) *intermediates = best_stored;
  return best;
}

Work WorkModel::finished(const State& state, const CoordinatePool& pool) {
  Work work;
  double stored = 0;
  work.flops = best_plan(state, pool, true, &stored);
  work.params = params(state, pool);
  double ends = 0;
  for (std::size_t v = 0; v < sizes_.valuation_count(); ++v) {
    ends += sizes_.weight(v) * (sizes_.value(input_, v) + sizes_.value(output_, v));
    for (const SizeNumber elements : further_) ends += sizes_.weight(v) * sizes_.value(elements, v);
  }
  work.bytes = 4 * (ends + work.params + stored);
  return work;
}

double WorkModel::least_flops(const State& state, const CoordinatePool& pool, double largest_stride) {
  return best_plan(state, pool, false, nullptr) / largest_stride;
}

}  // namespace syno::synth
