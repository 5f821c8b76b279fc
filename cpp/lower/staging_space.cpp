#include "lower/staging_space.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "support/error.hpp"

namespace syno::lower {

using pgraph::Primitive;

StagingSpace::StagingSpace(const Coordinates& coordinates) : coordinates_(coordinates) {
  for (std::size_t f = 0; f < coordinates.factors.size(); ++f)
    decisions_.push_back({Decision::Kind::Factor, f});
  const auto& steps = coordinates.graph->graph.steps();
  for (std::size_t s = 0; s < steps.size(); ++s) {
    if (steps[s].primitive == Primitive::Reduce) decisions_.push_back({Decision::Kind::Reduce, s});
    const bool consumed = steps[s].primitive == Primitive::Stride &&
                          coordinates.all[coordinates.operands[s][0]].top == Top::View;
    if (consumed) decisions_.push_back({Decision::Kind::Stride, s});
  }
  decisions_.push_back({Decision::Kind::Output, 0});
  if (decisions_.size() > 63) {
    fail<ShapeError>("staged",
                     "the pGraph has {} contractions, reductions and strides; at most 62 can be staged",
                     decisions_.size() - 1);
  }
  all_ = (State{1} << decisions_.size()) - 1;
  const auto& sizes = coordinates.graph->graph.signature().sizes;
  for (const CoordinateInfo& info : coordinates.all) {
    std::vector<std::int64_t> values;
    for (std::size_t v = 0; v < sizes.valuation_count(); ++v)
      values.push_back(sizes.integer_value(info.extent, v));
    extents_.push_back(std::move(values));
  }
}

/// The least set of views that a state needs.
class StagingSpace::Closure {
 public:
  Closure(const StagingSpace& space, State state)
      : coordinates_(space.coordinates_),
        factors_(coordinates_.factors.size()),
        steps_(coordinates_.operands.size()) {
    for (std::size_t d = 0; d < space.decisions_.size(); ++d) {
      if ((state >> d & 1) == 0) continue;
      const Decision& decision = space.decisions_[d];
      SYNO_ASSERT(decision.kind != Decision::Kind::Output, "the output's dimensions are known");
      (decision.kind == Decision::Kind::Factor ? factors_ : steps_)[decision.index] = true;
    }
    decided_ = steps_;
    for (const Decision& decision : space.decisions_) {
      if (decision.kind == Decision::Kind::Factor && factors_[decision.index]) {
        for (const std::size_t c : coordinates_.factors[decision.index].coordinates) reach(c, false);
      }
      const bool step = decision.kind == Decision::Kind::Reduce || decision.kind == Decision::Kind::Stride;
      if (step && decided_[decision.index]) {
        reach(coordinates_.results[decision.index].front(), decision.kind == Decision::Kind::Reduce);
      }
    }
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      if (steps_[s] && coordinates_.step(s).primitive == Primitive::Stride && !decided_[s]) valid_ = false;
    }
  }

  bool valid() const { return valid_; }

  /// The tensor of the state has a dimension for the coordinate.
  bool live(std::size_t c) const {
    const CoordinateInfo& info = coordinates_.all[c];
    if (info.origin && steps_[*info.origin]) return false;
    switch (info.top) {
      case Top::Input:
        return true;
      case Top::View:
        return steps_[info.consumer];
      case Top::Weights:
        return any_factor(info);
      case Top::Nothing:
        return false;
    }
    return false;
  }

 private:
  bool any_factor(const CoordinateInfo& info) const {
    return std::any_of(info.factors.begin(), info.factors.end(), [&](std::size_t f) { return factors_[f]; });
  }
  /// Marks the views above a coordinate. `wholly`: every factor above it must have multiplied.
  void reach(std::size_t c, bool wholly) {
    const CoordinateInfo& info = coordinates_.all[c];
    if (wholly) {
      for (const std::size_t f : info.factors) valid_ = valid_ && factors_[f];
    } else if (info.top == Top::Weights) {
      valid_ = valid_ && any_factor(info);
    }
    if (info.top != Top::View) return;
    steps_[info.consumer] = true;
    for (const std::size_t result : coordinates_.results[info.consumer]) reach(result, wholly);
  }

  const Coordinates& coordinates_;
  Flags factors_, steps_, decided_;
  bool valid_ = true;
};

std::optional<std::vector<std::size_t>> StagingSpace::dims(State state) const {
  if (state == 0) return coordinates_.inputs;
  if (state == all_) return coordinates_.outputs;
  if ((state >> (decisions_.size() - 1) & 1) != 0) return std::nullopt;
  const Closure closure(*this, state);
  if (!closure.valid()) return std::nullopt;
  std::vector<std::size_t> live;
  for (std::size_t c = 0; c < coordinates_.all.size(); ++c) {
    if (closure.live(c)) live.push_back(c);
  }
  // Fixed dimensions first, then what is still to be summed (channels), then the rest in output order, as
  // [N, C..., H, W] has it: consumers contract over dimensions that lie together.
  std::vector<std::pair<std::size_t, std::size_t>> rank(coordinates_.all.size());
  const auto& signature = coordinates_.graph->graph.signature();
  for (std::size_t c = 0; c < rank.size(); ++c) {
    const CoordinateInfo& info = coordinates_.all[c];
    if (!info.origin) {
      const bool fixed = std::any_of(signature.fixed.begin(), signature.fixed.end(),
                                     [&](const auto& pair) { return pair.first == c; });
      rank[c] = {fixed ? 0 : 2, c};
    } else if (coordinates_.operands[*info.origin].empty()) {
      rank[c] = {1, c};
    } else {
      rank[c] = {3, c};
      for (const std::size_t operand : coordinates_.operands[*info.origin])
        rank[c] = std::min(rank[c], rank[operand]);
      if (rank[c].first == 1) {  // windows are summed but walk along an output dimension
        for (const std::size_t operand : coordinates_.operands[*info.origin])
          rank[c] = std::max(rank[c], rank[operand]);
      }
    }
  }
  std::stable_sort(live.begin(), live.end(), [&](std::size_t a, std::size_t b) { return rank[a] < rank[b]; });
  return live;
}

Int128 StagingSpace::points(const std::vector<std::size_t>& a, const std::vector<std::size_t>& b,
                            std::size_t valuation) const {
  Int128 product = 1;
  const Int128 limit = std::numeric_limits<std::int64_t>::max();
  for (const auto* set : {&a, &b}) {
    for (const std::size_t c : *set) {
      product *= extents_[c][valuation];
      if (product > limit)
        return limit;  // such a plan never wins, and cost() reports it if it is the only one
    }
  }
  return product;
}

StageCost StagingSpace::price(const StagePlan& plan, bool final) const {
  StageCost cost;
  const auto add = [&](const std::vector<std::size_t>& dims, const std::vector<std::size_t>& sums,
                       std::size_t products, std::size_t clips, bool kept) {
    const std::size_t multiplications = sums.empty() ? products : std::max<std::size_t>(1, products);
    const std::size_t per_point =
        multiplications + (clips == 0 ? 0 : 3 * clips);  // 0 <= e, e < S, and/select
    for (std::size_t v = 0; v < extents_.front().size(); ++v) {
      cost.flops += points(dims, sums, v) * static_cast<Int128>(per_point);
      if (kept) cost.bytes += 4 * points(dims, {}, v);
    }
  };
  std::size_t clips = 0;
  for (const std::size_t f : plan.factors) clips += coordinates_.factors[f].clip;
  for (const StagePlan::Group& group : plan.groups)
    add(group.dims, group.sums, group.factors.size() - 1, 0, true);
  add(plan.dims, plan.sums, plan.factors.size() - clips + plan.groups.size(), clips, !final);
  return cost;
}

void StagingSpace::leaves(std::size_t c, const Flags& stop, Flags& found) const {
  if (stop[c]) {
    found[c] = true;
    return;
  }
  const CoordinateInfo& info = coordinates_.all[c];
  if (!info.origin) return;
  for (const std::size_t operand : coordinates_.operands[*info.origin]) leaves(operand, stop, found);
}

StagingSpace::Priced StagingSpace::stage(State before, const std::vector<std::size_t>& from, State after,
                                         const std::vector<std::size_t>& to) const {
  StagePlan plan;
  plan.dims = to;
  std::vector<std::size_t> weights;
  for (std::size_t d = 0; d < decisions_.size(); ++d) {
    if ((before >> d & 1) != 0 || (after >> d & 1) == 0) continue;
    const Decision& decision = decisions_[d];
    if (decision.kind == Decision::Kind::Reduce)
      plan.sums.push_back(coordinates_.results[decision.index].front());
    if (decision.kind != Decision::Kind::Factor) continue;
    plan.factors.push_back(decision.index);
    if (!coordinates_.factors[decision.index].clip) weights.push_back(decision.index);
  }
  Priced best{price(plan, after == all_), plan};
  if (weights.size() < 2 || weights.size() > 4) return best;

  Flags stop(coordinates_.all.size());
  for (const std::size_t c : to) stop[c] = true;
  for (const std::size_t c : plan.sums) stop[c] = true;
  const auto leaves_of = [&](const std::vector<std::size_t>& coordinates) {
    Flags found(coordinates_.all.size());
    for (const std::size_t c : coordinates) leaves(c, stop, found);
    return found;
  };
  const Flags data = leaves_of(from);
  std::vector<Flags> by_factor;
  for (const Factor& factor : coordinates_.factors) by_factor.push_back(leaves_of(factor.coordinates));

  // Every partition of the weights into groups (restricted growth strings); a weight alone stays as it is.
  std::vector<std::size_t> block(weights.size());
  const auto consider = [&] {
    StagePlan candidate;
    candidate.dims = to;
    candidate.sums = plan.sums;
    for (const std::size_t f : plan.factors) {
      if (coordinates_.factors[f].clip) candidate.factors.push_back(f);
    }
    const std::size_t blocks = 1 + *std::max_element(block.begin(), block.end());
    for (std::size_t b = 0; b < blocks; ++b) {
      StagePlan::Group group;
      for (std::size_t w = 0; w < weights.size(); ++w) {
        if (block[w] == b) group.factors.push_back(weights[w]);
      }
      if (group.factors.size() == 1) {
        candidate.factors.push_back(group.factors.front());
        continue;
      }
      const auto inside = [&](std::size_t f) {
        return std::find(group.factors.begin(), group.factors.end(), f) != group.factors.end();
      };
      for (std::size_t c = 0; c < stop.size(); ++c) {
        bool in_group = false, elsewhere = data[c];
        for (const std::size_t f : plan.factors) (inside(f) ? in_group : elsewhere) |= by_factor[f][c];
        if (!in_group) continue;
        const auto sum = std::find(candidate.sums.begin(), candidate.sums.end(), c);
        if (sum != candidate.sums.end() && !elsewhere) {
          group.sums.push_back(c);
          candidate.sums.erase(sum);
        } else {
          group.dims.push_back(c);
        }
      }
      candidate.groups.push_back(std::move(group));
    }
    const StageCost cost = price(candidate, after == all_);
    if (cost < best.cost) best = {cost, std::move(candidate)};
  };
  const auto grow = [&](const auto& self, std::size_t at, std::size_t used) -> void {
    if (at == weights.size()) {
      if (used < weights.size()) consider();
      return;
    }
    for (block[at] = 0; block[at] <= used && block[at] < weights.size(); ++block[at]) {
      self(self, at + 1, std::max(used, block[at] + 1));
    }
  };
  grow(grow, 0, 0);
  return best;
}

}  // namespace syno::lower
