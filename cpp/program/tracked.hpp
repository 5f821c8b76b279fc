// program/tracked.hpp — numbers with what a computation in a given precision may make of them: running error
// analysis in intervals (Higham, Accuracy and Stability, 2002, section 2.9 and chapter 3).
#pragma once

#include <cstdint>

#include "program/points.hpp"

namespace syno::program::detail {

/// A value in double precision and the range of what correct code may compute, in any order of its sums,
/// fused or not. A range with low > high is empty: only what is not a number is right.
struct Tracked {
  double value = 0;
  double absolute = 0;  ///< sum of the absolute values of the terms
  double low = 0, high = 0;
  double size = 0;       ///< of the terms folded into it: their sum, or product of those above 1
  double small = 1;      ///< product of those below 1
  bool nan = false;      ///< what is not a number is right, too
  bool guessed = false;  ///< rests on a comparison that a rounding error may turn
};

/// Arithmetic on them in a precision.
class TrackedNumbers {
 public:
  explicit TrackedNumbers(const Precision& precision = {}) : p_(precision) {}
  const Precision& precision() const { return p_; }

  Tracked from(double literal) const;        ///< which may be rounded or not
  Tracked from_index(double integer) const;  ///< the same
  static Tracked loaded(double value);       ///< exactly this
  Tracked stored(Tracked value) const;       ///< in an output's memory

  Tracked function(Function f, const Tracked& a, const Tracked& b) const;
  /// How many units in the last place a product of two exact factors may err by.
  static double product_units();
  Tracked select(const Tracked& condition, const Tracked& yes, const Tracked& no) const;

  static Tracked start(Reduction reduction);
  void fold(Reduction reduction, Tracked& total, const Tracked& term) const;
  Tracked finish(Reduction reduction, Tracked total, std::int64_t terms) const;
  /// The same of `count` of `terms` terms drawn at random, whose values have this sum of squares.
  Tracked estimated(Reduction reduction, Tracked total, std::int64_t terms, std::int64_t count,
                    double squares) const;
  /// A sum or a mean of `terms` terms from the sums of two parts of them.
  Tracked together(Reduction reduction, const Tracked& a, const Tracked& b, std::int64_t terms) const;

 private:
  static void divide_all(Tracked& sum, std::int64_t terms);
  void widen(Tracked& x, double units, double least) const;
  bool usual(Function f, const Tracked& a, const Tracked& b, Tracked& made) const;
  Tracked rational(Function f, const Tracked& a, const Tracked& b) const;
  Tracked elementary(Function f, const Tracked& a) const;
  Tracked compared(Function f, const Tracked& a, const Tracked& b) const;
  Precision p_;
};

}  // namespace syno::program::detail
