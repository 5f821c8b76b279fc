// Loads whose lanes lie at constant distances: a few whole vectors and shuffles instead of a gather.
#include <llvm/IR/Instructions.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <tuple>

#include "jit/emitter.hpp"
#include "support/checked.hpp"
#include "support/error.hpp"

namespace syno::jit {

using nest::Buffer;
using nest::BufferId;
using symbolic::Interval;

namespace {

enum ShuffleTag : std::int64_t { kBlock = 200 };

std::int64_t down_to(std::int64_t value, std::int64_t multiple) {
  return value - floor_modulo(value, multiple);
}

/// Elements [start, start + width) of a buffer, counted from lane 0's element.
struct Block {
  std::int64_t start = 0;
  int width = 0;
};

}  // namespace

/// Whether a vector is loaded under a mask by one instruction; else by a branch an element.
bool Emitter::loads_masked(nest::Dtype dtype) const {
  if (cpu_.info.architecture == machine::Architecture::AArch64) return cpu_.info.scalable_bits > 0;
  return cpu_.info.vector_bits >= (nest::byte_size(dtype) < 4 ? 512 : 256);
}

std::optional<Emitter::Row> Emitter::row_of(BufferId id, const std::vector<symbolic::ExprId>& indices) {
  const Buffer& buffer = nest_.buffer(id);
  if (buffer.live.empty()) return std::nullopt;
  Row row{forms_.substitute(form(indices.back()), simd_->lane_slot, 0), form(buffer.live.back())};
  for (std::size_t d = 0; d + 1 < indices.size(); ++d) {
    const Form other = form(indices[d]);
    if (uses_lanes(other)) return std::nullopt;
    row.apart = row.apart && !forms_.share(other, row.first);
  }
  return row;
}

/// Whether elements [from, to] beyond lane 0's are memory of the buffer wherever the loops are. What lies
/// between two elements of a strided view belongs to the same array and may be read.
bool Emitter::readable(const Apart& load, std::int64_t from, std::int64_t to) const {
  const auto bounds = [&](const Form& form) {
    return load.use_facts ? forms_.bounds(form) : forms_.bounds_without_facts(form);
  };
  const Buffer& buffer = nest_.buffer(load.buffer);
  if (!buffer.live.empty()) {  // all of it is where a row begins and ends
    if (!load.row || load.masked) return false;
    const Form behind = nest::add(load.row->first, nest::multiply(load.row->extent, -1));
    return bounds(load.row->first).least + from >= 0 && bounds(behind).greatest + to < 0;
  }
  std::int64_t low = 0, high = 0;
  for (std::size_t d = 0; d < buffer.extents.size(); ++d) {
    const std::int64_t reach = (buffer.extents[d] - 1) * buffer.strides[d];
    (reach < 0 ? low : high) += reach;
  }
  const Interval range = bounds(load.first);
  return range.least + from >= low && range.greatest + to <= high;
}

/// Takes the lanes off for which a condition fails wherever the loops are.
void Emitter::take_off(Apart& load) {
  for (const auto& [about, condition] : load.conditions) {
    const LaneForm lanes = over_lanes(about);
    if (!lanes.same_terms || !lanes.first.is_constant()) continue;
    for (std::size_t l = 0; l < load.on.size(); ++l) {
      const std::int64_t value = lanes.first.constant + lanes.offsets[l];
      if (value < condition.begin || value >= condition.end) load.on[l] = false;
    }
  }
}

/// Of the elements [start, start + width) beyond lane 0's, those of lanes that are on; null where one of the
/// conditions says more than where a lane begins, or lanes of many minds share an element.
llvm::Value* Emitter::wanted_mask(const Apart& load, std::int64_t start, int width) {
  std::vector<LaneForm> about;
  for (const LaneCondition& each : load.conditions) {
    about.push_back(over_lanes(each.about));
    if (!about.back().same_terms) return nullptr;
  }
  const auto agree = [&](std::size_t a, std::size_t b) {
    return std::all_of(about.begin(), about.end(),
                       [&](const LaneForm& form) { return form.offsets[a] == form.offsets[b]; });
  };
  // An element is wanted where one of its lanes is: each layer holds one lane of an element.
  constexpr std::size_t kOff = static_cast<std::size_t>(-1), kMostLayers = 2;
  const auto size = static_cast<std::size_t>(width);
  std::vector<std::vector<std::size_t>> layers(1, std::vector<std::size_t>(size, kOff));
  for (std::size_t l = 0; l < load.on.size(); ++l) {
    const std::int64_t place = (*load.offsets)[l] - start;
    if (!load.on[l] || place < 0 || place >= width) continue;
    const auto at = static_cast<std::size_t>(place);
    std::size_t layer = 0;
    while (layer < layers.size() && layers[layer][at] != kOff && !agree(layers[layer][at], l)) ++layer;
    if (layer == kMostLayers) return nullptr;
    if (layer == layers.size()) layers.emplace_back(size, kOff);
    if (layers[layer][at] == kOff) layers[layer][at] = l;
  }
  llvm::Value* any = nullptr;
  for (const std::vector<std::size_t>& lane : layers) {
    std::vector<llvm::Constant*> held;
    for (const std::size_t l : lane) held.push_back(b_.getInt1(l != kOff));
    llvm::Value* mask = llvm::ConstantVector::get(held);
    for (std::size_t c = 0; c < about.size(); ++c) {
      std::vector<std::int64_t> offsets(size);
      for (std::size_t e = 0; e < size; ++e) offsets[e] = about[c].offsets[lane[e] == kOff ? 0 : lane[e]];
      mask = both(mask, offsets_mask(about[c].first, offsets, load.conditions[c].condition,
                                     forms_.bounds_without_facts(load.conditions[c].about)));
    }
    any = any ? b_.CreateOr(any, mask) : mask;
  }
  return any;
}

/// Of the elements [start, start + width) beyond lane 0's, those within the row; null where conditions say
/// more than which elements of the row are wanted. One mask then does for all that is read of a place, such
/// as both columns of a 2x2 window, whose wanted elements alternate.
///
/// What else is known of the row must not depend on these conditions: x[t, 16 * t + v] where 16 * t + v < n
/// says that t is small, x[t, 16 * i + v] where 16 * i + v < n says nothing of t.
llvm::Value* Emitter::row_mask(const Apart& load, std::int64_t start, int width) {
  if (!load.row || !load.row->apart || load.condition) return nullptr;
  const Row& row = *load.row;
  const auto step = [](const std::vector<std::int64_t>& offsets, std::size_t l) {
    return offsets[l] - offsets[0];
  };
  for (const LaneCondition& each : load.conditions) {
    const LaneForm about = over_lanes(each.about);
    if (!about.same_terms) return nullptr;
    // 16 + i - n < 0 says of x[c, 2 * i + 32] that 2 * i + 32 - 2 * n is below 0.
    const std::int64_t own = step(about.offsets, 1);
    if (own == 0) return nullptr;
    const std::int64_t times = step(*load.offsets, 1) / own;
    for (std::size_t l = 0; l < load.on.size(); ++l)
      if (times * step(about.offsets, l) != step(*load.offsets, l)) return nullptr;
    const Form beyond = nest::add(nest::multiply(about.first, times), nest::multiply(row.first, -1));
    if (!beyond.is_constant() && !nest::add(beyond, row.extent).is_constant()) return nullptr;
  }
  std::vector<std::int64_t> places(static_cast<std::size_t>(width));
  std::iota(places.begin(), places.end(), 0);
  const auto range_of = [&](const Form& form) {
    Interval range = forms_.bounds_without_facts(form);
    range.greatest += width - 1;
    return range;
  };
  const Form first = nest::with_constant(row.first, start);
  const Form behind = nest::add(first, nest::multiply(row.extent, -1));
  const Interval from_first = range_of(first), from_behind = range_of(behind);
  llvm::Value* mask = offsets_mask(behind, places, nest::Condition{{}, from_behind.least, 0}, from_behind);
  if (from_first.least < 0)
    mask =
        both(mask, offsets_mask(first, places, nest::Condition{{}, 0, from_first.greatest + 1}, from_first));
  return mask;
}

llvm::Value* Emitter::block_load(const Apart& load, std::int64_t start, int width, llvm::Value* mask) {
  const Form at = nest::with_constant(load.first, start);
  Key key = key_of(kBlock, at);
  key.insert(key.end(), {static_cast<std::int64_t>(raw(load.buffer)), versions_[raw(load.buffer)],
                         at.constant, width, bits(load.condition), bits(load.otherwise), bits(mask)});
  return locally(key, [&]() -> llvm::Value* {
    const nest::Dtype dtype = nest_.buffer(load.buffer).dtype;
    auto* type = llvm::FixedVectorType::get(storage_type(dtype), static_cast<unsigned>(width));
    llvm::Value* place = pointer(load.buffer, at);
    if (load.condition) place = b_.CreateSelect(load.condition, place, load.otherwise);
    if (!mask) return load_plain(load.buffer, type, place);
    const auto align = llvm::Align(nest::byte_size(dtype));
    return masked_call(b_.CreateMaskedLoad(type, place, align, mask, llvm::Constant::getNullValue(type)),
                       load.buffer);
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

/// The lanes that are on, from the fewest vectors that hold them; null where a gather is as good.
llvm::Value* Emitter::shuffled_load(const Apart& load, std::int64_t stride) {
  const int lanes = simd_->lanes;
  const auto& [offsets, on] = std::tie(*load.offsets, load.on);
  std::vector<std::int64_t> wanted;
  for (int l = 0; l < lanes; ++l)
    if (on[static_cast<std::size_t>(l)]) wanted.push_back(offsets[static_cast<std::size_t>(l)]);
  if (wanted.empty()) return nullptr;
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());

  // From the smallest element on: a whole vector where all of it may be read or a mask says what may, begun
  // where loads of neighbouring windows begin, too; otherwise the widest that ends at an element that is
  // wanted.
  const auto cover = [&](std::int64_t multiple) {
    std::vector<Block> blocks;
    std::size_t next = 0;
    while (next < wanted.size()) {
      const std::int64_t least = wanted[next];
      std::size_t last = next;
      while (last + 1 < wanted.size() && wanted[last + 1] - least < lanes) ++last;
      const std::int64_t aligned = down_to(load.first.constant + least, multiple) - load.first.constant;
      Block block{aligned, lanes};
      if (!load.masked && !readable(load, aligned, aligned + lanes - 1)) {
        const std::int64_t span = wanted[last] - least + 1;
        if (readable(load, wanted[last] - lanes + 1, wanted[last]))
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
  for (const std::int64_t multiple : {std::abs(stride), static_cast<std::int64_t>(lanes)}) {
    if (multiple < 2 || multiple > lanes) continue;
    std::vector<Block> other = cover(multiple);
    if (other.size() <= blocks.size()) blocks = std::move(other);
  }
  // A mask for each vector makes it dearer.
  if (static_cast<int>(blocks.size()) > std::max(2, lanes / (load.masked ? 4 : 2))) return nullptr;
  std::vector<llvm::Value*> masks(blocks.size(), nullptr);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Block& block = blocks[i];
    if (!load.masked || readable(load, block.start, block.start + block.width - 1)) continue;
    masks[i] = row_mask(load, block.start, block.width);
    if (!masks[i]) masks[i] = wanted_mask(load, block.start, block.width);
    if (!masks[i]) return nullptr;
  }

  llvm::Value* made = nullptr;
  std::vector<bool> done(static_cast<std::size_t>(lanes));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Block& block = blocks[i];
    llvm::Value* part = block_load(load, block.start, block.width, masks[i]);
    std::vector<int> mask(static_cast<std::size_t>(lanes), -1);
    if (block.width < lanes && made) {  // both operands of a shuffle have one width
      for (int l = 0; l < block.width; ++l) mask[static_cast<std::size_t>(l)] = l;
      part = b_.CreateShuffleVector(part, mask);
      std::fill(mask.begin(), mask.end(), -1);
    }
    bool identity = !made && block.width == lanes;
    for (int l = 0; l < lanes; ++l) {
      const auto at = static_cast<std::size_t>(l);
      const std::int64_t from = offsets[at] - block.start;
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
