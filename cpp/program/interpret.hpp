// program/interpret.hpp — the reference meaning of programs: slow, exact, the oracle of every transformation.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "program/program.hpp"

namespace syno::program {

/// A function of doubles, one of them unless it is binary; comparisons and logic give 0 or 1, any number but
/// 0 is true.
double apply(Function function, double a, double b = 0);

/// Row-major values of one tensor, element [0,..,0] first (a computed tensor's least indices).
template <class T>
struct Values {
  std::vector<std::int64_t> shape;
  std::vector<T> data;
};

/// Runs a concrete program. `inputs` by name; ShapeError when one is missing or of another shape.
/// Returns every output by name. Instantiated for double and Rational (exact: a function that is not rational
/// throws VerifyError naming it).
template <class T>
std::map<std::string, Values<T>> interpret(const Program& program,
                                           const std::map<std::string, Values<T>>& inputs);

/// The same for single points of one output: what kernels are verified with. A point has one index a
/// dimension, within the dimension's range (which may start elsewhere than 0). `absolute_terms[i]` is the sum
/// of the absolute values of the terms that make point i (intermediates are computed on demand and memoised).
struct PointValues {
  std::vector<double> values;
  std::vector<double> absolute_terms;
};
PointValues interpret_points(const Program& program, const std::map<std::string, Values<double>>& inputs,
                             const std::string& output, const std::vector<std::vector<std::int64_t>>& points);

}  // namespace syno::program
