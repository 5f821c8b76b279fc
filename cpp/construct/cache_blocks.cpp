// Tiles of caches as loops: what stands outside a register tile is cut so that each cache's tile is gone
// through before the next one.
//
//   rows 96, columns 512, k 1000; register tile 4 x 64; tiles of the second cache 48 x 512 x 250
//   ->  for rows in 2, k in 4:  for rows in 12, columns in 8:  for k in 250:  the register tile
#include <algorithm>

#include "construct/construct.hpp"

namespace syno::construct {

namespace {

const PlannedLoop& loop_of(const Construction& c, const std::string& scope, int index) {
  return c.plan.scopes[c.index(scope)].loops[static_cast<std::size_t>(index)];
}

int loop_named(const Construction& c, const std::string& scope, const std::string& name) {
  const auto& loops = c.plan.scopes[c.index(scope)].loops;
  const auto at =
      std::find_if(loops.begin(), loops.end(), [&](const PlannedLoop& loop) { return loop.name == name; });
  return static_cast<int>(at - loops.begin());
}

/// Iterations of a loop that have all of theirs inside, where it is the outer part of splits alone.
std::int64_t complete(const Construction& c, const std::string& scope, int index) {
  const PlannedLoop& loop = loop_of(c, scope, index);
  if (loop.parent < 0) return loop.extent;
  const PlannedLoop& parent = loop_of(c, scope, loop.parent);
  return parent.outer == index ? complete(c, scope, loop.parent) / parent.factor : loop.extent;
}

}  // namespace

std::int64_t even_part(std::int64_t extent, std::int64_t most) {
  for (std::int64_t part = most; 2 * part >= most; --part)
    if (extent % part == 0) return part;
  return most;
}

std::string Construction::outermost_part(const std::string& scope, const std::string& loop) const {
  int at = loop_named(*this, scope, loop);
  while (loop_of(*this, scope, at).outer >= 0) at = loop_of(*this, scope, at).outer;
  return loop_of(*this, scope, at).name;
}

Refused Construction::peel_rest(const std::string& scope, const std::string& loop) {
  const std::string outermost = outermost_part(scope, loop);
  if (outermost == loop) return add({"peel", scope, {loop}, {}, "", {}});
  const int at = loop_named(*this, scope, outermost);
  const std::int64_t whole = complete(*this, scope, at);
  const bool incomplete = 0 < whole && whole < loop_of(*this, scope, at).extent;
  return incomplete ? peel(scope, outermost, {whole}, false) : Refused{};
}

Refused Construction::peel_blocks(const std::string& scope, const std::vector<std::string>& loops) {
  for (const std::string& loop : loops) {
    const std::string outermost = outermost_part(scope, loop);
    const bool peeled = !loop_of(*this, scope, loop_named(*this, scope, outermost)).cuts.empty();
    if (outermost != loop && !peeled) SYNO_ACCEPT(peel_rest(scope, loop));
  }
  return {};
}

Refused cut_into_blocks(Construction& c, const std::string& scope, const std::vector<BaseLoop>& bases,
                        const std::vector<CacheTiles>& blocks, std::vector<std::string>& order,
                        std::size_t outside) {
  if (blocks.empty()) return {};
  const std::size_t levels = blocks[0].tiles.size();
  std::vector<std::vector<std::string>> groups(levels + 1);
  for (std::size_t i = 0; i < outside; ++i) {
    std::string rest = order[i];
    int at = loop_named(c, scope, rest);
    std::int64_t unit = 1;  // points of the base loop that an iteration takes
    const auto base_of = [&](int index) {
      return std::find_if(bases.begin(), bases.end(),
                          [&](const BaseLoop& base) { return base.name == loop_of(c, scope, index).name; });
    };
    while (base_of(at) == bases.end() && loop_of(c, scope, at).parent >= 0) {
      const PlannedLoop& parent = loop_of(c, scope, loop_of(c, scope, at).parent);
      if (parent.outer == at) unit *= parent.factor;
      at = loop_of(c, scope, at).parent;
    }
    const auto base = base_of(at);
    const auto block = std::find_if(blocks.begin(), blocks.end(), [&](const CacheTiles& tiles) {
      return base != bases.end() && tiles.loops == base->loops;
    });
    for (std::size_t level = 0; level < levels && block != blocks.end() && !rest.empty(); ++level) {
      const std::int64_t count = block->tiles[level] / unit;
      if (count >= c.extent(scope, rest)) continue;
      if (count <= 1) {
        groups[level].push_back(rest);
        rest.clear();
        continue;
      }
      SYNO_TAKE(parts, c.split(scope, rest, count));
      groups[level].push_back(parts.first);
      rest = parts.second;
    }
    if (!rest.empty()) groups[levels].push_back(rest);
  }
  order.erase(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(outside));
  std::vector<std::string> outer;
  for (const auto& group : groups) outer.insert(outer.end(), group.begin(), group.end());
  order.insert(order.begin(), outer.begin(), outer.end());
  return {};
}

void add_blocks(const Construction& c, const ScopeFacts& facts, std::size_t results, Sketch& sketch) {
  const auto known = [&](std::size_t i) {
    return std::any_of(sketch.blocks.begin(), sketch.blocks.end(), [&](const auto& loops) {
      return std::find(loops.begin(), loops.end(), i) != loops.end();
    });
  };
  for (std::size_t i = 0; i < facts.extents.size(); ++i) {
    const bool sum = i >= facts.traversal;
    if (facts.extents[i] == 1 || (sum ? c.schedule.dtype == Dtype::BF16 : i >= results) || known(i)) continue;
    sketch.blocks.push_back({i});
  }
}

}  // namespace syno::construct
