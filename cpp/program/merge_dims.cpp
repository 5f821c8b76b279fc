#include "program/merge_dims.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "program/scalars.hpp"
#include "support/checked.hpp"
#include "support/error.hpp"

namespace syno::program {
namespace {

using Slot = std::uint32_t;

/// The iterator that an index is, if it is one and nothing else.
std::optional<Slot> plain(const Program& program, ExprId index) {
  const auto& node = program.arena[index];
  return node.op == symbolic::Op::Iterator ? std::optional(static_cast<Slot>(node.a)) : std::nullopt;
}

/// [0, extent) without a live end.
std::optional<std::int64_t> whole(const Program& program, const Range& range) {
  const Extent found = extent_of(program, range, 0);
  return found.begin == 0 && range.live.parameter == 0 ? std::optional(found.end) : std::nullopt;
}

/// Sums over one element stand nowhere: a 1x1 convolution reads x[c, h], not x[c, h + r].
Program without_single_sums(const Program& source) {
  Program program = source;
  for (Scope& scope : program.scopes) {
    std::vector<std::pair<Slot, ExprId>> zeros;
    for (const Iterator& i : scope.sums)
      if (whole(program, i.range) == 1) zeros.emplace_back(i.slot, program.arena.constant(0));
    if (!zeros.empty()) scope.body = with_iterators(program, scope.body, zeros);
  }
  return program;
}

/// One access: the tensor, and an index for each of its dimensions.
struct Accessed {
  TensorId tensor{};
  std::vector<ExprId> at;
};

/// All accesses of a scope, its write first; other indices, as of values, are of no tensor.
std::vector<Accessed> accesses_of(Program& program, const Scope& scope) {
  std::vector<Accessed> found{{scope.output, scope.target}};
  if (scope.target.empty())
    for (const Iterator& i : scope.traversal) found[0].at.push_back(program.arena.iterator(i.slot));
  for (const ScalarId id : scalars_of(program, scope.body)) {
    const Scalar& scalar = program.scalar(id);
    if (scalar.kind == ScalarKind::Read) found.push_back({scalar.tensor, scalar.indices});
  }
  return found;
}

/// Pairs of a scope's iterators that stand in wanted pairs of dimensions and nowhere else.
std::set<std::pair<Slot, Slot>> together(Program& program, const Scope& scope,
                                         const std::set<DimPair>& wanted) {
  std::map<Slot, std::int64_t> extents;
  std::map<Slot, std::size_t> places;  // in the traversal
  for (const auto* iterators : {&scope.traversal, &scope.sums})
    for (const Iterator& i : *iterators)
      if (const auto extent = whole(program, i.range)) extents[i.slot] = *extent;
  for (std::size_t p = 0; p < scope.traversal.size(); ++p) places[scope.traversal[p].slot] = p;
  std::map<Slot, std::set<std::pair<Slot, Slot>>> partners;
  std::set<Slot> alone;
  const auto see = [&](ExprId index) {
    for (const Slot slot : program.arena.iterators(index)) alone.insert(slot);
  };
  for (const Accessed& access : accesses_of(program, scope)) {
    const auto& dims = program.tensor(access.tensor).dims;
    for (std::size_t d = 0; d < access.at.size(); ++d) {
      if (d + 1 < access.at.size() && wanted.contains({access.tensor, d})) {
        const auto i = plain(program, access.at[d]), j = plain(program, access.at[d + 1]);
        const bool all = i && j && *i != *j && extents.contains(*i) && extents.contains(*j) &&
                         whole(program, dims[d]) == extents[*i] && whole(program, dims[d + 1]) == extents[*j];
        const bool neighbours = all && places.contains(*i) == places.contains(*j) &&
                                (!places.contains(*i) || places[*j] == places[*i] + 1);
        if (neighbours) {
          partners[*i].insert({*i, *j});
          partners[*j].insert({*i, *j});
          ++d;
          continue;
        }
      }
      see(access.at[d]);
    }
  }
  for (const ScalarId id : scalars_of(program, scope.body))
    if (program.scalar(id).kind == ScalarKind::Index) see(program.scalar(id).index);
  std::set<std::pair<Slot, Slot>> found;
  for (const auto& [slot, pairs] : partners)
    if (pairs.size() == 1) found.insert(*pairs.begin());
  std::erase_if(found, [&](const auto& pair) {
    return alone.contains(pair.first) || alone.contains(pair.second) || partners[pair.first].size() != 1 ||
           partners[pair.second].size() != 1;
  });
  return found;
}

}  // namespace

std::vector<DimPair> mergeable(const Program& source, std::vector<DimPair> given) {
  Program program = without_single_sums(source);
  const std::vector<Scope> scopes = program.scopes;
  std::set<DimPair> wanted;
  for (const DimPair& pair : given)
    if (!wanted.contains({pair.tensor, pair.dim - 1})) wanted.insert(pair);
  // One that an access does not walk so, no access may.
  for (bool changed = true; changed;) {
    changed = false;
    for (const Scope& scope : scopes) {
      const auto pairs = together(program, scope, wanted);
      for (const Accessed& access : accesses_of(program, scope))
        for (std::size_t d = 0; d + 1 < access.at.size(); ++d) {
          if (!wanted.contains({access.tensor, d})) continue;
          const auto i = plain(program, access.at[d]), j = plain(program, access.at[d + 1]);
          if (i && j && pairs.contains({*i, *j})) continue;
          wanted.erase({access.tensor, d});
          changed = true;
        }
    }
  }
  return {wanted.begin(), wanted.end()};
}

Program merge_dims(const Program& given_program, const std::vector<DimPair>& given,
                   std::optional<std::int64_t> extent) {
  const Program source = without_single_sums(given_program);
  const std::set<DimPair> pairs(given.begin(), given.end());
  const std::vector<DimPair> found = mergeable(source, {pairs.begin(), pairs.end()});
  if (found.size() != pairs.size())
    fail<ShapeError>("merge_dims",
                     "{} of {} pairs of dimensions are not only walked together; ask `mergeable`",
                     pairs.size() - found.size(), pairs.size());
  if (extent && *extent < 1)
    fail<ShapeError>("merge_dims", "an extent of {}; it must be at least 1", *extent);
  Program program = source;
  const auto merged = [&](const Range& a, const Range& b) {
    const std::int64_t product = checked_multiply(extent_of(source, a, 0).end, extent_of(source, b, 0).end);
    return Range{program.arena.constant(0), program.arena.constant(extent.value_or(product)), {}};
  };
  for (Scope& scope : program.scopes) {
    const Scope before = scope;
    std::map<Slot, Slot> behind;  // the second iterator of a pair: the first
    for (const auto& [i, j] : together(program, before, pairs)) behind[j] = i;
    const auto range_of = [&](Slot slot) {
      for (const auto* iterators : {&before.traversal, &before.sums})
        for (const Iterator& i : *iterators)
          if (i.slot == slot) return i.range;
      return Range{};
    };
    for (auto* iterators : {&scope.traversal, &scope.sums}) {
      std::erase_if(*iterators, [&](const Iterator& i) { return behind.contains(i.slot); });
      for (Iterator& i : *iterators)
        for (const auto& [second, first] : behind)
          if (first == i.slot) i.range = merged(range_of(first), range_of(second));
    }
    const auto shorter = [&](TensorId tensor, std::vector<ExprId>& at) {
      for (std::size_t d = at.size(); d-- > 0;)
        if (pairs.contains({tensor, d})) at.erase(at.begin() + static_cast<std::ptrdiff_t>(d) + 1);
    };
    shorter(scope.output, scope.target);
    std::map<ScalarId, ScalarId> copies;
    scope.body = copy_body(source, before.body, program, copies, [&](Scalar& scalar) {
      if (scalar.kind == ScalarKind::Read) shorter(scalar.tensor, scalar.indices);
    });
  }
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    auto& dims = program.tensors[t].dims;
    for (std::size_t d = dims.size(); d-- > 0;) {
      if (!pairs.contains({static_cast<TensorId>(t), d})) continue;
      dims[d] = merged(dims[d], dims[d + 1]);
      dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(d) + 1);
    }
  }
  return program;
}

}  // namespace syno::program
