#include "pgraph/drawing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace syno::pgraph {
namespace {

class Builder {
 public:
  explicit Builder(const CompleteGraph& graph) : graph_(graph), sizes_(graph.graph.signature().sizes) {}

  Drawing build() {
    const Signature& signature = graph_.graph.signature();
    const std::size_t output = add(NodeKind::Output, "output " + dims(signature.output), 0);
    source_.assign(graph_.graph.coordinate_count(), output);
    std::size_t weight = 0;
    for (std::size_t i = 0; i < graph_.graph.steps().size(); ++i) {
      const Step& step = graph_.graph.steps()[i];
      if (step.primitive == Primitive::Contraction) {
        if (step.source != 0) {
          contraction(step, fmt::format("x{}", step.source + 1), graph_.further[step.source - 1]);
        } else {
          contraction(step, fmt::format("w{}", weight + 1), graph_.graph.weights()[weight]);
          ++weight;
        }
      } else {
        view(step, i);
      }
    }
    int top = 0;
    for (const DrawnNode& node : drawing_.nodes) top = std::max(top, node.layer);
    const std::size_t input = add(NodeKind::Input, "input " + dims(signature.input), top + 1);
    for (const CoordinateId id : graph_.input) connect(id, input);
    return std::move(drawing_);
  }

 private:
  std::string dims(const std::vector<Dim>& list) const {
    std::string text;
    for (const Dim& dim : list) text += (text.empty() ? "[" : ", ") + sizes_.to_text(dim.extent);
    return text + "]";
  }
  std::size_t add(NodeKind kind, std::string label, int layer) {
    drawing_.nodes.push_back({kind, std::move(label), layer});
    return drawing_.nodes.size() - 1;
  }
  std::size_t& source(CoordinateId id) { return source_[static_cast<std::uint32_t>(id)]; }
  void connect(CoordinateId id, std::size_t to) {
    drawing_.edges.push_back({source(id), to, sizes_.to_text(graph_.graph.coordinate(id).extent)});
  }
  int above(const std::vector<CoordinateId>& operands) {
    int layer = 0;
    for (const CoordinateId id : operands) layer = std::max(layer, drawing_.nodes[source(id)].layer);
    return layer + 1;
  }
  void view(const Step& step, std::size_t number) {
    std::string label(name_of(step.primitive));
    label[0] = static_cast<char>(label[0] - 'a' + 'A');
    if (step.primitive == Primitive::Reduce) label = fmt::format("\u03a3 {}", sizes_.to_text(step.size));
    if (step.primitive == Primitive::Merge || step.primitive == Primitive::Stride) {
      label += fmt::format("({})", sizes_.to_text(step.size));
    }
    if (step.primitive == Primitive::Shift) label += fmt::format("({:+})", step.amount);
    const bool reduce = step.primitive == Primitive::Reduce;
    const std::size_t node =
        add(reduce ? NodeKind::Reduce : NodeKind::View, std::move(label), reduce ? 0 : above(step.operands));
    for (const CoordinateId id : step.operands) connect(id, node);
    for (const CoordinateId id : graph_.graph.results_of(number)) source(id) = node;
  }
  void contraction(const Step& step, const std::string& name, const std::vector<CoordinateId>& dims) {
    std::string label = name + " [";
    for (const CoordinateId id : dims) {
      if (label.back() != '[') label += ", ";
      label += sizes_.to_text(graph_.graph.coordinate(id).extent);
    }
    const std::size_t weight = add(NodeKind::Weight, label + "]", 0);
    for (const CoordinateId id : step.matched) connect(id, weight);
    for (const CoordinateId id : step.operands) {
      const std::size_t share = add(NodeKind::Share, "Share", above({id}));
      connect(id, share);
      source(id) = share;
      connect(id, weight);
    }
  }

  const CompleteGraph& graph_;
  const Sizes& sizes_;
  std::vector<std::size_t> source_;
  Drawing drawing_;
};

}  // namespace

Drawing drawing_of(const CompleteGraph& graph) { return Builder(graph).build(); }

std::string to_graphviz(const CompleteGraph& graph) {
  const Drawing drawing = drawing_of(graph);
  const auto look = [](NodeKind kind) -> std::string_view {
    switch (kind) {
      case NodeKind::Output:
        return "shape=box, fillcolor=\"#f4a259\"";
      case NodeKind::Input:
        return "shape=box, fillcolor=\"#f4a259\"";
      case NodeKind::Weight:
        return "shape=box, fillcolor=\"#f9e79f\"";
      case NodeKind::Reduce:
        return "shape=ellipse, fillcolor=\"#d5e8d4\"";
      case NodeKind::Share:
        return "shape=ellipse, fillcolor=\"#d6e4f5\"";
      case NodeKind::View:
        return "shape=ellipse, fillcolor=\"#a9c9ea\"";
    }
    return "";
  };
  std::string text =
      "digraph pgraph {\n  rankdir=BT;\n  node [style=filled, fontname=\"sans-serif\"];\n"
      "  edge [fontname=\"sans-serif\", fontsize=10];\n";
  for (std::size_t i = 0; i < drawing.nodes.size(); ++i) {
    text +=
        fmt::format("  n{} [label=\"{}\", {}];\n", i, drawing.nodes[i].label, look(drawing.nodes[i].kind));
  }
  for (const DrawnEdge& edge : drawing.edges) {
    text += fmt::format("  n{} -> n{} [label=\"{}\"];\n", edge.from, edge.to, edge.label);
  }
  return text + "}\n";
}

}  // namespace syno::pgraph
