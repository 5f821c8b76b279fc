// graph/graph.hpp — model graphs: DAGs whose nodes are tensor programs, or calls that a host runs, and whose
// edges are tensors. What networks are imported as, and what is fused and compiled.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "program/program.hpp"
#include "schedule/layout.hpp"

namespace syno::graph {

using program::Program;
using Shape = std::vector<std::int64_t>;

/// The types of a tensor's elements. Programs compute on the first three.
enum class ElementType : std::uint8_t { F32, F64, BF16, F16, I64, I32, I16, I8, U8, Bool };
std::string_view name_of(ElementType type);  ///< "float32", ..., as PyTorch calls it
std::int64_t byte_size(ElementType type);
ElementType element_type_named(std::string_view name);  ///< UnknownName lists them
bool is_float(ElementType type);
bool computes(ElementType type);  ///< whether programs compute on it

enum class TensorId : std::uint32_t {};
inline std::size_t place(TensorId id) { return static_cast<std::size_t>(id); }
enum class Role : std::uint8_t { Input, Weight, Computed };

/// An edge. Extents may be 0, and there may be none of them. Memory is row-major over `shape`; where there is
/// a layout, that shape is what it makes of `elements`, the shape of what the network speaks of.
struct Tensor {
  std::string name;
  Shape shape;
  ElementType type = ElementType::F32;
  Role role = Role::Input;
  schedule::Layout layout = {};
  Shape elements = {};  ///< empty without a layout
};
std::int64_t element_count(const Tensor& tensor);
std::int64_t byte_size(const Tensor& tensor);
std::string described(const Shape& shape, ElementType type);  ///< `float32[1,3,8,8]`
/// The same with its layout: `float32[1,4,8,8] of [1,8,8,4] by reorder(0, 3, 1, 2)`.
std::string described(const Tensor& tensor);

/// A program that nodes compute, with its text, by which programs are told apart. Never changes.
struct SharedProgram {
  Program program;
  std::string text;
};
using ProgramPointer = std::shared_ptr<const SharedProgram>;

/// A program of its inputs' elements, which are of one type, or a call: `function` with `attributes`, a JSON
/// object that only who runs it reads. Calls compute what they return from what they are given, and nothing
/// else, unless the object has `"random": true`: two such calls are never one.
struct Node {
  std::string name;
  ProgramPointer program;  ///< null: a call
  std::string function, attributes;
  std::vector<TensorId> inputs, outputs;
  bool is_call() const { return program == nullptr; }
};

/// A value; copies share their programs. The builders keep nodes in an order in which each reads what is
/// there already, and refuse, before anything is added, what verify() would.
class Graph {
 public:
  explicit Graph(std::string name = "graph");

  std::string name;
  std::vector<TensorId> outputs;  ///< in the caller's order; any tensors, and one may be there twice

  const std::vector<Tensor>& tensors() const { return tensors_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<ProgramPointer>& programs() const { return programs_; }  ///< in order of first use
  const Tensor& tensor(TensorId id) const { return tensors_[static_cast<std::uint32_t>(id)]; }
  std::vector<TensorId> with_role(Role role) const;  ///< in the order in which they were added
  std::optional<TensorId> find_tensor(std::string_view tensor_name) const;
  std::optional<std::size_t> find_node(std::string_view node_name) const;
  TensorId tensor_named(std::string_view tensor_name) const;  ///< UnknownName
  std::size_t node_named(std::string_view node_name) const;   ///< UnknownName
  std::string fresh_tensor_name(std::string_view wanted) const;
  std::string fresh_node_name(std::string_view wanted) const;

  TensorId add_input(std::string tensor_name, Shape shape, ElementType type);
  TensorId add_weight(std::string tensor_name, Shape shape, ElementType type);
  /// A node that computes `program` of `inputs` (in the program's order); its outputs have the program's
  /// shapes. VerifyError where they do not fit.
  std::size_t add_program(std::string node_name, const Program& program, std::vector<TensorId> inputs,
                          const std::vector<std::string>& output_names, ElementType type);
  std::size_t add_program(std::string node_name, ProgramPointer program, std::vector<TensorId> inputs,
                          const std::vector<std::string>& output_names, ElementType type);
  /// Says how a tensor lies that a program computes, or a weight: its shape is what `layout` makes of
  /// `elements`. An empty layout says that it is row-major. VerifyError where that is not so, or it is an
  /// input.
  void set_layout(TensorId tensor, schedule::Layout layout, Shape elements);
  /// `results`: name, shape and type of each output. FormatError where attributes are no JSON object.
  std::size_t add_call(std::string node_name, std::string function, std::string_view attributes,
                       std::vector<TensorId> inputs, std::vector<Tensor> results);

 private:
  TensorId add_tensor(Tensor tensor);
  std::size_t add_node(Node node, std::vector<Tensor> results);
  ProgramPointer shared(ProgramPointer program);

  std::vector<Tensor> tensors_;
  std::vector<Node> nodes_;
  std::vector<ProgramPointer> programs_;
  std::map<std::string, TensorId, std::less<>> tensor_ids_;
  std::map<std::string, std::size_t, std::less<>> node_ids_;
  std::map<std::string, ProgramPointer, std::less<>> by_text_;
};

/// A program as nodes share it. VerifyError where it cannot be a node: sizes that are not concrete, an output
/// whose legal indices do not start at 0.
ProgramPointer shared_program(const Program& program);

/// The type that a program node computes on: that of its outputs.
ElementType type_of(const Graph& graph, const Node& node);

std::vector<std::string> tensor_names(const Graph& graph, const std::vector<TensorId>& tensors);

/// The attributes of a call on one line; FormatError where they are no JSON object.
std::string checked_attributes(std::string_view attributes);
bool is_random(const Node& node);

/// Which node computes each tensor, by its id; none for inputs and weights.
std::vector<std::optional<std::size_t>> producers(const Graph& graph);
/// Which nodes read each tensor, by its id: each once, ascending.
std::vector<std::vector<std::size_t>> readers(const Graph& graph);

/// VerifyError: a name that is there twice, a node that reads what no node before it computes (or what a
/// later one does, or itself), shapes, types or counts that do not fit a program, outputs that are no
/// tensors, layouts that do not make a tensor's shape, or of an input, an output or what a call reads.
void verify(const Graph& graph);

}  // namespace syno::graph
