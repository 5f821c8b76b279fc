#include "nest/loop_nest.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "support/error.hpp"

namespace syno::nest {

std::string_view name_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::F32:
      return "f32";
    case Dtype::F64:
      return "f64";
    case Dtype::BF16:
      return "bf16";
  }
  SYNO_ASSERT(false, "a dtype without a name");
  return {};
}

std::size_t byte_size(Dtype dtype) {
  switch (dtype) {
    case Dtype::F32:
      return 4;
    case Dtype::F64:
      return 8;
    case Dtype::BF16:
      return 2;
  }
  SYNO_ASSERT(false, "a dtype without a size");
  return 0;
}

std::vector<std::int64_t> row_major_strides(const std::vector<std::int64_t>& extents) {
  std::vector<std::int64_t> strides(extents.size(), 1);
  for (std::size_t d = extents.size(); d-- > 1;) {
    if (__builtin_mul_overflow(strides[d], std::max<std::int64_t>(extents[d], 1), &strides[d - 1]))
      fail<ShapeError>("loop nest",
                       "the sizes of a buffer multiply to more than 64 bits; use smaller tensors");
  }
  return strides;
}

bool strides_overlap(const std::vector<std::int64_t>& extents, const std::vector<std::int64_t>& strides) {
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // steps, and how many
  for (std::size_t d = 0; d < extents.size(); ++d) {
    if (extents[d] == 0) return false;
    if (extents[d] > 1) dims.emplace_back(std::abs(strides[d]), extents[d]);
  }
  std::sort(dims.begin(), dims.end());
  std::int64_t reach = 0;
  for (const auto& [step, extent] : dims) {
    if (step <= reach) return true;
    reach += step * (extent - 1);
  }
  return false;
}

std::vector<BufferId> arguments(const LoopNest& nest) {
  std::vector<BufferId> ids;
  for (std::uint32_t i = 0; i < nest.buffers.size(); ++i) {
    const BufferKind kind = nest.buffers[i].kind;
    if (kind == BufferKind::Input || kind == BufferKind::Output) ids.push_back(BufferId{i});
  }
  return ids;
}

LoopNest specialised(const LoopNest& nest, const std::vector<std::int64_t>& parameters) {
  const std::string where = "loop nest " + nest.name;
  if (parameters.size() != nest.parameters.size())
    fail<ShapeError>(where, "{} sizes for {} parameters", parameters.size(), nest.parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = nest.parameters[i];
    if (parameters[i] < parameter.least || parameters[i] > parameter.greatest)
      fail<ShapeError>(where, "`{}` is {}; it was made for {} to {}", parameter.name, parameters[i],
                       parameter.least, parameter.greatest);
  }
  LoopNest made = nest;
  made.parameters.clear();
  const auto bound = [&](ExprId id) {
    return made.arena.substitute(id, [&](std::uint32_t slot) {
      for (std::size_t i = 0; i < parameters.size(); ++i)
        if (nest.parameters[i].slot == slot) return made.arena.constant(parameters[i]);
      return made.arena.iterator(slot);
    });
  };
  const auto bind = [&](ExprId& id) { id = bound(id); };
  const auto bind_all = [&](std::vector<ExprId>& all) { std::for_each(all.begin(), all.end(), bind); };
  const auto bind_conditions = [&](std::vector<Condition>& all) {
    for (Condition& condition : all) bind(condition.expr);
  };
  for (Buffer& buffer : made.buffers) {
    if (buffer.live.empty()) continue;
    for (std::size_t d = 0; d < buffer.live.size(); ++d) {
      if (made.arena.has_iterator(buffer.live[d])) buffer.strides_of_calls = d;
      const auto extent = symbolic::evaluate(made.arena, bound(buffer.live[d]), symbolic::Sizes(), 0, {});
      SYNO_ASSERT(extent.has_value(), "extents are over parameters only");
      buffer.extents[d] = *extent;
    }
    buffer.live.clear();
    buffer.strides = row_major_strides(buffer.extents);
  }
  for (Value& value : made.values) {
    bind_all(value.indices);
    bind_conditions(value.guards);
    if (value.kind == ValueKind::Index) bind(value.index);
  }
  for (Statement& statement : made.statements) {
    bind_all(statement.indices);
    bind_conditions(statement.conditions);
    if (statement.kind != StatementKind::For) continue;
    bind(statement.begin);
    bind(statement.end);
  }
  return made;
}

BufferId LoopNest::add(Buffer added) {
  if (added.strides.empty() && !added.extents.empty()) added.strides = row_major_strides(added.extents);
  buffers.push_back(std::move(added));
  return BufferId{static_cast<std::uint32_t>(buffers.size() - 1)};
}

ValueId LoopNest::add(Value added) {
  values.push_back(std::move(added));
  return ValueId{static_cast<std::uint32_t>(values.size() - 1)};
}

StatementId LoopNest::add(Statement added) {
  statements.push_back(std::move(added));
  return StatementId{static_cast<std::uint32_t>(statements.size() - 1)};
}

ValueId LoopNest::literal(double number) {
  Value made;
  made.kind = ValueKind::Literal;
  made.literal = number;
  return add(std::move(made));
}

ValueId LoopNest::load(BufferId from, std::vector<ExprId> indices, std::vector<Condition> guards,
                       double fill) {
  Value made;
  made.kind = ValueKind::Load;
  made.buffer = from;
  made.indices = std::move(indices);
  made.guards = std::move(guards);
  made.literal = fill;
  return add(std::move(made));
}

ValueId LoopNest::index_value(ExprId index) {
  Value made;
  made.kind = ValueKind::Index;
  made.index = index;
  return add(std::move(made));
}

ValueId LoopNest::unary(program::Function function, ValueId a) {
  Value made;
  made.kind = ValueKind::Unary;
  made.function = function;
  made.a = a;
  return add(std::move(made));
}

ValueId LoopNest::binary(program::Function function, ValueId a, ValueId b) {
  Value made;
  made.kind = ValueKind::Binary;
  made.function = function;
  made.a = a;
  made.b = b;
  return add(std::move(made));
}

ValueId LoopNest::select(ValueId condition, ValueId yes, ValueId no) {
  Value made;
  made.kind = ValueKind::Select;
  made.a = condition;
  made.b = yes;
  made.c = no;
  return add(std::move(made));
}

StatementId LoopNest::sequence(std::vector<StatementId> children) {
  if (children.size() == 1) return children[0];
  Statement made;
  made.kind = StatementKind::Sequence;
  made.children = std::move(children);
  return add(std::move(made));
}

StatementId LoopNest::loop(std::string loop_name, std::uint32_t slot, ExprId begin, ExprId end, LoopKind kind,
                           StatementId body) {
  Statement made;
  made.kind = StatementKind::For;
  made.name = std::move(loop_name);
  made.slot = slot;
  made.begin = begin;
  made.end = end;
  made.loop = kind;
  made.children = {body};
  return add(std::move(made));
}

StatementId LoopNest::loop(std::string loop_name, std::uint32_t slot, std::int64_t extent, LoopKind kind,
                           StatementId body) {
  const ExprId begin = arena.constant(0), end = arena.constant(extent);
  return loop(std::move(loop_name), slot, begin, end, kind, body);
}

StatementId LoopNest::guard(std::vector<Condition> conditions, StatementId body) {
  if (conditions.empty()) return body;
  Statement made;
  made.kind = StatementKind::If;
  made.conditions = std::move(conditions);
  made.children = {body};
  return add(std::move(made));
}

StatementId LoopNest::store(BufferId into, std::vector<ExprId> indices, ValueId stored, StoreMode mode) {
  Statement made;
  made.kind = StatementKind::Store;
  made.buffer = into;
  made.indices = std::move(indices);
  made.value = stored;
  made.mode = mode;
  return add(std::move(made));
}

StatementId LoopNest::allocate(BufferId allocated, StatementId body) {
  Statement made;
  made.kind = StatementKind::Allocate;
  made.buffer = allocated;
  made.children = {body};
  return add(std::move(made));
}

StatementId LoopNest::prefetch(BufferId from, std::vector<ExprId> indices) {
  Statement made;
  made.kind = StatementKind::Prefetch;
  made.buffer = from;
  made.indices = std::move(indices);
  return add(std::move(made));
}

}  // namespace syno::nest
