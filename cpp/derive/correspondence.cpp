#include "derive/correspondence.hpp"

#include <algorithm>
#include <array>

#include "derive/forms.hpp"
#include "derive/tools.hpp"

namespace syno::derive {

Correspondence::Correspondence(const Program& program, const Scope& here, const Scope& there,
                               std::optional<std::size_t> left_out)
    : program_(program), here_(here), there_(there) {
  possible_ = here.traversal.size() == there.traversal.size() && here.sums.size() == there.sums.size() &&
              here.reduction == there.reduction && here.target.empty() && there.target.empty();
  for (std::size_t d = 0; possible_ && d < here.traversal.size(); ++d) {
    const Iterator &a = here.traversal[d], &b = there.traversal[d];
    possible_ = left_out == d || range_of(program, a.range) == range_of(program, b.range);
    pairs_.emplace(a.slot, b.slot);
  }
}

bool Correspondence::same(ScalarId here, ScalarId there) {
  const auto before = pairs_;
  const bool equal = possible_ && compare(here, there, false);
  if (!equal) pairs_ = before;
  return equal;
}

bool Correspondence::alike(ScalarId here, ScalarId there) {
  const auto before = pairs_;
  const bool equal = possible_ && compare(here, there, true);
  if (!equal) pairs_ = before;
  return equal;
}

bool Correspondence::complete() {
  for (const Iterator& sum : here_.sums) {
    if (pairs_.contains(sum.slot)) continue;
    const auto free = std::find_if(there_.sums.begin(), there_.sums.end(), [&](const Iterator& other) {
      return !taken(other.slot) && range_of(program_, other.range) == range_of(program_, sum.range);
    });
    if (free == there_.sums.end()) return false;
    pairs_.emplace(sum.slot, free->slot);
  }
  return possible_;
}

bool Correspondence::compare(ScalarId here, ScalarId there, bool any_tensor) {
  const Scalar &a = program_.scalar(here), &b = program_.scalar(there);
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case ScalarKind::Literal:
      return a.literal == b.literal;
    case ScalarKind::Index:
      return compare(a.index, b.index);
    case ScalarKind::Read: {
      if ((a.tensor != b.tensor && !any_tensor) || !(a.fill == b.fill)) return false;
      bool equal = a.indices.size() == b.indices.size();
      for (std::size_t d = 0; equal && d < a.indices.size(); ++d) equal = compare(a.indices[d], b.indices[d]);
      return equal;
    }
    default: {
      const std::array mine{a.a, a.b, a.c}, theirs{b.a, b.b, b.c};
      bool equal = a.kind == ScalarKind::Select || a.function == b.function;
      for (std::size_t k = 0; equal && k < program::operand_count(a.kind); ++k)
        equal = compare(mine[k], theirs[k], any_tensor);
      return equal;
    }
  }
}

/// As affine forms, whatever the order of their terms: terms whose iterators are known are told first.
bool Correspondence::compare(ExprId here, ExprId there) {
  const auto& arena = program_.arena;
  const Affine a = symbolic::affine_form(arena, here), b = symbolic::affine_form(arena, there);
  if (a.constant != b.constant || a.terms.size() != b.terms.size()) return false;
  std::vector<bool> used(b.terms.size());
  const auto match = [&](ExprId one, ExprId two) {
    const std::uint32_t mine = symbolic::slot_of(arena, one), theirs = symbolic::slot_of(arena, two);
    if (mine != symbolic::kNoSlot || theirs != symbolic::kNoSlot)
      return mine != symbolic::kNoSlot && theirs != symbolic::kNoSlot && pair(mine, theirs);
    const symbolic::Expr &x = arena[one], &y = arena[two];
    return x.op == y.op && x.size == y.size && compare(x.a, y.a);
  };
  for (const bool known : {true, false})
    for (const auto& [atom, coefficient] : a.terms) {
      const std::uint32_t slot = symbolic::slot_of(arena, atom);
      if ((slot != symbolic::kNoSlot && pairs_.contains(slot)) != known) continue;
      bool found = false;
      for (std::size_t k = 0; !found && k < b.terms.size(); ++k) {
        if (used[k] || b.terms[k].second != coefficient) continue;
        const auto before = pairs_;
        found = used[k] = match(atom, b.terms[k].first);
        if (!found) pairs_ = before;
      }
      if (!found) return false;
    }
  return true;
}

bool Correspondence::pair(std::uint32_t here, std::uint32_t there) {
  const auto known = pairs_.find(here);
  if (known != pairs_.end()) return known->second == there;
  if (taken(there)) return false;
  const Iterator *mine = sum_of(here_, here), *theirs = sum_of(there_, there);
  if (mine == nullptr || theirs == nullptr ||
      range_of(program_, mine->range) != range_of(program_, theirs->range))
    return false;
  pairs_.emplace(here, there);
  return true;
}

const Iterator* Correspondence::sum_of(const Scope& scope, std::uint32_t slot) const {
  for (const Iterator& sum : scope.sums)
    if (sum.slot == slot) return &sum;
  return nullptr;
}

bool Correspondence::taken(std::uint32_t there) const {
  return std::any_of(pairs_.begin(), pairs_.end(), [&](const auto& pair) { return pair.second == there; });
}

}  // namespace syno::derive
