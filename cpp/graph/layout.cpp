#include "graph/layout.hpp"

#include <algorithm>
#include <functional>
#include <optional>

#include "derive/moved.hpp"
#include "graph/propagate.hpp"
#include "graph/rebuild.hpp"
#include "schedule/laid_out.hpp"
#include "support/error.hpp"
#include "support/shown.hpp"

namespace syno::graph {

namespace {

constexpr std::string_view kLayout = "layout";

/// y[i...] = x[i...].
Program copy_program(const Shape& shape) {
  Program program;
  program::Tensor x{"x", program::Role::Input, {}, {}}, y{"y", program::Role::Computed, {}, {}};
  program::Scope scope;
  std::vector<symbolic::ExprId> at;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const program::Range range = derive::make_range(program, 0, shape[d]);
    x.dims.push_back(range);
    y.dims.push_back(range);
    scope.traversal.push_back(program.new_iterator(fmt::format("i{}", d), range));
    at.push_back(program.arena.iterator(scope.traversal.back().slot));
  }
  const program::TensorId from = program.add_tensor(std::move(x));
  scope.output = program.add_tensor(std::move(y));
  scope.body = program.read(from, std::move(at));
  program.outputs = {scope.output};
  program.scopes.push_back(std::move(scope));
  return program;
}

void check_tensor(const Graph& graph, TensorId id) {
  const Tensor& tensor = graph.tensor(id);
  if (!computes(tensor.type))
    fail<ScheduleError>(kLayout,
                        "'{}' is {}; programs, and so layouts, are for float32, float64 and bfloat16",
                        shown(tensor.name), name_of(tensor.type));
  if (element_count(tensor) == 0)
    fail<ShapeError>(kLayout, "'{}' of shape [{}] has no elements to lay out", shown(tensor.name),
                     fmt::join(tensor.shape, ", "));
}

/// The places of the nodes that read a tensor as calls, and whether the graph returns it.
struct Outside {
  bool calls = false, returned = false;
};

Outside outside_of(const Graph& graph, TensorId tensor) {
  Outside found;
  found.returned = std::find(graph.outputs.begin(), graph.outputs.end(), tensor) != graph.outputs.end();
  for (const Node& node : graph.nodes())
    if (node.is_call())
      found.calls =
          found.calls || std::find(node.inputs.begin(), node.inputs.end(), tensor) != node.inputs.end();
  return found;
}

/// A program with the tensors of a node changed.
using Rewriting = std::function<Program(Program, program::TensorId, TensorId)>;

/// `program` after `change` of each of its tensors that stands for one of `changed`.
Program rewritten(const Node& node, const std::function<bool(TensorId)>& changed, const Rewriting& change) {
  Program program = node.program->program;
  const auto inputs = program.inputs();
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (changed(node.inputs[i])) program = change(std::move(program), inputs[i], node.inputs[i]);
  const auto outputs = program.outputs;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (changed(node.outputs[i])) program = change(std::move(program), outputs[i], node.outputs[i]);
  return program;
}

/// Lays out what within a program moves with its inputs and outputs that have a layout.
class Inner {
 public:
  explicit Inner(const Node& node) : node_(node), owners_(owners_of(node.program->program)) {}

  Program laid_out(Program program, const std::map<TensorId, Layout>& layouts) const {
    const Program& before = node_.program->program;
    const auto inputs = before.inputs();
    for (const auto& [inner, owner] : owners_) {
      const auto output = std::find(before.outputs.begin(), before.outputs.end(), owner);
      const TensorId edge = output != before.outputs.end()
                                ? node_.outputs[static_cast<std::size_t>(output - before.outputs.begin())]
                                : node_.inputs[static_cast<std::size_t>(
                                      std::find(inputs.begin(), inputs.end(), owner) - inputs.begin())];
      const auto layout = layouts.find(edge);
      if (layout != layouts.end() && schedule::is_bijective(layout->second, program::shape_of(before, inner)))
        program = schedule::laid_out(std::move(program), inner, layout->second);
    }
    return program;
  }

 private:
  const Node& node_;
  std::map<program::TensorId, program::TensorId> owners_;
};

/// A graph whose tensors get layouts, node by node.
class LaidOut {
 public:
  LaidOut(const Graph& graph, const std::map<TensorId, Layout>& layouts, bool inner)
      : graph_(graph), layouts_(layouts), inner_(inner), result_(graph), laid_(graph.tensors().size()) {}

  Graph run() {
    for (const auto& [tensor, layout] : layouts_)
      if (graph_.tensor(tensor).role != Role::Computed) convert(tensor);
    for (std::size_t n = 0; n < graph_.nodes().size(); ++n) {
      const Node& node = graph_.nodes()[n];
      if (node.is_call()) {
        result_.keep(n);
        for (const TensorId output : node.outputs)
          if (layouts_.contains(output)) convert(output);
      } else {
        keep(n);
      }
    }
    return result_.finish();
  }

 private:
  /// A copy of a tensor that stays as it is.
  void convert(TensorId tensor) {
    const Tensor& was = graph_.tensor(tensor);
    Program copy = copy_program(was.shape);
    copy = schedule::laid_out(std::move(copy), copy.outputs[0], layouts_.at(tensor));
    laid_[place(tensor)] = add(copy, result_.at(tensor), was, was.name + ".laid");
    record(tensor);
  }

  void keep(std::size_t n) {
    const Node& node = graph_.nodes()[n];
    const auto is_laid = [&](TensorId tensor) { return layouts_.contains(tensor); };
    if (std::none_of(node.inputs.begin(), node.inputs.end(), is_laid) &&
        std::none_of(node.outputs.begin(), node.outputs.end(), is_laid))
      return result_.keep(n);
    Program program = rewritten(node, is_laid, [&](Program made, program::TensorId mine, TensorId edge) {
      return schedule::laid_out(std::move(made), mine, layouts_.at(edge));
    });
    if (inner_) program = Inner(node).laid_out(std::move(program), layouts_);
    std::vector<TensorId> inputs;
    for (const TensorId input : node.inputs)
      inputs.push_back(laid_[place(input)] ? *laid_[place(input)] : result_.at(input));
    std::vector<std::string> names;
    std::vector<Outside> outside;
    for (const TensorId output : node.outputs) {
      outside.push_back(is_laid(output) ? outside_of(graph_, output) : Outside{});
      const std::string& name = graph_.tensor(output).name;
      // What the graph returns keeps its name.
      names.push_back(outside.back().returned ? fresh_tensor(name + ".laid") : name);
    }
    const std::size_t made =
        result_.graph.add_program(node.name, program, std::move(inputs), names, type_of(graph_, node));
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const TensorId output = node.outputs[i], now = result_.graph.nodes()[made].outputs[i];
      result_.stands_for(output, now);
      if (!is_laid(output)) continue;
      laid_[place(output)] = now;
      record(output);
      if (!outside[i].calls && !outside[i].returned) continue;
      Program copy = copy_program(graph_.tensor(output).shape);
      copy = schedule::laid_out(std::move(copy), copy.inputs()[0], layouts_.at(output));
      const std::string& name = graph_.tensor(output).name;
      const TensorId plain =
          add(copy, now, graph_.tensor(output), outside[i].returned ? name : name + ".plain");
      result_.stands_for(output, plain);
    }
  }

  /// A name that neither graph has.
  std::string fresh_tensor(const std::string& wanted) const {
    std::string name = wanted;
    for (int i = 2; graph_.find_tensor(name) || result_.graph.find_tensor(name); ++i)
      name = fmt::format("{}.{}", wanted, i);
    return name;
  }
  std::string fresh_node(const std::string& wanted) const {
    std::string name = wanted;
    for (int i = 2; graph_.find_node(name) || result_.graph.find_node(name); ++i)
      name = fmt::format("{}.{}", wanted, i);
    return name;
  }

  TensorId add(const Program& program, TensorId from, const Tensor& like, const std::string& name) {
    const bool taken = result_.graph.find_tensor(name).has_value() ||
                       (name != like.name && graph_.find_tensor(name).has_value());
    const std::size_t node = result_.graph.add_program(fresh_node("convert." + like.name), program, {from},
                                                       {taken ? fresh_tensor(name) : name}, like.type);
    return result_.graph.nodes()[node].outputs[0];
  }

  void record(TensorId tensor) {
    const Tensor& was = graph_.tensor(tensor);
    Layout whole = was.layout;
    whole.insert(whole.end(), layouts_.at(tensor).begin(), layouts_.at(tensor).end());
    result_.graph.set_layout(*laid_[place(tensor)], std::move(whole),
                             was.layout.empty() ? was.shape : was.elements);
  }

  const Graph& graph_;
  const std::map<TensorId, Layout>& layouts_;
  bool inner_;
  Rebuilt result_;
  std::vector<std::optional<TensorId>> laid_;  ///< by old tensor: that which lies so, in the new graph
};

}  // namespace

Graph lay_out(const Graph& graph, const std::map<TensorId, Layout>& layouts, bool inner) {
  std::map<TensorId, Layout> wanted;
  for (const auto& [tensor, layout] : layouts) {
    if (place(tensor) >= graph.tensors().size())
      fail<ShapeError>(kLayout, "tensor {} asked for, but the graph has {}", place(tensor),
                       graph.tensors().size());
    if (layout.empty()) continue;
    check_tensor(graph, tensor);
    static_cast<void>(schedule::shape_after(layout, graph.tensor(tensor).shape));
    wanted.emplace(tensor, layout);
  }
  return LaidOut(graph, wanted, inner).run();
}

Graph row_major(const Graph& graph, const std::vector<TensorId>& tensors) {
  for (const TensorId tensor : tensors)
    if (place(tensor) >= graph.tensors().size() || graph.tensor(tensor).layout.empty())
      fail<ScheduleError>(kLayout, "'{}' has no layout; it is row-major already",
                          place(tensor) < graph.tensors().size() ? shown(graph.tensor(tensor).name) : "");
  const auto changed = [&](TensorId tensor) {
    return std::find(tensors.begin(), tensors.end(), tensor) != tensors.end();
  };
  for (const TensorId tensor : tensors)
    if (graph.tensor(tensor).role != Role::Computed)
      fail<ScheduleError>(kLayout,
                          "weight '{}' is given as it lies; only what programs compute can be written "
                          "otherwise",
                          shown(graph.tensor(tensor).name));
  Rebuilt result(graph);
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    const bool any = std::any_of(node.inputs.begin(), node.inputs.end(), changed) ||
                     std::any_of(node.outputs.begin(), node.outputs.end(), changed);
    if (!any) {
      result.keep(n);
      continue;
    }
    const Program program =
        rewritten(node, changed, [&](Program made, program::TensorId mine, TensorId edge) {
          const Tensor& tensor = graph.tensor(edge);
          return schedule::without_layout(std::move(made), mine, tensor.layout, tensor.elements);
        });
    std::vector<TensorId> inputs;
    for (const TensorId input : node.inputs) inputs.push_back(result.at(input));
    std::vector<std::string> names;
    for (const TensorId output : node.outputs) names.push_back(graph.tensor(output).name);
    const std::size_t made =
        result.graph.add_program(node.name, program, std::move(inputs), names, type_of(graph, node));
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const TensorId now = result.graph.nodes()[made].outputs[i];
      result.stands_for(node.outputs[i], now);
      if (changed(node.outputs[i])) result.graph.set_layout(now, {}, {});
    }
  }
  return result.finish();
}

Graph with_copy(const Graph& graph, TensorId tensor, const std::vector<std::size_t>& for_nodes,
                TensorId& made) {
  if (place(tensor) >= graph.tensors().size())
    fail<ShapeError>(kLayout, "tensor {} asked for, but the graph has {}", place(tensor),
                     graph.tensors().size());
  check_tensor(graph, tensor);
  for (const std::size_t n : for_nodes) {
    const bool reads = n < graph.nodes().size() && !graph.nodes()[n].is_call() &&
                       std::find(graph.nodes()[n].inputs.begin(), graph.nodes()[n].inputs.end(), tensor) !=
                           graph.nodes()[n].inputs.end();
    if (!reads)
      fail<ScheduleError>(kLayout, "node {} is no program that reads '{}'",
                          n < graph.nodes().size() ? shown(graph.nodes()[n].name) : std::to_string(n),
                          shown(graph.tensor(tensor).name));
  }
  const Tensor& was = graph.tensor(tensor);
  Rebuilt result(graph);
  std::optional<TensorId> copy;
  const auto copy_now = [&] {
    const std::size_t node = result.graph.add_program(
        graph.fresh_node_name("convert." + was.name), copy_program(was.shape), {result.at(tensor)},
        {graph.fresh_tensor_name(was.name + ".copy")}, was.type);
    copy = result.graph.nodes()[node].outputs[0];
    if (!was.layout.empty()) result.graph.set_layout(*copy, was.layout, was.elements);
  };
  if (was.role != Role::Computed) copy_now();
  const auto maker = producers(graph)[place(tensor)];
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    if (std::find(for_nodes.begin(), for_nodes.end(), n) == for_nodes.end()) {
      result.keep(n);
    } else {
      const TensorId before = result.at(tensor);
      result.stands_for(tensor, *copy);
      result.keep(n);
      result.stands_for(tensor, before);
    }
    if (maker == n) copy_now();
  }
  made = *copy;
  return result.finish();
}

}  // namespace syno::graph
