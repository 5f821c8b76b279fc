#include "graph/key.hpp"

#include <map>
#include <optional>

#include "equality/keys.hpp"
#include "support/hash.hpp"
#include "support/json.hpp"

namespace syno::graph {

namespace {

/// Writes nodes in the order in which the outputs, first to last, come to need them: one that no name and no
/// order of the nodes has a part in. Tensors are numbered in the order in which they are met.
class StructuralKey {
 public:
  explicit StructuralKey(const Graph& graph)
      : graph_(graph),
        made_(producers(graph)),
        numbers_(graph.tensors().size()),
        done_(graph.nodes().size()) {}

  std::string key() {
    out_.add(std::string_view("graph 1"));
    const auto inputs = graph_.with_role(Role::Input);
    out_.add(static_cast<std::uint64_t>(inputs.size()));
    for (const TensorId input : inputs) {
      numbers_[place(input)] = next_++;
      add_type(graph_.tensor(input));
    }
    for (const TensorId output : graph_.outputs) visit(output);
    out_.add(std::string_view("return")).add(static_cast<std::uint64_t>(graph_.outputs.size()));
    for (const TensorId output : graph_.outputs) out_.add(*numbers_[place(output)]);
    return to_hex(out_.finish());
  }

 private:
  void add_type(const Tensor& tensor) {
    out_.add(tensor.type).add(static_cast<std::uint64_t>(tensor.shape.size()));
    for (const std::int64_t extent : tensor.shape) out_.add(extent);
  }

  /// A weight gets its number; of another tensor all that it needs is written, operands first.
  void visit(TensorId tensor) {
    if (numbers_[place(tensor)]) return;
    if (!made_[place(tensor)]) return add_weight(tensor);
    std::vector<std::pair<std::size_t, std::size_t>> stack = {{*made_[place(tensor)], 0}};
    while (!stack.empty()) {
      auto& [n, next] = stack.back();
      const Node& node = graph_.nodes()[n];
      if (next == node.inputs.size()) {
        if (!done_[n]) add_node(n);
        stack.pop_back();
        continue;
      }
      const TensorId input = node.inputs[next++];
      if (numbers_[place(input)]) continue;
      if (const auto producer = made_[place(input)])
        stack.emplace_back(*producer, 0);
      else
        add_weight(input);
    }
  }

  void add_weight(TensorId tensor) {
    out_.add(std::string_view("weight"));
    add_type(graph_.tensor(tensor));
    numbers_[place(tensor)] = next_++;
  }

  void add_node(std::size_t n) {
    const Node& node = graph_.nodes()[n];
    done_[n] = true;
    if (node.is_call())
      out_.add(std::string_view("call"))
          .add(std::string_view(node.function))
          .add(std::string_view(parse_json("graph", node.attributes).dump()));
    else
      out_.add(std::string_view("program")).add(key_of(node.program));
    out_.add(static_cast<std::uint64_t>(node.inputs.size()));
    for (const TensorId input : node.inputs) out_.add(*numbers_[place(input)]);
    out_.add(static_cast<std::uint64_t>(node.outputs.size()));
    for (const TensorId output : node.outputs) {
      add_type(graph_.tensor(output));
      numbers_[place(output)] = next_++;
    }
  }

  Hash128 key_of(const ProgramPointer& program) {
    const auto [found, is_new] = programs_.try_emplace(program.get());
    if (is_new) found->second = equality::structural_key(program->program);
    return found->second;
  }

  const Graph& graph_;
  std::vector<std::optional<std::size_t>> made_;
  std::vector<std::optional<std::uint64_t>> numbers_;
  std::vector<bool> done_;
  std::map<const SharedProgram*, Hash128> programs_;
  std::uint64_t next_ = 0;
  Hasher out_;
};

}  // namespace

std::string structural_key(const Graph& graph) { return StructuralKey(graph).key(); }

}  // namespace syno::graph
