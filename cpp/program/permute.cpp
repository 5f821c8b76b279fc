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

}  // namespace

Program with_input_permuted(Program program, const std::string& input,
                            const std::vector<std::size_t>& order) {
  const auto found = program.find_tensor(input);
  const auto inputs = program.inputs();
  if (!found || std::find(inputs.begin(), inputs.end(), *found) == inputs.end()) {
    std::vector<std::string> names;
    for (const TensorId id : inputs) names.push_back(program.tensor(id).name);
    throw UnknownName("permute", unknown_name("input", input, names));
  }
  Tensor& tensor = program.tensors[static_cast<std::size_t>(*found)];
  check(tensor, order);
  tensor.dims = in_order(tensor.dims, order);
  const auto reads_it = [&](const Scalar& scalar) {
    return scalar.kind == ScalarKind::Read && scalar.tensor == *found;
  };
  for (Scope& scope : program.scopes)
    for (const ScalarId id : scalars_of(program, scope.body))
      if (reads_it(program.scalar(id))) scope.label.reset();
  for (Scalar& scalar : program.scalars)
    if (reads_it(scalar)) scalar.indices = in_order(scalar.indices, order);
  return program;
}

}  // namespace syno::program
