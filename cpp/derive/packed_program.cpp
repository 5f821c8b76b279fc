// Packed states as programs.
#include <map>

#include "derive/moved.hpp"
#include "derive/packed.hpp"
#include "derive/tools.hpp"
#include "program/verify.hpp"
#include "support/error.hpp"

namespace syno::derive::packed {

namespace {

class Writer {
 public:
  Writer(const Program& program, std::size_t scope, const Space& space, const State& state)
      : program_(program), at_(scope), was_(program.scopes[scope]), space_(space), state_(state) {}

  Program operator()() {
    const std::vector<TensorId> operands = copied();
    Scope made;
    made.output = was_.output;
    std::vector<ExprId> values;  // of iterators
    const auto straight = same_as_output();
    Iterators outer = fresh(was_.traversal);
    if (straight) {
      made.traversal = outer;
      for (int i = 0; i < state_.traversals; ++i) values.push_back(from_zero(outer[(*straight)[at(i)]]));
    } else {
      for (int i = 0; i < state_.traversals; ++i) {
        made.traversal.push_back(iterator("z" + std::to_string(i), state_.extent[at(i)]));
        values.push_back(program_.arena.iterator(made.traversal.back().slot));
      }
      const std::string name =
          program::fresh_tensor_name(program_, program_.tensor(was_.output).name + "_terms");
      made.output = add_computed(program_, name, made.traversal);
    }
    for (int i = state_.traversals; i < state_.iterators; ++i) {
      made.sums.push_back(iterator("r" + std::to_string(i - state_.traversals), state_.extent[at(i)]));
      values.push_back(program_.arena.iterator(made.sums.back().slot));
    }
    made.reduction = made.sums.empty() ? program::Reduction::None : program::Reduction::Sum;
    made.body = product(operands, values);
    const TensorId terms = made.output;
    program_.scopes[at_] = std::move(made);
    simplify_scope(program_, at_);
    if (!straight) {
      add_outer(terms, outer);
      simplify_scope(program_, at_ + 1);
    }
    return std::move(program_);
  }

 private:
  /// The place among y's iterators of each traversal of t, where t is y.
  std::optional<std::vector<std::size_t>> same_as_output() const {
    if (state_.outer > 0 || state_.guards > 0) return {};
    std::vector<std::size_t> found;
    std::size_t moving = 0;
    for (const Iterator& iterator : was_.traversal) {
      const auto [begin, end] = range_of(program_, iterator.range);
      if (end - begin > 1) ++moving;
    }
    for (int i = 0; i < state_.traversals; ++i) {
      const auto& place = space_.places[state_.place[at(i)]];
      if (place.constant != 0 || place.terms.size() != 1 || place.terms[0].second != 1) return {};
      const Places::Atom& atom = space_.places.atom(place.terms[0].first);
      if (atom.kind != Places::Kind::Variable || atom.of >= Places::kSums ||
          atom.number != state_.extent[at(i)])
        return {};
      found.push_back(atom.of);
    }
    if (found.size() != moving) return {};
    return found;
  }

  Iterator iterator(std::string name, std::int64_t extent) {
    return program_.new_iterator(std::move(name), make_range(program_, 0, extent));
  }
  Iterators fresh(const Iterators& given) {
    std::vector<std::pair<std::uint32_t, ExprId>> moved;
    return copies_of(program_, given, moved);
  }
  ExprId from_zero(const Iterator& iterator) {
    const std::int64_t begin = range_of(program_, iterator.range).first;
    return program_.arena.add(program_.arena.iterator(iterator.slot), program_.arena.constant(-begin));
  }

  bool cut(int operand) const {
    return std::any_of(state_.dim.begin(), state_.dim.begin() + state_.dims,
                       [&](const Dim& dim) { return dim.operand == operand && dim.radix != 1; });
  }

  /// Copies of the operands that have dimensions cut, before the scope; which tensor to read for each.
  std::vector<TensorId> copied() {
    std::vector<TensorId> read = space_.operands;
    for (int o = 0; o < static_cast<int>(read.size()); ++o) {
      if (!cut(o)) continue;
      Scope copy;
      auto& arena = program_.arena;
      const auto& begins = space_.begins[at(o)];
      std::vector<ExprId> indices;
      for (const std::int64_t begin : begins) indices.push_back(arena.constant(begin));
      for (int d = 0; d < state_.dims; ++d) {
        const Dim& dim = state_.dim[at(d)];
        if (dim.operand != o) continue;
        copy.traversal.push_back(iterator("i" + std::to_string(copy.traversal.size()), dim.extent));
        ExprId& index = indices[at(dim.source)];
        index = arena.add(index, arena.multiply(arena.iterator(copy.traversal.back().slot), dim.radix));
      }
      const std::string name = program::fresh_tensor_name(program_, space_.operand_names[at(o)] + "_parts");
      copy.body = program_.read(read[at(o)], std::move(indices));
      copy.output = read[at(o)] = add_computed(program_, name, copy.traversal);
      program_.scopes.insert(program_.scopes.begin() + static_cast<std::ptrdiff_t>(at_), std::move(copy));
      simplify_scope(program_, at_++);
    }
    return read;
  }

  ScalarId product(const std::vector<TensorId>& operands, const std::vector<ExprId>& values) {
    auto& arena = program_.arena;
    std::optional<ScalarId> body;
    for (int o = 0; o < static_cast<int>(operands.size()); ++o) {
      std::vector<ExprId> indices;
      for (int d = 0; d < state_.dims; ++d) {
        const Dim& dim = state_.dim[at(d)];
        if (dim.operand != o) continue;
        ExprId index = arena.constant(dim.constant + (cut(o) ? 0 : space_.begins[at(o)][at(dim.source)]));
        for (int t = dim.first; t < dim.first + dim.count; ++t) {
          const Term& term = state_.term[at(t)];
          ExprId value = values[at(term.iterator)];
          if (term.over != 1) value = arena.divide(value, symbolic::Size(term.over));
          if (term.modulo != 0) value = arena.modulo(value, symbolic::Size(term.modulo));
          index = arena.add(index, arena.multiply(value, term.coefficient));
        }
        indices.push_back(index);
      }
      const ScalarId read = program_.read(operands[at(o)], std::move(indices));
      body = body ? program_.binary(Function::Multiply, *body, read) : read;
    }
    return body ? *body : program_.literal(1);
  }

  /// The place of a variable among y's traversal and sums.
  std::size_t variable(std::uint32_t number) const {
    if (number < Places::kSums) return number;
    std::size_t sum = 0;
    while (state_.outer_place[sum] != number - Places::kSums) ++sum;
    return was_.traversal.size() + sum;
  }

  ExprId expression(PlaceId id, const std::vector<ExprId>& variables) {
    auto& arena = program_.arena;
    const Places::Place& place = space_.places[id];
    ExprId all = arena.constant(place.constant);
    for (const auto& [atom_id, coefficient] : place.terms) {
      const Places::Atom& atom = space_.places.atom(atom_id);
      ExprId value =
          atom.kind == Places::Kind::Variable ? variables[variable(atom.of)] : expression(atom.of, variables);
      if (atom.kind == Places::Kind::Divide) value = arena.divide(value, symbolic::Size(atom.number));
      if (atom.kind == Places::Kind::Modulo) value = arena.modulo(value, symbolic::Size(atom.number));
      all = arena.add(all, arena.multiply(value, coefficient));
    }
    return all;
  }

  /// y[x] = sum[s] terms[places(x, s)], behind t.
  void add_outer(TensorId terms, const Iterators& traversal) {
    auto& arena = program_.arena;
    Scope scope;
    scope.output = was_.output;
    scope.traversal = traversal;
    std::vector<ExprId> variables;
    for (const Iterator& each : scope.traversal) variables.push_back(from_zero(each));
    for (int s = 0; s < state_.outer; ++s) {
      scope.sums.push_back(iterator("s" + std::to_string(s), state_.outer_extent[at(s)]));
      variables.push_back(arena.iterator(scope.sums.back().slot));
    }
    scope.reduction = scope.sums.empty() ? program::Reduction::None : program::Reduction::Sum;
    std::vector<ExprId> indices;
    for (int i = 0; i < state_.traversals; ++i) indices.push_back(expression(state_.place[at(i)], variables));
    for (int g = 0; g < state_.guards; ++g) {
      const ExprId guard = arena.inside(expression(state_.guard[at(g)], variables),
                                        symbolic::Size(state_.guard_extent[at(g)]));
      indices[0] = arena.add(indices[0], arena.multiply(guard, 0));
    }
    scope.body = program_.read(terms, std::move(indices));
    program_.scopes.insert(program_.scopes.begin() + static_cast<std::ptrdiff_t>(at_) + 1, std::move(scope));
  }

  Program program_;
  std::size_t at_;
  const Scope was_;
  const Space& space_;
  const State& state_;
};

}  // namespace

Program program_of(const Program& program, std::size_t scope, const Space& space, const State& state) {
  return Writer(program, scope, space, state)();
}

}  // namespace syno::derive::packed
