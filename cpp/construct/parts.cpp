// Parts of a long reduction: so few steps at a time that what they read stays in a near cache while it is
// read again and again. The output keeps the sums of the parts before.
#include <algorithm>
#include <cmath>

#include "construct/caches.hpp"
#include "construct/construct.hpp"

namespace syno::construct {

namespace {

constexpr std::int64_t kLeastOfAPart = 32, kMostOfAPart = 4096;  ///< steps of a part

}  // namespace

bool steps_far_apart(const Construction& c, const ScopeFacts& facts, const ReadFacts& read) {
  const std::int64_t bytes = c.target.vector_bits / 8 / c.lanes;
  for (std::size_t i = facts.extents.size(); read.linear && i-- > facts.traversal;)
    if (read.depends[i] && facts.extents[i] > 1) return std::abs(read.address[i]) * bytes >= kPage;
  return false;
}

std::vector<std::int64_t> steps_of_parts(const Construction& c, const ScopeFacts& facts) {
  std::vector<std::int64_t> values{0};
  if (c.schedule.dtype == Dtype::BF16) return values;  // the output would round what it keeps
  std::int64_t steps = 1, bytes = 0;
  for (const ReadFacts& read : facts.reads) bytes += read.box.elements * c.target.vector_bits / 8 / c.lanes;
  if (2 * bytes <= c.target.l1_bytes) return values;  // everything stays near
  for (std::size_t i = facts.traversal; i < facts.extents.size(); ++i) steps *= facts.extents[i];
  for (std::int64_t part = kLeastOfAPart; part <= kMostOfAPart && 2 * part <= steps; part *= 2)
    values.push_back(part);
  return values;
}

double kept_cycles(const Target& target, double vectors, double inside, double parts) {
  const double vector = static_cast<double>(target.vector_bits) / 8, bytes = 2 * inside * vector;
  double far = 0;
  if (bytes > static_cast<double>(target.l2_bytes))
    far = 2 * target.line_cycles[bytes > static_cast<double>(target.l3_bytes) ? 2 : 1] * vector / kLine;
  return (parts - 1) * vectors * (kKeptCycles + far * target.fma_per_cycle);
}

std::vector<std::int64_t> iterations_of_part(std::vector<std::int64_t> extents, std::int64_t steps) {
  std::int64_t inside = 1;
  bool full = false;
  for (std::size_t i = extents.size(); steps > 0 && i-- > 0;) {
    if (full) {
      extents[i] = 1;
    } else if (inside * extents[i] <= steps) {
      inside *= extents[i];
    } else {
      extents[i] = even_part(extents[i], steps / inside);
      full = true;
    }
  }
  return extents;
}

OrRefusal<ReductionLoops> in_parts(Construction& c, const std::string& scope,
                                   const std::vector<std::string>& loops, std::int64_t steps) {
  ReductionLoops made;
  std::vector<std::int64_t> extents;
  for (const std::string& loop : loops) extents.push_back(c.extent(scope, loop));
  const std::vector<std::int64_t> parts = iterations_of_part(extents, steps);
  for (std::size_t i = loops.size(); i-- > 0;) {
    const std::int64_t extent = extents[i], part = parts[i];
    if (part == extent && made.around.empty()) {
      made.inside.insert(made.inside.begin(), loops[i]);
      continue;
    }
    if (part == 1) {
      made.around.insert(made.around.begin(), loops[i]);
      continue;
    }
    SYNO_TAKE(pieces, c.split(scope, loops[i], part));
    made.around.insert(made.around.begin(), pieces.first);
    made.inside.insert(made.inside.begin(), pieces.second);
    if (extent % part != 0) made.incomplete = pieces.first;
  }
  return made;
}

void put_around(const Construction& c, const std::string& scope, std::vector<std::string>& order,
                std::size_t behind, const ReductionLoops& reduction) {
  const auto one = [&](std::size_t i) { return c.extent(scope, order[i]) == 1; };
  // Inside another scope's loop nothing is parallel: that loop is, or none is worth it.
  const bool inside = c.plan.scopes[c.index(scope)].attach_scope >= 0;
  if (c.target.threads > 1 && !inside)
    for (std::size_t i = 0; i < order.size() && (i == 0 || one(i - 1)); ++i) behind = std::max(behind, i + 1);
  order.insert(order.begin() + static_cast<std::ptrdiff_t>(behind), reduction.around.begin(),
               reduction.around.end());
}

void add_parts(const ScopeFacts& facts, const std::vector<std::int64_t>& steps, Sketch& sketch) {
  if (steps.size() < 2) return;
  std::vector<std::size_t> loops;
  for (std::size_t i = facts.traversal; i < facts.extents.size(); ++i) loops.push_back(i);
  sketch.choices.push_back({"steps", &Numbers::steps, steps, loops});
}

}  // namespace syno::construct
