// program/evaluator.hpp — runs a compiled scope at one point of its traversal, in a number type of choice.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

#include "program/interpret.hpp"
#include "program/scope_code.hpp"
#include "support/error.hpp"

namespace syno::program::detail {

/// Exact values in a register. What a body computes in a branch that `select` does not take may be undefined
/// (1/0), so this travels as a reason and is an error only where it reaches a result.
struct Exact {
  Rational value;
  const char* undefined = nullptr;
};

/// A value with the sum of the absolute values of the terms it was made of: what rounding errors are measured
/// by.
struct Tracked {
  double value = 0;
  double absolute = 0;
};

template <class T>
struct Numbers;

template <>
struct Numbers<double> {
  static double from(Rational value) { return value.to_double(); }
  static double from_index(std::int64_t value) { return static_cast<double>(value); }
  static bool truth(double value) { return value != 0; }
  static double function(Function f, double a, double b = 0) {
    if (f == Function::Multiply) return a * b;  // the two that sums of products consist of, inline
    if (f == Function::Add) return a + b;
    return apply(f, a, b);
  }
  static double mean(double sum, std::int64_t count) { return sum / static_cast<double>(count); }
};

template <>
struct Numbers<Tracked> {
  static Tracked from(Rational value) { return {value.to_double(), std::abs(value.to_double())}; }
  static Tracked from_index(std::int64_t value) {
    return {static_cast<double>(value), std::abs(static_cast<double>(value))};
  }
  static bool truth(const Tracked& value) { return value.value != 0; }
  static Tracked function(Function f, const Tracked& a, const Tracked& b = {}) {
    const double value = apply(f, a.value, b.value);
    switch (f) {
      case Function::Add:
      case Function::Subtract:
        return {value, a.absolute + b.absolute};
      case Function::Multiply:
        return {value, a.absolute * b.absolute};
      case Function::Divide:
        return {value, a.absolute / std::abs(b.value)};
      case Function::Negate:
      case Function::Abs:
        return {value, a.absolute};
      case Function::Relu:
        return {value, a.value > 0 ? a.absolute : 0};
      case Function::Maximum:
      case Function::Minimum:
        return {value, value == a.value ? a.absolute : b.absolute};
      default:
        return {value, std::abs(value)};
    }
  }
  static Tracked mean(const Tracked& sum, std::int64_t count) {
    return {sum.value / static_cast<double>(count), sum.absolute / static_cast<double>(count)};
  }
};

template <>
struct Numbers<Exact> {
  static Exact from(Rational value) { return {value}; }
  static Exact from_index(std::int64_t value) { return {Rational(value)}; }
  static bool truth(const Exact& value) { return value.value != Rational(0); }
  static Exact function(Function f, const Exact& a, const Exact& b = {});
  static Exact mean(const Exact& sum, std::int64_t count) {
    return {sum.undefined ? Rational() : sum.value / Rational(count), sum.undefined};
  }
};

/// `load(tensor, offset)` gives an element of a tensor. Holds the iterators' state, so one per thread.
template <class T>
class Evaluator {
 public:
  Evaluator(const Program& concrete, const Scope& scope)
      : code_(concrete, scope),
        iterators_(code_.begin),
        lanes_(code_.lanes.size()),
        registers_(code_.body.size()) {
    for (const Instruction& instruction : code_.body)
      literals_.push_back(Numbers<T>::from(instruction.value));
    initial_ = code_.reduction == Reduction::Product ? Numbers<T>::from(1)
               : code_.reduction == Reduction::Max   ? Numbers<T>::from(Rational::infinity(true))
               : code_.reduction == Reduction::Min   ? Numbers<T>::from(Rational::infinity())
                                                     : Numbers<T>::from(0);
  }

  const ScopeCode& code() const { return code_; }

  /// Moves to a point of the traversal (logical values of its iterators).
  void move_to(const std::int64_t* traversal) {
    std::copy(traversal, traversal + code_.traversal_count, iterators_.begin());
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      const Affine& affine = code_.lanes[i];
      std::int64_t value = affine.constant;
      for (const auto& [position, coefficient] : affine.terms) value += coefficient * iterators_[position];
      lanes_[i] = value;
    }
  }

  /// Offset of the target of an accumulating scope at the current point; false when it is outside.
  bool target(std::int64_t& offset) const { return locate(code_.target, offset); }

  /// Value of the scope at the current point.
  template <class Load>
  T value(Load&& load) {
    if (code_.reduction == Reduction::None) return body(load);
    T total = initial_;
    const std::size_t first = code_.traversal_count, count = iterators_.size();
    for (;;) {
      fold(total, body(load));
      std::size_t i = count;
      while (i > first) {
        --i;
        if (++iterators_[i] < code_.begin[i] + code_.extent[i]) {
          for (const auto& [lane, coefficient] : code_.lanes_of[i]) lanes_[lane] += coefficient;
          break;
        }
        iterators_[i] = code_.begin[i];
        for (const auto& [lane, coefficient] : code_.lanes_of[i])
          lanes_[lane] -= coefficient * (code_.extent[i] - 1);
        if (i == first) return finish(total);
      }
      if (count == first) return finish(total);
    }
  }

 private:
  bool locate(const Access& access, std::int64_t& offset) const {
    for (const CheckedLane& check : access.lanes)
      if (static_cast<std::uint64_t>(lanes_[check.lane] - check.begin) >=
          static_cast<std::uint64_t>(check.extent))
        return false;
    offset = lanes_[access.offset_lane];
    for (const CheckedSteps& check : access.steps) {
      std::int64_t value = 0;
      if (!run(check.steps, iterators_.data(), value)) return false;
      value -= check.begin;
      if (value < 0 || value >= check.extent) return false;
      offset += value * check.stride;
    }
    return true;
  }

  template <class Load>
  T body(Load& load) {
    for (std::size_t i = 0; i < registers_.size(); ++i) {
      const Instruction& instruction = code_.body[i];
      switch (instruction.kind) {
        case ScalarKind::Literal:
          registers_[i] = literals_[i];
          break;
        case ScalarKind::Read: {
          std::int64_t offset = 0;
          const Access& access = code_.accesses[instruction.a];
          registers_[i] = locate(access, offset) ? load(access.tensor, offset) : literals_[i];
          break;
        }
        case ScalarKind::Index: {
          std::int64_t value = 0;
          run(code_.indices[instruction.a], iterators_.data(), value);
          registers_[i] = Numbers<T>::from_index(value);
          break;
        }
        case ScalarKind::Unary:
          registers_[i] = Numbers<T>::function(instruction.function, registers_[instruction.a]);
          break;
        case ScalarKind::Binary:
          registers_[i] = Numbers<T>::function(instruction.function, registers_[instruction.a],
                                               registers_[instruction.b]);
          break;
        case ScalarKind::Select: {
          const T& condition = registers_[instruction.a];
          registers_[i] = undefined(condition)           ? condition
                          : Numbers<T>::truth(condition) ? registers_[instruction.b]
                                                         : registers_[instruction.c];
          break;
        }
      }
    }
    return registers_.back();
  }

  static bool undefined(const Exact& value) { return value.undefined != nullptr; }
  template <class Other>
  static bool undefined(const Other&) {
    return false;
  }

  void fold(T& total, const T& value) const {
    switch (code_.reduction) {
      case Reduction::Max:
        total = Numbers<T>::function(Function::Maximum, total, value);
        break;
      case Reduction::Min:
        total = Numbers<T>::function(Function::Minimum, total, value);
        break;
      case Reduction::Product:
        total = Numbers<T>::function(Function::Multiply, total, value);
        break;
      default:
        total = Numbers<T>::function(Function::Add, total, value);
        break;
    }
  }
  T finish(const T& total) const {
    return code_.reduction == Reduction::Mean ? Numbers<T>::mean(total, code_.sum_points) : total;
  }

  ScopeCode code_;
  std::vector<std::int64_t> iterators_;
  std::vector<std::int64_t> lanes_;
  std::vector<T> registers_;
  std::vector<T> literals_;
  T initial_;
};

/// Advances `point` row-major over [begin, begin + extent); false after the last one.
inline bool advance(std::vector<std::int64_t>& point, const std::vector<std::int64_t>& begin,
                    const std::vector<std::int64_t>& extent) {
  for (std::size_t i = point.size(); i-- > 0;) {
    if (++point[i] < begin[i] + extent[i]) return true;
    point[i] = begin[i];
  }
  return false;
}

}  // namespace syno::program::detail
