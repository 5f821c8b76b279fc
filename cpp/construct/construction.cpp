// The plan and the trace that strategies write: the decisions they share.
#include <algorithm>
#include <numeric>
#include <tuple>

#include "construct/construct.hpp"
#include "support/error.hpp"

namespace syno::construct {

namespace {

/// Iterations of scalar work below which starting threads costs more than it gives.
constexpr double kParallelWork = 60'000;

}  // namespace

Construction::Construction(const program::Program& concrete, Dtype dtype, const Target& machine,
                           std::vector<std::string> constant_names, const Strides& strides)
    : plan(concrete, dtype), target(machine), constants(std::move(constant_names)) {
  for (const auto& name : constants) {
    const auto tensor = plan.tensor_named(name);
    if (plan.program.tensor(tensor).role == program::Role::Computed)
      fail<ScheduleError>("construct", "'{}' is computed; only inputs can be constant over calls", name);
  }
  schedule.dtype = dtype;
  lanes = std::max<std::int64_t>(1, machine.vector_bits / (dtype == Dtype::F64 ? 64 : 32));
  for (const auto& [name, numbers] : strides) raise_if(add({"strides", "", {}, numbers, name, {}}));
}

Refused Construction::add(Decision decision) {
  Refused refused = schedule::try_decide(plan, decision);
  if (!refused) schedule.trace.push_back(std::move(decision));
  return refused;
}

OrRefusal<Parts> Construction::split(const std::string& scope, const std::string& loop, std::int64_t factor) {
  SYNO_ACCEPT(add({"split", scope, {loop}, {factor}, "", {}}));
  const auto& loops = plan.scopes[index(scope)].loops;
  return Parts{loops[loops.size() - 2].name, loops.back().name};
}

bool Construction::may_fuse(const std::string& scope, const std::string& a, const std::string& b) const {
  const std::size_t s = index(scope);
  return extent(scope, a) == 1 || !plan.grows(s, plan.leaf_named(s, b));
}

OrRefusal<std::string> Construction::fuse(const std::string& scope, const std::string& a,
                                          const std::string& b) {
  if (!may_fuse(scope, a, b))
    return refuse("construct", "'{}' of '{}' ends where calls say: '{}' around it stays a loop", b, scope, a);
  SYNO_ACCEPT(add({"fuse", scope, {a, b}, {}, "", {}}));
  return plan.scopes[index(scope)].loops.back().name;
}

Refused Construction::apply(const std::string& scope, const Splits& splits) {
  for (const auto& [loop, factor] : splits) {
    const auto names = leaves(scope);
    if (std::find(names.begin(), names.end(), loop) == names.end()) continue;
    // A piece may be less than a block.
    SYNO_ACCEPT(add({"split", scope, {loop}, {std::min(factor, extent(scope, loop))}, "", {}}));
  }
  return {};
}

bool Construction::constant(program::TensorId tensor) const {
  const auto& name = plan.program.tensor(tensor).name;
  return std::find(constants.begin(), constants.end(), name) != constants.end();
}

OrRefusal<std::string> Construction::stage_read(const std::string& scope, const ReadFacts& read,
                                                const std::string& suffix) {
  const std::string& source = plan.program.tensor(read.tensor).name;
  const std::string copy = program::fresh_tensor_name(plan.program, source + suffix);
  const auto reads = plan.reads_of(index(scope), read.tensor);
  const auto which = std::find(reads.begin(), reads.end(), read.id) - reads.begin();
  SYNO_ACCEPT(add({"stage", scope, {}, {which}, source, {copy}}));
  // Loops that run further than the analysed ones, as a tile's do, may leave t[i / 18, i % 18] a copy by i
  // alone.
  const auto staged = plan.program.find_tensor(copy);
  const std::size_t rank = plan.program.tensor(*staged).dims.size();
  if (rank != read.copy.extents.size())
    return refuse("construct", "a copy of '{}' for '{}' has {} dimensions where {} were analysed", source,
                  scope, rank, read.copy.extents.size());
  return copy;
}

Refused Construction::prepack(const std::string& copy, program::TensorId source) {
  return constant(source) ? add({"prepack", copy, {}, {}, "", {}}) : Refused{};
}

std::vector<std::string> Construction::leaves(const std::string& scope) {
  const std::size_t s = index(scope);
  plan.need_domain(s);
  const ScopePlan& current = plan.scopes[s];
  std::vector<std::string> names;
  for (const int loop : current.order) names.push_back(current.loops[static_cast<std::size_t>(loop)].name);
  return names;
}

std::int64_t Construction::extent(const std::string& scope, const std::string& loop) const {
  const std::size_t s = index(scope);
  return plan.scopes[s].loops[static_cast<std::size_t>(plan.leaf_named(s, loop))].extent;
}

Refused Construction::vectorize_innermost(const std::string& scope) {
  const std::size_t s = index(scope);
  plan.need_domain(s);
  const auto innermost = [&] {
    return plan.scopes[s].loops[static_cast<std::size_t>(plan.scopes[s].order.back())];
  };
  if (plan.scopes[s].order.empty()) return {};
  const PlannedLoop loop = innermost();
  if (loop.extent == 1 || loop.kind != LoopKind::Serial) return {};
  Draft draft(*this);
  std::string outer, lane = loop.name;
  if (loop.extent > lanes) {
    SYNO_TAKE(parts, split(scope, loop.name, lanes));
    std::tie(outer, lane) = parts;
  }
  if (add({"vectorize", scope, {lane}, {}, "", {}})) return {};  // iterations that meet in one element
  if (!outer.empty()) SYNO_ACCEPT(peel_lanes(scope, outer, lane, loop.extent % lanes != 0));
  draft.keep();
  return {};
}

void Construction::parallel_outermost(const std::string& scope, std::int64_t inside) {
  const std::size_t s = index(scope);
  plan.need_domain(s);
  const ScopePlan& current = plan.scopes[s];
  if (current.attach_scope >= 0) return;
  double work = 1;
  for (const int loop : current.order)
    work *= static_cast<double>(current.loops[static_cast<std::size_t>(loop)].extent);
  if (work + static_cast<double>(inside) < kParallelWork) return;
  for (const int index : current.order) {
    const PlannedLoop& loop = current.loops[static_cast<std::size_t>(index)];
    if (loop.extent == 1 || loop.reduction) continue;  // threads share the work of each part of a reduction
    if (static_cast<std::int64_t>(loop.cuts.size()) + 1 == loop.extent) continue;  // nests of their own
    if (loop.kind != LoopKind::Serial) return;
    static_cast<void>(add({"parallel", scope, {loop.name}, {}, "", {}}));
    return;
  }
}

}  // namespace syno::construct
