#include "derive/estimate.hpp"

#include <algorithm>

#include "derive/moved.hpp"
#include "derive/tools.hpp"

namespace syno::derive {

namespace {

// Points per element touched from which multiply-adds are what counts: schedules of the transformations of
// windows, three points an element, are predicted to run at half the rate of products.
constexpr double kReuseOfProducts = 6;

// Of the rate of products, where every multiply-add has to load a vector: cores load two while they multiply
// two, and the other factor is loaded, too.
constexpr double kRateOfLoads = 0.5;

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

/// Whether every traversal iterator moves a read: each vector of it is loaded for one multiply-add.
bool moved_by_all(const Program& program, const Scope& scope, const Scalar& read) {
  return std::all_of(scope.traversal.begin(), scope.traversal.end(), [&](const Iterator& i) {
    const auto [begin, end] = range_of(program, i.range);
    return end - begin == 1 || std::any_of(read.indices.begin(), read.indices.end(),
                                           [&](ExprId e) { return depends_on(program, e, i.slot); });
  });
}

double seconds_for(const Rates& rates, double bytes) {
  for (const MemoryRate& level : rates.levels)
    if (bytes <= level.bytes) return bytes / level.bytes_per_s;
  return bytes / rates.memory_bytes_per_s;
}

}  // namespace

Estimate estimate(const Program& program, const Rates& rates, const std::set<TensorId>& once,
                  std::span<const double> left) {
  Estimate total;
  for (std::size_t s = 0; s < program.scopes.size(); ++s) {
    const Scope& scope = program.scopes[s];
    if (once.contains(scope.output)) continue;
    const double results = points_of(program, scope.traversal);
    const double points = results * points_of(program, scope.sums);
    std::set<TensorId> touched = {scope.output};
    bool computes = !scope.sums.empty() || !scope.target.empty();
    bool shared = true;  // what is loaded of every operand serves several multiply-adds
    for (const ScalarId id : program::scalars_of(program, scope.body)) {
      const Scalar& scalar = program.scalar(id);
      if (scalar.kind == ScalarKind::Read) {
        touched.insert(scalar.tensor);
        shared = shared && !moved_by_all(program, scope, scalar);
      }
      computes = computes || program::operand_count(scalar.kind) > 0;
    }
    double elements = 0, memory_s = 0;
    for (const TensorId tensor : touched) {
      // No more of a tensor than the scope has points for.
      const double of_it = std::min(elements_of(program, tensor), points);
      elements += of_it;
      memory_s += seconds_for(rates, of_it * rates.element_bytes);
    }
    const double reuse = std::min(shared ? 1.0 : kRateOfLoads, points / elements / kReuseOfProducts);
    total.seconds += rates.scope_s + memory_s;
    const double counted = left.empty() ? points : points * left[s];
    if (computes) total.seconds += counted / (rates.multiply_adds_per_s * std::max(reuse, 1.0 / 64));
    if (computes) total.multiply_adds += points;
    total.bytes += elements * rates.element_bytes;
  }
  return total;
}

}  // namespace syno::derive
