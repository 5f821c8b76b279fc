// program/evaluator.hpp — runs a compiled scope at one point of its traversal, in a number type of choice.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <optional>
#include <type_traits>
#include <vector>

#include "program/interpret.hpp"
#include "program/product_sum.hpp"
#include "program/scope_code.hpp"
#include "program/tracked.hpp"
#include "support/error.hpp"
#include "support/interrupt.hpp"
#include "support/random.hpp"

namespace syno::program::detail {

/// Exact values in a register. What a body computes in a branch that `select` does not take may be undefined
/// (1/0), so this travels as a reason and is an error only where it reaches a result.
struct Exact {
  Rational value;
  const char* undefined = nullptr;
};

template <class T>
struct Numbers;

/// Reductions by their functions, one term after the other.
template <class T>
struct Folding {
  static T start(Reduction reduction) {
    return Numbers<T>::from(reduction == Reduction::Product ? Rational(1)
                            : reduction == Reduction::Max   ? Rational::infinity(true)
                            : reduction == Reduction::Min   ? Rational::infinity()
                                                            : Rational(0));
  }
  static void fold(Reduction reduction, T& total, const T& value) {
    const Function f = reduction == Reduction::Max       ? Function::Maximum
                       : reduction == Reduction::Min     ? Function::Minimum
                       : reduction == Reduction::Product ? Function::Multiply
                                                         : Function::Add;
    total = Numbers<T>::function(f, total, value);
  }
  static T finish(Reduction reduction, const T& total, std::int64_t terms) {
    return reduction == Reduction::Mean ? Numbers<T>::mean(total, terms) : total;
  }
};

template <>
struct Numbers<double> : Folding<double> {
  static double from(Rational value) { return value.to_double(); }
  static double from_index(std::int64_t value) { return static_cast<double>(value); }
  static double select(double condition, double yes, double no) { return condition != 0 ? yes : no; }
  static double function(Function f, double a, double b = 0) {
    if (f == Function::Multiply) return a * b;  // the two that sums of products consist of, inline
    if (f == Function::Add) return a + b;
    return apply(f, a, b);
  }
  static double mean(double sum, std::int64_t count) { return sum / static_cast<double>(count); }
};

template <>
struct Numbers<Tracked> : TrackedNumbers {
  using TrackedNumbers::from;
  using TrackedNumbers::TrackedNumbers;
  Tracked from(Rational value) const { return from(value.to_double()); }
  Tracked from_index(std::int64_t value) const {
    return TrackedNumbers::from_index(static_cast<double>(value));
  }
  Tracked function(Function f, const Tracked& a, const Tracked& b = {}) const {
    return TrackedNumbers::function(f, a, b);
  }
};

template <>
struct Numbers<Exact> : Folding<Exact> {
  static Exact from(Rational value) { return {value}; }
  static Exact from_index(std::int64_t value) { return {Rational(value)}; }
  static Exact select(const Exact& condition, const Exact& yes, const Exact& no) {
    if (condition.undefined) return condition;
    return condition.value != Rational(0) ? yes : no;
  }
  static Exact function(Function f, const Exact& a, const Exact& b = {});
  static Exact mean(const Exact& sum, std::int64_t count) {
    return {sum.undefined ? Rational() : sum.value / Rational(count), sum.undefined};
  }
};

/// `load(tensor, offset)` gives an element of a tensor; `load.elements(tensor, finite)`, where there is such
/// a function, the elements that lie in memory (`finite`: it matters whether all are). Holds the iterators'
/// state, so one per thread.
template <class T>
class Evaluator {
 public:
  Evaluator(const Program& concrete, const Scope& scope, const Numbers<T>& numbers = Numbers<T>())
      : numbers_(numbers),
        code_(concrete, scope),
        iterators_(code_.begin),
        lanes_(code_.lanes.size()),
        registers_(code_.body.size()) {
    for (const Instruction& instruction : code_.body) literals_.push_back(numbers_.from(instruction.value));
    initial_ = numbers_.start(code_.reduction);
    if constexpr (std::is_same_v<T, Tracked>) products_ = ProductSum::of(code_);
  }

  const ScopeCode& code() const { return code_; }

  /// Moves to a point of the traversal (logical values of its iterators).
  void move_to(const std::int64_t* traversal) {
    std::copy(traversal, traversal + code_.traversal_count, iterators_.begin());
    update_lanes();
  }

  /// Offset of the target of an accumulating scope at the current point; false when it is outside.
  bool target(std::int64_t& offset) const { return locate(code_.target, offset); }

  /// Value of the scope at the current point.
  template <class Load>
  T value(Load&& load) {
    if (code_.reduction == Reduction::None) return body(load);
    if constexpr (requires { load.elements(std::uint32_t{}, false); })
      if (const std::optional<T> total = products(load))
        return numbers_.finish(code_.reduction, *total, code_.sum_points);
    T total = initial_;
    const std::size_t first = code_.traversal_count, count = iterators_.size();
    for (;;) {
      interruption_point();
      numbers_.fold(code_.reduction, total, body(load));
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
        if (i == first) return numbers_.finish(code_.reduction, total, code_.sum_points);
      }
      if (count == first) return numbers_.finish(code_.reduction, total, code_.sum_points);
    }
  }

  /// The same estimated from `terms` of the reduction's terms. For Tracked numbers.
  template <class Load>
  T estimate(Load&& load, std::int64_t terms, Random& random) {
    T total = initial_;
    double squares = 0;
    const std::size_t first = code_.traversal_count;
    for (std::int64_t n = 0; n < terms; ++n) {
      interruption_point();
      for (std::size_t i = first; i < iterators_.size(); ++i)
        iterators_[i] = code_.begin[i] +
                        static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(code_.extent[i])));
      update_lanes();
      const T term = body(load);
      squares += term.value * term.value;
      numbers_.fold(code_.reduction, total, term);
    }
    std::copy(code_.begin.begin() + static_cast<std::ptrdiff_t>(first), code_.begin.end(),
              iterators_.begin() + static_cast<std::ptrdiff_t>(first));
    return numbers_.estimated(code_.reduction, total, code_.sum_points, terms, squares);
  }

 private:
  template <class Load>
  std::optional<T> products(Load& load) {
    if (!products_) return std::nullopt;
    std::array<Elements, 2> elements;
    const bool outside = products_->may_be_outside();
    bool given = true, finite = true;
    for (std::size_t f = 0; f < products_->factor_count(); ++f) {
      elements[f] = load.elements(products_->tensor(f), outside);
      given = given && elements[f].data != nullptr;
      finite = finite && elements[f].finite;
    }
    if (given && outside && !finite) return std::nullopt;
    const ProductSum::Point here{lanes_, iterators_};
    return given ? products_->at(here, elements.data(), numbers_.precision())
                 : products_->computed_at(here, load, numbers_);
  }

  void update_lanes() {
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      const Affine& affine = code_.lanes[i];
      std::int64_t value = affine.constant;
      for (const auto& [position, coefficient] : affine.terms) value += coefficient * iterators_[position];
      lanes_[i] = value;
    }
  }

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
          registers_[i] = numbers_.from_index(value);
          break;
        }
        case ScalarKind::Unary:
          registers_[i] = numbers_.function(instruction.function, registers_[instruction.a]);
          break;
        case ScalarKind::Binary:
          registers_[i] =
              numbers_.function(instruction.function, registers_[instruction.a], registers_[instruction.b]);
          break;
        case ScalarKind::Select:
          registers_[i] = numbers_.select(registers_[instruction.a], registers_[instruction.b],
                                          registers_[instruction.c]);
          break;
      }
    }
    return registers_.back();
  }

  Numbers<T> numbers_;
  ScopeCode code_;
  std::vector<std::int64_t> iterators_;
  std::vector<std::int64_t> lanes_;
  std::vector<T> registers_;
  std::vector<T> literals_;
  T initial_;
  std::optional<ProductSum> products_;  ///< of Tracked numbers
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
