// synth/work.hpp — multiply-adds, parameters and bytes of partial and finished operators, for the budgets.
#pragma once

#include "synth/state.hpp"

namespace syno::synth {

/// Summed over all valuations.
struct Work {
  double flops = 0;   ///< multiply-adds of the best stage plan
  double params = 0;  ///< of weights; further inputs are none
  double bytes = 0;   ///< inputs, weights, output and intermediates of that plan, float32
};

/// Plays the steps backwards, from the input to the output, as stages: which Reduces to perform next, after
/// the windows and matched coordinates they need have enlarged the data (materialised reduction, Syno §8).
/// All orders are tried; the cheapest counts.
class WorkModel {
 public:
  WorkModel(SizePool& sizes, SizeNumber input_elements, std::vector<SizeNumber> further_elements,
            SizeNumber output_elements);

  Work finished(const State& state, const CoordinatePool& pool);
  /// No completion of `state` costs less, provided that no further Reduce comes.
  double least_flops(const State& state, const CoordinatePool& pool, double largest_stride);
  double params(const State& state, const CoordinatePool& pool);

 private:
  double best_plan(const State& state, const CoordinatePool& pool, bool complete, double* intermediates);
  double weighted(SizeNumber size);  ///< its values, summed

  SizePool& sizes_;
  SizeNumber input_;
  std::vector<SizeNumber> further_;
  SizeNumber output_;
  std::vector<double> weighted_;  ///< by size; negative: not known
};

}  // namespace syno::synth
