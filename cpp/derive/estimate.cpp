#include "derive/estimate.hpp"

#include <algorithm>

#include "derive/tools.hpp"

namespace syno::derive {

namespace {

// Points per element touched from which multiply-adds are what counts: schedules of the transformations of
// windows, three points an element, are predicted to run at half the rate of products.
constexpr double kReuseOfProducts = 6;

double points_of(const Program& program, const std::vector<Iterator>& iterators) {
  double points = 1;
  for (const Iterator& iterator : iterators) {
    const auto [begin, end] = range_of(program, iterator.range);
    points *= static_cast<double>(end - begin);
  }
  return points;
}

double elements_of(const Program& program, TensorId tensor) {
  double elements = 1;
  for (const program::Range& dim : program.tensor(tensor).dims) {
    const auto [begin, end] = range_of(program, dim);
    elements *= static_cast<double>(end - begin);
  }
  return elements;
}

double seconds_for(const Rates& rates, double bytes) {
  for (const MemoryRate& level : rates.levels)
    if (bytes <= level.bytes) return bytes / level.bytes_per_s;
  return bytes / rates.memory_bytes_per_s;
}

}  // namespace

Estimate estimate(const Program& program, const Rates& rates, const std::set<TensorId>& once) {
  Estimate total;
  for (const Scope& scope : program.scopes) {
    if (once.contains(scope.output)) continue;
    const double results = points_of(program, scope.traversal);
    const double points = results * points_of(program, scope.sums);
    std::set<TensorId> touched = {scope.output};
    bool computes = !scope.sums.empty() || !scope.target.empty();
    for (const ScalarId id : program::scalars_of(program, scope.body)) {
      const Scalar& scalar = program.scalar(id);
      if (scalar.kind == ScalarKind::Read) touched.insert(scalar.tensor);
      computes = computes || program::operand_count(scalar.kind) > 0;
    }
    double elements = 0, memory_s = 0;
    for (const TensorId tensor : touched) {
      // No more of a tensor than the scope has points for.
      const double of_it = std::min(elements_of(program, tensor), points);
      elements += of_it;
      memory_s += seconds_for(rates, of_it * rates.element_bytes);
    }
    const double reuse = std::min(1.0, points / elements / kReuseOfProducts);
    total.seconds += rates.scope_s + memory_s;
    if (computes) total.seconds += points / (rates.multiply_adds_per_s * std::max(reuse, 1.0 / 64));
    if (computes) total.multiply_adds += points;
    total.bytes += elements * rates.element_bytes;
  }
  return total;
}

}  // namespace syno::derive
