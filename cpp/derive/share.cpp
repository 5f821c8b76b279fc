// What two scopes compute alike is computed once: the exponentials of a softmax.
#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "derive/tools.hpp"
#include "support/error.hpp"

namespace syno::derive {

namespace {

bool elementary(const Scalar& scalar) {
  if (scalar.kind == ScalarKind::Binary) return scalar.function == Function::Power;
  if (scalar.kind != ScalarKind::Unary) return false;
  return scalar.function != Function::Negate && scalar.function != Function::Relu &&
         scalar.function != Function::Abs;
}

/// The elementary functions in a body, the outermost ones alone.
std::vector<ScalarId> elementary_in(const Program& program, ScalarId body) {
  std::vector<ScalarId> found;
  program::visit(program, body, [&](ScalarId id, const Scalar& scalar) {
    if (elementary(scalar)) found.push_back(id);
    return !elementary(scalar);
  });
  return found;
}

/// Compares two expressions while it finds out which iterator of the one is which of the other.
class Matching {
 public:
  Matching(const Program& program, std::size_t scope, std::size_t other)
      : program_(program),
        arena_(program.arena),
        scope_(program.scopes[scope]),
        other_(program.scopes[other]) {}

  std::optional<Shared> match(ScalarId here, ScalarId there) {
    if (!same(here, there)) return std::nullopt;
    Shared made{here, there, {}, {}};
    for (const auto* iterators : {&other_.traversal, &other_.sums})
      for (const Iterator& iterator : *iterators)
        for (const auto& [slot, to] : to_)
          if (to == iterator.slot) {
            made.points.push_back(iterator);
            made.places.push_back(here_.at(slot));
          }
    if (made.points.empty()) return std::nullopt;
    return made;
  }

 private:
  bool same(ScalarId here, ScalarId there) {
    const Scalar a = program_.scalar(here), b = program_.scalar(there);
    if (a.kind != b.kind) return false;
    switch (a.kind) {
      case ScalarKind::Literal:
        return a.literal == b.literal;
      case ScalarKind::Read:
        if (a.tensor != b.tensor || !(a.fill == b.fill)) return false;
        for (std::size_t d = 0; d < a.indices.size(); ++d)
          if (!same_index(a.indices[d], b.indices[d])) return false;
        return true;
      case ScalarKind::Index:
        return same_index(a.index, b.index);
      default: {
        const std::array mine{a.a, a.b, a.c}, theirs{b.a, b.b, b.c};
        bool equal = a.kind == ScalarKind::Select || a.function == b.function;
        for (std::size_t i = 0; equal && i < program::operand_count(a.kind); ++i)
          equal = same(mine[i], theirs[i]);
        return equal;
      }
    }
  }

  bool same_index(ExprId a, ExprId b) {
    const symbolic::Expr one = arena_[a], two = arena_[b];
    if (one.op != two.op || one.size != two.size || one.value != two.value) return false;
    switch (one.op) {
      case Op::Iterator:
        return bind(a, b);
      case Op::Constant:
      case Op::SizeValue:
        return true;
      case Op::Add:
        return same_index(one.a, two.a) && same_index(one.b, two.b);
      default:
        return same_index(one.a, two.a);
    }
  }

  bool bind(ExprId a, ExprId b) {
    const std::uint32_t here = arena_.iterators(a).front(), there = arena_.iterators(b).front();
    const auto known = to_.find(here);
    if (known != to_.end()) return known->second == there;
    if (std::any_of(to_.begin(), to_.end(), [&](const auto& pair) { return pair.second == there; }))
      return false;
    const auto mine = find(scope_, here), theirs = find(other_, there);
    if (!mine || !theirs || range_of(program_, mine->range) != range_of(program_, theirs->range))
      return false;
    to_.emplace(here, there);
    here_.emplace(here, a);
    return true;
  }

  static std::optional<Iterator> find(const Scope& scope, std::uint32_t slot) {
    for (const auto* iterators : {&scope.traversal, &scope.sums})
      for (const Iterator& iterator : *iterators)
        if (iterator.slot == slot) return iterator;
    return std::nullopt;
  }

  const Program& program_;
  const symbolic::Arena& arena_;
  const Scope &scope_, &other_;
  std::map<std::uint32_t, std::uint32_t> to_;  ///< iterators of the other scope by those of the one
  std::map<std::uint32_t, ExprId> here_;       ///< the latter as expressions
};

ScalarId with_read(Program& program, ScalarId body, ScalarId replaced, ScalarId read) {
  return program::rebuild(program, body,
                          [&](ScalarId id) { return id == replaced ? std::optional(read) : std::nullopt; });
}

}  // namespace

std::optional<Shared> find_shared(const Program& program, std::size_t scope, std::size_t other) {
  for (const std::size_t s : {scope, other})
    if (!program.scopes[s].target.empty()) return std::nullopt;
  const auto here = elementary_in(program, program.scopes[scope].body);
  if (here.empty()) return std::nullopt;
  const auto there = elementary_in(program, program.scopes[other].body);
  for (const ScalarId a : here)
    for (const ScalarId b : there)
      if (auto found = Matching(program, scope, other).match(a, b)) return found;
  return std::nullopt;
}

std::vector<Site> find_shares(const Program& program, std::size_t scope) {
  std::vector<Site> found;
  for (std::size_t other = 0; other < program.scopes.size(); ++other)
    if (other != scope && find_shared(program, scope, other))
      found.push_back(
          {name_of(program, program.scopes[scope]), {}, name_of(program, program.scopes[other]), {}});
  return found;
}

void share(Program& program, const Site& site) {
  const std::size_t at = scope_named(program, site.scope), other = scope_named(program, site.other);
  const auto found = at == other ? std::nullopt : find_shared(program, at, other);
  if (!found)
    fail<ScheduleError>(kWhere, "'{}' and '{}' compute no elementary function alike over the same iterations",
                        site.scope, site.other);
  const std::string name = name_for(program, site, site.scope + "_shared");
  Tensor tensor;
  tensor.name = name;
  tensor.role = program::Role::Computed;
  Scope made;
  std::vector<ExprId> there;
  std::vector<std::pair<std::uint32_t, ExprId>> moved;
  for (const Iterator& iterator : found->points) {
    tensor.dims.push_back(iterator.range);
    made.traversal.push_back(program.new_iterator(iterator.name, iterator.range));
    there.push_back(program.arena.iterator(iterator.slot));
    moved.emplace_back(iterator.slot, program.arena.iterator(made.traversal.back().slot));
  }
  made.output = program.add_tensor(std::move(tensor));
  made.body = program::with_iterators(program, found->there, moved);
  const ScalarId read_here = program.read(made.output, found->places),
                 read_there = program.read(made.output, std::move(there));
  program.scopes[at].body = with_read(program, program.scopes[at].body, found->here, read_here);
  program.scopes[other].body = with_read(program, program.scopes[other].body, found->there, read_there);
  program.scopes.insert(program.scopes.begin() + static_cast<std::ptrdiff_t>(std::min(at, other)),
                        std::move(made));
}

}  // namespace syno::derive
