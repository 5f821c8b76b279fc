#include "program/common_scopes.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "program/scalars.hpp"

namespace syno::program {

namespace {

/// All that a scope computes, but for the names of its iterators and of what it writes. Compared number by
/// number: no hash stands for it.
using Key = std::vector<std::int64_t>;

class CommonScopes {
 public:
  explicit CommonScopes(Program program) : made_(std::move(program)), stands_(made_.tensors.size()) {
    for (std::size_t t = 0; t < stands_.size(); ++t) stands_[t] = TensorId{static_cast<std::uint32_t>(t)};
    first_ = stands_;
  }

  Program run() {
    std::map<Key, std::size_t> first;
    std::vector<bool> gone(made_.scopes.size(), false);
    for (std::size_t s = 0; s < made_.scopes.size(); ++s) {
      if (!made_.scopes[s].target.empty()) continue;
      const auto [known, fresh] = first.try_emplace(key(made_.scopes[s]), s);
      if (fresh) continue;
      const std::size_t other = known->second;
      const TensorId here = made_.scopes[s].output, there = stands_[index(made_.scopes[other].output)];
      first_[index(here)] = first_[index(there)];
      if (is_output(here) && is_output(there)) continue;
      gone[s] = true;
      if (is_output(here)) {
        stand_for(there, here);
        made_.scopes[other].output = here;
      } else {
        stand_for(here, there);
      }
    }
    if (std::find(gone.begin(), gone.end(), true) == gone.end()) return std::move(made_);
    drop(gone);
    return std::move(made_);
  }

 private:
  static std::size_t index(TensorId id) { return static_cast<std::size_t>(id); }

  bool is_output(TensorId id) const {
    return std::find(made_.outputs.begin(), made_.outputs.end(), id) != made_.outputs.end();
  }

  void stand_for(TensorId one, TensorId other) {
    for (TensorId& stands : stands_)
      if (stands == one) stands = other;
  }

  Key key(const Scope& scope) {
    Key key{static_cast<std::int64_t>(scope.reduction)};
    // Iterators by their places, as slots that no program has.
    std::map<std::uint32_t, std::uint32_t> slots;
    std::uint32_t next = made_.next_slot;
    for (const auto* list : {&scope.traversal, &scope.sums}) {
      key.push_back(static_cast<std::int64_t>(list->size()));
      for (const Iterator& iterator : *list) {
        slots.emplace(iterator.slot, next++);
        add(key, iterator.range);
      }
    }
    const auto& dims = made_.tensor(scope.output).dims;
    key.push_back(static_cast<std::int64_t>(dims.size()));
    for (const Range& dim : dims) add(key, dim);
    const auto add_index = [&](ExprId written) {
      const ExprId by_place = made_.arena.substitute(
          written, [&](std::uint32_t slot) { return made_.arena.iterator(slots.at(slot)); });
      key.push_back(static_cast<std::int64_t>(by_place));
    };
    std::map<ScalarId, std::int64_t> numbers;
    for (const ScalarId id : scalars_of(made_, scope.body)) {
      numbers.emplace(id, static_cast<std::int64_t>(numbers.size()));
      const Scalar scalar = made_.scalar(id);
      key.push_back(static_cast<std::int64_t>(scalar.kind));
      key.push_back(static_cast<std::int64_t>(scalar.function));
      over_operands(scalar, [&](ScalarId operand) { key.push_back(numbers.at(operand)); });
      add(key, scalar.literal);
      if (scalar.kind == ScalarKind::Read) {
        key.push_back(static_cast<std::int64_t>(first_[index(scalar.tensor)]));
        add(key, scalar.fill);
      }
      over_indices(scalar, add_index);
    }
    return key;
  }

  static void add(Key& key, const Rational& number) {
    key.push_back(number.num());
    key.push_back(number.den());
  }
  static void add(Key& key, const Range& range) {
    for (const std::int64_t part :
         {static_cast<std::int64_t>(range.begin), static_cast<std::int64_t>(range.end),
          static_cast<std::int64_t>(range.live.parameter), static_cast<std::int64_t>(range.live.times),
          static_cast<std::int64_t>(range.live.plus), static_cast<std::int64_t>(range.live.by)})
      key.push_back(part);
  }

  /// Takes scopes away, and the tensors that nobody writes then.
  void drop(const std::vector<bool>& gone) {
    std::vector<Scope> scopes;
    std::vector<bool> written(made_.tensors.size(), false);
    for (std::size_t s = 0; s < made_.scopes.size(); ++s) {
      if (gone[s]) continue;
      written[index(made_.scopes[s].output)] = true;
      scopes.push_back(std::move(made_.scopes[s]));
    }
    made_.scopes = std::move(scopes);
    std::vector<TensorId> now(made_.tensors.size());
    std::vector<Tensor> kept;
    for (std::size_t t = 0; t < made_.tensors.size(); ++t) {
      if (made_.tensors[t].role == Role::Computed && !written[t]) continue;
      now[t] = TensorId{static_cast<std::uint32_t>(kept.size())};
      kept.push_back(std::move(made_.tensors[t]));
    }
    made_.tensors = std::move(kept);
    for (Scope& scope : made_.scopes) scope.output = now[index(scope.output)];
    for (Scalar& scalar : made_.scalars)
      if (scalar.kind == ScalarKind::Read) scalar.tensor = now[index(stands_[index(scalar.tensor)])];
    for (TensorId& id : made_.outputs) id = now[index(id)];
  }

  Program made_;
  std::vector<TensorId> stands_;  ///< by tensor: what is read for it
  std::vector<TensorId> first_;   ///< by tensor: the first one that holds the same
};

}  // namespace

Program with_common_scopes(Program program) { return CommonScopes(std::move(program)).run(); }

}  // namespace syno::program
