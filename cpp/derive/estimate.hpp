// derive/estimate.hpp — what a program costs, guessed in microseconds from its tensors and iteration spaces
// alone: what a search among thousands of programs is guided by. Schedules and predictions are for the few
// that are left (machine/predict.hpp).
#pragma once

#include <set>
#include <span>
#include <vector>

#include "derive/names.hpp"

namespace syno::derive {

/// What the nearest memory that holds so many bytes gives one core.
struct MemoryRate {
  double bytes = 0;
  double bytes_per_s = 1e10;
};

/// The machine as the guess sees it.
struct Rates {
  double multiply_adds_per_s = 5e10;
  std::vector<MemoryRate> levels;  ///< by growing bytes; beyond them, and without any, main memory's rate
  double memory_bytes_per_s = 1e10;
  double scope_s = 5e-7;  ///< entering a scope
  int element_bytes = 4;
};

struct Estimate {
  double seconds = 0;
  double multiply_adds = 0;  ///< points of the iteration spaces of scopes that compute anything
  double bytes = 0;          ///< each tensor that a scope touches, once
};

/// Of each scope: its points at the rate of multiply-adds, slower where they touch many elements each (a sum
/// of six terms cannot keep its operands in registers as a matrix product does), and its tensors from the
/// memory that holds them. Scopes that write one of `once` cost nothing: they are computed before any call.
/// `left`: by scope, the part of its points that counts; none: all of them.
Estimate estimate(const Program& program, const Rates& rates, const std::set<TensorId>& once,
                  std::span<const double> left = {});

}  // namespace syno::derive
