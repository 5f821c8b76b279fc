#include "graph/graph.hpp"

#include <algorithm>
#include <set>

#include "graph/fresh_name.hpp"
#include "program/text.hpp"
#include "program/verify.hpp"
#include "support/json.hpp"
#include "support/shown.hpp"

namespace syno::graph {

namespace {

constexpr std::string_view kWhere = "graph";
constexpr std::size_t kMaxRank = 64;
constexpr std::size_t kMaxNameBytes = 4096;

void check_name(std::string_view what, const std::string& name) {
  if (name.empty()) fail<VerifyError>(kWhere, "a {} has no name", what);
  if (name.size() > kMaxNameBytes)
    fail<VerifyError>(kWhere, "the name of a {} has {} bytes; the limit is {}: {}", what, name.size(),
                      kMaxNameBytes, shown(name));
  try {
    static_cast<void>(nlohmann::json(name).dump());
  } catch (const nlohmann::json::exception&) {
    fail<VerifyError>(kWhere, "the name of a {} is no UTF-8 text: {}", what, shown(name));
  }
}

/// Bytes of all elements fit 62 bits, so that sums of a few of them fit 64.
void check_tensor(const Tensor& tensor) {
  check_name("tensor", tensor.name);
  if (tensor.shape.size() > kMaxRank)
    fail<VerifyError>(kWhere, "tensor '{}' has {} dimensions; the limit is {}", shown(tensor.name),
                      tensor.shape.size(), kMaxRank);
  std::int64_t bytes = byte_size(tensor.type);
  for (const std::int64_t extent : tensor.shape) {
    if (extent < 0)
      fail<VerifyError>(kWhere, "tensor '{}' has shape [{}]; extents are at least 0", shown(tensor.name),
                        fmt::join(tensor.shape, ", "));
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(extent, 1), &bytes) || bytes > std::int64_t{1}
                                                                                                << 62)
      fail<VerifyError>(kWhere, "tensor '{}' of shape [{}] has more elements than can be counted",
                        shown(tensor.name), fmt::join(tensor.shape, ", "));
  }
}

/// The layout makes the shape, of a tensor that no caller gives.
void check_layout(const Tensor& tensor) {
  if (tensor.layout.empty()) {
    if (!tensor.elements.empty())
      fail<VerifyError>(kWhere, "'{}' has a second shape [{}], but no layout", shown(tensor.name),
                        fmt::join(tensor.elements, ", "));
    return;
  }
  if (tensor.role == Role::Input)
    fail<VerifyError>(kWhere, "input '{}' has a layout; what a caller gives is row-major",
                      shown(tensor.name));
  Tensor elements = tensor;
  elements.shape = tensor.elements;
  check_tensor(elements);
  Shape made;
  try {
    made = schedule::shape_after(tensor.layout, tensor.elements);
  } catch (const Error& error) {
    throw VerifyError(kWhere, fmt::format("the layout of '{}' does not fit [{}]: {}", shown(tensor.name),
                                          fmt::join(tensor.elements, ", "), error.what()));
  }
  if (made != tensor.shape)
    fail<VerifyError>(kWhere, "'{}' has shape [{}], but its layout of [{}] makes [{}]", shown(tensor.name),
                      fmt::join(tensor.shape, ", "), fmt::join(tensor.elements, ", "), fmt::join(made, ", "));
}

std::string call_or_node(const Node& node) {
  return fmt::format("{} '{}'", node.is_call() ? "call" : "node", shown(node.name));
}

void check_program_node(const Graph& graph, const Node& node, const std::vector<Tensor>& results) {
  const Program& program = node.program->program;
  const auto inputs = program.inputs();
  if (inputs.size() != node.inputs.size())
    fail<VerifyError>(kWhere, "{} reads {} tensors, but its program has {} inputs", call_or_node(node),
                      node.inputs.size(), inputs.size());
  if (program.outputs.size() != results.size())
    fail<VerifyError>(kWhere, "{} computes {} tensors, but its program has {} outputs", call_or_node(node),
                      results.size(), program.outputs.size());
  if (!computes(results[0].type))
    fail<VerifyError>(kWhere, "{} computes {}; programs compute float32, float64 and bfloat16",
                      call_or_node(node), name_of(results[0].type));
  const auto check = [&](const Tensor& tensor, program::TensorId id, std::string_view does) {
    if (tensor.shape != program::shape_of(program, id))
      fail<VerifyError>(kWhere, "{} {} '{}' of shape [{}], but '{}' of its program has shape [{}]",
                        call_or_node(node), does, shown(tensor.name), fmt::join(tensor.shape, ", "),
                        program.tensor(id).name, fmt::join(program::shape_of(program, id), ", "));
    if (tensor.type != results[0].type)
      fail<VerifyError>(kWhere, "{} {} '{}' of type {}, but computes {}; a program has one type",
                        call_or_node(node), does, shown(tensor.name), name_of(tensor.type),
                        name_of(results[0].type));
  };
  for (std::size_t i = 0; i < inputs.size(); ++i) check(graph.tensor(node.inputs[i]), inputs[i], "reads");
  for (std::size_t i = 0; i < results.size(); ++i) check(results[i], program.outputs[i], "computes");
}

void check_node(const Graph& graph, const Node& node, const std::vector<Tensor>& results) {
  check_name("node", node.name);
  for (const TensorId input : node.inputs)
    if (static_cast<std::size_t>(input) >= graph.tensors().size())
      fail<VerifyError>(kWhere, "{} reads tensor {}, but the graph has {}", call_or_node(node),
                        static_cast<std::size_t>(input), graph.tensors().size());
  if (results.empty()) fail<VerifyError>(kWhere, "{} computes nothing", call_or_node(node));
  if (!node.is_call()) return check_program_node(graph, node, results);
  check_name("function", node.function);
}

}  // namespace

Graph::Graph(std::string graph_name) : name(std::move(graph_name)) {
  if (!name.empty()) check_name("graph", name);
}

std::vector<TensorId> Graph::with_role(Role role) const {
  std::vector<TensorId> found;
  for (std::uint32_t i = 0; i < tensors_.size(); ++i)
    if (tensors_[i].role == role) found.push_back(TensorId{i});
  return found;
}

std::optional<TensorId> Graph::find_tensor(std::string_view tensor_name) const {
  const auto found = tensor_ids_.find(tensor_name);
  return found == tensor_ids_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::size_t> Graph::find_node(std::string_view node_name) const {
  const auto found = node_ids_.find(node_name);
  return found == node_ids_.end() ? std::nullopt : std::optional(found->second);
}

TensorId Graph::tensor_named(std::string_view tensor_name) const {
  if (const auto found = find_tensor(tensor_name)) return *found;
  std::vector<std::string> valid;
  for (const Tensor& tensor : tensors_) valid.push_back(tensor.name);
  throw UnknownName(kWhere, unknown_name("tensor", tensor_name, valid));
}

std::size_t Graph::node_named(std::string_view node_name) const {
  if (const auto found = find_node(node_name)) return *found;
  std::vector<std::string> valid;
  for (const Node& node : nodes_) valid.push_back(node.name);
  throw UnknownName(kWhere, unknown_name("node", node_name, valid));
}

std::string Graph::fresh_tensor_name(std::string_view wanted) const {
  return fresh_name(wanted, [&](const std::string& tried) { return find_tensor(tried).has_value(); });
}
std::string Graph::fresh_node_name(std::string_view wanted) const {
  return fresh_name(wanted, [&](const std::string& tried) { return find_node(tried).has_value(); });
}

TensorId Graph::add_tensor(Tensor tensor) {
  check_tensor(tensor);
  const auto id = TensorId{static_cast<std::uint32_t>(tensors_.size())};
  if (!tensor_ids_.emplace(tensor.name, id).second)
    fail<VerifyError>(kWhere, "two tensors are named '{}'", shown(tensor.name));
  tensors_.push_back(std::move(tensor));
  return id;
}

TensorId Graph::add_input(std::string tensor_name, Shape shape, ElementType type) {
  return add_tensor({std::move(tensor_name), std::move(shape), type, Role::Input});
}
TensorId Graph::add_weight(std::string tensor_name, Shape shape, ElementType type) {
  return add_tensor({std::move(tensor_name), std::move(shape), type, Role::Weight});
}

std::size_t Graph::add_node(Node node, std::vector<Tensor> results) {
  check_node(*this, node, results);
  if (find_node(node.name)) fail<VerifyError>(kWhere, "two nodes are named '{}'", shown(node.name));
  std::set<std::string_view> names;
  for (const Tensor& result : results) {
    check_tensor(result);
    if (find_tensor(result.name) || !names.insert(result.name).second)
      fail<VerifyError>(kWhere, "two tensors are named '{}'", shown(result.name));
  }
  for (Tensor& result : results) {
    result.role = Role::Computed;
    node.outputs.push_back(add_tensor(std::move(result)));
  }
  node_ids_.emplace(node.name, nodes_.size());
  nodes_.push_back(std::move(node));
  return nodes_.size() - 1;
}

ProgramPointer Graph::shared(ProgramPointer program) {
  const auto [found, is_new] = by_text_.try_emplace(program->text, program);
  if (is_new) programs_.push_back(program);
  return found->second;
}

std::size_t Graph::add_program(std::string node_name, const Program& program, std::vector<TensorId> inputs,
                               const std::vector<std::string>& output_names, ElementType type) {
  return add_program(std::move(node_name), shared_program(program), std::move(inputs), output_names, type);
}

std::size_t Graph::add_program(std::string node_name, ProgramPointer program, std::vector<TensorId> inputs,
                               const std::vector<std::string>& output_names, ElementType type) {
  const auto& made = program->program.outputs;
  if (made.size() != output_names.size())
    fail<VerifyError>(kWhere, "node '{}' has {} names for the {} outputs of its program", shown(node_name),
                      output_names.size(), made.size());
  std::vector<Tensor> results;
  for (std::size_t i = 0; i < made.size(); ++i)
    results.push_back({output_names[i], program::shape_of(program->program, made[i]), type, Role::Computed});
  const std::size_t node = add_node({std::move(node_name), program, {}, {}, std::move(inputs), {}}, results);
  nodes_[node].program = shared(std::move(program));
  return node;
}

void Graph::set_layout(TensorId tensor, schedule::Layout layout, Shape elements) {
  Tensor changed = tensors_.at(static_cast<std::size_t>(tensor));
  changed.layout = std::move(layout);
  changed.elements = changed.layout.empty() ? Shape() : std::move(elements);
  check_layout(changed);
  tensors_[static_cast<std::size_t>(tensor)] = std::move(changed);
}

std::size_t Graph::add_call(std::string node_name, std::string function, std::string_view attributes,
                            std::vector<TensorId> inputs, std::vector<Tensor> results) {
  return add_node({std::move(node_name),
                   nullptr,
                   std::move(function),
                   checked_attributes(attributes),
                   std::move(inputs),
                   {}},
                  std::move(results));
}

ProgramPointer shared_program(const Program& program) {
  program::verify(program);
  if (!program.concrete())
    fail<VerifyError>(kWhere, "the program has size variables; choose a valuation with at()");
  for (const program::TensorId output : program.outputs)
    for (const program::Range& dim : program.tensor(output).dims)
      if (const auto extent = program::extent_of(program, dim, 0); extent.begin != 0)
        fail<VerifyError>(kWhere,
                          "output '{}' of the program has indices from {} on; a tensor between nodes "
                          "starts at 0",
                          program.tensor(output).name, extent.begin);
  return std::make_shared<const SharedProgram>(SharedProgram{program, program::to_text(program)});
}

ElementType type_of(const Graph& graph, const Node& node) { return graph.tensor(node.outputs[0]).type; }

std::string checked_attributes(std::string_view attributes) {
  const auto json = parse_json("graph", attributes);
  if (!json.is_object())
    fail<FormatError>("graph", "the attributes of a call are a JSON object, not {}", syno::described(json));
  std::string line(attributes);
  // Outside of its strings, which hold none, control characters are spaces.
  std::replace_if(line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  const std::size_t first = line.find_first_not_of(' '), last = line.find_last_not_of(' ');
  return line.substr(first, last - first + 1);
}

bool is_random(const Node& node) {
  if (!node.is_call() || node.attributes.find("random") == std::string::npos) return false;
  const auto json = parse_json("graph", node.attributes);
  const auto found = json.find("random");
  return found != json.end() && found->is_boolean() && found->template get<bool>();
}

std::vector<std::optional<std::size_t>> producers(const Graph& graph) {
  std::vector<std::optional<std::size_t>> made(graph.tensors().size());
  for (std::size_t n = 0; n < graph.nodes().size(); ++n)
    for (const TensorId output : graph.nodes()[n].outputs) made[static_cast<std::size_t>(output)] = n;
  return made;
}

std::vector<std::string> tensor_names(const Graph& graph, const std::vector<TensorId>& tensors) {
  std::vector<std::string> names;
  for (const TensorId each : tensors) names.push_back(graph.tensor(each).name);
  return names;
}

std::vector<std::vector<std::size_t>> readers(const Graph& graph) {
  std::vector<std::vector<std::size_t>> made(graph.tensors().size());
  for (std::size_t n = 0; n < graph.nodes().size(); ++n)
    for (const TensorId input : graph.nodes()[n].inputs) {
      auto& all = made[static_cast<std::size_t>(input)];
      if (all.empty() || all.back() != n) all.push_back(n);
    }
  return made;
}

namespace {

void require_row_major(const Tensor& tensor, const std::string& because) {
  if (!tensor.layout.empty())
    fail<VerifyError>(kWhere, "'{}' lies by {}, but {}, which takes row-major tensors", shown(tensor.name),
                      schedule::to_text(tensor.layout), because);
}

}  // namespace

void verify(const Graph& graph) {
  for (const Tensor& tensor : graph.tensors()) check_layout(tensor);
  for (const Node& node : graph.nodes()) {
    if (!node.is_call()) continue;
    for (const auto* list : {&node.inputs, &node.outputs})
      for (const TensorId tensor : *list)
        if (static_cast<std::size_t>(tensor) < graph.tensors().size())
          require_row_major(graph.tensor(tensor), "it is one of " + call_or_node(node));
  }
  for (const TensorId output : graph.outputs)
    if (static_cast<std::size_t>(output) < graph.tensors().size())
      require_row_major(graph.tensor(output), "the graph returns it to a caller");
  std::vector<bool> there(graph.tensors().size(), false);
  for (std::size_t t = 0; t < there.size(); ++t) there[t] = graph.tensors()[t].role != Role::Computed;
  const auto made = producers(graph);
  for (std::size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    for (const TensorId input : node.inputs) {
      if (there.at(static_cast<std::size_t>(input))) continue;
      const auto producer = made[static_cast<std::size_t>(input)];
      const std::string name = shown(graph.tensor(input).name);
      if (!producer)
        fail<VerifyError>(kWhere, "{} reads '{}', which nothing computes", call_or_node(node), name);
      if (*producer == n)
        fail<VerifyError>(kWhere, "{} reads '{}', which it computes itself", call_or_node(node), name);
      fail<VerifyError>(kWhere,
                        "{} reads '{}', which {} computes only after it; nodes stand in an order in "
                        "which each reads what those before it compute, and form no cycle",
                        call_or_node(node), name, call_or_node(graph.nodes()[*producer]));
    }
    std::vector<Tensor> results;
    for (const TensorId output : node.outputs) {
      results.push_back(graph.tensor(output));
      if (there.at(static_cast<std::size_t>(output)))
        fail<VerifyError>(kWhere, "{} computes '{}', which is there already", call_or_node(node),
                          shown(graph.tensor(output).name));
      there[static_cast<std::size_t>(output)] = true;
    }
    check_node(graph, node, results);
  }
  for (const TensorId output : graph.outputs) {
    if (static_cast<std::size_t>(output) >= graph.tensors().size())
      fail<VerifyError>(kWhere, "it returns tensor {}, but has {}", static_cast<std::size_t>(output),
                        graph.tensors().size());
    if (!there[static_cast<std::size_t>(output)])
      fail<VerifyError>(kWhere, "it returns '{}', which nothing computes", shown(graph.tensor(output).name));
  }
}

}  // namespace syno::graph
