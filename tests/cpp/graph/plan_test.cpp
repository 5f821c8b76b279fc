#include "graph/plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/error.hpp"
#include "support/random.hpp"

namespace syno::graph {
namespace {

/// The item that an item lies in, and what of its bytes it takes.
std::size_t root_of(const std::vector<MemoryItem>& items, std::size_t i) {
  while (items[i].of) i = *items[i].of;
  return i;
}

void expect_sound(const std::vector<MemoryItem>& items, const MemoryPlan& plan, std::int64_t alignment) {
  ASSERT_EQ(plan.offsets.size(), items.size());
  EXPECT_GE(plan.bytes, plan.largest_live);
  // What keeps the bytes of an item: its own life and that of all that lie in it.
  std::vector<std::pair<std::int64_t, std::int64_t>> lives;
  for (const MemoryItem& item : items) lives.emplace_back(item.first, item.last);
  for (std::size_t i = 0; i < items.size(); ++i) {
    auto& life = lives[root_of(items, i)];
    life = {std::min(life.first, items[i].first), std::max(life.second, items[i].last)};
  }
  std::int64_t most = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    ASSERT_GE(plan.offsets[i], 0);
    ASSERT_LE(plan.offsets[i] + items[i].bytes, plan.bytes);
    if (items[i].of) {
      ASSERT_EQ(plan.offsets[i], plan.offsets[*items[i].of] + items[i].offset);
      continue;
    }
    ASSERT_EQ(plan.offsets[i] % alignment, 0);
    std::int64_t live = 0;
    for (std::size_t j = 0; j < items.size(); ++j) {
      if (items[j].of) continue;
      if (lives[j].first <= lives[i].first && lives[i].first <= lives[j].second)
        live += (items[j].bytes + alignment - 1) / alignment * alignment;
      if (j == i || lives[j].first > lives[i].second || lives[i].first > lives[j].second) continue;
      const bool apart = plan.offsets[i] + items[i].bytes <= plan.offsets[j] ||
                         plan.offsets[j] + items[j].bytes <= plan.offsets[i] || items[i].bytes == 0 ||
                         items[j].bytes == 0;
      ASSERT_TRUE(apart) << i << ' ' << j;
    }
    most = std::max(most, live);
  }
  EXPECT_EQ(plan.largest_live, most);
}

std::vector<MemoryItem> random_items(Random& random, std::size_t count) {
  std::vector<MemoryItem> items;
  for (std::size_t i = 0; i < count; ++i) {
    MemoryItem item;
    item.bytes = static_cast<std::int64_t>(random.below(random.below(2) == 0 ? 5000 : 200));
    item.first = static_cast<std::int64_t>(i);
    item.last = item.first + static_cast<std::int64_t>(random.below(random.below(6) == 0 ? count : 4));
    if (i > 0 && random.below(5) == 0) {
      item.of = random.below(i);
      const std::int64_t whole = items[*item.of].bytes;
      item.offset = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(whole) + 1));
      item.bytes =
          static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(whole - item.offset) + 1));
    }
    items.push_back(item);
  }
  return items;
}

TEST(MemoryPlan, WhatLivesTogetherLiesApart) {
  Random random(1);
  double worst = 1, sum = 0;
  for (int i = 0; i < 150; ++i) {
    const auto items = random_items(random, 1 + random.below(60));
    const std::int64_t alignment = std::int64_t{1} << random.below(8);
    const MemoryPlan plan = plan_memory(items, alignment);
    expect_sound(items, plan, alignment);
    if (HasFatalFailure()) return;
    EXPECT_EQ(plan_memory(items, alignment).offsets, plan.offsets);
    const double ratio = static_cast<double>(std::max<std::int64_t>(plan.bytes, 1)) /
                         static_cast<double>(std::max<std::int64_t>(plan.largest_live, 1));
    worst = std::max(worst, ratio);
    sum += ratio / 150;
  }
  RecordProperty("mean_ratio", std::to_string(sum));
  RecordProperty("worst_ratio", std::to_string(worst));
  EXPECT_LT(sum, 1.02);
  EXPECT_LT(worst, 1.25);
}

TEST(MemoryPlan, ChainsNeedTwoBuffers) {
  std::vector<MemoryItem> items;
  for (std::int64_t i = 0; i < 200; ++i) items.push_back({1024, i, i + 1, {}, 0});
  EXPECT_EQ(plan_memory(items).bytes, 2048);
}

TEST(MemoryPlan, AliasesKeepWhatTheyLieInAlive) {
  const std::vector<MemoryItem> items = {{256, 0, 1, {}, 0}, {64, 1, 5, 0, 128}, {256, 3, 3, {}, 0}};
  const MemoryPlan plan = plan_memory(items);
  EXPECT_EQ(plan.bytes, 512);
  EXPECT_EQ(plan.offsets[1], plan.offsets[0] + 128);
}

TEST(MemoryPlan, ManyItemsAndNone) {
  Random random(3);
  const auto items = random_items(random, 4000);
  const MemoryPlan plan = plan_memory(items);
  EXPECT_GE(plan.bytes, plan.largest_live);
  EXPECT_EQ(plan_memory({}).bytes, 0);
  EXPECT_EQ(plan_memory({{0, 0, 0, {}, 0}}).bytes, 0);
}

TEST(MemoryPlan, MistakesAreErrors) {
  EXPECT_THROW(plan_memory({{8, 2, 1, {}, 0}}), ShapeError);
  EXPECT_THROW(plan_memory({{-8, 0, 1, {}, 0}}), ShapeError);
  EXPECT_THROW(plan_memory({{8, 0, 1, 0, 0}}), ShapeError);
  EXPECT_THROW(plan_memory({{8, 0, 1, 1, 0}, {8, 0, 1, 0, 0}}), ShapeError);
  EXPECT_THROW(plan_memory({{8, 0, 1, 7, 0}}), ShapeError);
  EXPECT_THROW(plan_memory({{8, 0, 1, {}, 0}, {8, 0, 1, 0, 1}}), ShapeError);
  EXPECT_THROW(plan_memory({{8, 0, 1, {}, 0}, {4, 0, 1, 0, -1}}), ShapeError);
  EXPECT_THROW(plan_memory({{8, 0, 1, {}, 0}}, 0), ShapeError);
}

}  // namespace
}  // namespace syno::graph
