// Lanes that meet in one element, of several vectors at once: what is left of one result's lanes and of
// another's is added up in one vector, so that sixteen results of sixteen lanes take 15 additions instead of
// 64.
#include <algorithm>
#include <bit>

#include "jit/emitter.hpp"
#include "support/error.hpp"

namespace syno::jit {

using nest::BufferKind;
using nest::LoopKind;
using nest::Statement;
using nest::StatementKind;
using nest::StoreMode;

namespace {

constexpr int kShuffledBytes = 16;  ///< of a part of a vector within which shuffles are cheapest

/// A vector in segments as long as each other: lanes that belong to the fold with this number each.
struct Segments {
  llvm::Value* vector = nullptr;
  std::vector<int> owners;
};

}  // namespace

/// Unrolled loops, or none, around one loop of lanes of a whole vector or less that all meet in one element
/// of a register tile.
bool Emitter::folds_lanes(const Statement& loop) {
  if (simd_ || folds_ || cpu_.info.shuffles_one_vector) return false;
  const Statement* at = &loop;
  while (at->kind == StatementKind::Sequence ||
         (at->kind == StatementKind::For && at->loop == LoopKind::Unroll)) {
    if (at->children.size() != 1) return false;
    if (at->kind == StatementKind::For && !(form(at->begin).is_constant() && form(at->end).is_constant()))
      return false;
    at = &nest_.statement(at->children[0]);
  }
  if (at->kind != StatementKind::For || at->loop != LoopKind::Vector || at->children.size() != 1)
    return false;
  const Form begin = form(at->begin), end = form(at->end);
  if (!begin.is_constant() || !end.is_constant()) return false;
  const std::int64_t lanes = end.constant - begin.constant;
  if (lanes < 2 || lanes > native_lanes_ || !vectorises(*at)) return false;
  const Statement& store = nest_.statement(at->children[0]);
  if (store.kind != StatementKind::Store || store.mode == StoreMode::Assign ||
      nest_.buffer(store.buffer).kind != BufferKind::Register)
    return false;
  const Tile& tile = tiles_.at(raw(store.buffer));
  if (tile.per_iteration || reads(store.value, store.buffer)) return false;
  return std::none_of(store.indices.begin(), store.indices.end(),
                      [&](symbolic::ExprId index) { return forms_.depends_on(form(index), at->slot); });
}

/// Elements of a tile that lanes of vectors meet in, each once, in the order in which they are met.
void Emitter::fold_together() {
  std::vector<Fold> folds = std::move(*folds_);
  folds_.reset();
  for (std::size_t i = 0; i < folds.size(); ++i)
    for (std::size_t j = folds.size() - 1; j > i; --j) {
      if (folds[i].slot != folds[j].slot || folds[i].lane != folds[j].lane) continue;
      folds[i].vector = joined(folds[i].mode, folds[i].vector, folds[j].vector);
      folds.erase(folds.begin() + static_cast<std::ptrdiff_t>(j));
    }
  for (std::size_t begin = 0; begin < folds.size();) {
    const auto width = static_cast<std::size_t>(
        llvm::cast<llvm::FixedVectorType>(folds[begin].vector->getType())->getNumElements());
    // Results that lie in one vector of the tile, or as many numbers as there are lanes.
    std::size_t end = begin + 1;
    const Tile& tile = *folds[begin].tile;
    while (end < folds.size() && end - begin < width &&
           (tile.lanes == 1 || folds[end].slot == folds[begin].slot))
      ++end;
    fold(llvm::ArrayRef(folds).slice(begin, end - begin));
    begin = end;
  }
}

llvm::Value* Emitter::joined(StoreMode mode, llvm::Value* a, llvm::Value* b) {
  return combine(mode, {a, true}, {b, true}).value;
}

void Emitter::fold(llvm::ArrayRef<Fold> folds) {
  const StoreMode mode = folds.front().mode;
  const auto bytes = static_cast<int>(compute_->getPrimitiveSizeInBits() / 8);
  std::vector<Segments> parts;
  for (std::size_t i = 0; i < folds.size(); ++i) parts.push_back({folds[i].vector, {static_cast<int>(i)}});
  parts.resize(std::bit_ceil(folds.size()), {llvm::PoisonValue::get(folds.front().vector->getType()), {-1}});
  const auto lanes =
      static_cast<int>(llvm::cast<llvm::FixedVectorType>(folds.front().vector->getType())->getNumElements());
  while (parts.size() > 1) {
    std::vector<Segments> next;
    for (std::size_t i = 0; i < parts.size(); i += 2) {
      const Segments &a = parts[i], &b = parts[i + 1];
      const auto count = static_cast<int>(a.owners.size());
      const int length = lanes / count;
      // Segments of a side by side; those of one sixteen bytes beside those of the other's.
      const int within =
          length * bytes > kShuffledBytes ? count : std::max(1, kShuffledBytes / (length * bytes));
      Segments made;
      std::vector<int> low, high;
      for (int first = 0; first < count; first += within) {
        for (const auto& [segments, offset] : {std::pair{&a, 0}, {&b, lanes}})
          for (int s = first; s < std::min(count, first + within); ++s) {
            made.owners.push_back(segments->owners[static_cast<std::size_t>(s)]);
            for (int l = 0; l < length / 2; ++l) {
              low.push_back(offset + s * length + l);
              high.push_back(offset + s * length + length / 2 + l);
            }
          }
      }
      made.vector = joined(mode, b_.CreateShuffleVector(a.vector, b.vector, low),
                           b_.CreateShuffleVector(a.vector, b.vector, high));
      next.push_back(std::move(made));
    }
    parts = std::move(next);
  }
  Segments& all = parts.front();
  for (int left = lanes; left > static_cast<int>(all.owners.size()); left /= 2) {
    const int length = left / static_cast<int>(all.owners.size());
    std::vector<int> low, high;
    for (int l = 0; l < left; ++l) (l % length < length / 2 ? low : high).push_back(l);
    all.vector =
        joined(mode, b_.CreateShuffleVector(all.vector, low), b_.CreateShuffleVector(all.vector, high));
  }
  put_folded(folds, all.vector, all.owners);
}

/// Puts the lane of each fold where its element is.
void Emitter::put_folded(llvm::ArrayRef<Fold> folds, llvm::Value* vector, const std::vector<int>& owners) {
  Tile& tile = *folds.front().tile;
  const auto lane_of = [&](std::size_t i) {
    return static_cast<int>(std::find(owners.begin(), owners.end(), static_cast<int>(i)) - owners.begin());
  };
  if (tile.lanes > 1) {
    std::vector<int> mask(static_cast<std::size_t>(tile.lanes), -1);
    for (std::size_t i = 0; i < folds.size(); ++i) mask[static_cast<std::size_t>(folds[i].lane)] = lane_of(i);
    llvm::Value* old = tile.slots[folds.front().slot];
    llvm::Value* made = joined(folds.front().mode, old, b_.CreateShuffleVector(vector, mask));
    if (static_cast<int>(folds.size()) < tile.lanes) {  // the other lanes stay
      std::vector<llvm::Constant*> folded;
      for (const int from : mask) folded.push_back(b_.getInt1(from >= 0));
      made = b_.CreateSelect(llvm::ConstantVector::get(folded), made, old);
    }
    tile.slots[folds.front().slot] = made;
    return;
  }
  for (std::size_t i = 0; i < folds.size(); ++i) {
    llvm::Value*& held = tile.slots[folds[i].slot];
    llvm::Value* one = b_.CreateExtractElement(vector, static_cast<std::uint64_t>(lane_of(i)));
    held = combine(folds[i].mode, {held, false}, {one, false}).value;
  }
}

}  // namespace syno::jit
