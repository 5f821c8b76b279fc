// Copies in blocks: what a register tile takes of an operand in one step lies together, and steps follow each
// other in the order they are taken.
#include <algorithm>
#include <numeric>

#include "construct/construct.hpp"

namespace syno::construct {

void write_blocks(Construction& c, const std::string& copy, const Blocks& blocks,
                  const std::vector<std::size_t>& position) {
  const std::size_t s = c.index(copy);
  c.plan.need_domain(s);
  const auto tensor = c.plan.program.scopes[s].output;
  const std::size_t dim = blocks.dim, rank = position.size();
  std::vector<std::string> loops, order;
  for (std::size_t d = 0; d < rank; ++d) loops.push_back(c.plan.scopes[s].loops[d].name);
  const std::int64_t extent = c.plan.storage(tensor)[dim];
  const bool parts = blocks.part > 0 && blocks.part < extent;
  const std::int64_t part = parts ? blocks.part : extent;
  const std::int64_t count = (part + blocks.width - 1) / blocks.width;
  auto at = static_cast<std::int64_t>(dim);
  const auto layout = [&](std::vector<std::int64_t> numbers, const char* word) {
    c.add({"layout", copy, {}, std::move(numbers), copy, {word}});
  };
  if (parts) layout({at++, extent / part, part}, "split");
  if (count * blocks.width > part) layout({at, 0, count * blocks.width - part}, "pad");
  layout({at, count, blocks.width}, "split");
  std::vector<std::size_t> others;
  for (std::size_t d = 0; d < rank; ++d)
    if (d != dim) others.push_back(d);
  std::stable_sort(others.begin(), others.end(),
                   [&](std::size_t a, std::size_t b) { return position[a] < position[b]; });
  std::vector<std::int64_t> permutation(static_cast<std::size_t>(parts ? 2 : 1));
  std::iota(permutation.begin(), permutation.end(), static_cast<std::int64_t>(dim));
  for (const std::size_t d : others)
    permutation.push_back(static_cast<std::int64_t>(d > dim ? d + (parts ? 2 : 1) : d));
  permutation.push_back(at + 1);
  layout(permutation, "reorder");
  // What follows the blocks in memory, and each other in the copy, stays one run: blocks of it are
  // transposed.
  std::string run;
  std::size_t first = rank;
  for (std::size_t place = others.size(); first > dim + 1;) {
    if (first == rank)
      place = static_cast<std::size_t>(std::find(others.begin(), others.end(), rank - 1) - others.begin());
    else if (place == 0 || others[--place] != first - 1)
      break;
    --first;
    run = run.empty() ? loops[first] : c.fuse(copy, loops[first], run);
  }
  std::string within = loops[dim];
  const auto outside = [&](std::int64_t size) {
    const auto [outer, inner] = c.split(copy, within, size);
    order.push_back(outer);
    within = inner;
  };
  if (parts) outside(part);
  if (part > blocks.width) outside(blocks.width);
  for (std::size_t d = 0; d < first; ++d)
    if (d != dim) order.push_back(loops[d]);
  if (!run.empty()) order.push_back(run);
  order.push_back(within);
  c.add({"reorder", copy, order, {}, "", {}});
  c.vectorize_copy(copy);
  c.parallel_outermost(copy);
}

}  // namespace syno::construct
