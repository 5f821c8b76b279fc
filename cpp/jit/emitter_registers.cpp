// Register tiles: partial results that stay in SSA values, and their loads and stores.
#include <algorithm>
#include <bit>
#include <functional>
#include <set>

#include "jit/emitter.hpp"
#include "support/error.hpp"

namespace syno::jit {

using nest::Buffer;
using nest::BufferId;
using nest::BufferKind;
using nest::LoopKind;
using nest::Statement;
using nest::StatementId;
using nest::StatementKind;
using nest::StoreMode;
using symbolic::ExprId;

/// The slot and lane of one element, when every index is constant.
std::optional<std::size_t> Emitter::tile_slot(const Tile& tile, const Buffer& buffer,
                                              const std::vector<Form>& at, int* lane) const {
  std::size_t slot = 0;
  *lane = 0;
  for (std::size_t d = 0; d < at.size(); ++d) {
    if (!at[d].is_constant()) return std::nullopt;
    std::int64_t index = at[d].constant;
    SYNO_ASSERT(index >= 0 && index < buffer.extents[d], "a register index is inside its buffer");
    if (d == tile.lane_dim && !tile.per_iteration) {
      *lane = static_cast<int>(index % tile.lanes);
      index /= tile.lanes;
    }
    slot = slot * static_cast<std::size_t>(tile.slot_extents[d]) + static_cast<std::size_t>(index);
  }
  return slot;
}

Lanes Emitter::load_register(BufferId id, const std::vector<ExprId>& indices) {
  const Buffer& buffer = nest_.buffer(id);
  Tile& tile = tiles_.at(raw(id));
  std::vector<Form> at;
  bool lanes_used = false;
  for (const ExprId index : indices) {
    at.push_back(form(index));
    lanes_used = lanes_used || uses_lanes(at.back());
  }
  int lane = 0;
  const auto element = [&](const std::vector<Form>& where) -> llvm::Value* {
    const auto slot = tile_slot(tile, buffer, where, &lane);
    SYNO_ASSERT(slot, "register indices are constant after unrolling");
    llvm::Value* held = tile.slots[*slot];
    return tile.lanes == 1 ? held : b_.CreateExtractElement(held, static_cast<std::uint64_t>(lane));
  };
  if (tile.per_iteration) {
    const auto slot = tile_slot(tile, buffer, at, &lane);
    SYNO_ASSERT(slot, "register indices are constant after unrolling");
    llvm::Value* held = tile.slots[*slot];
    return {held, held->getType()->isVectorTy()};
  }
  if (!lanes_used) return {element(at), false};
  std::vector<Form> first;
  for (const Form& f : at) first.push_back(forms_.substitute(f, simd_->lane_slot, 0));
  bool whole = simd_->lanes == tile.lanes;
  for (std::size_t d = 0; d < at.size() && whole; ++d)
    whole = d == tile.lane_dim ? over_lanes(at[d]).stride == 1 && first[d].constant % tile.lanes == 0
                               : !uses_lanes(at[d]);
  if (whole) {
    const auto slot = tile_slot(tile, buffer, first, &lane);
    SYNO_ASSERT(slot, "register indices are constant after unrolling");
    return {tile.slots[*slot], true};
  }
  if (llvm::Value* turned = load_transposed(id, tile, at)) return {turned, true};
  llvm::Value* made =
      llvm::Constant::getNullValue(llvm::FixedVectorType::get(compute_, static_cast<unsigned>(simd_->lanes)));
  for (int l = 0; l < simd_->active; ++l) {
    std::vector<Form> one;
    for (const Form& f : at) one.push_back(forms_.substitute(f, simd_->lane_slot, l));
    made = b_.CreateInsertElement(made, element(one), static_cast<std::uint64_t>(l));
  }
  return {made, true};
}

/// Lanes along a dimension whose elements are in slots of their own: one vector of the transposed block.
/// All of them are made when the first is asked for. Null where the lanes lie otherwise.
llvm::Value* Emitter::load_transposed(BufferId id, const Tile& tile, const std::vector<Form>& at) {
  const Buffer& buffer = nest_.buffer(id);
  std::optional<std::size_t> along;
  for (std::size_t d = 0; d < at.size(); ++d) {
    if (!uses_lanes(at[d])) continue;
    if (along || d == tile.lane_dim || over_lanes(at[d]).stride != 1) return nullptr;
    along = d;
  }
  if (!along || tile.lanes == 1 || simd_->active < 2) return nullptr;
  std::vector<llvm::Value*> rows;
  int lane = 0;
  for (int l = 0; l < simd_->active; ++l) {
    std::vector<Form> one;
    for (const Form& f : at) one.push_back(forms_.substitute(f, simd_->lane_slot, l));
    const auto slot = tile_slot(tile, buffer, one, &lane);
    SYNO_ASSERT(slot, "register indices are constant after unrolling");
    rows.push_back(tile.slots[*slot]);
  }
  Key key{kTransposed, simd_->lanes};
  for (llvm::Value* row : rows) key.push_back(bits(row));
  const auto nth = [&](int n) {
    Key with = key;
    with.push_back(n);
    return with;
  };
  if (!f_.local.contains(nth(0))) {
    const std::vector<llvm::Value*> columns = transposed(std::move(rows), simd_->lanes);
    for (int n = 0; n < tile.lanes; ++n)
      locally(nth(n), [&] { return columns[static_cast<std::size_t>(n)]; });
  }
  return f_.local.at(nth(lane));
}

/// Vectors of `lanes` each, one a lane of `rows`; lanes beyond the rows hold anything.
std::vector<llvm::Value*> Emitter::transposed(std::vector<llvm::Value*> rows, int lanes) {
  const auto width =
      static_cast<int>(llvm::cast<llvm::FixedVectorType>(rows.front()->getType())->getNumElements());
  const int side = std::max(lanes, width);
  const auto resized = [&](llvm::Value* vector, int first, int count) {
    const auto have =
        static_cast<int>(llvm::cast<llvm::FixedVectorType>(vector->getType())->getNumElements());
    if (have == count && first == 0) return vector;
    std::vector<int> mask;
    for (int l = 0; l < count; ++l) mask.push_back(first + l < have ? first + l : -1);
    return b_.CreateShuffleVector(vector, mask);
  };
  for (llvm::Value*& row : rows) row = resized(row, 0, side);
  rows.resize(static_cast<std::size_t>(lanes), llvm::PoisonValue::get(rows.front()->getType()));
  std::vector<llvm::Value*> columns;
  if (cpu_.info.interleaves) {
    // Columns follow one another through the vectors, several in each of a wide block of few rows.
    rows = interleaved(std::move(rows));
    for (int n = 0; n < width; ++n)
      columns.push_back(resized(rows[static_cast<std::size_t>(n * lanes / side)], n * lanes % side, lanes));
  } else {
    // A wide block of few rows: its squares lie beside each other in the rows.
    rows = exchanged(std::move(rows));
    for (int n = 0; n < width; ++n)
      columns.push_back(resized(rows[static_cast<std::size_t>(n % lanes)], n / lanes * lanes, lanes));
  }
  return columns;
}

/// Squares as wide as there are rows, transposed: blocks of 1, 2, 4, ... lanes change places between pairs of
/// rows (Eklundh 1972).
std::vector<llvm::Value*> Emitter::exchanged(std::vector<llvm::Value*> rows) {
  const auto lanes = static_cast<int>(rows.size());
  const auto side =
      static_cast<int>(llvm::cast<llvm::FixedVectorType>(rows.front()->getType())->getNumElements());
  for (int block = 1; block < lanes; block *= 2) {
    std::vector<llvm::Value*> next(rows.size());
    for (int r = 0; r < lanes; ++r) {
      if (r & block) continue;
      std::vector<int> low, high;
      for (int l = 0; l < side; ++l) {
        low.push_back(l & block ? side + l - block : l);
        high.push_back(l & block ? side + l : l + block);
      }
      llvm::Value* a = rows[static_cast<std::size_t>(r)];
      llvm::Value* b = rows[static_cast<std::size_t>(r + block)];
      next[static_cast<std::size_t>(r)] = b_.CreateShuffleVector(a, b, low);
      next[static_cast<std::size_t>(r + block)] = b_.CreateShuffleVector(a, b, high);
    }
    rows = std::move(next);
  }
  return rows;
}

/// All columns, one after the other: each turn interleaves the first half of the elements with the second,
/// which takes the first bit of an element's row to the end of its place.
std::vector<llvm::Value*> Emitter::interleaved(std::vector<llvm::Value*> rows) {
  const auto side =
      static_cast<int>(llvm::cast<llvm::FixedVectorType>(rows.front()->getType())->getNumElements());
  std::vector<int> low, high;
  for (int l = 0; l < side; ++l) {
    low.push_back(l / 2 + l % 2 * side);
    high.push_back(side / 2 + l / 2 + l % 2 * side);
  }
  const std::size_t half = rows.size() / 2;
  for (std::size_t turn = 1; turn < rows.size(); turn *= 2) {
    std::vector<llvm::Value*> next;
    for (std::size_t r = 0; r < half; ++r)
      for (const std::vector<int>& mask : {low, high})
        next.push_back(b_.CreateShuffleVector(rows[r], rows[r + half], mask));
    rows = std::move(next);
  }
  return rows;
}

void Emitter::store_register(const nest::Statement& statement, Lanes stored) {
  const Buffer& buffer = nest_.buffer(statement.buffer);
  Tile& tile = tiles_.at(raw(statement.buffer));
  const StoreMode mode = statement.mode;
  std::vector<Form> at;
  bool lanes_used = false;
  for (const ExprId index : statement.indices) {
    at.push_back(form(index));
    lanes_used = lanes_used || uses_lanes(at.back());
  }
  int lane = 0;
  const auto slot_of = [&](const std::vector<Form>& where) {
    const auto slot = tile_slot(tile, buffer, where, &lane);
    SYNO_ASSERT(slot, "register indices are constant after unrolling");
    return *slot;
  };
  const auto whole_slot = [&](std::size_t slot, bool keep_off_lanes) {
    llvm::Value* old = tile.slots[slot];
    llvm::Value* made = spread(combine(mode, {old, true}, stored));
    if (simd_->mask && keep_off_lanes) made = b_.CreateSelect(simd_->mask, made, old);
    tile.slots[slot] = made;
  };
  if (tile.per_iteration && simd_) return whole_slot(slot_of(at), true);

  const auto put = [&](const std::vector<Form>& where, llvm::Value* value, llvm::Value* on) {
    const std::size_t slot = slot_of(where);
    llvm::Value* old = tile.slots[slot];
    llvm::Value* one = tile.lanes == 1 ? old : b_.CreateExtractElement(old, static_cast<std::uint64_t>(lane));
    llvm::Value* made = combine(mode, {one, false}, {value, false}).value;
    if (on) made = b_.CreateSelect(on, made, one);
    tile.slots[slot] =
        tile.lanes == 1 ? made : b_.CreateInsertElement(old, made, static_cast<std::uint64_t>(lane));
  };
  if (!simd_) return put(at, stored.value, nullptr);
  if (!lanes_used) {
    if (mode == StoreMode::Assign) {
      SYNO_ASSERT(!stored.vector, "verify() refuses lanes that assign one element");
      return put(at, stored.value, nullptr);
    }
    if (folds_) {
      const std::size_t slot = slot_of(at);
      folds_->push_back({&tile, slot, lane, lanes_on(mode, spread(stored)), mode});
      return;
    }
    return put(at, reduce_lanes(mode, spread(stored)), nullptr);
  }
  std::vector<Form> first;
  for (const Form& f : at) first.push_back(forms_.substitute(f, simd_->lane_slot, 0));
  bool whole = simd_->lanes == tile.lanes;
  for (std::size_t d = 0; d < at.size() && whole; ++d)
    whole = d == tile.lane_dim ? over_lanes(at[d]).stride == 1 && first[d].constant % tile.lanes == 0
                               : !uses_lanes(at[d]);
  if (whole) {
    // Lanes past the loop's end that are past the buffer's end too hold nothing.
    const bool padding_only =
        !simd_->conditional && first[tile.lane_dim].constant + simd_->active == buffer.extents[tile.lane_dim];
    return whole_slot(slot_of(first), !padding_only);
  }
  llvm::Value* all = spread(stored);
  for (int l = 0; l < simd_->active; ++l) {
    const auto index = static_cast<std::uint64_t>(l);
    std::vector<Form> one;
    for (const Form& f : at) one.push_back(forms_.substitute(f, simd_->lane_slot, l));
    put(one, b_.CreateExtractElement(all, index),
        simd_->conditional ? b_.CreateExtractElement(simd_->mask, index) : nullptr);
  }
}

}  // namespace syno::jit
