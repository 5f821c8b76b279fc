// How copies move data: along vectors where both sides are contiguous, by blocks transposed in registers
// where each side is contiguous along a loop of its own.
#include <algorithm>
#include <cmath>

#include "construct/construct.hpp"
#include "support/error.hpp"

namespace syno::construct {

namespace {

constexpr std::int64_t kFewestOfASide = 4;  ///< of the side of a block that is transposed

/// How far apart in memory two iterations of each leaf loop read, near the beginning of all loops.
std::vector<std::int64_t> steps_of(Plan& plan, std::size_t scope, program::ScalarId read) {
  AffineForms forms = plan.bound_forms();
  const program::Scalar scalar = plan.program.scalar(read);
  const auto strides = plan.strides(scalar.tensor);
  AffineForm address;
  for (std::size_t d = 0; d < scalar.indices.size(); ++d) {
    std::vector<Condition> ignored;
    const ExprId index =
        plan.over_loops(scope, symbolic::without_inside(plan.program.arena, scalar.indices[d], ignored));
    address = add(address, multiply(forms.form(plan.program.arena, index), strides[d]));
  }
  std::vector<std::uint32_t> slots;
  for (const auto& loop : plan.scopes[scope].loops)
    if (loop.is_leaf()) slots.push_back(loop.slot);
  std::vector<std::int64_t> steps;
  for (const int leaf : plan.scopes[scope].order) {
    const std::uint32_t slot = plan.scopes[scope].loops[static_cast<std::size_t>(leaf)].slot;
    const auto at = [&](std::int64_t value) {
      AffineForm form = forms.substitute(address, slot, value);
      for (const std::uint32_t other : slots)
        if (other != slot) form = forms.substitute(form, other, 0);
      return form;
    };
    const AffineForm step = add(at(1), multiply(at(0), -1));
    steps.push_back(step.is_constant() ? step.constant : 0);
  }
  return steps;
}

}  // namespace

Refused Construction::peel(const std::string& scope, const std::string& loop, std::vector<std::int64_t> cuts,
                           bool incomplete) {
  const std::int64_t last = extent(scope, loop) - 1;
  if (incomplete && last > 0) cuts.push_back(last);
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts.empty() ? Refused{} : add({"peel", scope, {loop}, std::move(cuts), "", {}});
}

Refused Construction::vectorize_copy(const std::string& scope, std::string read) {
  const std::size_t s = index(scope);
  plan.need_domain(s);
  const auto reads = plan.reads(s);
  // A block of registers holds what is assigned: sums of several iterations do not pass through one.
  const bool accumulates = !plan.program.scopes[s].target.empty();
  if (accumulates || reads.size() != 1 || leaves(scope).size() < 2 || plan.scopes[s].frozen)
    return vectorize_innermost(scope);
  if (read.empty()) {
    std::vector<std::int64_t> steps = steps_of(plan, s, reads.front());
    if (std::abs(steps.back()) <= 1) return vectorize_innermost(scope);
    // A loop that is read by blocks may be contiguous once the blocks are loops.
    if (std::find(steps.begin(), steps.end(), 1) == steps.end()) {
      const Splits blocks = analyse(plan, s).splits;
      Draft draft(*this);
      SYNO_ACCEPT(apply(scope, blocks));
      steps = steps_of(plan, s, reads.front());
      if (std::find(steps.begin(), steps.end(), 1) != steps.end()) draft.keep();
    }
    const std::vector<std::string> all = leaves(scope);
    for (std::size_t i = 0; all.size() == steps.size() && i + 1 < all.size(); ++i)
      if (steps[i] == 1 && extent(scope, all[i]) >= kFewestOfASide) read = all[i];
  }
  return read.empty() ? vectorize_innermost(scope) : vectorize_across(scope, read);
}

Refused Construction::vectorize_across(const std::string& scope, const std::string& read) {
  const std::int64_t side =
      std::min<std::int64_t>(lanes, 8);  // larger ones move no faster but take more code
  const std::vector<std::string> names = leaves(scope);
  const std::string written = names.back();
  if (read == written || extent(scope, written) < kFewestOfASide || extent(scope, read) < kFewestOfASide)
    return vectorize_innermost(scope);
  std::vector<std::string> order, block;
  struct Peeled {
    std::string outer, inner;
    bool incomplete;
  };
  std::vector<Peeled> peeled;
  for (const auto& name : names)
    if (name != read && name != written) order.push_back(name);
  for (const std::string& name : {read, written}) {
    const std::int64_t whole = extent(scope, name);
    if (whole <= side) {
      block.push_back(name);
      continue;
    }
    SYNO_TAKE(parts, split(scope, name, side));
    order.push_back(parts.first);
    block.push_back(parts.second);
    peeled.push_back({parts.first, parts.second, whole % side != 0});
  }
  order.insert(order.end(), block.begin(), block.end());
  SYNO_ACCEPT(add({"reorder", scope, order, {}, "", {}}));
  SYNO_ACCEPT(add({"transpose", scope, block, {}, "", {}}));
  for (const auto& loop : peeled) SYNO_ACCEPT(peel_lanes(scope, loop.outer, loop.inner, loop.incomplete));
  return {};
}

Refused write_permuted(Construction& c, const std::string& copy,
                       const std::vector<std::int64_t>& permutation) {
  const std::size_t s = c.index(copy);
  c.plan.need_domain(s);
  std::vector<std::string> order;
  for (const std::int64_t d : permutation)
    order.push_back(c.plan.scopes[s].loops[static_cast<std::size_t>(d)].name);
  if (!std::is_sorted(permutation.begin(), permutation.end())) {
    SYNO_ACCEPT(c.add({"layout", copy, {}, permutation, copy, {"reorder"}}));
    SYNO_ACCEPT(c.add({"reorder", copy, order, {}, "", {}}));
  }
  SYNO_ACCEPT(c.vectorize_copy(copy));
  c.parallel_outermost(copy);
  return {};
}

}  // namespace syno::construct
