#include "program/permute.hpp"

#include <algorithm>

#include "support/error.hpp"

namespace syno::program {

namespace {

template <class T>
std::vector<T> in_order(const std::vector<T>& from, const std::vector<std::size_t>& order) {
  std::vector<T> result;
  for (const std::size_t d : order) result.push_back(from[d]);
  return result;
}

void check(const Tensor& tensor, const std::vector<std::size_t>& order) {
  std::vector<std::size_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  bool all = sorted.size() == tensor.dims.size();
  for (std::size_t d = 0; all && d < sorted.size(); ++d) all = sorted[d] == d;
  if (!all)
    fail<ShapeError>("permute", "[{}] is no order of the {} dimensions of '{}'", fmt::join(order, ", "),
                     tensor.dims.size(), tensor.name);
}

TensorId input_or_output(const Program& program, const std::string& name) {
  std::vector<std::string> names;
  const auto find = [&](const std::vector<TensorId>& ids) -> std::optional<TensorId> {
    for (const TensorId id : ids) {
      if (program.tensor(id).name == name) return id;
      names.push_back(program.tensor(id).name);
    }
    return std::nullopt;
  };
  if (const auto input = find(program.inputs())) return *input;
  if (const auto output = find(program.outputs)) return *output;
  throw UnknownName("permute", unknown_name("input or output", name, names));
}

}  // namespace

Program with_permuted(Program program, const std::string& tensor, const std::vector<std::size_t>& order) {
  const TensorId id = input_or_output(program, tensor);
  Tensor& moved = program.tensors[static_cast<std::size_t>(id)];
  check(moved, order);
  moved.dims = in_order(moved.dims, order);
  const auto reads_it = [&](const Scalar& scalar) {
    return scalar.kind == ScalarKind::Read && scalar.tensor == id;
  };
  for (Scope& scope : program.scopes) {
    if (scope.output != id) continue;
    // An accumulating scope says where it writes; the dimensions of any other are its iterators, in order.
    if (scope.target.empty())
      scope.traversal = in_order(scope.traversal, order);
    else
      scope.target = in_order(scope.target, order);
  }
  for (Scalar& scalar : program.scalars)
    if (reads_it(scalar)) scalar.indices = in_order(scalar.indices, order);
  return program;
}

}  // namespace syno::program
