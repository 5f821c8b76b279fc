// Which scopes take the place of their reads: those without a reduction, where that repeats little work, as
// long as bodies stay small enough to compile.
#include <algorithm>
#include <map>
#include <set>

#include "construct/construct.hpp"
#include "program/scalars.hpp"

namespace syno::construct {

namespace {

using program::ScalarId;
using program::TensorId;

/// How often an element may be computed, everything inlined one into the other together.
constexpr double kRepeats = 2.01, kRepeatsExpensive = 1.01;
/// Nodes of a body, each as often as it is written: bodies are trees, and one that is read at three places
/// of another triples. Far above what people write in a statement.
constexpr std::int64_t kMostNodes = 256;

class Inlining {
 public:
  explicit Inlining(Construction& c) : c_(c) {}

  /// The first scope that is worth it, again and again. What is read by an inlined one has other readers
  /// then, and is asked about once more.
  void run() {
    std::vector<TensorId> order;
    std::map<TensorId, std::size_t> place;
    std::set<std::size_t> todo;
    for (const program::Scope& scope : c_.plan.program.scopes) {
      place[scope.output] = order.size();
      todo.insert(order.size());
      order.push_back(scope.output);
    }
    while (!todo.empty()) {
      const TensorId tensor = order[*todo.begin()];
      todo.erase(todo.begin());
      const std::size_t s = *c_.plan.producer(tensor);
      const auto readers = c_.plan.consumers(tensor);
      const double repeats = worth(s, readers);
      if (repeats == 0) continue;
      for (const ScalarId read : c_.plan.reads(s))
        if (const auto made_by = place.find(c_.plan.program.scalar(read).tensor); made_by != place.end())
          if (c_.plan.producer(made_by->first)) todo.insert(made_by->second);
      for (const std::size_t reader : readers) {
        double& known = repeated_[c_.plan.program.scopes[reader].output];
        known = std::max(known, repeats);
      }
      raise_if(c_.add({"inline", c_.plan.program.tensor(tensor).name, {}, {}, "", {}}));
    }
  }

 private:
  double points(std::size_t scope) const {
    double product = 1;
    for (std::size_t i = 0; i < c_.plan.iterator_count(scope); ++i) {
      const auto [begin, end] = c_.plan.range(c_.plan.iterator(scope, i).range);
      product *= static_cast<double>(end - begin);
    }
    return product;
  }

  /// How often an element of anything in the scope is computed once it is inlined; 0 where it stays.
  double worth(std::size_t s, const std::vector<std::size_t>& readers) {
    const program::Scope& scope = c_.plan.program.scopes[s];
    if (c_.plan.is_argument(scope.output) || !scope.sums.empty() || !scope.target.empty()) return 0;
    double uses = 0;
    for (const std::size_t reader : readers)
      uses += points(reader) * static_cast<double>(c_.plan.reads_of(reader, scope.output).size());
    const double repeats = uses / std::max(points(s), 1.0);
    if (repeats > (expensive(c_.plan.program, scope.body) ? kRepeatsExpensive : kRepeats)) return 0;
    const auto inside = repeated_.find(scope.output);
    const double all = std::max(1.0, repeats) * (inside == repeated_.end() ? 1 : inside->second);
    if (all > kRepeats || !stays_small(scope, readers)) return 0;
    return all;
  }

  bool stays_small(const program::Scope& scope, const std::vector<std::size_t>& readers) const {
    const program::Program& program = c_.plan.program;
    const std::int64_t own = program::nodes_of(program, scope.body, kMostNodes);
    return std::all_of(readers.begin(), readers.end(), [&](std::size_t reader) {
      const ScalarId body = program.scopes[reader].body;
      return program::nodes_of(program, body, kMostNodes) +
                 program::count_reads(program, body, scope.output) * own <=
             kMostNodes;
    });
  }

  Construction& c_;
  std::map<TensorId, double> repeated_;  ///< by output: how often what was inlined into its scope is computed
};

}  // namespace

void inline_cheap_scopes(Construction& c) { Inlining(c).run(); }

}  // namespace syno::construct
