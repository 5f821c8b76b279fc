// Random well-formed programs for property tests: symbolic or concrete, with everything a program can hold.
#pragma once

#include <string>
#include <vector>

#include "program/program.hpp"
#include "support/random.hpp"

namespace syno::program::testing {

class ProgramGenerator {
 public:
  explicit ProgramGenerator(std::uint64_t seed) : random_(seed) {}

  Program operator()() {
    program_ = Program();
    pool_ = {Size(1), Size(2), Size(3), Size(4)};
    if (random_.below(2) == 0) add_variables();
    const std::size_t inputs = 1 + random_.below(3);
    for (std::size_t i = 0; i < inputs; ++i) add_input(i);
    if (random_.below(3) == 0) add_constant();
    const std::size_t scopes = 1 + random_.below(3);
    for (std::size_t i = 0; i < scopes; ++i) add_scope(i);
    program_.outputs.push_back(program_.scopes.back().output);
    if (scopes > 1 && random_.below(2) == 0) program_.outputs.push_back(program_.scopes.front().output);
    return program_;
  }

 private:
  void add_variables() {
    using symbolic::VariableKind;
    program_.sizes =
        Sizes({{"N", VariableKind::Primary}, {"k", VariableKind::Coefficient}, {"H", VariableKind::Primary}},
              {{4, 2, 3}, {6, 3, 2}});
    const Size n = Size::variable(0), k = Size::variable(1), h = Size::variable(2);
    pool_.insert(pool_.end(), {n, k, h, n / k, h * k, n * Size(2)});
  }
  Size size() { return pool_[random_.below(pool_.size())]; }
  std::uint64_t below(std::uint64_t n) { return random_.below(n); }

  std::vector<Range> dims(std::size_t rank) {
    std::vector<Range> result;
    for (std::size_t d = 0; d < rank; ++d) result.push_back(program_.range_of(size()));
    return result;
  }
  void add_input(std::size_t i) {
    const Role role = i > 0 && below(2) == 0 ? Role::Weight : Role::Input;
    program_.add_tensor({"x" + std::to_string(i), role, dims(below(4)), {}});
  }
  void add_constant() {
    Tensor tensor{"table", Role::Constant, {program_.range_of(Size(3))}, {}};
    for (int i = 0; i < 3; ++i) tensor.literal.push_back(rational());
    program_.add_tensor(std::move(tensor));
  }
  Rational rational() {
    return Rational(static_cast<std::int64_t>(below(13)) - 6, 1 + static_cast<std::int64_t>(below(8)));
  }

  Iterator iterator(std::string name) {
    Range range = program_.range_of(size());
    if (below(4) == 0) {  // starts and ends elsewhere, also at symbolic places
      range.begin = program_.arena.constant(static_cast<std::int64_t>(below(3)) - 2);
      range.end = program_.arena.add(range.end, program_.arena.constant(static_cast<std::int64_t>(below(2))));
    }
    if (range.begin == range.end) range.end = program_.arena.add(range.end, program_.arena.constant(1));
    if (program_.arena[range.begin].value >= 1) range = program_.range_of(Size(2));
    return program_.new_iterator(std::move(name), range);
  }

  void add_scope(std::size_t number) {
    Scope scope;
    const char* names[] = {"i", "j", "h"};  // some shared between scopes, one also looks like a size
    slots_.clear();
    for (std::size_t d = 0, rank = below(4); d < rank; ++d) {
      scope.traversal.push_back(iterator(names[d]));
      slots_.push_back(scope.traversal.back().slot);
    }
    const std::size_t traversal = slots_.size();
    for (std::size_t d = 0, sums = below(3); d < sums; ++d) {
      scope.sums.push_back(iterator(d == 0 ? "k" : "r"));  // `k` is also the name of a size
      slots_.push_back(scope.sums.back().slot);
    }
    if (!scope.sums.empty()) scope.reduction = static_cast<Reduction>(1 + below(5));
    scope.body = body(3);
    Tensor output{"y" + std::to_string(number), Role::Computed, {}, {}};
    if (below(4) == 0) {
      slots_.resize(traversal);
      output.dims = dims(1 + below(2));
      for (std::size_t d = 0; d < output.dims.size(); ++d) scope.target.push_back(index(2, true));
    } else {
      for (const Iterator& iterator : scope.traversal) output.dims.push_back(iterator.range);
    }
    scope.output = program_.add_tensor(std::move(output));
    program_.scopes.push_back(std::move(scope));
  }

  ExprId index(int depth, bool guards) {
    Arena& arena = program_.arena;
    if (depth == 0 || below(4) == 0) {
      if (slots_.empty() || below(5) == 0)
        return below(2) == 0 ? arena.size(size()) : arena.constant(static_cast<std::int64_t>(below(5)) - 2);
      return arena.iterator(slots_[below(slots_.size())]);
    }
    const ExprId a = index(depth - 1, guards);
    switch (below(guards ? 6 : 5)) {
      case 0:
        return arena.add(a, index(depth - 1, guards));
      case 1:
        return arena.subtract(a, index(depth - 1, guards));
      case 2:
        return below(2) == 0 ? arena.multiply(a, size())
                             : arena.multiply(a, static_cast<std::int64_t>(below(5)) - 2);
      case 3:
        return arena.divide(a, size());
      case 4:
        return arena.modulo(a, size());
      default:
        return arena.inside(a, size());
    }
  }

  ScalarId body(int depth) {
    if (depth == 0 || below(4) == 0) {
      if (below(6) == 0)
        return program_.literal(below(8) == 0 ? Rational::infinity(below(2) == 0) : rational());
      if (below(6) == 0) return program_.index_value(index(2, false));
      const auto tensor = TensorId{static_cast<std::uint32_t>(below(program_.tensors.size()))};
      std::vector<ExprId> indices;
      for (std::size_t d = 0; d < program_.tensor(tensor).dims.size(); ++d) indices.push_back(index(2, true));
      const std::uint64_t fill = below(4);
      return program_.read(tensor, indices,
                           fill == 0   ? Rational::infinity(true)
                           : fill == 1 ? rational()
                                       : Rational(0));
    }
    const std::uint64_t kind = below(10);
    if (kind == 0) {
      const ScalarId a = body(depth - 1), b = body(depth - 1);
      return program_.select(a, b, body(depth - 1));
    }
    if (kind < 4) return program_.unary(static_cast<Function>(below(11)), body(depth - 1));
    const ScalarId a = body(depth - 1);
    return program_.binary(static_cast<Function>(11 + below(13)), a, body(depth - 1));
  }

  Random random_;
  Program program_;
  std::vector<Size> pool_;
  std::vector<std::uint32_t> slots_;
};

}  // namespace syno::program::testing
