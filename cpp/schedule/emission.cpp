// The frame of a loop nest: what does not change while scopes are emitted, buffers, the order of scopes.
#include "schedule/emission.hpp"

#include <algorithm>
#include <set>

#include "support/error.hpp"

namespace syno::schedule {

using program::ScalarId;
using program::TensorId;

OrRefusal<LoopNest> Emission::run() {
  for (std::size_t s = plan_.scopes.size(); s-- > 0;) plan_.need_domain(s);
  SYNO_ACCEPT(check_prepacked());
  prepare_scopes();
  nest_.arena = plan_.program.arena;
  nest_.next_slot = plan_.program.next_slot;
  nest_.name = "kernel_" + plan_.program.tensor(plan_.program.outputs.at(0)).name;
  nest_.parameters = plan_.sizes;
  forms_ = plan_.bound_forms();
  for (const auto& scope : plan_.scopes)
    for (const auto& loop : scope.loops) forms_.unbind(loop.slot);
  for (std::size_t s = 0; s < plan_.scopes.size() && !plan_.sizes.empty(); ++s)
    for (std::size_t i = 0; i < plan_.iterator_count(s); ++i)
      if (const auto end = plan_.live_end(nest_.arena, plan_.iterator(s, i).range))
        forms_.push_loop_facts(plan_.iterator(s, i).slot, {}, forms_.form(nest_.arena, *end));
  make_buffers();
  StatementId body{};
  bool any = false;
  for (std::size_t s = plan_.scopes.size(); s-- > 0;) {
    if (plan_.scopes[s].attach_scope >= 0 || !here(s)) continue;
    std::vector<StatementId> parts{emit_scope(s)};
    if (any) parts.push_back(body);
    body = with_memory(s, nest_.sequence(std::move(parts)));
    any = true;
  }
  if (refused_) return *std::move(refused_);
  nest_.root = any ? body : nest_.sequence({});
  finish_buffers();
  return std::move(nest_);
}

std::size_t Emission::outermost(std::size_t s) const {
  while (plan_.scopes[s].attach_scope >= 0) s = static_cast<std::size_t>(plan_.scopes[s].attach_scope);
  return s;
}

StatementId Emission::refused(Refusal refusal) {
  if (!refused_) refused_ = std::move(refusal);
  return nest_.sequence({});
}

Refused Emission::check_prepacked() const {
  for (std::size_t s = 0; s < plan_.scopes.size(); ++s) {
    const auto& name = plan_.program.tensor(plan_.program.scopes[s].output).name;
    if (plan_.scopes[s].prepacked && plan_.scopes[s].attach_scope >= 0)
      return refuse(kWhere, "'{}' is prepacked but computed at a loop of another scope", name);
    if (!plan_.scopes[outermost(s)].prepacked) continue;
    for (const ScalarId read : plan_.all_reads(s)) {
      const TensorId tensor = plan_.program.scalar(read).tensor;
      const auto made_by = plan_.producer(tensor);
      if (made_by && !plan_.scopes[outermost(*made_by)].prepacked)
        return refuse(kWhere, "'{}' is prepacked but reads '{}', which is computed in every call", name,
                      plan_.program.tensor(tensor).name);
    }
  }
  return {};
}

void Emission::prepare_scopes() {
  std::set<std::string> taken;
  for (const auto& tensor : plan_.program.tensors) taken.insert(tensor.name);
  for (const auto& size : plan_.sizes) taken.insert(size.name);
  facts_.resize(plan_.scopes.size());
  for (std::size_t s = 0; s < plan_.scopes.size(); ++s) {
    ScopeFrame& facts = facts_[s];
    const program::Scope& scope = plan_.program.scopes[s];
    const std::string& tensor = plan_.program.tensor(scope.output).name;
    if (plan_.scopes[s].skips) facts.inside = terms_inside(plan_, s);
    for (std::size_t i = 0; i < plan_.iterator_count(s); ++i) {
      const ExprId value = plan_.iterator_value(s, i);
      facts.values.emplace(plan_.iterator(s, i).slot, value);
      if (i < scope.traversal.size() && scope.target.empty()) facts.outputs.push_back(value);
    }
    for (std::size_t l = 0; l < plan_.scopes[s].loops.size(); ++l) {
      const PlannedLoop& loop = plan_.scopes[s].loops[l];
      facts.trips.push_back(loop.extent);
      const bool overruns = loop.outer >= 0 && plan_.greatest(s, static_cast<int>(l)) >= loop.extent;
      if (overruns || loop.live < loop.extent)
        facts.rests.push_back({plan_.value_of(s, static_cast<int>(l)), loop.live, loop.reduction,
                               plan_.ends_iterator(s, static_cast<int>(l))});
      std::string name = loop.name;
      if (taken.contains(name)) name = loop.name + "_" + tensor;
      for (int i = 2; taken.contains(name); ++i) name = fmt::format("{}_{}{}", loop.name, tensor, i);
      if (loop.is_leaf()) taken.insert(name);
      facts.names.push_back(std::move(name));
    }
    if (!plan_.sizes.empty()) find_live(s);
  }
}

bool Emission::here(std::size_t s) const {
  return part_ == Part::Whole || plan_.scopes[outermost(s)].prepacked == (part_ == Part::Prepack);
}

bool Emission::used_here(TensorId tensor) const {
  const auto readers = plan_.consumers(tensor);
  return std::any_of(readers.begin(), readers.end(), [&](std::size_t s) { return here(s); });
}

void Emission::make_buffers() {
  const program::Program& program = plan_.program;
  buffer_of_.resize(program.tensors.size());
  shapes_.resize(program.tensors.size());
  std::vector<TensorId> ids, packed;
  for (std::size_t s = 0; s < plan_.scopes.size(); ++s)
    if (plan_.scopes[s].prepacked) packed.push_back(program.scopes[s].output);
  for (const TensorId id : program.inputs())
    if (part_ == Part::Whole || used_here(id)) ids.push_back(id);
  if (part_ != Part::Whole) ids.insert(ids.end(), packed.begin(), packed.end());
  if (part_ != Part::Prepack) ids.insert(ids.end(), program.outputs.begin(), program.outputs.end());
  for (std::uint32_t t = 0; t < program.tensors.size(); ++t) {
    const auto made_by = plan_.producer(TensorId{t});
    if (made_by ? !here(*made_by) : part_ != Part::Whole && !used_here(TensorId{t})) continue;
    if (std::find(ids.begin(), ids.end(), TensorId{t}) == ids.end()) ids.push_back(TensorId{t});
  }
  for (const TensorId id : ids) {
    const program::Tensor& tensor = program.tensor(id);
    Buffer buffer;
    buffer.name = tensor.name;
    shapes_[raw(id)] = plan_.storage(id);
    if (tensor.role == program::Role::Computed) {
      if (!plan_.producer(id)) continue;  // inlined everywhere
      buffer.kind = plan_.is_output(id) ? BufferKind::Output : BufferKind::Temporary;
      if (part_ != Part::Whole && plan_.scopes[*plan_.producer(id)].prepacked)
        buffer.kind = part_ == Part::Prepack ? BufferKind::Output : BufferKind::Input;
    } else if (tensor.role == program::Role::Constant) {
      buffer.kind = BufferKind::Constant;
      for (const auto& number : tensor.literal) buffer.literal.push_back(number.to_double());
    } else {
      buffer.kind = BufferKind::Input;
    }
    const bool caller = tensor.role != program::Role::Constant &&
                        (tensor.role != program::Role::Computed || plan_.is_output(id));
    buffer.dtype = caller ? plan_.dtype : register_dtype();
    buffer.extents =
        owned(id) ? shape_after(plan_.tensors[raw(id)].layout, shapes_[raw(id)]) : shapes_[raw(id)];
    if (const auto known = known_.find(buffer.name); known != known_.end() && !known->second.empty())
      buffer.extents = known->second;
    buffer.strides = plan_.tensors[raw(id)].strides;
    bool live = false;
    for (std::size_t d = 0; d < tensor.dims.size(); ++d) live = live || live_extent(id, d);
    if (live && (buffer.kind == BufferKind::Input || buffer.kind == BufferKind::Output)) {
      if (!buffer.strides.empty())
        refused(refuse(kWhere, "'{}' has strides, but an extent known at run time; it lies row-major",
                       buffer.name));
      for (std::size_t d = 0; d < tensor.dims.size(); ++d)
        buffer.live.push_back(live_extent(id, d).value_or(nest_.arena.constant(buffer.extents[d])));
    }
    buffer_of_[raw(id)] = nest_.add(std::move(buffer));
  }
}

void Emission::finish_buffers() {
  for (auto& buffer : nest_.buffers)
    if (buffer.kind == BufferKind::Temporary || known_.contains(buffer.name))
      buffer.strides = nest::row_major_strides(buffer.extents);
}

}  // namespace syno::schedule
