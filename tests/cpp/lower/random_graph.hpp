// tests/cpp/lower/random_graph.hpp — complete pGraphs grown by random legal steps, small enough to interpret.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "pgraph/pgraph.hpp"
#include "program/interpret.hpp"
#include "support/random.hpp"

namespace syno::test {

/// Any primitive anywhere it is legal, canonical or not; at most `max_points` points in its one scope. A
/// third of what Contractions bring in are further inputs.
inline pgraph::CompleteGraph random_graph(Random& random, int max_steps, std::int64_t max_points = 4000) {
  using pgraph::Primitive;
  using symbolic::Size;
  static constexpr std::int64_t kExtents[] = {1, 2, 3, 4, 6};
  const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(random.below(n)); };
  pgraph::Signature signature;
  std::int64_t points = 1;
  for (std::size_t d = 0, rank = 1 + pick(3); d < rank; ++d) {
    const std::int64_t extent = kExtents[1 + pick(4)];
    points *= extent;
    signature.output.push_back({std::string(1, static_cast<char>('a' + d)), Size(extent), false});
  }
  pgraph::PGraph graph(signature);
  const int steps = 1 + static_cast<int>(pick(static_cast<std::size_t>(max_steps)));
  for (int attempt = 0; attempt < 8 * steps && static_cast<int>(graph.steps().size()) < steps; ++attempt) {
    pgraph::Step step;
    step.primitive = static_cast<Primitive>(pick(pgraph::kPrimitiveCount));
    std::vector<pgraph::CoordinateId> open = graph.frontier();
    for (std::size_t i = open.size(); i > 1; --i) std::swap(open[i - 1], open[pick(i)]);
    const std::int64_t size = kExtents[pick(5)];
    step.size = Size();
    switch (step.primitive) {
      case Primitive::Reduce:
        step.size = Size(size);
        if (points * size > max_points) continue;
        break;
      case Primitive::Merge:
      case Primitive::Stride:
        step.size = Size(size);
        [[fallthrough]];
      case Primitive::Shift:
      case Primitive::Expand:
        if (open.empty()) continue;
        step.operands = {open[0]};
        if (step.primitive == Primitive::Shift) step.amount = pick(2) == 0 ? 1 : -2;
        break;
      case Primitive::Split:
      case Primitive::Unfold:
        if (open.size() < 2) continue;
        step.operands = {open[0], open[1]};
        break;
      case Primitive::Contraction:
        for (const auto id : open) {
          const std::size_t choice = pick(3);
          if (choice == 0) step.operands.push_back(id);
          if (choice == 1 && pick(2) == 0) step.matched.push_back(id);
        }
        break;
    }
    auto next = graph.apply(step);
    if (!std::holds_alternative<pgraph::PGraph>(next)) continue;
    pgraph::PGraph grown = std::get<pgraph::PGraph>(std::move(next));
    std::int64_t data = 1;  // Strides make the input large
    for (const auto id : grown.frontier()) data *= grown.coordinate(id).extent.factor().num();
    if (data > max_points) continue;
    if (step.primitive == Primitive::Reduce) points *= size;
    graph = std::move(grown);
  }
  for (const auto id : graph.frontier()) signature.input.push_back({"i", graph.coordinate(id).extent, false});
  std::vector<pgraph::Step> taken = graph.steps();
  std::vector<std::vector<pgraph::CoordinateId>> further;
  for (pgraph::Step& step : taken) {
    if (step.primitive != Primitive::Contraction || pick(3) != 0) continue;
    std::vector<pgraph::CoordinateId> dims = step.operands;
    dims.insert(dims.end(), step.matched.begin(), step.matched.end());
    for (std::size_t i = dims.size(); i > 1; --i) std::swap(dims[i - 1], dims[pick(i)]);
    pgraph::FurtherInput& shape = signature.further.emplace_back();
    for (const auto id : dims) shape.dims.push_back({"i", graph.coordinate(id).extent, false});
    further.push_back(std::move(dims));
    step.source = further.size();
  }
  pgraph::PGraph finished = pgraph::apply_all(pgraph::PGraph(signature), taken);
  std::vector<pgraph::CoordinateId> input = finished.frontier();
  return pgraph::complete(std::move(finished), std::move(input), std::move(further));
}

/// Small integers, so that sums of products are exact in double precision.
inline std::map<std::string, program::Values<double>> random_inputs(const program::Program& program,
                                                                    Random& random, int largest = 3) {
  std::map<std::string, program::Values<double>> inputs;
  for (const program::TensorId id : program.inputs()) {
    program::Values<double> values;
    values.shape = program::shape_of(program, id);
    std::int64_t count = 1;
    for (const std::int64_t extent : values.shape) count *= extent;
    for (std::int64_t i = 0; i < count; ++i) {
      values.data.push_back(static_cast<double>(random.below(static_cast<std::uint64_t>(2 * largest + 1))) -
                            largest);
    }
    inputs[program.tensor(id).name] = std::move(values);
  }
  return inputs;
}

}  // namespace syno::test
