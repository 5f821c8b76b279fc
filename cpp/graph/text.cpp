#include "graph/text.hpp"

#include <algorithm>
#include <map>

#include "program/text.hpp"
#include "support/json.hpp"

namespace syno::graph {

namespace {

bool is_plain(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return letter(name[0]) && std::all_of(name.begin(), name.end(), [&](char c) {
           return letter(c) || (c >= '0' && c <= '9') || c == '.';
         });
}

std::string quoted(const std::string& name) { return nlohmann::json(name).dump(); }
std::string spelled(const std::string& name) { return !name.empty() && is_plain(name) ? name : quoted(name); }

std::string names_of(const Graph& graph, const std::vector<TensorId>& ids) {
  std::vector<std::string> names;
  for (const TensorId id : ids) names.push_back(spelled(graph.tensor(id).name));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string declared(const Tensor& tensor) {
  return fmt::format("{}: {}", spelled(tensor.name), described(tensor));
}

/// Names and labels in double quotes.
std::string dot_text(std::string_view text) {
  std::string made;
  for (const char c : text) {
    if (c == '"' || c == '\\') made += '\\';
    made += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return made;
}

}  // namespace

std::string to_text(const Graph& graph) {
  std::string text = fmt::format("graph {}\n", spelled(graph.name));
  for (const Tensor& tensor : graph.tensors())
    if (tensor.role != Role::Computed)
      text += fmt::format("{} {}\n", tensor.role == Role::Input ? "input" : "weight", declared(tensor));
  std::map<const SharedProgram*, std::size_t> numbers;
  for (const ProgramPointer& program : graph.programs()) {
    const std::size_t number = numbers.size();
    numbers.emplace(program.get(), number);
    text += fmt::format("program p{} {{\n", number);
    std::string_view rest = program->text;
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find('\n'), rest.size() - 1);
      text += fmt::format("  {}", rest.substr(0, end + 1));
      rest.remove_prefix(end + 1);
    }
    text += "}\n";
  }
  for (const Node& node : graph.nodes()) {
    std::vector<std::string> results;
    for (const TensorId output : node.outputs) results.push_back(declared(graph.tensor(output)));
    if (node.is_call())
      text += fmt::format("call {} {} {} ", spelled(node.name), quoted(node.function), node.attributes);
    else
      text += fmt::format("node {} = p{}", spelled(node.name), numbers.at(node.program.get()));
    text += fmt::format("({}) -> {}\n", names_of(graph, node.inputs), fmt::join(results, ", "));
  }
  text += graph.outputs.empty() ? "return\n" : fmt::format("return {}\n", names_of(graph, graph.outputs));
  return text;
}

std::string to_dot(const Graph& graph) {
  std::string text = fmt::format("digraph \"{}\" {{\n  node [shape=box];\n", dot_text(graph.name));
  const auto made = producers(graph);
  const auto source = [&](TensorId id) {
    const auto producer = made[static_cast<std::size_t>(id)];
    return producer ? fmt::format("n{}", *producer) : fmt::format("t{}", static_cast<std::size_t>(id));
  };
  for (std::size_t t = 0; t < graph.tensors().size(); ++t) {
    const Tensor& tensor = graph.tensors()[t];
    if (tensor.role == Role::Computed) continue;
    text += fmt::format("  t{} [label=\"{}\\n{}\", shape={}];\n", t, dot_text(tensor.name), described(tensor),
                        tensor.role == Role::Input ? "ellipse" : "cylinder");
  }
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    std::string what = node.function;
    if (!node.is_call())
      what = fmt::format("{} scope{}", node.program->program.scopes.size(),
                         node.program->program.scopes.size() == 1 ? "" : "s");
    text += fmt::format("  n{} [label=\"{}\\n{}\"{}];\n", n, dot_text(node.name), dot_text(what),
                        node.is_call() ? ", style=dashed" : "");
    for (const TensorId input : node.inputs) {
      const Tensor& tensor = graph.tensor(input);
      const std::string label =
          tensor.role == Role::Computed ? fmt::format(" [label=\"{}\"]", described(tensor)) : "";
      text += fmt::format("  {} -> n{}{};\n", source(input), n, label);
    }
  }
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    const Tensor& tensor = graph.tensor(graph.outputs[i]);
    text += fmt::format("  r{} [label=\"{}\\n{}\", shape=ellipse, style=bold];\n  {} -> r{};\n", i,
                        dot_text(tensor.name), described(tensor), source(graph.outputs[i]), i);
  }
  return text + "}\n";
}

}  // namespace syno::graph
