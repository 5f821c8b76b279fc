#include <algorithm>
#include <bit>
#include <map>
#include <optional>

#include "lower/lower.hpp"
#include "lower/staging_space.hpp"
#include "support/error.hpp"

namespace syno::lower {
namespace {

/// A state with what stands in it and the best way to it.
struct Node {
  State state = 0;
  std::vector<std::size_t> dims;
  StageCost cost;
  std::size_t stages = 0;
  std::size_t from = 0;  ///< index of the node before
  StagePlan plan;        ///< the stage from there
};

/// Every valid state, or nothing when there are more than `limit` stages between them.
std::optional<std::vector<Node>> every_state(const StagingSpace& space, std::size_t limit) {
  std::map<State, std::vector<std::size_t>> found;
  found[0] = *space.dims(0);
  found[space.all()] = *space.dims(space.all());
  std::vector<State> open = {0};
  while (!open.empty()) {
    const State state = open.back();
    open.pop_back();
    for (std::size_t d = 0; d < space.decision_count(); ++d) {
      const State next = state | State{1} << d;
      if (next == state || found.contains(next)) continue;
      auto dims = space.dims(next);
      if (!dims) continue;
      found.emplace(next, std::move(*dims));
      open.push_back(next);
      if (found.size() * found.size() / 2 > limit) return std::nullopt;
    }
  }
  std::vector<Node> nodes;
  for (auto& [state, dims] : found) {
    Node node;
    node.state = state;
    node.dims = std::move(dims);
    nodes.push_back(std::move(node));
  }
  // Numerical order has every subset before its supersets.
  return nodes;
}

/// One chain of states: the cheapest next decision each time.
std::vector<Node> greedy_states(const StagingSpace& space) {
  std::vector<Node> chain(1);
  chain[0].dims = *space.dims(0);
  while (chain.back().state != space.all()) {
    const Node& last = chain.back();
    std::optional<Node> best;
    StageCost least;
    for (std::size_t d = 0; d < space.decision_count(); ++d) {
      Node next;
      next.state = last.state | State{1} << d;
      if (next.state == last.state) continue;
      auto dims = space.dims(next.state);
      if (!dims) continue;
      next.dims = std::move(*dims);
      const StageCost cost = space.stage(last.state, last.dims, next.state, next.dims).cost;
      if (best && !(cost < least)) continue;
      least = cost;
      best = std::move(next);
    }
    if (!best) {  // only together with others: go to the end at once
      best.emplace();
      best->state = space.all();
      best->dims = *space.dims(space.all());
    }
    chain.push_back(std::move(*best));
  }
  return chain;
}

}  // namespace

program::Program staged(const pgraph::CompleteGraph& graph, const StagingOptions& options) {
  const Coordinates coordinates(graph);
  const StagingSpace space(coordinates);
  auto every = every_state(space, options.max_stages);
  std::vector<Node> nodes = every ? std::move(*every) : greedy_states(space);
  for (std::size_t n = 1; n < nodes.size(); ++n) {
    Node& node = nodes[n];
    std::optional<StageCost> best;
    for (std::size_t m = 0; m < n; ++m) {
      const Node& before = nodes[m];
      if ((before.state & ~node.state) != 0 || before.state == node.state) continue;
      if (best && !(before.cost < *best)) continue;
      auto [cost, plan] = space.stage(before.state, before.dims, node.state, node.dims);
      cost = before.cost + cost;
      const auto rank = std::make_pair(cost, before.stages + 1);
      if (best && !(rank < std::make_pair(*best, node.stages))) continue;
      best = cost;
      node.cost = cost;
      node.stages = before.stages + 1;
      node.from = m;
      node.plan = std::move(plan);
    }
    SYNO_ASSERT(best, "the empty state is before every other");
  }
  std::vector<StagePlan> stages;
  for (std::size_t n = nodes.size() - 1; n != 0; n = nodes[n].from)
    stages.push_back(std::move(nodes[n].plan));
  std::reverse(stages.begin(), stages.end());
  return write_stages(coordinates, stages);
}

}  // namespace syno::lower
