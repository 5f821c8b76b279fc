// machine/features.hpp — what a learned cost model sees of a loop nest: the counts a prediction is made of.
#pragma once

#include <string_view>
#include <vector>

#include "machine/predict.hpp"

namespace syno::machine {

/// Logarithms of the counts, in the order of feature_names().
std::vector<double> features_of(const Prediction& prediction);
const std::vector<std::string_view>& feature_names();

}  // namespace syno::machine
