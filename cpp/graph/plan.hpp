// graph/plan.hpp — where intermediate tensors lie in one arena, by when they live.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace syno::graph {

/// Lives from step `first` to step `last`, both with it.
struct MemoryItem {
  std::int64_t bytes = 0;
  std::int64_t first = 0, last = 0;
  std::optional<std::size_t> of;  ///< lies in this item, from its byte `offset` on, and keeps it alive
  std::int64_t offset = 0;
};

struct MemoryPlan {
  std::vector<std::int64_t> offsets;  ///< of each item in the arena
  std::int64_t bytes = 0;             ///< of the arena
  std::int64_t largest_live = 0;      ///< what lives at one step, at most: no arena is smaller
};

/// Items that live at the same step do not overlap, but for those that lie in one another; offsets of others
/// than those are multiples of `alignment`, as their sizes count in `largest_live`. The best of several
/// greedy orders and of changes to them: the same for the same items. ShapeError where an item ends before it
/// begins or has fewer than 0 bytes, lies in itself or reaches beyond the item it lies in.
MemoryPlan plan_memory(const std::vector<MemoryItem>& items, std::int64_t alignment = 64);

}  // namespace syno::graph
