// program/points.hpp — single points of a program's outputs, with what a computation in a given precision may
// make of them: what kernels are verified with.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "program/interpret.hpp"

namespace syno::program {

/// The arithmetic that results are allowed to come from. Defaults: double precision.
struct Precision {
  double unit = 0x1p-53;      ///< largest relative error of one rounding
  double least = 0x1p-1073;   ///< what a result below the normal numbers may lack
  double normal = 0x1p-1022;  ///< the smallest normal number
  double largest = 0x1.fffffffffffffp1023;
  /// Sums of n terms err by at most this many units, or n + 4, of the sum of their absolute terms, and by
  /// 4 sqrt(n) of the sum itself.
  double longest_sum = 9000;
  double stored = 0;  ///< relative error of an output in its memory, beside `unit`
};

Precision single_precision();

struct PointOptions {
  Precision precision;
  /// Terms to add up for one point. Sums that would take more are estimated from terms drawn at random, the
  /// error of the estimate being part of what is allowed; of such extremes one side is known.
  double most_terms = 1e300;
};

/// What a correct computation may give. low > high: only what is not a number.
struct Allowed {
  double low = 0, high = 0;
  bool nan = false;      ///< not a number is allowed, too
  bool guessed = false;  ///< rests on a comparison that a rounding error may turn
};

struct AllowedValues {
  PointValues reference;
  std::vector<Allowed> allowed;
};
/// Computes single elements of a program's outputs, and remembers what they are made of.
class PointReference {
 public:
  /// The program and the inputs' values stay as they are as long as this is used.
  PointReference(const Program& program, const std::map<std::string, Values<double>>& inputs,
                 const PointOptions& options);
  ~PointReference();
  AllowedValues at(const std::string& output, const std::vector<std::vector<std::int64_t>>& points);
  /// Terms added up so far: what points have in common counts once.
  double spent_terms() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// As interpret_points(), with what is allowed there.
AllowedValues allowed_at_points(const Program& program, const std::map<std::string, Values<double>>& inputs,
                                const std::string& output,
                                const std::vector<std::vector<std::int64_t>>& points,
                                const PointOptions& options);

}  // namespace syno::program
