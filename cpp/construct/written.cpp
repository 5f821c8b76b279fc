#include "construct/written.hpp"

#include <algorithm>
#include <bit>
#include <string_view>

#include "construct/construct.hpp"
#include "program/scalars.hpp"

namespace syno::construct {

std::shared_ptr<const WrittenScopes::Decisions> WrittenScopes::decisions(Hash128 situation) const {
  const std::lock_guard lock(mutex_);
  const auto found = decisions_.find(situation);
  if (found == decisions_.end()) return nullptr;
  ++reused_;
  return found->second;
}

std::size_t WrittenScopes::reused() const {
  const std::lock_guard lock(mutex_);
  return reused_;
}

std::optional<Work> WrittenScopes::work(Hash128 piece) const {
  const std::lock_guard lock(mutex_);
  const auto found = works_.find(piece);
  return found == works_.end() ? std::nullopt : std::optional(found->second);
}

void WrittenScopes::put(Hash128 situation, Decisions decisions) {
  const std::lock_guard lock(mutex_);
  decisions_.try_emplace(situation, std::make_shared<const Decisions>(std::move(decisions)));
}

void WrittenScopes::put(Hash128 piece, const Work& work) {
  const std::lock_guard lock(mutex_);
  works_.try_emplace(piece, work);
}

namespace {

using program::Scalar;
using program::ScalarId;
using symbolic::Expr;
using symbolic::Op;

/// Writes parts of a plan into a hash by names and places: ids of expressions and slots of loops differ
/// between plans that came about in another order.
class Situation {
 public:
  Situation(const schedule::Plan& plan, std::size_t scope) : plan_(plan), scope_(scope), scopes_{scope} {}

  std::optional<Hash128> situation(const std::vector<TileLoop>& tile_loops, bool in_pieces) {
    chain(scope_);
    for (const std::size_t reader : plan_.consumers(output())) {
      if (!plan_.scopes[reader].has_domain) return std::nullopt;
      chain(reader);
    }
    out_.add(in_pieces).add(tile_loops.size());
    for (const TileLoop& tile : tile_loops)
      out_.add(std::string_view(tile.scope))
          .add(std::string_view(tile.loop))
          .add(std::bit_cast<std::uint64_t>(tile.repeated));
    out_.add(scopes_.size());
    for (const std::size_t s : scopes_) {
      add_scope(s);
      const int at = plan_.scopes[s].attach_scope;
      out_.add(at < 0 ? std::string_view() : name_of(static_cast<std::size_t>(at)));
      out_.add(plan_.scopes[s].attach_loop);
    }
    add_body(plan_.program.scopes[scope_].body);
    for (const std::size_t s : scopes_)
      if (s != scope_) add_reads_of_output(s);
    add_names();
    return out_.finish();
  }

  Hash128 piece() {
    add_scope(scope_);
    add_body(plan_.program.scopes[scope_].body);
    return out_.finish();
  }

 private:
  program::TensorId output() const { return plan_.program.scopes[scope_].output; }
  std::string_view name_of(std::size_t s) const {
    return plan_.program.tensor(plan_.program.scopes[s].output).name;
  }

  /// A scope and those it is computed in.
  void chain(std::size_t s) {
    for (;; s = static_cast<std::size_t>(plan_.scopes[s].attach_scope)) {
      if (std::find(scopes_.begin(), scopes_.end(), s) == scopes_.end()) scopes_.push_back(s);
      if (plan_.scopes[s].attach_scope < 0) return;
    }
  }

  void add_scope(std::size_t s) {
    const ScopePlan& plan = plan_.scopes[s];
    out_.add(name_of(s)).add(plan.loops.size());
    for (const PlannedLoop& loop : plan.loops) {
      out_.add(std::string_view(loop.name)).add(loop.extent).add(loop.live).add(loop.kind);
      out_.add(loop.reduction).add(loop.outer).add(loop.inner).add(loop.factor).add(loop.fused);
      out_.add(loop.first).add(loop.second).add(loop.parent).add(loop.cuts.size());
      for (const std::int64_t cut : loop.cuts) out_.add(cut);
    }
    for (const auto* list : {&plan.order, &plan.tile}) {
      out_.add(list->size());
      for (const int loop : *list) out_.add(loop);
    }
    out_.add(plan.total).add(plan.has_domain).add(plan.prepacked).add(plan.skips).add(plan.frozen);
    out_.add(plan.epilogue.has_value()).add(plan.bases.size());
    for (const ExprId base : plan.bases) add_expression(base);
    const program::Scope& scope = plan_.program.scopes[s];
    out_.add(scope.reduction).add(scope.target.size());
    for (std::size_t i = 0; i < plan_.iterator_count(s); ++i) {
      const program::Range& range = plan_.iterator(s, i).range;
      const auto [begin, end] = plan_.range(range);
      out_.add(std::string_view(plan_.iterator(s, i).name)).add(begin).add(end);
      out_.add(range.live.parameter).add(range.live.times).add(range.live.plus).add(range.live.by);
    }
    for (const auto& dim : plan_.program.tensor(scope.output).dims) {
      const auto [begin, end] = plan_.range(dim);
      out_.add(begin).add(end);
    }
    const schedule::TensorPlan& tensor = plan_.tensors[static_cast<std::size_t>(scope.output)];
    out_.add(std::string_view(to_text(tensor.layout)));
    for (const auto* list : {&tensor.shape, &tensor.strides}) {
      out_.add(list->size());
      for (const std::int64_t number : *list) out_.add(number);
    }
  }

  /// Where a loop or an iterator stands among those of the scopes here; loops around a piece by their
  /// extents.
  void add_slot(std::uint32_t slot) {
    for (std::size_t k = 0; k < scopes_.size(); ++k) {
      for (std::size_t i = 0; i < plan_.iterator_count(scopes_[k]); ++i)
        if (plan_.iterator(scopes_[k], i).slot == slot) {
          out_.add('i').add(k).add(i);
          return;
        }
      if (const PlannedLoop* loop = loop_of(scopes_[k], slot)) {
        out_.add('l').add(k).add(loop - plan_.scopes[scopes_[k]].loops.data());
        return;
      }
    }
    const auto known = std::find(outer_.begin(), outer_.end(), slot);
    out_.add('o').add(known - outer_.begin());
    if (known != outer_.end()) return;
    outer_.push_back(slot);
    for (int at = plan_.scopes[scope_].attach_scope; at >= 0;
         at = plan_.scopes[static_cast<std::size_t>(at)].attach_scope)
      if (const PlannedLoop* loop = loop_of(static_cast<std::size_t>(at), slot)) {
        out_.add(loop->extent);
        return;
      }
    SYNO_ASSERT(false, "an index is over iterators of its scope and loops around it");
  }

  const PlannedLoop* loop_of(std::size_t s, std::uint32_t slot) const {
    const auto& loops = plan_.scopes[s].loops;
    const auto found =
        std::find_if(loops.begin(), loops.end(), [&](const PlannedLoop& loop) { return loop.slot == slot; });
    return found == loops.end() ? nullptr : &*found;
  }

  void add_expression(ExprId id) {
    const symbolic::Arena& arena = plan_.program.arena;
    const Expr& e = arena[id];
    out_.add(e.op).add(e.value);
    switch (e.op) {
      case Op::Iterator:
        add_slot(static_cast<std::uint32_t>(e.a));
        return;
      case Op::Constant:
        return;
      case Op::SizeValue:
        add_size(e.size);
        return;
      case Op::Add:
        add_expression(e.a);
        add_expression(e.b);
        return;
      case Op::Multiply:
      case Op::Divide:
      case Op::Modulo:
      case Op::Inside:
        add_size(e.size);
        add_expression(e.a);
        return;
    }
  }

  void add_size(symbolic::SizeId id) {
    const Rational factor = plan_.program.arena[id].factor();
    out_.add(factor.num()).add(factor.den());
  }

  void add_body(ScalarId id) {
    const Scalar& scalar = plan_.program.scalar(id);
    out_.add(scalar.kind).add(scalar.function);
    out_.add(scalar.literal.num()).add(scalar.literal.den());
    if (scalar.kind == program::ScalarKind::Index) add_expression(scalar.index);
    if (scalar.kind == program::ScalarKind::Read) add_read(scalar);
    program::over_operands(scalar, [&](ScalarId operand) { add_body(operand); });
  }

  void add_read(const Scalar& read) {
    out_.add(std::string_view(plan_.program.tensor(read.tensor).name));
    out_.add(read.fill.num()).add(read.fill.den());
    for (const ExprId index : read.indices) add_expression(index);
  }

  void add_reads_of_output(std::size_t s) {
    for (const ScalarId id : plan_.all_reads(s)) {
      const Scalar& read = plan_.program.scalar(id);
      if (read.tensor == output()) add_read(read);
    }
  }

  /// Copies are named after what they are copies of, or the scope: those names that are taken.
  void add_names() {
    std::vector<std::string_view> stems{name_of(scope_)};
    for (const ScalarId id : plan_.reads(scope_))
      stems.push_back(plan_.program.tensor(plan_.program.scalar(id).tensor).name);
    for (const auto& tensor : plan_.program.tensors)
      if (std::any_of(stems.begin(), stems.end(),
                      [&](std::string_view stem) { return std::string_view(tensor.name).starts_with(stem); }))
        out_.add(std::string_view(tensor.name));
  }

  const schedule::Plan& plan_;
  std::size_t scope_;
  std::vector<std::size_t> scopes_;   ///< it, its readers and those around them
  std::vector<std::uint32_t> outer_;  ///< slots of loops around a piece, as they were met
  Hasher out_;
};

}  // namespace

std::optional<Hash128> situation_of(const Construction& c, const std::string& scope, bool in_pieces) {
  return Situation(c.plan, c.index(scope)).situation(c.tile_loops, in_pieces);
}

Hash128 piece_of(const schedule::Plan& plan, std::size_t scope) { return Situation(plan, scope).piece(); }

}  // namespace syno::construct
