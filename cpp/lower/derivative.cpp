#include "lower/derivative.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "lower/compacted.hpp"
#include "lower/index_inverse.hpp"
#include "lower/read_view.hpp"
#include "lower/scalar_adjoint.hpp"
#include "lower/tangled.hpp"
#include "lower/vanishing.hpp"
#include "program/scalars.hpp"
#include "program/verify.hpp"
#include "support/error.hpp"

namespace syno::lower {
namespace {

using program::Function;
using program::Iterator;
using program::Program;
using program::Reduction;
using program::Role;
using program::Scalar;
using program::ScalarId;
using program::ScalarKind;
using program::Scope;
using program::Tensor;
using program::TensorId;
using symbolic::Op;

/// What a read contributes to the cotangent of the tensor it reads, before iterators get their places.
struct Contribution {
  const Scope* scope;  ///< of the forward program
  ScalarId read;       ///< the read
  ScalarId value;      ///< cotangent of the output * d(body)/d(read), over the scope's iterators
};

class Reverse {
 public:
  Reverse(const Program& forward, const std::vector<std::string>& with_respect_to, Tangled tangled)
      : forward_(forward), p_(forward), iterators_(p_), tangled_(tangled) {
    std::vector<std::string> names;
    for (const TensorId id : forward.inputs()) names.push_back(forward.tensor(id).name);
    if (with_respect_to.empty()) fail<ShapeError>("derivative", "no input is named");
    for (const std::string& name : with_respect_to) {
      const auto found = forward.find_tensor(name);
      if (!found || std::find(names.begin(), names.end(), name) == names.end())
        throw UnknownName("derivative", unknown_name("input", name, names));
      if (std::find(targets_.begin(), targets_.end(), *found) != targets_.end())
        fail<ShapeError>("derivative", "input '{}' is named twice", name);
      targets_.push_back(*found);
    }
  }

  Program run() {
    active_.insert(targets_.begin(), targets_.end());
    for (const Scope& scope : forward_.scopes) {
      program::over_reads(p_, scope.body, [&](ScalarId, const Scalar& read) {
        if (active_.contains(read.tensor)) active_.insert(scope.output);
      });
    }
    for (const TensorId output : forward_.outputs) declare_cotangent(output);
    for (std::size_t s = forward_.scopes.size(); s-- > 0;) {
      const Scope& scope = forward_.scopes[s];
      if (!active_.contains(scope.output)) continue;
      const auto cotangent = cotangent_of(scope.output);
      if (cotangent) differentiate(scope, *cotangent);
    }
    p_.outputs.clear();
    for (const TensorId target : targets_) {
      const TensorId result = gradient_of(target);
      p_.tensors[index_of(result)].name = unique_name("d" + forward_.tensor(target).name, result);
      p_.outputs.push_back(result);
    }
    std::set<TensorId> given;
    for (const auto& [output, cotangent] : given_) given.insert(cotangent);
    return compacted(p_, given);
  }

 private:
  static std::set<Slot> slots_of(const std::vector<Iterator>& iterators) {
    std::set<Slot> slots;
    for (const Iterator& i : iterators) slots.insert(i.slot);
    return slots;
  }
  static std::size_t index_of(TensorId id) { return static_cast<std::size_t>(id); }
  symbolic::Arena& arena() { return p_.arena; }

  std::string unique_name(const std::string& base, std::optional<TensorId> self = {}) {
    std::string name = base;
    for (int i = 2; p_.find_tensor(name) && p_.find_tensor(name) != self; ++i)
      name = base + "_" + std::to_string(i);
    return name;
  }

  /// The caller passes the cotangent of an output; inputs count from 0, outputs may start elsewhere.
  void declare_cotangent(TensorId output) {
    if (given_.contains(output)) return;
    const Tensor tensor = forward_.tensor(output);
    Tensor cotangent{unique_name("d" + tensor.name), Role::Input, {}, {}};
    for (const Range& dim : tensor.dims) cotangent.dims.push_back({arena().constant(0), extent(dim)});
    given_[output] = p_.add_tensor(std::move(cotangent));
  }

  ExprId extent(const Range& range) {
    if (starts_at_zero(range)) return range.end;
    return iterators_.simplified(arena().subtract(range.end, range.begin));
  }

  bool starts_at_zero(const Range& range) {
    const symbolic::Expr& node = arena()[range.begin];
    return node.op == Op::Constant && node.value == 0;
  }

  struct Walk {
    std::vector<Iterator> traversal;
    std::vector<ExprId> at;
  };
  /// Iterators over every dimension of a tensor, named as its readers and writers name them.
  Walk walk(TensorId tensor) {
    Walk result;
    const Tensor shape = p_.tensor(tensor);
    for (std::size_t d = 0; d < shape.dims.size(); ++d) {
      const Slot slot = iterators_.add(name_of_dim(tensor, d), shape.dims[d]);
      result.traversal.push_back(iterators_[slot]);
      result.at.push_back(arena().iterator(slot));
    }
    return result;
  }
  std::string name_of_dim(TensorId tensor, std::size_t d) {
    for (const Scope& scope : forward_.scopes) {
      if (scope.output == tensor && scope.target.empty()) return scope.traversal[d].name;
      for (const ScalarId id : program::scalars_of(forward_, scope.body)) {
        const Scalar& scalar = forward_.scalar(id);
        if (scalar.kind != ScalarKind::Read || scalar.tensor != tensor) continue;
        const auto slots = forward_.arena.iterators(scalar.indices[d]);
        if (!slots.empty()) return iterators_[slots.front()].name;
      }
    }
    return "p" + std::to_string(d);
  }

  /// Reads a cotangent at the indices of the tensor that it belongs to.
  ScalarId read_given(TensorId output, const std::vector<ExprId>& at) {
    std::vector<ExprId> indices;
    const Tensor tensor = forward_.tensor(output);
    for (std::size_t d = 0; d < at.size(); ++d) {
      indices.push_back(starts_at_zero(tensor.dims[d]) ? at[d]
                                                       : arena().subtract(at[d], tensor.dims[d].begin));
    }
    return p_.read(given_.at(output), std::move(indices));
  }

  // ---- cotangents of whole tensors ----

  /// The tensor with the sum of all contributions; nothing where there is none. For an output without readers
  /// that is the caller's own.
  std::optional<TensorId> cotangent_of(TensorId tensor) {
    const auto all = contributions_.find(tensor);
    const bool given = given_.contains(tensor);
    if (all == contributions_.end() && !given) return std::nullopt;
    if (all == contributions_.end()) {
      const auto& dims = forward_.tensor(tensor).dims;
      if (std::all_of(dims.begin(), dims.end(), [&](const Range& dim) { return starts_at_zero(dim); })) {
        return given_.at(tensor);
      }
    }
    std::vector<Contribution> list;
    if (all != contributions_.end())
      for (const Contribution& contribution : all->second)
        list.push_back(reduced_first(contribution).value_or(contribution));
    // Contributions without sums join the scope that adds everything up; the others are tensors of their own.
    Walk place = walk(tensor);
    std::vector<ScalarId> terms;
    if (given) terms.push_back(read_given(tensor, place.at));
    const std::string name = "d" + forward_.tensor(tensor).name;
    const bool alone = list.size() == 1 && !given;
    for (const Contribution& contribution : list) {
      const auto gathered = gather(contribution, place);
      if (gathered && (gathered->sums.empty() || alone)) {
        terms.push_back(gathered->body);
        if (alone) return write(tensor, name, place.traversal, gathered->sums, gathered->body);
        continue;
      }
      TensorId part{};
      if (gathered) {
        const Walk own = walk(tensor);
        const auto whole = gather(contribution, own);
        SYNO_ASSERT(whole.has_value(), "what gathers at one walk gathers at any");
        part = write(tensor, name + "_part", own.traversal, whole->sums, whole->body);
      } else {
        part = scatter(contribution, tensor, alone ? name : name + "_part");
        if (alone) return part;
      }
      terms.push_back(p_.read(part, place.at));
    }
    ScalarId body = terms.front();
    for (std::size_t i = 1; i < terms.size(); ++i) body = p_.binary(Function::Add, body, terms[i]);
    return write(tensor, name, place.traversal, {}, body);
  }

  TensorId new_like(TensorId tensor, const std::string& name) {
    return p_.add_tensor({unique_name(name), Role::Computed, p_.tensor(tensor).dims, {}});
  }

  TensorId write(TensorId like, const std::string& name, const std::vector<Iterator>& traversal,
                 const std::vector<Iterator>& sums, ScalarId body) {
    Scope scope;
    scope.output = new_like(like, name);
    scope.traversal = traversal;
    scope.sums = sums;
    scope.reduction = sums.empty() ? Reduction::None : Reduction::Sum;
    scope.body = body;
    p_.scopes.push_back(scope);
    return scope.output;
  }

  TensorId gradient_of(TensorId target) {
    if (const auto found = cotangent_of(target)) return *found;
    const Walk place = walk(target);  // nothing depends on it
    return write(target, "d" + forward_.tensor(target).name, place.traversal, {}, p_.literal(0));
  }

  // ---- one scope ----

  void differentiate(const Scope& scope, TensorId cotangent) {
    if (scope.reduction == Reduction::Max || scope.reduction == Reduction::Min) {
      cotangent = shared_among_ties(scope, cotangent);
    }
    const std::vector<ExprId> at = output_indices(scope);
    ScalarId seed = p_.read(cotangent, at);
    switch (scope.reduction) {
      case Reduction::None:
      case Reduction::Sum:
        break;
      case Reduction::Mean:
        seed = mean_share(scope, seed);
        break;
      case Reduction::Max:
      case Reduction::Min: {
        seed = p_.select(behind(scope, scope.body, p_.read(scope.output, at)), p_.literal(0), seed);
        break;
      }
      case Reduction::Product:
        seed = product_of(p_, seed, product_of_others(scope));
        break;
    }
    for (const auto& [read, value] : scalar_adjoints(p_, scope.body, seed, active_)) {
      contributions_[p_.scalar(read).tensor].push_back({&scope, read, value});
    }
  }

  std::vector<ExprId> output_indices(const Scope& scope) {
    if (!scope.target.empty()) return scope.target;
    std::vector<ExprId> at;
    for (const Iterator& i : scope.traversal) at.push_back(arena().iterator(i.slot));
    return at;
  }

  ScalarId mean_share(const Scope& scope, ScalarId seed) {
    if (!p_.concrete()) {
      for (const Iterator& i : scope.sums) {
        const ExprId terms = arena().subtract(i.range.end, i.range.begin);
        seed = p_.binary(Function::Divide, seed, p_.index_value(terms));
      }
      return seed;
    }
    std::int64_t terms = 1;
    for (const Iterator& i : scope.sums) terms *= iterators_.extent(i.slot);
    return product_of(p_, seed, p_.literal({1, terms}));
  }

  struct Copied {
    std::vector<Iterator> traversal, sums;
    std::map<Slot, ExprId> points;
  };
  /// The iterators of a scope, again: each scope has its own.
  Copied copied(const Scope& scope) {
    Copied result;
    const auto copy = [&](const std::vector<Iterator>& from, std::vector<Iterator>& to) {
      for (const Iterator& i : from) {
        const Slot slot = iterators_.add(i.name, i.range);
        to.push_back(iterators_[slot]);
        result.points[i.slot] = arena().iterator(slot);
      }
    };
    copy(scope.traversal, result.traversal);
    copy(scope.sums, result.sums);
    return result;
  }

  /// Whether a term stays behind the extreme; none does where the extreme is not a number.
  ScalarId behind(const Scope& scope, ScalarId term, ScalarId extreme) {
    const bool max = scope.reduction == Reduction::Max;
    return p_.binary(Function::Less, max ? term : extreme, max ? extreme : term);
  }

  /// The cotangent divided by how many terms attain the extreme; what is not a number where the extreme is
  /// none.
  TensorId shared_among_ties(const Scope& scope, TensorId cotangent) {
    const Copied c = copied(scope);
    std::vector<ExprId> at;
    for (const Iterator& i : c.traversal) at.push_back(arena().iterator(i.slot));
    const ScalarId body = rebuilt(scope.body, c.points);
    const ScalarId attains =
        p_.select(behind(scope, body, p_.read(scope.output, at)), p_.literal(0), p_.literal(1));
    const std::string name = forward_.tensor(scope.output).name;
    const TensorId ties = write(scope.output, "ties_" + name, c.traversal, c.sums, attains);
    const Walk place = walk(scope.output);
    const ScalarId extreme = p_.read(scope.output, place.at);
    const ScalarId share = p_.select(
        p_.binary(Function::Equal, extreme, extreme),
        p_.binary(Function::Divide, p_.read(cotangent, place.at), p_.read(ties, place.at)), extreme);
    return write(scope.output, "share_" + name, place.traversal, {}, share);
  }

  /// others[t, s] = product over s' != s of body[t, s'], read at the scope's own point.
  ScalarId product_of_others(const Scope& scope) {
    const Copied outer = copied(scope), inner = copied(scope);
    std::map<Slot, ExprId> points = outer.points;
    ScalarId same = p_.literal(1);
    bool first = true;
    for (std::size_t i = 0; i < scope.sums.size(); ++i) {
      points[scope.sums[i].slot] = arena().iterator(inner.sums[i].slot);
      const ScalarId equal = p_.binary(Function::Equal, p_.index_value(arena().iterator(outer.sums[i].slot)),
                                       p_.index_value(arena().iterator(inner.sums[i].slot)));
      same = first ? equal : p_.binary(Function::And, same, equal);
      first = false;
    }
    Scope others;
    Tensor tensor{unique_name("others_" + forward_.tensor(scope.output).name), Role::Computed, {}, {}};
    others.traversal = outer.traversal;
    others.traversal.insert(others.traversal.end(), outer.sums.begin(), outer.sums.end());
    for (const Iterator& i : others.traversal) tensor.dims.push_back(i.range);
    others.output = p_.add_tensor(std::move(tensor));
    others.sums = inner.sums;
    others.reduction = Reduction::Product;
    others.body = p_.select(same, p_.literal(1), rebuilt(scope.body, points));
    p_.scopes.push_back(others);
    std::vector<ExprId> at;
    for (const auto* list : {&scope.traversal, &scope.sums}) {
      for (const Iterator& i : *list) at.push_back(arena().iterator(i.slot));
    }
    return p_.read(others.output, std::move(at));
  }

  // ---- one contribution ----

  struct Gathered {
    std::vector<Iterator> sums;
    ScalarId body;
  };
  /// As a sum over the points that read the element at `place`; nothing where the index map does not invert.
  std::optional<Gathered> gather(const Contribution& c, const Walk& place) {
    std::vector<Slot> space;
    for (const auto* list : {&c.scope->traversal, &c.scope->sums}) {
      for (const Iterator& i : *list) space.push_back(i.slot);
    }
    const Scalar read = p_.scalar(c.read);
    const auto inverse = invert(iterators_, space, read.indices, place.at);
    if (!inverse) return std::nullopt;
    Gathered result;
    for (const Slot slot : inverse->free) result.sums.push_back(iterators_[slot]);
    result.body = rebuilt(c.value, inverse->points, &read, &place.at);
    std::optional<ScalarId> all;
    for (const RangeCondition& condition : inverse->conditions) {
      if (covered(p_, result.body, condition)) continue;
      add_condition(all, condition);
    }
    if (all) result.body = p_.select(*all, result.body, p_.literal(0));
    return result;
  }

  /// A tangled sum whose terms stand still where the read moves is computed in two steps: the cotangent of
  /// what is read, as a tensor over the read's own coordinates, and the sum of its few elements for each
  /// element of the tensor. Both have plain indices.
  std::optional<Contribution> reduced_first(const Contribution& c) {
    constexpr std::int64_t kWorthATensor = 4;  // terms an element of it
    constexpr double kMoreWork = 1.1;
    if (!p_.concrete()) return std::nullopt;
    std::vector<Slot> space;
    double points = 1;
    for (const auto* list : {&c.scope->traversal, &c.scope->sums}) {
      for (const Iterator& i : *list) {
        space.push_back(i.slot);
        points *= static_cast<double>(iterators_.extent(i.slot));
      }
    }
    const TensorId tensor = p_.scalar(c.read).tensor;
    const Walk place = walk(tensor);
    const auto direct = gather(c, place);
    if (direct && tangled_ == Tangled::AtOnce) return std::nullopt;
    if (direct) {
      double visited = 1;
      for (const auto* list : {&place.traversal, &direct->sums})
        for (const Iterator& i : *list) visited *= static_cast<double>(iterators_.extent(i.slot));
      if (points > kMoreWork * visited ||
          !tangled(iterators_, direct->body, slots_of(place.traversal), slots_of(direct->sums)))
        return std::nullopt;
    }
    ReadView view = view_of_read(iterators_, space, p_.scalar(c.read).indices);
    std::int64_t terms = 1;
    for (const Slot slot : view.rest) terms *= iterators_.extent(slot);
    if (terms < kWorthATensor) return std::nullopt;
    const ScalarId body = rebuilt(c.value, view.points);
    arrange(view, body, place);
    Scope seen;
    Tensor values{unique_name("d" + forward_.tensor(tensor).name + "_seen"), Role::Computed, {}, {}};
    std::vector<ExprId> at;
    for (const Slot slot : view.coordinates) {
      seen.traversal.push_back(iterators_[slot]);
      values.dims.push_back(iterators_[slot].range);
      at.push_back(arena().iterator(slot));
    }
    for (const Slot slot : view.rest) seen.sums.push_back(iterators_[slot]);
    seen.output = p_.add_tensor(std::move(values));
    seen.reduction = Reduction::Sum;
    seen.body = body;
    p_.scopes.push_back(seen);
    seen_.push_back(seen);
    seen_.back().sums.clear();
    return Contribution{&seen_.back(), p_.read(tensor, view.indices), p_.read(seen.output, std::move(at))};
  }

  /// The order of the view's coordinates: outermost those that the second step sums over, then those of
  /// several factors, innermost those of the factor that has the most of its own, which fill vectors.
  void arrange(ReadView& view, ScalarId body, const Walk& place) {
    const auto inverse = invert(iterators_, view.coordinates, view.indices, place.at);
    std::map<Slot, std::set<ScalarId>> factors;
    program::over_reads(p_, body, [&](ScalarId id, const Scalar& read) {
      for (const ExprId index : read.indices)
        for (const Slot slot : arena().iterators(index)) factors[slot].insert(id);
    });
    std::map<std::set<ScalarId>, double> own;  // elements
    for (const Slot slot : view.coordinates) {
      auto [at, fresh] = own.try_emplace(factors[slot], 1.0);
      at->second *= static_cast<double>(iterators_.extent(slot));
    }
    const auto rank = [&](Slot slot) {
      const Slot point = inverse ? slot_of(arena(), inverse->points.at(slot)) : kNoSlot;
      const bool summed =
          inverse && std::find(inverse->free.begin(), inverse->free.end(), point) != inverse->free.end();
      const std::set<ScalarId>& of = factors[slot];
      return std::tuple(!summed, of.size() == 1, of.size() == 1 ? own.at(of) : 0.0);
    };
    std::stable_sort(view.coordinates.begin(), view.coordinates.end(),
                     [&](Slot a, Slot b) { return rank(a) < rank(b); });
  }

  void add_condition(std::optional<ScalarId>& all, const RangeCondition& condition) {
    const auto join = [&](ScalarId next) { all = all ? p_.binary(Function::And, *all, next) : next; };
    const ScalarId value = p_.index_value(condition.value);
    const Range low{condition.range.begin, arena().add(condition.range.begin, arena().constant(1))};
    if (arena()[condition.value].op == Op::Modulo &&
        iterators_.within(low.begin, Range{arena().constant(0), arena().constant(1)}) &&
        iterators_.within(condition.range.end, Range{arena().constant(1), arena().constant(2)})) {
      join(p_.binary(Function::Equal, value, p_.literal(0)));
      return;
    }
    const ExprId least = arena().constant(-(std::int64_t{1} << 40)),
                 most = arena().constant(std::int64_t{1} << 40);
    if (!iterators_.within(condition.value, {condition.range.begin, most})) {
      join(p_.binary(Function::LessEqual, p_.index_value(condition.range.begin), value));
    }
    if (!iterators_.within(condition.value, {least, condition.range.end})) {
      join(p_.binary(Function::Less, value, p_.index_value(condition.range.end)));
    }
  }

  /// As an accumulation over all points.
  TensorId scatter(const Contribution& c, TensorId tensor, const std::string& name) {
    const Copied copy = copied(*c.scope);
    Scope scope;
    scope.output = new_like(tensor, name);
    scope.traversal = copy.traversal;
    scope.traversal.insert(scope.traversal.end(), copy.sums.begin(), copy.sums.end());
    for (const ExprId index : p_.scalar(c.read).indices) scope.target.push_back(replaced(index, copy.points));
    scope.body = rebuilt(c.value, copy.points);
    p_.scopes.push_back(scope);
    return scope.output;
  }

  ExprId replaced(ExprId root, const std::map<Slot, ExprId>& points) {
    return iterators_.simplified(arena().substitute(root, [&](Slot slot) {
      const auto found = points.find(slot);
      return found == points.end() ? arena().iterator(slot) : found->second;
    }));
  }

  /// A copy of a scalar with iterators replaced. Reads equal to `known` are of the element at `place`.
  ScalarId rebuilt(ScalarId root, const std::map<Slot, ExprId>& points, const Scalar* known = nullptr,
                   const std::vector<ExprId>* place = nullptr) {
    std::map<ScalarId, ScalarId> copies;
    return program::copy_body(p_, root, p_, copies, [&](Scalar& scalar) {
      if (scalar.kind == ScalarKind::Read && known != nullptr && scalar.tensor == known->tensor &&
          scalar.indices == known->indices)
        scalar.indices = *place;
      else
        program::over_indices(scalar, [&](ExprId& index) { index = replaced(index, points); });
    });
  }

  const Program& forward_;
  Program p_;
  Iterators iterators_;
  Tangled tangled_;
  std::vector<TensorId> targets_;
  std::set<TensorId> active_;
  std::map<TensorId, TensorId> given_;  ///< by output: the cotangent that the caller passes
  std::map<TensorId, std::vector<Contribution>> contributions_;
  std::deque<Scope> seen_;  ///< what contributions that were reduced first are of
};

}  // namespace

Program derivative(const Program& program, const std::string& with_respect_to, Tangled tangled) {
  return derivatives(program, {with_respect_to}, tangled);
}

Program derivatives(const Program& program, const std::vector<std::string>& with_respect_to,
                    Tangled tangled) {
  program::verify(program);
  Program result = Reverse(program, with_respect_to, tangled).run();
  program::verify(result);
  return result;
}

}  // namespace syno::lower
