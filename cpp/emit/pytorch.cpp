#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "emit/emit.hpp"
#include "emit/index_text.hpp"
#include "emit/python_names.hpp"
#include "emit/torch_scope.hpp"
#include "program/scalars.hpp"
#include "program/text.hpp"
#include "support/error.hpp"

namespace syno::emit {
namespace {

using program::Program;
using program::Role;
using program::Scope;
using program::TensorId;

/// Which tensor dimensions only pass through: the first dimension of every Input and whatever iterators
/// connect to it, when all of them walk whole dimensions and nothing else is computed from them.
class BatchDims {
 public:
  explicit BatchDims(const Program& program) : program_(program) {
    for (const program::Tensor& tensor : program.tensors) dims_.emplace_back(tensor.dims.size());
    if (!find()) {
      slots_.clear();
      for (auto& dims : dims_) std::fill(dims.begin(), dims.end(), false);
    }
  }
  const std::vector<std::vector<bool>>& dims() const { return dims_; }
  const std::set<Slot>& slots() const { return slots_; }

 private:
  bool find() {
    std::int64_t extent = -1;
    for (const TensorId id : program_.inputs()) {
      if (program_.tensor(id).role != Role::Input) continue;
      if (dims_[index_of(id)].empty()) return false;
      const std::int64_t first = program::shape_of(program_, id)[0];
      if (extent >= 0 && first != extent) return false;
      extent = first;
      dims_[index_of(id)][0] = true;
    }
    if (extent < 0) return false;
    for (bool grown = true; grown;) {
      grown = false;
      for (const Scope& scope : program_.scopes) {
        for_reads(scope, [&](TensorId tensor, std::size_t d, symbolic::ExprId index) {
          const Slot slot = symbolic::slot_of(program_.arena, index);
          if (dims_[index_of(tensor)][d] && slot != symbolic::kNoSlot) slots_.insert(slot);
        });
        for (std::size_t d = 0; d < scope.traversal.size() && scope.target.empty(); ++d) {
          if (!slots_.contains(scope.traversal[d].slot) || dims_[index_of(scope.output)][d]) continue;
          dims_[index_of(scope.output)][d] = true;
          grown = true;
        }
      }
    }
    return consistent();
  }

  bool consistent() const {
    for (std::size_t t = 0; t < dims_.size(); ++t) {
      for (std::size_t d = 0; d < dims_[t].size(); ++d) {
        if (!dims_[t][d]) continue;
        const program::Tensor& tensor = program_.tensors[t];
        if (tensor.role == Role::Weight || tensor.role == Role::Constant) return false;
        if (program::extent_of(program_, tensor.dims[d], 0).begin != 0) return false;
      }
    }
    for (const Scope& scope : program_.scopes) {
      std::set<Slot> read;
      bool good = true;
      const auto look = [&](bool batch_dim, symbolic::ExprId index) {
        const Slot slot = symbolic::slot_of(program_.arena, index);
        const bool plain = slot != symbolic::kNoSlot && slots_.contains(slot);
        if (batch_dim != plain) good = false;
        if (plain) read.insert(slot);
        if (plain) return;
        for (const Slot inner : program_.arena.iterators(index)) good = good && !slots_.contains(inner);
      };
      for_reads(scope, [&](TensorId tensor, std::size_t d, symbolic::ExprId index) {
        look(dims_[index_of(tensor)][d], index);
      });
      for (const auto id : program::scalars_of(program_, scope.body)) {
        const program::Scalar& scalar = program_.scalar(id);
        if (scalar.kind == program::ScalarKind::Index) look(false, scalar.index);
      }
      for (const symbolic::ExprId index : scope.target) look(false, index);
      for (const auto* iterators : {&scope.traversal, &scope.sums}) {
        for (const program::Iterator& i : *iterators) {
          if (!slots_.contains(i.slot)) continue;
          good = good && read.contains(i.slot) && scope.target.empty();
          const program::Extent extent = program::extent_of(program_, i.range, 0);
          good = good && extent.begin == 0 && extent.end == batch_extent();
        }
      }
      // The product of a mean's extents is written as a number.
      if (scope.reduction == program::Reduction::Mean) {
        for (const program::Iterator& i : scope.sums) good = good && !slots_.contains(i.slot);
      }
      for (std::size_t d = 0; d < scope.traversal.size() && scope.target.empty(); ++d) {
        good = good && dims_[index_of(scope.output)][d] == slots_.contains(scope.traversal[d].slot);
      }
      if (!good) return false;
    }
    return true;
  }

  std::int64_t batch_extent() const {
    for (const TensorId id : program_.inputs()) {
      if (program_.tensor(id).role == Role::Input) return program::shape_of(program_, id)[0];
    }
    return 0;
  }

  template <class Visit>
  void for_reads(const Scope& scope, Visit visit) const {
    program::over_reads(program_, scope.body, [&](program::ScalarId, const program::Scalar& read) {
      for (std::size_t d = 0; d < read.indices.size(); ++d) visit(read.tensor, d, read.indices[d]);
    });
  }

  const Program& program_;
  std::vector<std::vector<bool>> dims_;
  std::set<Slot> slots_;
};

/// Terms that each element of a sum with the weight has: its variance times this is the result's.
std::int64_t fan_in(const Program& program, TensorId weight) {
  std::int64_t most = 1;
  for (const Scope& scope : program.scopes) {
    if (!program::reads_tensor(program, scope.body, weight)) continue;
    std::int64_t terms = 1;
    for (const program::Iterator& i : scope.sums) {
      const program::Extent extent = program::extent_of(program, i.range, 0);
      terms *= extent.end - extent.begin;
    }
    most = std::max(most, terms);
  }
  return most;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

/// Whether an attribute of that name means something else to a module of the text: what torch.nn.Module has
/// (its private names differ from version to version), and what the text defines itself.
bool means_else(const std::string& name) {
  static const std::set<std::string, std::less<>> kMembers = {"T_destination",
                                                              "add_module",
                                                              "apply",
                                                              "bfloat16",
                                                              "buffers",
                                                              "call_super_init",
                                                              "children",
                                                              "compile",
                                                              "cpu",
                                                              "cuda",
                                                              "device",
                                                              "double",
                                                              "dtype",
                                                              "dump_patches",
                                                              "eval",
                                                              "extra_repr",
                                                              "float",
                                                              "forward",
                                                              "get_buffer",
                                                              "get_extra_state",
                                                              "get_parameter",
                                                              "get_submodule",
                                                              "half",
                                                              "ipu",
                                                              "like_",
                                                              "load_state_dict",
                                                              "modules",
                                                              "mtia",
                                                              "named_buffers",
                                                              "named_children",
                                                              "named_modules",
                                                              "named_parameters",
                                                              "parameters",
                                                              "register_backward_hook",
                                                              "register_buffer",
                                                              "register_forward_hook",
                                                              "register_forward_pre_hook",
                                                              "register_full_backward_hook",
                                                              "register_full_backward_pre_hook",
                                                              "register_load_state_dict_post_hook",
                                                              "register_load_state_dict_pre_hook",
                                                              "register_module",
                                                              "register_parameter",
                                                              "register_state_dict_post_hook",
                                                              "register_state_dict_pre_hook",
                                                              "requires_grad_",
                                                              "reset_parameters",
                                                              "set_extra_state",
                                                              "set_submodule",
                                                              "share_memory",
                                                              "state_dict",
                                                              "to",
                                                              "to_empty",
                                                              "train",
                                                              "training",
                                                              "type",
                                                              "xpu",
                                                              "zero_grad"};
  const bool place = name.starts_with("place_") &&
                     name.find_first_not_of("0123456789", std::size("place_") - 1) == std::string::npos;
  return name[0] == '_' || place || kMembers.contains(name);
}

/// Of an attribute: the tensor's own wherever that is free, else with `_` behind.
std::string attribute_name(const std::string& wanted, std::set<std::string>& used) {
  return python_name(means_else(wanted) ? wanted + "_" : wanted, used);
}

}  // namespace

std::string to_pytorch(const Program& source, const std::string& class_name) {
  const bool identifier = !class_name.empty() && !std::isdigit(static_cast<unsigned char>(class_name[0])) &&
                          std::all_of(class_name.begin(), class_name.end(),
                                      [](unsigned char c) { return std::isalnum(c) || c == '_'; });
  if (!identifier)
    fail<ShapeError>("to_pytorch", "'{}' cannot name a Python class; use letters, digits and _", class_name);
  const Program program = concrete("to_pytorch", source);
  const BatchDims batch(program);
  TorchContext context;
  context.program = &program;
  context.batch_dims = batch.dims();
  context.batch_slots = batch.slots();

  std::set<std::string> used;
  std::vector<std::string> arguments, init, reset, shapes;
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const TensorId id = static_cast<TensorId>(t);
    const program::Tensor& tensor = program.tensors[t];
    const bool attribute = tensor.role == Role::Weight || tensor.role == Role::Constant;
    std::string name = attribute ? attribute_name(tensor.name, used) : python_name(tensor.name, used);
    const std::vector<std::int64_t> shape = program::shape_of(program, id);
    switch (tensor.role) {
      case Role::Input: {
        arguments.push_back(name);
        std::vector<std::string> extents;
        for (const std::int64_t extent : shape) extents.push_back(std::to_string(extent));
        if (!extents.empty() && batch.dims()[t][0]) extents[0] = "batch";
        shapes.push_back(fmt::format("{}: [{}]", name, fmt::join(extents, ", ")));
        break;
      }
      case Role::Weight: {
        shapes.push_back(fmt::format("{}: parameter [{}]", name, fmt::join(shape, ", ")));
        init.push_back(
            fmt::format("self.{} = torch.nn.Parameter(torch.empty({}, dtype=dtype, device=device))", name,
                        shape_text(shape)));
        reset.push_back(fmt::format("torch.nn.init.uniform_(self.{0}, -{1:.9g}, {1:.9g})", name,
                                    std::sqrt(3.0 / static_cast<double>(fan_in(program, id)))));
        name = "self." + name;
        break;
      }
      case Role::Constant: {
        std::vector<std::string> values;
        for (const Rational& value : tensor.literal) values.push_back(fmt::format("{}", value.to_double()));
        for (std::string& value : values) {
          if (value == "inf" || value == "-inf") value = "float(\"" + value + "\")";
        }
        init.push_back(
            fmt::format("self.register_buffer(\"{}\", torch.tensor([{}], dtype=dtype, "
                        "device=device).view({}), persistent=False)",
                        name, fmt::join(values, ", "), shape_text(shape)));
        name = "self." + name;
        break;
      }
      case Role::Computed:
        break;
    }
    context.variables.push_back(name);
    const bool data = tensor.role == Role::Input;
    if (context.like.empty() && data) context.like = name;
  }
  for (std::size_t t = 0; t < program.tensors.size() && context.like.empty(); ++t) {
    if (program.tensors[t].role == Role::Weight) context.like = context.variables[t];
  }
  if (context.like.empty()) {
    init.push_back(
        "self.register_buffer(\"like_\", torch.empty((), dtype=dtype, device=device), persistent=False)");
    context.like = "self.like_";
  }

  std::vector<std::string> body;
  for (const Scope& scope : program.scopes) write_torch_scope(context, scope, body);
  init.insert(init.end(), context.buffers.begin(), context.buffers.end());
  std::vector<std::string> outputs;
  for (const TensorId id : program.outputs) outputs.push_back(context.variables[index_of(id)]);

  std::string text = "import torch\nimport torch.nn.functional as F\n\n\n";
  text += fmt::format("class {}(torch.nn.Module):\n    r\"\"\"\n", class_name);
  std::string formula = program::to_short_text(program);
  for (std::size_t at = 0; at < formula.size();) {
    const std::size_t end = std::min(formula.find('\n', at), formula.size());
    text += "    " + formula.substr(at, end - at) + "\n";
    at = end + 1;
  }
  text += "\n";
  for (const std::string& shape : shapes) text += "    " + shape + "\n";
  text += "    \"\"\"\n\n    def __init__(self, dtype=None, device=None):\n        super().__init__()\n";
  for (const std::string& line : init) text += "        " + line + "\n";
  text += "        self.reset_parameters()\n\n    def reset_parameters(self):\n";
  for (const std::string& line : reset) text += "        " + line + "\n";
  if (reset.empty()) text += "        pass\n";
  arguments.insert(arguments.begin(), "self");
  text += fmt::format("\n    def forward({}):\n", fmt::join(arguments, ", "));
  if (!batch.slots().empty()) text += fmt::format("        batch = {}.shape[0]\n", context.like);
  for (const std::string& line : body) text += "        " + line + "\n";
  text += fmt::format("        return {}\n", fmt::join(outputs, ", "));
  return text;
}

}  // namespace syno::emit
