// Loads whose lanes lie at constant distances: a few whole vectors and shuffles instead of a gather.
#include <llvm/IR/Instructions.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "jit/emitter.hpp"
#include "support/checked.hpp"
#include "support/error.hpp"

namespace syno::jit {

using nest::Buffer;
using nest::BufferId;
using symbolic::Interval;

namespace {

enum Tag : std::int64_t { kBlock = 200 };

std::uint32_t raw(BufferId id) { return static_cast<std::uint32_t>(id); }

std::int64_t down_to(std::int64_t value, std::int64_t multiple) {
  return value - floor_modulo(value, multiple);
}

/// Elements [start, start + width) of a buffer, counted from lane 0's element.
struct Block {
  std::int64_t start = 0;
  int width = 0;
};

}  // namespace

/// Whether elements [from, to] beyond `first` are memory of the buffer wherever the loops are. What lies
/// between two elements of a strided view belongs to the same array and may be read.
bool Emitter::readable(BufferId id, const Form& first, std::int64_t from, std::int64_t to,
                       bool use_facts) const {
  const Buffer& buffer = nest_.buffer(id);
  if (!buffer.live.empty()) return false;
  std::int64_t low = 0, high = 0;
  for (std::size_t d = 0; d < buffer.extents.size(); ++d) {
    const std::int64_t reach = (buffer.extents[d] - 1) * buffer.strides[d];
    (reach < 0 ? low : high) += reach;
  }
  const Interval range = use_facts ? forms_.bounds(first) : forms_.bounds_without_facts(first);
  return range.least + from >= low && range.greatest + to <= high;
}

llvm::Value* Emitter::block_load(BufferId id, const Form& first, std::int64_t start, int width,
                                 llvm::Value* condition, llvm::Value* otherwise) {
  const Form at = nest::with_constant(first, start);
  Key key = key_of(kBlock, at);
  key.insert(key.end(), {static_cast<std::int64_t>(raw(id)), versions_[raw(id)], at.constant, width,
                         bits(condition), bits(otherwise)});
  return locally(key, [&] {
    llvm::Type* element = storage_type(nest_.buffer(id).dtype);
    llvm::Value* place = pointer(id, at);
    if (condition) place = b_.CreateSelect(condition, place, otherwise);
    return load_plain(id, llvm::FixedVectorType::get(element, static_cast<unsigned>(width)), place);
  });
}

/// Elements of two vectors; of each alone and then chosen by lane, where one instruction takes one vector
/// only.
llvm::Value* Emitter::shuffled(llvm::Value* a, llvm::Value* b, const std::vector<int>& mask) {
  const auto count = static_cast<int>(mask.size());
  const auto wide = llvm::cast<llvm::FixedVectorType>(a->getType())->getPrimitiveSizeInBits() > 128;
  unsigned first = 0;
  const bool halves = llvm::ShuffleVectorInst::isDeInterleaveMaskOfFactor(mask, 2, first);
  if (!cpu_.info.shuffles_one_vector || !wide || halves) return b_.CreateShuffleVector(a, b, mask);
  std::vector<int> of_a, of_b;
  std::vector<llvm::Constant*> from_a;
  for (const int from : mask) {
    of_a.push_back(from < count ? from : -1);
    of_b.push_back(from < count ? -1 : from - count);
    from_a.push_back(b_.getInt1(from < count));
  }
  return b_.CreateSelect(llvm::ConstantVector::get(from_a), b_.CreateShuffleVector(a, of_a),
                         b_.CreateShuffleVector(b, of_b));
}

/// The lanes that are on, from the fewest vectors that hold them; null where a gather is as good. Where
/// `condition` fails the vectors come from `otherwise`.
llvm::Value* Emitter::shuffled_load(BufferId id, const LaneForm& where, const std::vector<bool>& on,
                                    bool use_facts, llvm::Value* condition, llvm::Value* otherwise) {
  const int lanes = simd_->lanes;
  std::vector<std::int64_t> wanted;
  for (int l = 0; l < lanes; ++l)
    if (on[static_cast<std::size_t>(l)]) wanted.push_back(where.offsets[static_cast<std::size_t>(l)]);
  if (wanted.empty()) return nullptr;
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());

  // From the smallest element on: a whole vector where all of it may be read, begun where loads of
  // neighbouring windows begin, too; otherwise the widest that ends at an element that is wanted.
  const auto cover = [&](std::int64_t multiple) {
    std::vector<Block> blocks;
    std::size_t next = 0;
    while (next < wanted.size()) {
      const std::int64_t least = wanted[next];
      std::size_t last = next;
      while (last + 1 < wanted.size() && wanted[last + 1] - least < lanes) ++last;
      const std::int64_t aligned = down_to(where.first.constant + least, multiple) - where.first.constant;
      Block block{aligned, lanes};
      if (!readable(id, where.first, aligned, aligned + lanes - 1, use_facts)) {
        const std::int64_t span = wanted[last] - least + 1;
        if (readable(id, where.first, wanted[last] - lanes + 1, wanted[last], use_facts))
          block = {wanted[last] - lanes + 1, lanes};
        else
          block = {least, static_cast<int>(std::bit_floor(static_cast<std::uint64_t>(span)))};
      }
      while (next < wanted.size() && wanted[next] < block.start + block.width) ++next;
      blocks.push_back(block);
    }
    return blocks;
  };
  std::vector<Block> blocks = cover(1);
  const std::int64_t stride = std::abs(where.stride.value_or(1));
  for (const std::int64_t multiple : {stride, static_cast<std::int64_t>(lanes)}) {
    if (multiple < 2 || multiple > lanes) continue;
    std::vector<Block> other = cover(multiple);
    if (other.size() <= blocks.size()) blocks = std::move(other);
  }
  if (static_cast<int>(blocks.size()) > std::max(2, lanes / 2)) return nullptr;

  llvm::Value* made = nullptr;
  std::vector<bool> done(static_cast<std::size_t>(lanes));
  for (const Block& block : blocks) {
    llvm::Value* part = block_load(id, where.first, block.start, block.width, condition, otherwise);
    std::vector<int> mask(static_cast<std::size_t>(lanes), -1);
    if (block.width < lanes && made) {  // both operands of a shuffle have one width
      for (int l = 0; l < block.width; ++l) mask[static_cast<std::size_t>(l)] = l;
      part = b_.CreateShuffleVector(part, mask);
      std::fill(mask.begin(), mask.end(), -1);
    }
    bool identity = !made && block.width == lanes;
    for (int l = 0; l < lanes; ++l) {
      const auto at = static_cast<std::size_t>(l);
      const std::int64_t from = where.offsets[at] - block.start;
      if (done[at]) {
        mask[at] = l;
      } else if (on[at] && from >= 0 && from < block.width) {
        mask[at] = static_cast<int>(from) + (made ? lanes : 0);
        done[at] = true;
        identity = identity && from == l;
      }
    }
    if (!identity) part = made ? shuffled(made, part, mask) : b_.CreateShuffleVector(part, mask);
    made = part;
  }
  return made;
}

}  // namespace syno::jit
