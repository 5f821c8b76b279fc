#include "graph/propagate.hpp"

#include <algorithm>
#include <set>

#include "program/scalars.hpp"
#include "schedule/laid_out.hpp"
#include "symbolic/affine.hpp"

namespace syno::graph {

namespace {

using program::Scalar;
using program::ScalarId;
using program::Scope;
using schedule::Layout;

bool starts_at_0(const Program& program, program::TensorId id) {
  const auto& dims = program.tensor(id).dims;
  return std::all_of(dims.begin(), dims.end(), [&](const program::Range& dim) {
    return program::extent_of(program, dim, 0).begin == 0;
  });
}

/// Whether a scope without a reduction reads a tensor of its own shape at its own place.
bool at_own_place(const Program& program, const Scope& scope, const Scalar& read) {
  for (std::size_t d = 0; d < read.indices.size(); ++d)
    if (symbolic::slot_of(program.arena, read.indices[d]) != scope.traversal[d].slot) return false;
  return true;
}

bool reduces(const Scope& scope) {
  return scope.reduction != program::Reduction::None || !scope.target.empty();
}

/// Tensors that programs compute, and that calls and callers do not see.
std::vector<bool> may_lie(const Graph& graph) {
  std::vector<bool> may(graph.tensors().size(), false);
  for (const Node& node : graph.nodes())
    if (!node.is_call())
      for (const TensorId output : node.outputs) may[static_cast<std::size_t>(output)] = true;
  for (const Node& node : graph.nodes())
    if (node.is_call())
      for (const TensorId input : node.inputs) may[static_cast<std::size_t>(input)] = false;
  for (const TensorId output : graph.outputs) may[static_cast<std::size_t>(output)] = false;
  return may;
}

class Spreading {
 public:
  Spreading(const Graph& graph, std::map<TensorId, Layout> layouts, const Propagation& rules)
      : graph_(graph), rules_(rules), layouts_(std::move(layouts)), may_(may_lie(graph)) {}

  std::map<TensorId, Layout> run() {
    const auto& nodes = graph_.nodes();
    if (rules_.down)
      for (const Node& node : nodes) spread(node, node.inputs, node.outputs);
    if (rules_.up)
      for (std::size_t n = nodes.size(); n-- > 0;) spread(nodes[n], nodes[n].outputs, nodes[n].inputs);
    return std::move(layouts_);
  }

 private:
  void spread(const Node& node, const std::vector<TensorId>& from, const std::vector<TensorId>& to) {
    if (!passes(node)) return;
    for (const TensorId source : from) {
      const auto found = layouts_.find(source);
      if (found == layouts_.end()) continue;
      const Layout layout = found->second;
      for (const TensorId wanted : to)
        if (fits(layout, graph_.tensor(source), graph_.tensor(wanted)) && may_[place(wanted)])
          layouts_.emplace(wanted, layout);
    }
  }

  bool passes(const Node& node) const {
    if (node.is_call()) return false;
    const Program& program = node.program->program;
    if (is_complex(program)) return !rules_.independent;
    return !rules_.equal_shapes || is_elementwise(program);
  }

  bool fits(const Layout& layout, const Tensor& source, const Tensor& wanted) const {
    if (wanted.shape.size() != source.shape.size() || element_count(wanted) == 0) return false;
    if (rules_.one_to_one && !schedule::is_bijective(layout, source.shape)) return false;
    if (wanted.shape == source.shape) return true;
    if (rules_.equal_shapes && rules_.independent) return false;
    return static_cast<bool>(schedule::try_shape_after(layout, wanted.shape));
  }

  const Graph& graph_;
  Propagation rules_;
  std::map<TensorId, Layout> layouts_;
  std::vector<bool> may_;
};

}  // namespace

std::map<TensorId, Layout> propagated(const Graph& graph, std::map<TensorId, Layout> layouts,
                                      const Propagation& rules) {
  return Spreading(graph, std::move(layouts), rules).run();
}

bool is_elementwise(const Program& program) {
  if (program.outputs.size() != 1) return false;
  const Shape shape = program::shape_of(program, program.outputs[0]);
  bool all = true;
  for (const Scope& scope : program.scopes) {
    all = all && !reduces(scope) && program::shape_of(program, scope.output) == shape;
    if (!all) return false;
    program::over_reads(program, scope.body, [&](ScalarId, const Scalar& read) {
      if (program::shape_of(program, read.tensor) == shape) all = all && at_own_place(program, scope, read);
    });
  }
  return all;
}

bool is_complex(const Program& program) { return !channels_of(program).empty(); }

std::map<program::TensorId, program::TensorId> owners_of(const Program& program) {
  std::map<program::TensorId, std::set<program::TensorId>> linked;
  for (const Scope& scope : program.scopes) {
    if (reduces(scope) || !starts_at_0(program, scope.output)) continue;
    program::over_reads(program, scope.body, [&](ScalarId, const Scalar& read) {
      if (program::shape_of(program, read.tensor) != program::shape_of(program, scope.output) ||
          !starts_at_0(program, read.tensor) || !at_own_place(program, scope, read))
        return;
      linked[read.tensor].insert(scope.output);
      linked[scope.output].insert(read.tensor);
    });
  }
  const auto inputs = program.inputs();
  std::set<program::TensorId> arguments(inputs.begin(), inputs.end());
  arguments.insert(program.outputs.begin(), program.outputs.end());
  std::map<program::TensorId, program::TensorId> owners;
  const auto claim = [&](program::TensorId owner) {
    std::vector<program::TensorId> next{owner};
    while (!next.empty()) {
      const program::TensorId at = next.back();
      next.pop_back();
      for (const program::TensorId other : linked[at]) {
        if (arguments.contains(other) || program.tensor(other).role != program::Role::Computed) continue;
        if (owners.emplace(other, owner).second) next.push_back(other);
      }
    }
  };
  for (const program::TensorId output : program.outputs) claim(output);
  for (const program::TensorId input : inputs)
    if (program.tensor(input).role == program::Role::Input) claim(input);
  return owners;
}

std::vector<Channel> channels_of(const Program& program) {
  std::vector<Channel> found;
  const auto add = [&](program::TensorId tensor, std::size_t dim) {
    const bool known = std::any_of(found.begin(), found.end(), [&](const Channel& channel) {
      return channel.tensor == tensor && channel.dim == dim;
    });
    if (!known) found.push_back({tensor, dim});
  };
  const auto owners = owners_of(program);
  const auto outside = [&](program::TensorId id) {  // the input or output that it is elementwise of
    const auto owner = owners.find(id);
    return owner == owners.end() ? id : owner->second;
  };
  for (const Scope& scope : program.scopes) {
    if (scope.reduction != program::Reduction::Sum || !scope.target.empty()) continue;
    std::vector<Scalar> factors;
    for (const ScalarId id : program::factors_of(program, scope.body))
      if (program.scalar(id).kind == program::ScalarKind::Read) factors.push_back(program.scalar(id));
    if (factors.size() < 2) continue;
    const auto moves = [&](const Scalar& read, std::uint32_t slot) {
      return std::any_of(read.indices.begin(), read.indices.end(), [&](symbolic::ExprId index) {
        const auto slots = program.arena.iterators(index);
        return std::find(slots.begin(), slots.end(), slot) != slots.end();
      });
    };
    for (std::size_t f = 0; f < factors.size(); ++f)
      for (std::size_t d = 0; d < factors[f].indices.size(); ++d) {
        const std::uint32_t slot = symbolic::slot_of(program.arena, factors[f].indices[d]);
        const bool summed = std::any_of(scope.sums.begin(), scope.sums.end(),
                                        [&](const program::Iterator& i) { return i.slot == slot; });
        if (slot == symbolic::kNoSlot || !summed) continue;
        for (std::size_t other = 0; other < factors.size(); ++other)
          if (other != f && moves(factors[other], slot)) add(outside(factors[f].tensor), d);
      }
    // A channel of the output moves one factor alone: a weight's.
    for (std::size_t d = 0; d < scope.traversal.size(); ++d) {
      std::size_t moved = 0, through_weight = 0;
      for (const Scalar& factor : factors) {
        const bool moves_it = moves(factor, scope.traversal[d].slot);
        moved += moves_it;
        through_weight += moves_it && program.tensor(factor.tensor).role == program::Role::Weight;
      }
      if (moved == 1 && through_weight == 1) add(outside(scope.output), d);
    }
  }
  return found;
}

}  // namespace syno::graph
