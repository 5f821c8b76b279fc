#include "schedule/decisions.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "schedule/outside.hpp"
#include "support/error.hpp"

namespace syno::schedule {

namespace {

constexpr const char* kDecide = "schedule";
constexpr std::int64_t kMaxUnroll = 64;
constexpr std::int64_t kMaxVector = 256;
constexpr std::int64_t kMaxTransposed = 32;

/// Something is computed inside this loop, which therefore stays a loop.
bool hosts(const Plan& plan, std::size_t scope, int loop) {
  return std::any_of(plan.scopes.begin(), plan.scopes.end(), [&](const ScopePlan& other) {
    return other.attach_scope == static_cast<int>(scope) && other.attach_loop == loop;
  });
}

/// The scope a decision names, with its loops known.
OrRefusal<std::size_t> loops_of(Plan& plan, const Decision& decision) {
  SYNO_TAKE(scope, plan.find_scope(decision.scope));
  SYNO_ACCEPT(plan.try_domain(scope));
  return scope;
}

/// The same for decisions that change which loops there are, or their order.
OrRefusal<std::size_t> free_loops_of(Plan& plan, const Decision& decision) {
  SYNO_TAKE(scope, loops_of(plan, decision));
  if (plan.scopes[scope].frozen)
    return refuse(kDecide,
                  "the loops of '{}' already decide what one of its producers computes; put this decision "
                  "before the first one about that producer",
                  decision.scope);
  return scope;
}

PlannedLoop& loop_at(Plan& plan, std::size_t scope, int index) {
  return plan.scopes[scope].loops[static_cast<std::size_t>(index)];
}

Refused need_loops(const Decision& decision, std::size_t least, std::size_t most = 64) {
  if (decision.loops.size() < least || decision.loops.size() > most)
    return refuse(kDecide, "{} needs {} loop(s), not {}", decision.name, least, decision.loops.size());
  return {};
}

OrRefusal<std::int64_t> one_number(const Decision& decision, std::int64_t least) {
  if (decision.numbers.size() != 1)
    return refuse(kDecide, "{} needs one number, not {}", decision.name, decision.numbers.size());
  if (decision.numbers[0] < least)
    return refuse(kDecide, "{} by {}: the number must be at least {}", decision.name, decision.numbers[0],
                  least);
  return decision.numbers[0];
}

Refused need_serial(const Decision& decision, const PlannedLoop& loop) {
  if (loop.kind != LoopKind::Serial || !loop.cuts.empty())
    return refuse(kDecide,
                  "loop '{}' is already unrolled, vectorised, parallel or peeled; {} comes before that",
                  loop.name, decision.name);
  return {};
}

bool in_tile(const Plan& plan, std::size_t scope, int loop) {
  const auto& tile = plan.scopes[scope].tile;
  return std::find(tile.begin(), tile.end(), loop) != tile.end();
}

Refused split(Plan& plan, const Decision& decision) {
  SYNO_TAKE(scope, free_loops_of(plan, decision));
  SYNO_ACCEPT(need_loops(decision, 1, 1));
  SYNO_TAKE(factor, one_number(decision, 1));
  SYNO_TAKE(index, plan.find_leaf(scope, decision.loops[0]));
  const PlannedLoop loop = loop_at(plan, scope, index);
  SYNO_ACCEPT(need_serial(decision, loop));
  if (in_tile(plan, scope, index))
    return refuse(kDecide, "loop '{}' is part of the register tile; split it before", loop.name);
  PlannedLoop outer, inner;
  outer.name = plan.fresh_loop_name(scope, decision.words.size() > 0 ? decision.words[0] : loop.name + "_o");
  outer.extent = outer.live = (loop.extent + factor - 1) / factor;
  inner.extent = inner.live = factor;
  outer.reduction = inner.reduction = loop.reduction;
  outer.parent = inner.parent = index;
  plan.change(scope);
  const int made_outer = plan.add_loop(scope, std::move(outer));
  inner.name = plan.fresh_loop_name(scope, decision.words.size() > 1 ? decision.words[1] : loop.name + "_i");
  const int made_inner = plan.add_loop(scope, std::move(inner));
  PlannedLoop& parent = loop_at(plan, scope, index);
  parent.outer = made_outer;
  parent.inner = made_inner;
  parent.factor = factor;
  auto& order = plan.scopes[scope].order;
  const auto at = std::find(order.begin(), order.end(), index);
  *at = made_outer;
  order.insert(at + 1, made_inner);
  return {};
}

Refused fuse(Plan& plan, const Decision& decision) {
  SYNO_TAKE(scope, free_loops_of(plan, decision));
  SYNO_ACCEPT(need_loops(decision, 2, 2));
  SYNO_TAKE(a, plan.find_leaf(scope, decision.loops[0]));
  SYNO_TAKE(b, plan.find_leaf(scope, decision.loops[1]));
  const PlannedLoop first = loop_at(plan, scope, a), second = loop_at(plan, scope, b);
  SYNO_ACCEPT(need_serial(decision, first));
  SYNO_ACCEPT(need_serial(decision, second));
  if (plan.position(scope, b) != plan.position(scope, a) + 1)
    return refuse(kDecide, "loop '{}' is not the loop just outside '{}'; reorder them first", first.name,
                  second.name);
  if (first.reduction != second.reduction)
    return refuse(kDecide, "one of '{}' and '{}' is a reduction and the other is not", first.name,
                  second.name);
  PlannedLoop joint;
  joint.name = plan.fresh_loop_name(
      scope, decision.words.empty() ? first.name + "_" + second.name : decision.words[0]);
  joint.extent = joint.live = first.extent * second.extent;
  joint.reduction = first.reduction;
  joint.first = a;
  joint.second = b;
  plan.change(scope);
  const int made = plan.add_loop(scope, std::move(joint));
  loop_at(plan, scope, a).fused = made;
  loop_at(plan, scope, b).fused = made;
  auto& order = plan.scopes[scope].order;
  const auto at = std::find(order.begin(), order.end(), a);
  *at = made;
  order.erase(at + 1);
  return {};
}

Refused reorder(Plan& plan, const Decision& decision) {
  SYNO_TAKE(scope, free_loops_of(plan, decision));
  SYNO_ACCEPT(need_loops(decision, 1));
  std::vector<int> wanted, positions;
  for (const auto& name : decision.loops) {
    SYNO_TAKE(loop, plan.find_leaf(scope, name));
    if (std::find(wanted.begin(), wanted.end(), loop) != wanted.end())
      return refuse(kDecide, "reorder names loop '{}' twice", name);
    wanted.push_back(loop);
    positions.push_back(plan.position(scope, loop));
  }
  std::sort(positions.begin(), positions.end());
  std::vector<int>& order = plan.change(scope).order;
  for (std::size_t i = 0; i < wanted.size(); ++i) order[static_cast<std::size_t>(positions[i])] = wanted[i];
  return {};
}

/// Iterations past what the tensor holds: they are computed on whatever lies there and never seen. What a row
/// of vectors ends with, and what lets an image's rows follow each other at the pitch of the padded input.
Refused relax(Plan& plan, const Decision& decision) {
  SYNO_TAKE(scope, free_loops_of(plan, decision));
  SYNO_ACCEPT(need_loops(decision, 1, 1));
  SYNO_TAKE(index, plan.find_leaf(scope, decision.loops[0]));
  const PlannedLoop loop = loop_at(plan, scope, index);
  SYNO_TAKE(extent, one_number(decision, loop.extent));
  SYNO_ACCEPT(need_serial(decision, loop));
  if (loop.reduction)
    return refuse(kDecide, "'{}' is a reduction: iterations past its range would count", loop.name);
  if (loop.parent >= 0)
    return refuse(kDecide, "'{}' is part of a split; relax the loop before it", loop.name);
  if (plan.makes_all(scope))
    return refuse(
        kDecide, "'{}' is the caller's memory, which has no room for iterations past its end; stage it first",
        decision.scope);
  plan.change(scope);
  loop_at(plan, scope, index).extent = extent;
  return {};
}

Refused annotate(Plan& plan, const Decision& decision, LoopKind kind, std::int64_t most) {
  SYNO_TAKE(scope, loops_of(plan, decision));
  SYNO_ACCEPT(need_loops(decision, 1));
  plan.change(scope);
  for (const auto& name : decision.loops) {
    SYNO_TAKE(index, plan.find_leaf(scope, name));
    PlannedLoop& loop = loop_at(plan, scope, index);
    if (kind != LoopKind::Parallel && hosts(plan, scope, index))
      return refuse(kDecide, "another scope is computed inside loop '{}', which must stay a loop", name);
    if (loop.kind != LoopKind::Serial)
      return refuse(kDecide, "loop '{}' is already unrolled, vectorised or parallel", name);
    if (loop.extent > most)
      return refuse(kDecide, "{} of loop '{}' with {} iterations; split it to at most {} first",
                    decision.name, name, loop.extent, most);
    if (!loop.cuts.empty() && kind != LoopKind::Parallel)
      return refuse(kDecide, "loop '{}' is peeled; {} one of its parts instead", name, decision.name);
    loop.kind = kind;
  }
  return {};
}

/// Every pair of iterations of `loop` writes other elements: some dimension of the target moves by more than
/// the other loops can make up for.
bool separates(Plan& plan, std::size_t scope, std::uint32_t slot) {
  AffineForms forms = plan.bound_forms();
  for (const ExprId e : plan.program.scopes[scope].target) {
    std::vector<Condition> ignored;
    const ExprId index = symbolic::without_inside(plan.program.arena, plan.over_loops(scope, e), ignored);
    const AffineForm form = forms.form(plan.program.arena, index);
    bool linear = false;
    const std::int64_t step = forms.coefficient(form, slot, &linear);
    if (!linear || step == 0) continue;
    const Interval rest = forms.bounds(forms.substitute(form, slot, 0));
    if (rest.greatest - rest.least < std::abs(step)) return true;
  }
  return false;
}

Refused unroll(Plan& plan, const Decision& decision) {
  return annotate(plan, decision, LoopKind::Unroll, kMaxUnroll);
}

Refused vectorize(Plan& plan, const Decision& decision) {
  SYNO_TAKE(scope, loops_of(plan, decision));
  SYNO_ACCEPT(need_loops(decision, 1, 1));
  SYNO_TAKE(index, plan.find_leaf(scope, decision.loops[0]));
  if (plan.scopes[scope].order.back() != index)
    return refuse(kDecide,
                  "only the innermost loop can be vectorised: '{}' has '{}' inside; reorder them first",
                  decision.loops[0], loop_at(plan, scope, plan.scopes[scope].order.back()).name);
  const PlannedLoop& loop = loop_at(plan, scope, index);
  if (!plan.program.scopes[scope].target.empty() && !separates(plan, scope, loop.slot))
    return refuse(kDecide, "iterations of '{}' may add to the same element; they cannot be lanes of a vector",
                  loop.name);
  return annotate(plan, decision, LoopKind::Vector, kMaxVector);
}

Refused parallel(Plan& plan, const Decision& decision) {
  SYNO_TAKE(scope, loops_of(plan, decision));
  SYNO_ACCEPT(need_loops(decision, 1));
  for (const auto& name : decision.loops) {
    SYNO_TAKE(index, plan.find_leaf(scope, name));
    const PlannedLoop& loop = loop_at(plan, scope, index);
    if (loop.reduction) return refuse(kDecide, "'{}' is a reduction; its iterations meet in one sum", name);
    for (int p = 0; p < plan.position(scope, index); ++p) {
      const PlannedLoop& outside =
          loop_at(plan, scope, plan.scopes[scope].order[static_cast<std::size_t>(p)]);
      // Around a register tile the output keeps the sums of each part: threads share the work of every one.
      if (outside.reduction && plan.scopes[scope].tile.empty())
        return refuse(kDecide, "'{}' runs inside the reduction '{}'; reorder them first", name, outside.name);
    }
    if (plan.scopes[scope].attach_scope >= 0)
      return refuse(kDecide, "'{}' is computed at a loop of another scope; make that one parallel",
                    decision.scope);
    if (in_tile(plan, scope, index)) return refuse(kDecide, "'{}' is part of the register tile", name);
    if (!plan.program.scopes[scope].target.empty() && !separates(plan, scope, loop.slot))
      return refuse(kDecide, "iterations of '{}' may add to the same element", name);
  }
  return annotate(plan, decision, LoopKind::Parallel, std::int64_t{1} << 40);
}

Refused register_tile(Plan& plan, const Decision& decision) {
  SYNO_TAKE(scope, loops_of(plan, decision));
  SYNO_ACCEPT(need_loops(decision, 1));
  if (plan.program.scopes[scope].reduction == program::Reduction::None ||
      plan.program.scopes[scope].sums.empty())
    return refuse(kDecide, "'{}' has no reduction whose partial results registers could hold",
                  decision.scope);
  if (!plan.scopes[scope].tile.empty())
    return refuse(kDecide, "'{}' has a register tile already", decision.scope);
  std::int64_t elements = 1;
  std::vector<int> tile;
  for (const auto& name : decision.loops) {
    SYNO_TAKE(index, plan.find_leaf(scope, name));
    if (std::find(tile.begin(), tile.end(), index) != tile.end())
      return refuse(kDecide, "register_tile names loop '{}' twice", name);
    if (hosts(plan, scope, index))
      return refuse(kDecide, "another scope is computed inside loop '{}', which must stay a loop", name);
    if (!loop_at(plan, scope, index).cuts.empty())
      return refuse(kDecide, "loop '{}' is peeled; a register tile has one size", name);
    if (loop_at(plan, scope, index).kind == LoopKind::Parallel)
      return refuse(kDecide, "loop '{}' is parallel; registers belong to one thread", name);
    if (loop_at(plan, scope, index).kind == LoopKind::Serial &&
        loop_at(plan, scope, index).extent > kMaxUnroll)
      return refuse(kDecide, "loop '{}' with {} iterations would be unrolled; split it to at most {} first",
                    name, loop_at(plan, scope, index).extent, kMaxUnroll);
    elements *= loop_at(plan, scope, index).extent;
    tile.push_back(index);
  }
  if (elements > 4096)
    return refuse(kDecide, "a register tile of {} elements; no machine has that many", elements);
  plan.change(scope).tile = std::move(tile);
  return {};
}

Refused transpose(Plan& plan, const Decision& decision) {
  SYNO_TAKE(scope, loops_of(plan, decision));
  SYNO_ACCEPT(need_loops(decision, 2, 2));
  const program::Scope& s = plan.program.scopes[scope];
  if (!s.sums.empty() || !s.target.empty())
    return refuse(kDecide, "'{}' reduces or accumulates; only copies are transposed", decision.scope);
  if (!plan.scopes[scope].tile.empty()) return refuse(kDecide, "'{}' is transposed already", decision.scope);
  std::vector<int> tile;
  for (const auto& name : decision.loops) {
    SYNO_TAKE(index, plan.find_leaf(scope, name));
    const PlannedLoop& loop = loop_at(plan, scope, index);
    SYNO_ACCEPT(need_serial(decision, loop));
    if (hosts(plan, scope, index))
      return refuse(kDecide, "another scope is computed inside loop '{}', which must stay a loop", name);
    if (!tile.empty() && tile[0] == index) return refuse(kDecide, "transpose names loop '{}' twice", name);
    if (loop.extent > kMaxTransposed)
      return refuse(kDecide, "loop '{}' with {} iterations; split it to at most {} first", name, loop.extent,
                    kMaxTransposed);
    tile.push_back(index);
  }
  const auto& order = plan.scopes[scope].order;
  for (const int index : tile)
    if (plan.position(scope, index) + 2 < static_cast<int>(order.size()))
      return refuse(kDecide, "only the two innermost loops can be transposed, not '{}'",
                    loop_at(plan, scope, index).name);
  plan.change(scope).tile = std::move(tile);
  return {};
}

Refused peel(Plan& plan, const Decision& decision) {
  SYNO_TAKE(scope, loops_of(plan, decision));
  SYNO_ACCEPT(need_loops(decision, 1, 1));
  SYNO_TAKE(index, plan.find_leaf(scope, decision.loops[0]));
  PlannedLoop& loop = loop_at(plan, scope, index);
  if (loop.kind == LoopKind::Vector || loop.kind == LoopKind::Unroll || loop.kind == LoopKind::Parallel)
    return refuse(kDecide, "loop '{}' is unrolled, vectorised or parallel; only a serial loop can be peeled",
                  loop.name);
  if (in_tile(plan, scope, index)) return refuse(kDecide, "'{}' is part of the register tile", loop.name);
  std::vector<std::int64_t> cuts = decision.numbers;
  if (cuts.empty()) {
    // The tail of a split: where the first incomplete iteration begins.
    if (loop.parent < 0 || loop_at(plan, scope, loop.parent).outer != index)
      return refuse(kDecide, "'{}' is no outer loop of a split; give the iterations to cut at", loop.name);
    const PlannedLoop& parent = loop_at(plan, scope, loop.parent);
    const std::int64_t full = parent.extent / parent.factor;
    if (full == loop.extent || full == 0) return {};  // nothing is left over, or nothing else
    cuts = {full};
  }
  std::int64_t last = 0;
  for (const auto cut : cuts) {
    if (cut <= last || cut >= loop.extent)
      return refuse(kDecide, "cut {} of loop '{}': cuts ascend and lie inside (0, {})", cut, loop.name,
                    loop.extent);
    last = cut;
  }
  plan.change(scope);
  loop.cuts = std::move(cuts);
  return {};
}

/// The innermost position of a reader's loops inside which all of its reads of a tensor are: an epilogue runs
/// outside the reduction's.
int innermost_reading(const Plan& plan, std::size_t reader, program::TensorId tensor) {
  const ScopePlan& current = plan.scopes[reader];
  const auto count = static_cast<int>(current.order.size());
  if (!current.epilogue || !program::reads_tensor(plan.program, current.epilogue->body, tensor)) return count;
  int position = 0;
  while (
      position < count &&
      !current.loops[static_cast<std::size_t>(current.order[static_cast<std::size_t>(position)])].reduction)
    ++position;
  return position - 1;
}

Refused compute_at(Plan& plan, const Decision& decision) {
  SYNO_TAKE(scope, plan.find_scope(decision.scope));
  SYNO_TAKE(consumer, plan.find_scope(decision.tensor));
  SYNO_ACCEPT(need_loops(decision, 1, 1));
  SYNO_ACCEPT(plan.try_domain(consumer));
  SYNO_TAKE(loop, plan.find_leaf(consumer, decision.loops[0]));
  const auto tensor = plan.program.scopes[scope].output;
  if (plan.scopes[scope].prepacked)
    return refuse(kDecide, "'{}' is computed before calls, not at a loop", decision.scope);
  if (plan.scopes[scope].has_domain || plan.scopes[scope].attach_scope >= 0)
    return refuse(kDecide,
                  "'{}' has its place and loops already: it is an output, or decisions about it came before",
                  decision.scope);
  if (!plan.program.scopes[scope].target.empty())
    return refuse(kDecide, "'{}' accumulates; it is computed whole", decision.scope);
  const auto readers = plan.consumers(tensor);
  if (readers.empty()) return refuse(kDecide, "nothing reads '{}'", decision.scope);
  const int depth = plan.position(consumer, loop);
  for (const std::size_t reader : readers) {
    // Follow the reader outwards until the consumer's loop is met at, or outside of, where it is computed.
    std::size_t at = reader;
    int where = innermost_reading(plan, reader, tensor);
    while (at != consumer && plan.scopes[at].attach_scope >= 0) {
      where =
          plan.position(static_cast<std::size_t>(plan.scopes[at].attach_scope), plan.scopes[at].attach_loop);
      at = static_cast<std::size_t>(plan.scopes[at].attach_scope);
    }
    if (at != consumer || where < depth)
      return refuse(kDecide, "'{}' is read by '{}', which is not computed inside loop '{}' of '{}'",
                    decision.scope, plan.program.tensor(plan.program.scopes[reader].output).name,
                    decision.loops[0], decision.tensor);
  }
  const PlannedLoop& place = loop_at(plan, consumer, loop);
  if (place.kind == LoopKind::Vector || place.kind == LoopKind::Unroll || in_tile(plan, consumer, loop))
    return refuse(kDecide, "nothing can be computed inside loop '{}': it is unrolled, vectorised or tiled",
                  decision.loops[0]);
  ScopePlan& placed = plan.change(scope);
  placed.attach_scope = static_cast<int>(consumer);
  placed.attach_loop = loop;
  plan.change(consumer).frozen = true;
  return {};
}

Refused prepack(Plan& plan, const Decision& decision) {
  SYNO_TAKE(scope, plan.find_scope(decision.scope));
  if (plan.is_argument(plan.program.scopes[scope].output))
    return refuse(kDecide, "'{}' is an output; it is computed in every call", decision.scope);
  if (plan.scopes[scope].attach_scope >= 0)
    return refuse(kDecide, "'{}' is computed at a loop of another scope, not before", decision.scope);
  for (const auto read : plan.all_reads(scope)) {
    const auto tensor = plan.program.scalar(read).tensor;
    const auto made_by = plan.producer(tensor);
    if (made_by && !plan.scopes[*made_by].prepacked)
      return refuse(kDecide, "'{}' reads '{}', which is computed in every call", decision.scope,
                    plan.program.tensor(tensor).name);
  }
  plan.change(scope).prepacked = true;
  return {};
}

Refused layout(Plan& plan, const Decision& decision) {
  SYNO_TAKE(tensor, plan.find_tensor(decision.tensor));
  if (plan.is_argument(tensor))
    return refuse(kDecide, "'{}' is the caller's memory and keeps its layout; stage it and lay out the copy",
                  decision.tensor);
  if (decision.words.size() != 1) return refuse(kDecide, "layout needs one word: the primitive");
  const auto made_by = plan.producer(tensor);
  if (!made_by) return refuse(kDecide, "'{}' is computed by no scope any more", decision.tensor);
  SYNO_ACCEPT(plan.try_domain(*made_by));
  LayoutStep step;
  SYNO_TAKE(primitive, find_layout_primitive(decision.words[0]));
  step.kind = primitive->kind;
  step.numbers = decision.numbers;
  if (step.kind != LayoutKind::Reorder) {
    if (step.numbers.empty() || step.numbers[0] < 0)
      return refuse(kDecide, "layout {} needs the dimension as its first number", decision.words[0]);
    step.dim = static_cast<std::size_t>(step.numbers[0]);
    step.numbers.erase(step.numbers.begin());
  }
  Layout steps = plan.tensors[static_cast<std::size_t>(tensor)].layout;
  steps.push_back(std::move(step));
  const auto shape = try_shape_after(steps, plan.storage(tensor));
  if (!shape) return shape.refusal();
  plan.change(tensor).layout = std::move(steps);
  return {};
}

Refused strides(Plan& plan, const Decision& decision) {
  SYNO_TAKE(tensor, plan.find_tensor(decision.tensor));
  if (!plan.is_argument(tensor) || plan.program.tensor(tensor).role == program::Role::Constant)
    return refuse(kDecide, "'{}' is not the caller's memory; only arguments have strides of their own",
                  decision.tensor);
  if (decision.numbers.size() != plan.program.tensor(tensor).dims.size())
    return refuse(kDecide, "'{}' has {} dimensions, not {}", decision.tensor,
                  plan.program.tensor(tensor).dims.size(), decision.numbers.size());
  plan.change(tensor).strides = decision.numbers;
  return {};
}

Refused prefetch(Plan& plan, const Decision& decision) {
  SYNO_TAKE(scope, loops_of(plan, decision));
  SYNO_TAKE(tensor, plan.find_tensor(decision.tensor));
  const auto reads = plan.all_reads(scope);
  if (tensor != plan.program.scopes[scope].output &&
      std::none_of(reads.begin(), reads.end(),
                   [&](program::ScalarId id) { return plan.program.scalar(id).tensor == tensor; }))
    return refuse(kDecide, "'{}' does not read '{}'", decision.scope, decision.tensor);
  for (const Prefetched& other : plan.scopes[scope].prefetched)
    if (other.tensor == tensor)
      return refuse(kDecide, "'{}' asks for '{}' ahead already", decision.scope, decision.tensor);
  const std::vector<std::int64_t>& bytes = decision.numbers;
  if (bytes.empty() || bytes.size() > 2)
    return refuse(kDecide, "prefetch needs one number or two, not {}", bytes.size());
  for (const std::int64_t number : bytes)
    if (number < 0) return refuse(kDecide, "prefetch by {}: the number must be at least 0", number);
  plan.change(scope).prefetched.push_back({tensor, bytes[0], bytes.size() > 1 ? bytes[1] : 0});
  return {};
}

Refused skip(Plan& plan, const Decision& decision) {
  SYNO_TAKE(scope, loops_of(plan, decision));
  SYNO_ACCEPT(need_loops(decision, 0, 0));
  if (plan.scopes[scope].skips)
    return refuse(kDecide, "'{}' skips what lies outside already", decision.scope);
  if (terms_inside(plan, scope).empty())
    return refuse(kDecide, "no term of '{}' is neutral because it reads outside a tensor", decision.scope);
  plan.change(scope).skips = true;
  return {};
}

constexpr std::array kDecisions = {
    DecisionRow{"split", "loops=[i], numbers=[factor], words=[outer, inner]?",
                "i becomes i_o * factor + i_i; a rest is guarded until peeled", split},
    DecisionRow{"fuse", "loops=[i, j], words=[name]?", "two loops directly inside one another become one",
                fuse},
    DecisionRow{"reorder", "loops=[...]", "these loops take their places in this order", reorder},
    DecisionRow{"relax", "loops=[i], numbers=[extent]", "i runs further, on dead iterations", relax},
    DecisionRow{"unroll", "loops=[...]", "bodies repeated at compile time", unroll},
    DecisionRow{"vectorize", "loops=[innermost]", "iterations become SIMD lanes", vectorize},
    DecisionRow{"parallel", "loops=[...]", "iterations run on several threads", parallel},
    DecisionRow{"register_tile", "loops=[...]",
                "partial results of these loops stay in registers over the reduction", register_tile},
    DecisionRow{"transpose", "loops=[read along, written along]",
                "a copy whose innermost two loops change places in registers", transpose},
    DecisionRow{"peel", "loops=[i], numbers=[cuts...]?",
                "one nest for each part of i's range: tails and borders", peel},
    DecisionRow{"stage", "tensor=read or written, words=[name]?, numbers=[which read]?",
                "a copy of what the scope reads of (or writes to) a tensor, with a layout of its own", stage},
    DecisionRow{
        "lay_out", "tensor=any, words=[primitive:count...], numbers=[of all], scope=name of a copy",
        "the tensor lies otherwise for the whole program, an argument in a copy; before all other decisions",
        lay_out},
    DecisionRow{"layout", "tensor=staged or intermediate, words=[primitive], numbers=[dim, ...]",
                "one of ALT's primitives on a tensor's memory", layout},
    DecisionRow{"strides", "tensor=argument, numbers=[one a dimension]",
                "the caller's memory has these strides, in elements; before decisions that depend on them",
                strides},
    DecisionRow{"compute_at", "tensor=consumer, loops=[i]",
                "the scope is computed, in part, inside a consumer's loop", compute_at},
    DecisionRow{"prepack", "", "the scope is computed once, from constant inputs, before calls", prepack},
    DecisionRow{"prefetch",
                "tensor=read or written, numbers=[bytes of it that stay near, bytes ahead in a stream?]",
                "steps of the reduction ask for what will be read next of this tensor, or what their results "
                "meet, where it is not near",
                prefetch},
    DecisionRow{"skip", "",
                "iterations of the reduction, and elements of the register tile, that read outside alone are "
                "left out",
                skip},
    DecisionRow{
        "solve", "loops=[sum]",
        "a sum of which a remainder lets every m-th term in, or what is read one term, runs over those "
        "terms alone",
        solve},
    DecisionRow{"tighten", "loops=[i], numbers=[begin, end]",
                "a sum, or a scope that is no output, runs over those i alone where something is not zero",
                tighten},
    DecisionRow{"turn", "loops=[i], words=[name]?",
                "what several reads meet at (i + a) % m is computed in their order and turned in a copy",
                turn},
    DecisionRow{
        "polyphase", "words=[name]?",
        "results at (i + a) % m of blocks of m are channels of their own, put in their places by a copy",
        polyphase},
    DecisionRow{"innermost", "numbers=[dimension of each intermediate result, or -1]?",
                "what an output is made of lies with another dimension innermost, along which vectors run",
                innermost},
    DecisionRow{"factor", "", "what a sum multiplies all its terms by multiplies its result instead", factor},
    DecisionRow{"share", "tensor=another scope's output, words=[name]?",
                "an elementary function of the same values in both becomes a scope that both read", share},
    DecisionRow{"inline", "", "the scope's body takes the place of every read of it", inline_scope},
    DecisionRow{"epilogue", "tensor=reduction it reads",
                "the scope is computed from each complete result of a reduction, in its registers",
                fuse_epilogue},
};

}  // namespace

std::span<const DecisionRow> decisions() { return kDecisions; }

Refused try_decide(Plan& plan, const Decision& decision) {
  const auto row = std::find_if(kDecisions.begin(), kDecisions.end(),
                                [&](const DecisionRow& each) { return each.name == decision.name; });
  if (row == kDecisions.end()) {
    std::vector<std::string> valid;
    for (const auto& each : kDecisions) valid.emplace_back(each.name);
    return refuse_unknown(kDecide, unknown_name("decision", decision.name, valid), Refusal::Kind::Unknown);
  }
  Attempt attempt(plan);
  Refused refused;
  try {
    refused = row->apply(plan, decision);
  } catch (const Error& error) {  // of arithmetic far inside: numbers that do not fit 64 bits
    refused = Refusal::of(error);
  }
  if (refused)
    refused->row = row->name;
  else
    attempt.keep();
  return refused;
}

void decide(Plan& plan, const Decision& decision) { raise_if(try_decide(plan, decision)); }

}  // namespace syno::schedule
