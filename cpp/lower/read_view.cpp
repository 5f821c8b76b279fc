#include "lower/read_view.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "support/checked.hpp"

namespace syno::lower {
namespace {

using symbolic::Arena;
using symbolic::Expr;
using symbolic::Op;
using symbolic::Size;

constexpr std::size_t kMostSplits = 8;

struct Block {
  Slot slot;
  std::int64_t size;
};
/// An iterator that a quotient or remainder in the expression cuts into whole blocks.
std::optional<Block> block_in(Iterators& iterators, ExprId root) {
  const Arena& arena = iterators.arena();
  const Expr node = arena[root];
  switch (node.op) {
    case Op::Divide:
    case Op::Modulo:
      if (is_integer(arena, node.size)) {
        const std::int64_t divisor = integer_of(arena, node.size);
        for (const auto& [atom, factor] : affine_form(arena, node.a).terms) {
          const Slot slot = slot_of(arena, atom);
          if (slot == kNoSlot || factor <= 0 || divisor % factor != 0) continue;
          const std::int64_t size = divisor / factor, extent = iterators.extent(slot);
          if (size > 1 && extent > size && extent % size == 0 && iterators.begin(slot) == 0)
            return Block{slot, size};
        }
      }
      return block_in(iterators, node.a);
    case Op::Add:
      if (const auto found = block_in(iterators, node.a)) return found;
      return block_in(iterators, node.b);
    case Op::Multiply:
    case Op::Inside:
      return block_in(iterators, node.a);
    default:
      return std::nullopt;
  }
}

/// Whether the iterator stands in a quotient or a remainder.
bool cut(const Arena& arena, ExprId root, Slot slot) {
  const Expr node = arena[root];
  switch (node.op) {
    case Op::Divide:
    case Op::Modulo: {
      const auto held = arena.iterators(node.a);
      return std::find(held.begin(), held.end(), slot) != held.end();
    }
    case Op::Add:
      return cut(arena, node.a, slot) || cut(arena, node.b, slot);
    case Op::Multiply:
    case Op::Inside:
      return cut(arena, node.a, slot);
    default:
      return false;
  }
}

class Viewing {
 public:
  Viewing(Iterators& iterators, const std::vector<Slot>& space, const std::vector<ExprId>& indices)
      : iterators_(iterators), arena_(iterators.arena()) {
    for (const Slot slot : space) {
      const program::Iterator old = iterators_[slot];
      const Slot copy = iterators_.add(old.name, old.range);
      leaves_.push_back(copy);
      view_.points[slot] = arena_.iterator(copy);
    }
    view_.indices = indices;
    for (ExprId& index : view_.indices) index = replaced(index, view_.points);
  }

  ReadView run() {
    for (std::size_t splits = 0; splits < kMostSplits && split_one(); ++splits) {
    }
    while (join_two() || turn_one()) {
    }
    std::set<Slot> moving;
    for (const ExprId index : view_.indices)
      for (const Slot slot : arena_.iterators(index)) moving.insert(slot);
    for (const Slot slot : leaves_) (moving.contains(slot) ? view_.coordinates : view_.rest).push_back(slot);
    // In the order of the tensor's dimensions, so that both are walked alike.
    std::stable_sort(view_.coordinates.begin(), view_.coordinates.end(),
                     [&](Slot a, Slot b) { return place(a) < place(b); });
    return std::move(view_);
  }

 private:
  ExprId replaced(ExprId root, const std::map<Slot, ExprId>& by) {
    return iterators_.simplified(arena_.substitute(root, [&](Slot slot) {
      const auto found = by.find(slot);
      return found == by.end() ? arena_.iterator(slot) : found->second;
    }));
  }
  void replace(const std::map<Slot, ExprId>& by) {
    for (auto& [slot, point] : view_.points) point = replaced(point, by);
    for (ExprId& index : view_.indices) index = replaced(index, by);
  }

  bool split_one() {
    std::optional<Block> block;
    for (const ExprId index : view_.indices)
      if (!block) block = block_in(iterators_, index);
    if (!block) return false;
    const std::string name = iterators_[block->slot].name;
    const Slot outer = iterators_.add(name, 0, iterators_.extent(block->slot) / block->size);
    const Slot inner = iterators_.add(name, 0, block->size);
    const auto at = std::find(leaves_.begin(), leaves_.end(), block->slot);
    *at = inner;
    leaves_.insert(at, outer);
    replace({{block->slot,
              arena_.add(arena_.multiply(arena_.iterator(outer), block->size), arena_.iterator(inner))}});
    return true;
  }

  /// B*i + j with j over [0, B), wherever either stands.
  bool join_two() {
    for (const ExprId index : view_.indices) {
      const auto form = affine_form(arena_, index);
      for (const auto& [major, factor] : form.terms) {
        for (const auto& [minor, step] : form.terms) {
          const Slot i = slot_of(arena_, major), j = slot_of(arena_, minor);
          if (i == kNoSlot || j == kNoSlot || i == j || iterators_.begin(i) != 0 || iterators_.begin(j) != 0)
            continue;
          const std::int64_t block = iterators_.extent(j);
          if (step <= 0 || block < 2 || iterators_.extent(i) < 2 || factor != step * block) continue;
          const Slot whole = iterators_.add(iterators_[j].name, 0, iterators_.extent(i) * block);
          const std::map<Slot, ExprId> by = {{i, arena_.divide(arena_.iterator(whole), Size(block))},
                                             {j, arena_.modulo(arena_.iterator(whole), Size(block))}};
          const bool apart = std::any_of(view_.indices.begin(), view_.indices.end(),
                                         [&](ExprId each) { return cut(arena_, replaced(each, by), whole); });
          if (apart) continue;
          *std::find(leaves_.begin(), leaves_.end(), j) = whole;
          std::erase(leaves_, i);
          replace(by);
          return true;
        }
      }
    }
    return false;
  }

  /// (j + c) % N with j over [0, N), inside of what else is done to it: guards and quotients then know j.
  bool turn_one() {
    for (const Slot slot : leaves_) {
      const std::int64_t extent = iterators_.extent(slot);
      if (iterators_.begin(slot) != 0) continue;
      for (const ExprId index : view_.indices) {
        const std::optional<std::int64_t> turn = turn_in(index, slot, extent);
        if (!turn) continue;
        const Slot turned = iterators_.add(iterators_[slot].name, 0, extent);
        const std::map<Slot, ExprId> by = {
            {slot, arena_.modulo(arena_.add(arena_.iterator(turned), arena_.constant(extent - *turn)),
                                 Size(extent))}};
        const bool apart = std::any_of(view_.indices.begin(), view_.indices.end(),
                                       [&](ExprId each) { return cut(arena_, replaced(each, by), turned); });
        if (apart) continue;
        *std::find(leaves_.begin(), leaves_.end(), slot) = turned;
        replace(by);
        return true;
      }
    }
    return false;
  }
  std::optional<std::int64_t> turn_in(ExprId root, Slot slot, std::int64_t extent,
                                      bool within = false) const {
    const Expr node = arena_[root];
    if (within && node.op == Op::Modulo && is_integer(arena_, node.size) &&
        integer_of(arena_, node.size) == extent) {
      const auto form = affine_form(arena_, node.a);
      if (form.terms.size() == 1 && form.terms[0].second == 1 && slot_of(arena_, form.terms[0].first) == slot)
        return floor_modulo(form.constant, extent);
    }
    switch (node.op) {
      case Op::Add:
        if (const auto found = turn_in(node.a, slot, extent, within)) return found;
        return turn_in(node.b, slot, extent, within);
      case Op::Multiply:
        return turn_in(node.a, slot, extent, within);
      case Op::Divide:
      case Op::Modulo:
      case Op::Inside:
        return turn_in(node.a, slot, extent, true);
      default:
        return std::nullopt;
    }
  }

  struct Place {
    std::size_t dimension;
    std::int64_t step, extent;
    auto operator<=>(const Place&) const = default;
  };
  /// Within a dimension the greatest steps first.
  Place place(Slot slot) {
    for (std::size_t d = 0; d < view_.indices.size(); ++d)
      for (const auto& [atom, factor] : affine_form(arena_, view_.indices[d]).terms) {
        const auto held = arena_.iterators(atom);
        if (std::find(held.begin(), held.end(), slot) != held.end())
          return {d, -std::abs(factor), iterators_.extent(slot)};
      }
    return {view_.indices.size(), 0, 0};
  }

  Iterators& iterators_;
  Arena& arena_;
  std::vector<Slot> leaves_;
  ReadView view_;
};

}  // namespace

ReadView view_of_read(Iterators& iterators, const std::vector<Slot>& space,
                      const std::vector<ExprId>& indices) {
  return Viewing(iterators, space, indices).run();
}

}  // namespace syno::lower
