// The meaning of a program at a valuation, written as directly as possible: what the interpreter is compared
// with.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <vector>

#include "program/evaluator.hpp"
#include "program/interpret.hpp"
#include "support/random.hpp"

namespace syno::program::testing {

class Naive {
 public:
  Naive(const Program& program, std::size_t valuation, const std::map<std::string, Values<double>>& inputs)
      : program_(program), valuation_(valuation) {
    tensors_.resize(program.tensors.size());
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      const Tensor& tensor = program.tensors[t];
      tensors_[t].shape = shape_of(program, TensorId{static_cast<std::uint32_t>(t)}, valuation);
      if (tensor.role == Role::Constant)
        for (const Rational& value : tensor.literal) tensors_[t].data.push_back(value.to_double());
      else if (tensor.role != Role::Computed)
        tensors_[t] = inputs.at(tensor.name);
    }
    for (const Scope& scope : program.scopes) run(scope);
  }

  const Values<double>& values(TensorId id) const { return tensors_[static_cast<std::size_t>(id)]; }

 private:
  void run(const Scope& scope) {
    Values<double>& output = tensors_[static_cast<std::size_t>(scope.output)];
    std::size_t size = 1;
    for (const std::int64_t extent : output.shape) size *= static_cast<std::size_t>(extent);
    output.data.assign(size, 0);
    std::vector<std::int64_t> slots(program_.next_slot);
    std::size_t next = 0;
    for_each(scope.traversal, 0, slots, [&] {
      double total = 0, count = 0;
      for_each(scope.sums, 0, slots, [&] {
        const double term = body(scope.body, slots);
        if (count == 0)
          // A sum starts at +0, which a first term of -0 does not change: the sign shows where it divides.
          total = scope.reduction == Reduction::Sum || scope.reduction == Reduction::Mean ? 0 + term : term;
        else if (scope.reduction == Reduction::Max)
          total = total > term || std::isnan(total) ? total : term;
        else if (scope.reduction == Reduction::Min)
          total = total < term || std::isnan(total) ? total : term;
        else if (scope.reduction == Reduction::Product)
          total *= term;
        else
          total += term;
        ++count;
      });
      if (scope.reduction == Reduction::Mean) total /= count;
      if (scope.target.empty()) {
        output.data[next++] = total;
      } else if (const auto offset = locate(scope.output, scope.target, slots)) {
        output.data[*offset] += total;
      }
    });
  }

  void for_each(const std::vector<Iterator>& iterators, std::size_t level, std::vector<std::int64_t>& slots,
                const std::function<void()>& visit) {
    if (level == iterators.size()) return visit();
    const Extent extent = extent_of(program_, iterators[level].range, valuation_);
    for (std::int64_t i = extent.begin; i < extent.end; ++i) {
      slots[iterators[level].slot] = i;
      for_each(iterators, level + 1, slots, visit);
    }
  }

  std::optional<std::size_t> locate(TensorId tensor, const std::vector<ExprId>& indices,
                                    const std::vector<std::int64_t>& slots) const {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < indices.size(); ++d) {
      const Extent dim = extent_of(program_, program_.tensor(tensor).dims[d], valuation_);
      const auto index = evaluate(program_.arena, indices[d], program_.sizes, valuation_, slots);
      if (!index || *index < dim.begin || *index >= dim.end) return std::nullopt;
      offset = offset * (dim.end - dim.begin) + *index - dim.begin;
    }
    return static_cast<std::size_t>(offset);
  }

  double body(ScalarId id, const std::vector<std::int64_t>& slots) const {
    const Scalar& scalar = program_.scalar(id);
    switch (scalar.kind) {
      case ScalarKind::Literal:
        return scalar.literal.to_double();
      case ScalarKind::Index:
        return static_cast<double>(
            *evaluate(program_.arena, scalar.index, program_.sizes, valuation_, slots));
      case ScalarKind::Read: {
        const auto offset = locate(scalar.tensor, scalar.indices, slots);
        return offset ? tensors_[static_cast<std::size_t>(scalar.tensor)].data[*offset]
                      : scalar.fill.to_double();
      }
      case ScalarKind::Unary:
        return apply(scalar.function, body(scalar.a, slots), 0);
      case ScalarKind::Binary:
        return apply(scalar.function, body(scalar.a, slots), body(scalar.b, slots));
      case ScalarKind::Select:
        return body(scalar.a, slots) != 0 ? body(scalar.b, slots) : body(scalar.c, slots);
    }
    return 0;
  }

  const Program& program_;
  std::size_t valuation_;
  std::vector<Values<double>> tensors_;
};

/// Small integers, so that sums and products are exact in any order.
inline std::map<std::string, Values<double>> random_inputs(const Program& concrete, std::uint64_t seed) {
  Random random(seed);
  std::map<std::string, Values<double>> inputs;
  for (const TensorId id : concrete.inputs()) {
    Values<double> values{shape_of(concrete, id), {}};
    std::int64_t size = 1;
    for (const std::int64_t extent : values.shape) size *= extent;
    for (std::int64_t i = 0; i < size; ++i) values.data.push_back(static_cast<double>(random.below(9)) - 4);
    inputs[concrete.tensor(id).name] = std::move(values);
  }
  return inputs;
}

inline bool same(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || std::abs(a - b) <= 1e-12 * std::max(std::abs(a), std::abs(b));
}

}  // namespace syno::program::testing
