#include "graph/rewrites.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <tuple>

#include "graph/joins.hpp"
#include "graph/rebuild.hpp"
#include "graph/scales.hpp"
#include "graph/views.hpp"
#include "program/scalars.hpp"
#include "support/error.hpp"
#include "support/json.hpp"
#include "support/shown.hpp"
#include "symbolic/condition.hpp"
#include "symbolic/simplify.hpp"

namespace syno::graph {

namespace {

constexpr std::string_view kRewrite = "graph rewrite";

/// One program of the first one's input where both only read: the indices of the first read, over the
/// iterators of the second.
Program composed(const Program& first, const Program& second) {
  using program::Scalar;
  const program::TensorId from = first.inputs()[0], to = second.inputs()[0];
  const Scalar& inner = first.scalar(first.scopes[0].body);
  const Scalar outer = second.scalar(second.scopes[0].body);
  Program made = second;
  std::vector<symbolic::Condition> fulfilled;  // all of them: every read is inside
  std::vector<symbolic::ExprId> places(first.next_slot);
  for (std::size_t d = 0; d < outer.indices.size(); ++d)
    places[first.scopes[0].traversal[d].slot] =
        symbolic::without_inside(made.arena, outer.indices[d], fulfilled);

  Scalar body = inner;
  body.tensor = to;
  for (symbolic::ExprId& index : body.indices) {
    const symbolic::ExprId here =
        symbolic::without_inside(made.arena, made.arena.import(first.arena, index), fulfilled);
    index = made.arena.substitute(here, [&](std::uint32_t slot) { return places[slot]; });
  }
  program::Tensor& input = made.tensors[static_cast<std::size_t>(to)];
  input = first.tensor(from);
  for (program::Range& dim : input.dims)
    dim = {made.arena.import(first.arena, dim.begin), made.arena.import(first.arena, dim.end)};
  input.name.clear();
  input.name = program::fresh_tensor_name(made, first.tensor(from).name);
  const auto context = program::context_of(made);
  for (symbolic::ExprId& index : body.indices) index = symbolic::simplify(made.arena, index, context);
  made.scopes[0].body = made.add_scalar(std::move(body));
  return made;
}

/// What programs are, found once for each.
class Programs {
 public:
  bool only_reads(const ProgramPointer& program) { return once(reads_, program, graph::only_reads); }
  bool is_copy(const ProgramPointer& program) { return once(copies_, program, graph::is_copy); }

  /// Null where it is not seen to only read.
  const ProgramPointer& composed(const ProgramPointer& first, const ProgramPointer& second) {
    const auto [found, is_new] = composed_.try_emplace({first->text, second->text});
    if (is_new) {
      ProgramPointer made = shared_program(graph::composed(first->program, second->program));
      if (only_reads(made)) found->second = std::move(made);
    }
    return found->second;
  }

 private:
  using Answers = std::map<std::string, bool, std::less<>>;
  template <class Look>
  static bool once(Answers& answers, const ProgramPointer& program, Look&& look) {
    if (program == nullptr) return false;
    const auto found = answers.find(program->text);
    if (found != answers.end()) return found->second;
    return answers[program->text] = look(program->program);
  }
  Answers reads_, copies_;
  std::map<std::pair<std::string, std::string>, ProgramPointer> composed_;
};

/// What two nodes that compute the same have in common.
using Computation =
    std::tuple<std::string, std::string, std::vector<TensorId>, std::vector<std::pair<Shape, ElementType>>>;

Computation computation(const Graph& graph, const Node& node, const ProgramPointer& program,
                        const std::vector<TensorId>& inputs) {
  Computation made{program ? program->text : node.function, "", inputs, {}};
  if (!program) std::get<1>(made) = parse_json(kRewrite, node.attributes).dump();
  for (const TensorId output : node.outputs)
    std::get<3>(made).emplace_back(graph.tensor(output).shape, graph.tensor(output).type);
  return made;
}

/// A graph in the making: which of its nodes stay, with which program and inputs, and which other tensor
/// stands for one.
class Change {
 public:
  explicit Change(const Graph& graph)
      : graph_(graph), stays_(graph.nodes().size(), true), instead_(graph.tensors().size()) {
    for (std::uint32_t t = 0; t < instead_.size(); ++t) instead_[t] = TensorId{t};
    for (const Node& node : graph.nodes()) {
      programs_.push_back(node.program);
      inputs_.push_back(node.inputs);
    }
  }

  TensorId instead(TensorId tensor) const { return instead_[place(tensor)]; }
  const ProgramPointer& program(std::size_t n) const { return programs_[n]; }
  const std::vector<TensorId>& inputs(std::size_t n) const { return inputs_[n]; }

  bool stays(std::size_t n) const { return stays_[n]; }

  void drop(std::size_t n) { stays_[n] = false; }
  void let_stand_for(TensorId tensor, TensorId other) { instead_[place(tensor)] = instead(other); }
  void compute(std::size_t n, ProgramPointer program, std::vector<TensorId> inputs) {
    programs_[n] = std::move(program);
    inputs_[n] = std::move(inputs);
  }
  /// Its inputs become what stands for them.
  void follow(std::size_t n) {
    for (TensorId& input : inputs_[n]) input = instead(input);
  }

  /// Drops what nothing that stays needs.
  void drop_dead() {
    std::vector<bool> needed(graph_.tensors().size(), false);
    for (const TensorId output : graph_.outputs) needed[place(instead(output))] = true;
    for (std::size_t n = stays_.size(); n-- > 0;) {
      const auto& outputs = graph_.nodes()[n].outputs;
      stays_[n] = stays_[n] && std::any_of(outputs.begin(), outputs.end(),
                                           [&](TensorId output) { return needed[place(output)]; });
      if (!stays_[n]) continue;
      for (const TensorId input : inputs_[n]) needed[place(instead(input))] = true;
    }
  }

  Graph made() const {
    Rebuilt result(graph_);
    const auto read = [&](TensorId old) { return result.at(instead(old)); };
    for (std::size_t n = 0; n < stays_.size(); ++n) {
      if (!stays_[n]) continue;
      const Node& node = graph_.nodes()[n];
      std::vector<TensorId> inputs;
      for (const TensorId input : inputs_[n]) inputs.push_back(instead(input));
      if (node.is_call() || programs_[n] == node.program) {
        result.keep(n, inputs);
        continue;
      }
      for (TensorId& input : inputs) input = result.at(input);
      std::vector<std::string> names;
      for (const TensorId output : node.outputs) names.push_back(graph_.tensor(output).name);
      const std::size_t now =
          result.graph.add_program(node.name, programs_[n], std::move(inputs), names, type_of(graph_, node));
      for (std::size_t i = 0; i < node.outputs.size(); ++i)
        result.stands_for(node.outputs[i], result.graph.nodes()[now].outputs[i]);
    }
    for (const TensorId output : graph_.outputs) result.graph.outputs.push_back(read(output));
    return std::move(result.graph);
  }

 private:
  const Graph& graph_;
  std::vector<bool> stays_;
  std::vector<ProgramPointer> programs_;
  std::vector<std::vector<TensorId>> inputs_;
  std::vector<TensorId> instead_;  ///< never one for which another stands in turn
};

/// The nodes of a site that the row finds.
std::pair<std::size_t, std::size_t> nodes_of(const GraphRewrite& row, const Graph& graph,
                                             const GraphSite& site);

// dead
// ---------------------------------------------------------------------------------------------------------

std::vector<GraphSite> find_dead(const Graph& graph) {
  std::vector<bool> needed(graph.tensors().size(), false);
  for (const TensorId output : graph.outputs) needed[place(output)] = true;
  for (const Node& node : graph.nodes())
    for (const TensorId input : node.inputs) needed[place(input)] = true;
  std::vector<GraphSite> sites;
  for (const Node& node : graph.nodes())
    if (std::none_of(node.outputs.begin(), node.outputs.end(),
                     [&](TensorId output) { return needed[place(output)]; }))
      sites.push_back({node.name, ""});
  return sites;
}

Graph drop_dead(const Graph& graph, const GraphSite& site) {
  Change change(graph);
  change.drop(nodes_of(graph_rewrite_named("dead"), graph, site).first);
  return change.made();
}

// common
// -------------------------------------------------------------------------------------------------------

std::vector<GraphSite> find_common(const Graph& graph) {
  std::map<Computation, std::size_t> known;
  std::vector<GraphSite> sites;
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (is_random(node)) continue;
    const auto [found, is_new] = known.emplace(computation(graph, node, node.program, node.inputs), n);
    if (!is_new) sites.push_back({node.name, graph.nodes()[found->second].name});
  }
  return sites;
}

Graph share_common(const Graph& graph, const GraphSite& site) {
  const auto [later, earlier] = nodes_of(graph_rewrite_named("common"), graph, site);
  Change change(graph);
  const Node &node = graph.nodes()[later], &other = graph.nodes()[earlier];
  for (std::size_t i = 0; i < node.outputs.size(); ++i)
    change.let_stand_for(node.outputs[i], other.outputs[i]);
  change.drop(later);
  return change.made();
}

// same
// ---------------------------------------------------------------------------------------------------------

std::vector<GraphSite> find_same(const Graph& graph) {
  Programs programs;
  std::vector<GraphSite> sites;
  for (const Node& node : graph.nodes())
    if (programs.is_copy(node.program)) sites.push_back({node.name, ""});
  return sites;
}

Graph pass_same(const Graph& graph, const GraphSite& site) {
  const std::size_t n = nodes_of(graph_rewrite_named("same"), graph, site).first;
  Change change(graph);
  for (const TensorId output : graph.nodes()[n].outputs)
    change.let_stand_for(output, graph.nodes()[n].inputs[0]);
  change.drop(n);
  return change.made();
}

// transposes
// ---------------------------------------------------------------------------------------------------

std::vector<GraphSite> find_transposes(const Graph& graph) {
  Programs programs;
  const auto made = producers(graph);
  std::vector<GraphSite> sites;
  for (const Node& node : graph.nodes()) {
    if (!programs.only_reads(node.program)) continue;
    const auto producer = made[place(node.inputs[0])];
    if (!producer || !programs.only_reads(graph.nodes()[*producer].program)) continue;
    const Node& first = graph.nodes()[*producer];
    if (programs.composed(first.program, node.program)) sites.push_back({node.name, first.name});
  }
  return sites;
}

Graph compose_transposes(const Graph& graph, const GraphSite& site) {
  const auto [second, first] = nodes_of(graph_rewrite_named("transposes"), graph, site);
  Change change(graph);
  const Node &node = graph.nodes()[second], &other = graph.nodes()[first];
  change.compute(second, shared_program(composed(other.program->program, node.program->program)),
                 other.inputs);
  return change.made();
}

constexpr std::array<GraphRewrite, 6> kRows = {{
    {"common", "a = f(x), b = f(x), y = g(b) -> a = f(x), y = g(a)", find_common, share_common},
    {"dead", "a = f(x), which nothing reads and the graph does not return -> nothing", find_dead, drop_dead},
    {"joins", "q = f(x, a), k = f(x, b) -> y = f(x, a and b side by side), q and k are parts of y",
     find_joins, join_layers, false, true},
    {"same", "a[i] = x[i], y = g(a) -> y = g(x)", find_same, pass_same},
    {"scales",
     "a[n, o] = sum[k] x[n, k] * w[o, k], y[n, o] = a[n, o] * s[o] -> v[o, k] = w[o, k] * s[o], "
     "a[n, o] = sum[k] x[n, k] * v[o, k], y[n, o] = a[n, o]",
     find_scales, scale_weights, true, false},
    {"transposes", "a[i] = x[f(i)], b[j] = a[g(j)] -> a[i] = x[f(i)], b[j] = x[f(g(j))]", find_transposes,
     compose_transposes},
}};

std::pair<std::size_t, std::size_t> nodes_of(const GraphRewrite& row, const Graph& graph,
                                             const GraphSite& site) {
  const auto sites = row.find(graph);
  if (std::find(sites.begin(), sites.end(), site) == sites.end())
    fail<ScheduleError>(kRewrite, "`{}` does not apply at node '{}'{}; it applies at {} others", row.name,
                        shown(site.node),
                        site.other.empty() ? "" : fmt::format(" and '{}'", shown(site.other)), sites.size());
  return {graph.node_named(site.node), site.other.empty() ? 0 : graph.node_named(site.other)};
}

}  // namespace

std::span<const GraphRewrite> graph_rewrites() { return kRows; }

const GraphRewrite& graph_rewrite_named(std::string_view name) {
  std::vector<std::string> valid;
  for (const GraphRewrite& row : kRows) {
    if (row.name == name) return row;
    valid.emplace_back(row.name);
  }
  throw UnknownName(kRewrite, unknown_name("graph rewrite", name, valid));
}

Graph cleaned(const Graph& graph) {
  Change change(graph);
  change.drop_dead();
  Programs programs;
  // The node that makes each tensor, where it only reads.
  std::vector<std::optional<std::size_t>> arranged(graph.tensors().size());
  std::map<Computation, std::size_t> known;
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (!change.stays(n)) continue;
    change.follow(n);
    if (programs.only_reads(change.program(n))) {
      while (const auto first = arranged[place(change.inputs(n)[0])]) {
        const auto both = programs.composed(change.program(*first), change.program(n));
        if (!both) break;
        change.compute(n, both, change.inputs(*first));
      }
      if (programs.is_copy(change.program(n))) {
        for (const TensorId output : node.outputs) change.let_stand_for(output, change.inputs(n)[0]);
        change.drop(n);
        continue;
      }
      for (const TensorId output : node.outputs) arranged[place(output)] = n;
    }
    if (is_random(node)) continue;
    const auto [found, is_new] =
        known.emplace(computation(graph, node, change.program(n), change.inputs(n)), n);
    if (is_new) continue;
    const Node& other = graph.nodes()[found->second];
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      change.let_stand_for(node.outputs[i], other.outputs[i]);
    change.drop(n);
  }
  change.drop_dead();
  return change.made();
}

}  // namespace syno::graph
