// program/evaluator.hpp — runs a compiled scope at one point of its traversal, in a number type of choice.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "program/interpret.hpp"
#include "program/product_run.hpp"
#include "program/product_sum.hpp"
#include "program/scope_walk.hpp"
#include "program/term_boxes.hpp"
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

/// A term drawn at random takes as long as so many in order.
inline constexpr double kDrawing = 16;

/// Advances `point` row-major over [begin, begin + extent); false after the last one.
inline bool advance(std::vector<std::int64_t>& point, const std::vector<std::int64_t>& begin,
                    const std::vector<std::int64_t>& extent) {
  for (std::size_t i = point.size(); i-- > 0;) {
    if (++point[i] < begin[i] + extent[i]) return true;
    point[i] = begin[i];
  }
  return false;
}

/// `load(tensor, offset)` gives an element of a tensor; `load.elements(tensor, finite)`, where there is such
/// a function, the elements that lie in memory (`finite`: it matters whether all are). Holds the iterators'
/// state, so one per thread.
template <class T>
class Evaluator {
 public:
  Evaluator(const Program& concrete, const Scope& scope, const Numbers<T>& numbers = Numbers<T>())
      : numbers_(numbers), walk_(ScopeCode(concrete, scope)), registers_(code().body.size()) {
    for (const Instruction& instruction : code().body) literals_.push_back(numbers_.from(instruction.value));
    initial_ = numbers_.start(code().reduction);
    if constexpr (std::is_same_v<T, Tracked>) products_ = ProductSum::of(code());
  }

  const ScopeCode& code() const { return walk_.code(); }

  /// Moves to a point of the traversal (logical values of its iterators).
  void move_to(const std::int64_t* traversal) { walk_.move_to(traversal); }

  /// Offset of the target of an accumulating scope at the current point; false when it is outside.
  bool target(std::int64_t& offset) const { return walk_.locate(code().target, offset); }

  /// Value of the scope at the current point.
  template <class Load>
  T value(Load&& load) {
    if (code().reduction == Reduction::None) return body(load);
    if constexpr (requires { load.elements(std::uint32_t{}, false); })
      if (const std::optional<T> total = products(load))
        return numbers_.finish(code().reduction, *total, code().sum_points);
    T total = initial_;
    do {
      interruption_point();
      numbers_.fold(code().reduction, total, body(load));
    } while (walk_.next_term());
    return numbers_.finish(code().reduction, total, code().sum_points);
  }

  /// Whether values() may give several along an iterator of the traversal.
  bool has_values(std::size_t iterator) {
    if (runs_.empty())
      for (std::size_t i = 0; i < code().traversal_count; ++i) runs_.push_back(ProductRun::of(code(), i));
    return iterator < runs_.size() && runs_[iterator].has_value();
  }
  /// The values of `count` points from the current one on, along such an iterator, into `made`; false where
  /// they have to be computed one by one. Stands somewhere else afterwards. For Tracked numbers.
  template <class Load>
  bool values(std::size_t iterator, std::int64_t count, Load&& load, std::vector<T>& made) {
    ProductRun& run = *runs_[iterator];
    made.resize(static_cast<std::size_t>(count));
    std::vector<std::int64_t> point = walk_.iterators();
    for (std::int64_t first = 0; first < std::min(run.stride(), count); ++first, ++point[iterator]) {
      walk_.move_to(point.data());
      const std::int64_t here = (count - first + run.stride() - 1) / run.stride();
      if (!run.at({walk_.lanes(), walk_.iterators()}, here, load, numbers_, run_)) return false;
      for (std::int64_t k = 0; k < here; ++k)
        made[static_cast<std::size_t>(first + k * run.stride())] =
            numbers_.finish(code().reduction, run_[static_cast<std::size_t>(k)], code().sum_points);
    }
    return true;
  }

  /// The value estimated from about `terms` of the reduction's terms, drawn at random. Of a sum of which few
  /// terms read inside of a tensor, these are taken as they are, or drawn by themselves: among all they may
  /// not be met. For Tracked numbers.
  template <class Load>
  T estimate(Load&& load, std::int64_t terms, Random& random) {
    const Reduction reduction = code().reduction;
    const TermBox all = all_terms(code());
    const auto anywhere = [](const std::int64_t*) { return true; };
    std::vector<TermBox> boxes = inner_boxes(code(), walk_.iterators());
    double inside = 0;
    for (const TermBox& box : boxes) inside += box.size();
    const bool each = inside <= kDrawing * static_cast<double>(terms);
    if (!boxes.empty() && !each) boxes = {hull(boxes)};
    if (boxes.empty() || (reduction != Reduction::Sum && reduction != Reduction::Mean) ||
        (each ? inside : boxes[0].size()) > all.size() / 2) {
      const Drawn drawn = draw(load, all, terms, random, anywhere);
      return numbers_.estimated(reduction, drawn.total, code().sum_points, terms, drawn.squares);
    }
    const auto outside = [&](const std::int64_t* sums) {
      return std::none_of(boxes.begin(), boxes.end(), [&](const TermBox& box) { return box.contains(sums); });
    };
    T whole;
    std::int64_t within = 0;
    if (each) {
      whole = initial_;
      for (std::size_t b = 0; b < boxes.size(); ++b)
        within += add_each(load, std::span(boxes).first(b), boxes[b], whole);
      whole = numbers_.finish(Reduction::Sum, whole, std::max<std::int64_t>(1, within));
    } else {
      within = static_cast<std::int64_t>(boxes[0].size());
      const Drawn drawn = draw(load, boxes[0], terms, random, anywhere);
      whole = numbers_.estimated(Reduction::Sum, drawn.total, within, terms, drawn.squares);
    }
    const Drawn rest = draw(load, all, terms, random, outside);
    const T filled =
        numbers_.estimated(Reduction::Sum, rest.total, code().sum_points - within, terms, rest.squares);
    walk_.to_first_term();
    return numbers_.together(reduction, whole, filled, code().sum_points);
  }

 private:
  struct Drawn {
    T total;
    double squares = 0;
  };
  /// Folds `terms` terms of a box that `wanted` takes, which most of them are.
  template <class Load, class Wanted>
  Drawn draw(Load& load, const TermBox& box, std::int64_t terms, Random& random, const Wanted& wanted) {
    Drawn drawn{initial_};
    for (std::int64_t n = 0; n < terms; ++n) {
      interruption_point();
      do walk_.move_to_term(random, box.begin.data(), box.extent.data());
      while (!wanted(walk_.iterators().data() + code().traversal_count));
      const T term = body(load);
      drawn.squares += term.value * term.value;
      numbers_.fold(code().reduction, drawn.total, term);
    }
    walk_.to_first_term();
    return drawn;
  }
  /// Adds all terms of a box that are in none of those before; how many.
  template <class Load>
  std::int64_t add_each(Load& load, std::span<const TermBox> before, const TermBox& box, T& total) {
    std::int64_t count = 0;
    std::vector<std::int64_t> at = box.begin;
    do {
      interruption_point();
      if (std::any_of(before.begin(), before.end(), [&](const TermBox& b) { return b.contains(at.data()); }))
        continue;
      walk_.move_sums_to(at.data());
      numbers_.fold(Reduction::Sum, total, body(load));
      ++count;
    } while (advance(at, box.begin, box.extent));
    return count;
  }

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
    const ProductSum::Point here{walk_.lanes(), walk_.iterators()};
    return given ? products_->at(here, elements.data(), numbers_.precision())
                 : products_->computed_at(here, load, numbers_);
  }

  template <class Load>
  T body(Load& load) {
    for (std::size_t i = 0; i < registers_.size(); ++i) {
      const Instruction& instruction = code().body[i];
      switch (instruction.kind) {
        case ScalarKind::Literal:
          registers_[i] = literals_[i];
          break;
        case ScalarKind::Read: {
          std::int64_t offset = 0;
          const Access& access = code().accesses[instruction.a];
          registers_[i] = walk_.locate(access, offset) ? load(access.tensor, offset) : literals_[i];
          break;
        }
        case ScalarKind::Index: {
          registers_[i] = numbers_.from_index(walk_.index(instruction));
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
  ScopeWalk walk_;
  std::vector<T> registers_;
  std::vector<T> literals_;
  T initial_;
  std::optional<ProductSum> products_;  ///< of Tracked numbers
  std::vector<T> run_;
  std::vector<std::optional<ProductRun>> runs_;  ///< by iterator, once they are asked for; of Tracked numbers
};

}  // namespace syno::program::detail
