#include "graph/joins.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "graph/beside.hpp"
#include "graph/fresh_name.hpp"
#include "graph/rebuild.hpp"
#include "graph/views.hpp"
#include "program/neutral.hpp"
#include "program/text.hpp"
#include "support/error.hpp"
#include "support/shown.hpp"

namespace syno::graph {

namespace {

/// More are left as they are: bodies that choose between their weights grow with them.
constexpr std::size_t kMostJoined = 64;
/// A length by which programs of several lengths are compared.
constexpr std::int64_t kAnyExtent = std::int64_t{1} << 20;

/// What a node becomes a part of: which of its inputs differ from layer to layer, and the dimension along
/// which results lie one behind the other, or none where they are piled up along a new one.
struct Form {
  std::optional<Lane> lane;
  std::size_t dim = 0;         ///< of the result, with a lane
  std::vector<bool> constant;  ///< by input: weights alone give it
  std::string text;            ///< equal for nodes that can be joined, inputs aside
};

/// Nodes that become one, and what that is like for the first of them.
struct Column {
  std::vector<std::size_t> nodes;
  Form form;
  std::optional<std::size_t> before;  ///< the input that is a result of the column before
};

using JoinGroup = std::vector<Column>;

/// Whether an input is not the same tensor for all nodes of a column.
bool varies(const Graph& graph, const Column& column, std::size_t input) {
  return std::any_of(column.nodes.begin(), column.nodes.end(), [&](std::size_t n) {
    return graph.nodes()[n].inputs[input] != graph.nodes()[column.nodes[0]].inputs[input];
  });
}

class JoinSearch {
 public:
  explicit JoinSearch(const Graph& graph)
      : graph_(graph), readers_(readers(graph)), constant_(graph.tensors().size()) {
    for (const TensorId weight : graph.with_role(Role::Weight)) constant_[place(weight)] = true;
    for (const std::string& name : constant_nodes(graph)) {
      const std::size_t node = graph.node_named(name);
      constant_nodes_.push_back(node);
      for (const TensorId output : graph.nodes()[node].outputs) constant_[place(output)] = true;
    }
  }

  /// In the order of their first nodes.
  std::vector<JoinGroup> groups() {
    std::vector<bool> taken(graph_.nodes().size(), false);
    for (const std::size_t node : constant_nodes_) taken[node] = true;
    std::map<std::size_t, JoinGroup> found;
    const auto look = [&](auto&& forms) {
      std::map<std::string, JoinGroup> alike;
      for (std::size_t n = 0; n < graph_.nodes().size(); ++n) {
        if (taken[n] || !is_layer(n)) continue;
        for (Form& form : forms(n)) {
          JoinGroup& group = alike[form.text + inputs_text(n, form, std::nullopt)];
          if (group.empty()) group.push_back({{}, std::move(form), std::nullopt});
          group[0].nodes.push_back(n);
        }
      }
      std::vector<JoinGroup> all;
      for (auto& [text, group] : alike) all.push_back(std::move(group));
      std::sort(all.begin(), all.end(), [](const JoinGroup& a, const JoinGroup& b) {
        return std::pair(a[0].nodes[0], a[0].form.dim) < std::pair(b[0].nodes[0], b[0].form.dim);
      });
      for (JoinGroup& group : all) {
        const std::size_t first = group[0].nodes[0];
        std::erase_if(group[0].nodes, [&](std::size_t n) { return taken[n]; });
        if (group[0].nodes.size() < 2 || group[0].nodes.size() > kMostJoined) continue;
        if (group[0].nodes[0] != first)  // a form speaks of its own node's program
          for (Form& form : forms(group[0].nodes[0]))
            if (form.text == group[0].form.text) group[0].form = std::move(form);
        if (!differ(group[0]) || !kept_apart(group[0])) continue;
        for (const std::size_t n : group[0].nodes) taken[n] = true;
        follow(group);
        found.emplace(group[0].nodes[0], std::move(group));
      }
    };
    look([&](std::size_t n) { return along(n, first_dim(n)); });
    look([&](std::size_t n) { return std::vector{piled_form(n)}; });
    look([&](std::size_t n) {
      std::vector<Form> forms;
      for (std::size_t d = 0; d < shape_of(n).size(); ++d)
        for (Form& form : along(n, d)) forms.push_back(std::move(form));
      return forms;
    });
    std::vector<JoinGroup> ordered;
    for (auto& [first, group] : found) ordered.push_back(std::move(group));
    return ordered;
  }

  const std::vector<std::size_t>& constant_nodes_in_order() const { return constant_nodes_; }

 private:
  const Program& program_of(std::size_t n) const { return graph_.nodes()[n].program->program; }
  const Shape& shape_of(std::size_t n) const { return graph_.tensor(graph_.nodes()[n].outputs[0]).shape; }

  /// Of data and weights, to one tensor, row-major all of them.
  bool is_layer(std::size_t n) const {
    const Node& node = graph_.nodes()[n];
    if (node.is_call() || node.outputs.size() != 1 || !computes(type_of(graph_, node))) return false;
    const auto plain = [&](TensorId t) { return graph_.tensor(t).layout.empty(); };
    const auto weighs = [&](TensorId t) { return constant_[place(t)]; };
    const auto& inputs = node.inputs;
    return std::all_of(inputs.begin(), inputs.end(), plain) && plain(node.outputs[0]) &&
           std::any_of(inputs.begin(), inputs.end(), weighs);
  }

  std::vector<bool> constants_of(const Node& node) const {
    std::vector<bool> made;
    for (const TensorId input : node.inputs) made.push_back(constant_[place(input)]);
    return made;
  }

  /// What nodes of one form must have in common beside their programs: the tensors that are data.
  std::string inputs_text(std::size_t n, const Form& form, std::optional<std::size_t> before) const {
    const Node& node = graph_.nodes()[n];
    std::string text(name_of(type_of(graph_, node)));
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      text += before == i        ? " before"
              : form.constant[i] ? " weight"
                                 : fmt::format(" {}", place(node.inputs[i]));
    return text;
  }

  const std::string& neutral_text(const ProgramPointer& program) {
    auto& known = texts_[program.get()];
    if (known.empty()) known = program::to_text(program::neutral(program->program).program);
    return known;
  }

  Form piled_form(std::size_t n) {
    const Node& node = graph_.nodes()[n];
    return {std::nullopt, 0, constants_of(node), neutral_text(node.program)};
  }

  /// The form along a dimension of the result, if there is one.
  std::vector<Form> along(std::size_t n, std::optional<std::size_t> dim) {
    if (!dim) return {};
    return over(n, lane_of(program_of(n), program_of(n).outputs[0], *dim));
  }
  std::vector<Form> over(std::size_t n, std::optional<Lane> lane,
                         std::optional<std::size_t> before = std::nullopt) {
    const Program& program = program_of(n);
    if (!lane || !lane->dims[static_cast<std::size_t>(program.outputs[0])]) return {};
    Form form;
    form.constant = constants_of(graph_.nodes()[n]);
    const auto inputs = program.inputs();
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (lane->dims[static_cast<std::size_t>(inputs[i])] && !form.constant[i] && before != i) return {};
    form.dim = *lane->dims[static_cast<std::size_t>(program.outputs[0])];
    form.text = fmt::format("{} ", form.dim) +
                program::to_text(program::neutral(widened(program, *lane, kAnyExtent)).program);
    form.lane = std::move(lane);
    return {std::move(form)};
  }

  /// Along which parts are runs of memory.
  std::optional<std::size_t> first_dim(std::size_t n) const {
    const Shape& shape = shape_of(n);
    const auto found = std::find_if(shape.begin(), shape.end(), [](std::int64_t e) { return e != 1; });
    if (found == shape.end()) return std::nullopt;
    return static_cast<std::size_t>(found - shape.begin());
  }

  /// Whether each node's weights stay with its own part: those that differ lie along the lane.
  bool kept_apart(const Column& column) const {
    const auto inputs = program_of(column.nodes[0]).inputs();
    for (std::size_t i = 0; i < inputs.size() && column.form.lane; ++i)
      if (column.before != i && varies(graph_, column, i) &&
          !column.form.lane->dims[static_cast<std::size_t>(inputs[i])])
        return false;
    return true;
  }
  bool differ(const Column& column) const {
    for (std::size_t i = 0; i < column.form.constant.size(); ++i)
      if (varies(graph_, column, i)) return true;
    return false;
  }

  /// Takes what follows each of the layers alone and alike.
  void follow(JoinGroup& group) {
    for (;;) {
      Column next;
      std::set<std::string> forms;
      for (const std::size_t n : group.back().nodes) {
        const TensorId result = graph_.nodes()[n].outputs[0];
        const auto& after = readers_[place(result)];
        if (after.size() != 1 ||
            std::find(graph_.outputs.begin(), graph_.outputs.end(), result) != graph_.outputs.end())
          return;
        const std::size_t reader = after[0];
        const Node& node = graph_.nodes()[reader];
        if (node.is_call() || node.outputs.size() != 1 ||
            std::count(node.inputs.begin(), node.inputs.end(), result) != 1 ||
            type_of(graph_, node) != type_of(graph_, graph_.nodes()[n]) ||
            !graph_.tensor(node.outputs[0]).layout.empty() ||
            std::find(next.nodes.begin(), next.nodes.end(), reader) != next.nodes.end() ||
            std::any_of(program_of(reader).scopes.begin(), program_of(reader).scopes.end(),
                        [](const auto& scope) { return scope.reduction != program::Reduction::None; }))
          return;
        const auto at = static_cast<std::size_t>(std::find(node.inputs.begin(), node.inputs.end(), result) -
                                                 node.inputs.begin());
        if (next.before.value_or(at) != at) return;
        next.before = at;
        std::vector<Form> form;
        if (group.back().form.lane)
          form =
              over(reader,
                   lane_of(program_of(reader), program_of(reader).inputs()[at], group.back().form.dim), at);
        else
          form.push_back(piled_form(reader));
        if (form.empty()) return;
        forms.insert(form[0].text + inputs_text(reader, form[0], at));
        if (next.nodes.empty()) next.form = std::move(form[0]);
        next.nodes.push_back(reader);
      }
      if (forms.size() != 1 || !kept_apart(next)) return;
      group.push_back(std::move(next));
    }
  }

  const Graph& graph_;
  std::vector<std::vector<std::size_t>> readers_;
  std::vector<bool> constant_;
  std::vector<std::size_t> constant_nodes_;
  std::map<const SharedProgram*, std::string> texts_;
};

GraphSite site_of(const Graph& graph, const JoinGroup& group) {
  const auto& layers = group[0].nodes;
  return {graph.nodes()[layers.front()].name, graph.nodes()[layers.back()].name};
}

// What it makes
// ---------------------------------------------------------------------------------------------------

class Joining {
 public:
  Joining(const Graph& graph, const JoinGroup& group) : graph_(graph), group_(group), result_(graph) {}

  Graph made(const std::vector<std::size_t>& constant_nodes) {
    const std::set<std::size_t> ahead(constant_nodes.begin(), constant_nodes.end());
    std::map<std::size_t, std::size_t> column_of;
    for (std::size_t c = 0; c < group_.size(); ++c)
      for (const std::size_t n : group_[c].nodes) column_of.emplace(n, c);
    for (const std::size_t n : ahead) result_.keep(n);
    for (std::size_t n = 0; n < graph_.nodes().size(); ++n) {
      if (ahead.contains(n)) continue;
      const auto found = column_of.find(n);
      if (found == column_of.end()) {
        result_.keep(n);
      } else if (const Column& column = group_[found->second]; column.nodes[0] == n) {
        join(column);
        if (found->second + 1 == group_.size()) take_apart(column);
      }
    }
    return result_.finish();
  }

 private:
  const Node& node(std::size_t n) const { return graph_.nodes()[n]; }
  std::string fresh_node(const std::string& wanted) const {
    return fresh_name(wanted,
                      [&](const auto& x) { return graph_.find_node(x) || result_.graph.find_node(x); });
  }
  std::string fresh_tensor(const std::string& wanted) const {
    return fresh_name(wanted,
                      [&](const auto& x) { return graph_.find_tensor(x) || result_.graph.find_tensor(x); });
  }
  TensorId add(const std::string& node_name, const std::string& tensor_name, const Program& program,
               std::vector<TensorId> inputs) {
    const std::size_t added = result_.graph.add_program(node_name, program, std::move(inputs), {tensor_name},
                                                        type_of(graph_, node(group_[0].nodes[0])));
    return result_.graph.nodes()[added].outputs[0];
  }

  void join(const Column& column) {
    const Node& first = node(column.nodes[0]);
    const Program& program = first.program->program;
    const auto own = program.inputs();
    std::vector<TensorId> inputs;
    std::vector<bool> differ(program.tensors.size(), false);
    for (std::size_t i = 0; i < own.size(); ++i) {
      const auto tensor = static_cast<std::size_t>(own[i]);
      const bool before = column.before == i;
      differ[tensor] = before || (column.form.lane ? column.form.lane->dims[tensor].has_value()
                                                   : varies(graph_, column, i));
      inputs.push_back(before ? joined_ : differ[tensor] ? weight(column, i) : result_.at(first.inputs[i]));
    }
    std::int64_t length = 0;
    for (const std::size_t n : column.nodes)
      if (column.form.lane) length += graph_.tensor(node(n).outputs[0]).shape[column.form.dim];
    const auto count = static_cast<std::int64_t>(column.nodes.size());
    joined_ = add(fresh_node(first.name + "_joined"),
                  fresh_tensor(graph_.tensor(first.outputs[0]).name + "_joined"),
                  column.form.lane ? widened(program, *column.form.lane, length)
                                   : stacked(program, std::move(differ), count),
                  std::move(inputs));
  }

  /// An input of all layers as one. Where one tensor serves several of them, it is there several times.
  TensorId weight(const Column& column, std::size_t input) {
    const Node& first = node(column.nodes[0]);
    std::vector<Shape> shapes;
    std::vector<TensorId> parts;
    for (const std::size_t n : column.nodes) {
      parts.push_back(result_.at(node(n).inputs[input]));
      shapes.push_back(result_.graph.tensor(parts.back()).shape);
    }
    const auto tensor = static_cast<std::size_t>(first.program->program.inputs()[input]);
    const Program program = column.form.lane ? concatenated(shapes, *column.form.lane->dims[tensor])
                                             : piled(shapes[0], static_cast<std::int64_t>(parts.size()));
    const std::string wanted = graph_.tensor(first.inputs[input]).name + "_joined";
    return add(fresh_node(wanted), fresh_tensor(wanted), program, std::move(parts));
  }

  /// The results of a column under their old names.
  void take_apart(const Column& column) {
    const Shape whole = result_.graph.tensor(joined_).shape;
    std::int64_t begin = 0;
    for (const std::size_t n : column.nodes) {
      const Node& was = node(n);
      const Tensor& result = graph_.tensor(was.outputs[0]);
      const bool piled = !column.form.lane;
      const std::size_t dim = piled ? 0 : column.form.dim;
      const std::int64_t end = begin + (piled ? 1 : result.shape[dim]);
      result_.stands_for(was.outputs[0],
                         add(was.name, result.name, sliced(whole, dim, begin, end, piled), {joined_}));
      begin = end;
    }
  }

  const Graph& graph_;
  const JoinGroup& group_;
  Rebuilt result_;
  TensorId joined_{};  ///< the result of the last column made
};

}  // namespace

std::vector<GraphSite> find_joins(const Graph& graph) {
  std::vector<GraphSite> sites;
  for (const JoinGroup& group : JoinSearch(graph).groups()) sites.push_back(site_of(graph, group));
  return sites;
}

Graph join_layers(const Graph& graph, const GraphSite& site) {
  JoinSearch search(graph);
  for (const JoinGroup& group : search.groups())
    if (site_of(graph, group) == site) return Joining(graph, group).made(search.constant_nodes_in_order());
  fail<ScheduleError>("graph rewrite", "`joins` does not apply at nodes '{}' and '{}'", shown(site.node),
                      shown(site.other));
}

}  // namespace syno::graph
