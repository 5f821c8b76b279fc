#include "graph/plan.hpp"

#include <algorithm>
#include <numeric>

#include "support/checked.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"
#include "support/random.hpp"

namespace syno::graph {

namespace {

constexpr std::string_view kPlan = "memory plan";

/// What is placed: an item that lies in no other, living as long as all that lie in it.
struct Block {
  std::int64_t bytes = 0, first = 0, last = 0;
  std::size_t item = 0;
};

struct Blocks {
  std::vector<Block> all;
  std::vector<std::size_t> of_item;                ///< which block an item lies in
  std::vector<std::int64_t> within;                ///< at which byte of it
  std::vector<std::vector<std::uint32_t>> beside;  ///< blocks that live at a step of this one
};

Blocks blocks_of(const std::vector<MemoryItem>& items, std::int64_t alignment) {
  Blocks made;
  made.of_item.resize(items.size());
  made.within.assign(items.size(), 0);
  std::vector<std::size_t> roots(items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    const MemoryItem& item = items[i];
    if (item.bytes < 0 || item.bytes > std::int64_t{1} << 50)
      fail<ShapeError>(kPlan, "item {} has {} bytes", i, item.bytes);
    if (item.last < item.first)
      fail<ShapeError>(kPlan, "item {} lives from step {} to step {}", i, item.first, item.last);
    std::size_t root = i;
    for (std::size_t hops = 0; items[root].of; ++hops) {
      const MemoryItem& part = items[root];
      if (*part.of >= items.size())
        fail<ShapeError>(kPlan, "item {} lies in item {}, but there are {}", root, *part.of, items.size());
      if (hops > items.size()) fail<ShapeError>(kPlan, "item {} lies in itself", i);
      const MemoryItem& whole = items[*part.of];
      if (part.offset < 0 || part.bytes < 0 || part.offset > whole.bytes ||
          part.bytes > whole.bytes - part.offset)
        fail<ShapeError>(kPlan, "item {} of {} bytes at byte {} reaches beyond item {} of {} bytes", root,
                         part.bytes, part.offset, *part.of, whole.bytes);
      made.within[i] = checked_add(made.within[i], part.offset);
      root = *part.of;
    }
    roots[i] = root;
  }
  std::vector<std::size_t> places(items.size(), 0);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (roots[i] != i) continue;
    places[i] = made.all.size();
    const std::int64_t rounded = (items[i].bytes + alignment - 1) / alignment * alignment;
    made.all.push_back({rounded, items[i].first, items[i].last, i});
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    made.of_item[i] = places[roots[i]];
    Block& block = made.all[made.of_item[i]];
    block.first = std::min(block.first, items[i].first);
    block.last = std::max(block.last, items[i].last);
  }
  made.beside.resize(made.all.size());
  std::vector<std::uint32_t> by_start(made.all.size());
  std::iota(by_start.begin(), by_start.end(), 0u);
  std::stable_sort(by_start.begin(), by_start.end(),
                   [&](auto a, auto b) { return made.all[a].first < made.all[b].first; });
  for (std::size_t i = 0; i < by_start.size(); ++i)
    for (std::size_t j = i + 1;
         j < by_start.size() && made.all[by_start[j]].first <= made.all[by_start[i]].last; ++j) {
      made.beside[by_start[i]].push_back(by_start[j]);
      made.beside[by_start[j]].push_back(by_start[i]);
    }
  return made;
}

std::int64_t largest_live_of(const std::vector<Block>& blocks) {
  std::vector<std::pair<std::int64_t, std::int64_t>> events;  // step, bytes; what ends, ends after the step
  for (const Block& block : blocks) {
    events.emplace_back(2 * block.first, block.bytes);
    events.emplace_back(2 * block.last + 1, -block.bytes);
  }
  std::sort(events.begin(), events.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second > b.second;
  });
  std::int64_t live = 0, most = 0;
  for (const auto& [step, bytes] : events) {
    live = checked_add(live, bytes);
    most = std::max(most, live);
  }
  return most;
}

using Order = std::vector<std::uint32_t>;

struct Placed {
  std::vector<std::int64_t> offsets;  ///< by block
  std::int64_t bytes = 0;
};

/// Each block, in order, into the smallest gap between those beside it that holds it, else above them.
Placed place(const Blocks& blocks, const Order& order) {
  Placed made{std::vector<std::int64_t>(blocks.all.size(), -1), 0};
  std::vector<std::pair<std::int64_t, std::int64_t>> taken;
  for (const std::uint32_t b : order) {
    interruption_point();
    taken.clear();
    for (const std::uint32_t other : blocks.beside[b])
      if (made.offsets[other] >= 0 && blocks.all[other].bytes > 0)
        taken.emplace_back(made.offsets[other], made.offsets[other] + blocks.all[other].bytes);
    std::sort(taken.begin(), taken.end());
    const std::int64_t wanted = blocks.all[b].bytes;
    std::int64_t end = 0, best = -1, best_gap = 0;
    for (const auto& [from, to] : taken) {
      const std::int64_t gap = from - end;
      if (gap >= wanted && gap > 0 && (best < 0 || gap < best_gap)) {
        best = end;
        best_gap = gap;
      }
      end = std::max(end, to);
    }
    made.offsets[b] = best < 0 ? end : best;
    made.bytes = std::max(made.bytes, checked_add(made.offsets[b], wanted));
  }
  return made;
}

template <class Less>
Order ordered(std::size_t count, Less&& less) {
  Order order(count);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), less);
  return order;
}

std::vector<Order> greedy_orders(const std::vector<Block>& blocks) {
  const std::size_t count = blocks.size();
  const auto steps = [&](std::uint32_t b) {
    return static_cast<double>(blocks[b].last - blocks[b].first + 1);
  };
  const auto area = [&](std::uint32_t b) { return steps(b) * static_cast<double>(blocks[b].bytes); };
  return {
      ordered(count, [&](auto a, auto b) { return blocks[a].bytes > blocks[b].bytes; }),
      ordered(count, [&](auto a, auto b) { return area(a) > area(b); }),
      ordered(count, [&](auto a, auto b) { return steps(a) > steps(b); }),
      ordered(count, [&](auto a, auto b) { return blocks[a].first < blocks[b].first; }),
      ordered(count, [&](auto a, auto b) { return blocks[a].last > blocks[b].last; }),
  };
}

/// A block at the arena's end goes before others in the order, as long as time is worth it.
Placed improved(const Blocks& blocks, Order order, Placed best, std::int64_t bound) {
  const std::size_t count = blocks.all.size();
  std::size_t work = 0;
  for (const auto& all : blocks.beside) work += all.size() + 1;
  const std::size_t attempts = std::min<std::size_t>(400, 20'000'000 / std::max<std::size_t>(work, 1));
  Random random(0);
  for (std::size_t n = 0; n < attempts && best.bytes > bound && count > 1; ++n) {
    std::vector<std::size_t> highest;
    for (std::size_t i = 0; i < count; ++i)
      if (best.offsets[order[i]] + blocks.all[order[i]].bytes == best.bytes && i > 0) highest.push_back(i);
    if (highest.empty() || random.below(4) == 0) highest = {1 + random.below(count - 1)};
    const std::size_t from = highest[random.below(highest.size())];
    const std::size_t to = random.below(from);
    Order tried = order;
    std::rotate(tried.begin() + static_cast<std::ptrdiff_t>(to),
                tried.begin() + static_cast<std::ptrdiff_t>(from),
                tried.begin() + static_cast<std::ptrdiff_t>(from) + 1);
    Placed made = place(blocks, tried);
    if (made.bytes > best.bytes) continue;
    best = std::move(made);
    order = std::move(tried);
  }
  return best;
}

}  // namespace

MemoryPlan plan_memory(const std::vector<MemoryItem>& items, std::int64_t alignment) {
  if (alignment < 1 || alignment > 1 << 21) fail<ShapeError>(kPlan, "alignment is {} bytes", alignment);
  const Blocks blocks = blocks_of(items, alignment);
  MemoryPlan plan;
  plan.largest_live = largest_live_of(blocks.all);
  Placed best;
  Order best_order;
  bool first = true;
  for (Order& order : greedy_orders(blocks.all)) {
    Placed made = place(blocks, order);
    if (!first && made.bytes >= best.bytes) continue;
    first = false;
    best = std::move(made);
    best_order = std::move(order);
  }
  best = improved(blocks, std::move(best_order), std::move(best), plan.largest_live);
  plan.bytes = best.bytes;
  for (std::size_t i = 0; i < items.size(); ++i)
    plan.offsets.push_back(best.offsets[blocks.of_item[i]] + blocks.within[i]);
  return plan;
}

}  // namespace syno::graph
