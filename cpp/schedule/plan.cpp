#include "schedule/plan.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "program/scalars.hpp"
#include "support/error.hpp"
#include "symbolic/condition.hpp"

namespace syno::schedule {

namespace {

using program::Scalar;
using program::ScalarId;
using program::ScalarKind;
using program::TensorId;
using symbolic::Op;

constexpr const char* kPlan = "schedule";
constexpr std::int64_t kMostElements = std::int64_t{1} << 46;  // of a tensor
constexpr std::int64_t kMostPoints = std::int64_t{1} << 56;    // of a scope

std::uint32_t raw(TensorId id) { return static_cast<std::uint32_t>(id); }

}  // namespace

ExprId to_expr(symbolic::Arena& arena, const AffineForms& forms, const AffineForm& form) {
  ExprId sum = arena.constant(form.constant);
  bool first = true;
  for (const auto& [id, coefficient] : form.terms) {
    const Atom atom = forms.atom(id);
    ExprId value{};
    switch (atom.kind) {
      case Atom::Kind::Slot:
        value = arena.iterator(atom.slot);
        break;
      case Atom::Kind::Quotient:
        value = arena.divide(to_expr(arena, forms, atom.inner), symbolic::Size(atom.divisor));
        break;
      case Atom::Kind::Remainder:
        value = arena.modulo(to_expr(arena, forms, atom.inner), symbolic::Size(atom.divisor));
        break;
      case Atom::Kind::Product:
        SYNO_ASSERT(false, "strides known at run time are the code generator's own");
    }
    value = arena.multiply(value, coefficient);
    if (first && form.constant == 0)
      sum = value;
    else
      sum = arena.add(value, sum);
    first = false;
  }
  return sum;
}

namespace {

/// What is counted on the way to a loop nest, elements and points, fits 64 bits with room to spare.
void require_countable(const program::Program& program) {
  for (std::uint32_t t = 0; t < program.tensors.size(); ++t) {
    const auto shape = program::shape_of(program, TensorId{t});
    if (program::checked_product(kPlan, shape) > kMostElements)
      fail<ShapeError>(kPlan, "'{}' of shape [{}] has more than 2^46 elements", program.tensors[t].name,
                       fmt::join(shape, ", "));
  }
  for (const program::Scope& scope : program.scopes) {
    std::vector<std::int64_t> extents;
    for (const auto* group : {&scope.traversal, &scope.sums})
      for (const program::Iterator& iterator : *group) {
        const program::Extent extent = program::extent_of(program, iterator.range, 0);
        extents.push_back(extent.end - extent.begin);
      }
    if (program::checked_product(kPlan, extents) > kMostPoints)
      fail<ShapeError>(kPlan, "'{}' is computed over {} points, more than 2^56",
                       program.tensor(scope.output).name, fmt::join(extents, " x "));
  }
}

}  // namespace

Plan::Plan(const program::Program& concrete, Dtype wanted, std::vector<nest::Parameter> given)
    : program(concrete), sizes(std::move(given)), dtype(wanted) {
  for (nest::Parameter& size : sizes) size.slot = program.next_slot++;
  if (!concrete.concrete())
    fail<ScheduleError>(kPlan, "the program has symbolic sizes; take one valuation of it with at()");
  require_countable(concrete);
  scopes.resize(program.scopes.size());
  if (dtype == Dtype::BF16) accumulate_in_f32();
  tensors.resize(program.tensors.size());
  for (std::size_t s = 0; s < scopes.size(); ++s) {
    if (makes_all(s)) need_domain(s);
  }
}

/// bf16 has too few digits to go on computing with: an output that is added to or read is made beside it, in
/// f32, and rounded when it is copied.
void Plan::accumulate_in_f32() {
  for (std::size_t s = 0; s < program.scopes.size(); ++s) {
    const TensorId output = program.scopes[s].output;
    if (!is_output(output) || (program.scopes[s].target.empty() && consumers(output).empty())) continue;
    program::Tensor wide = program.tensor(output);
    wide.name = program::fresh_tensor_name(program, wide.name + "_f32");
    const TensorId beside = program.add_tensor(wide);
    program.scopes[s].output = beside;
    for (Scalar& scalar : program.scalars)
      if (scalar.kind == ScalarKind::Read && scalar.tensor == output) scalar.tensor = beside;
    program::Scope copy;
    copy.output = output;
    std::vector<ExprId> indices;
    for (std::size_t d = 0; d < wide.dims.size(); ++d) {
      copy.traversal.push_back(program.new_iterator(fmt::format("i{}", d), wide.dims[d]));
      indices.push_back(program.arena.iterator(copy.traversal.back().slot));
    }
    copy.body = program.read(beside, std::move(indices));
    program.scopes.insert(program.scopes.begin() + static_cast<std::ptrdiff_t>(s) + 1, std::move(copy));
    scopes.emplace_back();
  }
}

ScopePlan& Plan::change(std::size_t scope) {
  if (journal_.first_change(scope))
    journal_.add([scope, before = scopes[scope]](Plan& p) mutable { p.scopes[scope] = std::move(before); });
  return scopes[scope];
}

TensorPlan& Plan::change(TensorId tensor) {
  if (journal_.open())
    journal_.add([tensor, before = tensors[raw(tensor)]](Plan& p) mutable {
      p.tensors[raw(tensor)] = std::move(before);
    });
  return tensors[raw(tensor)];
}

program::Scope& Plan::change_program(std::size_t scope) {
  if (journal_.open())
    journal_.add([scope, before = program.scopes[scope]](Plan& p) mutable {
      p.program.scopes[scope] = std::move(before);
    });
  return program.scopes[scope];
}

std::vector<program::Range>& Plan::change_dims(TensorId tensor) {
  auto& dims = program.tensors[raw(tensor)].dims;
  if (journal_.open())
    journal_.add([tensor, before = dims](Plan& p) mutable {
      p.program.tensors[raw(tensor)].dims = std::move(before);
    });
  return dims;
}

void Plan::replace(Plan plan) {
  if (journal_.open())
    journal_.add([before = std::make_shared<Plan>(*this)](Plan& p) { p = std::move(*before); });
  journal_.moved();
  *this = std::move(plan);
}

void Plan::remember_program() {
  if (!journal_.open()) return;
  struct Named {
    std::string name;
    program::Role role;
    std::vector<program::Range> dims;
  };
  std::vector<Named> named;
  for (const program::Tensor& tensor : program.tensors)
    named.push_back({tensor.name, tensor.role, tensor.dims});
  journal_.add([named = std::move(named), outputs = program.outputs, before = program.scopes,
                plans = scopes](Plan& p) mutable {
    p.program.scopes = std::move(before);
    p.program.outputs = std::move(outputs);
    p.scopes = std::move(plans);
    for (std::size_t t = 0; t < named.size(); ++t) {
      program::Tensor& tensor = p.program.tensors[t];
      tensor.name = std::move(named[t].name);
      tensor.role = named[t].role;
      tensor.dims = std::move(named[t].dims);
    }
  });
  journal_.moved();
}

OrRefusal<std::size_t> Plan::find_scope(std::string_view tensor) const {
  for (std::size_t s = 0; s < program.scopes.size(); ++s)
    if (program.tensor(program.scopes[s].output).name == tensor) return s;
  std::vector<std::string> valid;
  for (const program::Scope& scope : program.scopes) valid.push_back(program.tensor(scope.output).name);
  return refuse_unknown(kPlan, unknown_name("scope", tensor, valid));
}

OrRefusal<TensorId> Plan::find_tensor(std::string_view name) const {
  if (const auto id = program.find_tensor(name)) return *id;
  std::vector<std::string> valid;
  for (const auto& tensor : program.tensors) valid.push_back(tensor.name);
  return refuse_unknown(kPlan, unknown_name("tensor", name, valid));
}

OrRefusal<int> Plan::find_leaf(std::size_t scope, std::string_view loop) const {
  const ScopePlan& plan = scopes[scope];
  for (const int leaf : plan.order)
    if (plan.loops[static_cast<std::size_t>(leaf)].name == loop) return leaf;
  std::vector<std::string> valid;
  for (const int leaf : plan.order) valid.push_back(plan.loops[static_cast<std::size_t>(leaf)].name);
  return refuse_unknown(
      kPlan,
      unknown_name("loop of scope '" + program.tensor(program.scopes[scope].output).name + "'", loop, valid));
}

int Plan::position(std::size_t scope, int loop) const {
  const auto& order = scopes[scope].order;
  const auto found = std::find(order.begin(), order.end(), loop);
  return found == order.end() ? -1 : static_cast<int>(found - order.begin());
}

std::size_t Plan::core(std::size_t scope) const {
  const auto& order = scopes[scope].order;
  const auto& tile = scopes[scope].tile;
  const auto loop = [&](std::size_t p) -> const PlannedLoop& {
    return scopes[scope].loops[static_cast<std::size_t>(order[p])];
  };
  const auto tiled = [&](std::size_t p) {
    return std::find(tile.begin(), tile.end(), order[p]) != tile.end();
  };
  std::size_t core = 0;
  while (core < order.size() && !loop(core).reduction && !tiled(core)) ++core;
  for (std::size_t p = core; !program.scopes[scope].sums.empty() && !tile.empty() && p < order.size(); ++p)
    if (!loop(p).reduction && !tiled(p)) core = p + 1;
  return core;
}

std::optional<std::size_t> Plan::producer(TensorId tensor) const {
  for (std::size_t s = 0; s < program.scopes.size(); ++s)
    if (program.scopes[s].output == tensor) return s;
  return std::nullopt;
}

std::vector<std::size_t> Plan::consumers(TensorId tensor) const {
  std::vector<std::size_t> found;
  for (std::size_t s = 0; s < program.scopes.size(); ++s) {
    const auto& epilogue = scopes[s].epilogue;
    if (program::reads_tensor(program, program.scopes[s].body, tensor) ||
        (epilogue && program::reads_tensor(program, epilogue->body, tensor)))
      found.push_back(s);
  }
  return found;
}

bool Plan::is_output(TensorId tensor) const {
  return std::find(program.outputs.begin(), program.outputs.end(), tensor) != program.outputs.end();
}

bool Plan::is_argument(TensorId tensor) const {
  return program.tensor(tensor).role != program::Role::Computed || is_output(tensor);
}

namespace {

std::vector<ScalarId> distinct_reads(const program::Program& program, const std::vector<ScalarId>& all) {
  std::vector<ScalarId> distinct;
  for (const ScalarId id : all) {
    const Scalar& scalar = program.scalar(id);
    const bool seen = std::any_of(distinct.begin(), distinct.end(), [&](ScalarId other) {
      const Scalar& o = program.scalar(other);
      return o.tensor == scalar.tensor && o.indices == scalar.indices && o.fill == scalar.fill;
    });
    if (!seen) distinct.push_back(id);
  }
  return distinct;
}

}  // namespace

std::vector<ScalarId> Plan::reads(std::size_t scope) const {
  return distinct_reads(program, program::reads_in(program, program.scopes[scope].body));
}

std::vector<ScalarId> Plan::all_reads(std::size_t scope) const {
  std::vector<ScalarId> all = program::reads_in(program, program.scopes[scope].body);
  if (const auto& epilogue = scopes[scope].epilogue) {
    const auto later = program::reads_in(program, epilogue->body);
    all.insert(all.end(), later.begin(), later.end());
  }
  return distinct_reads(program, all);
}

std::vector<ScalarId> Plan::reads_of(std::size_t scope, TensorId tensor) const {
  std::vector<ScalarId> found;
  for (const ScalarId id : reads(scope))
    if (program.scalar(id).tensor == tensor) found.push_back(id);
  return found;
}

std::string Plan::fresh_loop_name(std::size_t scope, std::string wanted) const {
  const auto taken = [&](const std::string& name) {
    return std::any_of(scopes[scope].loops.begin(), scopes[scope].loops.end(),
                       [&](const PlannedLoop& loop) { return loop.name == name; });
  };
  std::string name = wanted;
  for (int i = 2; taken(name); ++i) name = fmt::format("{}{}", wanted, i);
  return name;
}

void Plan::rewrite(const derive::Rewrite& row, const derive::Site& site) {
  rewrite([&](program::Program& changed) { row.apply(changed, site); });
}

void Plan::rewrite(const std::function<void(program::Program&)>& change) {
  remember_program();
  const std::vector<program::Scope> before = program.scopes;
  change(program);
  tensors.resize(program.tensors.size());
  const auto same_iterators = [](const std::vector<program::Iterator>& a,
                                 const std::vector<program::Iterator>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& one, const auto& two) {
      return one.slot == two.slot && one.range == two.range;
    });
  };
  std::vector<int> place(program.tensors.size(), -1);  // of the scope that computed a tensor
  for (std::size_t s = 0; s < before.size(); ++s)
    place[static_cast<std::size_t>(before[s].output)] = static_cast<int>(s);
  std::vector<int> now(before.size(), -1);  // where that scope is
  std::vector<ScopePlan> kept(program.scopes.size());
  std::vector<std::size_t> anew;
  for (std::size_t s = 0; s < program.scopes.size(); ++s) {
    const program::Scope& scope = program.scopes[s];
    const int old = place[static_cast<std::size_t>(scope.output)];
    if (old >= 0) now[static_cast<std::size_t>(old)] = static_cast<int>(s);
    const auto same = [&](const program::Scope& b) {
      return same_iterators(b.traversal, scope.traversal) && same_iterators(b.sums, scope.sums);
    };
    if (old >= 0 && same(before[static_cast<std::size_t>(old)]))
      kept[s] = std::move(scopes[static_cast<std::size_t>(old)]);
    else
      anew.push_back(s);
  }
  for (ScopePlan& plan : kept)
    if (plan.attach_scope >= 0) plan.attach_scope = now[static_cast<std::size_t>(plan.attach_scope)];
  scopes = std::move(kept);
  for (const std::size_t s : anew)
    if (is_argument(program.scopes[s].output)) need_domain(s);
}

void Plan::insert_scope(std::size_t at, program::Scope scope, ScopePlan plan) {
  journal_.add([at](Plan& p) { p.erase_scope(at); });
  journal_.moved();
  program.scopes.insert(program.scopes.begin() + static_cast<std::ptrdiff_t>(at), std::move(scope));
  scopes.insert(scopes.begin() + static_cast<std::ptrdiff_t>(at), std::move(plan));
  for (auto& other : scopes)
    if (other.attach_scope >= static_cast<int>(at)) ++other.attach_scope;
}

void Plan::erase_scope(std::size_t at) {
  if (journal_.open())
    journal_.add(
        [at, scope = program.scopes[at], plan = scopes[at]](Plan& p) { p.insert_scope(at, scope, plan); });
  journal_.moved();
  program.scopes.erase(program.scopes.begin() + static_cast<std::ptrdiff_t>(at));
  scopes.erase(scopes.begin() + static_cast<std::ptrdiff_t>(at));
  for (auto& other : scopes)
    if (other.attach_scope > static_cast<int>(at)) --other.attach_scope;
}

int Plan::add_loop(std::size_t scope, PlannedLoop loop) {
  loop.slot = program.next_slot++;
  scopes[scope].loops.push_back(std::move(loop));
  return static_cast<int>(scopes[scope].loops.size()) - 1;
}

std::size_t Plan::iterator_count(std::size_t scope) const {
  return program.scopes[scope].traversal.size() + program.scopes[scope].sums.size();
}

const program::Iterator& Plan::iterator(std::size_t scope, std::size_t index) const {
  const program::Scope& s = program.scopes[scope];
  return index < s.traversal.size() ? s.traversal[index] : s.sums[index - s.traversal.size()];
}

void Plan::drop_unused_scalars() {
  auto& all = program.scalars;
  if (all.size() <= most_scalars_) return;
  remember_program();
  if (journal_.open())
    journal_.add([before = all](Plan& p) mutable { p.program.scalars = std::move(before); });
  std::vector<bool> used(all.size(), false);
  const auto use = [&](ScalarId id) { used[static_cast<std::size_t>(id)] = true; };
  for (std::size_t s = 0; s < scopes.size(); ++s) {
    use(program.scopes[s].body);
    if (!scopes[s].epilogue) continue;
    use(scopes[s].epilogue->body);
    use(scopes[s].epilogue->value);
  }
  for (std::size_t i = all.size(); i-- > 0;)  // operands precede what uses them
    if (used[i]) program::over_operands(all[i], use);
  std::vector<ScalarId> moved(all.size());
  std::size_t count = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!used[i]) continue;
    moved[i] = ScalarId{static_cast<std::uint32_t>(count)};
    program::over_operands(all[i], [&](ScalarId& id) { id = moved[static_cast<std::size_t>(id)]; });
    if (count != i) all[count] = std::move(all[i]);
    ++count;
  }
  all.resize(count);
  const auto move = [&](ScalarId& id) { id = moved[static_cast<std::size_t>(id)]; };
  for (std::size_t s = 0; s < scopes.size(); ++s) {
    move(program.scopes[s].body);
    if (!scopes[s].epilogue) continue;
    move(scopes[s].epilogue->body);
    move(scopes[s].epilogue->value);
  }
  most_scalars_ = std::max(most_scalars_, 2 * count);
}

std::pair<std::int64_t, std::int64_t> Plan::range(const program::Range& range) const {
  const symbolic::Expr &first = program.arena[range.begin], &last = program.arena[range.end];
  if (first.op == symbolic::Op::Constant && last.op == symbolic::Op::Constant)
    return {first.value, last.value};
  const auto begin = symbolic::evaluate(program.arena, range.begin, program.sizes, 0, {});
  const auto end = symbolic::evaluate(program.arena, range.end, program.sizes, 0, {});
  SYNO_ASSERT(begin && end, "a range of a concrete program is two integers");
  return {*begin, *end};
}

bool Plan::grows(std::size_t scope, int loop) const {
  const auto& loops = scopes[scope].loops;
  const PlannedLoop& at = loops[static_cast<std::size_t>(loop)];
  if (at.parent >= 0)
    return loops[static_cast<std::size_t>(at.parent)].outer == loop && grows(scope, at.parent);
  if (at.first >= 0) return grows(scope, at.first) || grows(scope, at.second);
  const auto i = static_cast<std::size_t>(loop);
  return i < iterator_count(scope) && iterator(scope, i).range.live.parameter != 0;
}

std::optional<ExprId> Plan::live_end(symbolic::Arena& arena, const program::Range& range) const {
  const symbolic::Live& live = range.live;
  if (live.parameter == 0 || sizes.empty()) return std::nullopt;
  SYNO_ASSERT(live.parameter <= sizes.size(), "live ends are over sizes of the plan");
  const ExprId size = arena.iterator(sizes[live.parameter - 1].slot);
  const ExprId sum = arena.add(arena.multiply(size, live.times), arena.constant(live.plus));
  return live.by == 1 ? sum : arena.divide(sum, symbolic::Size(live.by));
}

void Plan::start_loops(std::size_t scope, const std::vector<std::pair<std::int64_t, std::int64_t>>& ranges) {
  ScopePlan& plan = change(scope);
  const program::Scope& s = program.scopes[scope];
  for (std::size_t i = 0; i < iterator_count(scope); ++i) {
    PlannedLoop loop;
    loop.name = fresh_loop_name(scope, iterator(scope, i).name);
    loop.extent = loop.live = ranges[i].second - ranges[i].first;
    loop.reduction = i >= s.traversal.size();
    plan.order.push_back(add_loop(scope, std::move(loop)));
  }
  plan.has_domain = true;
}

ExprId Plan::value_of(std::size_t scope, int index) {
  const PlannedLoop& loop = scopes[scope].loops[static_cast<std::size_t>(index)];
  if (loop.outer >= 0)
    return program.arena.add(program.arena.multiply(value_of(scope, loop.outer), loop.factor),
                             value_of(scope, loop.inner));
  if (loop.fused >= 0) {
    const PlannedLoop& joint = scopes[scope].loops[static_cast<std::size_t>(loop.fused)];
    const ExprId value = value_of(scope, loop.fused);
    const symbolic::Size extent(scopes[scope].loops[static_cast<std::size_t>(joint.second)].extent);
    return joint.first == index ? program.arena.divide(value, extent) : program.arena.modulo(value, extent);
  }
  return program.arena.iterator(loop.slot);
}

ExprId Plan::iterator_value(std::size_t scope, std::size_t index) {
  const ExprId value = value_of(scope, static_cast<int>(index));
  const ScopePlan& plan = scopes[scope];
  if (index < plan.bases.size()) return program.arena.add(plan.bases[index], value);
  return program.arena.add(program.arena.constant(range(iterator(scope, index).range).first), value);
}

ExprId Plan::over_loops(std::size_t scope, ExprId e) {
  return program.arena.substitute(e, [&](std::uint32_t slot) {
    for (std::size_t i = 0; i < iterator_count(scope); ++i)
      if (iterator(scope, i).slot == slot) return iterator_value(scope, i);
    return program.arena.iterator(slot);
  });
}

std::int64_t Plan::greatest(std::size_t scope, int index) const {
  const PlannedLoop& loop = scopes[scope].loops[static_cast<std::size_t>(index)];
  if (loop.outer >= 0) return greatest(scope, loop.outer) * loop.factor + greatest(scope, loop.inner);
  if (loop.fused >= 0) {
    const PlannedLoop& joint = scopes[scope].loops[static_cast<std::size_t>(loop.fused)];
    const std::int64_t extent = scopes[scope].loops[static_cast<std::size_t>(joint.second)].extent;
    return joint.first == index ? greatest(scope, loop.fused) / extent : extent - 1;
  }
  return loop.extent - 1;
}

bool Plan::ends_iterator(std::size_t scope, int index) const {
  const auto& loops = scopes[scope].loops;
  const PlannedLoop& loop = loops[static_cast<std::size_t>(index)];
  if (loop.first >= 0) return ends_iterator(scope, loop.first);
  if (loop.parent < 0) return true;
  const PlannedLoop& parent = loops[static_cast<std::size_t>(loop.parent)];
  return (parent.outer == index || greatest(scope, parent.outer) == 0) && ends_iterator(scope, loop.parent);
}

bool Plan::makes_all(std::size_t scope) const {
  return is_argument(program.scopes[scope].output) || !program.scopes[scope].target.empty();
}

Shape Plan::storage(TensorId tensor) const {
  Shape shape;
  const auto made_by = producer(tensor);
  const bool reached = made_by && scopes[*made_by].has_domain && !makes_all(*made_by);
  const auto& dims = program.tensor(tensor).dims;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    if (reached && scopes[*made_by].total) {
      shape.push_back(scopes[*made_by].loops[d].extent);
    } else if (reached) {
      shape.push_back(greatest(*made_by, static_cast<int>(d)) + 1);
    } else {
      const auto [begin, end] = range(dims[d]);
      shape.push_back(end - begin);
    }
  }
  return shape;
}

std::vector<std::int64_t> Plan::strides(TensorId tensor) const {
  const auto& given = tensors[raw(tensor)].strides;
  return given.empty() ? nest::row_major_strides(storage(tensor)) : given;
}

AffineForms Plan::bound_forms() const {
  AffineForms forms;
  for (const nest::Parameter& size : sizes) forms.bind_parameter(size.slot, {size.least, size.greatest});
  for (std::size_t s = 0; s < scopes.size(); ++s) {
    if (!scopes[s].has_domain) continue;
    for (std::size_t i = 0; i < iterator_count(s); ++i) {
      const auto [begin, end] = range(iterator(s, i).range);
      forms.bind(iterator(s, i).slot, {begin, end - 1});
    }
    for (const auto& loop : scopes[s].loops) forms.bind(loop.slot, {0, loop.extent - 1});
  }
  return forms;
}

}  // namespace syno::schedule
