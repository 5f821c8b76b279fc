#include "graph/merging.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <tuple>

#include "graph/fresh_name.hpp"
#include "graph/merge.hpp"
#include "graph/rebuild.hpp"
#include "support/error.hpp"
#include "support/shown.hpp"

namespace syno::graph {

namespace {

constexpr std::string_view kMerging = "merging";
constexpr std::size_t kGone = std::numeric_limits<std::size_t>::max();

}  // namespace

Merging::Merging(Graph graph)
    : graph_(std::move(graph)),
      nodes_(graph_.nodes()),
      producer_(graph_.tensors().size()),
      readers_(graph_.tensors().size()),
      returned_(graph_.tensors().size(), false) {
  for (const Tensor& tensor : graph_.tensors())
    if (!tensor.layout.empty())
      fail<ScheduleError>(kMerging, "'{}' has a layout: layouts are chosen for nodes that are merged already",
                          shown(tensor.name));
  for (Number n = 0; n < nodes_.size(); ++n) {
    positions_.push_back(n);
    order_.push_back(n);
    names_.emplace(nodes_[n].name, n);
    for (const TensorId input : nodes_[n].inputs) readers_[place(input)].insert(n);
    for (const TensorId output : nodes_[n].outputs) producer_[place(output)] = n;
  }
  for (const TensorId output : graph_.outputs) returned_[place(output)] = true;
}

void Merging::require_alive(Number number) const {
  if (number >= nodes_.size() || positions_[number] == kGone)
    fail<ShapeError>(kMerging, "there is no node {}, or it was merged with another one", number);
}

const Node& Merging::node(Number number) const {
  require_alive(number);
  return nodes_[number];
}

std::optional<Merging::Number> Merging::find_node(std::string_view name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? std::nullopt : std::optional(found->second);
}

void Merging::goes_first(Number producer) {
  require_alive(producer);
  first_.insert(producer);
  open_first_.insert(producer);
}

std::optional<Merging::Pair> Merging::first_that_goes_first() const {
  std::optional<std::tuple<std::size_t, std::size_t, Pair>> best;
  for (const Number producer : open_first_)
    for (const TensorId output : nodes_[producer].outputs)
      for (const Number reader : readers_[place(output)]) {
        if (refused_.contains({producer, reader})) continue;
        const auto& inputs = nodes_[reader].inputs;
        const auto at =
            static_cast<std::size_t>(std::find(inputs.begin(), inputs.end(), output) - inputs.begin());
        const std::tuple found{positions_[reader], at, Pair{producer, reader}};
        if (!best || found < *best) best = found;
      }
  return best ? std::optional(std::get<Pair>(*best)) : std::nullopt;
}

std::optional<Merging::Pair> Merging::next() {
  if (const auto first = first_that_goes_first()) return first;
  open_first_.clear();
  for (; open_ < order_.size(); ++open_) {
    if (order_[open_] == kGone) continue;
    for (const TensorId input : nodes_[order_[open_]].inputs) {
      const auto producer = producer_[place(input)];
      if (producer && !refused_.contains({*producer, order_[open_]})) return Pair{*producer, order_[open_]};
    }
  }
  return std::nullopt;
}

Merging::Between Merging::between(Pair pair) const {
  const auto [first, second] = pair;
  require_alive(first);
  require_alive(second);
  const Node& reader = nodes_[second];
  if (std::none_of(reader.inputs.begin(), reader.inputs.end(),
                   [&](TensorId input) { return producer_[place(input)] == first; }))
    fail<ShapeError>(kMerging, "'{}' reads nothing that '{}' computes", shown(reader.name),
                     shown(nodes_[first].name));
  Between found;
  std::vector<bool> is_behind(positions_[second] - positions_[first], false);
  const auto needs_them = [&](TensorId input) {
    const auto producer = producer_[place(input)];
    return producer && positions_[*producer] > positions_[first] &&
           is_behind[positions_[*producer] - positions_[first]];
  };
  for (std::size_t at = positions_[first] + 1; at < positions_[second]; ++at) {
    if (order_[at] == kGone) continue;
    for (const TensorId input : nodes_[order_[at]].inputs) {
      if (producer_[place(input)] != first && !needs_them(input)) continue;
      is_behind[at - positions_[first]] = true;
      found.behind.push_back(order_[at]);
      break;
    }
  }
  for (const TensorId input : reader.inputs)
    if (found.reason.empty() && needs_them(input))
      found.reason = comes_back(graph_, reader, input, nodes_[*producer_[place(input)]]);
  return found;
}

MergedNode Merging::made_of(Pair pair) const {
  const auto [first, second] = pair;
  return merged_node(graph_, {&nodes_[first], &nodes_[second]}, [&](TensorId output) {
    const auto& who = readers_[place(output)];
    if (returned_[place(output)] ||
        std::any_of(who.begin(), who.end(), [&](Number n) { return n != first && n != second; }))
      return ReadBy::Others;
    return who.empty() ? ReadBy::Nobody : ReadBy::Themselves;
  });
}

std::string Merging::name_for(Pair pair) const {
  const std::string wanted = name_of_all({&nodes_[pair.first], &nodes_[pair.second]});
  const auto found = names_.find(wanted);
  if (found == names_.end() || found->second == pair.first || found->second == pair.second) return wanted;
  return fresh_name(wanted, [&](const std::string& tried) { return names_.contains(tried); });
}

std::variant<Graph, std::string> Merging::alone(Pair pair) const {
  Between found = between(pair);
  std::string reason = reason_against(graph_, {&nodes_[pair.first], &nodes_[pair.second]});
  if (!reason.empty()) return reason;
  if (!found.reason.empty()) return std::move(found.reason);
  const MergedNode one = made_of(pair);
  Graph alone(graph_.name);
  std::vector<TensorId> inputs;
  for (const TensorId input : one.inputs) {
    const Tensor& tensor = graph_.tensor(input);
    inputs.push_back(tensor.role == Role::Weight ? alone.add_weight(tensor.name, tensor.shape, tensor.type)
                                                 : alone.add_input(tensor.name, tensor.shape, tensor.type));
  }
  const std::size_t made =
      alone.add_program(name_for(pair), one.program, inputs, tensor_names(graph_, one.outputs), one.type);
  alone.outputs = alone.nodes()[made].outputs;
  return alone;
}

std::variant<Merging::Number, std::string> Merging::merge(Pair pair) {
  Between found = between(pair);
  std::string reason = reason_against(graph_, {&nodes_[pair.first], &nodes_[pair.second]});
  if (!reason.empty()) return reason;
  if (!found.reason.empty()) return std::move(found.reason);
  MergedNode one = made_of(pair);
  const Number made = nodes_.size();
  Node node{name_for(pair), shared_program(one.program), "", "", one.inputs, one.outputs};
  for (const Number old : {pair.first, pair.second}) {
    names_.erase(nodes_[old].name);
    first_.erase(old);
    open_first_.erase(old);
    for (const TensorId input : nodes_[old].inputs) readers_[place(input)].erase(old);
    for (const TensorId output : nodes_[old].outputs) producer_[place(output)].reset();
  }
  // What does not need them, up to the second; they; the rest.
  const std::size_t begin = positions_[pair.first], end = positions_[pair.second];
  std::vector<Number> span;
  for (std::size_t at = begin + 1; at < end; ++at)
    if (order_[at] != kGone &&
        !std::binary_search(found.behind.begin(), found.behind.end(), order_[at],
                            [&](Number a, Number b) { return positions_[a] < positions_[b]; }))
      span.push_back(order_[at]);
  open_ = std::min(open_, open_ < end ? begin : begin + span.size());
  span.push_back(made);
  span.insert(span.end(), found.behind.begin(), found.behind.end());
  span.resize(end - begin + 1, kGone);
  std::copy(span.begin(), span.end(), order_.begin() + static_cast<std::ptrdiff_t>(begin));
  positions_.push_back(0);
  positions_[pair.first] = positions_[pair.second] = kGone;
  for (std::size_t at = begin; at <= end; ++at)
    if (order_[at] != kGone) positions_[order_[at]] = at;
  names_.emplace(node.name, made);
  for (const TensorId input : node.inputs) {
    readers_[place(input)].insert(made);
    const auto producer = producer_[place(input)];
    if (producer && first_.contains(*producer)) open_first_.insert(*producer);
  }
  for (const TensorId output : node.outputs) producer_[place(output)] = made;
  nodes_.push_back(std::move(node));
  return made;
}

std::vector<std::int64_t> Merging::wiring(Pair pair) const {
  require_alive(pair.first);
  require_alive(pair.second);
  std::map<TensorId, std::int64_t> known;
  std::vector<std::int64_t> made;
  const auto add = [&](TensorId tensor) {
    const auto [found, fresh] = known.emplace(tensor, static_cast<std::int64_t>(known.size()));
    made.push_back(found->second);
    if (!fresh) return;
    const Tensor& is = graph_.tensor(tensor);
    bool others = false;
    for (const Number reader : readers_[place(tensor)])
      others = others || (reader != pair.first && reader != pair.second);
    made.insert(made.end(), {static_cast<std::int64_t>(is.type), static_cast<std::int64_t>(is.role),
                             returned_[place(tensor)] ? 1 : 0, others ? 1 : 0});
  };
  for (const Number each : {pair.first, pair.second}) {
    for (const TensorId input : nodes_[each].inputs) add(input);
    made.push_back(-1);
    for (const TensorId output : nodes_[each].outputs) add(output);
    made.push_back(-1);
  }
  return made;
}

Graph Merging::graph() const {
  Rebuilt result(graph_);
  for (const Number number : order_) {
    if (number == kGone) continue;
    if (number < graph_.nodes().size()) {
      result.keep(number);
      continue;
    }
    const Node& node = nodes_[number];
    std::vector<TensorId> inputs;
    for (const TensorId input : node.inputs) inputs.push_back(result.at(input));
    const std::size_t made = result.graph.add_program(
        node.name, node.program, inputs, tensor_names(graph_, node.outputs), type_of(graph_, node));
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      result.stands_for(node.outputs[i], result.graph.nodes()[made].outputs[i]);
  }
  return result.finish();
}

}  // namespace syno::graph
