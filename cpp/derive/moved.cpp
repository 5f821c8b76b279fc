#include "derive/moved.hpp"

#include <algorithm>
#include <cctype>
#include <optional>

#include "derive/finite.hpp"
#include "derive/tools.hpp"
#include "support/error.hpp"
#include "symbolic/affine.hpp"
#include "symbolic/simplify.hpp"

namespace syno::derive {

std::size_t place_of(const Program& program, const Rewrite& row, const Site& site) {
  const std::size_t at = scope_named(program, site.scope);
  Site wanted = site;
  wanted.made.clear();
  const auto found = row.find(program, at);
  if (std::find(found.begin(), found.end(), wanted) == found.end())
    fail<ScheduleError>(kWhere, "'{}' does not apply to '{}'{}{}{}{}: {}", row.name, site.scope,
                        site.iterator.empty() ? "" : " at ", site.iterator, site.other.empty() ? "" : ", ",
                        site.other, row.statement);
  return at;
}

std::set<std::uint32_t> slots_of(const Program& program, ScalarId body) {
  std::set<std::uint32_t> slots;
  for (const ScalarId id : program::scalars_of(program, body))
    program::over_indices(program.scalar(id), [&](ExprId index) {
      for (const std::uint32_t slot : program.arena.iterators(index)) slots.insert(slot);
    });
  return slots;
}

bool depends_on(const Program& program, ExprId index, std::uint32_t slot) {
  const auto slots = program.arena.iterators(index);
  return std::find(slots.begin(), slots.end(), slot) != slots.end();
}

bool depends_on(const Program& program, ScalarId body, std::uint32_t slot) {
  return program::any_scalar(program, body, [&](const Scalar& scalar) {
    bool found = false;
    program::over_indices(scalar, [&](ExprId index) { found = found || depends_on(program, index, slot); });
    return found;
  });
}

bool total(const Program& program, ScalarId body) {
  return !program::any_scalar(program, body, [&](const Scalar& scalar) {
    if (scalar.kind == ScalarKind::Unary)
      return scalar.function == Function::Log || scalar.function == Function::Sqrt ||
             scalar.function == Function::Rsqrt;
    if (scalar.kind != ScalarKind::Binary) return false;
    if (scalar.function == Function::Power) return true;
    if (scalar.function != Function::Divide && scalar.function != Function::Fmod) return false;
    const Scalar& divisor = program.scalar(scalar.b);
    return divisor.kind != ScalarKind::Literal || divisor.literal == Rational(0);
  });
}

const Iterator* iterator_named(const Scope& scope, const std::string& name) {
  for (const Iterators* list : {&scope.traversal, &scope.sums})
    for (const Iterator& iterator : *list)
      if (iterator.name == name) return &iterator;
  return nullptr;
}

bool named_once(const Scope& scope, const Iterator& iterator) {
  const auto count = [&](const Iterators& list) {
    return std::count_if(list.begin(), list.end(),
                         [&](const Iterator& i) { return i.name == iterator.name; });
  };
  return count(scope.traversal) + count(scope.sums) == 1;
}

std::string fresh_iterator_name(const Scope& scope, const std::string& wanted) {
  std::string name = wanted;
  const auto taken = [&](const Iterators& list) {
    return std::any_of(list.begin(), list.end(), [&](const Iterator& i) { return i.name == name; });
  };
  for (int n = 2; taken(scope.traversal) || taken(scope.sums); ++n) name = wanted + std::to_string(n);
  return name;
}

program::Range make_range(Program& program, std::int64_t begin, std::int64_t end) {
  return {program.arena.constant(begin), program.arena.constant(end)};
}

std::string derived_name(const Program& program, const Site& site, std::string_view suffix) {
  static const std::set<std::string, std::less<>> kSuffixes{
      "terms",   "moved", "split", "merged", "products", "data",   "window",
      "operand", "left",  "right", "low",    "high",     "phases", "part"};
  std::string base = site.scope;
  while (!base.empty() && std::isdigit(static_cast<unsigned char>(base.back()))) base.pop_back();
  const std::size_t last = base.rfind('_');
  if (last == std::string::npos || last == 0 || !kSuffixes.contains(base.substr(last + 1)))
    base = site.scope;
  else
    base.resize(last);
  return name_for(program, site, base + "_" + std::string(suffix));
}

Iterators copies_of(Program& program, const Iterators& iterators,
                    std::vector<std::pair<std::uint32_t, ExprId>>& moved) {
  Iterators copies;
  for (const Iterator& iterator : iterators) {
    copies.push_back(program.new_iterator(iterator.name, iterator.range));
    moved.emplace_back(iterator.slot, program.arena.iterator(copies.back().slot));
  }
  return copies;
}

TensorId add_computed(Program& program, std::string name, const Iterators& traversal) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.role = program::Role::Computed;
  for (const Iterator& iterator : traversal) tensor.dims.push_back(iterator.range);
  return program.add_tensor(std::move(tensor));
}

void apply(const Rewrite& row, Program& program, const Site& site) {
  row.apply(program, site);
  if (row.schedules)  // which simplify what they lower
    for (std::size_t s = 0; s < program.scopes.size(); ++s) simplify_scope(program, s);
}

void simplify_scope(Program& program, std::size_t at) {
  symbolic::Simplifier simplify(program.arena, program::context_of(program));
  Scope& scope = program.scopes[at];
  scope.body = program::rebuild(
      program, scope.body, [](ScalarId) { return std::optional<ScalarId>(); },
      [&](ExprId index) { return simplify(index); });
}

namespace {

/// Of all conditions, those that may fail.
std::vector<symbolic::Condition> open_ones(const Program& program,
                                           const std::vector<symbolic::Condition>& conditions) {
  const auto context = program::context_of(program);
  std::vector<symbolic::Condition> open;
  for (const auto& condition : conditions) {
    const symbolic::Interval reach = symbolic::bounds(program.arena, condition.expr, context, 0);
    if (reach.least < condition.begin || reach.greatest >= condition.end) open.push_back(condition);
  }
  return open;
}

ScalarId chosen(Program& program, ScalarId body, const std::vector<symbolic::Condition>& conditions,
                Rational otherwise) {
  std::optional<ScalarId> inside;
  const auto both = [&](ScalarId test) {
    inside = inside ? program.binary(Function::And, *inside, test) : test;
  };
  for (const auto& c : conditions) {
    both(program.binary(Function::LessEqual, program.literal(c.begin), program.index_value(c.expr)));
    both(program.binary(Function::Less, program.index_value(c.expr), program.literal(c.end)));
  }
  return inside ? program.select(*inside, body, program.literal(otherwise)) : body;
}

}  // namespace

namespace {

bool zero_outside(const Scalar& factor) {
  return factor.kind == ScalarKind::Read && factor.fill == Rational(0) && !factor.indices.empty();
}

/// Whether a read is outside of its tensor, hence 0, wherever the condition fails.
bool implied_by(const Program& program, const Scalar& read, const symbolic::Condition& condition) {
  const auto wanted = symbolic::affine_form(program.arena, condition.expr);
  for (std::size_t d = 0; d < read.indices.size(); ++d) {
    const auto index = symbolic::affine_form(program.arena, read.indices[d]);
    if (index.terms != wanted.terms) continue;
    const std::int64_t further = index.constant - wanted.constant;
    const auto [begin, end] = range_of(program, program.tensor(read.tensor).dims[d]);
    if (begin - further >= condition.begin && end - further <= condition.end) return true;
  }
  return false;
}

}  // namespace

ScalarId where(Program& program, ScalarId body, const std::vector<symbolic::Condition>& conditions) {
  auto open = open_ones(program, conditions);
  const auto factors = program::factors_of(program, body);
  const bool zero = !open.empty() && finite(program, body);  // times 0
  std::erase_if(open, [&](const symbolic::Condition& condition) {
    return zero && std::any_of(factors.begin(), factors.end(), [&](ScalarId factor) {
             const Scalar& read = program.scalar(factor);
             return zero_outside(read) && implied_by(program, read, condition);
           });
  });
  if (open.empty()) return body;
  if (!zero) return chosen(program, body, open, 0);
  for (const ScalarId factor : factors) {
    Scalar read = program.scalar(factor);
    if (!zero_outside(read)) continue;
    auto& arena = program.arena;
    for (const auto& c : open) {
      const ExprId guard =
          arena.inside(arena.subtract(c.expr, arena.constant(c.begin)), symbolic::Size(c.end - c.begin));
      read.indices[0] = arena.add(read.indices[0], arena.multiply(guard, 0));
    }
    const ScalarId guarded = program.add_scalar(std::move(read));
    return program::rebuild(
        program, body, [&](ScalarId id) { return id == factor ? std::optional(guarded) : std::nullopt; });
  }
  return chosen(program, body, open, 0);
}

ScalarId in_place_of(Program& program, const Scope& producer, const Scalar& read) {
  std::vector<symbolic::Condition> conditions;
  std::vector<std::pair<std::uint32_t, ExprId>> values;
  const std::vector<ExprId> indices = read.indices;  // `read` may be one of the program
  const Rational fill = read.fill;
  for (std::size_t d = 0; d < indices.size(); ++d) {
    const ExprId index = symbolic::without_inside(program.arena, indices[d], conditions);
    const auto [begin, end] = range_of(program, producer.traversal[d].range);
    values.emplace_back(producer.traversal[d].slot, index);
    conditions.push_back({index, begin, end});
  }
  const ScalarId body = program::with_iterators(program, producer.body, values);
  if (fill == Rational(0)) return where(program, body, conditions);
  return chosen(program, body, open_ones(program, conditions), fill);
}

namespace {

using Pairs = std::vector<std::pair<std::uint32_t, ExprId>>;

ExprId with_values(Program& program, ExprId e, const Pairs& values) {
  return program.arena.substitute(e, [&](std::uint32_t slot) {
    for (const auto& [from, to] : values)
      if (from == slot) return to;
    return program.arena.iterator(slot);
  });
}

/// Reads of `was` become reads of `made`.
void redirect(Program& program, const Scope& was, TensorId made, const std::vector<ExprId>& places) {
  auto& arena = program.arena;
  for (std::size_t s = 0; s < program.scopes.size(); ++s) {
    if (!program::reads_tensor(program, program.scopes[s].body, was.output)) continue;
    const auto context = program::context_of(program);
    const auto read_of = [&](ScalarId id) -> std::optional<ScalarId> {
      const Scalar read = program.scalar(id);
      if (read.kind != ScalarKind::Read || read.tensor != was.output) return std::nullopt;
      Pairs values;
      ExprId guards = arena.constant(0);
      for (std::size_t d = 0; d < read.indices.size(); ++d) {
        const auto [begin, end] = range_of(program, was.traversal[d].range);
        const symbolic::Interval reach = symbolic::bounds(arena, read.indices[d], context, 0);
        ExprId value = read.indices[d];
        if (reach.least < begin || reach.greatest >= end)
          value = arena.add(
              arena.inside(arena.subtract(value, arena.constant(begin)), symbolic::Size(end - begin)),
              arena.constant(begin));
        const std::uint32_t slot = was.traversal[d].slot;
        const bool used = std::any_of(places.begin(), places.end(),
                                      [&](ExprId place) { return depends_on(program, place, slot); });
        values.emplace_back(slot, value);
        if (!used && arena.has_inside(value)) guards = arena.add(guards, arena.multiply(value, 0));
      }
      std::vector<ExprId> indices;
      for (const ExprId place : places) indices.push_back(with_values(program, place, values));
      indices[0] = arena.add(indices[0], guards);
      return program.read(made, std::move(indices), read.fill);
    };
    program.scopes[s].body = program::rebuild(program, program.scopes[s].body, read_of);
    simplify_scope(program, s);
  }
}

}  // namespace

void read_instead(Program& program, std::size_t at, TensorId made, std::vector<ExprId> places) {
  const Scope was = program.scopes[at];
  if (!is_output(program, was.output) && !places.empty()) {
    redirect(program, was, made, places);  // while the slots of what was have ranges
    program.scopes.erase(program.scopes.begin() + static_cast<std::ptrdiff_t>(at));
    return;
  }
  Scope copy;
  copy.output = was.output;
  Pairs values;
  copy.traversal = copies_of(program, was.traversal, values);
  for (ExprId& place : places) place = with_values(program, place, values);
  copy.body = program.read(made, std::move(places));
  program.scopes[at] = std::move(copy);
  simplify_scope(program, at);
}

void move_scope(Program& program, std::size_t at, Moved moved, const std::string& name) {
  Scope made = program.scopes[at];
  made.output = add_computed(program, name, moved.traversal);
  made.traversal = std::move(moved.traversal);
  made.body = moved.body;
  const TensorId tensor = made.output;
  read_instead(program, at, tensor, std::move(moved.places));
  program.scopes.insert(program.scopes.begin() + static_cast<std::ptrdiff_t>(at), std::move(made));
  simplify_scope(program, at);
}

}  // namespace syno::derive
