// Program + trace -> loop nest: the decisions build a plan, which is emitted here in one pass.
#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "schedule/decisions.hpp"
#include "schedule/outside.hpp"
#include "schedule/plan.hpp"
#include "schedule/prefetch.hpp"
#include "support/error.hpp"

namespace syno::schedule {

namespace {

using program::Reduction;
using program::Scalar;
using program::ScalarId;
using program::ScalarKind;
using program::TensorId;

constexpr const char* kWhere = "apply";

/// A range check that the loops alone do not promise: value in [0, live).
struct Rest {
  ExprId value{};
  std::int64_t live = 0;
  bool reduction = false;
};

struct Identity {
  double value;
  StoreMode mode;
};

Identity identity_of(Reduction reduction) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  switch (reduction) {
    case Reduction::Max:
      return {-infinity, StoreMode::Max};
    case Reduction::Min:
      return {infinity, StoreMode::Min};
    case Reduction::Product:
      return {1, StoreMode::Multiply};
    default:
      return {0, StoreMode::Add};
  }
}

/// What makes one result of two.
program::Function joining(Reduction reduction) {
  switch (reduction) {
    case Reduction::Max:
      return program::Function::Maximum;
    case Reduction::Min:
      return program::Function::Minimum;
    case Reduction::Product:
      return program::Function::Multiply;
    default:
      return program::Function::Add;
  }
}

/// What is emitted: everything, only what is computed before calls, or only what is computed in them.
enum class Part : std::uint8_t { Whole, Prepack, Call };

class Emission {
 public:
  explicit Emission(Plan plan, Part part = Part::Whole, std::map<std::string, Shape> known = {})
      : plan_(std::move(plan)), part_(part), known_(std::move(known)) {}

  LoopNest run() {
    for (std::size_t s = plan_.scopes.size(); s-- > 0;) plan_.need_domain(s);
    check_prepacked();
    prepare_scopes();
    nest_.arena = plan_.program.arena;
    nest_.next_slot = plan_.program.next_slot;
    nest_.name = "kernel_" + plan_.program.tensor(plan_.program.outputs.at(0)).name;
    forms_ = plan_.bound_forms();
    for (const auto& scope : plan_.scopes)
      for (const auto& loop : scope.loops) forms_.unbind(loop.slot);
    make_buffers();
    StatementId body{};
    bool any = false;
    for (std::size_t s = plan_.scopes.size(); s-- > 0;) {
      if (plan_.scopes[s].attach_scope >= 0 || !here(s)) continue;
      std::vector<StatementId> parts{emit_scope(s)};
      if (any) parts.push_back(body);
      body = with_memory(s, nest_.sequence(std::move(parts)));
      any = true;
    }
    nest_.root = any ? body : nest_.sequence({});
    finish_buffers();
    return std::move(nest_);
  }

 private:
  // --- what does not change while emitting ---

  struct ScopeFacts {
    std::map<std::uint32_t, ExprId> values;  ///< of the iterators, over loops
    std::vector<ExprId> outputs;             ///< where a point is written, by dimension
    std::vector<Rest> rests;
    std::vector<Condition> inside;  ///< of terms that count, over the iterators
    std::vector<std::string> names;
    std::vector<std::int64_t> trips;  ///< of each loop, now
  };

  /// The scope at whose loops, at last, a scope is computed.
  std::size_t outermost(std::size_t s) const {
    while (plan_.scopes[s].attach_scope >= 0) s = static_cast<std::size_t>(plan_.scopes[s].attach_scope);
    return s;
  }

  /// What is computed before calls reads nothing that is computed in them.
  void check_prepacked() const {
    for (std::size_t s = 0; s < plan_.scopes.size(); ++s) {
      const auto& name = plan_.program.tensor(plan_.program.scopes[s].output).name;
      if (plan_.scopes[s].prepacked && plan_.scopes[s].attach_scope >= 0)
        fail<ScheduleError>(kWhere, "'{}' is prepacked but computed at a loop of another scope", name);
      if (!plan_.scopes[outermost(s)].prepacked) continue;
      for (const ScalarId read : plan_.all_reads(s)) {
        const TensorId tensor = plan_.program.scalar(read).tensor;
        const auto made_by = plan_.producer(tensor);
        if (made_by && !plan_.scopes[outermost(*made_by)].prepacked)
          fail<ScheduleError>(kWhere, "'{}' is prepacked but reads '{}', which is computed in every call",
                              name, plan_.program.tensor(tensor).name);
      }
    }
  }

  void prepare_scopes() {
    std::set<std::string> taken;
    for (const auto& tensor : plan_.program.tensors) taken.insert(tensor.name);
    facts_.resize(plan_.scopes.size());
    for (std::size_t s = 0; s < plan_.scopes.size(); ++s) {
      ScopeFacts& facts = facts_[s];
      const program::Scope& scope = plan_.program.scopes[s];
      const std::string& tensor = plan_.program.tensor(scope.output).name;
      if (plan_.scopes[s].skips) facts.inside = terms_inside(plan_, s);
      for (std::size_t i = 0; i < plan_.iterator_count(s); ++i) {
        const ExprId value = plan_.iterator_value(s, i);
        facts.values.emplace(plan_.iterator(s, i).slot, value);
        if (i < scope.traversal.size() && scope.target.empty()) facts.outputs.push_back(value);
      }
      for (std::size_t l = 0; l < plan_.scopes[s].loops.size(); ++l) {
        const PlannedLoop& loop = plan_.scopes[s].loops[l];
        facts.trips.push_back(loop.extent);
        const bool overruns = loop.outer >= 0 && plan_.greatest(s, static_cast<int>(l)) >= loop.extent;
        if (overruns || loop.live < loop.extent)
          facts.rests.push_back({plan_.value_of(s, static_cast<int>(l)), loop.live, loop.reduction});
        std::string name = loop.name;
        if (taken.contains(name)) name = loop.name + "_" + tensor;
        for (int i = 2; taken.contains(name); ++i) name = fmt::format("{}_{}{}", loop.name, tensor, i);
        if (loop.is_leaf()) taken.insert(name);
        facts.names.push_back(std::move(name));
      }
    }
  }

  bool here(std::size_t s) const {
    return part_ == Part::Whole || plan_.scopes[outermost(s)].prepacked == (part_ == Part::Prepack);
  }
  bool used_here(TensorId tensor) const {
    const auto readers = plan_.consumers(tensor);
    return std::any_of(readers.begin(), readers.end(), [&](std::size_t s) { return here(s); });
  }
  bool owned(TensorId tensor) const { return !plan_.is_argument(tensor); }
  static std::size_t raw(TensorId id) { return static_cast<std::size_t>(id); }

  void make_buffers() {
    const program::Program& program = plan_.program;
    buffer_of_.resize(program.tensors.size());
    shapes_.resize(program.tensors.size());
    std::vector<TensorId> ids, packed;
    for (std::size_t s = 0; s < plan_.scopes.size(); ++s)
      if (plan_.scopes[s].prepacked) packed.push_back(program.scopes[s].output);
    for (const TensorId id : program.inputs())
      if (part_ == Part::Whole || used_here(id)) ids.push_back(id);
    if (part_ != Part::Whole) ids.insert(ids.end(), packed.begin(), packed.end());
    if (part_ != Part::Prepack) ids.insert(ids.end(), program.outputs.begin(), program.outputs.end());
    for (std::uint32_t t = 0; t < program.tensors.size(); ++t) {
      const auto made_by = plan_.producer(TensorId{t});
      if (made_by ? !here(*made_by) : part_ != Part::Whole && !used_here(TensorId{t})) continue;
      if (std::find(ids.begin(), ids.end(), TensorId{t}) == ids.end()) ids.push_back(TensorId{t});
    }
    for (const TensorId id : ids) {
      const program::Tensor& tensor = program.tensor(id);
      Buffer buffer;
      buffer.name = tensor.name;
      shapes_[raw(id)] = plan_.storage(id);
      if (tensor.role == program::Role::Computed) {
        if (!plan_.producer(id)) continue;  // inlined everywhere
        buffer.kind = plan_.is_output(id) ? BufferKind::Output : BufferKind::Temporary;
        if (part_ != Part::Whole && plan_.scopes[*plan_.producer(id)].prepacked)
          buffer.kind = part_ == Part::Prepack ? BufferKind::Output : BufferKind::Input;
      } else if (tensor.role == program::Role::Constant) {
        buffer.kind = BufferKind::Constant;
        for (const auto& number : tensor.literal) buffer.literal.push_back(number.to_double());
      } else {
        buffer.kind = BufferKind::Input;
      }
      const bool caller = tensor.role != program::Role::Constant &&
                          (tensor.role != program::Role::Computed || plan_.is_output(id));
      buffer.dtype = caller ? plan_.dtype : register_dtype();
      buffer.extents =
          owned(id) ? shape_after(plan_.tensors[raw(id)].layout, shapes_[raw(id)]) : shapes_[raw(id)];
      if (const auto known = known_.find(buffer.name); known != known_.end()) buffer.extents = known->second;
      buffer.strides = plan_.tensors[raw(id)].strides;
      buffer_of_[raw(id)] = nest_.add(std::move(buffer));
    }
  }

  /// Memory grew where dead iterations reach past it.
  void finish_buffers() {
    for (auto& buffer : nest_.buffers)
      if (buffer.kind == BufferKind::Temporary || known_.contains(buffer.name))
        buffer.strides = row_major_strides(buffer.extents);
  }

  // --- index expressions ---

  Dtype register_dtype() const { return plan_.dtype == Dtype::F64 ? Dtype::F64 : Dtype::F32; }
  ExprId tidy(ExprId e) { return to_expr(nest_.arena, forms_, forms_.form(nest_.arena, e)); }
  ExprId over_loops(std::size_t s, ExprId e) {
    const auto& values = facts_[s].values;
    return nest_.arena.substitute(e, [&](std::uint32_t slot) {
      const auto found = values.find(slot);
      return found == values.end() ? nest_.arena.iterator(slot) : found->second;
    });
  }
  bool within(ExprId e, std::int64_t begin, std::int64_t end) {
    const Interval range = forms_.bounds(forms_.form(nest_.arena, e));
    return begin <= range.least && range.greatest < end;
  }

  bool never(ExprId e, std::int64_t begin, std::int64_t end) {
    const Interval range = forms_.bounds(forms_.form(nest_.arena, e));
    return range.greatest < begin || end <= range.least;
  }

  /// Where the element at `indices` of a tensor lies in its buffer.
  std::vector<ExprId> place(TensorId tensor, std::vector<ExprId> indices) {
    const auto made_by = plan_.producer(tensor);
    const auto& dims = plan_.program.tensor(tensor).dims;
    for (std::size_t d = 0; d < indices.size(); ++d) {
      ExprId base{};
      if (made_by && plan_.scopes[*made_by].bases.size() > d) {
        base = plan_.scopes[*made_by].bases[d];
      } else {
        base = nest_.arena.constant(plan_.range(dims[d]).first);
      }
      indices[d] = nest_.arena.subtract(indices[d], base);
    }
    if (owned(tensor))
      indices =
          access(nest_.arena, plan_.tensors[raw(tensor)].layout, shapes_[raw(tensor)], std::move(indices));
    for (auto& index : indices) index = tidy(index);
    return indices;
  }

  /// Makes owned memory as large as the places that are touched; a place that may lie before it is guarded.
  void make_room(TensorId tensor, const std::vector<ExprId>& places, std::vector<Condition>& guards) {
    Buffer& buffer = nest_.buffers[static_cast<std::size_t>(buffer_of_[raw(tensor)])];
    for (std::size_t d = 0; d < places.size(); ++d) {
      const Interval range = forms_.bounds(forms_.form(nest_.arena, places[d]));
      if (range.least < 0)
        guards.push_back({places[d], 0, buffer.extents[d]});
      else
        buffer.extents[d] = std::max(buffer.extents[d], range.greatest + 1);
    }
  }

  // --- values ---

  ValueId read(std::size_t s, const Scalar& scalar) {
    const TensorId tensor = scalar.tensor;
    const auto made_by = plan_.producer(tensor);
    const bool total = made_by && plan_.scopes[*made_by].total;
    std::vector<Condition> wanted, guards;
    std::vector<ExprId> indices;
    for (const ExprId index : scalar.indices) indices.push_back(without_inside(nest_.arena, index, wanted));
    const auto& dims = plan_.program.tensor(tensor).dims;
    for (std::size_t d = 0; !total && d < dims.size(); ++d) {
      const auto [begin, end] = plan_.range(dims[d]);
      wanted.push_back({indices[d], begin, end});
    }
    // A check is left out where every live point passes it, or every iteration of the loops as they are here.
    for (const auto& condition : wanted) {
      if (within(condition.expr, condition.begin, condition.end)) continue;
      const ExprId e = tidy(over_loops(s, condition.expr));
      if (within(e, condition.begin, condition.end)) continue;
      if (never(e, condition.begin, condition.end)) return nest_.literal(scalar.fill.to_double());
      const bool again = std::any_of(guards.begin(), guards.end(), [&](const Condition& other) {
        return other.expr == e && other.begin == condition.begin && other.end == condition.end;
      });
      if (!again) guards.push_back({e, condition.begin, condition.end});
    }
    for (auto& index : indices) index = over_loops(s, index);
    const std::size_t known = forms_.fact_count();
    for (const auto& guard : guards)
      forms_.push_fact(forms_.form(nest_.arena, guard.expr), {guard.begin, guard.end - 1});
    std::vector<Condition> safety;
    bool outside = false;
    std::vector<ExprId> places = place(tensor, indices);
    if (owned(tensor)) {
      make_room(tensor, places, safety);
    } else {
      for (std::size_t d = 0; d < places.size(); ++d) {
        const std::int64_t extent = shapes_[raw(tensor)][d];
        if (within(places[d], 0, extent)) continue;
        safety.push_back({places[d], 0, extent});
        outside = outside || never(places[d], 0, extent);
      }
    }
    forms_.pop_facts(known);
    if (outside) return nest_.literal(scalar.fill.to_double());
    guards.insert(guards.end(), safety.begin(), safety.end());
    return nest_.load(buffer_of_[raw(tensor)], std::move(places), std::move(guards), scalar.fill.to_double());
  }

  ValueId value(std::size_t s, ScalarId id, std::map<ScalarId, ValueId>& done) {
    if (const auto found = done.find(id); found != done.end()) return found->second;
    const Scalar scalar = plan_.program.scalar(id);
    ValueId made{};
    switch (scalar.kind) {
      case ScalarKind::Literal:
        made = nest_.literal(scalar.literal.to_double());
        break;
      case ScalarKind::Index: {
        std::vector<Condition> ignored;
        made = nest_.index_value(tidy(over_loops(s, without_inside(nest_.arena, scalar.index, ignored))));
        break;
      }
      case ScalarKind::Read:
        made = read(s, scalar);
        break;
      case ScalarKind::Unary:
        made = nest_.unary(scalar.function, value(s, scalar.a, done));
        break;
      case ScalarKind::Binary: {
        const ValueId a = value(s, scalar.a, done), b = value(s, scalar.b, done);
        made = nest_.binary(scalar.function, a, b);
        break;
      }
      case ScalarKind::Select: {
        const ValueId a = value(s, scalar.a, done), b = value(s, scalar.b, done),
                      c = value(s, scalar.c, done);
        made = nest_.select(a, b, c);
        break;
      }
    }
    done.emplace(id, made);
    return made;
  }
  /// A product without its literals, which `factor` gains. Zero and what is not finite stay where they are.
  ScalarId without_factor(ScalarId id, double& factor) {
    const Scalar scalar = plan_.program.scalar(id);
    if (scalar.kind != ScalarKind::Binary || scalar.function != program::Function::Multiply) return id;
    for (const auto& [literal, other] : {std::pair{scalar.a, scalar.b}, std::pair{scalar.b, scalar.a}}) {
      const Scalar& l = plan_.program.scalar(literal);
      if (l.kind != ScalarKind::Literal || l.literal.num() == 0) continue;
      factor *= l.literal.to_double();
      return without_factor(other, factor);
    }
    const ScalarId a = without_factor(scalar.a, factor), b = without_factor(scalar.b, factor);
    if (a == scalar.a && b == scalar.b) return id;
    return plan_.program.binary(program::Function::Multiply, a, b);
  }
  ValueId body_value(std::size_t s) {
    std::map<ScalarId, ValueId> done;
    return value(s, plan_.program.scopes[s].body, done);
  }
  /// What is written for a complete result.
  ValueId finished(std::size_t s, ValueId result) {
    const auto& epilogue = plan_.scopes[s].epilogue;
    if (!epilogue) return result;
    std::map<ScalarId, ValueId> done{{epilogue->value, result}};
    return value(s, epilogue->body, done);
  }

  // --- stores ---

  /// The conditions of a scope that are not promised here; `reductions` or those of the traversal.
  std::vector<Condition> rests(std::size_t s, bool reductions) {
    std::vector<Condition> conditions;
    for (const auto& rest : facts_[s].rests) {
      if (rest.reduction != reductions || within(rest.value, 0, rest.live)) continue;
      conditions.push_back({tidy(rest.value), 0, rest.live});
    }
    return conditions;
  }

  /// If (conditions) `make()`, which may rely on them.
  StatementId where(std::vector<Condition> conditions, const std::function<StatementId()>& make) {
    for (const auto& condition : conditions)
      if (never(condition.expr, condition.begin, condition.end)) return nest_.sequence({});
    const std::size_t known = forms_.fact_count();
    for (const auto& condition : conditions)
      forms_.push_fact(forms_.form(nest_.arena, condition.expr), {condition.begin, condition.end - 1});
    const StatementId made = make();
    forms_.pop_facts(known);
    return nest_.guard(std::move(conditions), made);
  }

  /// Writes a point of the scope's output.
  StatementId write(std::size_t s, StoreMode mode, const std::function<ValueId()>& make) {
    const program::Scope& scope = plan_.program.scopes[s];
    const TensorId tensor = scope.output;
    std::vector<Condition> conditions;
    // Dead iterations may write owned memory, where nobody looks; they must not add to it.
    // A staged copy has no room for them.
    if (!owned(tensor) || plan_.scopes[s].total || mode != StoreMode::Assign) conditions = rests(s, false);
    std::vector<ExprId> indices = facts_[s].outputs;
    if (!scope.target.empty()) {
      std::vector<Condition> wanted;
      const auto& dims = plan_.program.tensor(tensor).dims;
      for (std::size_t d = 0; d < dims.size(); ++d) {
        const ExprId e = without_inside(nest_.arena, scope.target[d], wanted);
        const auto [begin, end] = plan_.range(dims[d]);
        wanted.push_back({e, begin, end});
        indices.push_back(over_loops(s, e));
      }
      for (const auto& condition : wanted) {
        const ExprId e = tidy(over_loops(s, condition.expr));
        if (never(e, condition.begin, condition.end)) return nest_.sequence({});
        if (!within(e, condition.begin, condition.end))
          conditions.push_back({e, condition.begin, condition.end});
      }
    }
    return where(std::move(conditions), [&] {
      std::vector<ExprId> places = place(tensor, indices);
      std::vector<Condition> room;
      if (owned(tensor)) {
        make_room(tensor, places, room);
      } else {
        // What a fused loop's rest says of its parts is beyond interval arithmetic: say it of the index.
        for (std::size_t d = 0; d < places.size(); ++d)
          if (!within(places[d], 0, shapes_[raw(tensor)][d]))
            room.push_back({places[d], 0, shapes_[raw(tensor)][d]});
      }
      const ValueId written = make();
      return nest_.guard(std::move(room),
                         nest_.store(buffer_of_[raw(tensor)], std::move(places), written, mode));
    });
  }

  // --- loops ---

  /// Fewer iterations of a loop, in the rest of a split. Vectors keep their lanes unless half as many do.
  void restrict_trips(std::size_t s, int index, std::int64_t count) {
    const PlannedLoop& loop = plan_.scopes[s].loops[static_cast<std::size_t>(index)];
    if (loop.fused >= 0 || count >= loop.extent) return;
    if (loop.outer >= 0) {
      restrict_trips(s, loop.outer, (count + loop.factor - 1) / loop.factor);
      if (count < loop.factor) restrict_trips(s, loop.inner, count);
      return;
    }
    if (loop.kind == LoopKind::Vector && (count & (count - 1)) != 0) return;
    std::int64_t& trips = facts_[s].trips[static_cast<std::size_t>(index)];
    trips = std::min(trips, count);  // a loop around it may have left fewer
  }

  StatementId emit_loop(std::size_t s, int index, const std::function<StatementId()>& body) {
    const PlannedLoop& loop = plan_.scopes[s].loops[static_cast<std::size_t>(index)];
    std::vector<std::int64_t> ends;
    for (const auto cut : loop.cuts)
      if (cut < facts_[s].trips[static_cast<std::size_t>(index)]) ends.push_back(cut);
    ends.push_back(facts_[s].trips[static_cast<std::size_t>(index)]);
    std::vector<StatementId> nests;
    std::int64_t begin = 0;
    for (const std::int64_t end : ends) {
      const auto saved = facts_[s].trips;
      if (end == begin + 1) {
        forms_.bind_constant(loop.slot, begin);
        rest_ += ends.size() > 1;
        if (loop.parent >= 0) {
          const PlannedLoop& parent = plan_.scopes[s].loops[static_cast<std::size_t>(loop.parent)];
          const std::int64_t left = parent.extent - begin * parent.factor;
          if (parent.outer == index && left < parent.factor) restrict_trips(s, parent.inner, left);
        }
        nests.push_back(body());
        rest_ -= ends.size() > 1;
      } else {
        forms_.bind(loop.slot, {begin, end - 1});
        around_.push_back({loop.slot, begin, end - begin});
        const StatementId inside = body();
        around_.pop_back();
        nests.push_back(nest_.loop(facts_[s].names[static_cast<std::size_t>(index)], loop.slot,
                                   nest_.arena.constant(begin), nest_.arena.constant(end), kind_of(s, index),
                                   inside));
      }
      forms_.unbind(loop.slot);
      facts_[s].trips = saved;
      begin = end;
    }
    return nest_.sequence(std::move(nests));
  }

  /// The loops of a register tile have constant indices: they are unrolled unless they are lanes.
  LoopKind kind_of(std::size_t s, int index) const {
    if (const auto set = kinds_.find({s, index}); set != kinds_.end()) return set->second;
    const auto& tile = plan_.scopes[s].tile;
    const LoopKind kind = leaf(s, index).kind;
    const bool tiled = std::find(tile.begin(), tile.end(), index) != tile.end();
    return tiled && kind == LoopKind::Serial ? LoopKind::Unroll : kind;
  }

  StatementId with_memory(std::size_t s, StatementId body) {
    const TensorId tensor = plan_.program.scopes[s].output;
    const bool temporary =
        owned(tensor) && nest_.buffer(buffer_of_[raw(tensor)]).kind == BufferKind::Temporary;
    return temporary ? nest_.allocate(buffer_of_[raw(tensor)], body) : body;
  }

  /// A loop with what is computed at it before its body.
  StatementId emit_loop_with_producers(std::size_t s, int index, const std::function<StatementId()>& body) {
    return emit_loop(s, index, [&] {
      std::vector<std::size_t> producers;
      for (std::size_t p = 0; p < plan_.scopes.size(); ++p)
        if (plan_.scopes[p].attach_scope == static_cast<int>(s) && plan_.scopes[p].attach_loop == index)
          producers.push_back(p);
      std::vector<StatementId> made;
      for (const std::size_t p : producers) made.push_back(emit_scope(p));
      StatementId inside = body();
      for (std::size_t i = producers.size(); i-- > 0;)
        inside = with_memory(producers[i], nest_.sequence({made[i], inside}));
      return inside;
    });
  }

  bool reduces(std::size_t s) const {
    const program::Scope& scope = plan_.program.scopes[s];
    return scope.reduction != Reduction::None && !scope.sums.empty();
  }
  const PlannedLoop& leaf(std::size_t s, int index) const {
    return plan_.scopes[s].loops[static_cast<std::size_t>(index)];
  }

  StatementId emit_scope(std::size_t s) {
    check_order(s);
    const StatementId made = emit_loops(s, 0);
    if (plan_.program.scopes[s].target.empty()) return made;
    return nest_.sequence({zero(plan_.program.scopes[s].output), made});
  }

  void check_order(std::size_t s) const {
    const auto& order = plan_.scopes[s].order;
    for (std::size_t p = 0; p + 1 < order.size(); ++p)
      if (leaf(s, order[p]).kind == LoopKind::Vector)
        fail<ScheduleError>(kWhere, "the vectorised loop '{}' of '{}' has loop '{}' inside",
                            leaf(s, order[p]).name, plan_.program.tensor(plan_.program.scopes[s].output).name,
                            leaf(s, order[p + 1]).name);
  }

  StatementId emit_loops(std::size_t s, std::size_t k) {
    if (k == plan_.core(s)) return emit_core(s, k);
    return emit_loop_with_producers(s, plan_.scopes[s].order[k], [&, k] { return emit_loops(s, k + 1); });
  }

  StatementId emit_over(std::size_t s, const std::vector<int>& loops, std::size_t k,
                        const std::function<StatementId()>& body) {
    if (k == loops.size()) return body();
    return emit_loop(s, loops[k], [&, k] { return emit_over(s, loops, k + 1, body); });
  }

  /// The loops of a reduction, `k`: where they begin.
  StatementId emit_steps(std::size_t s, std::size_t k, const std::function<StatementId()>& update) {
    const std::size_t outer = std::exchange(outside_core_, around_.size());
    const StatementId made = emit_reduction(s, k, update);
    outside_core_ = outer;
    return made;
  }

  StatementId emit_reduction(std::size_t s, std::size_t k, const std::function<StatementId()>& update) {
    const auto& order = plan_.scopes[s].order;
    if (k == order.size()) return where(rests(s, true), update);
    const StatementId inside = emit_loop_with_producers(s, order[k], [&, k] {
      return where(counting(s, k), [&] { return emit_reduction(s, k + 1, update); });
    });
    const auto& tile = plan_.scopes[s].tile;
    const auto tiled = [&](int loop) { return std::find(tile.begin(), tile.end(), loop) != tile.end(); };
    if (!tiled(order[k]) || (k > 0 && tiled(order[k - 1]))) return inside;
    std::vector<StatementId> parts = prefetches(s, k);
    parts.push_back(inside);
    return nest_.sequence(std::move(parts));
  }

  /// What this iteration of a loop inside a reduction decides for all terms inside: else none of them counts.
  /// Of an unrolled loop only what is known when code is made, or stays the same over the reduction.
  std::vector<Condition> counting(std::size_t s, std::size_t k) {
    std::vector<Condition> conditions;
    const auto& order = plan_.scopes[s].order;
    const LoopKind kind = kind_of(s, order[k]);
    if (facts_[s].inside.empty() || kind == LoopKind::Vector) return conditions;
    std::vector<Trips> inner;
    for (std::size_t p = k + 1; p < order.size(); ++p)
      inner.push_back({leaf(s, order[p]).slot, 0, facts_[s].trips[static_cast<std::size_t>(order[p])]});
    const auto steps = [&](std::uint32_t slot) {
      return std::any_of(order.begin(), order.end(), [&](int index) {
        return leaf(s, index).slot == slot && kind_of(s, index) != LoopKind::Unroll &&
               std::any_of(around_.begin() + static_cast<std::ptrdiff_t>(outside_core_), around_.end(),
                           [&](const Trips& trips) { return trips.slot == slot; });
      });
    };
    for (const Condition& condition : facts_[s].inside) {
      const Condition any = for_any(nest_.arena, forms_,
                                    {over_loops(s, condition.expr), condition.begin, condition.end}, inner);
      if (within(any.expr, any.begin, any.end)) continue;
      const auto slots = nest_.arena.iterators(any.expr);
      const bool moves = std::find(slots.begin(), slots.end(), leaf(s, order[k]).slot) != slots.end();
      if (kind == LoopKind::Unroll && (!moves || std::any_of(slots.begin(), slots.end(), steps))) continue;
      conditions.push_back(any);
    }
    return conditions;
  }

  /// Asks for what is read after this tile, a line of each tensor at a step of the reduction. `k`: where the
  /// tile's loops begin.
  std::vector<StatementId> prefetches(std::size_t s, std::size_t k) {
    std::vector<StatementId> made;
    if (plan_.scopes[s].prefetched.empty() || rest_ > 0) return made;
    Walk walk{around_, {}, {}, 0};
    const auto steps = walk.outside.begin() + static_cast<std::ptrdiff_t>(outside_core_);
    walk.steps.assign(steps, walk.outside.end());
    walk.outside.erase(steps, walk.outside.end());
    const auto& order = plan_.scopes[s].order;
    for (std::size_t p = k; p < order.size(); ++p) {
      const Trips trips{leaf(s, order[p]).slot, 0, facts_[s].trips[static_cast<std::size_t>(order[p])]};
      walk.tile.push_back(trips);
      forms_.bind(trips.slot, {0, trips.count - 1});
    }
    for (const auto& [tensor, near_bytes] : plan_.scopes[s].prefetched) {
      const auto reads = plan_.reads_of(s, tensor);
      if (reads.empty()) continue;  // it reads a copy by now
      const Scalar scalar = plan_.program.scalar(reads.front());
      std::vector<Condition> ignored;
      std::vector<ExprId> indices;
      for (const ExprId index : scalar.indices)
        indices.push_back(over_loops(s, without_inside(nest_.arena, index, ignored)));
      walk.near_bytes = near_bytes;
      if (const auto asks =
              prefetch_next(nest_, forms_, buffer_of_[raw(tensor)], place(tensor, indices), walk))
        made.push_back(*asks);
    }
    for (const Trips& trips : walk.tile) forms_.unbind(trips.slot);
    return made;
  }

  StatementId emit_core(std::size_t s, std::size_t k) {
    const program::Scope& scope = plan_.program.scopes[s];
    const bool accumulates = !scope.target.empty();
    if (!reduces(s) && !plan_.scopes[s].tile.empty()) return emit_transposed(s, k);
    if (!reduces(s))
      return write(s, accumulates ? StoreMode::Add : StoreMode::Assign,
                   [&] { return finished(s, body_value(s)); });

    const auto& order = plan_.scopes[s].order;
    const auto& tile = plan_.scopes[s].tile;
    const auto in_tile = [&](int loop) { return std::find(tile.begin(), tile.end(), loop) != tile.end(); };
    std::vector<int> traversal, lanes;
    for (std::size_t p = k; p < order.size(); ++p) {
      if (!leaf(s, order[p]).reduction)
        traversal.push_back(order[p]);
      else if (in_tile(order[p]))
        lanes.push_back(order[p]);
    }
    const auto [start, mode] = identity_of(scope.reduction);
    std::int64_t count = 1;
    for (const auto& sum : scope.sums) {
      const auto [begin, end] = plan_.range(sum.range);
      count *= end - begin;
    }
    const bool mean = scope.reduction == Reduction::Mean;
    const bool in_memory = tile.empty() && !traversal.empty();
    // A constant factor of every term is one of their sum.
    double factor = mean ? 1.0 / static_cast<double>(count) : 1.0;
    ScalarId term_body = scope.body;
    if (!in_memory && (mean || scope.reduction == Reduction::Sum))
      term_body = without_factor(scope.body, factor);
    const auto scaled = [&](ValueId v) {
      return factor == 1 ? v : nest_.binary(program::Function::Multiply, v, nest_.literal(factor));
    };

    if (in_memory) return accumulate_in_memory(s, k, traversal, start, mode, scaled);
    for (const int loop : tile)
      if (plan_.position(s, loop) < static_cast<int>(k))
        fail<ScheduleError>(kWhere,
                            "loop '{}' of '{}' is part of the register tile but runs outside the reduction",
                            leaf(s, loop).name, plan_.program.tensor(scope.output).name);

    std::vector<int> all = traversal;
    all.insert(all.end(), lanes.begin(), lanes.end());
    // A vector loop stays innermost in the nests around the reduction, too.
    std::stable_partition(all.begin(), all.end(), [&](int l) { return leaf(s, l).kind != LoopKind::Vector; });
    const BufferId sums = accumulator(s, all, "acc");
    const auto at = [&](const std::vector<int>& loops) {
      std::vector<ExprId> indices;
      for (const int loop : loops) indices.push_back(tidy(nest_.arena.iterator(leaf(s, loop).slot)));
      return indices;
    };
    std::vector<StatementId> parts;
    parts.push_back(emit_over(s, all, 0, [&] { return nest_.store(sums, at(all), nest_.literal(start)); }));
    parts.push_back(emit_steps(s, k, [&] {
      std::map<ScalarId, ValueId> done;
      const ValueId term = value(s, term_body, done);
      return nest_.store(sums, at(all), term, mode);
    }));
    BufferId result = sums;
    if (!lanes.empty()) {
      fold_lanes(s, sums, all, lanes, mode, parts);
      result = accumulator(s, traversal, "sum");
      parts.push_back(emit_over(s, traversal, 0,
                                [&] { return nest_.store(result, at(traversal), nest_.literal(start)); }));
      // What is left of each result: one vector, or one element.
      std::vector<int> left;
      for (const int loop : all)
        if (!leaf(s, loop).reduction || leaf(s, loop).kind == LoopKind::Vector ||
            facts_[s].trips[static_cast<std::size_t>(loop)] == 1)
          left.push_back(loop);
      const auto folded = [&] {
        std::vector<ExprId> indices;
        for (const int loop : all)
          indices.push_back(std::find(left.begin(), left.end(), loop) == left.end()
                                ? nest_.arena.constant(0)
                                : tidy(nest_.arena.iterator(leaf(s, loop).slot)));
        return indices;
      };
      parts.push_back(emit_over(
          s, left, 0, [&] { return nest_.store(result, at(traversal), nest_.load(sums, folded()), mode); }));
    }
    parts.push_back(write_sums(s, k, traversal, [&] { return scaled(nest_.load(result, at(traversal))); }));
    StatementId made = nest_.sequence(std::move(parts));
    if (!lanes.empty()) made = nest_.allocate(result, made);
    return nest_.allocate(sums, made);
  }

  /// Writes results that registers hold. Where loops of the reduction run around the core, they are those of
  /// a part of it: the output keeps them until the last part completes them.
  StatementId write_sums(std::size_t s, std::size_t core, const std::vector<int>& traversal,
                         const std::function<ValueId()>& sums) {
    const program::Scope& scope = plan_.program.scopes[s];
    if (!scope.target.empty())
      return emit_over(s, traversal, 0, [&] { return write(s, StoreMode::Add, sums); });
    LinearForm part;
    std::int64_t last = 0;
    for (std::size_t p = 0; p < core; ++p) {
      const int loop = plan_.scopes[s].order[p];
      if (!leaf(s, loop).reduction) continue;
      part = schedule::add(part, forms_.form(nest_.arena, nest_.arena.iterator(leaf(s, loop).slot)));
      last += facts_[s].trips[static_cast<std::size_t>(loop)] - 1;
      check_part(s, loop);
    }
    const ExprId number = to_expr(nest_.arena, forms_, part);
    const auto joined = [&] {
      const ValueId before =
          nest_.load(buffer_of_[raw(scope.output)], place(scope.output, facts_[s].outputs), {}, 0);
      return nest_.binary(joining(scope.reduction), before, sums());
    };
    // Parts from `begin` to `end`.
    const auto parts = [&](std::int64_t begin, std::int64_t end, const std::function<ValueId()>& make) {
      std::vector<Condition> conditions;
      if (!within(number, begin, end)) conditions.push_back({number, begin, end});
      return where(std::move(conditions), [&] {
        return emit_over(s, traversal, 0, [&] { return write(s, StoreMode::Assign, make); });
      });
    };
    const std::int64_t whole = plan_.scopes[s].epilogue ? last : last + 1;
    std::vector<StatementId> made;
    made.push_back(parts(0, 1, [&] { return last == 0 ? finished(s, sums()) : sums(); }));
    if (whole > 1) made.push_back(parts(1, whole, joined));
    if (last > 0 && whole == last)
      made.push_back(parts(last, last + 1, [&] { return finished(s, joined()); }));
    return nest_.sequence(std::move(made));
  }
  void check_part(std::size_t s, int loop) const {
    const TensorId output = plan_.program.scopes[s].output;
    const std::string& name = plan_.program.tensor(output).name;
    SYNO_ASSERT(facts_[s].trips[static_cast<std::size_t>(loop)] > 0, "a sum has terms");
    if (nest_.buffer(buffer_of_[raw(output)]).dtype == Dtype::BF16)
      fail<ScheduleError>(kWhere, "parts of '{}' would be summed up in bf16; stage it", name);
  }

  /// Lanes run along one loop while values are read and along the other while they are written.
  StatementId emit_transposed(std::size_t s, std::size_t k) {
    const auto& order = plan_.scopes[s].order;
    const auto& tile = plan_.scopes[s].tile;
    if (order.size() - k != tile.size() ||
        !std::is_permutation(tile.begin(), tile.end(), order.begin() + static_cast<std::ptrdiff_t>(k)))
      fail<ScheduleError>(kWhere, "the loops '{}' and '{}' of '{}' are transposed but not the innermost ones",
                          leaf(s, tile[0]).name, leaf(s, tile[1]).name,
                          plan_.program.tensor(plan_.program.scopes[s].output).name);
    const int read = tile[0], written = tile[1];
    const BufferId block = accumulator(s, tile, "block");
    const auto at = [&] {
      std::vector<ExprId> indices;
      for (const int loop : tile) indices.push_back(tidy(nest_.arena.iterator(leaf(s, loop).slot)));
      return indices;
    };
    const auto over = [&](int outer, int lanes, const std::function<StatementId()>& body) {
      kinds_ = {{{s, outer}, LoopKind::Unroll}, {{s, lanes}, LoopKind::Vector}};
      const StatementId made = emit_over(s, {outer, lanes}, 0, body);
      kinds_.clear();
      return made;
    };
    std::vector<StatementId> parts;
    parts.push_back(over(written, read, [&] { return nest_.store(block, at(), body_value(s)); }));
    parts.push_back(over(read, written, [&] {
      return write(s, StoreMode::Assign, [&] { return finished(s, nest_.load(block, at())); });
    }));
    return nest_.allocate(block, nest_.sequence(std::move(parts)));
  }

  /// Adds up the partial sums of the tile's reductions, half of them to the other half, until one is left in
  /// each lane.
  void fold_lanes(std::size_t s, BufferId sums, const std::vector<int>& all, const std::vector<int>& lanes,
                  StoreMode mode, std::vector<StatementId>& parts) {
    std::vector<int> scalars, vectors;  // loops that are left
    for (const int loop : all) (leaf(s, loop).kind == LoopKind::Vector ? vectors : scalars).push_back(loop);
    for (const int loop : lanes) {
      // One iteration says how many a loop inside it has: it stays around the others.
      if (leaf(s, loop).kind == LoopKind::Vector || facts_[s].trips[static_cast<std::size_t>(loop)] == 1)
        continue;
      scalars.erase(std::find(scalars.begin(), scalars.end(), loop));
      parts.push_back(emit_over(s, scalars, 0, [&] {
        std::vector<StatementId> steps;
        for (std::int64_t count = facts_[s].trips[static_cast<std::size_t>(loop)]; count > 1;) {
          const std::int64_t half = (count + 1) / 2;
          const std::uint32_t slot = nest_.new_slot();
          const ExprId variable = nest_.arena.iterator(slot);
          const StatementId body = emit_over(s, vectors, 0, [&] {
            std::vector<ExprId> low, high;
            for (const int other : all) {
              const bool folded = other != loop && leaf(s, other).kind != LoopKind::Vector &&
                                  std::find(scalars.begin(), scalars.end(), other) == scalars.end();
              const ExprId index = other == loop ? variable
                                   : folded      ? nest_.arena.constant(0)
                                                 : tidy(nest_.arena.iterator(leaf(s, other).slot));
              low.push_back(index);
              high.push_back(other == loop ? nest_.arena.add(variable, nest_.arena.constant(half)) : index);
            }
            const ValueId added = nest_.load(sums, std::move(high));
            return nest_.store(sums, std::move(low), added, mode);
          });
          steps.push_back(
              nest_.loop(fmt::format("fold{}", slot), slot, count - half, LoopKind::Unroll, body));
          count = half;
        }
        return nest_.sequence(std::move(steps));
      }));
    }
  }

  BufferId accumulator(std::size_t s, const std::vector<int>& loops, const char* word) {
    Buffer buffer;
    const std::string& tensor = plan_.program.tensor(plan_.program.scopes[s].output).name;
    buffer.name = fmt::format("{}_{}", tensor, word);
    const auto taken = [&] {
      return std::any_of(nest_.buffers.begin(), nest_.buffers.end(),
                         [&](const Buffer& other) { return other.name == buffer.name; });
    };
    for (int i = 2; taken(); ++i) buffer.name = fmt::format("{}_{}{}", tensor, word, i);
    buffer.kind = BufferKind::Register;
    buffer.dtype = register_dtype();
    for (const int loop : loops) buffer.extents.push_back(facts_[s].trips[static_cast<std::size_t>(loop)]);
    return nest_.add(std::move(buffer));
  }

  /// Traversal loops run inside the reduction and no register holds their results: the output itself does.
  StatementId accumulate_in_memory(std::size_t s, std::size_t k, const std::vector<int>& traversal,
                                   double start, StoreMode mode,
                                   const std::function<ValueId(ValueId)>& scaled) {
    const program::Scope& scope = plan_.program.scopes[s];
    const bool accumulates = !scope.target.empty();
    const std::string& name = plan_.program.tensor(scope.output).name;
    if (nest_.buffer(buffer_of_[raw(scope.output)]).dtype == Dtype::BF16)
      fail<ScheduleError>(kWhere, "'{}' would sum up in bf16; give it a register tile or stage it", name);
    if (plan_.scopes[s].epilogue)
      fail<ScheduleError>(kWhere, "'{}' has an epilogue, which takes its results from a register tile", name);
    if (accumulates && mode != StoreMode::Add)
      fail<ScheduleError>(
          kWhere, "'{}' accumulates reductions other than sums; its traversal loops stay outside", name);
    if (accumulates)
      return emit_reduction(s, k,
                            [&] { return write(s, StoreMode::Add, [&] { return scaled(body_value(s)); }); });
    std::vector<StatementId> parts;
    parts.push_back(emit_over(
        s, traversal, 0, [&] { return write(s, StoreMode::Assign, [&] { return nest_.literal(start); }); }));
    parts.push_back(emit_steps(s, k, [&] { return write(s, mode, [&] { return body_value(s); }); }));
    if (scope.reduction == Reduction::Mean)
      parts.push_back(emit_over(s, traversal, 0, [&] {
        return write(s, StoreMode::Multiply, [&] { return scaled(nest_.literal(1)); });
      }));
    return nest_.sequence(std::move(parts));
  }

  /// An accumulating scope starts from zero.
  StatementId zero(TensorId tensor) {
    constexpr std::int64_t kLanes = 16;
    const BufferId buffer = buffer_of_[raw(tensor)];
    const Shape extents = nest_.buffer(buffer).extents;
    std::vector<ExprId> indices;
    const std::function<StatementId(std::size_t)> over = [&](std::size_t d) -> StatementId {
      if (d == extents.size()) return nest_.store(buffer, indices, nest_.literal(0));
      const std::uint32_t slot = nest_.new_slot();
      const ExprId variable = nest_.arena.iterator(slot);
      const std::string name = fmt::format("zero{}", slot);
      if (d + 1 < extents.size() || extents[d] <= kLanes) {
        indices.push_back(variable);
        const StatementId inside = over(d + 1);
        indices.pop_back();
        return nest_.loop(name, slot, extents[d],
                          d + 1 < extents.size() ? LoopKind::Serial : LoopKind::Vector, inside);
      }
      // The last dimension: whole vectors, then the rest.
      std::vector<StatementId> parts;
      const std::uint32_t lane = nest_.new_slot();
      indices.push_back(nest_.arena.add(nest_.arena.multiply(variable, kLanes), nest_.arena.iterator(lane)));
      StatementId inside = nest_.store(buffer, indices, nest_.literal(0));
      indices.pop_back();
      inside = nest_.loop(fmt::format("zero{}", lane), lane, kLanes, LoopKind::Vector, inside);
      parts.push_back(nest_.loop(name, slot, extents[d] / kLanes, LoopKind::Serial, inside));
      if (const std::int64_t left = extents[d] % kLanes; left > 0) {
        const std::uint32_t rest = nest_.new_slot();
        indices.push_back(
            nest_.arena.add(nest_.arena.constant(extents[d] - left), nest_.arena.iterator(rest)));
        inside = nest_.store(buffer, indices, nest_.literal(0));
        indices.pop_back();
        parts.push_back(nest_.loop(fmt::format("zero{}", rest), rest, left, LoopKind::Vector, inside));
      }
      return nest_.sequence(std::move(parts));
    };
    return over(0);
  }

  Plan plan_;
  Part part_;
  std::map<std::string, Shape> known_;  ///< extents of prepacked buffers, which both parts agree on
  LoopNest nest_;
  LinearForms forms_;
  std::vector<ScopeFacts> facts_;
  std::vector<BufferId> buffer_of_;
  std::map<std::pair<std::size_t, int>, LoopKind> kinds_;  ///< of loops that run twice, as lanes and not
  std::vector<Shape> shapes_;                              ///< logical, of every tensor's memory
  std::vector<Trips> around_;     ///< the loops around what is emitted, outermost first
  std::size_t outside_core_ = 0;  ///< of these, how many are around a reduction
  int rest_ = 0;                  ///< peeled iterations around what is emitted
};

}  // namespace

LoopNest emit(Plan plan) { return Emission(std::move(plan)).run(); }

namespace {

/// By name of what is prepacked: how much room its readers and writers need together.
std::map<std::string, Shape> prepacked_extents(const Plan& plan) {
  std::map<std::string, Shape> packed;
  for (std::size_t s = 0; s < plan.scopes.size(); ++s)
    if (plan.scopes[s].prepacked) packed[plan.program.tensor(plan.program.scopes[s].output).name];
  if (packed.empty()) return packed;
  for (const Buffer& buffer : emit(plan).buffers)
    if (const auto found = packed.find(buffer.name); found != packed.end()) found->second = buffer.extents;
  return packed;
}

}  // namespace

LoopNest emit_call(const Plan& plan) {
  const std::map<std::string, Shape> packed = prepacked_extents(plan);
  return packed.empty() ? emit(plan) : Emission(plan, Part::Call, packed).run();
}

namespace {

Plan replay(const program::Program& concrete, const Schedule& schedule) {
  Plan plan(concrete, schedule.dtype);
  for (std::size_t i = 0; i < schedule.trace.size(); ++i) {
    const Decision& decision = schedule.trace[i];
    const std::string where = fmt::format("decision {} ({} of '{}')", i, decision.name, decision.scope);
    try {
      decide(plan, decision);
    } catch (const UnknownName& error) {
      throw UnknownName(where, error.what());
    } catch (const Error& error) {
      throw ScheduleError(where, error.what());
    }
  }
  return plan;
}

}  // namespace

LoopNest apply(const program::Program& concrete, const Schedule& schedule) {
  return emit(replay(concrete, schedule));
}

std::optional<PrepackedNests> apply_prepacked(const program::Program& concrete, const Schedule& schedule) {
  const Plan plan = replay(concrete, schedule);
  const std::map<std::string, Shape> packed = prepacked_extents(plan);
  if (packed.empty()) return std::nullopt;
  PrepackedNests nests{Emission(plan, Part::Prepack, packed).run(), Emission(plan, Part::Call, packed).run()};
  nests.prepack.name += "_prepack";
  return nests;
}

}  // namespace syno::schedule
