#include "machine/features.hpp"

#include <algorithm>
#include <cmath>

namespace syno::machine {

namespace {

double logarithm(double value) { return std::log2(1 + std::max(0.0, value)); }

const std::vector<std::string_view> kFeatureNames{
    "flops",  "multiply_adds", "loads",  "stores", "latency",  "spills",   "overhead",
    "cycles", "near",          "middle", "far",    "speed_up", "fraction", "predicted_ns"};

}  // namespace

std::vector<double> features_of(const Prediction& made) {
  const Cycles& cycles = made.cycles;
  const auto moved = [&](std::size_t level) {
    return level < made.moved_bytes.size() ? logarithm(made.moved_bytes[level]) : 0.0;
  };
  double far = 0;
  for (std::size_t l = 3; l < made.moved_bytes.size(); ++l) far += made.moved_bytes[l];
  return {logarithm(made.flops),
          logarithm(cycles.fma),
          logarithm(cycles.loads),
          logarithm(cycles.stores),
          logarithm(cycles.latency),
          logarithm(cycles.spills),
          logarithm(cycles.overhead),
          logarithm(cycles.total),
          moved(1),
          moved(2),
          logarithm(far),
          made.speed_up,
          made.fraction_of_peak,
          logarithm(made.seconds * 1e9)};
}

const std::vector<std::string_view>& feature_names() { return kFeatureNames; }

}  // namespace syno::machine
