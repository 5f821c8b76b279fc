// A whole small image in registers: vectors of consecutive positions, whichever rows they lie in. A tap then
// is one vector of the input a few elements on, and which of its lanes lie outside the image is known when
// code is made. Nothing is copied or padded: for images of a few rows, that would be most of the work.
#include <algorithm>

#include "construct/tiling_cost.hpp"

namespace syno::construct {

namespace {

constexpr std::int64_t kMostTapsOfARow = 32, kMostVectors = 8, kMostOfARow = 128;

struct ImagePlan {
  std::size_t first = 0;  ///< the traversal loops from here on are the image
  std::int64_t positions = 1, vectors = 1, taps = 1;
};

/// The loop is part of what consecutive positions run through: every read that moves with the image moves on
/// by whole rows, planes, ... of the image itself.
bool continues(const ScopeFacts& facts, std::size_t loop, std::int64_t positions) {
  return std::all_of(facts.reads.begin(), facts.reads.end(), [&](const ReadFacts& read) {
    const bool moves = read.depends[facts.traversal - 1];
    return moves ? read.address[loop] == positions : !read.depends[loop];
  });
}

std::optional<ImagePlan> plan_image(const Construction& c, const ScopeFacts& facts) {
  // Masks cost a register and an instruction each only where a CPU has registers for them.
  if (c.target.vector_registers < 32 || c.target.vector_bits < 512 || !facts.splits.empty())
    return std::nullopt;
  ImagePlan plan;
  plan.first = facts.traversal;
  bool moves = false, guarded = false;
  for (const ReadFacts& read : facts.reads) {
    if (!read.linear) return std::nullopt;
    if (!read.depends[facts.traversal - 1]) continue;
    moves = true;
    guarded = guarded || read.guarded;
  }
  if (!moves || !guarded) return std::nullopt;
  while (plan.first > 0 && continues(facts, plan.first - 1, plan.positions)) {
    --plan.first;
    plan.positions *= facts.extents[plan.first];
    if (plan.positions > kMostVectors * c.lanes) return std::nullopt;
  }
  // One row alone is what along_window does.
  if (facts.traversal - plan.first < 2) return std::nullopt;
  for (std::size_t i = facts.traversal; i < facts.extents.size(); ++i) {
    plan.taps *= facts.extents[i];
    if (plan.taps > kMostTapsOfARow) return std::nullopt;
  }
  plan.vectors = (plan.positions + c.lanes - 1) / c.lanes;
  if (plan.vectors * plan.taps > kMostOfARow) return std::nullopt;
  return plan;
}

Tiling tiling_of(const ScopeFacts& facts, const ImagePlan& plan, std::int64_t lanes) {
  Tiling tiling;
  for (std::size_t i = plan.first; i < facts.traversal; ++i) tiling.lanes.push_back(i);
  tiling.width = plan.vectors * lanes;
  for (std::size_t i = 0; i < plan.first; ++i) tiling.around.push_back({Around::Of::Loop, i});
  tiling.around.push_back({Around::Of::Sums});
  for (std::size_t i = facts.traversal; i < facts.extents.size(); ++i) tiling.unrolled.push_back(i);
  return tiling;
}

}  // namespace

void along_image(Construction& c, const std::string& scope, const Facts& shared, Sketches& sketches) {
  const ScopeFacts& facts = *shared;
  if (!facts.reduces || facts.traversal == 0 || c.plan.scopes[c.index(scope)].frozen) return;
  const auto plan = plan_image(c, facts);
  if (!plan) return;
  Sketch sketch;
  sketch.name = "along_image";
  sketch.fits = [](const Numbers&) { return true; };
  sketch.scope = scope;
  sketch.facts = shared;
  sketch.tiling = [shared, plan = *plan, lanes = c.lanes](const Numbers&) {
    return tiling_of(*shared, plan, lanes);
  };
  count(c, sketch);
  sketches.push_back(std::move(sketch));
}

}  // namespace syno::construct
